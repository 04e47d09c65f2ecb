"""Whether the newest values of a series rise, and how steeply: Mann-Kendall and Theil-Sen over a sliding window.

Both need no model of the values and are not upset by single ones far off. An update of a window of n values looks at
n - 1 pairs: `MannKendall` in O(n), `TheilSen` in O(n log n) comparisons with a sorted list of n(n - 1)/2 slopes.
Results are exact: integers until the last division, and the same floats as from all pairs of the window anew.

Sources: H. B. Mann, "Nonparametric tests against trend", Econometrica 13, 1945; M. G. Kendall, "Rank correlation
methods", 1975 (ties, continuity); P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", Journal
of the American Statistical Association 63, 1968.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence

WINDOW = 60
"""The values that a window holds unless told otherwise."""


def _checked(name: str, number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {number!r}")
    return number


def _checked_window(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or not 2 <= n <= 10_000:
        raise ValueError(f"n must be a whole number between 2 and 10000, got {n!r}")
    return n


class MannKendall:
    """The Mann-Kendall test of the newest `n` values: do later ones tend to be larger?

    `push` takes O(n); memory is n values. ValueError for an `n` outside 2 to 10,000.

    >>> trend = MannKendall(n=4)
    >>> for value in (9, 1, 2, 3, 5):
    ...     trend.push(value)
    >>> trend.count, trend.s, round(trend.z, 3)
    (4, 6, 1.698)
    """

    __slots__ = ("_n", "_s", "_tied", "_times", "_values")

    def __init__(self, n: int = WINDOW) -> None:
        self._n = _checked_window(n)
        self.clear()

    def clear(self) -> None:
        """Forget every value."""
        self._values: deque[float] = deque()
        self._times: dict[float, int] = {}
        """How often each value stands in the window."""
        self._s = 0
        self._tied = 0
        """The sum of t(t - 1)(2t + 5) over groups of t equal values."""

    def push(self, x: float) -> None:
        """Take a value, and drop the oldest where there are `n` already. ValueError unless it is finite."""
        _checked("x", x)
        values = self._values
        if len(values) == self._n:
            oldest = values.popleft()
            self._s -= _larger(values, oldest) - _smaller(values, oldest)
            self._retie(oldest, -1)
        self._s += _smaller(values, x) - _larger(values, x)
        values.append(x)
        self._retie(x, 1)

    def _retie(self, x: float, by: int) -> None:
        before = self._times.get(x, 0)
        after = before + by
        self._tied += _tie_term(after) - _tie_term(before)
        if after:
            self._times[x] = after
        else:
            del self._times[x]

    @property
    def n(self) -> int:
        """The values that the window can hold."""
        return self._n

    @property
    def count(self) -> int:
        """The values that it holds."""
        return len(self._values)

    @property
    def full(self) -> bool:
        """Whether it holds `n` values."""
        return len(self._values) == self._n

    @property
    def values(self) -> tuple[float, ...]:
        """The values, oldest first."""
        return tuple(self._values)

    @property
    def s(self) -> int:
        """Pairs of which the later value is the larger, minus those of which it is the smaller."""
        return self._s

    @property
    def variance(self) -> float:
        """The variance of `s` if the values had no order, corrected for ties: (n(n-1)(2n+5) - ties) / 18."""
        return (_tie_term(len(self._values)) - self._tied) / 18

    @property
    def z(self) -> float | None:
        """`s`, brought 1 nearer to 0 (continuity), in standard deviations; 0.0 where `s` is 0; None below two values.

        Above 2.33 fewer than 1 in 100 series of independent values without a trend would lie.
        """
        if len(self._values) < 2:
            return None
        if not self._s:
            return 0.0
        return (self._s - (1 if self._s > 0 else -1)) / math.sqrt(self.variance)


def _larger(values: Iterable[float], x: float) -> int:
    return sum(value > x for value in values)


def _smaller(values: Iterable[float], x: float) -> int:
    return sum(value < x for value in values)


def _tie_term(t: int) -> int:
    return t * (t - 1) * (2 * t + 5)


class TheilSen:
    """The Theil-Sen slope of the newest `n` values: the median of the slopes between all pairs of them.

    Values stand at 0, 1, 2, ... or at times of their own, which must rise. `push` compares O(n log n) times; memory is
    n(n - 1)/2 slopes. ValueError for an `n` outside 2 to 10,000.

    >>> line = TheilSen(n=4)
    >>> for value in (100, 1, 3, 5, 70):
    ...     line.push(value)
    >>> line.slope
    12.5
    """

    __slots__ = ("_n", "_next", "_points", "_slopes")

    def __init__(self, n: int = WINDOW) -> None:
        self._n = _checked_window(n)
        self.clear()

    def clear(self) -> None:
        """Forget every value."""
        self._points: deque[tuple[float, float]] = deque()
        self._slopes: list[float] = []
        """Of all pairs in the window, in rising order."""
        self._next: float = 0

    def push(self, x: float, t: float | None = None) -> None:
        """Take a value at `t`, by default 1 after the one before; drop the oldest where there are `n` already.

        ValueError unless both are finite and `t` lies after the time before.
        """
        _checked("x", x)
        at = self._next if t is None else _checked("t", t)
        points, slopes = self._points, self._slopes
        if points and at <= points[-1][0]:
            raise ValueError(f"t must lie after the time before it, {points[-1][0]!r}, got {t!r}")
        if len(points) == self._n:
            oldest = points.popleft()
            for point in points:
                del slopes[bisect_left(slopes, _slope(oldest, point))]
        newest = (at, x)
        for point in points:
            insort(slopes, _slope(point, newest))
        points.append(newest)
        self._next = at + 1

    @property
    def n(self) -> int:
        """The values that the window can hold."""
        return self._n

    @property
    def count(self) -> int:
        """The values that it holds."""
        return len(self._points)

    @property
    def full(self) -> bool:
        """Whether it holds `n` values."""
        return len(self._points) == self._n

    @property
    def slope(self) -> float | None:
        """The median slope, in units of the values by unit of time; None below two values."""
        slopes = self._slopes
        if not slopes:
            return None
        middle = len(slopes) // 2
        return slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2


def _slope(earlier: tuple[float, float], later: tuple[float, float]) -> float:
    return (later[1] - earlier[1]) / (later[0] - earlier[0])


def mann_kendall(values: Sequence[float]) -> float | None:
    """Z of the Mann-Kendall test of a whole series, oldest first; None below two values.

    ValueError for a value that is not finite. O(n^2).

    >>> mann_kendall([5, 5, 5]), mann_kendall([3, 2, 1]) == -mann_kendall([1, 2, 3]), mann_kendall([1])
    (0.0, True, None)
    """
    trend = MannKendall(max(2, len(values)))
    for value in values:
        trend.push(value)
    return trend.z


def theil_sen(values: Sequence[float], times: Sequence[float] | None = None) -> float | None:
    """The Theil-Sen slope of a whole series, by unit of time, or by step where there are no times; None below two.

    ValueError for a value that is not finite, for times that do not rise, and unless there are as many as values.
    O(n^2 log n) comparisons.

    >>> theil_sen([1, 3, 5, 1000, 9]), theil_sen([1, 3], times=[0, 4])
    (2.0, 0.5)
    """
    if times is not None and len(times) != len(values):
        raise ValueError(f"there must be as many times as values, got {len(times)} and {len(values)}")
    line = TheilSen(max(2, len(values)))
    for position, value in enumerate(values):
        line.push(value, None if times is None else times[position])
    return line.slope
