"""What the figures over time show: bins of a report's timeline, joined where one alone has too few values to tell.

Joining is exact: counts add up and sketches are merged, so that a percentile of joined bins is what it would have been
had the bins been that wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenpulse.model import SketchLike
from tokenpulse.reporting.html.panel import Line, Stretch
from tokenpulse.reporting.layout import ENOUGH
from tokenpulse.reporting.report import QUANTILES, Report

MOST_BINS = 240
"""Bins that a figure shows at the most."""

FEW_BINS = 12
"""Bins that are not joined further for want of values: fewer would not show a course."""

ROWS = 24
"""Rows of a table over time at the most."""

SHOWN = {"p50": "P50", "p90": "P90", "p99": "P99"}


@dataclass(frozen=True, slots=True)
class Bin:
    """Some neighbouring bins of the timeline, of which at least one is there; times since the first arrival."""

    start: float
    end: float
    places: tuple[int, ...]


class Timeline:
    """The bins of a report, by number from the first, and where they lie in the run."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.bins = report.timeline
        self.width: float = self.bins[0]["width_seconds"] if self.bins else 0.0
        first = self.bins[0]["start_seconds"] if self.bins else 0.0
        self.numbers = [round((one["start_seconds"] - first) / self.width) for one in self.bins]
        arrival = first_arrival(report)
        self.offset: float = first - arrival if arrival is not None else 0.0
        self.count = self.numbers[-1] + 1 if self.bins else 0
        self.end: float = self.offset + self.count * self.width

    def joined(self, size: int) -> list[Bin]:
        """Every `size` bins as one, from the first; without those in which nothing happened."""
        groups: dict[int, list[int]] = {}
        for place, number in enumerate(self.numbers):
            groups.setdefault(number // size, []).append(place)
        width = size * self.width
        return [
            Bin(self.offset + number * width, self.offset + (number + 1) * width, tuple(places))
            for number, places in groups.items()
        ]

    def size_for(self, counts: Sequence[int], least: int) -> int:
        """How many bins to join so that nine of ten have `least` values, or as many as leave enough for a course."""
        size = 1
        while self.count > MOST_BINS * size:
            size *= 2
        while self.count > 2 * FEW_BINS * size and sum(counts):
            found = sorted(n for one in self.joined(size) if (n := sum(counts[place] for place in one.places)))
            if found[len(found) // 10] >= least:
                break
            size *= 2
        return size

    def size_within(self, most: int) -> int:
        """How many bins to join so that there are no more than `most`."""
        return max(1, -(-self.count // most))

    def counts(self, metric: str) -> list[int]:
        """Values of a metric in each bin."""
        return [one["latency"][metric]["count"] if one["latency"][metric] else 0 for one in self.bins]

    def sketch(self, metric: str, places: Sequence[int]) -> SketchLike:
        """The sketch of a metric over some bins."""
        sketches = [self.report.timeline_sketches[place][metric] for place in places]
        if len(sketches) == 1:
            return sketches[0]
        whole: SketchLike = sketches[0] + sketches[1]
        for one in sketches[2:]:
            whole.merge(one)
        return whole

    def total(self, one: Bin, amount: Callable[[Mapping[str, Any]], int]) -> int:
        """A count over joined bins."""
        return sum(amount(self.bins[place]) for place in one.places)

    def stretches(self, size: int, ends: Ends) -> list[Bin]:
        """The run between two ends in joined bins without a hole; what sticks out is cut off, a stump is joined on."""
        width = size * self.width
        held = {round((one.start - self.offset) / width): one.places for one in self.joined(size)}
        found: list[Bin] = []
        for number in range(-(-self.count // size)):
            start = max(ends[0], self.offset + number * width)
            stop = min(ends[1], self.offset + (number + 1) * width)
            found.append(Bin(start, stop, held.get(number, ())))
        return join_stumps(found, width)

    def per_second(self, stretches: Sequence[Bin], amount: Callable[[Mapping[str, Any]], int]) -> list[Stretch]:
        """A count per second of every stretch."""
        return [Stretch(one.start, one.end, self.total(one, amount) / (one.end - one.start)) for one in stretches]


def join_stumps(bins: Sequence[Bin], width: float) -> list[Bin]:
    """Bins of which the first and the last are not less than half as wide as the others: too narrow ones would show
    chance.

    >>> [one.start for one in join_stumps([Bin(0, 1, (0,)), Bin(1, 5, (1,)), Bin(5, 9, (2,)), Bin(9, 9.1, (3,))], 4)]
    [0, 5]
    """
    found = list(bins)
    while len(found) > 1 and found[-1].end - found[-1].start < width / 2:
        last = found.pop()
        found[-1] = Bin(found[-1].start, max(found[-1].end, last.end), found[-1].places + last.places)
    if len(found) > 1 and found[0].end - found[0].start < width / 2:
        found[:2] = [Bin(found[0].start, found[1].end, found[0].places + found[1].places)]
    return found


def first_arrival(report: Report) -> float | None:
    """When the first request arrived, on the log's clock."""
    ns = report.reduction.get("first_arrival_ns")
    return None if ns is None else float(ns) / 1e9


Ends = tuple[float, float]
"""From when to when, in seconds since the first arrival."""


def whole_run(report: Report, timeline: Timeline) -> Ends:
    """From the first arrival to the last event, or where that is not known to the end of the last bin.

    The bin in which the run ends is there whole, and what is found after it (that a request was lost) is not.
    """
    seconds = report.flow["seconds"] if report.flow else None
    if not seconds:
        return 0.0, timeline.end or 1.0
    return 0.0, max(float(seconds), min(timeline.end, float(seconds) + timeline.width))


def counted_run(report: Report, timeline: Timeline) -> Ends:
    """What a cut leaves of the run, up to the end of its last bin."""
    start, end = whole_run(report, timeline)
    if report.cut is None or not timeline.bins:
        return start, end
    return max(start, timeline.offset), min(end, timeline.end)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A metric over time."""

    metric: str
    bins: list[tuple[Bin, SketchLike]]
    names: tuple[str, ...]
    width: float

    def value(self, sketch: SketchLike, name: str) -> float | None:
        """A percentile, or the largest value; None where there are too few values for it to be one."""
        if name == "max":
            return sketch.max
        # Where there are many values, the few at an end would let the P50 leap about.
        least = ENOUGH["p90"] if name == "p50" and "p99" in self.names else ENOUGH[name]
        return sketch.quantile(QUANTILES[name]) if sketch.count >= least else None

    def lines(self) -> list[Line]:
        looks = {"p50": ("p50", 2.2), "p90": ("p90", 1.6), "p99": ("p99", 1.2), "max": ("p99", 1.3)}
        return [
            Line(
                SHOWN.get(name, name),
                looks[name][0],
                [Stretch(one.start, one.end, self.value(sketch, name)) for one, sketch in self.bins],
                width=looks[name][1],
                dash="dotted" if name == "max" else "solid",
            )
            for name in self.names
        ]


def percentiles(timeline: Timeline, metric: str) -> Percentiles | None:
    """A metric over time, in bins that have enough values; None where it has none."""
    counts = timeline.counts(metric)
    if not sum(counts):
        return None
    size = timeline.size_for(counts, ENOUGH["p99"])
    bins = _with_values(timeline, metric, size, counts)
    enough = sum(sketch.count >= ENOUGH["p99"] for _, sketch in bins)
    names = ("p50", "p90", "p99") if 2 * enough >= len(bins) else ("p50", "p90", "max")
    return Percentiles(metric, bins, names, size * timeline.width)


def rows(timeline: Timeline, metric: str) -> list[tuple[Bin, SketchLike]]:
    """A metric over time, in few enough bins for a table."""
    return _with_values(timeline, metric, timeline.size_within(ROWS), timeline.counts(metric))


def _with_values(timeline: Timeline, metric: str, size: int, counts: Sequence[int]) -> list[tuple[Bin, SketchLike]]:
    found = []
    for one in timeline.joined(size):
        places = [place for place in one.places if counts[place]]
        if places:
            found.append((one, timeline.sketch(metric, places)))
    return found


def values(lines: Iterable[Line]) -> list[float]:
    """All values of some lines."""
    return [one.value for line in lines for one in line.stretches if one.value is not None]
