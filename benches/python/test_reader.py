"""A report of a long log, beside loops in Python over `orjson.loads` that form the same sums only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from typing import Any

import orjson
import pytest

import tokenpulse

MEMORY_LIMIT = 150_000_000


@dataclass(frozen=True)
class Sums:
    """Sums in nanoseconds; the least and the greatest gap only where they were looked for."""

    requests: int
    tokens: int
    ttft: int
    itl: int
    e2e: int
    gaps: int
    least: int | None = None
    greatest: int | None = None


def events_loop(path: Path) -> Sums:
    requests = tokens = ttft = itl = e2e = gaps = 0
    in_flight: dict[str, list[Any]] = {}
    loads = orjson.loads
    with path.open("rb") as log:
        for line in log:
            event = loads(line)
            kind = event["ev"]
            if kind == "tokens":
                request = in_flight.get(event["id"])
                if request is not None:
                    t = event["t_ns"]
                    tokens += event.get("k", 1)
                    arrive, last = request
                    if last is None:
                        ttft += t - arrive
                    else:
                        itl += t - last
                        gaps += 1
                    request[1] = t
            elif kind == "arrive":
                in_flight[event["id"]] = [event["t_ns"], None]
                requests += 1
            elif kind == "end":
                request = in_flight.pop(event["id"], None)
                if request is not None and request[1] is not None:
                    e2e += request[1] - request[0]
    return Sums(requests, tokens, ttft, itl, e2e, gaps)


def requests_loop_over_gaps(path: Path) -> Sums:
    """Forms every gap, as the report must: with the quickest idiom that the language has for it."""
    requests = tokens = ttft = itl = e2e = gaps = 0
    least, greatest = sys.maxsize, -1
    loads = orjson.loads
    with path.open("rb") as log:
        for line in log:
            offsets = loads(line)["dt_ns"]
            requests += 1
            if offsets:
                tokens += len(offsets)
                ttft += offsets[0]
                e2e += offsets[-1]
                between = list(map(sub, offsets[1:], offsets))
                if between:
                    gaps += len(between)
                    itl += sum(between)
                    least = min(least, min(between))
                    greatest = max(greatest, max(between))
    return Sums(requests, tokens, ttft, itl, e2e, gaps, least, greatest)


def requests_loop_telescoped(path: Path) -> Sums:
    """Looks at no gap: their sum is the last offset less the first."""
    requests = tokens = ttft = itl = e2e = gaps = 0
    loads = orjson.loads
    with path.open("rb") as log:
        for line in log:
            offsets = loads(line)["dt_ns"]
            requests += 1
            if offsets:
                tokens += len(offsets)
                ttft += offsets[0]
                e2e += offsets[-1]
                itl += offsets[-1] - offsets[0]
                gaps += len(offsets) - 1
    return Sums(requests, tokens, ttft, itl, e2e, gaps)


PEERS: dict[str, dict[str, Callable[[Path], Sums]]] = {
    "events": {"orjson": events_loop},
    "requests": {
        "orjson, every gap": requests_loop_over_gaps,
        "orjson, telescoped": requests_loop_telescoped,
    },
}


def reported(path: Path, *, extremes: bool = True) -> Sums:
    report = tokenpulse.report(path)
    assert report.unusable == 0
    ttft, itl, e2e = (report.latency[metric] for metric in ("ttft", "itl", "e2e"))
    assert ttft is not None
    assert itl is not None
    assert e2e is not None
    least, greatest = (round(itl[end] * 1e9) for end in ("min", "max"))
    return Sums(
        report.requests["attempted"],
        report.tokens["output"],
        ttft["sum_ns"],
        itl["sum_ns"],
        e2e["sum_ns"],
        itl["count"],
        least if extremes else None,
        greatest if extremes else None,
    )


def measure(benchmark: Any, path: Path, function: Callable[[], Sums], rounds: int, peer: str = "") -> Sums:
    benchmark.group = f"report of {path.stem}"
    size = path.stat().st_size
    benchmark.extra_info.update(values=size, unit="byte", peer=peer)
    sums: Sums = benchmark.pedantic(function, rounds=rounds)
    assert sums.tokens > sums.requests > 0
    return sums


def test_tokenpulse(benchmark: Any, log: Path, rounds: int) -> None:
    measure(benchmark, log, lambda: reported(log), rounds)


@pytest.mark.parametrize("which", [0, 1])
def test_orjson(benchmark: Any, log: Path, which: int, rounds: int) -> None:
    peers = list(PEERS[log.stem].items())
    if which >= len(peers):
        pytest.skip("one peer is enough: event lines have no gaps to telescope")
    name, loop = peers[which]
    sums = measure(benchmark, log, lambda: loop(log), max(1, rounds // 2), name)
    assert sums == reported(log, extremes=sums.least is not None)


def test_memory(log: Path) -> None:
    """The whole command's peak, read by a small parent: a child inherits the peak of what it forked from."""
    watch = (
        "import resource, subprocess, sys;"
        "subprocess.run(sys.argv[1:], check=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"
    )
    command = [sys.executable, "-c", watch, sys.executable, "-m", "tokenpulse", "report", str(log), "--json"]
    watched = subprocess.run(command, check=True, capture_output=True, text=True)
    assert orjson.loads(watched.stdout)["requests"]["attempted"] > 0
    # macOS counts bytes, Linux KiB.
    peak = int(watched.stderr) * (1 if sys.platform == "darwin" else 1024)
    print(f"peak memory of a report of {log.stem}: {peak / 1e6:.1f} MB")
    assert 5_000_000 < peak < MEMORY_LIMIT
