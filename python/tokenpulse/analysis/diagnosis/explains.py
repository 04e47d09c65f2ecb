"""Which row explains the evidence of which others: the one table, and the order of findings that follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping

EXPLAINS = {
    "refill-thrash": ("p99-swings", "ttft-decode-share", "queue-growth", "tpot-batch", "ttft-queue", "memory-bound"),
    "p99-swings": ("queue-growth", "tpot-batch", "ttft-queue", "memory-bound"),
    "ttft-decode-share": ("tpot-batch", "ttft-queue", "memory-bound"),
    "queue-growth": ("tpot-batch", "ttft-queue", "memory-bound"),
    "tpot-batch": ("ttft-queue", "memory-bound"),
}
"""Of each row those whose evidence it brings about. The most specific evidence stands first: bursts and a cache that
thrashes fill queues and batches, but no queue makes a cache thrash."""


def ordered(strengths: Mapping[str, float], *, filled: bool = True) -> list[tuple[str, float, str | None]]:
    """Rows that hold and their strengths, to the rows, the strengths they are told with, and what explains them.

    A row that others explain is no stronger than they are, and stands after them. Otherwise the strongest is first.
    `filled`: the batch is full and requests wait for a place in it. Only then can decode be what fills the machine:
    else `ttft-decode-share` explains nothing.

    >>> ordered({"ttft-queue": 9.0, "queue-growth": 1.5})
    [('queue-growth', 1.5, None), ('ttft-queue', 1.5, 'queue-growth')]
    """
    explains = {row: others for row, others in EXPLAINS.items() if filled or row != "ttft-decode-share"}
    told: dict[str, tuple[float, str | None]] = {}
    for row in (*EXPLAINS, *(row for row in strengths if row not in EXPLAINS)):
        if row in strengths:
            by = [one for one, others in explains.items() if one in strengths and row in others]
            told[row] = (min(strengths[row], *(told[one][0] for one in by), math.inf), by[0] if by else None)
    return [(row, *told[row]) for row in sorted(told, key=lambda row: -told[row][0])]
