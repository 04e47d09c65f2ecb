"""The figures of SGLang's `bench_serving`, by its keys and in its units (times in ms, rates per second).

It began as vLLM's and still reckons most alike. It differs in inter-token latency over its own endpoint, where a chunk
of k tokens gives k times gap / k, and in what it adds: rates of both kinds of tokens, concurrency as latency over time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tokenpulse.profiles import vllm
from tokenpulse.profiles.choices import Choices
from tokenpulse.profiles.rows import Figures, Rows, known, over
from tokenpulse.records import Floats

CHOICES = Choices(
    first="the first chunk with text or choices",
    itl="over /generate k observations of gap / k for a chunk of k tokens; over the OpenAI endpoints one a chunk",
    tpot_span="latency - ttft",
    tpot_divisor="N - 1",
    counts="the server's usage, else the length asked for",
    few_tokens="left out",
    percentile="linear",
    empty="0; end-to-end latency: null",
    time="the client's clock from the start of the run to the last answer, drain included",
    good=None,
    good_of=None,
)

PERCENTILES = (90.0, 95.0, 99.0)

HEADLINE = {
    **{
        f"{metric}.{figure}": ((f"{key}_{tag}_ms",), 1e-3)
        for metric, tag in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2e", "e2e_latency"))
        for figure, key in (("mean", "mean"), ("p50", "median"), ("p99", "p99"), ("std", "std"))
    },
    "requests.succeeded": (("completed",), 1),
    "requests_per_second": (("request_throughput",), 1),
    "output_tokens_per_second": (("output_throughput",), 1),
}

_NAMED = re.compile(r"p(\d+(?:\.\d+)?)_(?:ttft|tpot|itl|e2e_latency)_ms")


def figures(rows: Rows, limits: dict[str, float]) -> Figures:
    """The line that SGLang would have appended."""
    ok, duration = rows.ok, rows.duration
    prompt, output = vllm.tokens(rows)
    e2e = known(rows.latency[ok])
    if limits:
        rows.missing("goodput", "SGLang has none")
    if duration is None:
        rows.missing("duration and rates", "the file has no times of the requests and no duration of the run")
    rows.missing("total_output_tokens_retokenized", "the records do not have the text tokenised again")
    rows.missing("accept_length", "it is the server's own, from its speculative decoding")
    summary: Figures = {
        "duration": duration,
        "completed": int(ok.sum()),
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "total_output_tokens_retokenized": None,
        "request_throughput": over(int(ok.sum()), duration),
        "input_throughput": None if prompt is None else over(prompt, duration),
        "output_throughput": None if output is None else over(output, duration),
        "total_throughput": None if prompt is None or output is None else over(prompt + output, duration),
        "concurrency": over(float(e2e.sum()), duration),
        "max_output_tokens_per_s": vllm.busiest_second(rows),
        "max_concurrent_requests": vllm.most_at_once(rows),
        "accept_length": None,
    }
    asked = sorted({*PERCENTILES, *(float(m[1]) for key in rows.own_summary("sglang") if (m := _NAMED.fullmatch(key)))})
    values = vllm.latencies(rows)
    if "itl" in values:
        values["itl"] = inter_token(rows)
        summary["max_itl_ms"] = float(values["itl"].max(initial=0.0) * 1000)
    for name, tag in (("e2el", "e2e_latency"), ("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl")):
        if name in values:
            summary |= distribution(tag, values[name], asked)
    return summary


def distribution(name: str, seconds: Floats, percentiles: Sequence[float]) -> Figures:
    """As vLLM's, but that an end-to-end latency without values is null."""
    found = vllm.distribution(name, seconds, percentiles)
    return dict.fromkeys(found) if name == "e2e_latency" and not seconds.size else found


def inter_token(rows: Rows) -> Floats:
    """s: gaps of the successes, one a token where the sizes of chunks are known; SGLang's own file has them so."""
    gaps = rows.pooled_gaps(rows.ok)
    sizes = rows.records.chunk_tokens
    if sizes is None or rows.gaps is None:
        return gaps
    chunks = sizes.select(rows.ok)
    later = np.ones(chunks.values.size, np.bool_)
    later[chunks.offsets[:-1][chunks.lengths > 0]] = False
    tokens = np.maximum(chunks.values[later], 1).astype(np.int64)
    return np.repeat(gaps / tokens, tokens) if tokens.size == gaps.size else gaps
