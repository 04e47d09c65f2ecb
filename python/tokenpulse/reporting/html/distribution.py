"""Distributions, from a sketch's buckets: how many values there are of each size, and the share at or under each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from tokenpulse.model import METRICS, SketchLike
from tokenpulse.reporting.html import scale, words
from tokenpulse.reporting.html.figure import figure, one_width, values_table
from tokenpulse.reporting.html.latency import MOST_LIMITS, limits_of
from tokenpulse.reporting.html.markup import Markup, tag
from tokenpulse.reporting.html.panel import DASHES, LINE, Limit, axes_at, write
from tokenpulse.reporting.html.svg import colour, fitted, width_of
from tokenpulse.reporting.layout import ENOUGH
from tokenpulse.reporting.report import QUANTILES, Report
from tokenpulse.reporting.text import count, percent, several

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = 60
BAR_PANEL, SHARE_PANEL, BETWEEN, BELOW = 84.0, 156.0, 20.0, 24.0
LEFT, RIGHT = 50.0, 96.0


class Bucketed(SketchLike, Protocol):
    """A sketch that gives its buckets, as the core's and the reference's do."""

    @property
    def scale(self) -> int: ...
    @property
    def zero_count(self) -> int: ...
    @property
    def overflow_count(self) -> int: ...
    def buckets(self) -> tuple[Any, Any]: ...


@dataclass(frozen=True, slots=True)
class Shape:
    """A distribution of positive values: edges in seconds (one more than counts), and what is at or under 1 us."""

    edges: Sequence[float]
    counts: Sequence[int]
    zeros: int
    total: int

    @classmethod
    def of(cls, sketch: Bucketed) -> Shape | None:
        """The shape of a sketch's buckets; None where all values are 0."""
        places, counts = sketch.buckets()
        held = {int(place): int(n) for place, n in zip(places, counts, strict=True) if n}
        if sketch.overflow_count:
            held[12 << sketch.scale] = held.get(12 << sketch.scale, 0) + sketch.overflow_count
        if not held:
            return None
        low, high = min(held), max(held)
        per_octave: int = 1 << sketch.scale
        edges = [2.0 ** (place / per_octave) for place in range(low, high + 2)]
        counts = [held.get(place, 0) for place in range(low, high + 1)]
        return cls(edges, counts, sketch.zero_count, sketch.count)

    def bars(self) -> tuple[list[float], list[int]]:
        """Edges and counts of bars, neighbours joined until there are few enough to be seen."""
        size = max(1, -(-len(self.counts) // MOST_BARS))
        edges = [*self.edges[: len(self.counts) : size], self.edges[-1]]
        return edges, [sum(self.counts[i : i + size]) for i in range(0, len(self.counts), size)]

    def shares(self) -> tuple[list[float], list[float]]:
        """The share of all values at or under each edge."""
        under = (np.concatenate([[0], np.cumsum(self.counts)]) + self.zeros) / self.total
        return list(self.edges), [float(share) for share in under]


def figures(report: Report) -> Iterator[Markup]:
    """A figure for every metric that has values, two beside each other."""
    found = [_figure(report, metric) for metric in METRICS if report.latency[metric]]
    if found:
        yield tag("div", *found, class_="pair")


def _figure(report: Report, metric: str) -> Markup:
    sketch = cast(Bucketed, report.sketches[metric])
    shape = Shape.of(sketch)
    heading = words.heading(metric)
    if shape is None:
        told = f"{several(sketch.count, 'value')}, all of 1 \u00b5s or less."
        return figure(heading, Markup(""), [told])
    limits = limits_of(report, metric)[:MOST_LIMITS]
    named = [(name, sketch.quantile(QUANTILES[name])) for name in ("p50", "p90", "p99") if sketch.count >= ENOUGH[name]]
    if len(named) < 3:
        named.append(("max", sketch.max))
    above = 12.0 + LINE * len(limits)
    height = above + BAR_PANEL + BETWEEN + SHARE_PANEL + BELOW
    across = _across(shape, limits)

    def paint(picture: Figure) -> None:
        width = picture.bbox.width - LEFT - RIGHT
        bars = axes_at(picture, LEFT, above, width, BAR_PANEL)
        shares = axes_at(picture, LEFT, above + BAR_PANEL + BETWEEN, width, SHARE_PANEL)
        _bars(bars, shape, across)
        _shares(shares, shape, across, named)
        for place, limit in enumerate(limits):
            _limit(picture, bars, shares, limit, sketch, len(limits) - 1 - place)

    reads = ", ".join(f"{name.upper() if name != 'max' else name} {scale.duration(value)}" for name, value in named)
    told = f"Histogram above, share at or under each latency below, of {count(sketch.count)} values. {reads}."
    notes = [f"{several(sketch.count, 'value')}, logarithmic scale."]
    if shape.zeros:
        share = percent(shape.zeros / shape.total)
        notes.append(f"{count(shape.zeros)} of them ({share}) are 1 \u00b5s or less, and left of the axis.")
    return figure(
        heading,
        one_width(f"shape-{metric}", height, paint, f"Distribution of {words.NAMES[metric]}", told),
        [" ".join(notes)],
        _table(shape, metric),
    )


def _across(shape: Shape, limits: Sequence[Limit]) -> scale.Scale:
    """The axis of latency: all values, and limits that are not far off."""
    low, high = shape.edges[0], shape.edges[-1]
    near = [limit.value for limit in limits if low / 10 <= limit.value <= high * 10]
    return scale.logarithmic(min([low, *near]), max([high, *near]), 5)


def _bars(axes: Axes, shape: Shape, across: scale.Scale) -> None:
    edges, counts = shape.bars()
    up = scale.amounts(max(counts), 2)
    scale.across(axes, across, labels=False)
    scale.upwards(axes, up)
    axes.stairs(counts, edges, fill=True, color=colour("first"), linewidth=0)


def _shares(axes: Axes, shape: Shape, across: scale.Scale, named: Sequence[tuple[str, float]]) -> None:
    xs, ys = shape.shares()
    scale.across(axes, across)
    scale.upwards(axes, scale.shares(0.0))
    axes.set_ylim(0, 1.0)
    axes.plot([across.low, *xs, across.high], [ys[0], *ys, ys[-1]], color=colour("first"), linewidth=1.8, clip_on=False)
    box = axes.get_window_extent()
    for name, value in named:
        share = 1.0 if name == "max" else QUANTILES[name]
        y = axes.transData.transform((min(max(value, across.low), across.high), share))[1]
        axes.plot(
            [value, across.high],
            [share, share],
            color=colour("ink"),
            linewidth=0.8,
            linestyle=DASHES["dotted"],
            clip_on=False,
        )
        axes.plot([value], [share], "o", color=colour("ink"), markersize=4.5, clip_on=False)
        told = f"{'max' if name == 'max' else name.upper()} {scale.duration(value)}"
        lift = 6.0 if share > 0.98 else -3.0 if share == 0.9 else 0.0
        write(axes, box.x1 + 6, y + lift, fitted(told, RIGHT - 6))


def _limit(picture: Figure, bars: Axes, shares: Axes, limit: Limit, sketch: SketchLike, row: int) -> None:
    """A limit through both panels, with the share of values under it written above."""
    low, high = bars.get_xlim()
    told = f"{limit.name}: {percent(sketch.cdf(limit.value))} within"
    room = picture.bbox.width - 8
    text = fitted(told, room)
    box = bars.get_window_extent()
    inside = low <= limit.value <= high
    x = bars.transData.transform((limit.value, 0))[0] if inside else (box.x0 if limit.value < low else box.x1)
    base = box.y1 + 10 + row * LINE
    if inside:
        for axes in (bars, shares):
            axes.axvline(limit.value, color=colour("ink"), linewidth=1.1, linestyle=DASHES["dashed"])
    else:
        text = f"\u2190 {text}" if limit.value < low else f"{text} \u2192"
    half = width_of(text) / 2
    centre = min(max(x, 4 + half), picture.bbox.width - 4 - half)
    write(bars, centre, base, text, ha="center", va="baseline")


def _table(shape: Shape, metric: str) -> Markup:
    size = max(1, math.ceil(len(shape.counts) / 24))
    rows, under = [], shape.zeros
    for place in range(0, len(shape.counts), size):
        held = sum(shape.counts[place : place + size])
        under += held
        stop = shape.edges[min(place + size, len(shape.counts))]
        if held:
            rows.append([scale.duration(stop), count(held), percent(under / shape.total)])
    return values_table(["at most", "values", "at or under"], rows, f"{words.SHORT[metric]}, by size")
