"""The change of one figure between two runs: its values, between which ends it changed, and for better or worse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tokenpulse.analysis import intervals
from tokenpulse.analysis.dependence import Dependence, in_part
from tokenpulse.analysis.intervals import Change, Interval, Spread
from tokenpulse.model import SLO

BETTER, WORSE, MIXED, NO_CHANGE, NOT_JUDGED = "better", "worse", "mixed", "no clear change", "not judged"

Figures = dict[str, Any]
Block = Mapping[str, Any]
Count = Callable[[Block], int]
"""Something that is counted in a block of a reduction."""


class Run(Protocol):
    """What is asked of a report."""

    @property
    def reduction(self) -> dict[str, Any]: ...
    @property
    def slos(self) -> tuple[SLO, ...]: ...
    @property
    def rules(self) -> Figures: ...
    @property
    def absent(self) -> dict[str, str]: ...
    @property
    def sketches(self) -> dict[str, Any]: ...
    @property
    def rates(self) -> Figures: ...
    @property
    def goodput(self) -> list[Figures]: ...
    @property
    def fluidity(self) -> Figures: ...
    @property
    def availability(self) -> float | None: ...
    @property
    def degraded(self) -> float | None: ...
    @property
    def requests(self) -> Figures: ...
    @property
    def tokens(self) -> Figures: ...
    @property
    def inputs(self) -> list[Figures]: ...
    @property
    def span_seconds(self) -> float | None: ...
    @property
    def unusable(self) -> int: ...
    @property
    def flow(self) -> Figures | None: ...


def not_read(run: Run) -> str | None:
    """That a run's figures lack what could not be read; None where everything could."""
    if not run.unusable:
        return None
    what = "1 line or event" if run.unusable == 1 else f"{run.unusable:,} lines or events"
    return f"{what} could not be used: a report of it says which"


class Levels(NamedTuple):
    """The confidence of a figure's interval taken by itself, and of one that all that are judged keep together."""

    alone: float
    together: float


@dataclass(frozen=True)
class Side:
    """One of two runs, and how far its requests depend on one another."""

    run: Run
    depends: Dependence

    @classmethod
    def of(cls, run: Run) -> Side:
        return cls(run, Dependence.of(None if "timeline" in run.absent else run.reduction["timeline"]))

    @property
    def total(self) -> Block:
        block: Block = self.run.reduction["total"]
        return block


Sides = tuple[Side, Side]


def figure(
    before: float | None, after: float | None, alone: Change, joint: Change, good: int, independent: Sequence[float]
) -> Figures:
    """A figure of both runs. `good` is 1 where more is better and -1 where less is.

    `verdict` is by its own interval, `clearly` by the one that all figures that are judged keep together.
    """
    change = None if before is None or after is None else after - before
    return {
        "before": before,
        "after": after,
        "change": change,
        "relative_change": relative_change(before, after),
        "interval": _ends(alone.absolute),
        "relative_interval": _ends(alone.relative, least=-1.0),
        "verdict": _verdict(alone, good),
        "clearly": _verdict(joint, good),
        "independent": [math.floor(n) for n in independent],
    }


def relative_change(before: float | None, after: float | None) -> float | None:
    """What a change is as a share of what there was; None where that was nothing.

    >>> relative_change(0.5, 0.75), relative_change(0.0, 0.0), relative_change(0.0, 1.0)
    (0.5, 0.0, None)
    """
    if before is None or after is None:
        return None
    if before == after:
        return 0.0
    return after / before - 1 if before else None


def _ends(interval: Interval | None, least: float = -math.inf) -> list[float | None] | None:
    """An interval's ends; null is open, and so is what cannot be less anyway."""
    if interval is None:
        return None
    low, high = interval
    return [low if math.isfinite(low) and low > least else None, high if math.isfinite(high) else None]


def _verdict(change: Change, good: int) -> str:
    if change.absolute is None or not any(math.isfinite(end) for end in change.absolute):
        return NOT_JUDGED
    return {0: NO_CHANGE, good: BETTER, -good: WORSE}[change.direction]


def together(verdicts: Iterable[str]) -> str:
    """What several verdicts come to.

    >>> together(["better", "no clear change"]), together(["better", "worse"]), together([])
    ('better', 'mixed', 'not judged')
    """
    found = set(verdicts) - {NOT_JUDGED}
    changed = found - {NO_CHANGE}
    if not found:
        return NOT_JUDGED
    return MIXED if len(changed) > 1 else next(iter(changed), NO_CHANGE)


# Latencies


