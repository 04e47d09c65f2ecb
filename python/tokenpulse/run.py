"""`Run`: a run's seconds and some of its moments, so that any stretch of it can be told from what came before.

Of every second a few numbers are kept, up to a day of them and then of every second one and so on; and the running
totals of at most 128 moments, spread evenly over the run: so a stretch begins and ends within 1/64 of the run of where
it was asked for, and memory does not grow with the run (some tens of MB at most).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from tokenpulse import engine
from tokenpulse.analysis.stretch import NOTHING, Pane, Stretch, Totals
from tokenpulse.grammar import Path, path_names
from tokenpulse.kv import KVTracker
from tokenpulse.meter import Meter
from tokenpulse.model import SLO
from tokenpulse.replaying import replay
from tokenpulse.snapshot import Snapshot

SECOND_NS = 1_000_000_000
MOST_MOMENTS = 128
MOST_PANES = 86_400
RECENT_PANES = 60
"""A minute: what a trend is judged by."""

_One = TypeVar("_One")


class _Thinned(Generic[_One]):
    """A sequence of bounded length: when it is full every other member goes, and of what comes the same share."""

    def __init__(self, most: int) -> None:
        self.kept: list[_One] = []
        self._most = most
        self._every = 1
        self._seen = 0

    def add(self, one: _One) -> None:
        if self._seen % self._every == 0:
            if len(self.kept) >= self._most:
                del self.kept[1::2]
                self._every *= 2
            if self._seen % self._every == 0:
                self.kept.append(one)
        self._seen += 1


class Run:
    """What a run was like over time: `Run.of(path)` from a log, or fed with a live meter's snapshots by `take`.

    `whole`: the meter began with the run, so that what it held at the first `take` belongs to it. Otherwise the run
    begins at the first `take`.

    >>> from tokenpulse import Meter
    >>> meter, run = Meter(), Run()
    >>> for second in range(4):
    ...     handle = meter.arrive(second * 10**9)
    ...     run.take(meter.snapshot(second * 10**9))
    >>> run.seconds, run.stretch(1, 3).arrivals
    (3.0, 2)
    """

    def __init__(self, name: str = "run", *, whole: bool = False, machine: Mapping[str, float] | None = None) -> None:
        self.name = name
        self.machine: dict[str, float] = dict(machine or {})
        """What the engine runs on, as far as it is known: `peak_flops` in FLOP/s, `bandwidth_bytes_per_second`."""
        self.notices: list[dict[str, Any]] = []
        """What could not be read of a log."""
        self.slos: tuple[SLO, ...] = ()
        self._whole = whole
        self._start_ns: int | None = None
        self._first = NOTHING
        self._newest: Totals | None = None
        self._before = NOTHING
        self._moments: _Thinned[Totals] = _Thinned(MOST_MOMENTS)
        self._panes: _Thinned[Pane] = _Thinned(MOST_PANES)

    @classmethod
    def of(
        cls,
        path: Path,
        *,
        slo: SLO | str | None = None,
        progress: engine.Progress | None = None,
    ) -> Run:
        """Read a log, or another tool's file of requests, through a meter; `-` is standard input.

        Raises OSError for a file that cannot be read, FormatError for one of unknown format, and ValueError for one
        that does not tell what became of each request.
        """
        (name,) = path_names(path)
        run = cls(name, whole=True)

        def make(itl_rule: str | None) -> Meter:
            return Meter(slo or (), windows=(), burn=False, itl=itl_rule or "token", kv=KVTracker())

        told = replay(
            name,
            make,
            lambda meter, t_ns: run.take(meter.snapshot(t_ns)),
            every_ns=SECOND_NS,
            by=("prompt_length",),
            progress=progress,
        )
        run.machine = dict(told["machine"])
        run.notices = list(told["notices"])
        return run

    def take(self, snapshot: Snapshot) -> None:
        """Take note of a snapshot of the run's meter; about once a second. One of the same time as the last takes its
        place. ValueError for one that is older."""
        reading = snapshot.reading()
        if reading["t_ns"] is None:
            return
        totals = Totals.of(reading)
        before = self._newest
        if before is not None and totals.t_ns < before.t_ns:
            raise ValueError(
                f"snapshots must come in the order of their times: got one at {totals.t_ns} ns after {before.t_ns} ns"
            )
        self.slos = snapshot.slos
        if before is not None and totals.t_ns == before.t_ns:
            self._take_again(before, totals)
            return
        if before is None:
            first = reading["first_event_ns"]
            self._start_ns = first if self._whole and first is not None else totals.t_ns
            if not self._whole:
                self._first = totals
        start = self._start_ns if before is None else before.t_ns
        assert start is not None
        self._newest, self._before = totals, self._first if before is None else before
        if totals.t_ns > start:
            self._panes.add(totals.pane_since(self._before, start))
            self._moments.add(totals)

    def _take_again(self, before: Totals, totals: Totals) -> None:
        """More has happened at the newest time than was known."""
        self._newest = totals
        panes, moments = self._panes.kept, self._moments.kept
        if self._first is before:
            self._first = totals
        if moments and moments[-1] is before:
            moments[-1] = totals
        if panes and panes[-1].end_ns == totals.t_ns:
            panes[-1] = totals.pane_since(self._before, panes[-1].start_ns)

    @property
    def seconds(self) -> float:
        """How long the run lasted."""
        if self._newest is None or self._start_ns is None:
            return 0.0
        return max(0, self._newest.t_ns - self._start_ns) / 1e9

    @property
    def whole(self) -> Stretch:
        """All of it."""
        return self.stretch(0.0, self.seconds)

    @property
    def first_third(self) -> Stretch:
        """Its first third: what stands in for a baseline where there is no other."""
        return self.stretch(0.0, self.seconds / 3)

    @property
    def last_third(self) -> Stretch:
        """Its last third."""
        return self.stretch(self.seconds * 2 / 3, self.seconds)

    def stretch(self, from_seconds: float, to_seconds: float) -> Stretch:
        """What happened between two moments, in seconds since the run began, or between the nearest moments inside.

        Raises ValueError unless 0 <= from_seconds <= to_seconds, and for a run in which nothing happened.
        """
        if not 0 <= from_seconds <= to_seconds:
            raise ValueError(
                f"a stretch must have 0 <= from_seconds <= to_seconds, got from {from_seconds} to {to_seconds}"
            )
        if self._newest is None or self._start_ns is None:
            raise ValueError(f"{self.name}: nothing happened in this run")
        start = self._start_ns
        moments = [self._first, *self._moments.kept]
        times = [start, *(one.t_ns for one in self._moments.kept)]
        if times[-1] < self._newest.t_ns:
            moments.append(self._newest)
            times.append(self._newest.t_ns)
        first = min(bisect_left(times, start + round(from_seconds * 1e9)), len(times) - 1)
        last = max(bisect_right(times, start + round(to_seconds * 1e9)) - 1, first)
        panes = self._panes.kept
        begun = bisect_left(panes, times[first], key=lambda pane: pane.start_ns)
        ended = bisect_right(panes, times[last], key=lambda pane: pane.end_ns)
        return Stretch.between(
            moments[first],
            replace(moments[last], t_ns=times[last]),
            times[first],
            panes=tuple(panes[begun:ended]),
            recent=tuple(panes[max(0, ended - RECENT_PANES) : ended]),
            run_start_ns=start,
        )

    def __repr__(self) -> str:
        return f"<tokenpulse.Run {self.name}: {self.seconds:.6g} s>"
