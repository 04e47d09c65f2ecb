"""The tail of a step while others read the meter: P99.99 of a million steps of 256 requests, with readers and without.

    python benches/python/tail.py

The meter lies in a file. A process reads it there and a thread reads it here, 100 snapshots a second each: first none
of them, then the process, then both, in turns. Of the turns the median is taken, and the ratio to that without readers.
Readers take a core and the interpreter's lock from the engine whatever they read: what that comes to is told by the
same two readers of another meter, just as full, that nobody writes to.

The steps come one after another, and the engine's clock goes on by some 20 ms with each: so panes end as often as they
would, and the thread gets the interpreter's lock only where the loop has to give it up. Every snapshot must hold whole
steps. BENCH_SMOKE=1 only sees that it works.
"""

from __future__ import annotations

import gc
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from peers import KEPT, Metered
from tokenpulse import Meter, Snapshot
from traffic import BEGIN, gaps

SMOKE = os.environ.get("BENCH_SMOKE", "") not in ("", "0")
STEPS = 20_000 if SMOKE else 1_000_000
TURNS = 1 if SMOKE else 3
REQUESTS = 256
INTERVAL = 0.01
QUANTILES = {"P50": 0.5, "P99": 0.99, "P99.9": 0.999, "P99.99": 0.9999, "most": 1.0}
TOKENS_BEFORE = 2
"""Tokens of the request that a meter of the benchmarks has seen before the others."""


def read_at_intervals(snapshot: Callable[[], Snapshot], wait: Callable[[float], Any]) -> int:
    """Reads until `wait` (for so many seconds) returns true; returns how often."""
    reads, tokens, due = 0, 0, time.monotonic()
    while not wait(max(0.0, due - time.monotonic())):
        before, tokens = tokens, snapshot().total.counts["output_tokens"]
        assert tokens >= before, "the meter went back"
        assert (tokens - TOKENS_BEFORE) % REQUESTS == 0, "half a step was read"
        reads += 1
        due += INTERVAL
    return reads


def read_file(path: str) -> None:
    """The reading process: until its input ends."""
    reader = Meter.open(path)
    print("ready", flush=True)
    print(read_at_intervals(reader.snapshot, lambda seconds: select.select([sys.stdin], [], [], seconds)[0]))


@contextmanager
def process(path: Path, reads: dict[str, int]) -> Iterator[None]:
    command = [sys.executable, __file__, "--read", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield
        child.stdin.close()
        reads["process"] = int(child.stdout.read())
    assert child.returncode == 0


@contextmanager
def thread(meter: Meter, reads: dict[str, int]) -> Iterator[None]:
    stop = threading.Event()

    def read() -> None:
        reads["thread"] = read_at_intervals(meter.snapshot, stop.wait)

    reading = threading.Thread(target=read)
    reading.start()
    yield
    stop.set()
    reading.join()
    assert "thread" in reads, "the thread failed"


class Engine(Metered):
    """A meter in a file, and the steps that it has taken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meter = Meter(KEPT, path=path)
        self.step = self.meter.step
        self.handles = self.column(self.arrive(BEGIN, REQUESTS))
        self.between = cycle(gaps())
        self.t = BEGIN
        self.steps = 1

    def take(self, n: int) -> list[int]:
        """The nanoseconds of each of so many steps."""
        times = []
        for _ in range(n):
            self.t += next(self.between)
            times.append(self.t)
        taken = [0] * n
        step, handles, clock = self.step, self.handles, time.perf_counter_ns
        for index, t in enumerate(times):
            start = clock()
            step(t, handles)
            taken[index] = clock() - start
        self.steps += n
        return taken


READERS: dict[str, Callable[[Engine, dict[str, int]], AbstractContextManager[None]]] = {
    "process": lambda engine, reads: process(engine.path, reads),
    "thread": lambda engine, reads: thread(engine.meter, reads),
}


def turn(engine: Engine, read: Engine, readers: tuple[str, ...]) -> tuple[list[float], str]:
    """Steps of an engine while a meter is read: the microseconds of each rank, and how often the readers read."""
    reads: dict[str, int] = {}
    with ExitStack() as stack:
        for reader in readers:
            stack.enter_context(READERS[reader](read, reads))
        start = time.monotonic()
        taken = engine.take(STEPS)
        seconds = time.monotonic() - start
    assert set(reads) == set(readers)
    assert all(n > 0 for n in reads.values())
    ranks: list[float] = (np.quantile(taken, list(QUANTILES.values()), method="inverted_cdf") / 1e3).tolist()
    rates = (f"{reader} {n / seconds:.0f} snapshots/s" for reader, n in reads.items())
    return ranks, ", ".join((f"{seconds:.1f} s", *rates))


def main() -> None:
    found: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        engine, other = (Engine(Path(folder, f"{name}.meter")) for name in ("engine", "other"))
        for one in (engine, other):
            one.take(STEPS // 10)
        both = ("process", "thread")
        conditions = {
            "no readers": (engine, ()),
            "both read another meter": (other, both),
            "a process reads": (engine, ("process",)),
            "a process and a thread read": (engine, both),
        }
        gc.disable()
        for _ in range(TURNS):
            for name, (read, readers) in conditions.items():
                ranks, said = turn(engine, read, readers)
                found.setdefault(name, []).append(ranks)
                print(f"{name}: {said}", file=sys.stderr)
        for one in (engine, other):
            assert one.found().tokens == one.steps * REQUESTS
    print("| microseconds of a step |", " | ".join(QUANTILES), "| P99.99 to that without readers |")
    print("| --- " * (len(QUANTILES) + 2), "|", sep="")
    worst = list(QUANTILES).index("P99.99")
    base = median(ranks[worst] for ranks in found["no readers"])
    for name, turns in found.items():
        columns = list(zip(*turns, strict=True))
        shown = (f"{median(column):.2f} ({min(column):.2f}-{max(column):.2f})" for column in columns)
        print(f"| {name} |", " | ".join(shown), f"| {median(columns[worst]) / base:.2f}x |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read_file(sys.argv[2])
    elif len(sys.argv) > 1:
        sys.exit("usage: tail.py")
    else:
        main()
