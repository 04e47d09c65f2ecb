"""How far the requests of a run depend on one another: how many independent ones they amount to.

Requests that are served together wait in one queue and share each step, so that a run of a thousand requests tells
less than a thousand independent ones would. Its timeline shows how much less: the run is cut into about a dozen
stretches of time, and what a figure differs from stretch to stretch is held against what it would if requests were
independent (the method of batch means). The ratio of the two squared errors is the design effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tokenpulse.analysis.intervals import Floats, Spread, bucket_counts, normal_quantile, t_quantile

MOST_STRETCHES = 12
FEWEST_STRETCHES = 8
"""Fewer tell too little of how much they differ."""

_Block = Mapping[str, Any]


@dataclass(frozen=True)
class Stretches:
    """A run cut into stretches of equal time, each with the blocks of the timeline's bins that lie in it."""

    blocks: tuple[tuple[_Block, ...], ...]
    _tables: dict[str, tuple[Any, Floats]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, timeline: Mapping[str, Any] | None) -> Stretches | None:
        """From a reduction's timeline; None where there is none or it is too coarse."""
        if timeline is None or not timeline["bins"]:
            return None
        width = timeline["width_ns"]
        numbers = [one["start_ns"] // width for one in timeline["bins"]]
        there = numbers[-1] - numbers[0] + 1
        each = math.ceil(there / MOST_STRETCHES)
        stretches: list[list[_Block]] = [[] for _ in range(math.ceil(there / each))]
        if len(stretches) < FEWEST_STRETCHES:
            return None
        for number, one in zip(numbers, timeline["bins"], strict=True):
            stretches[(number - numbers[0]) // each].append(one["block"])
        return cls(tuple(tuple(blocks) for blocks in stretches))

    def __len__(self) -> int:
        return len(self.blocks)

    def sums(self, count: Callable[[_Block], int]) -> Floats:
        """A count of blocks, added up by stretch."""
        return np.array([float(sum(count(block) for block in blocks)) for blocks in self.blocks])

    def table(self, metric: str) -> tuple[Any, Floats]:
        """Of a latency: indices of buckets, ascending, and how many values lie at or below each, by stretch."""
        if metric not in self._tables:
            self._tables[metric] = self._table(metric)
        return self._tables[metric]

    def _table(self, metric: str) -> tuple[Any, Floats]:
        found = [
            [bucket_counts(block["latency"][metric]) for block in blocks if block["latency"][metric].count]
            for blocks in self.blocks
        ]
        index = np.unique(np.concatenate([np.empty(0, np.int64), *(one for row in found for one, _ in row)]))
        counts = np.zeros((len(self), len(index)))
        for number, row in enumerate(found):
            for one, n in row:
                counts[number, np.searchsorted(index, one)] += n
        return index, np.cumsum(counts, axis=1)


@dataclass(frozen=True)
class Dependence:
    """How many independent values the values of a run amount to, figure by figure."""

    stretches: Stretches | None

    @classmethod
    def of(cls, timeline: Mapping[str, Any] | None) -> Dependence:
        return cls(Stretches.of(timeline))

    @cached_property
    def freedom(self) -> int:
        return 0 if self.stretches is None else len(self.stretches) - 1

    def percentile(self, metric: str, spread: Spread, q: float) -> float:
        """The design effect for a quantile: of the share of values below the edge that is next to it."""
        if self.stretches is None:
            return 1.0
        index, below = self.stretches.table(metric)
        if not len(index) or below[:, -1].sum() != spread.count:
            return 1.0
        shares = below.sum(axis=0) / spread.count
        inside = np.flatnonzero((shares > 0) & (shares < 1))
        if not len(inside):
            return 1.0
        edge = inside[np.argmin(np.abs(shares[inside] - q))]
        share = shares[edge]
        return _effect(below[:, edge] - share * below[:, -1], spread.count * share * (1 - share))

    def mean(self, metric: str, spread: Spread) -> float:
        """The design effect for a mean."""
        if self.stretches is None:
            return 1.0
        counts = self.stretches.sums(lambda block: block["latency"][metric].count)
        sums = self.stretches.sums(lambda block: block["latency"][metric].sum_ns) / 1e9
        return _effect(sums - spread.mean * counts, spread.count * spread.variance)

    def share(self, part: Callable[[_Block], int], whole: Callable[[_Block], int]) -> float:
        """The design effect for a share of requests."""
        if self.stretches is None:
            return 1.0
        parts, wholes = self.stretches.sums(part), self.stretches.sums(whole)
        n = wholes.sum()
        share = parts.sum() / n if n else 0.0
        return _effect(parts - share * wholes, n * share * (1 - share))

    def total(self, count: Callable[[_Block], int]) -> tuple[float, float] | None:
        """A count of the whole run and its squared error, from how it differs between stretches; None without them."""
        if self.stretches is None:
            return None
        counts = self.stretches.sums(count)
        n = len(counts)
        return float(counts.sum()), float(n * np.sum((counts - counts.mean()) ** 2) / (n - 1))

    def independent(self, n: float, effect: float, confidence: float) -> float:
        """How many independent values `n` amount to, and fewer by as much as the effect itself is uncertain."""
        if self.stretches is None:
            return n
        wider = t_quantile(confidence, self.freedom) / normal_quantile(confidence)
        return n / (effect * wider * wider)


def _effect(differences: Floats, independent: float) -> float:
    """The squared error that stretches show, over that of independent values; at least 1."""
    n = len(differences)
    return max(1.0, float(np.sum(differences**2)) * n / (n - 1) / independent) if independent > 0 else 1.0


def in_part(effect: float, part: int, whole: int) -> float:
    """The design effect among a part of the requests: less, as fewer of them are served together.

    >>> in_part(3.0, 50, 100)
    2.0
    """
    return 1 + (effect - 1) * part / whole
