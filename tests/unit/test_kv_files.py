"""A KV tracker in a meter's file: read by others while it is written, and after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tokenpulse import KVTracker, Meter, read_dir

S = 1_000_000_000

READER = """
import sys
from tokenpulse import Meter, read_dir
kv = Meter.open(sys.argv[1]).snapshot().kv
print(kv.evicted, kv.refilled, kv.blocks, kv.remembered, kv.gap.sum_ns)
print(kv.window("1m").evicted, kv.settings["remember"])
print(read_dir(sys.argv[2]).snapshot.kv.evicted)
"""


def ask(path: Path) -> list[str]:
    command = [sys.executable, "-c", READER, str(path), str(path.parent)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()


def test_another_process_reads_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "engine.meter"
    meter = Meter("ttft=1s,tpot=1s", path=path, kv=KVTracker(remember=50))
    assert meter.kv is not None
    assert ask(path)[0] == "0"
    meter.kv.store(1 * S, list(range(8)))
    meter.kv.evict(2 * S, list(range(5)))
    meter.kv.store(5 * S, [4])
    assert ask(path) == ["5", "1", "4", "4", str(3 * S), "5", "50", "5"]
    reader = Meter.open(path)
    assert reader.snapshot() == meter.snapshot()
    assert reader.snapshot().kv == meter.kv.snapshot()


def test_a_folder_of_caches_adds_up(tmp_path: Path) -> None:
    for rank in range(3):
        meter = Meter(path=tmp_path / f"engine-{rank}.meter", kv=KVTracker())
        assert meter.kv is not None
        meter.kv.store(1 * S, [1, 2, 3, 4])
        meter.kv.evict(2 * S, [1, 2, 3][: rank + 1])
    kv = read_dir(tmp_path).snapshot.kv
    assert kv is not None
    assert (kv.evicted, kv.blocks, kv.remembered) == (6, 6, 6)


def test_a_meter_without_a_tracker_adds_nothing(tmp_path: Path) -> None:
    with_one = Meter(path=tmp_path / "a", kv=KVTracker())
    without = Meter(path=tmp_path / "b")
    for meter in (with_one, without):
        meter.arrive(1)
    assert with_one.kv is not None
    with_one.kv.store(1, [1])
    merged = read_dir(tmp_path).snapshot
    assert merged.kv == with_one.snapshot().kv
    assert (without.snapshot() + with_one.snapshot()).kv == merged.kv


WRITER = """
import os, sys, time
from tokenpulse import KVTracker, Meter
meter = Meter(path=sys.argv[1], kv=KVTracker())
n = 0
while True:
    t = time.monotonic_ns()
    meter.kv.store(t, [n, n + 1])
    meter.kv.evict(t, [n])
    n += 2
    os.write(1, b"%d\\n" % (n // 2))
"""


def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "engine.meter"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        while int(writer.stdout.readline()) < 1000:
            pass
        reader = Meter.open(path)
        live = reader.snapshot().kv
        assert live is not None
        assert live.evicted >= 999
        writer.send_signal(signal.SIGKILL)
        told = int(writer.stdout.read().split()[-1])
    kv = reader.snapshot().kv
    assert kv is not None
    assert told <= kv.evicted <= told + 1
    assert kv.evicted <= kv.total.counts["stored"] // 2
    assert kv.lifetime.count == kv.evicted


FORKED = """
import os, sys
from tokenpulse import KVTracker, Meter
meter = Meter(path=sys.argv[1], kv=KVTracker())
meter.kv.store(1, [1])
pid = os.fork()
if pid == 0:
    kv = meter.kv
    calls = [
        lambda: kv.store(2, [2]), lambda: kv.evict(2, [1]), lambda: kv.touch(2, [1]), lambda: kv.lookup(2, 1, 1),
        lambda: kv.clear(2),
    ]
    refused = 0
    for call in calls:
        try:
            call()
        except RuntimeError as error:
            assert "of which this one is a fork" in str(error), error
            refused += 1
    os._exit(0 if refused == len(calls) else 1)
assert os.waitpid(pid, 0)[1] == 0
meter.kv.store(2, [2])
assert meter.snapshot().kv.total.counts["stored"] == 2
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_leaves_the_file_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path / "engine.meter")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
