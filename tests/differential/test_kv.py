"""Streams of calls of a KV-cache tracker, alone and in a meter: the core and the reference come to the same reading.

Blocks are few, and so are those that may be resident or remembered, so that forgetting, refills, onloads and refusals
happen all the time; the busy streams make sure that they did.
"""

from __future__ import annotations

import array
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from agreement import differences
from caches import CACHES, CoreCache, ReferenceCache
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from meters import Call, comparable
from recordings import FIXTURES, kv_calls, recorded_calls
from streams import METHODS, NARROW, calls_of, method, reading_times, settings_of_meters

import tokenpulse
from tokenpulse import engine
from tokenpulse.model import DAY_NS
from tokenpulse.reference import KVTracker
from tokenpulse.reference.kv import COUNTS, FATES, LOOKUPS, REASONS, splitmix64

SECOND = 10**9

# Half of these are followed by a sample of a half; -1 and 2^64 - 1 are one.
POOL = (0, 1, 2, 3, 4, 5, -1, 2**64 - 1, 2**63)
hashes = st.lists(st.sampled_from(POOL), max_size=5)
tiers = st.sampled_from(("gpu",) * 12 + ("cpu",) * 5 + ("disk", "disk", "remote", "tape"))
groups = st.sampled_from((0,) * 30 + (1,) * 6 + (4095, 4096, -1))
before_zero = {"is_before_zero": st.sampled_from((False,) * 9 + (True,))}
tokens = st.sampled_from((0, 5, 7, 300, 2**40) * 3 + (-1, 2**40 + 1))

KV_METHODS = {
    "kv.store": method("kv.store", before_zero, hashes=hashes, tier=tiers, group=groups),
    "kv.evict": method("kv.evict", before_zero, hashes=hashes, tier=tiers, group=groups),
    "kv.touch": method("kv.touch", before_zero, hashes=hashes, group=groups),
    "kv.lookup": method("kv.lookup", before_zero, queried_tokens=tokens, hit_tokens=tokens, preempted=st.booleans()),
    "kv.clear": method("kv.clear", before_zero),
}
OFTEN = ("kv.store",) * 10 + ("kv.evict",) * 10 + ("kv.touch",) * 3 + ("kv.lookup",) * 2 + ("kv.clear",)
cache_calls = st.sampled_from(OFTEN).flatmap(KV_METHODS.get)
other_calls = st.sampled_from(sorted(METHODS)).flatmap(METHODS.get)
starts = st.sampled_from((0, 5, 1000, 5 * SECOND, DAY_NS))


def stream_of(some: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Call]]:
    """Several lists, each of which shrinks to nothing: one alone would mostly be short."""
    parts = st.tuples(*[st.lists(some, max_size=16)] * 5)
    return st.builds(lambda start, drawn: calls_of(start, itertools.chain.from_iterable(drawn)), starts, parts)


cache_settings = {
    "remember": st.sampled_from((0, 1, 2, 3, 1_000_000)),
    "ttl_ns": st.sampled_from((5, 60, 700, 30 * 60 * SECOND)),
    "report": st.sampled_from(("copies", "copies", "full")),
    "max_blocks": st.sampled_from((1, 3, 5, 100)),
}
sampling = st.sampled_from(
    ({},) * 3 + tuple({"mode": "sampled", "rate": rate} for rate in (0.5, 0.5, 0.9, 1.0)) + ({"rate": 0.3},)
)
settings_of_caches = st.builds(
    lambda given_settings, sample: given_settings | sample,
    st.fixed_dictionaries(
        cache_settings, optional={"scale": st.integers(0, 8), "windows_ns": st.none() | st.sampled_from(NARROW)}
    ),
    sampling,
)
drawing = settings(deadline=None, suppress_health_check=list(HealthCheck))


def seen_in(reading: dict[str, Any]) -> Counter[str]:
    """What was counted and refused."""
    total = reading["total"]
    seen = Counter({name: total[name] for name in COUNTS})
    seen.update({name: total[name]["n"] for name in LOOKUPS})
    seen.update(reading["rejected"])
    seen.update(
        clamped=reading["clamped"],
        remembered=reading["remembered"],
        late=sum(window["late"] for window in reading["windows"]),
        panes=sum(len(window["panes"]) for window in reading["windows"]),
        sampled=sum(map(sum, total["replicates"] or [])),
    )
    return +seen


EVERYTHING = {*COUNTS, *LOOKUPS, *REASONS, "clamped", "remembered", "late", "panes", "sampled"}


