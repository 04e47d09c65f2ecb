"""The percentiles that tools take of exact values: nearest rank, linear, floor index, and by weight.

Each function takes values in any order and shares `q` between 0 and 1, and returns one float64 a share. Sorting costs
`n log n`; nothing is approximated. None of them accepts NaN or no value at all: what an empty distribution gives is a
choice of each tool, not of a percentile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpulse.records import Floats


def _checked(values: Floats, q: Sequence[float]) -> tuple[Floats, Floats]:
    values, shares = np.asarray(values, np.float64), np.asarray(q, np.float64)
    if not values.size:
        raise ValueError("values must hold at least one value, got none")
    if not np.all((shares >= 0) & (shares <= 1)):
        raise ValueError(f"q must be between 0 and 1, got {list(q)!r}")
    return values, shares


def nearest_rank(values: Floats, q: Sequence[float]) -> Floats:
    """The value of rank `max(1, ceil(q n))`, as the reports of tokenpulse have it; a value that was observed.

    Raises ValueError for no values or a share outside 0 to 1, as all of these functions do.

    >>> nearest_rank(np.array([3.0, 1.0, 2.0, 4.0]), [0, 0.5, 0.51, 1]).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    values, shares = _checked(values, q)
    ranks = np.minimum(np.maximum(np.ceil(shares * values.size), 1), values.size).astype(np.int64)
    return np.sort(values)[ranks - 1]


def linear(values: Floats, q: Sequence[float]) -> Floats:
    """Between the two values around place `q (n - 1)`, in proportion: what NumPy and pandas do unless told otherwise.

    >>> linear(np.array([3.0, 1.0, 2.0, 4.0]), [0.5, 0.99]).tolist()
    [2.5, 3.9699999999999998]
    """
    values, shares = _checked(values, q)
    return np.asarray(np.quantile(values, shares), np.float64)


def floor_index(values: Floats, q: Sequence[float]) -> Floats:
    """The value in place `floor(n q)` of the sorted ones, the first of which has place 0; q = 1 is the largest.

    >>> floor_index(np.array([3.0, 1.0, 2.0, 4.0]), [0, 0.5, 0.99]).tolist()
    [1.0, 3.0, 4.0]
    """
    values, shares = _checked(values, q)
    places = np.minimum((values.size * shares).astype(np.int64), values.size - 1)
    return np.sort(values)[places]


def weighted(values: Floats, weights: Floats, q: Sequence[float]) -> Floats:
    """The smallest value at or below which a share `q` of the weight lies. Weights that are all 1 give nearest rank.

    Values of weight 0 do not take part; ValueError where none is left.

    >>> weighted(np.array([1.0, 2.0, 9.0]), np.array([1.0, 98.0, 1.0]), [0.005, 0.5, 0.995]).tolist()
    [1.0, 2.0, 9.0]
    """
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    bearing = weights > 0
    values, shares = _checked(values[bearing], q)
    order = np.argsort(values)
    running = np.cumsum(weights[bearing][order])
    places = np.searchsorted(running / running[-1], shares, side="left")
    return values[order][np.minimum(places, values.size - 1)]


def density(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The distinct values in order, and the share of the weight that each bears; values of weight 0 are left out.

    Weights that come to next to nothing (1e-6) are taken to be all the same.

    >>> distinct, shares = density(np.array([2.0, 1.0, 2.0, 7.0]), np.array([1.0, 2.0, 1.0, 0.0]))
    >>> distinct.tolist(), shares.tolist()
    ([1.0, 2.0], [0.5, 0.5])
    """
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    distinct, places = np.unique(values, return_inverse=True)
    summed = np.bincount(places, weights, minlength=distinct.size)
    distinct, summed = distinct[summed > 0], summed[summed > 0]
    if summed.sum() <= 1e-6:
        summed = np.ones_like(distinct)
    return distinct, summed / max(summed.sum(), 1e-300)
