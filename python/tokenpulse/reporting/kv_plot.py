"""A curve as a picture: hit rate and refill rate by the size of the cache, with the sizes worth knowing named in it.

Guarantees. No name lies over another, and none is crossed by a line. The same curve gives the same SVG, byte for byte,
with the same Matplotlib; neither its settings file nor a display matters. Matplotlib is loaded here only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenpulse.reporting.kv import LIMITS, Curve, Figures
from tokenpulse.reporting.text import count, percent, setting_percent, several

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".svg", ".png")
MISSING = "the plot needs Matplotlib, which is not installed: pip install 'tokenpulse[plot]'"

HIT, REFILL, INK, FAINT = "#1f6f8b", "#b5442e", "#222222", "#8a8a8a"
STYLE: dict[str, Any] = {
    "svg.hashsalt": "tokenpulse",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}

SIZE_INCHES = (8.0, 6.4)
LEFT, RIGHT, BOTTOM, MIDDLE = 0.09, 0.93, 0.085, 0.36
"""Edges of the two panels, as shares of the picture."""

ROW, TITLE = 0.055, 0.9
"""Height of a row of names between the title and the panels, and where they begin, as shares of the picture."""

GAP = 5
"""Points between a line and its name."""


def check(path: str | os.PathLike[str]) -> None:
    """Whether a curve can be drawn into a file of this name, asked before the work. Errors as `Curve.plot` has them."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise ValueError(f"a plot must end in {' or '.join(ENDINGS)}, got {os.fspath(path)!r}")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError(MISSING) from None


def draw(curve: Curve, path: str | os.PathLike[str], blocks: int | None = None) -> None:
    """Draw a curve into a file that ends in .svg or .png, with one of its points named. See `Curve.plot`."""
    check(path)
    if not curve.points or not curve.references:
        raise ValueError("the trace has no blocks, of which a curve could be drawn")
    if curve.is_empty:
        rate = setting_percent(curve.rate)
        raise ValueError(f"no block was in the sample of {rate}, so that there is no curve to draw: take a higher rate")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        figure = Figure(figsize=SIZE_INCHES, dpi=150)
        FigureCanvasAgg(figure)
        _panels(figure, curve, blocks)
        kind = Path(path).suffix.lower().removeprefix(".")
        told = {"Date": None, "Creator": "tokenpulse"} if kind == "svg" else {"Software": "tokenpulse"}
        figure.savefig(path, format=kind, metadata=told)


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
        axes.tick_params(which="both", length=3, color=FAINT)
        axes.tick_params(which="minor", labelbottom=False)
        axes.grid(visible=True, color="#e6e6e6", linewidth=0.6)
        axes.set_axisbelow(True)
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
    _names(figure, upper, marks, top)
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
    for size, names in named.items():
        point = points[size]
        refill = "none evicted" if point["refill_rate"] is None else f"refill {percent(point['refill_rate'])}"
        text = f"{', '.join(names)}: {several(size, 'block')}\nhit {percent(point['hit_rate'])}, {refill}"
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


def _names(figure: Figure, axes: Axes, marks: Sequence[_Mark], start: float) -> None:
    """Set the marks' names into rows above the panels, each beside its own line, so that none meets another."""
    renderer = figure.canvas.get_renderer()
    width, height = figure.bbox.width, figure.bbox.height
    pad = GAP * figure.dpi / 72 / width
    # White behind it, for four names that spread out so that one must be crossed.
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    texts = [figure.text(0, 0, mark.text, linespacing=1.25, bbox=behind) for mark in marks]
    wide = [text.get_window_extent(renderer).width / width for text in texts]
    lines = [axes.transData.transform((mark.size, 0))[0] / width for mark in marks]
    for text, line, (row, left) in zip(texts, lines, arrange(lines, wide, pad, LEFT, RIGHT), strict=True):
        base = start + 0.015 + row * ROW
        text.set(x=line - pad if left else line + pad, y=base, ha="right" if left else "left", va="bottom")
        top = base + 0.85 * ROW
        rule = axes.annotate(
            "",
            xy=(line * width, start * height),
            xytext=(line * width, top * height),
            xycoords="figure pixels",
            textcoords="figure pixels",
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.8, "linestyle": (0, (4, 3)), "shrinkA": 0},
            annotation_clip=False,
        )
        rule.set_zorder(1)


def arrange(
    lines: Sequence[float], wide: Sequence[float], pad: float, left: float, right: float
) -> list[tuple[int, bool]]:
    """For each line, the row of its name and whether it stands to the left of it: so that no name leaves the picture
    or is crossed by another's line, where that can be had; each in a row of its own.

    >>> arrange([0.2, 0.21, 0.9], [0.3, 0.3, 0.3], 0.01, 0.1, 0.95)
    [(1, False), (0, False), (2, True)]
    """
    indices = range(len(lines))

    def faults(rows: Sequence[int], sides: Sequence[bool]) -> int:
        wrong = 0
        for i in indices:
            start, end = (lines[i] - pad - wide[i], lines[i]) if sides[i] else (lines[i], lines[i] + pad + wide[i])
            wrong += 10 * (start < left - 1e-9 or end > right + 1e-9)
            wrong += sum(start < lines[j] < end for j in indices if rows[j] > rows[i])
        return wrong

    every = product(permutations(indices), product((False, True), repeat=len(lines)))
    rows, sides = min(every, key=lambda one: faults(*one))
    return list(zip(rows, sides, strict=True))
