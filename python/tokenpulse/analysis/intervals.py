"""Intervals for the change of a figure between two runs, from nothing but the buckets and counts of each.

A percentile: where its true value may lie among the ordered values is binomial (of `n` independent values, as many lie
below the `q` quantile as of `n` draws with probability `q` succeed), and the buckets say between which edges that is.
The two runs' possible values are paired in all ways, weighted, and the interval cuts the tails off their differences.
No bucket is taken for a point: the interval contains the sampling error and the sketch's. Where a run has too few
values for a percentile to lie surely below its largest, the interval is open.

A mean: Welch's interval, with the exact means and variances from the buckets; for its relative change, Fieller's. A
share: Newcombe's (method 10 of 1998). Every function is deterministic; no random number is drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Interval = tuple[float, float]
"""Low and high end; an end that is not known is infinite."""

EXACT_VARIANCE = 1e6
"""Above this variance a binomial's quantiles come from their expansion, which is then off by less than one."""


class Buckets(Protocol):
    """What is asked of a sketch."""

    @property
    def count(self) -> int: ...
    @property
    def mean(self) -> float: ...
    @property
    def min(self) -> float: ...
    @property
    def max(self) -> float: ...
    @property
    def scale(self) -> int: ...
    @property
    def zero_count(self) -> int: ...
    @property
    def overflow_count(self) -> int: ...
    def buckets(self) -> tuple[Any, Any]: ...


@dataclass(frozen=True)
class Spread:
    """The values of a sketch that is not empty, as far as they are known: in ascending buckets."""

    index: NDArray[np.int64]
    """Of each bucket that is not empty; the zero bucket below and the overflow bucket above all others."""
    low: Floats
    high: Floats
    """s: between which its values lie."""
    counts: NDArray[np.int64]
    mean: float
    """s: exact."""

    @classmethod
    def of(cls, sketch: Buckets) -> Spread:
        """Of a sketch with at least one value."""
        index, counts = bucket_counts(sketch)
        edges = bucket_edges(sketch.scale)
        at = index - first_index(sketch.scale)
        low = np.clip(edges[at], sketch.min, sketch.max)
        return cls(index, low, np.clip(edges[at + 1], sketch.min, sketch.max), counts, sketch.mean)

    @cached_property
    def cumulative(self) -> NDArray[np.int64]:
        """How many values lie in each bucket or below."""
        return np.cumsum(self.counts)

    @property
    def count(self) -> int:
        return int(self.cumulative[-1])

    @cached_property
    def points(self) -> Floats:
        """s: the estimate of each bucket's values."""
        total = self.low + self.high
        harmonic = 2 * self.low * self.high / np.where(total > 0, total, 1.0)
        return np.clip(harmonic, self.low, self.high)

    @cached_property
    def variance(self) -> float:
        """s²: of the estimates, and as if the values of a bucket were spread evenly over it; 0 for a single value."""
        n = self.count
        if n < 2:
            return 0.0
        squares = (self.points - self.mean) ** 2 + (self.high - self.low) ** 2 / 12
        return float(np.sum(self.counts * squares) / (n - 1))

    def at_share(self, share: Floats) -> tuple[Floats, Floats]:
        """s: the edges between which the value lies that has this share of all values at or below it.

        A share of 0 or less is no value: 0 and the least; one above 1 is the greatest and infinite.
        """
        rank = np.ceil(np.clip(share, 0.0, 1.0) * self.count * (1 - 1e-15))
        at = np.searchsorted(self.cumulative, np.maximum(rank, 1.0), side="left")
        low, high = self.low[at], self.high[at]
        return np.where(share <= 0, 0.0, low), np.where(share > 1, math.inf, high)


def first_index(scale: int) -> int:
    """The index of the zero bucket: one below the first of OpenTelemetry's that is in the range.

    >>> first_index(6)
    -1281
    """
    return (-20 << scale) - 1


