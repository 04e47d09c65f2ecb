"""Attainment under any pair of limits, as a map: which share of requests would keep a TTFT and a TPOT limit at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokenpulse.reporting.grid import OVERFLOW, ZERO, upper_edge, within_limits
from tokenpulse.reporting.html import scale, words
from tokenpulse.reporting.html.figure import figure, two_widths, values_table
from tokenpulse.reporting.html.markup import Markup
from tokenpulse.reporting.html.panel import DASHES, LINE, axes_at, name_ends, write
from tokenpulse.reporting.html.style import BANDS
from tokenpulse.reporting.html.svg import FONT, colour, fitted, width_of
from tokenpulse.reporting.report import Report
from tokenpulse.reporting.text import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
assert len(LEVELS) + 1 == BANDS

MOST_STEPS = 48
"""Limits on either side at the most."""

NEAR = 24
"""Buckets (of 2^(1/8)) up to which the map is extended to hold an SLO's limits: three octaves."""

MEANING = (
    "The share of the judged requests (ended, aborts left out) that were within both limits. Along a line it is what is"
    " written at the end of the line; to the right of it and above it is higher."
)

MOST_SETS = 4
LEFT, RIGHT, ABOVE, BELOW = 64.0, 80.0, 22.0, 42.0
SIZES = {"wide": (680.0, 430.0), "narrow": (368.0, 360.0)}


@dataclass(frozen=True, slots=True)
class Mark:
    """Limits to be marked in the map: the sets that have them, and what share they attained."""

    name: str
    ttft: float
    tpot: float


@dataclass(frozen=True, slots=True)
class Map:
    """Limits in seconds, ascending, and the share of judged requests within each pair: [TTFT, TPOT]."""

    ttft: list[float]
    tpot: list[float]
    share: NDArray[np.float64]

    @classmethod
    def of(cls, report: Report) -> Map | None:
        """None where no successful request has both a TTFT and a TPOT."""
        grid, coarse = report.reduction["grid"], report.attainment_grid
        if coarse is None:
            return None
        rows = _steps([ttft for ttft, _, _ in grid["cells"]], [slo.ttft for slo in report.slos])
        columns = _steps([tpot for _, tpot, _ in grid["cells"] if tpot is not None], [slo.tpot for slo in report.slos])
        if not rows or not columns:
            return None
        within = within_limits(grid["cells"], rows, columns)
        return cls([upper_edge(i) for i in rows], [upper_edge(i) for i in columns], within / coarse["judged"])


