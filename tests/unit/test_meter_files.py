"""Meters in files: read by others while they are written, after a kill, and when they are no meters."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tokenpulse import DecodeError, Meter, MeterReader, Snapshot, read_dir

MS = 1_000_000
S = 1_000_000_000

SMALL = {"windows": "1m", "burn": False, "max_requests": 8, "max_classes": 2, "scale": 2}
"""Settings of a meter whose file is small."""


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_another_reads_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "engine.meter"
    meter = Meter("chat:ttft=200ms,tpot=30ms", path=path)
    assert meter.path == path
    reader = Meter.open(str(path))
    assert isinstance(reader, MeterReader)
    assert (reader.path, reader.pid, reader.alive, reader.newest_ns) == (path, os.getpid(), True, None)
    assert reader.origin == meter.origin
    handle = meter.arrive(S, 5, cls=meter.classify(tenant="a"))
    meter.step(S + MS, handle)
    assert reader.newest_ns == S + MS
    assert reader.snapshot() == meter.snapshot()
    assert reader.snapshot(S).t_ns == S
    assert reader.snapshot().slos == meter.snapshot().slos
    assert path.stat().st_blocks * 512 < 4 << 20


def test_a_meter_in_a_file_counts_as_one_in_memory(tmp_path: Path) -> None:
    def readings(meter: Meter) -> list[object]:
        for second in range(100):
            handle = meter.arrive(second * S, 10)
            meter.step(second * S + 50 * MS, handle)
            meter.end(second * S + 80 * MS, handle, "stop")
        return [meter.snapshot(t * S).reading() for t in (0, 50, 99, 150)]

    assert readings(Meter(path=tmp_path / "a")) == readings(Meter())


WRITER = """
import os, sys, time
from tokenpulse import Meter
meter = Meter(path=sys.argv[1])
handle = meter.arrive(time.monotonic_ns(), 100)
steps = 0
while True:
    meter.step(time.monotonic_ns(), handle)
    steps += 1
    os.write(1, b"%d\\n" % steps)
"""


def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "engine.meter"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        while int(writer.stdout.readline()) < 1000:
            pass
        reader = Meter.open(path)
        assert (reader.pid, reader.alive) == (writer.pid, True)
        live = reader.snapshot(time.monotonic_ns())
        assert live.window("15s").counts["output_tokens"] >= 1000
        writer.send_signal(signal.SIGKILL)
        told = int(writer.stdout.read().split()[-1])
    assert writer.returncode == -signal.SIGKILL
    for one in (reader, Meter.open(path)):
        assert not one.alive
        total = one.snapshot().total
        # The last step may have been written but not told.
        assert told <= total.counts["output_tokens"] <= told + 1
        assert total.latency["itl"].count == total.counts["output_tokens"] - 1
        assert total.counts["in_flight"] == 1
    cold = reader.snapshot().cold_start
    assert cold is not None
    assert 0 < cold < 60


def test_a_restart_keeps_the_old_meter_beside(tmp_path: Path) -> None:
    path = tmp_path / "engine.meter"
    for tokens in (1, 2, 3):
        meter = Meter(path=path)
        meter.arrive(S, tokens)
        del meter
    read = read_dir(tmp_path)
    assert [block.path.name for block in read] == ["engine.meter", "engine.meter.1", "engine.meter.2"]
    found = [block.snapshot.total.counts["prompt_tokens"] for block in read if block.snapshot is not None]
    assert found == [3, 1, 2]
    assert read.snapshot.total.counts["prompt_tokens"] == 6


FORKED = """
import os, sys
from tokenpulse import IdMap, Meter
meter = Meter(path=sys.argv[1])
ids = IdMap(meter)
handle = meter.arrive(1, 5)
heap = Meter()
heap.arrive(1)
pid = os.fork()
if pid == 0:
    calls = [
        lambda: meter.arrive(2), lambda: meter.step(2, handle), lambda: meter.end(2, handle, "stop"),
        lambda: meter.gauge(2, running=1), lambda: meter.add(2, comm_ns=1), lambda: meter.count(2, "oom_event"),
        lambda: meter.ready(2), lambda: meter.schedule(2, handle), lambda: meter.prefill(2, handle),
        lambda: meter.preempt(2, handle), lambda: meter.resume(2, handle), lambda: meter.observe("ttft", 1),
        lambda: meter.classify(a="b"), lambda: ids.arrive(2, "a"), lambda: ids.step(2, "a"),
        lambda: ids.end(2, "a", "stop"),
    ]
    refused = 0
    for call in calls:
        try:
            call()
        except RuntimeError as error:
            assert f"belongs to process {os.getppid()}, of which this one is a fork" in str(error), error
            refused += 1
    assert meter.snapshot().total.counts["attempted"] == 1
    heap.arrive(2)
    assert heap.snapshot().total.counts["attempted"] == 2
    own = Meter(path=sys.argv[1] + ".child")
    own.arrive(1)
    os._exit(0 if refused == len(calls) else 1)
