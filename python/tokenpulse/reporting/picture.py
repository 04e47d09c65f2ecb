"""What pictures have in common: their file, their style, and names in rows above a panel, each beside its own line.

Guarantees. No name lies over another, and none is crossed by a line where that can be had. The same figures give the
same SVG, byte for byte, with the same Matplotlib; neither its settings file nor a display matters. Matplotlib is loaded
by the functions that need it only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import permutations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".svg", ".png")
MISSING = "the plot needs Matplotlib, which is not installed: pip install 'tokenpulse[plot]'"

INK, FAINT = "#222222", "#8a8a8a"
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

LEFT, RIGHT = 0.09, 0.93
"""Edges of the panels, as shares of the picture."""

ROW = 0.055
"""Height of a row of names, as a share of the picture."""

GAP = 5
"""Points between a line and its name."""


class Mark(Protocol):
    """A place on the horizontal axis to be named: a line through the panels, and a text beside its upper end."""

    @property
    def place(self) -> float: ...
    @property
    def text(self) -> str: ...


def check(path: str | os.PathLike[str]) -> None:
    """Whether a picture can be drawn into a file of this name, asked before the work.

    Raises ValueError unless it ends in .svg or .png, and ModuleNotFoundError without Matplotlib.
    """
    if Path(path).suffix.lower() not in ENDINGS:
        raise ValueError(f"a plot must end in {' or '.join(ENDINGS)}, got {os.fspath(path)!r}")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError(MISSING) from None


def write(path: str | os.PathLike[str], size_inches: tuple[float, float], draw: Callable[[Figure], None]) -> None:
    """Make a figure, let it be drawn and write it. Errors as `check` has them, and OSError."""
    check(path)
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        figure = Figure(figsize=size_inches, dpi=150)
        FigureCanvasAgg(figure)
        draw(figure)
        kind = Path(path).suffix.lower().removeprefix(".")
        told = {"Date": None, "Creator": "tokenpulse"} if kind == "svg" else {"Software": "tokenpulse"}
        figure.savefig(path, format=kind, metadata=told)


def plain(axes: Axes) -> None:
    """A panel's grid and ticks."""
    axes.tick_params(which="both", length=3, color=FAINT)
    axes.tick_params(which="minor", labelbottom=False)
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)


def names(figure: Figure, axes: Axes, marks: Sequence[Mark], start: float) -> None:
    """Set the marks' names into rows above the panels, each beside its own line, so that none meets another."""
    renderer = figure.canvas.get_renderer()
    width, height = figure.bbox.width, figure.bbox.height
    pad = GAP * figure.dpi / 72 / width
    # White behind it, for four names that spread out so that one must be crossed.
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    texts = [figure.text(0, 0, mark.text, linespacing=1.25, bbox=behind) for mark in marks]
    wide = [text.get_window_extent(renderer).width / width for text in texts]
    lines = [axes.transData.transform((mark.place, 0))[0] / width for mark in marks]
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