def compare(caches: Sequence[ReferenceCache], calls: list[Call]) -> dict[str, Any]:
    """Drives both and compares them at many times. The reading of the trackers as it stands then."""
    core, oracle = caches
    for each in caches:
        each.drive(calls)
    for t in reading_times(oracle.alone()["newest_ns"], (9, 60, 700, 3 * SECOND, -1, -60, -700)):
        assert differences(comparable(core.reading(t)), comparable(oracle.reading(t))) == [], t
    return oracle.alone()


@settings(drawing, max_examples=60)
@given(calls=stream_of(cache_calls), given_settings=settings_of_caches)
def test_any_stream(calls: list[Call], given_settings: dict[str, Any]) -> None:
    compare((CoreCache(**given_settings), ReferenceCache(**given_settings)), calls)


@settings(drawing, max_examples=30)
@given(
    calls=stream_of(st.one_of(cache_calls, cache_calls, other_calls)),
    meter=settings_of_meters,
    given_settings=settings_of_caches,
)
def test_any_stream_within_a_meter(calls: list[Call], meter: dict[str, Any], given_settings: dict[str, Any]) -> None:
    windows = None if given_settings.get("windows_ns") is None else meter["windows_ns"]
    caches = [make(meter, **given_settings | {"windows_ns": windows}) for make in (CoreCache, ReferenceCache)]
    compare(caches, calls)


# Streams that a plain generator makes: longer, closer to what a cache does, and the same each time.


def busy(chance: random.Random, n: int) -> Iterator[Call]:
    """Calls that mostly evict what was stored and store what was evicted."""
    stored: list[tuple[int, str, int]] = []
    evicted: list[tuple[int, str, int]] = []
    t = chance.choice((0, 1_000, 5 * SECOND))
    for _ in range(n):
        t = max(0, t + chance.choice(SMALL_STEPS if chance.random() < 0.95 else LARGE_STEPS))
        at = {"t": t}
        if chance.random() < 0.04:
            at = {"t": chance.choice((-1, -700, t + DAY_NS + 1))}
        kind = chance.choices([*KINDS], [*KINDS.values()])[0]
        if kind in ("store", "evict", "touch"):
            some = {"store": evicted, "evict": stored, "touch": stored}[kind]
            _, tier, group = chance.choice(some) if some and chance.random() < 0.8 else random_block(chance)
            words = [word for word, *where in some if where == [tier, group]][: chance.randrange(4)]
            words += [chance.choice(POOL) for _ in range(chance.randrange(2))]
            chance.shuffle(words)
            moved = [(word, tier, group) for word in words]
            if kind == "store":
                stored += moved
                evicted = [block for block in evicted if block not in moved]
            elif kind == "evict":
                evicted += [(word, "gpu", group) for word, *_ in moved]
                stored = [block for block in stored if block not in moved]
            where = {"group": group} if kind == "touch" else {"tier": tier, "group": group}
            yield f"kv.{kind}", {**at, "hashes": words, **where}
        elif kind == "lookup":
            queried = chance.choice((0, 7, 300, 300, 2**40, 2**40 + 1))
            hit = chance.choice((0, 7, 200, -1))
            yield "kv.lookup", {**at, "queried_tokens": queried, "hit_tokens": hit, "preempted": chance.random() < 0.3}
        elif kind == "clear":
            stored.clear()
            yield "kv.clear", at
        else:
            yield kind, {"t": t}


def random_block(chance: random.Random) -> tuple[int, str, int]:
    tier = chance.choice(("gpu",) * 6 + ("cpu",) * 3 + ("disk", "remote", "tape"))
    return chance.choice(POOL), tier, chance.choice((0,) * 12 + (1, 1, 4095, 4096))


KINDS = {"store": 40, "evict": 36, "touch": 8, "lookup": 6, "clear": 1, "ready": 5, "arrive": 4}
SMALL_STEPS = (0, 1, 1, 2, 5, 5, 9, 20, 61, -1, -3, -40)
LARGE_STEPS = (700, 6_000, SECOND, -700, -6_000, 3 * 3600 * SECOND)


def busy_settings(chance: random.Random) -> dict[str, Any]:
    chosen = {
        "remember": chance.choice((0, 2, 4, 1_000_000)),
        "ttl_ns": chance.choice((40, 300, 2_000, 30 * 60 * SECOND)),
        "report": chance.choice(("copies", "copies", "full")),
        "max_blocks": chance.choice((3, 6, 100)),
        "windows_ns": chance.choice(NARROW),
        "scale": chance.randrange(9),
    }
    return chosen | chance.choice(({}, {}, {"mode": "sampled", "rate": 0.5}, {"mode": "sampled", "rate": 1.0}))