assert os.waitpid(pid, 0)[1] == 0
meter.step(2, handle)
assert meter.snapshot().total.counts["output_tokens"] == 1
assert meter.snapshot().total.counts["attempted"] == 1
assert heap.snapshot().total.counts["attempted"] == 1
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_leaves_the_file_alone(tmp_path: Path) -> None:
    ran = run(FORKED, tmp_path / "engine.meter")
    assert ran.returncode == 0, ran.stderr
    assert sorted(block.path.name for block in read_dir(tmp_path)) == ["engine.meter", "engine.meter.child"]


def test_a_folder_is_read_at_one_moment(tmp_path: Path) -> None:
    old, new = (Meter(path=tmp_path / name) for name in ("old", "new"))
    (tmp_path / "notes.txt").write_text("no meter")
    now = time.monotonic_ns()
    old.step(now, old.arrive(now, 5))
    new.step(now + 30 * S, new.arrive(now + 30 * S, 7))
    read = read_dir(tmp_path)
    assert [(block.path.name, block.pid, block.alive, block.error) for block in read] == [
        ("new", os.getpid(), True, None),
        ("old", os.getpid(), True, None),
    ]
    assert {block.snapshot.t_ns for block in read if block.snapshot is not None} == {now + 30 * S}
    assert read.snapshot.total.counts["prompt_tokens"] == 12
    assert read.snapshot.window("15s").counts["prompt_tokens"] == 7
    assert read.snapshot.window("1m").counts["prompt_tokens"] == 12
    offset = new.origin["anchor_unix_ns"] - new.origin["anchor_monotonic_ns"]
    later = read_dir(tmp_path, unix_ns=now + offset + 40 * S).snapshot
    assert later.t_ns == now + 40 * S
    assert later.open["streams"]["oldest"] == 40.0


def test_the_living_and_the_dead_of_a_folder(tmp_path: Path) -> None:
    now = time.monotonic_ns()
    ended = "import sys, tokenpulse as t; t.Meter(path=sys.argv[1]).arrive(int(sys.argv[2]), 5)"
    subprocess.run([sys.executable, "-c", ended, str(tmp_path / "a"), str(now)], check=True)
    meter = Meter(path=tmp_path / "b")
    meter.arrive(now, 7)
    read = read_dir(tmp_path)
    assert [(block.path.name, block.alive) for block in read] == [("a", False), ("b", True)]
    assert read.snapshot.total.counts["prompt_tokens"] == 12
    assert read.living.total.counts["prompt_tokens"] == 7
    other = Meter("ttft=1s,tpot=1s", path=tmp_path / "c")
    other.arrive(now, 1)
    with pytest.raises(ValueError, match=r"c: cannot be added to the meters before it: SLO sets must be the same"):
        _ = read_dir(tmp_path).snapshot


def test_a_folder_without_meters(tmp_path: Path) -> None:
    assert len(read_dir(tmp_path)) == 0
    with pytest.raises(ValueError, match="no file can be read as a meter"):
        _ = read_dir(tmp_path).snapshot
    with pytest.raises(FileNotFoundError):
        read_dir(tmp_path / "nowhere")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "small.meter"
    meter = Meter("ttft=1s,tpot=1s", path=path, **SMALL)  # type: ignore[arg-type]
    handle = meter.arrive(S, 5)
    for second in range(70):
        meter.step(second * S + S, handle)
    meter.end(71 * S, handle, "stop")
    return path


