"""A capacity as a picture: attainment and good requests by rate, with the highest rates named, and the cost of a good
request where there is a price.

Upright bars are a run's interval, level ones between which rates the highest lies.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenpulse.analysis.capacity import PER_GOOD, RATE, Capacity
from tokenpulse.analysis.crossing import UNDER, Point, course
from tokenpulse.reporting.capacity_table import LIMITS, limits_text, rate_of, span
from tokenpulse.reporting.picture import FAINT, INK, RIGHT, ROW, check, names, plain, write
from tokenpulse.reporting.text import money, printable, setting_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KEPT, SERVED, COST = "#1f6f8b", "#b5442e", "#6b5b95"
SIZE_INCHES = (8.0, 6.4)
LEFT, BOTTOM, BETWEEN, TITLE = 0.115, 0.085, 0.035, 0.9
"""The left edge of the panels, the lower edge of the lowest, the room between them, where the rows of names end."""

DEAREST = 30
"""A cost over this many times the least is not shown: where few requests are good it has no end."""

Figures = Mapping[str, Any]

__all__ = ["check", "draw"]


def draw(capacity: Capacity, path: str | os.PathLike[str], slo: str | None = None) -> None:
    """Draw a capacity under an SLO set, by default the first, into a file that ends in .svg or .png.

    Raises ValueError for another ending, for a set that is not there and where no run has a place on the axis,
    ModuleNotFoundError without Matplotlib, and OSError where the file cannot be written.
    """
    check(path)
    known = {one["name"]: one for one in capacity.slos}
    if slo is not None and slo not in known:
        raise ValueError(f"no slo set is named {slo!r} (named: {', '.join(known)})")
    judged = capacity.slos[0] if slo is None else known[slo]
    runs = list(_placed(capacity, judged))
    if not runs:
        raise ValueError("no run has a rate and requests that were judged, so that there is nothing to draw")
    write(path, SIZE_INCHES, lambda figure: _panels(figure, capacity, judged, runs))


@dataclass(frozen=True)
class _Run:
    """A run's place on the axis and its figures."""

    place: float
    row: Figures
    verdict: Figures


def _placed(capacity: Capacity, judged: Figures) -> Iterator[_Run]:
    for number, (row, verdict) in enumerate(zip(capacity.runs, judged["runs"], strict=True)):
        place = row["offered_per_second"] if capacity.axis == RATE else row["setting"]
        if place is not None and verdict["judged"]:
            yield _Run(float(number) if isinstance(place, str) else place, row, verdict)


@dataclass(frozen=True)
class _Mark:
    """A highest rate to be named."""

    place: float
    text: str


def _marks(judged: Figures) -> list[_Mark]:
    """The highest rates; those of several targets that are one are named together."""
    found: dict[tuple[float, str], list[Figures]] = {}
    for keeps in judged["keeps"]:
        if keeps["how"] not in (None, UNDER):
            found.setdefault((keeps["rate"], keeps["how"]), []).append(keeps)
    marks = []
    for (rate, _), same in sorted(found.items()):
        targets = " and ".join(setting_percent(keeps["target"]) for keeps in same)
        binds = same[0]["binds"]
        told = "" if binds is None else f"{LIMITS[binds]} binds first"
        ends = span(*same[0]["interval"])
        where = f" ({ends})" if len(same) == 1 and ends != "-" else ""
        marks.append(_Mark(rate, f"{targets} attained: {rate_of(same[0])} req/s{where}\n{told}".rstrip()))
    return marks


def _panels(figure: Figure, capacity: Capacity, judged: Figures, runs: Sequence[_Run]) -> None:
    marks = _marks(judged)
    top = TITLE - 0.015 - ROW * len(marks)
    heights = (0.5, 0.27, 0.23) if capacity.price is not None else (0.62, 0.38)
    room = top - BOTTOM - BETWEEN * (len(heights) - 1)
    panels: list[Axes] = []
    above = top
    for share in heights:
        above -= share * room
        panels.append(
            figure.add_axes((LEFT, above, RIGHT - LEFT, share * room), **({"sharex": panels[0]} if panels else {}))
        )
        above -= BETWEEN
    _attainment(panels[0], judged, runs)
    _rates(panels[1], runs, by_rate=capacity.axis == RATE)
    if capacity.price is not None:
        _costs(panels[2], runs, capacity.price)
    places = [one.place for one in runs]
    words = [one for one in runs if isinstance(one.row["setting"], str)]
    reach = 10.0 if words else max(places) - min(places) or max(places)
    first = min(places) - 0.05 * reach
    panels[0].set_xlim(first if words else max(0.0, first), max(places) + 0.05 * reach)
    for axes in panels:
        plain(axes)
        axes.yaxis.set_label_coords(-0.075, 0.5)
        for mark in marks:
            axes.axvline(mark.place, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1.5)
    for axes in panels[:-1]:
        axes.tick_params(labelbottom=False)
    if words:
        for line in (line for axes in panels for line in axes.get_lines() if line.get_label() != "offered"):
            line.set_linestyle("none")
        panels[-1].set_xticks([one.place for one in words], [printable(one.row["setting"]) for one in words])
    panels[-1].set_xlabel("offered rate, requests a second" if capacity.axis == RATE else capacity.axis)
    names(figure, panels[0], marks, top)
    figure.text(LEFT, 0.965, f"Attainment and goodput by {capacity.axis}", fontsize=12, fontweight="bold")
    figure.text(LEFT, 0.935, f"{printable(judged['name'])}: {limits_text(judged['slo'])}", color=FAINT)


