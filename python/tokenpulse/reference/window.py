"""Time: panes of a sliding window, bins of a timeline, and the newest time of an input.

All three are bounded: a ring keeps 61 panes, a timeline at most 10,000 bins, a horizon one number. Reading changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

from tokenpulse.model import DAY_NS, MAX_TIMELINE_BINS

PANES = 60
"""A window is this many panes wide; its ring keeps one more."""


class Mergeable(Protocol):
    def merge(self, other: Any, /) -> None: ...


Content = TypeVar("Content", bound=Mergeable)


class Ring(Generic[Content]):
    """A sliding window: panes of `width_ns / 60`, aligned to multiples of the pane since time 0.

    `new` makes an empty content; `pane(t)` gives the content to add to.

    >>> from tokenpulse.reference.sketch import Sketch
    >>> ring = Ring(60_000, Sketch)
    >>> for t in (500, 1_500, 61_200):
    ...     ring.pane(t).record_ns(t)
    >>> content, width_ns = ring.at(61_200)
    >>> content.count, width_ns  # the pane [1000, 2000) ends after 61_200 - 60_000, [0, 1000) does not
    (2, 60200)
    """

    def __init__(self, width_ns: int, new: Callable[[], Content]) -> None:
        if width_ns <= 0 or width_ns % PANES:
            raise ValueError(f"a window's width must be a multiple of {PANES} ns, got {width_ns}")
        self.width_ns = width_ns
        self.pane_ns = width_ns // PANES
        self.late = 0
        self._new = new
        self._panes: dict[int, Content] = {}
        self._newest: int | None = None
        self._first_ns: int | None = None

    def pane(self, t_ns: int) -> Content | None:
        """The content of the pane that holds a time; None, and counted as late, if the ring no longer has it."""
        index = t_ns // self.pane_ns
        self._first_ns = t_ns if self._first_ns is None else min(self._first_ns, t_ns)
        if self._newest is None or index > self._newest:
            self._newest = index
            self._panes = {i: pane for i, pane in self._panes.items() if i >= index - PANES}
        elif index < self._newest - PANES:
            self.late += 1
            return None
        if index not in self._panes:
            self._panes[index] = self._new()
        return self._panes[index]

    def at(self, now_ns: int) -> tuple[Content, int]:
        """What the window holds at a time, merged, and its true width: a pure reading."""
        oldest = (now_ns - self.width_ns) // self.pane_ns  # the first pane that ends after now - width
        content = self._new()
        for index in sorted(self._panes):
            if oldest <= index <= now_ns // self.pane_ns:
                content.merge(self._panes[index])
        if self._first_ns is None or self._newest is None:
            return content, 0
        oldest = max(oldest, self._newest - PANES)  # of the past, what the ring has lost is not covered
        return content, max(0, min(now_ns - oldest * self.pane_ns, now_ns - self._first_ns))


def check_windows(widths_ns: Sequence[int]) -> None:
    """Several windows share their edges: each pane must divide the next one's."""
    for width_ns in widths_ns:
        if width_ns <= 0 or width_ns % PANES:
            raise ValueError(f"a window's width must be a multiple of {PANES} ns, got {width_ns}")
    for narrow, wide in pairwise(widths_ns):
        if wide % narrow:
            raise ValueError(
                f"each window's pane must divide the next one's, got {narrow // PANES} and {wide // PANES}"
            )


def check_bins(max_bins: int) -> int:
    if not 2 <= max_bins <= MAX_TIMELINE_BINS:
        raise ValueError(f"timeline bins must be between 2 and {MAX_TIMELINE_BINS}, got {max_bins}")
    return max_bins


class Timeline(Generic[Content]):
    """Bins of equal width over a whole run; when they span more than `max_bins`, the width doubles."""

    def __init__(self, width_ns: int, new: Callable[[], Content], max_bins: int = MAX_TIMELINE_BINS) -> None:
        if width_ns <= 0:
            raise ValueError(f"a timeline's width must be at least 1 ns, got {width_ns}")
        self.max_bins = check_bins(max_bins)
        self.asked_ns = width_ns
        self.width_ns = width_ns
        self._new = new
        self._bins: dict[int, Content] = {}
        self._span: tuple[int, int] | None = None

    def bin(self, t_ns: int) -> Content:
        """The content of the bin that holds a time."""
        index = t_ns // self.width_ns
        first, last = self._span or (index, index)
        self._span = min(first, index), max(last, index)
        while self._span[1] - self._span[0] >= self.max_bins:
            self._widen()
        index = t_ns // self.width_ns
        if index not in self._bins:
            self._bins[index] = self._new()
        return self._bins[index]

    def _widen(self) -> None:
        narrow, self._bins = self._bins, {}
        self.width_ns *= 2
        if self._span is not None:
            self._span = self._span[0] >> 1, self._span[1] >> 1
        for index, content in narrow.items():
            if index >> 1 in self._bins:
                self._bins[index >> 1].merge(content)
            else:
                self._bins[index >> 1] = content

    def merge(self, other: Timeline[Content]) -> None:
        """Adds a timeline of the same asked width, at the coarser of the two widths."""
        while self.width_ns < other.width_ns:
            self._widen()
        for start_ns, content in other.bins():
            self.bin(start_ns).merge(content)

    def bins(self) -> list[tuple[int, Content]]:
        """Start and content of each bin that has something in it, ascending."""
        return [(index * self.width_ns, self._bins[index]) for index in sorted(self._bins)]


class Horizon:
    """The newest time of one input, and the rule that one corrupt time cannot move it far.

    An event more than a day ahead of the newest is `future`, unless the event before it was so too; that second one is
    believed. The newest time starts with the first event, whatever becomes of it.
    """

    def __init__(self) -> None:
        self.newest_ns: int | None = None
        self._last_was_future = False

    def admits(self, t_ns: int) -> bool:
        """Whether an event at this time may be looked at further; false: it is `future`."""
        if self.newest_ns is None:
            self.newest_ns = t_ns
        if t_ns <= self.newest_ns + DAY_NS:
            self._last_was_future = False
            return True
        if self._last_was_future:
            self._last_was_future = False
            self.newest_ns = t_ns
            return True
        self._last_was_future = True
        return False

    def accept(self, t_ns: int) -> None:
        """An event at this time was accepted."""
        self.newest_ns = t_ns if self.newest_ns is None else max(self.newest_ns, t_ns)


def least(known_ns: int | None, t_ns: int) -> int:
    return t_ns if known_ns is None else min(known_ns, t_ns)


def greatest(known_ns: int | None, t_ns: int) -> int:
    return t_ns if known_ns is None else max(known_ns, t_ns)
