"""What the figures are made of: an axes at a place, a line in steps, and names at the ends of lines that never meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenpulse.reporting.html.svg import FONT, colour, fitted
from tokenpulse.reporting.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE = 1.25 * FONT
"""From one line of text to the next."""

LEFT, BOTTOM, TOP = 58.0, 24.0, 8.0
"""Room around an axes for what is written at its ticks."""

LEADER = 14.0
"""Room between the edge of an axes and a name beside it."""

NAN = float("nan")

DASHES: dict[str, Any] = {"solid": "-", "dashed": (0, (5, 3)), "dotted": (0, (1.5, 2))}


@dataclass(frozen=True, slots=True)
class Stretch:
    """A value that holds from one time to another."""

    start: float
    end: float
    value: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """A line through an axes, with the name to be written at its end."""

    name: str
    colour: str
    stretches: Sequence[Stretch]
    width: float = 1.6
    dash: str = "solid"
    area: str | None = None

    @property
    def last(self) -> Stretch | None:
        return next((one for one in reversed(self.stretches) if one.value is not None), None)


@dataclass(frozen=True, slots=True)
class Limit:
    """A level straight through an axes, with its name."""

    name: str
    value: float


def axes_at(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """An axes at a place of the figure, from its upper left corner, with a line below it only."""
    whole_width, whole_height = figure.bbox.width, figure.bbox.height
    axes = figure.add_axes(
        (left / whole_width, 1 - (top + height) / whole_height, width / whole_width, height / whole_height)
    )
    axes.patch.set_visible(False)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(colour("axis"))
    axes.tick_params(axis="x", color=colour("axis"), length=4, pad=4, labelcolor=colour("muted"), labelsize=FONT)
    axes.tick_params(axis="y", length=0, pad=6, labelcolor=colour("muted"), labelsize=FONT)
    axes.set_axisbelow(True)
    return axes


def draw(axes: Axes, lines: Sequence[Line], limits: Sequence[Limit] = (), *, highest_first: bool = False) -> None:
    """Draw lines in steps, broken where there is no value, and limits; name each at the right edge.

    Lines are given with the lowest first, unless told otherwise: so are their names where they end at one height.
    """
    for line in lines:
        xs: list[float] = []
        ys: list[float] = []
        for one in line.stretches:
            if one.value is None:
                continue
            if xs and one.start > xs[-1] + 1e-6 * (one.end - one.start):
                xs.append(NAN)
                ys.append(NAN)
            xs += (one.start, one.end)
            ys += (one.value, one.value)
        if line.area is not None:
            axes.fill_between(xs, ys, color=colour(line.area), linewidth=0)
        axes.plot(xs, ys, color=colour(line.colour), linewidth=line.width, linestyle=DASHES[line.dash])
        right = axes.get_xlim()[1]
        if line.last and line.last.value is not None and line.last.end < 0.995 * right:
            # It ends before its name: led there.
            way = [line.last.end, right]
            axes.plot(way, [line.last.value] * 2, color=colour(line.colour), linewidth=0.7, linestyle=DASHES["dotted"])
    low, high = axes.get_ylim()
    ordered = lines[::-1] if highest_first else lines
    ends = [(line.last.value, line.name, line.colour) for line in ordered if line.last and line.last.value is not None]
    for limit in limits:
        if low <= limit.value <= high:
            axes.axhline(limit.value, color=colour("ink"), linewidth=1.1, linestyle=DASHES["dashed"])
        ends.append((limit.value, limit.name, "ink"))
    name_ends(axes, ends)


def name_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write names (value, name, colour) to the right of an axes, each as close to its value as the others let it."""
    from matplotlib.transforms import IdentityTransform

    figure = axes.figure
    box = axes.get_window_extent()
    low, high = sorted(axes.get_ylim())
    heights = [axes.transData.transform((axes.get_xlim()[1], min(high, max(low, value))))[1] for value, _, _ in ends]
    room = figure.bbox.width - box.x1 - LEADER
    for (_, name, hue), height, place in zip(ends, heights, spread(heights, LINE, box.y0, box.y1), strict=True):
        axes.plot(
            [box.x1 + 1, box.x1 + 3, box.x1 + LEADER - 5, box.x1 + LEADER - 3],
            [height, height, place, place],
            transform=IdentityTransform(),
            color=colour(hue),
            linewidth=1.2,
            clip_on=False,
        )
        write(axes, box.x1 + LEADER, place, fitted(name, room), hue=hue)


def write(axes: Axes, x: float, y: float, text: str, *, hue: str = "ink", **settings: Any) -> None:
    """Write at a place of the figure, in its units from the lower left corner."""
    from matplotlib.transforms import IdentityTransform

    settings = {"va": "center_baseline"} | settings
    axes.text(x, y, printable(text), transform=IdentityTransform(), color=colour(hue), parse_math=False, **settings)


def spread(places: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Places moved as little as can be, in the sense of least squares, so that all are `apart` and within two ends.

    Where there is no room for that they are as far apart as there is.

    >>> spread([10, 11, 50], 8, 0, 100), spread([98, 99], 8, 0, 100), spread([5], 8, 0, 100)
    ([6.5, 14.5, 50.0], [92, 100], [5.0])
    """
    if len(places) * apart > high - low + apart:
        apart = (high - low) / max(1, len(places) - 1)
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    # Less what they must be apart, they need only be in order: neighbours out of order share their mean.
    pools: list[tuple[float, int]] = []
    for rank, i in enumerate(order):
        total, size = places[i] - rank * apart, 1
        while pools and pools[-1][0] / pools[-1][1] >= total / size:
            before = pools.pop()
            total, size = total + before[0], size + before[1]
        pools.append((total, size))
    found = [0.0] * len(places)
    rank = 0
    last = high - (len(places) - 1) * apart
    for total, size in pools:
        level = min(max(total / size, low), max(low, last))
        for _ in range(size):
            found[order[rank]] = level + rank * apart
            rank += 1
    return found
