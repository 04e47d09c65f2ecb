"""`engine.replay`: what a caller sees of it beside the meter's figures."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenpulse import FormatError, KVTracker, Meter, engine

SECOND = 10**9
FIXTURES = Path(__file__).parents[1] / "fixtures"


def log(*lines: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(line).encode() for line in lines)


def gauges(*times: int) -> bytes:
    return log(*({"t_ns": t, "ev": "gauge", "waiting": n} for n, t in enumerate(times)))


def test_an_exception_of_on_pane_ends_the_reading() -> None:
    meter, seen = Meter(), []

    def on_pane(t: int) -> None:
        seen.append(t)
        if len(seen) == 2:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        engine.replay_bytes(meter, "log", gauges(0, SECOND, 2 * SECOND, 9 * SECOND), on_pane=on_pane)
    assert seen == [SECOND, 2 * SECOND]
    held = meter.snapshot().total.gauges["waiting"]
    assert held is not None
    assert held.last == 1, "what came before that moment, and no more"


@pytest.mark.parametrize("first", ["event", "request"])
def test_an_exception_in_any_order_of_lines(first: str) -> None:
    request = log({"id": "a", "arrive_ns": 1, "token_ns": [2 * SECOND]})
    content = {"event": gauges(0) + b"\n" + request, "request": request}[first]

    def on_pane(t: int) -> None:
        raise ValueError(f"at {t}")

    with pytest.raises(ValueError, match=f"at {SECOND}"):
        engine.replay_bytes(Meter(), "log", content, on_pane=on_pane)


def test_the_meter_is_read_as_it_stood() -> None:
    """What a reader of the live meter would have seen, a second after the other."""
    meter, waiting = Meter(), []

    def on_pane(t: int) -> None:
        gauge = meter.snapshot(t).total.gauges["waiting"]
        waiting.append(None if gauge is None else gauge.last)

    engine.replay_bytes(meter, "log", gauges(0, 10, SECOND + 1, 3 * SECOND, 3 * SECOND + 1), on_pane=on_pane)
    assert waiting == [1, 2, 2, 4]


def test_progress_is_told_and_may_end_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(gauges(*range(0, 50_000, 2)))
    told: list[tuple[int, int]] = []
    engine.replay(Meter(), str(path), on_pane=str, progress=lambda done, total: told.append((done, total)))
    size = path.stat().st_size
    assert told[-1] == (size, size)
    assert all(total == size for _, total in told)

    def stop(*_: int) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        engine.replay(Meter(), str(path), on_pane=str, progress=stop)


def test_compressed_logs_and_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(gauges(0, 2 * SECOND)))
    seen: list[int] = []
    assert engine.replay(Meter(), str(path), on_pane=seen.append)["newest_ns"] == 2 * SECOND
    assert seen == [SECOND, 2 * SECOND]
    program = """
import os
from tokenpulse import Meter, engine
head = os.read(0, 5)
print(engine.replay(Meter(), "-", on_pane=str, head=head)["inputs"][0]["lines"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input=path.read_bytes(), capture_output=True, check=True, env=dict(os.environ)
    )
    assert done.stdout == b"2\n"


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(FileNotFoundError):
        engine.replay(Meter(), str(path), on_pane=str)
    path.write_bytes(b'{"x": 1}\n')
    with pytest.raises(FormatError, match=r"none: expected tokenpulse request or event lines, found none; line 1"):
        engine.replay(Meter(), str(path), on_pane=str)
    path.write_bytes(b"")
    result = engine.replay(Meter(), str(path), on_pane=pytest.fail)
    assert (result["inputs"][0]["format"], result["first_ns"]) == ("empty", None)


def test_faults_are_named() -> None:
    lines = log(
        {"t_ns": 1, "ev": "gauge", "waiting": -1}, {"t_ns": 1, "ev": "add", "flops": "1"}, {"t_ns": 1, "ev": "count"}
    )
    notices = engine.replay_bytes(Meter(), "log", lines, on_pane=str)["notices"]
    assert [(each["line"], each["reason"], each["message"]) for each in notices] == [
        (1, "bad_value", f"expected waiting between 0 and {2**63 - 1}, got -1"),
        (2, "wrong_type", "expected flops to be a number"),
        (3, "missing_field", "expected a field name"),
    ]


def test_settings_out_of_their_range() -> None:
    for asked, message in (
        ({"every_ns": 0}, "every_ns must be at least 1, got 0"),
        ({"by": ["output_length"]}, "by must be prompt_length and labels, got output_length"),
        ({"by": list("abcdefghi")}, "number of labels must be at most 8, got 9"),
    ):
        with pytest.raises(ValueError, match=message):
            engine.replay_bytes(Meter(), "log", b"", on_pane=str, **asked)  # type: ignore[arg-type]
    columns = {"arrive_ns": np.array([1]), "token_ns": [2], "token_offsets": np.array([0, 1])}
    with pytest.raises(TypeError, match="token_ns must be"):
        engine.replay_columns(Meter(), columns, on_pane=str)


def test_ids_of_lost_requests_are_forgotten() -> None:
    """More requests than the meter has room for, each silent for longer than the ttl: none is refused."""
    meter = Meter(max_requests=2, ttl="1s", windows=["60s"])
    lines = [{"t_ns": 3 * SECOND * n, "ev": "arrive", "id": f"r{n}"} for n in range(40)]
    again = [{"t_ns": 3 * SECOND * 40 + n, "ev": "arrive", "id": f"r{n}"} for n in range(2)]
    result = engine.replay_bytes(meter, "log", log(*lines, *again), on_pane=str)
    reading = meter.snapshot().reading()
    assert result["inputs"][0]["requests"] == 42
    assert reading["rejected"] == {}
    assert reading["all"]["total"]["attempted"] == 42


def test_a_recorded_run_whatever_reads_it() -> None:
    """Alone or on two threads; and a meter of several shards counts the same."""
    path = str(FIXTURES / "run.jsonl.gz")
    readings = []
    for threads, shards in ((1, 1), (2, 1), (2, 3)):
        meter = Meter(kv=KVTracker(), shards=shards)
        engine.replay(meter, path, on_pane=str, threads=threads)
        total = meter.snapshot().reading()["all"]["total"]
        readings.append({name: total[name] for name in ("attempted", "by_status", "output_tokens", "preemptions")})
    assert readings[0]["attempted"] == 320
    assert readings[0]["output_tokens"] == 17_525
    assert readings[1:] == readings[:1] * 2


def test_columns_of_another_tools_file() -> None:
    """Requests that only say when the first and the last token came."""
    columns = {
        "arrive_ns": np.array([0, 5, 7], np.int64),
        "output_tokens": np.array([11, 1, 4], np.int64),
        "first_token_ns": np.array([10, 9, -(2**63)], np.int64),
        "last_token_ns": np.array([60, 9, -(2**63)], np.int64),
        "status": np.array([0, 0, 3], np.uint8),
    }
    meter = Meter()
    result = engine.replay_columns(meter, columns, name="file", format="tool", by=[], on_pane=str)
    assert result["inputs"] == [{"path": "file", "format": "tool", "lines": 3, "requests": 3, "skipped": {}}]
    total = meter.snapshot().reading()["all"]["total"]
    assert total["output_tokens"] == 16
    assert total["by_status"] == {"stop": 2, "error": 1}
    assert (total["latency"]["ttft"].count, total["latency"]["ttft"].sum_ns) == (2, 14)
    assert (total["latency"]["tpot"].sum_ns, total["latency"]["itl"].sum_ns) == (5, 50)