def only_of_the_cache(calls: Iterable[Call]) -> list[Call]:
    return [call for call in calls if call[0].startswith("kv.")]


def test_busy_caches() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        chance = random.Random(seed)
        asked = busy_settings(chance)
        caches = CoreCache(**asked), ReferenceCache(**asked)
        seen.update(seen_in(compare(caches, only_of_the_cache(busy(chance, 150)))))
    assert {name: n for name, n in sorted(seen.items()) if n < 20} == {}
    assert seen.keys() >= EVERYTHING


def test_busy_caches_within_a_meter() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100, 130):
        chance = random.Random(seed)
        asked = busy_settings(chance)
        meter = {"windows_ns": asked["windows_ns"], "scale": asked["scale"], "ttl_ns": 700, "max_requests": 3}
        caches = [make(meter, **asked) for make in (CoreCache, ReferenceCache)]
        seen.update(seen_in(compare(caches, list(busy(chance, 150)))))
        reading = caches[1].reading()
        seen.update({f"meter {reason}": n for reason, n in reading["rejected"].items()})
        seen.update(lost=reading["all"]["total"]["by_status"].get("lost", 0))
    assert seen.keys() >= EVERYTHING | {"meter duplicate", "meter full", "lost"}


@pytest.mark.parametrize("shards", [1, 2])
def test_a_cache_in_a_meter_of_nothing_else_is_as_one_alone(shards: int) -> None:
    for seed in range(200, 220):
        chance = random.Random(seed)
        asked = busy_settings(chance)
        calls = only_of_the_cache(busy(chance, 150))
        alone = CoreCache(**asked)
        meter = {"windows_ns": asked["windows_ns"], "scale": asked["scale"], "shards": shards}
        inside = CoreCache(meter, **asked | {"windows_ns": None})
        for cache in (alone, inside):
            cache.drive(calls)
        found, wanted = inside.reading(), alone.alone()
        assert differences(comparable(found["kv"]), comparable(wanted)) == []
        assert wanted["total"]["evicted"] > 0
        assert found["rejected"] == {}
        for name in ("t_ns", "newest_ns", "first_event_ns"):
            assert found[name] == wanted[name]


@pytest.mark.parametrize("make", CACHES, ids=lambda make: make.name)
def test_what_holds_of_any_reading(make: Callable[..., ReferenceCache]) -> None:
    """Accounts that must balance, whoever keeps them."""
    for seed in range(300, 340):
        chance = random.Random(seed)
        given_settings = busy_settings(chance)
        calls = only_of_the_cache(busy(chance, 150))
        events = sum(len(arguments.get("hashes", [0])) for _, arguments in calls)
        cache = make(**given_settings)
        cache.drive(calls)
        reading = cache.reading()
        assert comparable(reading) == comparable(cache.reading())
        total = reading["total"]
        # Each accepted event is counted once, by what came of it.
        once = ("stored", "repeated", "onloaded", "offloaded", "released", "evicted", "touched", "cleared")
        counted = sum(total[name] for name in once) + sum(total[name]["n"] for name in LOOKUPS)
        counted += sum(reading["rejected"].values())
        assert counted == events if reading["settings"]["rate"] == 1 else counted <= events
        # An eviction ends as a refill, forgotten, still remembered, or replaced by the block's next one.
        assert total["refilled"] + total["forgotten"] + reading["remembered"] <= total["evicted"]
        assert reading["remembered"] <= given_settings["remember"]
        assert reading["blocks"] <= min(sum(reading["resident"].values()), given_settings["max_blocks"])
        assert total["lifetime"].count == total["idle"].count == total["evicted"]
        assert total["gap"].count == total["refilled"]
        if total["replicates"] is not None:
            assert [sum(part) for part in zip(*total["replicates"], strict=True)] == [total[fate] for fate in FATES]
        for window in reading["windows"]:
            block = window["block"]
            assert all(block[name] <= total[name] for name in COUNTS)
            assert sum(evicted for _, evicted, _ in window["panes"]) == block["evicted"]
            assert sum(refilled for _, _, refilled in window["panes"]) == block["refilled"]


