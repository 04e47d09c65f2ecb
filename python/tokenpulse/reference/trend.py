"""Whether a series of values goes up, and by how much: the Mann-Kendall test and the Theil-Sen slope, by definition.

Neither assumes a distribution; both look at every pair of values, which takes time with the square of their number.

Sources: H. B. Mann, Econometrica 13 (1945); M. G. Kendall, Rank Correlation Methods (1975), for the variance with ties;
P. K. Sen, Journal of the American Statistical Association 63 (1968), for the slope.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise


def kendall_s(values: Sequence[float]) -> int:
    """How many pairs go up less how many go down, in the order in which the values came.

    >>> kendall_s([1, 2, 3]), kendall_s([3, 1, 2]), kendall_s([2, 2])
    (3, -1, 0)
    """
    return sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))


def eighteen_variances(values: Sequence[float]) -> int:
    """18 times the variance of S where nothing but chance orders the values: a whole number.

    Without ties it is n(n-1)(2n+5); each group of t equal values takes t(t-1)(2t+5) away.

    >>> eighteen_variances([1, 2, 3]), eighteen_variances([1, 1, 2]), eighteen_variances([5, 5, 5])
    (66, 48, 0)
    """

    def term(n: int) -> int:
        return n * (n - 1) * (2 * n + 5)

    return term(len(values)) - sum(term(tied) for tied in Counter(values).values())


def mann_kendall(values: Sequence[float]) -> float | None:
    """Z of the Mann-Kendall test: above 0 for a rise, below 0 for a fall; None for fewer than two values.

    S is moved by 1 towards 0, since it goes in whole steps where the normal distribution is continuous; then it is
    divided by its standard deviation. Where S is 0, Z is 0. ValueError for a value that is not finite.

    >>> round(mann_kendall([1, 2, 3, 4]), 4), mann_kendall([4, 4, 4]), mann_kendall([1])
    (1.6984, 0.0, None)
    """
    check_finite(values)
    if len(values) < 2:
        return None
    s = kendall_s(values)
    if s == 0:
        return 0.0
    towards_0 = s - 1 if s > 0 else s + 1
    return towards_0 / math.sqrt(eighteen_variances(values) / 18)


def theil_sen(values: Sequence[float], times: Sequence[float] | None = None) -> float | None:
    """The median of the slopes of all pairs, per step, or per unit of the times given; None for fewer than two values.

    Of an even number of slopes it is half the sum of the two in the middle. ValueError for a value that is not finite,
    and for times that are not as many as the values or do not rise.

    >>> theil_sen([0, 1, 2, 3, 100]), theil_sen([0, 3], times=[10, 16]), theil_sen([7])
    (1.0, 0.5, None)
    """
    check_finite(values)
    at = list(range(len(values))) if times is None else list(times)
    check_finite(at)
    if len(at) != len(values) or any(not earlier < later for earlier, later in pairwise(at)):
        raise ValueError(f"times must rise and be as many as the values, {len(values)}, got {at}")
    if len(values) < 2:
        return None
    pairs = combinations(zip(at, values, strict=True), 2)
    slopes = sorted((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in pairs)
    middle = len(slopes) // 2
    return slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2


def check_finite(values: Sequence[float]) -> None:
    for place, value in enumerate(values):
        if not math.isfinite(value):
            raise ValueError(f"values must be finite, got {value} at place {place}")