def changed(path: Path, at: int, replacement: bytes) -> Path:
    copied = path.with_name("changed")
    shutil.copyfile(path, copied)
    with open(copied, "r+b") as file:
        file.seek(at)
        file.write(replacement)
    return copied


def test_what_is_no_meter_is_one_clear_error(tmp_path: Path, written: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "odd").write_bytes(b"12345")
    (tmp_path / "zeros").write_bytes(bytes(4096))
    (tmp_path / "noise").write_bytes(random.Random(1).randbytes(1 << 16))
    (tmp_path / "folder").mkdir()
    for name in ("empty", "odd", "zeros", "noise", "folder"):
        with pytest.raises(DecodeError, match=f"{name}: "):
            Meter.open(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Meter.open(tmp_path / "nowhere")
    with pytest.raises(DecodeError, match="version"):
        Meter.open(changed(written, 8, b"\x63"))
    read = read_dir(tmp_path)
    assert [block.path.name for block in read if block.error] == ["changed"]
    assert read.snapshot.total.counts["output_tokens"] == 70


def test_a_file_cut_short(written: Path) -> None:
    copied = changed(written, 0, b"")
    reader = Meter.open(copied)
    whole = copied.stat().st_size
    for size in (whole - 8, whole // 2 // 8 * 8, 4096):
        os.truncate(copied, size)
        with pytest.raises(DecodeError, match="cut short"):
            reader.snapshot()
        with pytest.raises(DecodeError, match="bytes long"):
            Meter.open(copied)
        assert [block.error is None for block in read_dir(copied.parent)] == [False, True]


def read_or_refuse(path: Path) -> bool:
    """Reads a file that may hold anything: figures are formed or one ValueError is raised, and nothing else."""
    try:
        snapshot = Meter.open(path).snapshot()
        encoded = snapshot.to_bytes()
        assert Snapshot.from_bytes(encoded).to_bytes() == encoded
        snapshot.to_dict()
    except ValueError:
        return False
    return True


def test_every_word_of_a_file_may_be_wrong(written: Path) -> None:
    whole = written.read_bytes()
    used = [at for at in range(0, len(whole), 8) if whole[at : at + 8] != bytes(8)]
    assert len(used) > 100
    outcomes = []
    with open(written, "r+b", buffering=0) as file:
        for at in used:
            for wrong in (bytes(8), b"\xff" * 8, b"\xff" * 7 + b"\x7f"):
                os.pwrite(file.fileno(), wrong, at)
                outcomes.append(read_or_refuse(written))
            os.pwrite(file.fileno(), whole[at : at + 8], at)
    assert {True, False} == set(outcomes)
    assert read_or_refuse(written)


def test_a_file_of_noise_after_a_good_beginning(written: Path) -> None:
    whole = written.read_bytes()
    randomness = random.Random(7)
    for _ in range(40):
        start = randomness.randrange(0, 1 << 16, 8)
        copied = changed(written, start, randomness.randbytes(1 << 12))
        read_or_refuse(copied)
        length = randomness.randrange(len(whole)) // 8 * 8
        os.truncate(copied, length)
        assert not read_or_refuse(copied)


def test_a_place_where_no_file_can_be(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Meter(path=tmp_path / "nowhere" / "engine.meter")
    with pytest.raises(ValueError, match="regular file"):
        Meter(path=tmp_path)
    with pytest.raises(ValueError, match="max_classes"):
        Meter(path=tmp_path / "a", max_classes=1)
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_freed_with_the_meter(tmp_path: Path) -> None:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no /proc here")
    meter = Meter(path=tmp_path / "engine.meter")
    reader = Meter.open(tmp_path / "engine.meter")
    assert "engine.meter" in maps.read_text()
    del meter, reader
    assert "engine.meter" not in maps.read_text()