def _attainment(axes: Axes, judged: Figures, runs: Sequence[_Run]) -> None:
    shares = [100 * one.verdict["attainment"] for one in runs]
    ends = [[100 * end for end in one.verdict["interval"]] for one in runs]
    reach = [
        [share - low for share, (low, _) in zip(shares, ends, strict=True)],
        [high - share for share, (_, high) in zip(shares, ends, strict=True)],
    ]
    places = [one.place for one in runs]
    axes.errorbar(
        places,
        shares,
        yerr=reach,
        fmt="o",
        color=KEPT,
        markersize=5,
        linewidth=1.0,
        capsize=2.5,
        zorder=3,
        clip_on=False,
    )
    if judged["keeps"]:
        points = [Point(one.place, one.verdict["attainment"], one.verdict["independent"], (0.0, 1.0)) for one in runs]
        rates, line = course(points)
        axes.plot(rates, [100 * share for share in line], color=KEPT, linewidth=1.6, zorder=2)
    else:
        axes.plot(places, shares, color=KEPT, linewidth=1.6, zorder=2)
    for keeps in judged["keeps"]:
        target = 100 * keeps["target"]
        axes.axhline(target, color=FAINT, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1.4)
        axes.text(1.008, target / 104, f"{target:g} %", transform=axes.transAxes, va="center", color=INK)
        low, high = keeps["interval"] or (None, None)
        if low is not None and high is not None:
            axes.errorbar(
                [(low + high) / 2], [target], xerr=(high - low) / 2, fmt="none", ecolor=INK, capsize=3, zorder=4
            )
    axes.set_ylim(0, 104)
    axes.set_ylabel("requests that were good, %", color=KEPT)


def _rates(axes: Axes, runs: Sequence[_Run], by_rate: bool) -> None:
    known = [one for one in runs if one.verdict["goodput_per_second"] is not None]
    places = [one.place for one in known]
    if by_rate:
        ends = [0.0, max(one.place for one in runs)]
        axes.plot(ends, ends, color=FAINT, linewidth=0.9, linestyle=(0, (1, 2)), label="offered")
    served = [one.row["requests_per_second"] for one in known]
    good = [one.verdict["goodput_per_second"] for one in known]
    axes.plot(places, served, color=SERVED, linewidth=1.4, marker=".", markersize=5, label="served")
    axes.plot(places, good, color=KEPT, linewidth=1.8, marker=".", markersize=5, label="good")
    axes.set_ylim(0, 1.08 * max([*served, *good, *((one.place for one in runs) if by_rate else ()), 1e-9]))
    axes.set_ylabel("requests/s")
    # Between the panels, where no line can cross it.
    axes.legend(
        frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=3, fontsize=8, borderaxespad=0, borderpad=0
    )


def _costs(axes: Axes, runs: Sequence[_Run], price: Figures) -> None:
    from matplotlib.ticker import FixedLocator, NullFormatter

    known = [
        (one.place, 1000 * one.verdict["cost_per_good"]) for one in runs if one.verdict["cost_per_good"] is not None
    ]
    axes.set_ylabel("cost of 1,000\ngood requests", color=COST)
    if not known:
        return
    axes.plot([x for x, _ in known], [y for _, y in known], color=COST, linewidth=1.6, marker=".", markersize=5)
    limit = [1000 * price["limit"]] if price["limit"] is not None and price["per"] == PER_GOOD else []
    axes.set_yscale("log")
    least = min(y for _, y in known)
    most = min(DEAREST * least, max(y for _, y in known))
    if limit and least / DEAREST < limit[0] < DEAREST * least:
        least, most = min(least, *limit), max(most, *limit)
        axes.axhline(limit[0], color=COST, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1.4)
        axes.text(1.008, limit[0], "limit", transform=axes.get_yaxis_transform(), va="center", color=COST)
    axes.set_ylim(0.8 * least, 1.25 * most)
    beyond = [x for x, y in known if y > 1.25 * most]
    axes.plot(
        beyond, [1.25 * most] * len(beyond), color=COST, linestyle="none", marker="^", markersize=5, clip_on=False
    )
    axes.yaxis.set_major_locator(FixedLocator(_ticks(0.8 * least, 1.25 * most)))
    axes.yaxis.set_major_formatter(lambda cost, _: money(cost))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()


def _ticks(low: float, high: float) -> list[float]:
    """Costs to be written at a logarithmic axis, at most five."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        found = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(found) <= 5:
            return found
    return []
