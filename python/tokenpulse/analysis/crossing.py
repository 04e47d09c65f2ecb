"""Where a share that only falls meets a target: between which of the points that were measured, and how surely.

Guarantees. What is known at some rates is never carried beyond them: above all of them the answer is "at least", below
"under". The interval takes nothing of the share's course for granted but that it does not rise: it reaches from the
highest rate at which the share is surely at the target or over it to the lowest at which it is surely under it, all of
these certainties holding together with the confidence asked for. The estimate inside is a straight line's, between
neighbours of the falling curve that fits best (isotonic regression), which lies below a curve that falls ever faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tokenpulse.analysis.intervals import Interval

BETWEEN, AT_LEAST, UNDER = "between", "at least", "under"


class Point(NamedTuple):
    """A share that was measured at a rate."""

    rate: float
    share: float
    weight: float
    """How many independent cases the share is of; above 0."""
    interval: Interval
    """Between which ends the share lies, so that those of all points hold together."""


@dataclass(frozen=True)
class Crossing:
    """The highest rate at which a share keeps a target."""

    how: str
    """`between` two points; `at least`: at the highest it was kept; `under`: at the lowest it was missed."""
    rate: float
    """By `how`: the estimate, the highest rate or the lowest."""
    low: float | None
    """The highest rate at which the target is surely kept; None: at none."""
    high: float | None
    """The lowest rate at which it is surely missed; None: at none."""

    @property
    def contradicts(self) -> bool:
        """Whether the target is surely missed at a lower rate than one at which it is surely kept: what was measured
        depends on more than the rate."""
        return self.low is not None and self.high is not None and self.high < self.low


def crossing(points: Sequence[Point], target: float) -> Crossing | None:
    """The highest rate at which the share is at least the target; None without a point.

    >>> def point(rate, share):
    ...     return Point(rate, share, 1000, (share - 0.02, min(1.0, share + 0.02)))
    >>> crossing([point(10, 1.0), point(20, 0.95), point(30, 0.45)], 0.9)
    Crossing(how='between', rate=21.0, low=20, high=30)
    >>> crossing([point(10, 1.0), point(20, 0.95)], 0.9)
    Crossing(how='at least', rate=20, low=20, high=None)
    """
    ordered = sorted(points, key=lambda one: one.rate)
    if not ordered:
        return None
    low = max((one.rate for one in ordered if one.interval[0] >= target), default=None)
    high = min((one.rate for one in ordered if one.interval[1] < target), default=None)
    rates, shares = fitted(ordered)
    kept = [number for number, share in enumerate(shares) if share >= target]
    if not kept:
        return Crossing(UNDER, rates[0], low, high)
    last = kept[-1]
    if last == len(rates) - 1:
        return Crossing(AT_LEAST, rates[-1], low, high)
    part = (shares[last] - target) / (shares[last] - shares[last + 1])
    return Crossing(BETWEEN, rates[last] + part * (rates[last + 1] - rates[last]), low, high)


def fitted(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """Rates, ascending and each once, and at each the share of the falling curve that fits best: neighbours that rise
    become their weighted mean.

    >>> fitted([Point(1, 0.9, 1, (0, 1)), Point(2, 0.96, 2, (0, 1)), Point(3, 0.5, 1, (0, 1))])
    ([1, 2, 3], [0.94, 0.94, 0.5])
    """
    groups: list[tuple[list[float], float, float]] = []
    for one in sorted(points, key=lambda one: one.rate):
        if groups and groups[-1][0][-1] == one.rate:
            at, total, weight = groups.pop()
            groups.append((at, total + one.share * one.weight, weight + one.weight))
        else:
            groups.append(([one.rate], one.share * one.weight, one.weight))
    level: list[tuple[list[float], float, float]] = []
    for at, total, weight in groups:
        while level and level[-1][1] * weight <= total * level[-1][2]:
            before, its_total, its_weight = level.pop()
            at, total, weight = before + at, its_total + total, its_weight + weight
        level.append((at, total, weight))
    return [rate for at, _, _ in level for rate in at], [total / weight for at, total, weight in level for _ in at]
