"""A figure of the page: heading, what it shows in words, a drawing for each width of a page, its values as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tokenpulse.reporting.html.markup import Child, Column, Markup, join, table, tag
from tokenpulse.reporting.html.svg import inline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE, NARROW = 860.0, 368.0
"""Widths of the two drawings of a figure, of which the page shows one: narrow ones on a telephone only."""

HALF = 420.0
"""Width of a drawing that shares its row with another, and is as wide as a telephone."""

Paint = Callable[["Figure", bool], None]


def two_widths(
    name: str,
    paint: Paint,
    title: str,
    told: str,
    *,
    wide: tuple[float, float],
    narrow: tuple[float, float],
) -> Markup:
    """A drawing for a wide and one for a narrow page, of these sizes; `paint` is told whether it is the narrow one."""
    return join(
        inline(f"{name}-w", wide, lambda figure: paint(figure, False), title, told, "wide"),
        inline(f"{name}-n", narrow, lambda figure: paint(figure, True), title, told, "narrow"),
    )


def full_width(name: str, height: float, paint: Paint, title: str, told: str) -> Markup:
    """Two drawings of the same height, as wide as the page."""
    return two_widths(name, paint, title, told, wide=(WIDE, height), narrow=(NARROW, height))


def one_width(name: str, height: float, paint: Callable[[Figure], None], title: str, told: str) -> Markup:
    """A drawing of half the width of a wide page."""
    return inline(name, (HALF, height), paint, title, told, None)


def figure(
    heading: str, drawings: Markup, notes: Sequence[Child] = (), values: Markup | None = None, shown: str | None = None
) -> Markup:
    """The figure as an element. `values` is its table, which opens on demand and is not printed."""
    return tag(
        "figure",
        tag("figcaption", tag("h3", heading), *(tag("p", one) for one in notes if one)),
        drawings,
        tag("details", tag("summary", "The same as a table"), values) if values else None,
        class_=shown,
    )


def values_table(heads: Sequence[str], rows: Sequence[Sequence[Child]], caption: str) -> Markup:
    """The table of a figure: figures only, the first column says where."""
    return table([Column(heads[0]), *(Column(head) for head in heads[1:])], rows, caption)
