"""GuideLLM's distributions: of weighted values, of rates over time, and of how many there were at once.

A distribution is a set of distinct values with a share of the weight each; percentiles are the smallest value at or
below which so much of the weight lies (NumPy's `inverted_cdf`). Rates and concurrency are weighted by how long each
value lasted, and events closer than 0.1 ms are taken as one. Without values every figure is 0.
"""

from __future__ import annotations

import math

import numpy as np

from tokenpulse.profiles import percentile
from tokenpulse.profiles.intervals import mean_interval, rank_interval
from tokenpulse.profiles.rows import Figures
from tokenpulse.records import Floats

POINTS = {
    "p001": 0.001,
    "p01": 0.01,
    "p05": 0.05,
    "p10": 0.1,
    "p25": 0.25,
    "p50": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "p999": 0.999,
}

APART = 1e-4
"""s: events closer than this are one."""
LEAST = 1e-6
"""s: the least time that the last event is taken to stand for."""

FIGURES = ("mean", "median", "mode", "variance", "std_dev", "min", "max")


def summary(
    values: Floats, weights: Floats | None = None, count: int | None = None, confidence: float | None = None
) -> Figures:
    """A distribution's figures; the count is the sum of the weights unless another is given.

    With a confidence, intervals of the mean and of the percentiles too (each value weighs the same then).

    >>> found = summary(np.array([1.0, 2.0, 2.0, 5.0]))
    >>> found["mean"], found["mode"], found["count"], found["percentiles"]["p75"]
    (2.5, 2.0, 4, 2.0)
    """
    values = np.asarray(values, np.float64)
    weights = np.ones(values.size) if weights is None else weights
    distinct, shares = percentile.density(values, weights)
    if not distinct.size:
        zeros = dict.fromkeys(FIGURES, 0.0)
        return _shaped(zeros, dict.fromkeys(POINTS, 0.0), 0 if count is None else count, 0.0)
    places = np.searchsorted(np.cumsum(shares), list(POINTS.values()), side="left")
    points = distinct[np.minimum(places, distinct.size - 1)]
    named = {name: float(point) for name, point in zip(POINTS, points, strict=True)}
    mean = float(np.sum(distinct * shares))
    variance = float(np.sum((distinct - mean) ** 2 * shares))
    count = round(float(np.sum(weights))) if count is None else count
    figures = {
        "mean": mean,
        "median": named["p50"],
        "mode": float(distinct[np.argmax(shares)]),
        "variance": variance,
        "std_dev": math.sqrt(variance),
        "min": float(distinct[0]),
        "max": float(distinct[-1]),
    }
    intervals = {} if confidence is None else _intervals(np.sort(values), confidence)
    return _shaped(figures, named, count, mean * count) | intervals


def _intervals(ordered: Floats, confidence: float) -> Figures:
    mean = mean_interval(ordered, confidence)
    if mean is None:
        return {}
    ranks = {name: rank_interval(q, ordered.size, confidence) for name, q in POINTS.items()}
    return {
        "mean_ci": {"lower": mean[0], "upper": mean[1]},
        "percentile_cis": {
            name: found and {"lower": float(ordered[found[0] - 1]), "upper": float(ordered[found[1] - 1])}
            for name, found in ranks.items()
        },
    }


def _shaped(figures: Figures, points: Figures, count: int, total: float) -> Figures:
    unused = {"pdf": None, "mean_ci": None, "percentile_cis": None}
    return {**figures, "count": count, "total_sum": total, "percentiles": points, **unused}


def rates(times: Floats, amounts: Floats, window: tuple[float, float] | None = None) -> Figures:
    """How much came a second: each event's amount over the time from halfway to the one before to halfway to the next.

    A window adds its ends as events of nothing, and leaves out what is not in it.
    """
    if window is not None:
        inside = (times >= window[0]) & (times <= window[1])
        times = np.concatenate(([window[0]], times[inside], [window[1]]))
        amounts = np.concatenate(([0.0], amounts[inside], [0.0]))
    times, amounts = merged(times, amounts)
    if times.size <= 1:
        return summary(np.zeros(0), count=int(times.size) if window is not None else 0)
    halfway = (times[1:] + times[:-1]) / 2
    lasting = np.diff(np.concatenate((times[:1], halfway, times[-1:])))
    lasting[-1] = max(lasting[-1], LEAST)
    return summary(amounts / lasting, lasting, round(float(np.sum(amounts))))


def concurrency(
    starts: Floats, ends: Floats, amounts: Floats | None = None, window: tuple[float, float] | None = None
) -> Figures:
    """How much there was at once, from each start to its end; what lies wholly outside a window does not take part."""
    amounts = np.ones(starts.size) if amounts is None else amounts
    if window is not None:
        inside = (ends >= window[0]) & (starts <= window[1])
        starts, ends, amounts = starts[inside], ends[inside], amounts[inside]
    count = int(starts.size)
    times, changes = merged(np.concatenate((starts, ends)), np.concatenate((amounts, -amounts)))
    if window is not None and times.size:
        before = np.searchsorted(times, window[0], side="left")
        times = np.concatenate(([window[0]], times[before:]))
        changes = np.concatenate(([changes[:before].sum()], changes[before:]))
        until = np.searchsorted(times, window[1], side="right")
        times, changes = np.append(times[:until], window[1]), np.append(changes[:until], 0.0)
    level = np.maximum(np.cumsum(changes), 0)
    if level.size <= 1:
        return summary(level[:1] if count else np.zeros(0))
    lasting = np.maximum(np.diff(times), 0)
    if not (lasting > 0).any():
        return summary(np.zeros(0), count=count)
    return summary(level[:-1], lasting, count)


def merged(times: Floats, amounts: Floats) -> tuple[Floats, Floats]:
    """Events in order of time; those of one time, and then those closer than `APART`, are one at the first's time.

    A group is what lies within `APART` of its first event; groups that would overlap wait for the next round, until
    nothing is that close any more.

    >>> times, amounts = merged(np.array([1.0, 0.0, 1.00005]), np.array([1.0, 1.0, 2.0]))
    >>> times.tolist(), amounts.tolist()
    ([0.0, 1.0], [1.0, 3.0])
    """
    distinct, places = np.unique(times, return_inverse=True)
    summed: Floats = np.bincount(places, amounts, minlength=distinct.size).astype(np.float64)
    while distinct.size > 1:
        close = np.diff(distinct) <= APART
        if not close.any():
            break
        opening = np.flatnonzero(close & ~np.concatenate(([False], close[:-1])))
        closing = np.searchsorted(distinct, distinct[opening] + APART, side="right") - 1
        clear = np.concatenate(([True], opening[1:] > closing[:-1]))
        opening, closing = opening[clear], closing[clear]
        running = np.concatenate(([0.0], np.cumsum(summed)))
        summed[opening] = running[closing + 1] - running[opening]
        covered = np.bincount(opening, minlength=distinct.size + 1)
        covered -= np.bincount(closing + 1, minlength=distinct.size + 1)
        gone = np.cumsum(covered[:-1]) > 0
        gone[opening] = False
        distinct, summed = distinct[~gone], summed[~gone]
    return distinct, summed
