"""The steady part of a run: the longest span in which the system was as full as it gets.

A load test fills up, runs, and drains; what it measures while it fills and drains is another system. The span is found
from concurrency alone, so that it is the same whatever the latencies were.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpulse.analysis.curve import Curve, Floats

PLATEAU_SHARE = 1 / 20
"""The plateau is the largest mean over this share of the run: long enough that a spike is none, and short enough that
a run with only a brief plateau has one."""

SMOOTHED_SHARE = 1 / 100
"""Concurrency is smoothed over this share of the run: one request that ends before the next begins is no dip. It is a
fifth of the plateau's, so that the smoothed curve always reaches the plateau."""

STEADY_LEVEL = 0.9
"""A moment is steady when its smoothed concurrency is at least this share of the plateau."""


@dataclass(frozen=True, kw_only=True)
class Steady:
    """A span in ns since the first arrival, the mean concurrency in it, and the plateau that it was held against."""

    from_ns: int
    to_ns: int
    mean: float
    plateau: float


def plateau(curve: Curve) -> float:
    """The largest mean of concurrency over any twentieth of the run.

    >>> plateau(Curve.of_rows(np.array([0, 500]), np.array([1000, 600]), 1000))
    2.0
    """
    return float(curve.smoothed(curve.run * PLATEAU_SHARE)[1].max())


def steady_span(curve: Curve) -> Steady | None:
    """The longest span whose smoothed concurrency is at least 90 % of the plateau; of equals the earliest.

    None where the plateau is 0, or the span has no whole nanosecond.

    >>> found = steady_span(Curve.of_rows(np.array([0, 100, 200]), np.array([900, 900, 900]), 1000))
    >>> found.from_ns, found.to_ns, found.plateau
    (202, 896, 3.0)
    """
    top = plateau(curve)
    if not top > 0:
        return None
    moments, means = curve.smoothed(curve.run * SMOOTHED_SHARE)
    begin, end = _longest(moments, means, STEADY_LEVEL * top)
    half = curve.run * SMOOTHED_SHARE / 2
    # What holds for the run's first or last stretch holds up to the run's end.
    begin = 0.0 if begin <= half else begin
    end = curve.run if end >= curve.run - half else end
    from_ns, to_ns = int(np.ceil(begin)), int(np.floor(end))
    if to_ns <= from_ns:
        return None
    return Steady(from_ns=from_ns, to_ns=to_ns, mean=curve.mean(from_ns, to_ns), plateau=top)


def _longest(moments: Floats, means: Floats, level: float) -> tuple[float, float]:
    """The longest stretch on which a curve of straight lines is at least `level`; it reaches it somewhere."""
    above = means >= level
    # Where the line crosses the level between a point below and a point above, in either direction.
    rises = np.flatnonzero(~above[:-1] & above[1:])
    falls = np.flatnonzero(above[:-1] & ~above[1:])
    begins, ends = _crossing(moments, means, level, rises), _crossing(moments, means, level, falls)
    if above[0]:
        begins = np.concatenate([moments[:1], begins])
    if above[-1]:
        ends = np.concatenate([ends, moments[-1:]])
    which = int(np.argmax(ends - begins))
    return float(begins[which]), float(ends[which])


def _crossing(
    moments: Floats, means: Floats, level: float, before: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Floats:
    part = (level - means[before]) / (means[before + 1] - means[before])
    return np.asarray(moments[before] + part * (moments[before + 1] - moments[before]))