def bucket_counts(sketch: Buckets) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The indices of the buckets that are not empty, ascending, and their counts; zero and overflow bucket included."""
    found, counts = sketch.buckets()
    scale = sketch.scale
    below, above = sketch.zero_count > 0, sketch.overflow_count > 0
    index = np.concatenate([[first_index(scale)] * below, found, [12 << scale] * above]).astype(np.int64)
    n = np.concatenate([[sketch.zero_count] * below, counts, [sketch.overflow_count] * above]).astype(np.int64)
    return index, n


@lru_cache
def bucket_edges(scale: int) -> Floats:
    """s: 0, the edges of all buckets of a scale, and infinity: between which the values of the buckets lie, from the
    zero bucket to the overflow bucket. Within one unit in the last place.

    >>> edges = bucket_edges(6).tolist()
    >>> edges[0], edges[1] == 2**-20, edges[-2], edges[-1], len(edges)
    (0.0, True, 4096.0, inf, 2051)
    """
    index = np.arange(-20 << scale, (12 << scale) + 1)
    inner = np.ldexp(np.exp2((index & ((1 << scale) - 1)) / (1 << scale)), index >> scale)
    return np.concatenate([[0.0], inner, [math.inf]])


# The normal and the t distribution


@lru_cache
def _grid() -> tuple[Floats, Floats, Floats]:
    """Points on the normal distribution from -6.5 to 6.5: the points, how much lies below each, the weight of each."""
    z = np.arange(-65, 66) / 10
    normal = NormalDist()
    below = np.array([normal.cdf(point) for point in z])
    edges = np.array([0.0, *(normal.cdf(point + 0.05) for point in z[:-1]), 1.0])
    return z, below, np.diff(edges)


def normal_quantile(confidence: float) -> float:
    """How many standard deviations on either side hold this share of a normal distribution.

    >>> round(normal_quantile(0.95), 4)
    1.96
    """
    return NormalDist().inv_cdf((1 + confidence) / 2)


def t_quantile(confidence: float, freedom: float) -> float:
    """The same of Student's t distribution, by Hill's expansion (1970), off by less than 1 in 1,000.

    Raises ValueError below one degree of freedom.

    >>> round(t_quantile(0.95, 10), 3), round(t_quantile(0.95, 1), 2)
    (2.228, 12.71)
    """
    if not freedom >= 1:
        raise ValueError(f"degrees of freedom must be at least 1, got {freedom}")
    tail = 1 - confidence
    if freedom < 2:  # rare, and between two exact ones: the wider
        return 1 / math.tan(tail * math.pi / 2)
    if freedom < 3:
        return math.sqrt(2 / (tail * (2 - tail)) - 2)
    a = 1 / (freedom - 0.5)
    b = 48 / (a * a)
    c = ((20_700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * freedom
    x = d * tail
    y = x ** (2 / freedom)
    if y > 0.05 + a:
        x = -normal_quantile(confidence)
        y = x * x
        c += 0.3 * (freedom - 4.5) * (x + 0.6) if freedom < 5 else 0.0
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = (
            (1 / (((freedom + 6) / (freedom * y) - 0.089 * d - 0.822) * (freedom + 2) * 3) + 0.5 / (freedom + 4)) * y
            - 1
        ) * (freedom + 1) / (freedom + 2) + 1 / y
    return math.sqrt(freedom * y)


@lru_cache(maxsize=1024)
def _below(n: float, q: float) -> Floats:
    """At each point of the grid, how many of `n` independent values lie below their `q` quantile: a binomial's
    quantiles at the grid's shares."""
    z, shares, _ = _grid()
    mean, variance = n * q, n * q * (1 - q)
    if variance > EXACT_VARIANCE:
        return np.rint(mean + math.sqrt(variance) * z + (1 - 2 * q) * (z * z - 1) / 6)
    most = int(n)
    first = max(0, math.floor(mean - 9 * math.sqrt(variance) - 40))
    last = min(most, math.ceil(mean + 9 * math.sqrt(variance) + 40))
    k = np.arange(first, last, dtype=np.float64)
    steps = np.log((most - k) / (k + 1)) + math.log(q / (1 - q))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    weights = np.exp(logs - logs.max())
    cumulative = np.cumsum(weights) / weights.sum()
    at = np.minimum(np.searchsorted(cumulative, shares, side="left"), len(cumulative) - 1)
    return (first + at).astype(np.float64)


# Percentiles


@dataclass(frozen=True)
class Change:
    """Between which ends the change of a figure lies."""

    absolute: Interval | None
    """In the figure's unit; None where nothing can be said."""
    relative: Interval | None
    """As a share of what it was."""

    @property
    def direction(self) -> int:
        """1 where the figure surely rose, -1 where it surely fell, else 0."""
        if self.absolute is None:
            return 0
        return int(self.absolute[0] > 0) - int(self.absolute[1] < 0)


NOT_KNOWN = Change(None, None)


def percentile_change(
    before: Spread, after: Spread, q: float, independent: tuple[float, float], confidence: float
) -> Change:
    """Between which ends a quantile changed.

    `independent`: how many independent values those of either run amount to, at most its count.
    """
    edges = []
    for spread, n in zip((before, after), independent, strict=True):
        if n < 1:
            return NOT_KNOWN
        n = math.floor(n)
        k = _below(n, q)
        edges.append((spread.at_share(k / n)[0], spread.at_share((k + 1) / n)[1]))
    (low_before, high_before), (low_after, high_after) = edges
    least, most = _Pairs(low_after, high_before), _Pairs(high_after, low_before)
    return Change(
        (least.cut(least.differences, confidence, -1), most.cut(most.differences, confidence, 1)),
        (least.cut(least.ratios, confidence, -1), most.cut(most.ratios, confidence, 1)),
    )