def _steps(held: Sequence[int], limits: Sequence[float]) -> list[int]:
    """Buckets whose upper edges are the map's limits: from one below all that hold something to the last that does,
    and on to an SLO's limit where it is near. None where all values are 0 or beyond the last bucket."""
    inside = [index for index in held if ZERO < index < OVERFLOW]
    if not inside:
        return []
    low, high = min(inside), max(inside)
    wanted = [math.floor(8 * math.log2(limit)) for limit in limits]
    low = min([low, *(one for one in wanted if low - NEAR <= one)])
    high = max([high, *(one + 1 for one in wanted if one <= high + NEAR)])
    step = -(-(high - low + 1) // MOST_STEPS)
    places = range(low - 1, high + step, step)
    # What lies above the last bucket has no edge to be under.
    return sorted({min(place, OVERFLOW - 1) for place in places})


def draw(report: Report) -> Markup | None:
    """The map as a figure; None where there is nothing to draw it of."""
    found = Map.of(report)
    if found is None:
        return None
    marks = _marks(report)
    best = float(found.share[-1, -1])
    told = f"At the widest limits shown {percent(best)} of the judged requests are within both."
    if marks:
        told += " " + "; ".join(mark.name for mark in marks) + "."

    def paint(picture: Figure, narrow: bool) -> None:
        width, height = picture.bbox.width - LEFT - RIGHT, picture.bbox.height - ABOVE - BELOW
        axes = axes_at(picture, LEFT, ABOVE, width, height)
        scale.across(axes, scale.logarithmic(found.tpot[0], found.tpot[-1], 4 if narrow else 8, 1.0))
        scale.upwards(axes, scale.logarithmic(found.ttft[0], found.ttft[-1], 8, 1.0))
        axes.grid(visible=False)
        _bands(axes, found)
        _mark(axes, marks)
        box = axes.get_window_extent()
        write(axes, 4, box.y1 + 8, "TTFT limit", hue="muted", va="baseline")
        write(axes, box.x0 + box.width / 2, 6, "TPOT limit", hue="muted", va="baseline", ha="center")
        write(axes, picture.bbox.width - 2, box.y1 + 8, "within both", hue="muted", va="baseline", ha="right")

    return figure(
        "Attainment under every pair of limits",
        two_widths("map", paint, "Attainment by TTFT limit and TPOT limit", told, **SIZES),
        [MEANING, _beyond(report, best)],
        _table(report),
        "map",
    )


def _beyond(report: Report, best: float) -> str | None:
    told = []
    if best < 1:
        told.append(f"No limits attain more than {percent(best)}: the others failed, or had no token.")
    if any(slo.e2e or slo.itl or slo.where for slo in report.slos):
        told.append(
            "A marked set that limits E2E or ITL too, or judges some requests only, is named with its own attainment,"
            " not that of its place in the map."
        )
    return " ".join(told) or None


def _bands(axes: Axes, found: Map) -> None:
    """Shades between the levels, lines along them, and the levels' names where their lines leave at the right."""
    best = float(found.share[-1, -1])
    edges = (-1.0, *LEVELS, 2.0)
    axes.contourf(found.tpot, found.ttft, found.share, levels=edges, colors=[colour(f"band{i}") for i in range(BANDS)])
    shown = [level for level in LEVELS if level <= best]
    if shown:
        axes.contour(
            found.tpot,
            found.ttft,
            found.share,
            levels=shown,
            colors=[colour("halo" if level >= 0.9 else "axis") for level in shown],
            linewidths=1.0,
        )
    column = [float(share) for share in found.share[:, -1]]
    heights = np.log(found.ttft)
    ends = []
    for level in shown:
        place = next(i for i, share in enumerate(column) if share >= level)
        before = column[place - 1] if place else level
        part = (level - before) / (column[place] - before) if column[place] > before else 0.0
        low, high = heights[max(0, place - 1)], heights[place]
        ends.append((float(np.exp(low + part * (high - low))), f"{100 * level:g} %", "ink"))
    name_ends(axes, ends)


def _marks(report: Report) -> list[Mark]:
    names: dict[tuple[float, float], list[str]] = {}
    for one in words.judged(report):
        slo = one["slo"]
        name = "SLO" if len(words.judged(report)) == 1 else one["name"]
        names.setdefault((slo["ttft"], slo["tpot"]), []).append(f"{name}: {percent(one['attainment'])}")
    return [Mark(words.listed(told), *limits) for limits, told in names.items()][:MOST_SETS]


def _mark(axes: Axes, marks: Sequence[Mark]) -> None:
    """Mark pairs of limits and name them, each at the first place beside it where nothing is named yet."""
    box = axes.get_window_extent()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    taken: list[tuple[float, float, float, float]] = []
    points = []
    for mark in marks:
        at = (min(max(mark.tpot, left), right), min(max(mark.ttft, low), high))
        x, y = axes.transData.transform(at)
        points.append((x, y))
        taken.append((x - 6, y - 6, x + 6, y + 6))
        for xs, ys in (((at[0], at[0]), (low, at[1])), ((left, at[0]), (at[1], at[1]))):
            axes.plot(xs, ys, color=colour("halo"), linewidth=3.0)
            axes.plot(xs, ys, color=colour("ink"), linewidth=1.2, linestyle=DASHES["dashed"])
        axes.plot(
            *at,
            "o",
            color=colour("ink"),
            markersize=8,
            markeredgecolor=colour("halo"),
            markeredgewidth=2,
            clip_on=False,
        )
    for mark, (x, y) in zip(marks, points, strict=True):
        inside = left <= mark.tpot <= right and low <= mark.ttft <= high
        name = fitted(mark.name if inside else f"{mark.name} (outside the map)", box.width - 16)
        place = _free(name, x, y, box, taken)
        taken.append(place)
        write(axes, place[0], (place[1] + place[3]) / 2, name, gid="halo")


def _free(
    name: str, x: float, y: float, box: Any, taken: Sequence[tuple[float, float, float, float]]
) -> tuple[float, float, float, float]:
    """Where a name of a point can stand: left, bottom, right, top; at worst over another, never outside."""
    width = width_of(name)
    inside = min(max(x - width / 2, box.x0 + 4), box.x1 - 4 - width)
    sides = [side for side in (x + 10, x - 10 - width, inside) if box.x0 + 4 <= side <= box.x1 - 4 - width] or [inside]
    lifts = [lift * LINE for line in range(30) for lift in (0.9 + line, -0.9 - line)]
    found = None
    for lift in lifts:
        for side in sides:
            place = (side, y + lift - FONT / 2, side + width, y + lift + FONT / 2)
            if place[1] < box.y0 + 2 or place[3] > box.y1 - 2:
                continue
            found = found or place
            if all(place[2] < one[0] or place[0] > one[2] or place[3] < one[1] or place[1] > one[3] for one in taken):
                return place
    assert found is not None  # the map is higher than a line
    return found


def _table(report: Report) -> Markup:
    """A few of the limits on either side."""
    grid = report.attainment_grid
    assert grid is not None
    rows = _some(len(grid["ttft_limits"]), 12)
    columns = _some(len(grid["tpot_limits"]), 8)
    return values_table(
        ["TTFT at most", *(f"TPOT {scale.duration(grid['tpot_limits'][column])}" for column in columns)],
        [
            [scale.duration(grid["ttft_limits"][row]), *(percent(grid["share"][row][column]) for column in columns)]
            for row in rows
        ],
        "Share of the judged requests within both limits",
    )


def _some(length: int, most: int) -> list[int]:
    """Places out of so many, evenly apart, the last one always among them."""
    every = max(1, -(-length // most))
    return list(range(length - 1, -1, -every))[::-1]