FORMS = {
    "list": list,
    "tuple": tuple,
    "uint64": lambda words: np.array([word % 2**64 for word in words], dtype=np.uint64),
    "int64": lambda words: np.array([word % 2**64 for word in words], dtype=np.uint64).astype(np.int64),
    "every other": lambda words: np.repeat(np.array([word % 2**64 for word in words], dtype=np.uint64), 2)[::2],
    "array": lambda words: array.array("Q", [word % 2**64 for word in words]),
}


@pytest.mark.parametrize("form", FORMS)
def test_hashes_in_any_form(form: str) -> None:
    words = [5, -1, 2**63, 0, 2**64 - 2, 7]
    core, oracle = tokenpulse.KVTracker(remember=3), KVTracker(remember=3)
    for tracker, given_words in ((core, FORMS[form](words)), (oracle, words)):
        tracker.store(10, given_words)
        tracker.touch(11, given_words[:2])
        tracker.evict(12, given_words[1:])
        tracker.store(13, given_words)
        tracker.evict(14, 5)
    wanted = oracle.snapshot()
    assert (wanted["total"]["refilled"], wanted["total"]["forgotten"], wanted["total"]["repeated"]) == (3, 2, 1)
    assert differences(comparable(core._snapshot().kv()), comparable(wanted)) == []


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.uint16, np.int8])
def test_hashes_of_fewer_bits(dtype: Any) -> None:
    """A negative one is the same 64 bits, whatever it was held in."""
    words = np.array([1, 2, -3], dtype=np.int8).astype(dtype)
    core, oracle = tokenpulse.KVTracker(), KVTracker()
    for tracker in (core, oracle):
        tracker.store(10, words if tracker is core else words.tolist())
        tracker.evict(11, words.tolist())
    wanted = oracle.snapshot()
    assert wanted["total"]["evicted"] == 3
    assert differences(comparable(core._snapshot().kv()), comparable(wanted)) == []


# Whole recorded runs

COUNTED = {"run.jsonl.gz": (2_987, 1_457), "run_async.jsonl.gz": (1_820, 745)}
"""Blocks evicted, and of these computed again, as a script of a dozen lines counts them."""


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"report": "full"},
        {"remember": 40},
        {"ttl_ns": 2 * SECOND},
        {"mode": "sampled", "rate": 0.25, "remember": 10},
    ],
    ids=str,
)
def test_recorded_runs(name: str, asked: dict[str, Any]) -> None:
    core, oracle = CoreCache(**asked), ReferenceCache(**asked)
    calls = list(kv_calls(name))
    assert len(calls) > 1_000
    parts = 2
    for part in range(parts):
        some = calls[len(calls) * part // parts : len(calls) * (part + 1) // parts]
        for each in (core, oracle):
            each.drive(some)
        newest_ns = oracle.reading()["newest_ns"]
        for t in (None, newest_ns - 4 * SECOND, newest_ns + 16 * SECOND):
            assert differences(comparable(core.reading(t)), comparable(oracle.reading(t))) == []
    reading = core.reading()
    total = reading["total"]
    if not asked:
        assert (total["evicted"], total["refilled"], total["forgotten"]) == (*COUNTED[name], 0)
        assert reading["rejected"] == {}
        by_log = engine.read_kv([str(FIXTURES / name)], stream="copies")["events"]
        assert differences(comparable(by_log["totals"]), comparable(total)) == []
        assert {key: by_log[key] for key in ("resident", "blocks", "remembered", "rejected", "clamped")} == {
            key: reading[key] for key in ("resident", "blocks", "remembered", "rejected", "clamped")
        }
    elif "remember" in asked or "ttl_ns" in asked:
        assert 0 < total["refilled"] < total["evicted"]
        assert total["forgotten"] > 0
    if "rate" in asked:
        followed = {h for _, call in calls for h in call.get("hashes", ()) if splitmix64(h % 2**64) < 2**62}
        assert reading["blocks"] <= len(followed)
        assert 0.15 < total["evicted"] / COUNTED[name][0] < 0.35


def test_a_recorded_run_in_a_meter() -> None:
    """With everything else that a run tells a meter, between which the cache's figures stay as they are."""
    name = "run_async.jsonl.gz"
    caches = [make({}, remember=200) for make in (CoreCache, ReferenceCache)]
    calls = sorted([*recorded_calls(name), *kv_calls(name)], key=lambda call: call[1].get("t", -1))
    for cache in caches:
        cache.drive(calls)
    core, oracle = (comparable(cache.reading()) for cache in caches)
    assert differences(core, oracle) == []
    assert core["kv"]["total"]["evicted"] == COUNTED[name][0]
    assert core["all"]["total"]["attempted"] > 100
