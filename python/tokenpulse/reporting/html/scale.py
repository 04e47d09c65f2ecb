"""Axes for people: where the ticks stand and what is written at them, on linear and on logarithmic scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenpulse.reporting.html.svg import FONT, colour, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE_RATIO = 20
"""Values that are further apart than this go on a logarithmic scale."""

LEAST_SECONDS = 2.0**-20
"""The least latency that a logarithmic scale shows; sketches take what is below for 0."""

UNITS = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("\u00b5s", 1e-6))

STEPS = {"h": (1, 2, 3, 6, 12, 24), "min": (1, 2, 5, 10, 15, 20, 30, 60)}
"""Steps between ticks, for units that are not counted in tens."""


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis: its ends, its ticks with what is written at them, and whether it is logarithmic."""

    low: float
    high: float
    ticks: tuple[float, ...]
    texts: tuple[str, ...]
    log: bool = False


def duration(seconds: float) -> str:
    """A latency as it is written at an axis or a line.

    >>> duration(0.0000005), duration(0.0228), duration(0.5), duration(1.5), duration(2000), duration(0)
    ('0.5 µs', '22.8 ms', '500 ms', '1.5 s', '2,000 s', '0')
    """
    if seconds == 0:
        return "0"
    unit, size = next((one for one in UNITS[3:] if float(f"{seconds:.3g}") >= one[1]), UNITS[-1])
    value = seconds / size
    return f"{float(f'{value:.3g}'):,g} {unit}" if value < 1e6 else f"{value:.2g} {unit}"


def step_above(least: float, steps: Sequence[float] = ()) -> float:
    """The least round number that is not below another; above a half one of `steps`, where there are any.

    >>> step_above(3), step_above(0.21), step_above(7, (1, 2, 5, 10, 15, 20, 30, 60)), step_above(0)
    (5.0, 0.5, 10.0, 1.0)
    """
    if not least > 0:
        return 1.0
    if steps and least > 0.5:
        return float(next((step for step in steps if step >= least), steps[-1] * math.ceil(least / steps[-1])))
    ten = 10.0 ** math.floor(math.log10(least))
    return float(f"{next((step * ten for step in (1, 2, 5, 10) if step * ten >= least * (1 - 1e-9)), 10 * ten):.6g}")


def linear(low: float, high: float, most: int, step: float) -> tuple[float, ...]:
    """Multiples of a step between two ends, `most` at the most by leaving out."""
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    every = max(1, math.ceil((last - first + 1) / (most + 1)))
    return tuple(float(f"{place * step:.9g}") for place in range(first, last + 1) if place % every == 0)


def time(start: float, end: float, most: int) -> Scale:
    """Time since the first arrival; `most` is how many ticks there is room for.

    >>> time(0, 13.2, 8).texts
    ('0', '2 s', '4 s', '6 s', '8 s', '10 s', '12 s')
    >>> time(600, 5400, 6).texts
    ('15 min', '30 min', '45 min', '60 min', '75 min', '90 min')
    """
    end = end if end > start else start + 1.0
    unit, size = next(
        (one for one, least in zip(UNITS, (172_800, 7_200, 120, 1, 1e-3, 0), strict=True) if end > least), UNITS[-1]
    )
    step = step_above((end - start) / size / most, STEPS.get(unit, ()))
    ticks = linear(start / size, end / size, most, step)
    return Scale(start, end, tuple(tick * size for tick in ticks), tuple(f"{t:,g} {unit}" if t else "0" for t in ticks))


def are_far_apart(values: Sequence[float]) -> bool:
    """Whether latencies need a logarithmic scale."""
    return max(values, default=0.0) > WIDE_RATIO * max(LEAST_SECONDS, min(values, default=0.0))


def latency(values: Sequence[float], also: Sequence[float] = (), most: int = 4) -> Scale:
    """Latencies on an axis, with some limits `also`: from 0, or logarithmic where the latencies are far apart.

    >>> latency([0.1, 0.35]).texts, latency([0.1], [0.35]).texts == latency([0.1, 0.35]).texts
    (('0', '100 ms', '200 ms', '300 ms', '400 ms'), True)
    >>> latency([0.001, 20.0]).texts
    ('1 ms', '10 ms', '100 ms', '1 s', '10 s')
    """
    held = [*values, *also]
    high = max(held, default=0.0)
    if high <= LEAST_SECONDS:
        return Scale(0, 1e-6, (0.0, 1e-6), ("0", duration(1e-6)))
    if are_far_apart(values):
        return logarithmic(max(LEAST_SECONDS, min(held)), high, most + 2)
    step = step_above(high / most)
    ticks = linear(0, step * math.ceil(high / step - 1e-9), most + 1, step)
    return Scale(0, max(ticks[-1], high), ticks, tuple(duration(tick) for tick in ticks))


