"""The quantile sketch: exact counts in base-2 exponential buckets.

Guarantee: a value in (2^-20, 2^12] seconds, as rounded to whole nanoseconds, is returned by `quantile` within
`(g - 1) / (g + 1)`, `g = 2^(2^-scale)`, of the exact nearest-rank value. Counts, sum, min and max are exact.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tokenpulse.model import ITL_RULES
from tokenpulse.reference import wire
from tokenpulse.reference.buckets import (
    HIGH_EXPONENT,
    LOW_EXPONENT,
    RANGE,
    REASONS,
    check_scale,
    edge,
    thresholds,
    to_seconds,
    whole_ns,
)
from tokenpulse.reference.wire import DecodeError

__all__ = ["DecodeError", "Sketch"]


def check_q(q: float) -> float:
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile must be between 0 and 1, got {q}")
    return q


class Sketch:
    """A distribution of durations.

    >>> s = Sketch()
    >>> for ms in (10, 20, 30):
    ...     s.record(ms / 1000)
    >>> s.count, s.sum_ns, s.quantile(0.0), round(s.quantile(0.5), 4)
    (3, 60000000, 0.01, 0.0199)
    """

    __slots__ = ("_counts", "_max", "_min", "_overflow", "_rejected", "_rule", "_scale", "_sum", "_zero")

    def __init__(self, scale: int = 6, *, itl_rule: str | None = None) -> None:
        if itl_rule is not None and itl_rule not in ITL_RULES:
            raise ValueError(f"itl_rule must be one of {', '.join(ITL_RULES)}, got {itl_rule!r}")
        self._scale = check_scale(scale)
        self._rule = itl_rule
        self._counts: Counter[int] = Counter()  # of the buckets that are not empty
        self._zero = 0
        self._overflow = 0
        self._sum = 0
        self._min: int | None = None
        self._max: int | None = None
        self._rejected: Counter[str] = Counter()

    # Recording

    def record(self, seconds: float, /) -> None:
        self.record_n(seconds, 1)

    def record_ns(self, ns: int, /) -> None:
        self._take(whole_ns(operator.index(ns), "ns"), 1)

    def record_n(self, seconds: float, n: int, /) -> None:
        """Records one value `n` times."""
        if operator.index(n) < 0:
            raise ValueError(f"n must be at least 0, got {n}")
        self._take(whole_ns(seconds, "s"), n)

    def record_many(self, values: Iterable[Any], /, unit: str = "s") -> None:
        if unit not in ("s", "ns"):
            raise ValueError(f"unit must be 's' or 'ns', got {unit!r}")
        for value in values:
            self._take(whole_ns(value, unit), 1)

    def record_split(self, gap_ns: int, k: int, /) -> None:
        """A gap shared by `k` tokens: `k` observations of `gap // k`; the sum grows by the gap exactly."""
        self.add(gap_ns // k, k, gap_ns)

    def add(self, ns: int, times: int, total_ns: int, /) -> None:
        """Records a value of ns some times, growing the sum by `total_ns`."""
        if times == 0:
            return
        if self.count + times >= RANGE:
            raise ValueError("the count must stay below 2^63")
        edges = thresholds(self._scale)
        position = bisect_left(edges, ns)  # the first edge that is not below the value
        if position == 0:
            self._zero += times
        elif position == len(edges):
            self._overflow += times
        else:
            self._counts[self._lowest + position - 1] += times
        self._sum += total_ns
        self._min = ns if self._min is None else min(self._min, ns)
        self._max = ns if self._max is None else max(self._max, ns)

    def _take(self, ns: int | str, times: int) -> None:
        if isinstance(ns, int):
            self.add(ns, times, ns * times)
        elif times:
            self._rejected[ns] += times

    # What it holds

    @property
    def _lowest(self) -> int:
        return LOW_EXPONENT << self._scale

    @property
    def count(self) -> int:
        return self._zero + sum(self._counts.values()) + self._overflow

    @property
    def sum_ns(self) -> int:
        return self._sum

    @property
    def sum(self) -> float:
        return to_seconds(self._sum)

    @property
    def mean(self) -> float:
        return self.sum / float(self.count) if self.count else math.nan

    @property
    def min_ns(self) -> int | None:
        return self._min

    @property
    def min(self) -> float:
        return math.nan if self._min is None else to_seconds(self._min)

    @property
    def max_ns(self) -> int | None:
        return self._max

    @property
    def max(self) -> float:
        return math.nan if self._max is None else to_seconds(self._max)

    @property
    def scale(self) -> int:
        return self._scale

    @property
    def itl_rule(self) -> str | None:
        return self._rule

    @property
    def zero_count(self) -> int:
        return self._zero

    @property
    def overflow_count(self) -> int:
        return self._overflow

    @property
    def relative_error(self) -> float:
        g = edge(1, self._scale)
        return (g - 1) / (g + 1)

    @property
    def rejected(self) -> Counter[str]:
        return Counter({reason: self._rejected[reason] for reason in REASONS if self._rejected[reason]})

    def buckets(self) -> tuple[list[int], list[int]]:
        """The indices of the buckets that are not empty, ascending, and their counts."""
        indices = sorted(self._counts)
        return indices, [self._counts[i] for i in indices]

    # Quantiles

    def _estimates(self) -> Iterable[tuple[float, int]]:
        """What each bucket that is not empty answers, ascending, with its count."""

        def clamped(estimate: float) -> float:
            return max(self.min, min(estimate, self.max))

        if self._zero:
            yield clamped(0.0), self._zero
        for i in sorted(self._counts):
            lo, hi = edge(i, self._scale), edge(i + 1, self._scale)
            yield clamped(2 * lo * hi / (lo + hi)), self._counts[i]
        if self._overflow:
            yield self.max, self._overflow

    def quantile(self, q: float, /) -> float:
        check_q(q)
        n = self.count
        if n == 0:
            return math.nan
        if q == 0:
            return self.min
        if q == 1:
            return self.max
        rank = min(n, max(1, math.ceil(q * float(n))))
        for estimate, count in self._estimates():
            rank -= count
            if rank <= 0:
                return estimate
        raise AssertionError("the rank is at most the count")

    def quantiles(self, qs: Sequence[float], /) -> list[float]:
        return [self.quantile(q) for q in qs]

    def cdf(self, seconds: float, /) -> float:
        """The share of values whose estimate is at most `seconds`."""
        if math.isnan(seconds):
            raise ValueError("cdf needs a number of seconds, got nan")
        n = self.count
        if n == 0:
            return math.nan
        if seconds < self.min:
            return 0.0
        if seconds >= self.max:
            return 1.0
        return float(sum(count for estimate, count in self._estimates() if estimate <= seconds)) / float(n)

    # Several sketches

    def copy(self) -> Sketch:
        twin = Sketch(self._scale, itl_rule=self._rule)
        twin._counts = self._counts.copy()
        twin._zero, twin._overflow = self._zero, self._overflow
        twin._sum, twin._min, twin._max = self._sum, self._min, self._max
        twin._rejected = self._rejected.copy()
        return twin

    __copy__ = copy

    def __deepcopy__(self, memo: Any, /) -> Sketch:
        return self.copy()

    def downscale(self, scale: int, /) -> Sketch:
        """The same values in coarser buckets: exact, since every coarse edge is a fine edge."""
        if check_scale(scale) > self._scale:
            raise ValueError(f"scale must be at most {self._scale}, got {scale}")
        coarse = self.copy()
        coarse._scale = scale
        coarse._counts = Counter()
        for i, count in self._counts.items():
            coarse._counts[i >> (self._scale - scale)] += count
        return coarse

    def merge(self, other: Sketch, /) -> None:
        if not isinstance(other, Sketch):
            raise TypeError(f"a sketch merges with a sketch, got {other!r}")
        rule = self._rule
        if self._rule != other._rule:
            if self.count == 0 and self._rule is None:
                rule = other._rule
            elif not (other.count == 0 and other._rule is None):
                raise ValueError(f"sketches of one ITL rule merge, got {self._rule} and {other._rule}")
        if self.count + other.count >= RANGE:
            raise ValueError("the count must stay below 2^63")
        scale = min(self._scale, other._scale)
        mine, theirs = self.downscale(scale), other.downscale(scale)
        self._scale, self._rule = scale, rule
        self._counts = mine._counts + theirs._counts
        self._zero += theirs._zero
        self._overflow += theirs._overflow
        self._sum += theirs._sum
        self._min = min((v for v in (mine._min, theirs._min) if v is not None), default=None)
        self._max = max((v for v in (mine._max, theirs._max) if v is not None), default=None)
        self._rejected = mine._rejected + theirs._rejected

    def __add__(self, other: Sketch, /) -> Sketch:
        if not isinstance(other, Sketch):
            return NotImplemented
        both = self.copy()
        both.merge(other)
        return both

    def __sub__(self, earlier: Sketch, /) -> Sketch:
        """What was recorded since an earlier snapshot of this sketch."""
        if not isinstance(earlier, Sketch):
            return NotImplemented
        if self._rule != earlier._rule:
            raise ValueError(f"an earlier snapshot has the same ITL rule, got {self._rule} and {earlier._rule}")
        if earlier._scale < self._scale:
            raise ValueError(f"an earlier snapshot is of scale {self._scale} or finer, got {earlier._scale}")
        past, since = earlier.downscale(self._scale), self.copy()
        since._zero -= past._zero
        since._overflow -= past._overflow
        since._sum -= past._sum
        since._counts.subtract(past._counts)
        since._rejected.subtract(past._rejected)
        parts = (since._zero, since._overflow, since._sum, *since._counts.values(), *since._rejected.values())
        if any(part < 0 for part in parts):
            raise ValueError("not an earlier snapshot: it holds more than the later one")
        since._counts, since._rejected = +since._counts, +since._rejected
        occupied = since._occupied()
        since._min = occupied[0][0] if occupied else None
        since._max = occupied[-1][1] if occupied else None
        if not since._sum_is_possible():
            raise ValueError("not an earlier snapshot: the difference of the sums does not fit that of the counts")
        return since

    def _occupied(self) -> list[tuple[int, int, int]]:
        """The smallest and largest whole ns, and the count, of each part that is not empty, ascending."""
        edges = thresholds(self._scale)
        parts = [(0, edges[0], self._zero)] if self._zero else []
        for i in sorted(self._counts):
            position = i - self._lowest
            parts.append((edges[position] + 1, edges[position + 1], self._counts[i]))
        if self._overflow:
            parts.append((edges[-1] + 1, max(edges[-1] + 1, self._max or 0), self._overflow))
        return parts

    def _sum_is_possible(self) -> bool:
        """Whether the sum fits the buckets. An observation is the floor of what it adds (a split gap), so < hi + 1."""
        parts = self._occupied()
        if not parts:
            return self._sum == 0
        least = sum(count * lo for lo, _, count in parts)
        return least <= self._sum < sum(count * (hi + 1) for _, hi, count in parts)

    def __eq__(self, other: object, /) -> bool:
        if not isinstance(other, Sketch):
            return NotImplemented
        return self._state() == other._state()

    __hash__ = None  # type: ignore[assignment]

    def _state(self) -> tuple[object, ...]:
        counts, rejected = dict(self._counts), dict(self.rejected)
        return (
            self._scale,
            self._rule,
            counts,
            self._zero,
            self._overflow,
            self._sum,
            self._min,
            self._max,
            rejected,
        )

    def __repr__(self) -> str:
        return f"Sketch(scale={self._scale}, count={self.count}, sum={self.sum}, min={self.min}, max={self.max})"

    # Bytes

    def to_bytes(self) -> bytes:
        last = HIGH_EXPONENT << self._scale
        counts = dict(self._counts)
        if self._overflow:
            counts[last] = self._overflow
        return wire.encode(
            wire.Point(
                scale=self._scale,
                count=self.count,
                zero_count=self._zero,
                counts=counts,
                sum_ns=self._sum,
                min_ns=self._min,
                max_ns=self._max,
                itl_rule=self._rule,
                rejected={reason: n for reason, n in self.rejected.items() if n},
            )
        )

    @staticmethod
    def from_bytes(encoded: bytes, /) -> Sketch:
        point = wire.decode(bytes(encoded))
        sketch = Sketch(point.scale, itl_rule=point.itl_rule)
        sketch._overflow = point.counts.pop(HIGH_EXPONENT << point.scale, 0)
        sketch._counts, sketch._zero = Counter(point.counts), point.zero_count
        sketch._sum, sketch._min, sketch._max = point.sum_ns, point.min_ns, point.max_ns
        sketch._rejected = Counter(point.rejected)
        if sketch.count != point.count:
            raise DecodeError(f"count must be the sum of the buckets, {sketch.count}, got {point.count}")
        sketch._check_extremes()
        return sketch

    def _check_extremes(self) -> None:
        parts = self._occupied()
        if parts:
            (lo, hi, _), (last_lo, last_hi, _) = parts[0], parts[-1]
            if self._min is None or self._max is None:
                raise DecodeError("a sketch that is not empty must bear min and max")
            if not (lo <= self._min <= hi and last_lo <= self._max <= last_hi and self._min <= self._max):
                raise DecodeError("min and max must lie in the outermost buckets")
        elif self._min is not None or self._max is not None:
            raise DecodeError("an empty sketch has no min and no max")
        if not self._sum_is_possible():
            raise DecodeError("the sum must fit the buckets")

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return Sketch.from_bytes, (self.to_bytes(),)
