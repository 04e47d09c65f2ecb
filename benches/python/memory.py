"""The memory of a meter: as made, a request in flight, a class with everything in use, an evicted block that is
remembered; beside what engines keep.

    python benches/python/memory.py

Each measurement is made by a process of its own that says what its pages came to before and after; Linux only.
BENCH_SMOKE=1 only sees that it works.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from peers import MS, Metered, Prometheus, Scraped
from tokenpulse import KVTracker, Meter
from traffic import BEGIN, serve

SMOKE = os.environ.get("BENCH_SMOKE", "") not in ("", "0")
HOURS = 0.01 if SMOKE else 2
IN_FLIGHT = 65_536
SLOS = [f"set{limit}:ttft=500ms,tpot={limit}ms" for limit in (30, 60, 90, 120)]
FEW, MANY = 1, 17
"""Classes: what more of them take is divided by how many more they are."""
FEW_BLOCKS, MANY_BLOCKS = 1_000, 1_000_000

Bytes = dict[str, int]


def pages() -> Bytes:
    """Bytes of this process: resident as the page tables say (counters of the system lag behind), and virtual."""
    gc.collect()
    rollup = Path("/proc/self/smaps_rollup").read_text()
    resident = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Rss:"))
    virtual = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return {"resident": resident * 1024, "virtual": virtual}


def grown(before: Bytes) -> Bytes:
    return {kind: n - before[kind] for kind, n in pages().items()}


def made() -> Bytes:
    # The first one brings in code as well. It is kept, lest the second take over what it leaves.
    first = Meter()
    before = pages()
    meter = Meter()
    after = grown(before)
    assert meter.snapshot().total.counts == first.snapshot().total.counts
    return after


def in_flight(slos: list[str]) -> Bytes:
    subject = Metered(slos)
    subject.arrive(BEGIN, 1)
    meter = subject.meter
    block = 256
    handles = np.zeros(IN_FLIGHT - 1, np.int64)
    before = pages()
    for start in range(0, handles.size, block):
        t = BEGIN + 10 * MS * (1 + start // block)
        part = handles[start : start + block]
        part[:] = meter.arrive(t, [100] * part.size)
        meter.schedule(t + MS, part)
        meter.prefill(t + 2 * MS, part)
        meter.step(t + 3 * MS, part)
        meter.step(t + 4 * MS, part)
    after = grown(before)
    counts = meter.snapshot().total.counts
    assert (counts["in_flight"], meter.snapshot().rejected) == (IN_FLIGHT, {})
    return after


def in_flight_of_peer() -> Bytes:
    peer = Prometheus()
    before = pages()
    requests = peer.arrive(1.0, IN_FLIGHT)
    after = grown(before)
    assert len(peer.states) == len(requests) == IN_FLIGHT
    return after


def classes(n: int) -> Bytes:
    meter = Meter()
    before = pages()
    serve(meter, HOURS * 3600, n, in_flight=16 * n)
    after = grown(before)
    snapshot = meter.snapshot()
    assert (snapshot.rejected, snapshot.dropped, len(snapshot.total.classes)) == ({}, 0, n)
    for view in (snapshot.total, *snapshot.windows.values()):
        assert all(sketch.count > 0 for sketch in view.latency.values())
    return after


def classes_of_peer(n: int) -> Bytes:
    before = pages()
    peer = Scraped(n)
    after = grown(before)
    assert len(peer.histograms[0]) == n
    return after


def remembered(n: int) -> Bytes:
    tracker = KVTracker(remember=n)
    tracker.store(BEGIN, [])
    before = pages()
    for start in range(0, n, 64):
        hashes = np.arange(start, min(start + 64, n), dtype=np.uint64)
        tracker.store(BEGIN + start, hashes)
        tracker.evict(BEGIN + start, hashes)
    after = grown(before)
    assert tracker.snapshot().remembered == n
    return after


def remembered_by_peer(n: int) -> Bytes:
    before = pages()
    peer = OrderedDict((2**62 + block, BEGIN + block) for block in range(n))
    after = grown(before)
    assert len(peer) == n
    return after


MEASURED: dict[str, Callable[[], Bytes]] = {
    "made": made,
    "in flight": lambda: in_flight([]),
    "in flight, 4 SLO sets": lambda: in_flight(SLOS),
    "in flight, peer": in_flight_of_peer,
    "few classes": lambda: classes(FEW),
    "many classes": lambda: classes(MANY),
    "few classes, peer": lambda: classes_of_peer(FEW),
    "many classes, peer": lambda: classes_of_peer(MANY),
    "few blocks": lambda: remembered(FEW_BLOCKS),
    "many blocks": lambda: remembered(MANY_BLOCKS),
    "many blocks, peer": lambda: remembered_by_peer(MANY_BLOCKS),
}


def measured(name: str) -> Bytes:
    command = [sys.executable, __file__, "--measure", name]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: Any = json.loads(printed)
    return {str(kind): int(n) for kind, n in found.items()}


def main() -> None:
    found = {name: measured(name)["resident"] for name in MEASURED if name != "made"}
    default = measured("made")
    more = MANY - FEW
    rows = (
        ("a default Meter(), resident", default["resident"], "bytes"),
        ("a default Meter(), virtual", default["virtual"], "bytes"),
        ("a request in flight, no SLO sets", found["in flight"] / IN_FLIGHT, "bytes"),
        ("a request in flight, 4 SLO sets", found["in flight, 4 SLO sets"] / IN_FLIGHT, "bytes"),
        ("peer: a request's id and state in Python", found["in flight, peer"] / IN_FLIGHT, "bytes"),
        (f"a class, all in use, {HOURS:g} h", (found["many classes"] - found["few classes"]) / more, "bytes"),
        ("peer: 6 labelled histograms", (found["many classes, peer"] - found["few classes, peer"]) / more, "bytes"),
        ("a block remembered", (found["many blocks"] - found["few blocks"]) / (MANY_BLOCKS - FEW_BLOCKS), "bytes"),
        ("peer: an entry of an OrderedDict", found["many blocks, peer"] / MANY_BLOCKS, "bytes"),
    )
    for what, n, unit in rows:
        print(f"| {what} | {n:,.0f} {unit} |")
        assert n > 0, what


if __name__ == "__main__":
    if not Path("/proc/self/smaps_rollup").exists():
        sys.exit("memory.py: needs /proc of Linux")
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(MEASURED[sys.argv[2]]()))
    elif len(sys.argv) > 1:
        sys.exit("usage: memory.py")
    else:
        main()