class _Pairs:
    """Possible values of two runs, one at each point of the grid, paired in all ways."""

    def __init__(self, after: Floats, before: Floats) -> None:
        weights = _grid()[2]
        self._after, of_after = np.unique(after, return_inverse=True)
        self._before, of_before = np.unique(before, return_inverse=True)
        joint = np.outer(np.bincount(of_after, weights), np.bincount(of_before, weights))
        self._weights = joint.ravel()

    @property
    def differences(self) -> Floats:
        return np.subtract.outer(self._after, self._before).ravel()

    @property
    def ratios(self) -> Floats:
        """What there is more, as a share of what there was; from 0 to 0 is no change."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.divide.outer(self._after, self._before).ravel() - 1
        found[np.isnan(found)] = 0.0
        return found

    def cut(self, values: Floats, confidence: float, side: int) -> float:
        """What is left outermost, from above (1) or below (-1), when half of what a confidence leaves out is cut."""
        order = np.argsort(-side * values)
        cumulative = np.cumsum(self._weights[order])
        return float(values[order[np.searchsorted(cumulative, (1 - confidence) / 2, side="right")]])


# Means


def mean_change(before: Spread, after: Spread, independent: tuple[float, float], confidence: float) -> Change:
    """Between which ends a mean changed; as `percentile_change`."""
    if min(independent) < 2:
        return NOT_KNOWN
    (mean_before, square_before), (mean_after, square_after) = (
        (spread.mean, spread.variance / n) for spread, n in zip((before, after), independent, strict=True)
    )
    square = square_before + square_after
    if square == 0:
        freedom = math.inf
    else:
        parts = zip((square_before, square_after), independent, strict=True)
        freedom = max(1.0, square**2 / sum(part**2 / (n - 1) for part, n in parts))
    t = normal_quantile(confidence) if math.isinf(freedom) else t_quantile(confidence, freedom)
    change, error = mean_after - mean_before, t * math.sqrt(square)
    relative = fieller(mean_before, square_before, mean_after, square_after, t)
    return Change((change - error, change + error), relative)


def fieller(before: float, square_before: float, after: float, square_after: float, t: float) -> Interval | None:
    """The interval of after / before - 1, of two independent figures with these squared errors; None where the first
    may be 0.

    It excludes 0 exactly where the difference is more than `t` errors.

    >>> [round(end, 3) for end in fieller(10.0, 0.25, 12.0, 0.25, 1.96)]
    [0.057, 0.366]
    """
    lead = before * before - t * t * square_before
    if lead <= 0:
        return None
    middle = before * after
    under = middle * middle - lead * (after * after - t * t * square_after)
    root = math.sqrt(max(0.0, under))
    return (middle - root) / lead - 1, (middle + root) / lead - 1


# Shares


def wilson(part: float, whole: float, z: float) -> Interval:
    """Between which ends a share lies of which `part` of `whole` independent cases are known (Wilson, 1927).

    >>> [round(end, 4) for end in wilson(0, 10, 1.96)]
    [0.0, 0.2775]
    """
    share, square = part / whole, z * z
    centre = (share + square / (2 * whole)) / (1 + square / whole)
    reach = z / (1 + square / whole) * math.sqrt(share * (1 - share) / whole + square / (4 * whole * whole))
    return max(0.0, centre - reach), min(1.0, centre + reach)


def share_change(
    before: tuple[int, int], after: tuple[int, int], independent: tuple[float, float], confidence: float
) -> Change:
    """Between which ends a share changed, given as part and whole of either run; as `percentile_change`.

    Its relative change has no ends: it may be a change from 0.
    """
    if not before[1] or not after[1] or min(independent) < 1:
        return NOT_KNOWN
    (share_before, n_before), (share_after, n_after) = (
        (part / whole, n) for (part, whole), n in zip((before, after), independent, strict=True)
    )
    z = normal_quantile(confidence)
    low_before, high_before = wilson(share_before * n_before, n_before, z)
    low_after, high_after = wilson(share_after * n_after, n_after, z)
    change = share_after - share_before
    low = change - math.hypot(share_after - low_after, high_before - share_before)
    high = change + math.hypot(high_after - share_after, share_before - low_before)
    return Change((low, high), None)


# Distances between two distributions


def ks_distance(before: Spread, after: Spread) -> float:
    """The Kolmogorov-Smirnov distance of the bucket arrays: the largest difference of the shares at or below an edge.

    It is that of the values themselves but for what happens inside a bucket.
    """
    index = np.union1d(before.index, after.index)
    return float(np.max(np.abs(_shares_at(before, index) - _shares_at(after, index))))


def _shares_at(spread: Spread, index: NDArray[np.int64]) -> Floats:
    at = np.searchsorted(spread.index, index, side="right")
    return np.concatenate([[0], spread.cumulative])[at] / spread.count


def ks_by_chance(independent: tuple[float, float]) -> float:
    """The distance that two runs of the same distribution exceed in one of 20 cases (asymptotically, at most).

    >>> round(ks_by_chance((1000, 1000)), 4)
    0.0607
    """
    return min(1.0, 1.3581 * math.sqrt(sum(1 / n for n in independent)))


def wasserstein_seconds(before: Spread, after: Spread) -> float:
    """How far a value must be moved on average to make one distribution of the other, in s (Wasserstein, order 1).

    Of the buckets' estimates: off by at most the sketches' relative error times the sum of both means.
    """
    points = np.union1d(before.points, after.points)

    def shares(spread: Spread) -> Floats:
        at = np.searchsorted(spread.points, points, side="right")
        return np.concatenate([[0], spread.cumulative])[at] / spread.count

    return float(np.sum(np.abs(shares(before) - shares(after))[:-1] * np.diff(points)))
