"""The buckets of a sketch, and numbers as whole nanoseconds: derived with big integers, exact.

Nothing here uses `pow` or `log` on floats. Bucket `i` at scale `s` covers `(2^(i/2^s), 2^((i+1)/2^s)]` seconds, and all
its edges come from one fact: the 2^s-th root of a big integer is `isqrt` taken `s` times, floor for floor.
"""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any

LOW_EXPONENT, HIGH_EXPONENT = -20, 12
"""The buckets reach from 2^-20 s to 2^12 s."""
MAX_SCALE = 8
NS = 10**9
RANGE = 2**63
"""A value of ns fits a signed 64-bit integer, and a total count stays below the same bound."""
REASONS = ("nan", "infinite", "negative", "range")
"""Why a value is refused."""


def root(radicand: int, scale: int) -> int:
    """The floor of the 2^scale-th root: floor(sqrt(floor(sqrt(x)))) is the floor of the fourth root, and so on.

    >>> root(80, 2), root(81, 2)
    (2, 3)
    """
    for _ in range(scale):
        radicand = math.isqrt(radicand)
    return radicand


@cache
def thresholds(scale: int) -> tuple[int, ...]:
    """The edges of all buckets in whole ns, rounded down: `floor(10^9 * 2^(i/2^scale))` for `i` from the first.

    An integer `v` lies above an edge exactly when it lies above the edge's floor, so bucket `i` holds the `v` with
    `thresholds[i] < v <= thresholds[i + 1]`, ties included.
    """
    m = 1 << scale
    unit = NS**m  # (10^9)^m, so that the m-th root of unit * 2^i is 10^9 * 2^(i/m)
    return tuple(
        root(unit << i if i >= 0 else unit >> -i, scale) for i in range(LOW_EXPONENT * m, HIGH_EXPONENT * m + 1)
    )


@cache
def edge(index: int, scale: int) -> float:
    """The lower edge of a bucket in seconds, `2^(index/2^scale)`, as a correctly rounded double.

    >>> edge(32, 6), edge(-64, 6)
    (1.4142135623730951, 0.5)
    """
    exponent, step = divmod(index, 1 << scale)
    doubled = root(1 << (step + (53 << scale)), scale)  # floor(2^(step/2^scale) * 2^53): one bit more than a double has
    return math.ldexp((doubled + 1) >> 1, exponent - 52)  # irrational or whole: never a tie


def to_seconds(ns: int) -> float:
    return float(ns) / 1e9


def whole_ns(value: Any, unit: str) -> int | str:
    """A number of seconds or ns as whole ns; or the reason why it is refused."""
    if hasattr(value, "__index__"):
        ns = operator.index(value) * (NS if unit == "s" else 1)
    elif hasattr(value, "__float__"):
        x = float(value)
        if math.isnan(x):
            return "nan"
        if x < 0:  # before any rounding: -1e-12 is negative, -0.0 is not
            return "negative"
        product = x * 1e9 if unit == "s" else x
        if math.isinf(product):
            return "infinite" if math.isinf(x) else "range"
        ns = round(product)
    else:
        raise TypeError(f"a value must be a number, got {value!r}")
    if ns < 0:
        return "negative"
    return ns if ns < RANGE else "range"


def check_scale(scale: int) -> int:
    if not 0 <= operator.index(scale) <= MAX_SCALE:
        raise ValueError(f"scale must be between 0 and {MAX_SCALE}, got {scale}")
    return scale
