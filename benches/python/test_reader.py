"""Reports of long logs, beside what others need for the same sums only; each on one core and on two.

Every reading is made by a process that has so many cores and no more, and says what its memory came to.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from readings import ON_ONE_CORE_ONLY, READINGS, Read, Reader

MEMORY_LIMIT = 100_000_000
CORES = [cores for cores in (1, 2) if cores <= (os.cpu_count() or 1)]
NAMES = list(dict.fromkeys(name for readings in READINGS.values() for name in readings))
BY = [
    pytest.param(name, cores, id=f"{name}-{cores}")
    for cores in CORES
    for name in NAMES
    if cores == 1 or not name.startswith(ON_ONE_CORE_ONLY)
]


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """The sums of each log, as the first one found them."""
    return {}


@pytest.mark.parametrize(("name", "cores"), BY)
def test_reading(benchmark: Any, log: Path, name: str, cores: int, rounds: int, expected: dict[str, Any]) -> None:
    if name not in READINGS[log.stem]:
        pytest.skip("event lines have their gaps formed by all")
    benchmark.group = f"report of {log.stem}, {cores} core{'s' * (cores > 1)}"
    size = log.stat().st_size
    reader = Reader(name, log.stem, cores)
    try:
        first = reader.read(log)  # brings in the file and the code
        found: Read = benchmark.pedantic(
            lambda: reader.read(log), rounds=rounds if name == "tokenpulse" else max(1, rounds // 2)
        )
    finally:
        reader.close()
    benchmark.extra_info.update(values=size, unit="byte", peer="" if name == "tokenpulse" else name, bytes=found.peak)
    assert found.sums == first.sums
    assert found.sums.agree(expected.setdefault(log.stem, found.sums))
    assert found.sums.tokens > found.sums.requests > 0
    if name == "tokenpulse":
        print(f"peak memory of a report of {log.stem} on {cores}: {found.peak / 1e6:.1f} MB")
        assert 5_000_000 < found.peak < MEMORY_LIMIT
