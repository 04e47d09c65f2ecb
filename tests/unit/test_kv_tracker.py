"""`tokenpulse.KVTracker` as an engine calls it: what it takes, what it refuses, and what a snapshot says."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from columns import FORMS

from tokenpulse import DecodeError, KVSnapshot, KVTracker, Meter, Snapshot

S = 1_000_000_000


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("n", [0, 1, 3, 200])
def test_hashes_come_in_every_form(form: Callable[[list[int]], Any], n: int) -> None:
    tracker = KVTracker()
    hashes = list(range(n))
    tracker.store(1, form(hashes))
    tracker.touch(2, form(hashes))
    tracker.evict(3, form(hashes))
    tracker.store(4, form(hashes))
    counts = tracker.snapshot().total.counts
    assert [counts[name] for name in ("stored", "touched", "evicted", "refilled")] == [2 * n, n, n, n]
    assert tracker.snapshot().rejected == {}
    assert tracker.snapshot().resident == {"gpu": n, "cpu": 0, "disk": 0, "remote": 0}


@pytest.mark.parametrize("one", [int, np.int64, np.uint64, np.asarray], ids=["int", "int64", "uint64", "0-d"])
def test_a_single_hash(one: Callable[[int], Any]) -> None:
    tracker = KVTracker()
    tracker.store(1, one(7))
    tracker.evict(2, one(7))
    assert tracker.snapshot().evicted == 1


def test_a_negative_hash_is_its_two_s_complement() -> None:
    tracker = KVTracker()
    tracker.store(1, [-1, -(2**63)])
    tracker.evict(2, np.array([2**64 - 1, 2**63], dtype=np.uint64))
    tracker.store(3, np.array([-1], dtype=np.int32))
    snapshot = tracker.snapshot()
    assert (snapshot.evicted, snapshot.refilled, snapshot.rejected) == (2, 1, {})


def test_a_block_lives_and_returns() -> None:
    tracker = KVTracker()
    tracker.store(1 * S, [1, 2, 3])
    tracker.touch(3 * S, 2)
    tracker.lookup(3 * S, 100, 64)
    tracker.lookup(4 * S, queried_tokens=50, hit_tokens=10, preempted=True)
    tracker.evict(5 * S, [1, 2])
    tracker.store(9 * S, [2])
    now = tracker.snapshot(11 * S)
    assert (now.evicted, now.refilled, now.forgotten, now.refill_rate) == (2, 1, 0, (0.5, 0.5))
    assert (now.blocks, now.remembered, now.hit_rate, now.total.rehit_rate) == (2, 1, 0.64, 0.2)
    assert (now.lifetime.count, now.lifetime.max, now.idle.min, now.idle.max) == (2, 4.0, 2.0, 4.0)
    assert (now.gap.count, now.gap.max) == (1, 4.0)
    assert now.total.lookups == {"n": 1, "queried": 100, "hit": 64}
    assert now.total.relookups == {"n": 1, "queried": 50, "hit": 10}
    assert (now.t_ns, now.total.true_width, now.total.eviction_rate) == (11 * S, 10.0, 0.2)
    narrow = now.window("15s")
    assert narrow.spike is not None
    assert (narrow.spike.start_ns, narrow.spike.evicted) == (5 * S, 2)
    assert list(now.windows) == ["15s", "1m", "5m", "1h"]
    past = tracker.snapshot(6 * S)
    assert (past.window("15s").evicted, past.window("15s").refilled, past.evicted) == (2, 0, 2)


def test_a_window_leaves_what_is_old() -> None:
    tracker = KVTracker(windows="1m")
    tracker.store(1 * S, range_of(10))
    tracker.evict(2 * S, range_of(10))
    tracker.store(100 * S, range_of(4))
    now = tracker.snapshot(100 * S)
    assert list(now.windows) == ["1m"]
    view = now.window(60)
    assert (view.evicted, view.refilled, view.refill_rate) == (0, 4, (None, None))
    assert now.refill_rate == (0.4, 0.4)
    assert (view.gap.count, now.gap.max) == (4, 98.0)


def range_of(n: int) -> list[int]:
    return list(range(n))


def test_what_is_forgotten_widens_the_interval() -> None:
    tracker = KVTracker(remember=3)
    tracker.store(1, range_of(5))
    tracker.evict(2, range_of(5))
    tracker.store(3, [0, 4])
    now = tracker.snapshot()
    assert (now.evicted, now.refilled, now.forgotten, now.remembered) == (5, 1, 2, 2)
    assert now.refill_rate == (0.2, 0.6)
    aged = KVTracker(ttl="10s")
    aged.store(0, [1])
    aged.evict(1 * S, [1])
    aged.store(12 * S, [1])
    assert (aged.snapshot().refilled, aged.snapshot().forgotten) == (0, 1)
    none = KVTracker(remember=0)
    none.store(0, [1])
    none.evict(1, [1])
    assert none.snapshot().refill_rate == (0.0, 1.0)


def test_copies_and_full_differ() -> None:
    evicted = {}
    for report in ("copies", "full"):
        tracker = KVTracker(report=report)
        tracker.store(1, [1])
        tracker.store(2, [1])
        tracker.evict(3, [1])
        first = tracker.snapshot().evicted
        tracker.evict(4, [1])
        evicted[report] = (first, tracker.snapshot().evicted, tracker.snapshot().rejected)
    assert evicted == {"copies": (0, 1, {}), "full": (1, 1, {"unknown": 1})}


def test_tiers_and_groups() -> None:
    tracker = KVTracker()
    tracker.store(1, [7])
    tracker.store(2, [7], "cpu")
    tracker.evict(3, [7], tier="gpu")
    tracker.store(4, [7])
    tracker.store(5, [7], "gpu", 3)
    now = tracker.snapshot()
    assert (now.total.counts["offloaded"], now.onloaded, now.evicted, now.total.counts["released"]) == (1, 1, 0, 1)
    assert (now.resident, now.blocks) == ({"gpu": 2, "cpu": 1, "disk": 0, "remote": 0}, 2)
    tracker.clear(6)
    now = tracker.snapshot()
    assert (now.blocks, now.evicted, now.total.counts["cleared"]) == (0, 0, 1)


def test_what_is_refused_is_counted() -> None:
    tracker = KVTracker(max_blocks=2)
    tracker.store(-1, [1, 2])
    tracker.store(1, [1, 2, 3])
    tracker.store(1, [1], "hbm")
    tracker.store(1, [1, 2], group=4096)
    tracker.touch(1, [9])
    tracker.lookup(1, 5, 6)
    tracker.lookup(1, 2**70, 0)
    tracker.lookup(1, -1, -1)
    tracker.clear(2 * 86_400 * S)
    tracker.evict(2, [], "nowhere")
    now = tracker.snapshot()
    assert now.rejected == {"negative": 2, "future": 1, "tier": 1, "invalid": 5, "full": 1, "unknown": 1}
    assert now.total.counts["stored"] == 2


COLUMN = "must be an int, a list or a tuple of ints, or a 1-D buffer of integers, got"

MISUSE: list[tuple[str, Callable[[KVTracker], Any], type[Exception], str]] = [
    ("float hash", lambda k: k.store(1, 1.5), TypeError, f"hashes {COLUMN} float"),
    ("text hash", lambda k: k.evict(1, "abc"), TypeError, f"hashes {COLUMN} str"),
    ("bytes hash", lambda k: k.touch(1, b"abc"), TypeError, f"hashes {COLUMN} bytes"),
    ("no hash", lambda k: k.store(1, None), TypeError, f"hashes {COLUMN} NoneType"),
    ("floats", lambda k: k.store(1, np.ones(2)), TypeError, f'hashes {COLUMN} elements of type "d"'),
    ("list", lambda k: k.store(1, [0, "a"]), TypeError, "hashes must be ints, got str at position 1"),
    ("2-D", lambda k: k.store(1, np.ones((2, 2), int)), ValueError, "hashes must be one-dimensional, got 2 dimensions"),
    ("text t", lambda k: k.store("x", 0), TypeError, "t must be an int"),
    ("float t", lambda k: k.lookup(1.0, 1, 1), TypeError, "t must be an int"),
    ("tier", lambda k: k.store(1, [1], 0), TypeError, "'str'"),
    ("tokens", lambda k: k.lookup(1, 1.5, 1), TypeError, "queried_tokens"),
]


@pytest.mark.parametrize(("call", "error", "text"), [case[1:] for case in MISUSE], ids=[case[0] for case in MISUSE])
def test_misuse_is_raised_and_changes_nothing(
    call: Callable[[KVTracker], Any], error: type[Exception], text: str
) -> None:
    tracker = KVTracker()
    with pytest.raises(error) as raised:
        call(tracker)
    assert text in str(raised.value)
    assert tracker.snapshot().reading() == KVTracker().snapshot().reading()


@pytest.mark.parametrize("wrong", [2**64, -(2**63) - 1, 2**70])
def test_a_hash_beyond_64_bits(wrong: int) -> None:
    tracker = KVTracker()
    with pytest.raises((ValueError, OverflowError)):
        tracker.store(1, [1, wrong])
    assert tracker.snapshot().blocks == 0


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"remember": -1}, "remember must be between 0 and"),
        ({"remember": 2**26}, "remember must be between 0 and"),
        ({"max_blocks": 0}, "max_blocks must be between 1 and"),
        ({"ttl": "0s"}, "a duration must be"),
        ({"ttl": "soon"}, "a duration must be"),
        ({"report": "some"}, "copies or full"),
        ({"mode": "approximate"}, "exact or sampled"),
        ({"mode": "sampled", "rate": 0.0}, "above 0 and at most 1"),
        ({"mode": "sampled", "rate": 1.5}, "above 0 and at most 1"),
        ({"mode": "sampled", "rate": math.nan}, "above 0 and at most 1"),
        ({"rate": 0}, "rate must be above 0 and at most 1, got 0"),
        ({"mode": "exact", "rate": 1.5}, "rate must be above 0 and at most 1, got 1.5"),
        ({"ttl": 0}, "ttl: a duration must be between .*, got 0"),
        ({"windows": 0}, "windows: a duration must be between .*, got 0"),
        ({"windows": ("1m", "15s")}, "a multiple of the one before it"),
        ({"windows": ("7ns",)}, "window width"),
        ({"scale": 9}, "scale must be between 0 and 8, got 9"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        KVTracker(**settings)


def test_settings_are_told() -> None:
    tracker = KVTracker(remember=5, ttl=60, report="full", mode="sampled", rate=0.5, windows=("1m", 3600), max_blocks=9)
    assert (tracker.remember, tracker.ttl_ns, tracker.report, tracker.mode) == (5, 60 * S, "full", "sampled")
    assert (tracker.rate, tracker.windows_ns, tracker.max_blocks, tracker.scale) == (0.5, [60 * S, 3600 * S], 9, 6)
    assert tracker.snapshot().settings == {
        "remember": 5,
        "ttl_ns": 60 * S,
        "report": "full",
        "mode": "sampled",
        "rate": 0.5,
        "max_blocks": 9,
    }
    assert tracker.snapshot().sample_rate == 0.5
    plain = KVTracker()
    assert (plain.remember, plain.ttl_ns, plain.report, plain.mode) == (1_000_000, 1800 * S, "copies", "exact")
    assert list(plain.snapshot().windows) == ["15s", "1m", "5m", "1h"]
    assert KVTracker(windows=()).snapshot().windows == {}
    with pytest.raises(AttributeError):
        tracker.anything = 1  # type: ignore[attr-defined]


# Snapshots


def busy(seed: int = 1, **settings: Any) -> KVTracker:
    """A tracker with something of everything."""
    tracker = KVTracker(**settings)
    hashes = np.random.default_rng(seed).integers(0, 2**64, 600, dtype=np.uint64)
    for second in range(60):
        some = hashes[second * 7 : second * 7 + 40]
        tracker.store(second * S, some)
        tracker.lookup(second * S, 640, 64)
        tracker.evict(second * S + 5, some[::2])
        tracker.evict(second * S + 6, some[:3], "cpu")
    return tracker


@pytest.mark.parametrize("settings", [{}, {"mode": "sampled", "rate": 0.3}, {"windows": ()}], ids=str)
def test_a_snapshot_travels(settings: dict[str, Any]) -> None:
    snapshot = busy(**settings).snapshot()
    encoded = snapshot.to_bytes()
    assert KVSnapshot.from_bytes(encoded) == snapshot
    assert KVSnapshot.from_bytes(encoded).to_bytes() == encoded
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot
    assert copy.deepcopy(snapshot) == snapshot
    told = snapshot.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert snapshot.to_dict() == KVSnapshot.from_bytes(encoded).to_dict()


def test_bytes_that_are_none() -> None:
    encoded = busy().snapshot().to_bytes()
    for wrong in (b"", b"nonsense", encoded[:-1], encoded + b"x", Meter().snapshot().to_bytes()):
        with pytest.raises(DecodeError):
            KVSnapshot.from_bytes(wrong)


def test_snapshots_of_several_caches_add_up() -> None:
    one, two = busy(1), busy(2)
    both = one.snapshot() + two.snapshot()
    assert both == KVSnapshot.merge([two.snapshot(), one.snapshot()])
    for name in ("evicted", "refilled", "forgotten", "blocks", "remembered"):
        assert getattr(both, name) == getattr(one.snapshot(), name) + getattr(two.snapshot(), name)
    assert both.gap.sum_ns == one.snapshot().gap.sum_ns + two.snapshot().gap.sum_ns
    assert both.window("1m").evicted == both.evicted
    assert sum(pane.evicted for pane in both.window("1m").panes) == both.evicted
    assert len(both.window("1m").panes) == 60
    assert (one.snapshot() + KVTracker().snapshot()).total.counts == one.snapshot().total.counts
    with pytest.raises(ValueError, match="window"):
        _ = one.snapshot() + busy(windows="1m").snapshot()
    with pytest.raises(TypeError):
        _ = one.snapshot() + 1  # type: ignore[operator]


def test_what_may_differ_between_snapshots() -> None:
    first = KVTracker().snapshot()
    for settings in ({"remember": 5}, {"ttl": "1m"}, {"max_blocks": 5}):
        other = KVTracker(**settings).snapshot()  # type: ignore[arg-type]
        assert (first + other).settings == first.settings
        assert (other + first).settings == other.settings != first.settings
    for settings in ({"report": "full"}, {"mode": "sampled"}, {"windows": ["1m"]}, {"scale": 5}):
        with pytest.raises(ValueError, match="must be the same"):
            first + KVTracker(**settings).snapshot()  # type: ignore[arg-type]


def test_the_only_cache_of_two_meters_is_kept() -> None:
    with_cache, without = Meter(kv=KVTracker()), Meter()
    with_cache.kv.store(S, [1])
    for one, other in ((with_cache, without), (without, with_cache)):
        kv = (one.snapshot() + other.snapshot()).kv
        assert kv is not None
        assert kv.blocks == 1


def test_a_merged_sample_has_its_replicates_added() -> None:
    sampled = [busy(seed, mode="sampled", rate=0.3).snapshot() for seed in (1, 2)]
    both = sampled[0] + sampled[1]
    replicates = [one.reading()["total"]["replicates"] for one in (*sampled, both)]
    for mine, theirs, added in zip(*replicates, strict=True):
        assert [a + b for a, b in zip(mine, theirs, strict=True)] == added
    assert both.confidence is not None
    with pytest.raises(ValueError, match=r"rate|mode|sampl"):
        _ = sampled[0] + busy().snapshot()


def test_reading_changes_nothing() -> None:
    tracker = busy()
    before = tracker.snapshot().reading()
    for t in (0, 30 * S, 10_000 * S):
        tracker.snapshot(t)
    assert tracker.snapshot().reading() == before


# The sample


def test_a_sample_is_a_share_and_covers_the_truth() -> None:
    rng = np.random.default_rng(11)
    hashes = rng.integers(0, 2**64, 40_000, dtype=np.uint64)
    back = hashes[rng.random(40_000) < 0.3]
    exact, sampled = KVTracker(), KVTracker(mode="sampled", rate=0.1)
    for tracker in (exact, sampled):
        tracker.store(1, hashes)
        tracker.evict(2, hashes)
        tracker.store(3, back)
        tracker.lookup(4, 10, 5)
    truth, sample = exact.snapshot(), sampled.snapshot()
    assert truth.confidence is None
    assert sample.evicted == pytest.approx(4000, rel=0.06)
    assert sample.total.estimated["evicted"] == pytest.approx(40_000, rel=0.06)
    assert sample.total.lookups["n"] == 1
    assert sample.confidence is not None
    low, high = sample.confidence
    assert low is not None
    assert high is not None
    assert truth.refill_rate[0] is not None
    assert low < truth.refill_rate[0] < high
    assert high - low < 0.06
    whole = KVTracker(mode="sampled", rate=1.0)
    whole.store(1, hashes)
    whole.evict(2, hashes)
    whole.store(3, back)
    assert whole.snapshot().evicted == truth.evicted
    assert whole.snapshot().confidence == truth.refill_rate


# In a meter


def test_a_tracker_in_a_meter() -> None:
    tracker = KVTracker()
    meter = Meter("ttft=1s,tpot=1s", kv=tracker)
    assert meter.kv is tracker
    assert meter.kv is not None
    assert meter.snapshot().kv is not None
    handle = meter.arrive(1 * S, 5)
    meter.kv.store(2 * S, [1, 2])
    tracker.evict(3 * S, [1])
    meter.step(4 * S, handle)
    tracker.store(5 * S, [1])
    snapshot = meter.snapshot()
    assert snapshot.t_ns == 5 * S
    assert snapshot.kv is not None
    assert (snapshot.kv.t_ns, snapshot.kv.evicted, snapshot.kv.refill_rate) == (5 * S, 1, (1.0, 1.0))
    assert snapshot.kv == tracker.snapshot()
    assert snapshot.kv.window("15s").evicted == 1
    assert list(snapshot.kv.windows) == list(snapshot.windows)
    assert snapshot.to_dict()["kv"]["total"]["counts"]["stored"] == 3
    assert snapshot.reading()["kv"] == snapshot.kv.reading()
    assert snapshot.rejected == {}
    tracker.store(6 * S, [1], "hbm")
    assert meter.snapshot().rejected == {}
    assert tracker.snapshot().rejected == {"tier": 1}
    again = Snapshot.from_bytes(meter.snapshot().to_bytes())
    assert again == meter.snapshot()
    assert again.kv == tracker.snapshot()
    merged = again + again
    assert merged.kv is not None
    assert merged.kv.evicted == 2


def test_a_meter_without_a_tracker() -> None:
    meter = Meter()
    assert meter.kv is None
    assert meter.snapshot().kv is None
    assert meter.snapshot().to_dict()["kv"] is None
    assert meter.snapshot().reading()["kv"] is None


def test_a_meter_s_windows_are_its_trackers() -> None:
    meter = Meter(windows=("6s", "1m"), kv=KVTracker())
    assert meter.kv is not None
    meter.kv.store(1, [1])
    assert list(meter.kv.snapshot().windows) == ["6s", "1m"]
    Meter(windows=("6s", "1m"), kv=KVTracker(windows=("6s", "1m")))
    with pytest.raises(ValueError, match="windows"):
        Meter(windows=("6s", "1m"), kv=KVTracker(windows="1m"))
    assert list(Meter(windows=(), kv=KVTracker()).kv.snapshot().windows) == []  # type: ignore[union-attr]


def test_a_meter_refuses_a_tracker_that_was_used() -> None:
    used = KVTracker()
    used.store(1, [1])
    with pytest.raises(ValueError, match="used"):
        Meter(kv=used)
    refused_only = KVTracker()
    refused_only.store(1, [1], "hbm")
    with pytest.raises(ValueError, match="used"):
        Meter(kv=refused_only)
    bound = KVTracker()
    Meter(kv=bound)
    with pytest.raises(ValueError, match=r"another meter|used|bound"):
        Meter(kv=bound)
    with pytest.raises(TypeError):
        Meter(kv="tracker")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Meter(kv=Meter())  # type: ignore[arg-type]


def test_a_tracker_that_a_meter_refuses_stays_as_it_was() -> None:
    tracker = KVTracker()
    with pytest.raises(ValueError, match="max_classes"):
        Meter(max_classes=1, kv=tracker)
    tracker.store(1, [1])
    assert tracker.snapshot().blocks == 1


def test_tracker_and_meter_outlive_each_other() -> None:
    meter = Meter(kv=KVTracker())
    tracker = meter.kv
    assert tracker is not None
    tracker.store(1, [1])
    del meter
    tracker.store(2, [2])
    assert tracker.snapshot().blocks == 2


def test_in_a_meter_the_horizon_is_shared() -> None:
    meter = Meter(kv=KVTracker())
    assert meter.kv is not None
    meter.kv.store(10 * S, [1])
    meter.gauge(3 * 86_400 * S, running=1)
    assert meter.snapshot().rejected == {"future": 1}
    meter.kv.store(3 * 86_400 * S, [2])  # the second such call in a row is believed
    assert meter.snapshot().t_ns == 3 * 86_400 * S
    assert meter.kv.snapshot().rejected == {}
    meter.kv.store(20 * S, [3, 4])
    snapshot = meter.snapshot()
    assert snapshot.window("1h").late == 2
    assert snapshot.kv is not None
    assert snapshot.kv.window("1h").late == 2
    assert snapshot.kv.total.counts["stored"] == 4


def test_reports_are_named(tmp_path: Any) -> None:  # noqa: ARG001
    text = repr(busy().snapshot())
    assert text.startswith("<tokenpulse.KVSnapshot t=59.000 s: ")
    assert repr(busy().snapshot().total).startswith("<tokenpulse.KVView of 59 s: ")


def test_settings_may_be_given_in_order() -> None:
    tracker = KVTracker(7, "5s", "full", "sampled", 0.5, ["1m"])
    assert (tracker.remember, tracker.ttl_ns, tracker.report) == (7, 5 * S, "full")
    assert (tracker.mode, tracker.rate, tracker.windows_ns) == ("sampled", 0.5, [60 * S])
