"""Where a share that only falls meets a target: between which of the points that were measured, and how surely.

Guarantees. What is known at some rates is never carried beyond them: above all of them the answer is "at least", below
"under". The interval takes nothing of the share's course for granted but that it does not rise: it reaches from the
highest rate at which the share is surely at the target or over it to the lowest at which it is surely under it, all of
these certainties holding together with the confidence asked for. The estimate inside is of the falling curve that fits
best (isotonic regression), its points joined by logistic curves: straight lines of the log-odds, as a share that stays
near 1 and then drops is described well by, and by straight lines of the share badly.
"""

from __future__ import annotations

import math
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
    >>> found = crossing([point(10, 1.0), point(20, 0.95), point(30, 0.45)], 0.9)
    >>> found.how, round(found.rate, 1), found.low, found.high
    ('between', 22.4, 20, 30)
    >>> crossing([point(10, 1.0), point(20, 0.95)], 0.9)
    Crossing(how='at least', rate=20, low=20, high=None)
    """
    ordered = sorted(points, key=lambda one: one.rate)
    if not ordered:
        return None
    low = max((one.rate for one in ordered if one.interval[0] >= target), default=None)
    high = min((one.rate for one in ordered if one.interval[1] < target), default=None)
    levels = _levels(ordered)
    kept = [number for number, level in enumerate(levels) if level.share >= target]
    if not kept:
        return Crossing(UNDER, levels[0].rates[0], low, high)
    last = levels[kept[-1]]
    if last is levels[-1]:
        return Crossing(AT_LEAST, last.rates[-1], low, high)
    begin, end = last.rates[-1], levels[kept[-1] + 1].rates[0]
    above, below = _log_odds(levels)[kept[-1] : kept[-1] + 2]
    # A share of 1 may be of so few cases that its odds are under the target's.
    part = max(0.0, above - math.log(target / (1 - target))) / (above - below) if above > below else 0.0
    return Crossing(BETWEEN, begin + min(1.0, part) * (end - begin), low, high)


def fitted(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """Rates, ascending and each once, and at each the share of the falling curve that fits best: neighbours that rise
    become their weighted mean.

    >>> fitted([Point(1, 0.9, 1, (0, 1)), Point(2, 0.96, 2, (0, 1)), Point(3, 0.5, 1, (0, 1))])
    ([1, 2, 3], [0.94, 0.94, 0.5])
    """
    levels = _levels(points)
    return [rate for level in levels for rate in level.rates], [level.share for level in levels for _ in level.rates]


def course(points: Sequence[Point], steps: int = 24) -> tuple[list[float], list[float]]:
    """Rates and shares along the curve by which a crossing is estimated, at the points and in steps between them."""
    rates: list[float] = []
    shares: list[float] = []
    levels = _levels(points)
    odds = _log_odds(levels)
    for number, level in enumerate(levels):
        rates += level.rates
        shares += [level.share] * len(level.rates)
        if number + 1 < len(levels):
            begin, end = level.rates[-1], levels[number + 1].rates[0]
            for step in range(1, steps):
                part = step / steps
                rates.append(begin + part * (end - begin))
                shares.append(1 / (1 + math.exp(-odds[number] - part * (odds[number + 1] - odds[number]))))
    return rates, shares


@dataclass(frozen=True)
class _Level:
    """Neighbouring rates at which the fitted share is the same."""

    rates: list[float]
    total: float
    """The weighted sum of their shares."""
    weight: float

    @property
    def share(self) -> float:
        return self.total / self.weight

    def with_after(self, other: _Level) -> _Level:
        return _Level([*self.rates, *other.rates], self.total + other.total, self.weight + other.weight)


def _levels(points: Sequence[Point]) -> list[_Level]:
    """In order of rate; their shares fall."""
    each: list[_Level] = []
    for one in sorted(points, key=lambda one: one.rate):
        level = _Level([one.rate], one.share * one.weight, one.weight)
        if each and each[-1].rates[0] == one.rate:
            before = each.pop()
            level = _Level([one.rate], before.total + level.total, before.weight + level.weight)
        each.append(level)
    levels: list[_Level] = []
    for level in each:
        while levels and levels[-1].share <= level.share:
            level = levels.pop().with_after(level)
        levels.append(level)
    return levels


def _log_odds(levels: Sequence[_Level]) -> list[float]:
    """Of each level, falling; a share of 1 or 0 (which only the first and the last can have) has half a case more on
    either side, so that it has odds, too."""
    some = [0.5 if level.share in (0, 1) else 0.0 for level in levels]
    odds = [
        math.log((level.total + half) / (level.weight - level.total + half))
        for level, half in zip(levels, some, strict=True)
    ]
    if len(odds) > 1:
        odds[0] = max(odds[:2])
        odds[-1] = min(odds[-2:])
    return odds
