"""What the rows of the diagnosis table say, in plain English."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """One row of the table."""

    symptom: str
    cause: str
    action: str


WORDS = {
    "tpot-batch": Words(
        symptom="Output tokens come more slowly (TPOT rose) while the batch or the KV cache is nearly full.",
        cause="The batch is too large: each step moves more weights and KV data than the memory keeps up with.",
        action="Make the largest batch smaller, or quantise the KV cache.",
    ),
    "ttft-queue": Words(
        symptom="The first token takes longer (TTFT rose) and requests wait in the queue.",
        cause="Prefill is squeezed out by decode: prompts wait for their turn while the batch goes on.",
        action="Use chunked prefill, or give prefill a larger share of each step.",
    ),
    "ttft-decode-share": Words(
        symptom="Throughput is as high as before, but the first token takes longer (TTFT rose).",
        cause="Decode fills the machine: more of the tokens computed are output, and new prompts find no room.",
        action="Keep a quota of each step or of the batch for the admission of prompts.",
    ),
    "refill-thrash": Words(
        symptom="The prefix cache hits at least as often as before, yet output tokens come more slowly (TPOT rose).",
        cause="The cache thrashes: blocks are evicted and needed again; bringing them back costs more than it saves.",
        action="Give the way back a larger budget, evict less often, or make the KV cache larger.",
    ),
    "p99-swings": Words(
        symptom="The slowest gaps between tokens swing from second to second.",
        cause="Bursts of evictions from the KV cache, or peaks of communication between GPUs, stall single steps.",
        action="Reserve KV blocks for running requests; tune or separate the communication.",
    ),
    "memory-bound": Words(
        symptom="The GPU computes less than half of the time, and output tokens come slowly.",
        cause="Memory is the limit: too few requests share each read of the weights.",
        action="Make batches larger, or quantise the weights.",
    ),
    "queue-growth": Words(
        symptom="The queue is long and grows without pause.",
        cause="There is too little capacity: more requests arrive than can be completed.",
        action="Scale out, or limit the rate of requests.",
    ),
}

BURSTS = {
    "evicted_blocks_per_second_in_worst_tenth": (
        "Eviction storm: in the worst seconds many blocks are evicted from the KV cache at once.",
        "Reserve KV blocks for running requests, and evict ahead of need rather than all at once.",
    ),
    "communication_seconds_per_second_in_worst_tenth": (
        "Communication between GPUs peaks in the worst seconds and stalls single steps.",
        "Tune the communication between GPUs, and keep other traffic off their links.",
    ),
}
"""Cause and action of `p99-swings` where one figure alone explains the bad seconds."""
