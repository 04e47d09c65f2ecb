"""Gauges over time: a value holds from the time it is set until it is set again.

A hold is integrated exactly, value x ns, into the total and into every pane that it crosses. What still holds is
integrated by the reader, up to its own time, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

GAUGES = ("running", "waiting", "kv_used", "kv_total", "batch_max")


@dataclass(slots=True)
class Area:
    """A gauge over a stretch of time: the integral of its value, how long it had one, and its largest.

    The largest of nothing is 0, the least that a gauge can be.

    >>> area = Area()
    >>> area.hold(3, 10)
    >>> area.top(7)
    >>> area
    Area(integral=30, covered_ns=10, max=7)
    """

    integral: int = 0
    covered_ns: int = 0
    max: int = 0

    def hold(self, value: int, ns: int) -> None:
        if ns > 0:
            self.integral += value * ns
            self.covered_ns += ns
            self.top(value)

    def top(self, value: int) -> None:
        self.max = max(self.max, value)

    def merge(self, other: Area) -> None:
        self.integral += other.integral
        self.covered_ns += other.covered_ns
        self.top(other.max)

    def figure(self, last: int) -> dict[str, Any]:
        return {"last": last, "integral": self.integral, "covered_ns": self.covered_ns, "max": self.max}


@dataclass(frozen=True, slots=True)
class Held:
    """A value and since when it holds."""

    value: int
    since_ns: int


def split(start_ns: int, end_ns: int, pane_ns: int, oldest: int) -> Iterator[tuple[int, int]]:
    """The part of `[start, end)` in each pane from the oldest one on, as (pane, ns).

    >>> list(split(5, 32, pane_ns=10, oldest=1))
    [(1, 10), (2, 10), (3, 2)]
    """
    start_ns = max(start_ns, oldest * pane_ns)
    while start_ns < end_ns:
        pane = start_ns // pane_ns
        border_ns = min(end_ns, (pane + 1) * pane_ns)
        yield pane, border_ns - start_ns
        start_ns = border_ns
