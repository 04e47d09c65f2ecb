"""The groups of a report against each other: P50 to P99 of each metric, and what share of each group was good."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tokenpulse.reporting.html import scale, words
from tokenpulse.reporting.html.figure import figure, one_width
from tokenpulse.reporting.html.latency import limits_of, placed
from tokenpulse.reporting.html.markup import Child, Column, Markup, table, tag
from tokenpulse.reporting.html.panel import LINE, Limit, axes_at, write
from tokenpulse.reporting.html.svg import colour, fitted, width_of
from tokenpulse.reporting.layout import ENOUGH, MARK, MAX_ROWS
from tokenpulse.reporting.report import Report
from tokenpulse.reporting.text import count, in_order, ms, number, percent, several

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_GROUPS = 16
"""Groups that a figure shows, those with the most requests; the table has all."""

METRICS = ("ttft", "tpot", "itl", "e2e")
_COLUMNS = (("ttft", "p50"), ("ttft", "p99"), ("tpot", "p50"), ("tpot", "p99"), ("itl", "p99"))
ROW, ABOVE, BELOW, BESIDE = 34.0, 6.0, 26.0, 24.0


def figures(report: Report) -> Iterator[Markup]:
    """A figure for each metric that some group has values of, and one for attainment; then the table of all groups."""
    groups = sorted(report.by, key=lambda one: -one["requests"]["attempted"])
    shown = in_order(groups[:MOST_GROUPS])
    drawn = [_latency(report, metric, shown) for metric in METRICS if any(one["latency"][metric] for one in shown)]
    if words.judged(report) and any(part["judged"] for one in shown for part in one["goodput"]):
        drawn.append(_attainment(report, shown))
    if len(groups) > MOST_GROUPS:
        told = f"The figures show the {MOST_GROUPS} of {len(groups)} groups that have the most requests."
        yield tag("p", told, class_="note")
    if report.by_over:
        yield tag(
            "p",
            f"{several(report.by_over, 'combination')} past the first 256 are together in (all others).",
            class_="note",
        )
    if any("output_length" in one["key"] for one in groups) and any(
        one["format"] in ("tokenpulse-events", "tokenpulse-mixed") for one in report.inputs
    ):
        told = "Event lines tell the output length only at a request's end: its TTFT and ITL are in no group."
        yield tag("p", told, class_="note")
    yield tag("div", *drawn, class_="pair")
    yield _table(report, in_order(groups[:MAX_ROWS]), "Groups, latency in ms")
    if any(_few(one["latency"][metric], name) for one in groups for metric, name in _COLUMNS):
        yield tag("p", f"{MARK} too few values for this percentile: it is near the maximum.", class_="note")
    if len(groups) > MAX_ROWS:
        more = groups[MAX_ROWS:]
        yield tag(
            "details",
            tag("summary", f"{several(len(more), 'more group')}"),
            _table(report, more, "More groups, latency in ms"),
        )


def _latency(report: Report, metric: str, groups: Sequence[Mapping[str, Any]]) -> Markup:
    found = [one["latency"][metric] for one in groups]
    held = [figures[name] for figures in found if figures for name in ("p50", _far(figures))]
    limits, across = placed(limits_of(report, metric, sets=1), held)
    limits = [
        Limit(limit.name.replace("\u2191", "\u2192").replace("\u2193", "\u2190"), limit.value) for limit in limits
    ]

    def row(axes: Axes, place: int, y: float) -> None:
        figures = found[place]
        if not figures:
            write(axes, axes.get_window_extent().x0, y, "no values", hue="muted")
            return
        far = _far(figures)
        ends = [max(figures["p50"], across.low), max(figures[far], across.low)]
        at = [axes.transData.transform((end, 0))[0] for end in ends]
        hollow = far == "max"
        _bar(axes, at, y)
        _dot(axes, at[1], y, "p99", hollow=hollow)
        _dot(axes, at[0], y, "p50")

    def told(one: Mapping[str, Any]) -> str:
        figures = one["latency"][metric]
        if not figures:
            return "no values"
        far = _far(figures)
        return f"{scale.duration(figures['p50'])} to {scale.duration(figures[far])}"

    few = any(figures and _far(figures) == "max" for figures in found)
    note = "From P50, on the left, to P99."
    if few:
        note += " A group of fewer than 100 values has a ring at its largest value instead of a P99."
    if across.log:
        note += " Logarithmic scale."
    if limits:
        note += " Upright strokes: the limit named above them."
    return _rows(words.heading(metric), f"by-{metric}", groups, across, row, told, note, limits)


def _attainment(report: Report, groups: Sequence[Mapping[str, Any]]) -> Markup:
    name = words.judged(report)[0]["name"]
    shares = [one["goodput"][0]["attainment"] for one in groups]
    objective = words.judged(report)[0]["slo"]["objective"]
    across = scale.shares(min([objective, *(share for share in shares if share is not None)]))

    def row(axes: Axes, place: int, y: float) -> None:
        share = shares[place]
        if share is None:
            write(axes, axes.get_window_extent().x0, y, "none judged", hue="muted")
            return
        start, at = (axes.transData.transform((x, 0))[0] for x in (across.low, share))
        if not across.low:  # a bar that does not begin at 0 would lie
            _bar(axes, [start, at], y)
        _dot(axes, at, y, "p90")

    return _rows(
        f"Attainment of {name}" if len(words.judged(report)) > 1 else "Attainment",
        "by-attainment",
        groups,
        across,
        row,
        lambda one: percent(one["goodput"][0]["attainment"]),
        "The share of a group's judged requests that were good. Upright strokes: the objective.",
        [Limit(f"objective {100 * objective:.4g} %", objective)],
    )


def _far(figures: Mapping[str, Any]) -> str:
    """What stands for the slow ones of a group."""
    return "p99" if figures["count"] >= ENOUGH["p99"] else "max"


def _rows(
    heading: str,
    name: str,
    groups: Sequence[Mapping[str, Any]],
    across: scale.Scale,
    row: Callable[[Axes, int, float], None],
    told: Callable[[Mapping[str, Any]], str],
    note: str,
    limits: Sequence[Limit],
) -> Markup:
    """A row for each group, its name and figures above it."""
    above = ABOVE + LINE * len(limits)
    height = above + ROW * len(groups) + BELOW

    def paint(picture: Figure) -> None:
        width = picture.bbox.width - 2 * BESIDE
        axes = axes_at(picture, BESIDE, above, width, ROW * len(groups))
        scale.across(axes, across)
        axes.set_yticks([])
        axes.grid(visible=True, axis="x", color=colour("grid"), linewidth=0.8)
        box = axes.get_window_extent()
        _limits(axes, limits, [box.y1 - place * ROW - 25 for place in range(len(groups))])
        for place, one in enumerate(groups):
            top = box.y1 - place * ROW
            figures = told(one)
            room = box.width - width_of(figures) - 16
            write(axes, box.x0, top - 9, fitted(words.group(one), room), gid="halo")
            write(axes, box.x1, top - 9, figures, hue="muted", ha="right", gid="halo")
            row(axes, place, top - 25)

    summary = "; ".join(f"{words.group(one)}: {told(one)}" for one in groups)
    return figure(heading, one_width(name, height, paint, f"{heading}, by group", summary), [note])


def _limits(axes: Axes, limits: Sequence[Limit], rows: Sequence[float]) -> None:
    """A stroke through every row at each limit, and its name above."""
    from matplotlib.transforms import IdentityTransform

    box = axes.get_window_extent()
    low, high = axes.get_xlim()
    for line, limit in enumerate(reversed(limits)):
        x = axes.transData.transform((min(max(limit.value, low), high), 0))[0]
        if low <= limit.value <= high:
            for y in rows:
                axes.plot(
                    [x, x],
                    [y - 7, y + 7],
                    transform=IdentityTransform(),
                    color=colour("ink"),
                    linewidth=1.6,
                    clip_on=False,
                )
        half = width_of(limit.name) / 2
        centre = min(max(x, box.x0 + half), box.x1 - half)
        write(axes, centre, box.y1 + 8 + line * LINE, limit.name, ha="center", va="baseline")


def _bar(axes: Axes, ends: Sequence[float], y: float) -> None:
    from matplotlib.transforms import IdentityTransform

    axes.plot(ends, [y, y], transform=IdentityTransform(), color=colour("p50"), linewidth=2.5, solid_capstyle="butt")


def _dot(axes: Axes, x: float, y: float, hue: str, *, hollow: bool = False) -> None:
    from matplotlib.transforms import IdentityTransform

    axes.plot(
        [x],
        [y],
        "o",
        transform=IdentityTransform(),
        markersize=8,
        color=colour("paper" if hollow else hue),
        markeredgecolor=colour(hue if hollow else "paper"),
        markeredgewidth=1.8 if hollow else 1.2,
        clip_on=False,
    )


def _table(report: Report, groups: Sequence[Mapping[str, Any]], caption: str) -> Markup:
    columns = [Column("group", words=True), Column("requests"), Column("succeeded"), Column("tokens/s")]
    columns += [Column(f"{words.SHORT[metric]} {name.upper()}") for metric, name in _COLUMNS]
    columns += [
        Column("attained" if len(words.judged(report)) == 1 else f"attained, {words.short(one['name'])}")
        for one in words.judged(report)[:3]
    ]
    rows: list[list[Child]] = [
        [
            words.group(one),
            count(one["requests"]["attempted"]),
            count(one["requests"]["succeeded"]),
            number(one["rates"]["output_tokens_per_second"]),
            *(_percentile(one["latency"][metric], name) for metric, name in _COLUMNS),
            *(percent(part["attainment"]) for part in one["goodput"][: min(3, len(words.judged(report)))]),
        ]
        for one in groups
    ]
    return table(columns, rows, caption)


def _percentile(figures: Mapping[str, Any] | None, name: str) -> str:
    return "-" if figures is None else ms(figures[name]) + MARK * _few(figures, name)


def _few(figures: Mapping[str, Any] | None, name: str) -> bool:
    return figures is not None and figures["count"] < ENOUGH[name]
