"""`Clock`: simulated time, and what is to happen at later moments of it.

A discrete-event simulation is no more than this: time jumps from one moment at which something happens to the next.
Times are whole nanoseconds since the simulation began.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial

SECOND_NS = 1_000_000_000

Callback = Callable[[], object]


class Clock:
    """Time from 0 to `end_ns`.

    >>> clock = Clock(end_ns=100)
    >>> clock.at(40, lambda: print("it is", clock.now_ns))
    >>> clock.advance(70), clock.now_ns
    it is 40
    (True, 70)
    >>> clock.advance(130), clock.now_ns
    (False, 100)
    """

    def __init__(self, end_ns: int) -> None:
        self.now_ns = 0
        self.end_ns = end_ns
        self._events: list[tuple[int, int, int, Callback]] = []
        self._number = 0

    def at(self, t_ns: int, callback: Callback, *, first: bool = False) -> None:
        """Call `callback` when it is `t_ns`, at once where that has passed; at one time in the order of these calls.

        `first`: before all else that happens at that time. What is due at the end or after it never happens.
        """
        self._number += 1
        heapq.heappush(self._events, (max(t_ns, self.now_ns), 0 if first else 1, self._number, callback))

    def every(self, ns: int, callback: Callable[[int], object]) -> None:
        """Call `callback(t)` at each multiple of `ns` from 0 on, before all else that happens at that time."""
        self.at(0, partial(self._turn, 0, ns, callback), first=True)

    def _turn(self, t_ns: int, ns: int, callback: Callable[[int], object]) -> None:
        self.at(t_ns + ns, partial(self._turn, t_ns + ns, ns, callback), first=True)
        callback(t_ns)

    def forget(self) -> None:
        """Nothing more is to happen. What would have is let go, and with it whoever waits for it."""
        self._events.clear()

    def advance(self, t_ns: int) -> bool:
        """Let time pass until `t_ns`, with what happens until then; False if the end comes before that."""
        stop_ns = min(t_ns, self.end_ns)
        events = self._events
        while events and events[0][0] <= stop_ns and events[0][0] < self.end_ns:
            self.now_ns, _, _, callback = heapq.heappop(events)
            callback()
        self.now_ns = stop_ns
        return t_ns <= self.end_ns

    def advance_to_next(self) -> None:
        """Let time pass until something has happened, or until the end."""
        self.advance(self._events[0][0] if self._events else self.end_ns)
