"""What the benchmarks of the meter serve: steps of requests that decode together, and hours of a busy engine."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import cycle
from typing import Any

import numpy as np

from peers import MS, Stepped
from tokenpulse import Meter

BEGIN = 1_000_000 * MS

Call = tuple[Any, ...]


def gaps(n: int = 1 << 14) -> list[int]:
    """Times between steps in nanoseconds: lognormal, median 20 ms, sigma 0.3."""
    drawn = np.random.default_rng(1).lognormal(np.log(20 * MS), 0.3, n)
    listed: list[int] = np.rint(drawn).astype(np.int64).tolist()
    return listed


class Traffic:
    """Requests that decode together, in one batch or several that take turns; and what must come of it."""

    def __init__(self, subject: Stepped, requests: int, batches: int = 1) -> None:
        self.subject = subject
        self.t = BEGIN
        n = requests * batches
        handles = subject.arrive(self.ticks(BEGIN), n)
        self.singles = [subject.column([handle]) for handle in handles]
        self.members = np.arange(n).reshape(batches, requests)
        self.columns = [subject.column([handles[member] for member in batch]) for batch in self.members]
        self.last = np.full(n, BEGIN)
        self.tokens = n
        self.gaps = cycle(gaps())

    def ticks(self, t: int) -> Any:
        """A time as the subject takes it."""
        return t if self.subject.TICKS == 1 else t / self.subject.TICKS

    def calls(self, n: int, counts: list[list[int]] | None = None) -> list[Call]:
        """The arguments of the next n steps, batch by batch; they are counted as if they had been taken."""
        prepared = []
        columns = None if counts is None else [self.subject.counts(one) for one in counts]
        for index in range(n):
            # However many batches there are, a request has its token once a gap.
            self.t += next(self.gaps) // len(self.columns)
            batch = index % len(self.columns)
            call: Call = (self.ticks(self.t), self.columns[batch])
            if counts is None or columns is None:
                self.tokens += self.members.shape[1]
            else:
                call = (*call, columns[index % len(counts)])
                self.tokens += sum(counts[index % len(counts)])
            self.last[self.members[batch]] = self.t
            prepared.append(call)
        return prepared

    def set_apart(self) -> None:
        """Each request has a token at a time of its own, all of them within one gap."""
        for position, column in enumerate(self.singles):
            self.t += 20 * MS // len(self.singles) + position % 7
            self.subject.step(self.ticks(self.t), column)
            self.last[position] = self.t
        self.tokens += len(self.singles)

    def check(self, *, gaps: bool = True) -> None:
        """The subject has found every token, every gap (unless it counts them by another rule) and their sum."""
        found = self.subject.found()
        assert found.tokens == self.tokens > 0
        if gaps:
            assert found.gaps == self.tokens - self.last.size
        seconds = int((self.last - BEGIN).sum()) / 1e9
        assert abs(found.seconds - seconds) <= 1e-6 * seconds


def serve(meter: Meter, seconds: float, classes: int, in_flight: int = 64) -> int:
    """A busy engine for some time of its own clock, with all that can happen to a request; returns the last time."""
    random = np.random.default_rng(2)
    numbers = [meter.classify(tenant=str(tenant)) for tenant in range(classes)]
    between = cycle(gaps())
    lengths = cycle(random.integers(2, 400, 1 << 12).tolist())
    waits = cycle(random.integers(1, MS, 1 << 12).tolist())
    t, step, arrived = BEGIN, 0, 0
    running: dict[int, None] = {}
    ends: list[tuple[int, int]] = []
    column = np.array([], np.int64)
    while t < BEGIN + seconds * 1e9:
        for _ in range(len(running), in_flight):
            handle = meter.arrive(t, 100, 20, numbers[arrived % classes])
            scheduled = t + next(waits)
            meter.schedule(scheduled, handle)
            meter.prefill(scheduled + next(waits), handle)
            heappush(ends, (step + next(lengths), handle))
            running[handle] = None
            arrived += 1
            column = np.array([])
        if column.size != len(running):
            column = np.fromiter(running, np.int64, len(running))
        t += next(between) + 2 * MS
        step += 1
        meter.step(t, column)
        if step % 16 == 0:
            stalled = int(column[step // 16 % column.size])
            meter.preempt(t, stalled)
            meter.resume(t + next(waits), stalled)
            meter.gauge(t, running=column.size, waiting=arrived % 5, kv_used=arrived % 1000, kv_total=1000)
            meter.add(t, gpu_active_ns=15 * MS, decode_tokens=column.size)
        while ends and ends[0][0] <= step:
            _, handle = heappop(ends)
            meter.end(t + MS, handle, "stop" if arrived % 50 else "error")
            del running[handle]
    return t + 2 * MS