def logarithmic(low: float, high: float, most: int, room: float = 1.15) -> Scale:
    """From one latency to another, with room beside them; `most` is how many ticks there is room for."""
    low, high = low / room, high * room
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    powers = range(first, last + 1)
    for steps in ((1,), (1, 3), (1, 2, 5)):
        ticks = [tick for power in powers for step in steps if low <= (tick := float(f"{step}e{power}")) <= high]
        if len(ticks) > 2:
            break
    else:
        finer = (step_above((high - low) / parts) for parts in (most, 2 * most, 4 * most))
        every = (list(linear(low, high, most, step)) for step in finer)
        ticks = next((one for one in every if len(one) > 1), ticks)
    ticks = ticks[:: max(1, math.ceil(len(ticks) / most))]
    return Scale(low, high, tuple(ticks), tuple(duration(tick) for tick in ticks), log=True)


def amounts(high: float, most: int = 4) -> Scale:
    """Counts and rates, from 0.

    >>> amounts(1324).texts, amounts(0).texts, amounts(2.4e6).texts
    (('0', '500', '1,000', '1,500'), ('0', '1'), ('0', '1M', '2M', '3M'))
    """
    step = step_above(high / most)
    ticks = linear(0, step * max(1, math.ceil(high / step - 1e-9)), most + 1, step)
    return Scale(0, max(ticks[-1], high), ticks, tuple(amount(tick) for tick in ticks))


def amount(value: float) -> str:
    """A count or a rate at an axis, short.

    >>> amount(1500), amount(20_000), amount(2_500_000), amount(0.25), amount(3e13)
    ('1,500', '20k', '2.5M', '0.25', '3e+13')
    """
    if value < 10_000:
        return f"{value:,g}"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= value < 1e3 * size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.3g}"


def across(axes: Axes, scale: Scale, *, labels: bool = True) -> None:
    """Give an axes its horizontal axis."""
    if scale.log:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xlim(scale.low, scale.high)
    places = [axes.transData.transform((tick, axes.get_ylim()[0]))[0] for tick in scale.ticks]
    shown = apart(scale.texts, places, [width_of(text) + 10 for text in scale.texts])
    axes.set_xticks(scale.ticks, shown if labels else [""] * len(scale.ticks))


def apart(texts: Sequence[str], places: Sequence[float], sizes: Sequence[float]) -> list[str]:
    """The texts that do not meet the one before them, each in the middle of its place; empty ones for the others.

    >>> apart(["1", "2", "3"], [0, 5, 12], [8, 8, 8])
    ['1', '', '3']
    """
    shown: list[str] = []
    end = -math.inf
    for text, place, size in zip(texts, places, sizes, strict=True):
        free = place - size / 2 >= end
        shown.append(text if free else "")
        end = place + size / 2 if free else end
    return shown


def upwards(axes: Axes, scale: Scale) -> None:
    """Give an axes its vertical axis, with a faint line through the axes at each tick."""
    if scale.log:
        axes.set_yscale("log")
        axes.minorticks_off()
    axes.set_ylim(scale.low, scale.high)
    places = [axes.transData.transform((axes.get_xlim()[0], tick))[1] for tick in scale.ticks]
    axes.set_yticks(scale.ticks, apart(scale.texts, places, [1.3 * FONT] * len(places)))
    axes.grid(visible=True, axis="y", color=colour("grid"), linewidth=0.8)


def shares(low: float) -> Scale:
    """Shares up to 1, from 0 or from closer where all are high.

    >>> shares(0.5).texts, shares(0.97).texts
    (('0 %', '25 %', '50 %', '75 %', '100 %'), ('95 %', '96 %', '97 %', '98 %', '99 %', '100 %'))
    """
    if low >= 0.995:
        ticks: tuple[float, ...] = (0.995, 0.996, 0.997, 0.998, 0.999, 1.0)
    elif low >= 0.95:
        ticks = (0.95, 0.96, 0.97, 0.98, 0.99, 1.0)
    else:
        ticks = (0.75, 0.8, 0.85, 0.9, 0.95, 1.0) if low >= 0.75 else (0.0, 0.25, 0.5, 0.75, 1.0)
    return Scale(ticks[0], 1.0, ticks, tuple(f"{100 * tick:.4g} %" for tick in ticks))
