"""The KV cache from Python: its events, and traces of blocks, beside what one writes with a dict.

Bar for an event, in batches of 64 with a million blocks remembered: 120 ns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from conftest import SMOKE
from tokenpulse import KVTrace, KVTracker

BATCH = 64
RESIDENT = 100_032
REMEMBERED = 20_000 if SMOKE else 1_000_000
MEASURED = 64_000
ROUNDS = 3
STEP_NS = 1_000_000
MOONCAKE = Path(__file__).parents[2] / "tests/fixtures/mooncake_conversation.jsonl.gz"
BLOCKS = 10_000

Hashes = NDArray[np.uint64]


def churn() -> Iterator[Hashes]:
    """Blocks in the order in which they are stored: three of ten were evicted a while before."""
    random = np.random.default_rng(1)
    recent: Hashes = np.zeros(0, np.uint64)
    while True:
        fresh = random.integers(0, 2**64, BATCH, np.uint64)
        if recent.size >= RESIDENT + 4 * BATCH:
            again = random.random(BATCH) < 0.3
            oldest = recent[: recent.size - RESIDENT]
            fresh[again] = random.choice(oldest, int(again.sum()), replace=False)
        yield fresh
        recent = np.concatenate([recent[-2 * RESIDENT :], fresh])


class Followed:
    """A `KVTracker`."""

    NAME = "tokenpulse"

    def __init__(self) -> None:
        self.tracker = KVTracker(remember=REMEMBERED, ttl="100h", report="full")

    def store(self, t: int, hashes: Any) -> None:
        self.tracker.store(t, hashes)

    def evict(self, t: int, hashes: Any) -> None:
        self.tracker.evict(t, hashes)

    def column(self, hashes: Hashes) -> Any:
        return hashes

    def counts(self) -> tuple[int, int, int]:
        snapshot = self.tracker.snapshot()
        return snapshot.evicted, snapshot.refilled, snapshot.forgotten


class Dicts:
    """What one writes by hand: a dict of what is resident and one of what is remembered; it measures no time."""

    NAME = "dict and OrderedDict"

    def __init__(self) -> None:
        self.resident: dict[int, int] = {}
        self.remembered: OrderedDict[int, int] = OrderedDict()
        self.evicted = self.refilled = self.forgotten = 0

    def store(self, t: int, hashes: list[int]) -> None:
        resident, remembered = self.resident, self.remembered
        for block in hashes:
            if block not in resident:
                resident[block] = t
                if remembered.pop(block, None) is not None:
                    self.refilled += 1

    def evict(self, t: int, hashes: list[int]) -> None:
        resident, remembered = self.resident, self.remembered
        for block in hashes:
            if resident.pop(block, None) is not None:
                self.evicted += 1
                remembered[block] = t
                if len(remembered) > REMEMBERED:
                    remembered.popitem(last=False)
                    self.forgotten += 1

    def column(self, hashes: Hashes) -> Any:
        return hashes.tolist()

    def counts(self) -> tuple[int, int, int]:
        return self.evicted, self.refilled, self.forgotten


Subject = Followed | Dicts


def calls(subject: Subject, stored: list[Hashes]) -> list[tuple[Callable[..., None], int, Any]]:
    """Stores, and evictions of what was stored a whole cache before."""
    lag = RESIDENT // BATCH
    listed = []
    for at, hashes in enumerate(stored):
        listed.append((subject.store, STEP_NS * at, subject.column(hashes)))
        if at >= lag:
            listed.append((subject.evict, STEP_NS * at, subject.column(stored[at - lag])))
    return listed


def take(listed: list[tuple[Callable[..., None], int, Any]]) -> None:
    for call, t, hashes in listed:
        call(t, hashes)


@pytest.fixture(scope="module")
def stored() -> list[Hashes]:
    """What fills the memory twice over, and what is measured after it."""
    generator = churn()
    return [next(generator) for _ in range((RESIDENT + 2 * REMEMBERED + ROUNDS * MEASURED) // BATCH)]


@pytest.fixture(scope="module")
def expected(stored: list[Hashes]) -> tuple[int, int, int]:
    """What each subject must have counted in the end."""
    subject = Dicts()
    take(calls(subject, stored))
    return subject.counts()


@pytest.mark.benchmark(group="kv: an event, in batches of 64")
@pytest.mark.parametrize("make", [Followed, Dicts], ids=lambda make: make.__name__.lower())
def test_events(
    benchmark: Any, stored: list[Hashes], expected: tuple[int, int, int], make: Callable[[], Subject]
) -> None:
    subject = make()
    listed = iter(calls(subject, stored))
    measured = 2 * MEASURED // BATCH
    take(list(islice(listed, 2 * (len(stored) - RESIDENT // BATCH) + RESIDENT // BATCH - ROUNDS * measured)))
    benchmark.extra_info.update(values=2 * MEASURED, unit="event", peer=subject.NAME)
    benchmark.pedantic(take, setup=lambda: ((list(islice(listed, measured)),), {}), rounds=ROUNDS)
    take(list(listed))
    assert subject.counts() == expected
    assert expected[2] > 0


def ordered_dict(references: list[int]) -> int:
    """The hits of an LRU cache, the way that one writes it in a line or two."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for block in references:
        if block in cache:
            cache.move_to_end(block)
            hits += 1
        else:
            cache[block] = None
            if len(cache) > BLOCKS:
                cache.popitem(last=False)
    return hits


