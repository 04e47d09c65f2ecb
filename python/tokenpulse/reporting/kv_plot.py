"""A curve as a picture: hit rate and refill rate by the size of the cache, with the sizes worth knowing named in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenpulse.reporting.kv import LIMITS, Curve, Figures
from tokenpulse.reporting.picture import FAINT, INK, LEFT, RIGHT, ROW, check, names, plain, write
from tokenpulse.reporting.text import count, percent, setting_percent, several

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HIT, REFILL = "#1f6f8b", "#b5442e"

SIZE_INCHES = (8.0, 6.4)
BOTTOM, MIDDLE = 0.085, 0.36
"""Edges of the two panels, as shares of the picture."""

TITLE = 0.9
"""Where the rows of names between the title and the panels end, likewise."""


def draw(curve: Curve, path: str | os.PathLike[str], blocks: int | None = None) -> None:
    """Draw a curve into a file that ends in .svg or .png, with one of its points named. See `Curve.plot`."""
    check(path)
    if not curve.points or not curve.references:
        raise ValueError("the trace has no blocks, of which a curve could be drawn")
    if curve.is_empty:
        rate = setting_percent(curve.rate)
        raise ValueError(f"no block was in the sample of {rate}, so that there is no curve to draw: take a higher rate")
    write(path, SIZE_INCHES, lambda figure: _panels(figure, curve, blocks))


def _panels(figure: Figure, curve: Curve, blocks: int | None) -> None:
    from matplotlib.ticker import FixedLocator

    marks = sorted(_marks(curve, blocks), key=lambda mark: mark.size)
    sizes = [one["blocks"] for one in _with(curve, marks)]
    first, last = (sizes[0], sizes[-1]) if len(sizes) > 1 else (max(1, sizes[0] // 2), 2 * sizes[0])
    top = TITLE - 0.015 - ROW * len(marks)
    upper = figure.add_axes((LEFT, MIDDLE + 0.03, RIGHT - LEFT, top - MIDDLE - 0.03))
    lower = figure.add_axes((LEFT, BOTTOM, RIGHT - LEFT, MIDDLE - BOTTOM - 0.03), sharex=upper)
    for axes, figures, colour, name in (
        (upper, "hit_rate", HIT, "hit rate, % of look-ups"),
        (lower, "refill_rate", REFILL, "refill rate, % of evicted"),
    ):
        known = [(one["blocks"], 100 * one[figures]) for one in _with(curve, marks) if one[figures] is not None]
        xs, ys = [x for x, _ in known], [y for _, y in known]
        axes.plot(xs, ys, color=colour, linewidth=1.8, marker=".", markersize=4)
        axes.set_xscale("log")
        axes.set_xlim(first, last)
        axes.set_ylim(0, _nice(max(ys, default=0.0)))
        axes.set_ylabel(name, color=colour)
        plain(axes)
        for mark in marks:
            axes.axvline(mark.size, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1.5)
            if mark.point[figures] is not None:
                y = 100 * mark.point[figures]
                axes.plot([mark.size], [y], "o", color=colour, markersize=6, zorder=3, clip_on=False)
    _limits(lower)
    upper.tick_params(labelbottom=False)
    lower.xaxis.set_major_locator(FixedLocator(_ticks(first, last)))
    lower.xaxis.set_major_formatter(lambda size, _: count(round(size)))
    lower.set_xlabel(f"cache size, blocks of {several(curve.block_tokens, 'token')}")
    names(figure, upper, marks, top)
    sample = f"estimated from {setting_percent(curve.rate)} of the blocks, seed {curve.seed}"
    figure.text(LEFT, 0.965, "Hit rate and refill rate of LRU caches, by size", fontsize=12, fontweight="bold")
    told = f"{several(curve.references, 'reference')} to {several(curve.distinct or 0, 'block')}"
    how = "exact" if curve.mode == "exact" else sample
    figure.text(LEFT, 0.935, f"{told}; {how}", color=FAINT)


@dataclass(frozen=True)
class _Mark:
    """A size to be named: a line through both panels, and a text beside its upper end."""

    size: int
    text: str
    point: Figures

    @property
    def place(self) -> float:
        return self.size


def _marks(curve: Curve, blocks: int | None) -> Iterable[_Mark]:
    named: dict[int, list[str]] = {}
    points: dict[int, Figures] = {}
    asked = next((point for point in curve.points if point["blocks"] == blocks), None)
    under = [(f"refill < {100 * LIMITS[name]:g} %", point) for name, point in curve.refill_under.items()]
    wanted = [("asked for", asked), ("knee", curve.knee), *under]
    for name, point in wanted:
        if point is not None:
            named.setdefault(point["blocks"], []).append(name)
            points[point["blocks"]] = point
    for size, called in named.items():
        point = points[size]
        refill = "none evicted" if point["refill_rate"] is None else f"refill {percent(point['refill_rate'])}"
        text = f"{', '.join(called)}: {several(size, 'block')}\nhit {percent(point['hit_rate'])}, {refill}"
        yield _Mark(size, text, point)


def _with(curve: Curve, marks: Sequence[_Mark]) -> list[Mapping[str, Any]]:
    """The points of the curve and of the marks, in order of size."""
    points = {one["blocks"]: one for one in curve.points} | {mark.size: mark.point for mark in marks}
    return [points[size] for size in sorted(points)]


def _ticks(first: int, last: int) -> list[int]:
    """Sizes to be written at the axis: powers of ten, and where these are few, what lies between."""
    steps = (1,) if last >= 100 * first else (1, 2, 5) if last >= 3 * first else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    sizes = {round(step * 10**power) for step in steps for power in range(len(str(last)))}
    return sorted(size for size in sizes if first <= size <= last)


def _nice(most: float) -> float:
    """The end of an axis of percent: round, and a little above the largest value."""
    return next((end for end in (1, 2, 5, 10, 20, 30, 40, 50, 60, 80) if 1.08 * most <= end), 100)


def _limits(axes: Axes) -> None:
    """The refill rates to stay under, named at the right of the panel where there is room on its axis."""
    top = axes.get_ylim()[1]
    for limit in LIMITS.values():
        if 100 * limit < top:
            axes.axhline(100 * limit, color=REFILL, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1.4)
            axes.text(
                1.008, 100 * limit / top, f"{100 * limit:g} %", transform=axes.transAxes, va="center", color=REFILL
            )
