"""Confidence intervals as GuideLLM reports them: Student's t for a mean, order statistics for a percentile.

No distribution is assumed for percentiles: the interval is between two of the values themselves, whose ranks are
quantiles of the binomial distribution. Both quantiles are within 1e-12 of the exact ones.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from tokenpulse.records import Floats


def mean_interval(values: Floats, confidence: float) -> tuple[float, float] | None:
    """Low and high end of the mean of independent values; None for fewer than two.

    >>> low, high = mean_interval(np.array([1.0, 2.0, 3.0, 4.0]), 0.95)
    >>> round(low, 6), round(high, 6)
    (0.44574, 4.55426)
    """
    if values.size < 2:
        return None
    half = student_t(0.5 + confidence / 2, values.size - 1) * float(np.std(values, ddof=1)) / math.sqrt(values.size)
    middle = float(np.mean(values))
    return middle - half, middle + half


def rank_interval(q: float, n: int, confidence: float) -> tuple[int, int] | None:
    """Ranks, from 1, of the two values between which the percentile `q` lies; None where n values are too few.

    >>> rank_interval(0.5, 141, 0.95), rank_interval(0.99, 141, 0.95)
    ((59, 83), None)
    """
    low = binomial(0.5 - confidence / 2, n, q)
    high = binomial(0.5 + confidence / 2, n, q) + 1
    return (low, high) if low >= 1 and high <= n else None


@lru_cache(maxsize=1024)
def binomial(probability: float, n: int, q: float) -> int:
    """The smallest number of successes in n tries that is not exceeded with the probability.

    >>> binomial(0.025, 30, 0.25), binomial(0.975, 30, 0.25)
    (3, 12)
    """
    spread = math.sqrt(n * q * (1 - q))
    least = max(0, math.floor(n * q - 40 * spread - 40))
    most = min(n, math.ceil(n * q + 40 * spread + 40))
    below = 0.0
    for successes in range(least, most + 1):
        logarithm = (
            math.lgamma(n + 1)
            - math.lgamma(successes + 1)
            - math.lgamma(n - successes + 1)
            + successes * math.log(q)
            + (n - successes) * math.log1p(-q)
        )
        below += math.exp(logarithm) if logarithm > -745 else 0.0
        if below >= probability:
            return successes
    return most


@lru_cache(maxsize=1024)
def student_t(probability: float, freedom: int) -> float:
    """The quantile of Student's t with so many degrees of freedom, for a probability of at least one half.

    >>> round(student_t(0.975, 3), 9), round(student_t(0.975, 140), 9)
    (3.182446305, 1.97705372)
    """
    t = NormalDist().inv_cdf(probability)
    low, high = 0.0, math.inf
    for _ in range(200):
        below = 1 - 0.5 * _incomplete_beta(freedom / (freedom + t * t), freedom / 2)
        low, high = (t, high) if below < probability else (low, t)
        logarithm = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
        density = math.exp(logarithm - (freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = (probability - below) / density
        following = t + step
        if not low <= following <= high:
            following = 2 * t if math.isinf(high) else (low + high) / 2
        if abs(following - t) <= 1e-15 * t:
            return following
        t = following
    return t


def _incomplete_beta(x: float, a: float) -> float:
    """The regularised incomplete beta function of x with parameters a and 1/2, by its continued fraction."""
    b = 0.5
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x > (a + 1) / (a + b + 2):
        return 1 - math.exp(logarithm) * _fraction(1 - x, b, a) / b
    return math.exp(logarithm) * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    whole = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            whole *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return whole
