"""The time of a meter: one newest time, the windows that stand where it stands, and when the first event came.

All that one meter counts shares it, so that its windows are of the same moment whatever they hold.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from tokenpulse.reference.buckets import RANGE
from tokenpulse.reference.scopes import Panes
from tokenpulse.reference.window import PANES, Content, Horizon, check_windows, least

SECOND_NS = 1_000_000_000
MINUTE_NS, HOUR_NS = 60 * SECOND_NS, 3600 * SECOND_NS

WINDOWS_NS = (15 * SECOND_NS, MINUTE_NS, 5 * MINUTE_NS, HOUR_NS)


class Clock:
    """Every call asks it; every accepted event tells it. It reads no other clock.

    >>> clock = Clock((60,))
    >>> clock.admits(5), clock.newest_ns, clock.first_event_ns
    (True, 5, None)
    >>> clock.accept(100)
    >>> clock.event(100), clock.event(39, times=2)
    (None, None)
    >>> clock.newest_ns, clock.first_event_ns, clock.late
    (100, 39, [2])
    """

    def __init__(self, windows_ns: Sequence[int]) -> None:
        check_windows(windows_ns)
        self.windows_ns = tuple(windows_ns)
        self.late = [0] * len(windows_ns)
        self.first_event_ns: int | None = None
        self._horizon = Horizon()
        self._rings: list[Panes[Any]] = []
        self._followers: list[Callable[[int, int | None], None]] = []

    @property
    def newest_ns(self) -> int | None:
        return self._horizon.newest_ns

    def ring(self, width_ns: int, new: Callable[[], Content]) -> Panes[Content]:
        """A ring that moves with the newest time from now on; to be made before the first call."""
        ring = Panes(width_ns, new)
        self._rings.append(ring)
        return ring

    def windows(self, new: Callable[[], Content]) -> list[Panes[Content]]:
        """A ring for each window."""
        return [self.ring(width_ns, new) for width_ns in self.windows_ns]

    def follow(self, moved: Callable[[int, int | None], None]) -> None:
        """`moved(newest, the one before)` is called when the newest time has moved, after the rings."""
        self._followers.append(moved)

    def admits(self, t_ns: int) -> bool:
        """Whether a call at this time is looked at further. If not, it is `future`."""
        before_ns = self.newest_ns
        admitted = self._horizon.admits(t_ns)
        self._moved_from(before_ns)
        return admitted

    def accept(self, t_ns: int) -> None:
        """A call at this time has something that counts: the newest time moves before any of it is taken."""
        before_ns = self.newest_ns
        self._horizon.accept(t_ns)
        self._moved_from(before_ns)

    def _moved_from(self, before_ns: int | None) -> None:
        newest_ns = self.newest_ns
        if newest_ns is None or newest_ns == before_ns:
            return
        for ring in self._rings:
            ring.move(newest_ns)
        for moved in self._followers:
            moved(newest_ns, before_ns)

    def event(self, t_ns: int, times: int = 1) -> None:
        """Events of this time were accepted: late in each window that no longer has their pane."""
        self.first_event_ns = least(self.first_event_ns, t_ns)
        for which, width_ns in enumerate(self.windows_ns):
            pane_ns = width_ns // PANES
            if self.newest_ns is not None and t_ns // pane_ns < self.newest_ns // pane_ns - PANES:
                self.late[which] += times

    def reading(self, windows: Sequence[Panes[Any]], now_ns: int | None) -> list[dict[str, int]]:
        """Of each window: its width, how much of that it covers at a time, and what came too late for it."""
        return [
            {
                "width_ns": window.width_ns,
                "true_width_ns": window.true_width_ns(now_ns, self.first_event_ns),
                "late": late,
            }
            for window, late in zip(windows, self.late, strict=True)
        ]


def check_time(t_ns: int) -> int:
    if not 0 <= operator.index(t_ns) < RANGE:
        raise ValueError(f"t must be between 0 and 2^63 - 1, got {t_ns}")
    return t_ns