@pytest.fixture(scope="module")
def trace() -> KVTrace:
    return KVTrace.read(MOONCAKE)


@pytest.fixture(scope="module")
def references() -> list[int]:
    import gzip
    import json

    with gzip.open(MOONCAKE) as lines:
        return list(chain.from_iterable(json.loads(line)["hash_ids"] for line in lines))


@pytest.mark.benchmark(group="kv: a reference, trace through one LRU cache")
def test_replay(benchmark: Any, trace: KVTrace, references: list[int]) -> None:
    benchmark.extra_info.update(values=len(references), unit="reference", peer="tokenpulse, refills and gaps too")
    report = benchmark.pedantic(lambda: trace.replay(BLOCKS), rounds=1 if SMOKE else 15)
    assert report.to_dict()["hits"] == ordered_dict(references)


@pytest.mark.benchmark(group="kv: a reference, trace through one LRU cache")
def test_replay_by_hand(benchmark: Any, references: list[int]) -> None:
    benchmark.extra_info.update(values=len(references), unit="reference", peer="OrderedDict, hits alone")
    assert benchmark.pedantic(lambda: ordered_dict(references), rounds=1 if SMOKE else 5) > 0


@pytest.mark.benchmark(group="kv: a reference, the curve over all sizes")
def test_curve(benchmark: Any, trace: KVTrace, references: list[int]) -> None:
    benchmark.extra_info.update(values=len(references), unit="reference", peer="tokenpulse")
    curve = benchmark.pedantic(lambda: trace.curve([BLOCKS]), rounds=1 if SMOKE else 7)
    at = next(point for point in curve.to_dict()["points"] if point["blocks"] == BLOCKS)
    assert at["hits"] == ordered_dict(references)


@pytest.mark.benchmark(group="kv: a reference, the curve over all sizes")
def test_curve_sampled(benchmark: Any, trace: KVTrace, references: list[int]) -> None:
    benchmark.extra_info.update(values=len(references), unit="reference", peer="tokenpulse, a block in a hundred")
    curve = benchmark.pedantic(lambda: trace.curve([BLOCKS], rate=0.01), rounds=1 if SMOKE else 7)
    at = next(point for point in curve.to_dict()["points"] if point["blocks"] == BLOCKS)
    assert abs(at["hits"] - ordered_dict(references)) < 0.1 * len(references)
