"""Whether a queue grows without pause: its trend beyond chance, by an amount that matters, with more coming than going.

The test of a trend by itself would say so of a quarter of all stable queues, because the length of a queue now is much
like its length a second ago; so it never decides alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from tokenpulse.analysis.alerts.trend import WINDOW, MannKendall, TheilSen


@dataclass(frozen=True, slots=True)
class Growth:
    """What growth without pause is. ValueError for a value below 0 or not finite, and for `clear_z` above `z`.

    >>> Growth().least_rise(batch_max=64)
    32.0
    """

    z: float = 2.33
    """Mann-Kendall's Z must be above it; 2.33 is the 99th percentile of the normal distribution."""
    clear_z: float = 1.0
    """Below it the growth is over."""
    rise: float = 10.0
    """The rise over the window must be above this many requests ..."""
    rise_batches: float = 0.5
    """... and above this many of the largest batch."""

    def __post_init__(self) -> None:
        for field in fields(Growth):
            setting = getattr(self, field.name)
            if isinstance(setting, bool) or not isinstance(setting, (int, float)) or not 0 <= setting < float("inf"):
                raise ValueError(f"{field.name} must be a number of 0 or more, got {setting!r}")
        if self.clear_z > self.z:
            raise ValueError(f"clear_z must be at most z, {self.z!r}, got {self.clear_z!r}")

    def least_rise(self, batch_max: float) -> float:
        """What the queue must have risen by, in requests."""
        return max(self.rise, self.rise_batches * batch_max)


GROWTH = Growth()
DEPTH_BATCHES = 2.0
"""A queue is deep above this many of the largest batch."""


class QueueTrend:
    """The trend of the newest 60 pane means of a queue's depth.

    >>> queue = QueueTrend()
    >>> for depth in range(100):
    ...     queue.push(depth)
    >>> queue.z > 2.33, queue.rise
    (True, 59.0)
    """

    __slots__ = ("_slope", "_test")

    def __init__(self, n: int = WINDOW) -> None:
        self._test = MannKendall(n)
        self._slope = TheilSen(n)

    def push(self, mean: float) -> None:
        """Take the mean of the next pane. ValueError unless it is finite."""
        self._test.push(mean)
        self._slope.push(mean)

    def clear(self) -> None:
        """Begin anew: there was a pane without a mean."""
        if self._test.count:
            self._test.clear()
            self._slope.clear()

    @property
    def full(self) -> bool:
        """Whether there are as many means as it takes."""
        return self._test.full

    @property
    def count(self) -> int:
        """The means that there are."""
        return self._test.count

    @property
    def z(self) -> float | None:
        """Mann-Kendall's Z; None where there are too few means."""
        return self._test.z if self.full else None

    @property
    def rise(self) -> float | None:
        """What the slope comes to from the first pane to the last, in requests; None where there are too few means."""
        slope = self._slope.slope
        return None if slope is None or not self.full else slope * (self._test.n - 1)


def grows(
    means: Sequence[float],
    *,
    batch_max: float,
    depth: float,
    arrived: int,
    ended: int,
    settings: Growth = GROWTH,
    depth_batches: float = DEPTH_BATCHES,
) -> bool:
    """Whether a queue grew over panes with these mean depths, oldest first.

    `depth` is its mean over all of them, `arrived` and `ended` count requests. False below two means. ValueError for a
    mean that is not finite.

    >>> grows(range(0, 180, 3), batch_max=32, depth=88.5, arrived=600, ended=420)
    True
    >>> grows(range(0, 180, 3), batch_max=64, depth=88.5, arrived=600, ended=420)
    False
    """
    if len(means) < 2:
        return False
    trend = QueueTrend(len(means))
    for mean in means:
        trend.push(mean)
    return holds(trend.z, trend.rise, batch_max, depth, arrived, ended, settings, depth_batches)


def holds(
    z: float | None,
    rise: float | None,
    batch_max: float,
    depth: float,
    arrived: int,
    ended: int,
    settings: Growth = GROWTH,
    depth_batches: float = DEPTH_BATCHES,
) -> bool:
    """The condition itself, from figures that were formed elsewhere; False where there is no trend to speak of."""
    return (
        z is not None
        and rise is not None
        and z > settings.z
        and rise > settings.least_rise(batch_max)
        and depth > depth_batches * batch_max
        and arrived > ended
    )
