"""Load over time: requests in the system and waiting, arrivals and ends, tokens, good requests, attainment."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tokenpulse.model import SUCCEEDED
from tokenpulse.reporting.html import scale, words
from tokenpulse.reporting.html.figure import figure, full_width, values_table
from tokenpulse.reporting.html.latency import HEIGHT, RIGHT, TICKS
from tokenpulse.reporting.html.markup import Markup
from tokenpulse.reporting.html.panel import BOTTOM, LEFT, TOP, Limit, Line, Stretch, axes_at, draw
from tokenpulse.reporting.html.scale import Scale
from tokenpulse.reporting.html.series import (
    FEW_BINS,
    MOST_BINS,
    ROWS,
    Bin,
    Ends,
    Timeline,
    counted_run,
    join_stumps,
    values,
    whole_run,
)
from tokenpulse.reporting.report import Report
from tokenpulse.reporting.text import number, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SETS = 3
"""SLO sets that a figure shows; tables have all."""

HUES = ("first", "second", "third")

FEW_REQUESTS = 30
"""Requests in a bin at least, where there are enough: fewer would show chance."""

SHARE = "The share of the requests that ended in a bin (aborts left out) that were good."

Row = tuple[float, float, float, float]


def figures(report: Report, timeline: Timeline) -> Iterator[Markup]:
    """Requests in the system, and how they came and went."""
    flow = report.flow
    if flow is None or not flow["concurrency"]:
        return
    ends = whole_run(report, timeline)
    end = ends[1]
    lines, notes = _in_system(report, timeline, end)
    peak = flow["concurrency"]["peak"]["at_least"]
    yield _over_time(
        "Requests in the system",
        "load-system",
        lines,
        ends,
        notes,
        f"The mean is {number(flow['concurrency']['mean'])} requests, the peak at least {number(peak)}.",
        _system_table(lines),
    )
    rates = _joined_rates(flow["rates"], end)
    came, went = ([Stretch(row[0], row[1], row[2 + i]) for row in rates] for i in (0, 1))
    lines = [
        Line("arrived", "second", came, dash="solid"),
        Line("ended", "first", went, width=2.0),
    ]
    table = values_table(
        ["from", "arrived", "ended"],
        [
            [_at(row[0]), number(row[2]), number(row[3])]
            for row in _joined_rates(flow["rates"], end, max(1, -(-len(flow["rates"]) // ROWS)))
        ],
        "Arrivals and ends, requests per second",
    )
    width = rates[0][1] - rates[0][0] if len(rates) < 3 else rates[1][1] - rates[1][0]
    yield _over_time(
        "Arrivals and ends per second",
        "load-rates",
        lines,
        ends,
        [f"Requests that arrived, and requests that ended in whatever way. Bins of {scale.duration(width)}."],
        "Requests arrived and ended per second.",
        table,
    )


def _in_system(report: Report, timeline: Timeline, end: float) -> tuple[list[Line], list[str]]:
    assert report.flow is not None
    bins = report.flow["concurrency"]["bins"]
    ends = [start for start, _ in bins[1:]] + [end]
    stretches = [Stretch(start, stop, mean) for (start, mean), stop in zip(bins, ends, strict=True)]
    lines = [Line("in the system", "first", stretches, width=2.0, area="first-area")]
    told = ["In the system: arrived and not yet ended, the mean of each bin."]
    if report.cut is None and _starts_are_known(report, "ttft"):
        lines.append(Line("no token yet", "second", _waiting(timeline, "ttft"), dash="solid"))
        told.append("No token yet: arrived, and still waiting for the first token.")
    if report.cut is None and _starts_are_known(report, "queue"):
        lines.append(Line("in the queue", "third", _waiting(timeline, "queue"), dash="dashed"))
        told.append("In the queue: arrived, and not yet scheduled.")
    return lines, [" ".join(told)]


def _starts_are_known(report: Report, metric: str) -> bool:
    """Whether the requests without this milestone may all have ended before it came."""
    unknown = report.missing.get(metric, 0)
    figures = report.latency[metric]
    if not report.timeline or figures is None or unknown > _others(report.requests):
        return False
    # What was measured of no request in particular is in the whole, and not in the timeline.
    return bool(
        sum(one["latency"][metric]["count"] for one in report.timeline if one["latency"][metric]) == figures["count"]
    )


def _others(requests: Mapping[str, Any]) -> int:
    return int(requests["failed"] + requests["aborted"] + requests["rejected"] + requests["lost"])


def _waiting(timeline: Timeline, metric: str) -> list[Stretch]:
    """Requests before a milestone: those that arrived, less those that reached it or ended without it.

    Counted exactly at the edges of bins; a bin has the mean of its two.
    """

    def change(one: Mapping[str, Any]) -> int:
        reached = one["latency"][metric]["count"] if one["latency"][metric] else 0
        return int(one["requests"]["attempted"] - reached - one["missing"].get(metric, 0))

    size = timeline.size_within(MOST_BINS)
    width = size * timeline.width
    held = {round((one.start - timeline.offset) / width): timeline.total(one, change) for one in timeline.joined(size)}
    changes = [held.get(number, 0) for number in range(-(-timeline.count // size))]
    levels = [0, *accumulate(changes)]
    return [
        Stretch(timeline.offset + i * width, timeline.offset + (i + 1) * width, (levels[i] + levels[i + 1]) / 2)
        for i in range(len(changes))
    ]


def _joined_rates(rates: Sequence[Sequence[float]], end: float, every: int | None = None) -> list[Row]:
    """Arrivals and ends per second, in bins wide enough to hold some: start, end, arrivals, ends."""
    stops = [row[0] for row in rates[1:]] + [end]
    came, went = ([row[i] * (stop - row[0]) for row, stop in zip(rates, stops, strict=True)] for i in (1, 2))

    def joined(size: int) -> list[Bin]:
        places = [tuple(range(place, min(place + size, len(rates)))) for place in range(0, len(rates), size)]
        bins = [Bin(rates[part[0]][0], stops[part[-1]], part) for part in places]
        return join_stumps(bins, max(one.end - one.start for one in bins))

    def total(counts: Sequence[float], one: Bin) -> float:
        return sum(counts[place] for place in one.places)

    size = every or 1
    while every is None and len(rates) > 2 * FEW_BINS * size:
        if statistics.median(max(total(came, one), total(went, one)) for one in joined(size)) >= FEW_REQUESTS:
            break
        size *= 2
    found = []
    for one in joined(size):
        seconds = one.end - one.start
        found.append((one.start, one.end, total(came, one) / seconds, total(went, one) / seconds))
    return found


def throughput(report: Report, timeline: Timeline) -> Iterator[Markup]:
    """Tokens and requests per second, and of requests those within the limits."""
    if not timeline.bins or not report.requests["by_status"]:
        return
    ends = counted_run(report, timeline)
    if report.tokens["output"]:
        yield _tokens(report, timeline, ends)
    if report.requests["succeeded"]:
        yield _requests(report, timeline, ends)
    if any(one["judged"] for one in words.judged(report)[:MOST_SETS]):
        yield _attainment(report, timeline, ends)


def workload(report: Report, timeline: Timeline) -> Iterator[Markup]:
    """Arrivals and what they ask for per second, of a trace that says nothing else."""
    if not timeline.bins or report.requests["by_status"]:
        return
    ends = counted_run(report, timeline)
    size = timeline.size_for([one["requests"]["attempted"] for one in timeline.bins], FEW_REQUESTS)
    bins = timeline.stretches(size, ends)
    note = f"Bins of {scale.duration(size * timeline.width)}."
    came = timeline.per_second(bins, lambda one: int(one["requests"]["attempted"]))
    yield _over_time(
        "Arrivals per second",
        "trace-arrivals",
        [Line("arrivals/s", "first", came, width=2.0, area="first-area")],
        ends,
        [note],
        "Requests that arrived per second.",
        None,
    )
    lines = [
        Line(f"{name} tokens", hue, timeline.per_second(bins, lambda one, name=name: int(one["tokens"][name])))  # type: ignore[misc]
        for name, hue in (("prompt", "first"), ("output", "second"))
        if report.tokens[name]
    ]
    if lines:
        told = "Tokens of the prompts, and of the outputs, of the requests that arrived."
        yield _over_time("Tokens asked for per second", "trace-tokens", lines, ends, [f"{told} {note}"], told, None)


def _tokens(report: Report, timeline: Timeline, ends: Ends) -> Markup:
    size = timeline.size_for([one["tokens"]["output"] for one in timeline.bins], 100)
    tokens = timeline.per_second(timeline.stretches(size, ends), lambda one: int(one["tokens"]["output"]))
    return _over_time(
        "Output tokens per second",
        "load-tokens",
        [Line("tokens/s", "first", tokens, width=2.0, area="first-area")],
        ends,
        [f"Of all requests, whatever became of them. Bins of {scale.duration(size * timeline.width)}."],
        f"Over the {words.counted(report)} {number(report.rates['output_tokens_per_second'])} output tokens"
        " per second.",
        _throughput_table(report, timeline, ends),
    )


def _requests(report: Report, timeline: Timeline, ends: Ends) -> Markup:
    size = timeline.size_for([_succeeded(one) for one in timeline.bins], FEW_REQUESTS)
    stretches = timeline.stretches(size, ends)
    lines = [Line("succeeded", "first", timeline.per_second(stretches, _succeeded), width=2.4)]
    sets = words.judged(report)
    for place, one in enumerate(sets[:MOST_SETS]):
        name = "good" if len(sets) == 1 else f"good: {one['name']}"
        hue, dash = (("second", "solid"), ("third", "solid"), ("p99", "dotted"))[place]
        lines.append(Line(name, hue, timeline.per_second(stretches, _good(place)), dash=dash))
    told = "Requests that ended successfully"
    told += ", and of them those within every limit of the SLO set." if sets else "."
    return _over_time(
        "Requests per second, and goodput" if sets else "Requests per second",
        "load-requests",
        lines,
        ends,
        [f"{told} Bins of {scale.duration(size * timeline.width)}.{_more(report)}"],
        told,
        None,
    )


def _attainment(report: Report, timeline: Timeline, ends: Ends) -> Markup:
    shown = words.judged(report)[:MOST_SETS]
    judged = [max((one["goodput"][place]["judged"] for place in range(len(shown))), default=0) for one in timeline.bins]
    size = timeline.size_for(judged, FEW_REQUESTS)
    lines: list[Line] = []
    objectives: dict[float, None] = {}
    for place, one in enumerate(shown):
        stretches = [
            Stretch(joined.start, joined.end, timeline.total(joined, _good(place)) / of)
            for joined in timeline.joined(size)
            if (of := timeline.total(joined, _judged(place)))
        ]
        name = "attained" if len(words.judged(report)) == 1 else one["name"]
        lines.append(Line(name, HUES[place], stretches, width=1.8))
        objectives.setdefault(one["slo"]["objective"], None)
    limits = [Limit(f"objective {100 * share:.4g} %", share) for share in objectives]
    low = min([*values(lines), *objectives])
    upwards = scale.shares(low)
    return _over_time(
        "Attainment over time",
        "load-attainment",
        lines,
        ends,
        [f"{SHARE} Bins of {scale.duration(size * timeline.width)}.{_more(report)}"],
        "The share of judged requests that were good, and the objective.",
        None,
        limits,
        upwards,
    )


def _succeeded(one: Mapping[str, Any]) -> int:
    return sum(n for status, n in one["requests"]["by_status"].items() if status in SUCCEEDED)


def _good(place: int) -> Callable[[Mapping[str, Any]], int]:
    return lambda one: int(one["goodput"][place]["good"])


def _judged(place: int) -> Callable[[Mapping[str, Any]], int]:
    return lambda one: int(one["goodput"][place]["judged"])


def _more(report: Report) -> str:
    more = len(words.judged(report)) - MOST_SETS
    return f" The first {MOST_SETS} of {len(words.judged(report))} SLO sets." if more > 0 else ""


def _over_time(
    heading: str,
    name: str,
    lines: Sequence[Line],
    ends: Ends,
    notes: Sequence[str],
    told: str,
    table: Markup | None,
    limits: Sequence[Limit] = (),
    upwards: Scale | None = None,
) -> Markup:
    up = upwards or scale.amounts(max(values(lines), default=0.0))

    def paint(picture: Figure, narrow: bool) -> None:
        axes = axes_at(picture, LEFT, TOP, picture.bbox.width - LEFT - RIGHT[narrow], HEIGHT - TOP - BOTTOM)
        scale.across(axes, scale.time(*ends, TICKS[narrow]))
        scale.upwards(axes, up)
        draw(axes, lines, limits, highest_first=True)

    return figure(heading, full_width(name, HEIGHT, paint, heading, told), notes, table)


def _at(seconds: float) -> str:
    return f"{number(max(0.0, seconds))} s"


def _system_table(lines: Sequence[Line]) -> Markup:
    """The lines at as many moments as a table has rows."""
    stretches = lines[0].stretches
    every = max(1, -(-len(stretches) // ROWS))
    rows = []
    for place in range(0, len(stretches), every):
        start, stop = stretches[place].start, stretches[min(place + every, len(stretches)) - 1].end
        rows.append([_at(start), *(number(_mean(line.stretches, start, stop)) for line in lines)])
    return values_table(["from", *(line.name for line in lines)], rows, "Requests, mean from one time to the next")


def _mean(stretches: Sequence[Stretch], start: float, stop: float) -> float | None:
    """The mean of what stretches tell of a time."""
    parts = [
        (min(one.end, stop) - max(one.start, start), one.value)
        for one in stretches
        if one.value is not None and one.end > start and one.start < stop
    ]
    covered = sum(share for share, _ in parts)
    return sum(share * value for share, value in parts) / covered if covered > 0 else None


def _throughput_table(report: Report, timeline: Timeline, ends: Ends) -> Markup:
    shown = words.judged(report)[:MOST_SETS]
    heads = ["from", "tokens/s", "succeeded/s"]
    for one in shown:
        name = words.short(one["name"])
        heads += [f"good/s, {name}", f"attained, {name}"] if len(shown) > 1 else ["good/s", "attained"]
    rows = []
    for joined in timeline.stretches(timeline.size_within(ROWS), ends):
        width = joined.end - joined.start
        row = [_at(joined.start), number(timeline.total(joined, lambda one: one["tokens"]["output"]) / width)]
        row.append(number(timeline.total(joined, _succeeded) / width))
        for place in range(len(shown)):
            good, judged = timeline.total(joined, _good(place)), timeline.total(joined, _judged(place))
            row += [number(good / width), percent(good / judged if judged else None)]
        rows.append(row)
    return values_table(heads, rows, "Throughput over time")
