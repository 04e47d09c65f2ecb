"""The reference's KV tracker and caches: settings, misuse, what no list of calls shows. Cases are in the vectors."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tokenpulse.reference import KVTracker, Meter
from tokenpulse.reference.kv import MAX_ENTRIES, splitmix64
from tokenpulse.reference.kv_cache import POLICIES, Curve, Request, SampledCurve, replay

DAY_NS = 86_400 * 10**9


@pytest.mark.parametrize(
    "settings",
    [
        {"remember": -1},
        {"remember": MAX_ENTRIES + 1},
        {"max_blocks": 0},
        {"max_blocks": MAX_ENTRIES + 1},
        {"ttl_ns": 0},
        {"report": "each"},
        {"mode": "half"},
        {"mode": "sampled", "rate": 0.0},
        {"mode": "sampled", "rate": 1.5},
        {"scale": 9},
        {"windows_ns": [90]},
        {"windows_ns": [120, 60]},
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|multiple"):
        KVTracker(**settings)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("store", {"t": 2**63, "hashes": [1]}),
        ("store", {"t": 5, "hashes": [1, 2**64]}),
        ("evict", {"t": 5, "hashes": [-(2**63) - 1]}),
        ("snapshot", {"t": -1}),
        ("snapshot", {"t": 2**63}),
    ],
)
def test_misuse_raises_and_counts_nothing(method: str, arguments: dict[str, Any]) -> None:
    cache = KVTracker()
    with pytest.raises(ValueError, match="must be between"):
        getattr(cache, method)(**arguments)
    assert repr(cache.snapshot()) == repr(KVTracker().snapshot())


@pytest.mark.parametrize("number", [1.5, "7", None])
def test_a_hash_is_a_whole_number(number: Any) -> None:
    with pytest.raises(TypeError):
        KVTracker().store(1, [number])


def test_one_hash_need_not_be_listed() -> None:
    cache = KVTracker()
    cache.store(1, 7)
    cache.evict(2, (7,))
    assert cache.snapshot()["total"]["evicted"] == 1


def test_the_largest_settings() -> None:
    KVTracker(remember=MAX_ENTRIES, max_blocks=MAX_ENTRIES, ttl_ns=2**63 - 1)
    KVTracker(rate=7.0)  # which an exact tracker does not look at
    assert KVTracker(rate=0.5).snapshot()["settings"]["rate"] == 1.0


def test_a_snapshot_is_no_view() -> None:
    cache = KVTracker()
    cache.store(1, [1])
    cache.evict(2, [1])
    before = cache.snapshot()
    text = repr(before)
    cache.store(3, [1])
    cache.evict(4, [1])
    assert repr(before) == text
    assert before["total"]["gap"].count == 0


# In a meter


def test_a_tracker_has_one_meter() -> None:
    cache = KVTracker()
    meter = Meter(kv=cache)
    assert meter.kv is cache
    with pytest.raises(ValueError, match="unused"):
        Meter(kv=cache)


@pytest.mark.parametrize("t", [-1, 5])
def test_a_tracker_that_was_used_has_none(t: int) -> None:
    cache = KVTracker()
    cache.clear(t)
    with pytest.raises(ValueError, match="unused"):
        Meter(kv=cache)


def test_its_windows_are_the_meters() -> None:
    with pytest.raises(ValueError, match="windows must be"):
        Meter(windows_ns=[60], kv=KVTracker(windows_ns=[600]))
    with pytest.raises(ValueError, match="windows must be"):
        Meter(windows_ns=[60], kv=KVTracker(windows_ns=[]))
    for windows_ns in (None, [60]):
        reading = Meter(windows_ns=[60], kv=KVTracker(windows_ns=windows_ns)).snapshot()
        assert [window["width_ns"] for window in reading["kv"]["windows"]] == [60]


def test_a_meter_that_cannot_be_made_leaves_the_tracker_free() -> None:
    cache = KVTracker()
    with pytest.raises(ValueError, match="max_classes"):
        Meter(max_classes=1, kv=cache)
    Meter(kv=cache)


def test_its_sketches_have_the_meters_scale() -> None:
    meter = Meter(scale=4, kv=KVTracker(scale=2))
    assert meter.kv is not None
    assert meter.kv.scale == meter.snapshot()["kv"]["total"]["gap"].scale == 4


# Sampling


def test_a_sample_is_the_whole_of_the_blocks_that_it_follows() -> None:
    """A tracker of a sample comes to what one comes to that is told of the sampled blocks alone."""
    chance = random.Random(8)
    settings: dict[str, Any] = {"remember": 5, "report": "full"}
    sample, alone = KVTracker(mode="sampled", rate=0.3, **settings), KVTracker(**settings)
    followed = 0
    for t in range(3_000):
        words = [chance.randrange(100) for _ in range(3)]
        own = [word for word in words if splitmix64(word) < 0.3 * 2**64]
        followed += len(own)
        method = chance.choice(("store", "store", "evict", "touch"))
        getattr(sample, method)(t, words)
        if own:
            getattr(alone, method)(t, own)
    found, wanted = (tracker.snapshot()["total"] for tracker in (sample, alone))
    assert 1_000 < followed < 5_000
    assert wanted["forgotten"] > 0 < wanted["refilled"]
    parts = found.pop("replicates")
    assert found == {name: figure for name, figure in wanted.items() if name != "replicates"}
    assert sum(part[0] > 0 for part in parts) > 10


# Caches


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_cache_never_holds_more_than_fits(policy: str) -> None:
    chance = random.Random(policy)
    for room in (1, 2, 3, 10, 25):
        blocks = POLICIES[policy](room)
        resident: set[int] = set()
        for _ in range(2_000):
            block = chance.randrange(int(room * 1.5) + 2)
            assert (block in blocks) == (block in resident)
            if block in blocks:
                blocks.hit(block)
                continue
            victim = blocks.store(block)
            assert (victim is None) == (len(resident) < room)
            assert victim is None or victim in resident
            resident = (resident | {block}) - {victim}
            assert len(blocks) == len(resident) <= room


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_with_room_for_all_nothing_goes(policy: str) -> None:
    trace = [Request(t, [t % 7, t % 5]) for t in range(100)]
    everything = replay(trace, None, policy)
    assert everything == replay(trace, 7, policy) | {"blocks": 7}
    assert (everything["hits"], everything["totals"]["evicted"]) == (200 - 7, 0)


def test_lru_hits_as_the_curve_says() -> None:
    chance = random.Random(1)
    references = [int(chance.paretovariate(0.5)) % 60 for _ in range(1_500)]
    curve = Curve(references)
    for blocks in (*range(1, 30), curve.distinct):
        totals = replay([Request(0, references)], blocks)
        assert totals["hits"] == curve.hits(blocks)
        assert totals["totals"]["evicted"] == curve.evicted(blocks)
        assert totals["totals"]["refilled"] == curve.refilled(blocks)


def test_a_sample_of_everything_is_the_curve() -> None:
    references = [(t * t) % 37 for t in range(500)]
    curve, sampled = Curve(references), SampledCurve(references, 1.0)
    assert (sampled.n, sampled.distinct, sampled.surplus) == (curve.n, curve.distinct, 0)
    for blocks in range(1, 50):
        assert sampled.hits(blocks) == curve.hits(blocks)
        assert sampled.evicted(blocks) == curve.evicted(blocks)
        assert sampled.refilled(blocks) == curve.refilled(blocks)


def test_a_day_between_two_requests_is_no_clock_gone_wrong() -> None:
    trace = [Request(t * 2 * DAY_NS, [t % 2]) for t in range(6)]
    assert replay(trace, 1)["totals"]["refilled"] == 4
