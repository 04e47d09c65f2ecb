"""What the benchmarks share: the size of a run, latencies, and logs generated the same each time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

SMOKE = os.environ.get("BENCH_SMOKE", "") not in ("", "0")
"""Only see that everything works: small inputs, one short round."""

IN_FLIGHT = 64
MS = 1_000_000
START_NS = 1_000_000_000_000


def pytest_configure(config: pytest.Config) -> None:
    if SMOKE:
        config.option.benchmark_max_time = 0.02
        config.option.benchmark_min_rounds = 1


@pytest.fixture(scope="session")
def rounds() -> int:
    """Rounds of benchmarks that take long."""
    return 1 if SMOKE else 5


def lognormal(n: int) -> NDArray[np.float64]:
    return np.random.default_rng(1).lognormal(np.log(0.05), 0.6, n)


@pytest.fixture(scope="session")
def column() -> NDArray[np.float64]:
    """Latencies in seconds: lognormal, median 50 ms, sigma 0.6."""
    return lognormal(100_000 if SMOKE else 10_000_000)


@pytest.fixture(scope="session")
def million() -> NDArray[np.float64]:
    """A million of the same, at any size of run."""
    return lognormal(1_000_000)


@pytest.fixture(scope="session")
def values() -> list[float]:
    """Values for loops in Python."""
    listed: list[float] = lognormal(1_000 if SMOKE else 100_000).tolist()
    return listed


def write_events(path: Path, size: int) -> None:
    """Event lines of requests decoded together: each step brings every request in flight one token."""
    random = np.random.default_rng(1)
    t, arrived, written = START_NS, 0, 0
    in_flight: dict[int, int] = {}
    with path.open("w") as log:
        while written < size:
            lines: list[str] = []
            while len(in_flight) < IN_FLIGHT:
                prompt, tokens = random.integers(10, 4000), random.integers(1, 400)
                labels = f'{{"tenant":"a{arrived % 4}"}}'
                head = f'{{"t_ns":{t},"id":"req-{arrived}","ev":"arrive"'
                lines.append(f'{head},"prompt_tokens":{prompt},"labels":{labels}}}\n')
                lines.append(f'{{"t_ns":{t + 1000},"id":"req-{arrived}","ev":"schedule"}}\n')
                in_flight[arrived] = int(tokens)
                arrived += 1
            t += int(random.integers(8 * MS, 30 * MS))
            for number, left in list(in_flight.items()):
                lines.append(f'{{"t_ns":{t},"id":"req-{number}","ev":"tokens","k":1}}\n')
                if left == 1:
                    lines.append(f'{{"t_ns":{t + 500},"id":"req-{number}","ev":"end","status":"stop"}}\n')
                    del in_flight[number]
                else:
                    in_flight[number] = left - 1
            written += log.write("".join(lines))
        # Whoever is left would have no E2E yet.
        for number in in_flight:
            log.write(f'{{"t_ns":{t + 500},"id":"req-{number}","ev":"end","status":"length"}}\n')


def write_requests(path: Path, size: int) -> None:
    """Request lines of up to 500 tokens each."""
    random = np.random.default_rng(2)
    arrived, written = 0, 0
    with path.open("w") as log:
        while written < size:
            gaps = random.integers(8 * MS, 30 * MS, random.integers(1, 501))
            gaps[0] = random.integers(10 * MS, 1000 * MS)
            offsets = ",".join(map(str, np.cumsum(gaps).tolist()))
            t = START_NS + 3 * MS * arrived
            written += log.write(
                f'{{"id":"r{arrived}","arrive_ns":{t},"schedule_ns":{t + 1000},"dt_ns":[{offsets}],'
                f'"status":"stop","prompt_tokens":{random.integers(1, 4000)},"labels":{{"tenant":"a"}}}}\n'
            )
            arrived += 1


WRITERS: dict[str, Callable[[Path, int], None]] = {"events": write_events, "requests": write_requests}


@pytest.fixture(scope="session", params=sorted(WRITERS))
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A log of 500 MB, named by its kind; removed when its benchmarks are done."""
    folder = tmp_path_factory.mktemp("logs")
    path = folder / f"{request.param}.jsonl"
    WRITERS[request.param](path, 5_000_000 if SMOKE else 500_000_000)
    yield path
    shutil.rmtree(folder)
