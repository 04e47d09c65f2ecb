"""What a meter adds up: the same content for its total and for each pane of its windows.

Everything in a content adds or takes a maximum, so that contents merge in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Generic

from tokenpulse.reference.gauges import Area
from tokenpulse.reference.request import Ended
from tokenpulse.reference.slo import Verdict
from tokenpulse.reference.tally import Block
from tokenpulse.reference.window import PANES, Content

EVENTS = ("oom_event", "semantic_lookup", "semantic_hit")
"""What is counted by name and by class."""

MAX_BATCH = 8192
"""Batch sizes are counted exactly below this; it stands for itself and all above."""

UNAVAILABLE = frozenset({"error", "timeout", "oom", "reject", "lost"})


class ClassTally:
    """One class: the block of a reduction, and what only a meter is told."""

    def __init__(self, itl_rule: str, slos: int, scale: int) -> None:
        self.block = Block(itl_rule, slos, scale)
        self.cached_tokens = 0
        self.counts: Counter[str] = Counter()

    def merge(self, other: ClassTally) -> None:
        self.block.merge(other.block)
        self.cached_tokens += other.cached_tokens
        self.counts += other.counts

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.block.as_dict(),
            "cached_tokens": self.cached_tokens,
            "counts": {name: self.counts[name] for name in EVENTS if self.counts[name]},
        }


class Scope:
    """All that is counted over the whole run, or in one pane."""

    def __init__(self, new: Callable[[], ClassTally]) -> None:
        self._new = new
        self.classes: dict[int, ClassTally] = {}
        self.gauges: dict[str, Area] = {}
        self.sums: Counter[str] = Counter()
        self.times: Counter[str] = Counter()
        self.batch_sizes: Counter[int] = Counter()

    def tally(self, cls: int) -> ClassTally:
        if cls not in self.classes:
            self.classes[cls] = self._new()
        return self.classes[cls]

    def area(self, gauge: str) -> Area:
        return self.gauges.setdefault(gauge, Area())

    def merge(self, other: Scope) -> None:
        for cls, tally in other.classes.items():
            self.tally(cls).merge(tally)
        for gauge, area in other.gauges.items():
            self.area(gauge).merge(area)
        self.sums.update(other.sums)
        self.times.update(other.times)
        self.batch_sizes.update(other.batch_sizes)

    def class_as_dict(self, cls: int) -> dict[str, Any]:
        return (self.classes[cls] if cls in self.classes else self._new()).as_dict()

    def all_as_dict(self) -> dict[str, Any]:
        """The sum over the classes."""
        union = self._new()
        for tally in self.classes.values():
            union.merge(tally)
        return union.as_dict()

    def added_as_dict(self) -> dict[str, Any]:
        return {name: {"sum": self.sums[name], "times": times} for name, times in self.times.items()}


class Burn:
    """Verdicts as counts alone: good and judged of each SLO set, bad and judged for the availability."""

    def __init__(self, slos: int) -> None:
        self.good = [0] * slos
        self.judged = [0] * slos
        self.unavailable = 0
        self.ended = 0

    def end(self, ended: Ended, verdicts: Sequence[Verdict | None]) -> None:
        for which, verdict in enumerate(verdicts):
            if verdict is not None:
                self.judged[which] += 1
                self.good[which] += verdict.missed is None
        if ended.status != "abort":
            self.ended += 1
            self.unavailable += ended.status in UNAVAILABLE

    def merge(self, other: Burn) -> None:
        self.good = [mine + theirs for mine, theirs in zip(self.good, other.good, strict=True)]
        self.judged = [mine + theirs for mine, theirs in zip(self.judged, other.judged, strict=True)]
        self.unavailable += other.unavailable
        self.ended += other.ended

    def as_dict(self) -> dict[str, Any]:
        pairs = zip(self.good, self.judged, strict=True)
        return {
            "slos": [{"good": good, "judged": judged} for good, judged in pairs],
            "availability": {"bad": self.unavailable, "judged": self.ended},
        }


class Panes(Generic[Content]):
    """A sliding window whose place a clock decides: it stands where the newest time stands.

    The panes from `pane(newest) - 60` on are kept. An event older than that is late; the clock counts it.

    >>> panes = Panes(60, lambda: Burn(0))
    >>> panes.move(100)
    >>> panes.pane(39) is None, panes.pane(40) is None
    (True, False)
    """

    def __init__(self, width_ns: int, new: Callable[[], Content]) -> None:
        self.width_ns = width_ns
        self.pane_ns = width_ns // PANES
        self.oldest = 0
        self._new = new
        self._panes: dict[int, Content] = {}

    def move(self, newest_ns: int) -> None:
        """The newest time has moved on: what is too old goes."""
        self.oldest = newest_ns // self.pane_ns - PANES
        self._panes = {index: pane for index, pane in self._panes.items() if index >= self.oldest}

    def at_index(self, index: int) -> Content | None:
        if index < self.oldest:
            return None
        if index not in self._panes:
            self._panes[index] = self._new()
        return self._panes[index]

    def pane(self, t_ns: int) -> Content | None:
        """What the pane of a time holds, to be added to; None if it is gone."""
        return self.at_index(t_ns // self.pane_ns)

    def covered(self, now_ns: int) -> range:
        """The panes that the window has at a time, those not kept included."""
        last = now_ns // self.pane_ns
        return range(last - PANES, last + 1)

    def read(self, now_ns: int | None) -> Content:
        """What the window holds at a time, merged: a pure reading. Before any time, nothing."""
        content = self._new()
        for _, pane in self.panes(now_ns):
            content.merge(pane)
        return content

    def panes(self, now_ns: int | None) -> list[tuple[int, Content]]:
        """The start and the content of each pane that it has at a time, ascending."""
        covered = () if now_ns is None else self.covered(now_ns)
        return [(index * self.pane_ns, self._panes[index]) for index in covered if index in self._panes]

    def true_width_ns(self, now_ns: int | None, first_ns: int | None) -> int:
        """How much time the window covers at a time, when the first event came at `first_ns`.

        Of the past, only what is still kept.
        """
        if now_ns is None or first_ns is None:
            return 0
        oldest = max(self.oldest, self.covered(now_ns).start)
        return max(0, min(now_ns - oldest * self.pane_ns, now_ns - first_ns))
