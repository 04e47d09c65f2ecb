"""Latency over time: for every metric its P50, P90 and P99 in bins of the timeline, and the limits it is held to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tokenpulse.model import METRICS
from tokenpulse.reporting.html import scale, words
from tokenpulse.reporting.html.figure import figure, full_width, values_table
from tokenpulse.reporting.html.markup import Markup
from tokenpulse.reporting.html.panel import BOTTOM, LEFT, TOP, Limit, axes_at, draw
from tokenpulse.reporting.html.series import Percentiles, Timeline, counted_run, percentiles, rows, values
from tokenpulse.reporting.report import Report
from tokenpulse.reporting.text import count, ms, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 190.0
RIGHT = {False: 128.0, True: 110.0}
"""Room for the names of lines, on a wide and on a narrow page."""

TICKS = {False: 10, True: 4}
"""Ticks along the time, on a wide and on a narrow page."""

FAR = 3.0
"""A limit this many times above all values is named at the edge, not drawn: it would flatten what there is to see."""

MOST_LIMITS = 4


def figures(report: Report, timeline: Timeline) -> Iterator[Markup]:
    """A figure for every metric that has values."""
    for metric in METRICS:
        found = percentiles(timeline, metric)
        if found is not None:
            yield _figure(report, timeline, found)


def limits_of(report: Report, metric: str, sets: int | None = None) -> list[Limit]:
    """The limits of a metric, by value, those of so many sets; sets that have the same share a name."""
    if metric not in words.LIMITED:
        return []
    names: dict[float, list[str]] = {}
    for slo in report.slos[:sets]:
        seconds = getattr(slo, metric)
        if seconds is not None:
            names.setdefault(seconds, []).append(slo.name)
    only = len(report.slos) == 1
    return [
        Limit(f"{'SLO' if only else words.listed(names[seconds])} {scale.duration(seconds)}", seconds)
        for seconds in sorted(names)
    ]


def placed(limits: Sequence[Limit], found: Sequence[float]) -> tuple[list[Limit], scale.Scale]:
    """The limits as they are to be drawn, and an axis for them and what was found: a limit far off has an arrow."""
    high, low = max(found), max(min(found), scale.LEAST_SECONDS)
    log = scale.are_far_apart(found)
    drawn, near = [], []
    for limit in limits[:MOST_LIMITS]:
        if limit.value > FAR * high:
            drawn.append(Limit(f"{limit.name} \u2191", limit.value))
        elif log and limit.value < low / FAR:
            drawn.append(Limit(f"{limit.name} \u2193", limit.value))
        else:
            drawn.append(limit)
            near.append(limit.value)
    return drawn, scale.latency(found, near)


def _figure(report: Report, timeline: Timeline, found: Percentiles) -> Markup:
    metric = found.metric
    lines = found.lines()
    limits, upwards = placed(limits_of(report, metric), values(lines))

    def paint(picture: Figure, narrow: bool) -> None:
        width = picture.bbox.width - LEFT - RIGHT[narrow]
        axes = axes_at(picture, LEFT, TOP, width, HEIGHT - TOP - BOTTOM)
        scale.across(axes, scale.time(*counted_run(report, timeline), TICKS[narrow]))
        scale.upwards(axes, upwards)
        draw(axes, lines, limits)

    names = words.listed([line.name for line in lines], "and")
    whole = report.latency[metric] or {}
    told = (
        f"{names} of {words.NAMES[metric]} over the time since the first arrival, in bins of {number(found.width)} s."
        f" Over the {words.counted(report)} P50 is {ms(whole['p50'])} ms and P99 {ms(whole['p99'])} ms."
    )
    return figure(
        words.heading(metric),
        full_width(f"time-{metric}", HEIGHT, paint, f"{words.SHORT[metric]} over time", told),
        [f"{words.MEANING[metric]} {_note(found, upwards.log)}"],
        _table(timeline, metric),
    )


def _note(found: Percentiles, log: bool) -> str:
    told = f"Bins of {scale.duration(found.width)}."
    if "max" in found.names:
        told += " Most have fewer than 100 values, too few for a P99: the largest value stands in its place."
    elif any(sketch.count < 100 for _, sketch in found.bins):
        told += " Where a bin has fewer than 100 values there is no P99, and fewer than 10 none at all."
    return told + " Logarithmic scale." * log


def _table(timeline: Timeline, metric: str) -> Markup:
    lines = [
        [
            f"{number(max(0.0, one.start))} s",
            count(sketch.count),
            ms(sketch.mean),
            *(ms(sketch.quantile(q)) for q in (0.5, 0.9, 0.99)),
            ms(sketch.max),
        ]
        for one, sketch in rows(timeline, metric)
    ]
    return values_table(
        ["from", "values", "mean", "P50", "P90", "P99", "max"], lines, f"{words.SHORT[metric]} over time, ms"
    )
