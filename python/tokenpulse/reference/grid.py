"""Successes by their TTFT and their TPOT at once, so that attainment can be read off for any two limits."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any

from tokenpulse.reference.buckets import HIGH_EXPONENT, LOW_EXPONENT, thresholds
from tokenpulse.reference.request import Ended

SCALE = 3
ZERO = (LOW_EXPONENT << SCALE) - 1
OVERFLOW = HIGH_EXPONENT << SCALE


def cell_index(ns: int) -> int:
    """The bucket of a value at scale 3; one below the first for the zero bucket, one above the last for the overflow.

    >>> cell_index(0), cell_index(953), cell_index(954), cell_index(10**9), cell_index(2**12 * 10**9 + 1)
    (-161, -161, -160, -1, 96)
    """
    return ZERO + bisect_left(thresholds(SCALE), ns)  # how many edges lie below it


class Grid:
    """How many successes there are in each cell. Those of one token have no TPOT and are apart."""

    def __init__(self) -> None:
        self.cells: Counter[tuple[int, int | None]] = Counter()

    def add(self, ended: Ended) -> None:
        """Takes any ended request; one that did not succeed, or lacks what its place needs, is in no cell."""
        if not ended.succeeded or ended.output_tokens == 0 or ended.ttft_ns is None:
            return
        if ended.output_tokens == 1:
            self.cells[cell_index(ended.ttft_ns), None] += 1
        elif ended.tpot_ns is not None:
            self.cells[cell_index(ended.ttft_ns), cell_index(ended.tpot_ns)] += 1

    def merge(self, other: Grid) -> None:
        self.cells += other.cells

    def as_dict(self) -> dict[str, Any]:
        in_order = sorted(self.cells.items(), key=lambda item: (item[0][0], item[0][1] is not None, item[0][1] or 0))
        return {"scale": SCALE, "cells": [[ttft, tpot, n] for (ttft, tpot), n in in_order]}