@dataclass(frozen=True)
class Latency:
    """One latency of both runs, or of a stratum of them."""

    metric: str
    sides: Sides
    sketches: tuple[Any, Any]
    spreads: tuple[Spread, Spread]
    requests: tuple[int, int]
    """How many requests its values come from: of gaps there are many to a request."""
    wholes: tuple[Spread, Spread]
    """The same of all requests of the runs."""
    parts: tuple[tuple[int, int], tuple[int, int]]
    """Of either run: how many of its requests are in the stratum, and how many there are."""

    @classmethod
    def of(cls, metric: str, sides: Sides, blocks: tuple[Block, Block]) -> Latency | None:
        """None where one of the runs has no values, or cannot tell them."""
        sketches = [block["latency"][metric] for block in blocks]
        if any(
            not one.count or f"latency.{metric}" in side.run.absent for one, side in zip(sketches, sides, strict=True)
        ):
            return None
        requests, parts = [], []
        for sketch, side, block in zip(sketches, sides, blocks, strict=True):
            n: int = sketch.count
            requests.append(min(n, block["latency"]["ttft"].count or n) if metric == "itl" else n)
            parts.append((n, side.total["latency"][metric].count))
        spreads = [Spread.of(one) for one in sketches]
        wholes = [
            spread if block is side.total else Spread.of(side.total["latency"][metric])
            for spread, block, side in zip(spreads, blocks, sides, strict=True)
        ]
        return cls(
            metric=metric,
            sides=sides,
            sketches=(sketches[0], sketches[1]),
            spreads=(spreads[0], spreads[1]),
            requests=(requests[0], requests[1]),
            wholes=(wholes[0], wholes[1]),
            parts=(parts[0], parts[1]),
        )

    def _independent(self, effects: Sequence[float], level: float) -> tuple[float, float]:
        found = []
        for side, effect, part, most in zip(self.sides, effects, self.parts, self.requests, strict=True):
            n = side.depends.independent(part[0], in_part(effect, *part), level)
            found.append(min(n, float(most)))
        return found[0], found[1]

    def percentile(self, q: float, levels: Levels) -> Figures:
        """The change of a quantile."""
        effects = [
            side.depends.percentile(self.metric, whole, q) for side, whole in zip(self.sides, self.wholes, strict=True)
        ]
        independent = [self._independent(effects, level) for level in levels]
        alone, joint = (
            intervals.percentile_change(*self.spreads, q, n, level)
            for n, level in zip(independent, levels, strict=True)
        )
        before, after = (sketch.quantile(q) for sketch in self.sketches)
        return figure(before, after, alone, joint, -1, independent[0])

    def mean(self, levels: Levels) -> Figures:
        """The change of the mean."""
        effects = [side.depends.mean(self.metric, whole) for side, whole in zip(self.sides, self.wholes, strict=True)]
        independent = [self._independent(effects, level) for level in levels]
        alone, joint = (
            intervals.mean_change(*self.spreads, n, level) for n, level in zip(independent, levels, strict=True)
        )
        return figure(self.spreads[0].mean, self.spreads[1].mean, alone, joint, -1, independent[0])

    def distances(self, independent: Sequence[int]) -> Figures:
        """How far the two distributions lie apart."""
        return {
            "ks": intervals.ks_distance(*self.spreads),
            "ks_by_chance": intervals.ks_by_chance((max(1, independent[0]), max(1, independent[1]))),
            "wasserstein_seconds": intervals.wasserstein_seconds(*self.spreads),
        }


# Shares and rates


def share_change(
    sides: Sides, parts: tuple[Count, Count], wholes: tuple[Count, Count], good: int, levels: Levels
) -> Figures:
    """The change of a share of requests, given for either run as what it counts and of what."""
    pairs = [(part(side.total), whole(side.total)) for side, part, whole in zip(sides, parts, wholes, strict=True)]
    effects = [side.depends.share(part, whole) for side, part, whole in zip(sides, parts, wholes, strict=True)]
    values = [part / whole if whole else None for part, whole in pairs]
    independent, changes = [], []
    for level in levels:
        n = [
            side.depends.independent(whole, effect, level)
            for side, (_, whole), effect in zip(sides, pairs, effects, strict=True)
        ]
        independent.append(n)
        changes.append(intervals.share_change(pairs[0], pairs[1], (n[0], n[1]), level))
    return figure(values[0], values[1], changes[0], changes[1], good, independent[0])


def rate_change(sides: Sides, values: Sequence[float | None], counts: tuple[Count, Count], levels: Levels) -> Figures:
    """The change of a count over time; its error is how the count differs from stretch to stretch of each run."""
    totals = [side.depends.total(count) for side, count in zip(sides, counts, strict=True)]
    changes = [intervals.NOT_KNOWN, intervals.NOT_KNOWN]
    before, after = values
    stretches = [side.depends.stretches for side in sides]
    if before is not None and after is not None and None not in totals:
        squares = [
            square * (value / total) ** 2 if total else 0.0
            for (total, square), value in zip((one for one in totals if one), (before, after), strict=True)
        ]
        freedom = min(side.depends.freedom for side in sides)
        for n, level in enumerate(levels):
            t = intervals.t_quantile(level, freedom)
            reach = t * math.sqrt(sum(squares))
            relative = intervals.fieller(before, squares[0], after, squares[1], t)
            changes[n] = Change((after - before - reach, after - before + reach), relative)
    return figure(before, after, changes[0], changes[1], 1, [0 if one is None else len(one) for one in stretches])
