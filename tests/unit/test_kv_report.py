"""`tokenpulse.kv_report` and `KVTrace`: the figures of recordings and of a published trace, counted by other means."""

from __future__ import annotations

import gzip
import json
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tokenpulse
from tokenpulse import FormatError, KVReport, KVTrace, kv_report
from tokenpulse.kv import Curve

FIXTURES = Path(__file__).parents[1] / "fixtures"
VLLM = FIXTURES / "kv_events.jsonl"
RUN = FIXTURES / "run.jsonl.gz"
ASYNC = FIXTURES / "run_async.jsonl.gz"
MOONCAKE = FIXTURES / "mooncake_conversation.jsonl.gz"

Told = tuple[float, str, list[int]]


def vllm_events(path: Path) -> Iterator[Told]:
    kinds = {"BlockStored": "store", "BlockRemoved": "evict"}
    for line in path.read_text().splitlines():
        seconds, events, _ = json.loads(line)["batch"]
        for event in events:
            yield seconds, kinds[event["type"]], event["block_hashes"]


def own_events(path: Path) -> Iterator[Told]:
    kinds = {"kv_store": "store", "kv_evict": "evict"}
    with gzip.open(path) as log:
        for line in log:
            told = json.loads(line)
            if told["ev"] in kinds:
                yield told["t_ns"] / 1e9, kinds[told["ev"]], told["hashes"]


def count(events: Iterator[Told], stream: str) -> dict[str, Any]:
    """What a cache's events come to, with nothing but dicts: no tier, no limit."""
    resident: dict[int, int] = {}
    gone: dict[int, float] = {}
    counts: dict[str, Any] = dict.fromkeys(("stored", "repeated", "evicted", "refilled", "released", "unknown"), 0)
    gaps = []
    for seconds, kind, hashes in events:
        for one in hashes:
            if kind == "store" and one in resident:
                counts["repeated"] += 1
                resident[one] += stream == "copies"
            elif kind == "store":
                counts["stored"] += 1
                resident[one] = 1
                if one in gone:
                    counts["refilled"] += 1
                    gaps.append(seconds - gone.pop(one))
            elif one not in resident:
                counts["unknown"] += 1
            else:
                resident[one] -= 1
                counts["evicted" if resident[one] == 0 else "released"] += 1
                if resident[one] == 0:
                    del resident[one]
                    gone[one] = seconds
    return counts | {"blocks": len(resident), "remembered": len(gone), "gaps": gaps}


SOURCES = {"vllm": (VLLM, vllm_events), "run": (RUN, own_events), "async": (ASYNC, own_events)}


@pytest.mark.parametrize("stream", ["copies", "full"])
@pytest.mark.parametrize("source", SOURCES)
def test_recordings_give_what_a_few_lines_count(source: str, stream: str) -> None:
    path, read = SOURCES[source]
    counted = count(read(path), stream)
    report = kv_report(path, stream=stream)
    assert report.kind == "events"
    for name in ("stored", "repeated", "evicted", "refilled", "released", "blocks", "remembered"):
        assert getattr(report, name) == counted[name], name
    assert report.forgotten == 0
    assert report.rejected == ({"unknown": counted["unknown"]} if counted["unknown"] else {})
    share = counted["refilled"] / counted["evicted"]
    assert report.refill_rate == [share, share]
    assert report.gap is not None
    assert report.gap["count"] == len(counted["gaps"])
    assert report.gap["sum"] == pytest.approx(sum(counted["gaps"]), abs=1e-3)
    assert report.gap["max"] == pytest.approx(max(counted["gaps"]), abs=1e-6)
    assert report.streams == 1
    assert report.settings["report"] == stream


def test_the_recordings_are_those_that_others_counted() -> None:
    assert [(r.evicted, r.refilled) for r in map(kv_report, (VLLM, RUN, ASYNC))] == [
        (37, 26),
        (2987, 1457),
        (1820, 745),
    ]


def test_look_ups_come_from_own_lines_only() -> None:
    queried = hit = n = again = 0
    with gzip.open(RUN) as log:
        for line in log:
            told = json.loads(line)
            if told["ev"] == "kv_lookup" and told.get("preempted"):
                again += 1
            elif told["ev"] == "kv_lookup":
                n, queried, hit = n + 1, queried + told["queried"], hit + told["hit"]
    report = kv_report(RUN)
    assert (report.requests, report.lookups, report.hits) == (n, queried, hit)
    assert report.hit_rate == hit / queried
    assert report.unit == "tokens"
    assert report.relookups is not None
    assert report.relookups["n"] == again > 0
    without = kv_report(VLLM)
    assert (without.requests, without.lookups, without.hits, without.hit_rate, without.relookups) == (None,) * 5


def test_files_are_caches_of_their_own() -> None:
    both = kv_report([RUN, ASYNC])
    assert (both.evicted, both.refilled, both.streams) == (2987 + 1820, 1457 + 745, 2)
    twice = kv_report([VLLM, VLLM])
    assert (twice.evicted, twice.refilled, twice.streams) == (74, 52, 2)
    assert [one["path"] for one in both.inputs] == [str(RUN), str(ASYNC)]


def test_a_sample_of_events() -> None:
    exact, sample = kv_report(RUN), kv_report(RUN, sample=0.25)
    assert exact.confidence is None
    assert sample.settings["mode"] == "sampled"
    assert sample.confidence is not None
    low, high = sample.confidence
    assert low is not None
    assert high is not None
    assert low < exact.refill_rate[0] < high
    assert (sample.lookups, sample.hits) == (exact.lookups, exact.hits)
    assert sample.evicted == pytest.approx(0.25 * exact.evicted, rel=0.2)
    assert sample.evicted_per_second == pytest.approx(exact.evicted_per_second, rel=0.2)
    whole = kv_report(RUN, sample=1.0)
    assert whole.evicted == exact.evicted
    assert whole.confidence == exact.refill_rate


def test_a_short_memory_of_events() -> None:
    report = kv_report(RUN, remember=100, ttl="10s")
    assert report.forgotten > 0
    assert (report.settings["remember"], report.settings["ttl_ns"]) == (100, 10_000_000_000)
    low, high = report.refill_rate
    assert low is not None
    assert high is not None
    assert low < 1457 / 2987 < high
    assert report.remembered <= 100
    plain = kv_report(RUN).settings
    assert (plain["remember"], plain["ttl_ns"], plain["mode"], plain["rate"]) == (1_000_000, 1800 * 10**9, "exact", 1.0)


# Traces


def references() -> list[list[int]]:
    with gzip.open(MOONCAKE) as log:
        return [json.loads(line)["hash_ids"] for line in log]


def through_lru(requests: list[list[int]], blocks: int) -> tuple[int, int, int]:
    cache: OrderedDict[int, None] = OrderedDict()
    gone: set[int] = set()
    hits = evicted = refilled = 0
    for request in requests:
        for one in request:
            if one in cache:
                cache.move_to_end(one)
                hits += 1
                continue
            refilled += one in gone
            gone.discard(one)
            cache[one] = None
            if len(cache) > blocks:
                gone.add(cache.popitem(last=False)[0])
                evicted += 1
    return hits, evicted, refilled


@pytest.fixture(scope="module")
def mooncake() -> KVTrace:
    return KVTrace.read(MOONCAKE)


def test_a_trace_says_what_it_holds(mooncake: KVTrace) -> None:
    assert (mooncake.requests, mooncake.references, mooncake.distinct) == (12_031, 288_500, 182_790)
    assert mooncake.seconds == 3536.999
    assert mooncake.notices == []
    assert repr(mooncake).startswith("<tokenpulse.KVTrace of 3537 s: 12031 requests")


@pytest.mark.parametrize("blocks", [1, 1_000, 30_000, 150_000])
def test_a_replay_and_the_curve_are_a_plain_lru_cache(mooncake: KVTrace, blocks: int) -> None:
    hits, evicted, refilled = through_lru(references(), blocks)
    report = mooncake.replay(blocks)
    assert (report.hits, report.evicted, report.refilled, report.forgotten) == (hits, evicted, refilled, 0)
    assert (report.lookups, report.hit_rate, report.unit, report.kind) == (288_500, hits / 288_500, "blocks", "trace")
    assert report.blocks == blocks
    assert report.remembered == evicted - refilled
    (point,) = [one for one in mooncake.curve([blocks]).points if one["blocks"] == blocks]
    assert (point["hits"], point["evicted"], point["refilled"]) == (hits, evicted, refilled)
    assert point["tokens"] == 512 * blocks


def test_room_for_all(mooncake: KVTrace) -> None:
    report = mooncake.replay()
    assert (report.hits, report.evicted, report.refill_rate) == (105_710, 0, [None, None])
    assert report.settings == {"blocks": None, "policy": "lru", "remember": None, "ttl_ns": None, "block_tokens": 512}
    assert report.tokens is not None
    with gzip.open(MOONCAKE) as log:
        prompts = [json.loads(line) for line in log]
    assert report.tokens["queried"] == sum(one["input_length"] for one in prompts)
    assert 0 < report.tokens["hit_rate"] < 1


@pytest.mark.parametrize("policy", ["lru", "fifo", "s3fifo", "lfu"])
def test_policies_add_up(mooncake: KVTrace, policy: str) -> None:
    report = mooncake.replay(20_000, policy)
    assert report.lookups is not None
    assert report.hits is not None
    misses = report.lookups - report.hits
    assert (report.stored, report.blocks, report.evicted) == (misses, 20_000, misses - 20_000)
    assert report.refilled == misses - 182_790
    assert report.settings["policy"] == policy
    assert 0.2 < (report.hit_rate or 0) < 0.36


def test_a_replay_with_a_short_memory(mooncake: KVTrace) -> None:
    whole, short = mooncake.replay(5_000), mooncake.replay(5_000, remember=1_000, ttl="1m")
    assert short.evicted == whole.evicted
    assert short.refilled + short.forgotten + short.remembered == short.evicted
    assert short.refill_rate[0] < whole.refill_rate[0] < short.refill_rate[1]  # type: ignore[operator]
    assert short.remembered <= 1_000
    assert short.gap is not None
    assert short.gap["max"] <= 60


def test_a_curve_only_falls_and_rises(mooncake: KVTrace) -> None:
    curve = mooncake.curve([12_345])
    assert isinstance(curve, Curve)
    assert (curve.references, curve.distinct, curve.mode, curve.rate, curve.seed) == (288_500, 182_790, "exact", 1.0, 0)
    sizes = [point["blocks"] for point in curve.points]
    assert sizes == sorted(set(sizes))
    assert 12_345 in sizes
    assert (sizes[0], sizes[-1]) == (10, 182_790)
    hits = [point["hits"] for point in curve.points]
    assert hits == sorted(hits)
    assert (curve.points[-1]["evicted"], curve.points[-1]["refill_rate"]) == (0, None)
    assert curve.knee is not None
    assert 30_000 < curve.knee["blocks"] < 45_000
    for name, limit in (("0.05", 0.05), ("0.15", 0.15)):
        mark = curve.refill_under[name]
        assert mark is not None
        assert mark["refill_rate"] < limit
        (before,) = [one for one in mooncake.curve([mark["blocks"] - 1]).points if one["blocks"] == mark["blocks"] - 1]
        assert before["refill_rate"] >= limit
        assert all(one["refill_rate"] < limit for one in curve.points if mark["blocks"] <= one["blocks"] < sizes[-1])


def test_a_sampled_curve_is_near(mooncake: KVTrace) -> None:
    exact = {one["blocks"]: one for one in mooncake.curve().points}
    sampled = mooncake.curve(rate=0.1, seed=7)
    assert (sampled.mode, sampled.rate, sampled.seed) == ("sampled", 0.1, 7)
    assert 0 < sampled.sampled_references < 288_500
    errors = [abs(one["hit_rate"] - exact[one["blocks"]]["hit_rate"]) for one in sampled.points]
    assert sum(errors) / len(errors) < 0.05
    assert sampled.to_dict() == mooncake.curve(rate=0.1, seed=7).to_dict()
    assert sampled.to_dict() != mooncake.curve(rate=0.1, seed=8).to_dict()
    assert sampled.points[0]["refill_rate"] is not None
    assert all(0 <= one["hit_rate"] <= 1 for one in sampled.points)


def test_a_sample_without_a_block_knows_nothing(mooncake: KVTrace) -> None:
    curve = mooncake.curve([77], rate=1e-8)
    assert (curve.sampled_distinct, curve.distinct, curve.knee) == (0, None, None)
    assert curve.is_empty
    assert curve.refill_under == {"0.05": None, "0.15": None}
    assert {one["blocks"] for one in curve.points} == {one["blocks"] for one in mooncake.curve([77]).points}
    for point in curve.points:
        assert point["tokens"] == 512 * point["blocks"]
        assert [point[name] for name in ("hits", "hit_rate", "evicted", "refilled", "refill_rate")] == [None] * 5
    told = json.loads(json.dumps(curve.to_dict(), allow_nan=False))
    assert (told["knee"], told["points"][0]["hit_rate"]) == (None, None)
    assert "unknown blocks" in repr(curve)
    assert not mooncake.curve(rate=0.1).is_empty


def test_block_tokens_scale_the_tokens(mooncake: KVTrace) -> None:
    curve = mooncake.curve([100], block_tokens=16)
    assert all(point["tokens"] == 16 * point["blocks"] for point in curve.points)
    assert mooncake.replay(100, block_tokens=16).settings["block_tokens"] == 16


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda t: t.replay(0), ValueError, "blocks"),
        (lambda t: t.replay(-1), ValueError, "blocks"),
        (lambda t: t.replay(1.5), TypeError, "blocks must be a whole number, at least 1, got 1.5"),
        (lambda t: t.replay(5, "mru"), ValueError, "policy must be one of lru, fifo, s3fifo, lfu, got 'mru'"),
        (lambda t: t.replay(5, block_tokens=0), ValueError, "block_tokens"),
        (lambda t: t.replay(5, ttl="never"), ValueError, "a duration must be"),
        (lambda t: t.replay(5, remember=-1), ValueError, "remember must be between 0 and 67108863, got -1"),
        (lambda t: t.curve([0]), ValueError, "each of sizes must be at least 1, got 0"),
        (lambda t: t.curve(5), TypeError, "sizes must be an iterable of whole numbers, .* got 5"),
        (lambda t: t.curve("12"), TypeError, "sizes must be an iterable of whole numbers, .* got '12'"),
        (lambda t: t.curve(["a"]), TypeError, "each of sizes must be a whole number, at least 1, got 'a'"),
        (lambda t: t.curve(seed=3), ValueError, "it needs a rate"),
        (lambda t: t.curve(rate="x"), TypeError, "rate must be a number above 0 and at most 1, got 'x'"),
        (lambda t: t.curve(seed=1.5), TypeError, "seed must be a whole number, between 0 and .*, got 1.5"),
        (lambda t: t.curve(seed=-1), ValueError, "seed must be between 0 and .*, got -1"),
        (lambda t: t.replay(curve=3), TypeError, "curve must be what KVTrace.curve gave, or None, got 3"),
        (lambda t: t.replay(5, ttl=0), ValueError, "ttl: a duration must be between .*, got 0"),
        (lambda t: t.read(5), TypeError, "a path must be str or os.PathLike.*, got 5"),
        (lambda t: t.curve(rate=0.0), ValueError, "rate"),
        (lambda t: t.curve(rate=1.1), ValueError, "rate"),
        (lambda t: t.curve(block_tokens=0), ValueError, "block_tokens must be between 1 and"),
    ],
)
def test_what_a_trace_refuses(mooncake: KVTrace, call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(mooncake)


def test_the_report_of_a_trace(mooncake: KVTrace) -> None:
    report = kv_report(MOONCAKE, blocks=10_000, curve=True, sizes=[7])
    assert isinstance(report, KVReport)
    assert report.curve is not None
    assert [point["blocks"] for point in report.curve.points[:2]] == [7, 10]
    assert any(point["blocks"] == 10_000 for point in report.curve.points)
    alone = mooncake.replay(10_000)
    assert {k: v for k, v in report.to_dict().items() if k != "curve"} == {
        k: v for k, v in alone.to_dict().items() if k != "curve"
    }
    told = report.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_a_trace_of_several_files(tmp_path: Path, mooncake: KVTrace) -> None:
    lines = gzip.decompress(MOONCAKE.read_bytes()).splitlines(keepends=True)
    parts = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    parts[0].write_bytes(b"".join(lines[:5000]))
    parts[1].write_bytes(b"".join(lines[5000:]))
    report = kv_report(parts, blocks=10_000)
    alone = mooncake.replay(10_000)
    assert (report.hits, report.evicted, report.refilled) == (alone.hits, alone.evicted, alone.refilled)
    assert KVTrace.read(parts).references == 288_500


@pytest.mark.parametrize(
    ("path", "options", "text"),
    [
        (RUN, {"blocks": 5}, "blocks does not go with KV cache events"),
        (RUN, {"policy": "lru"}, "policy does not go with KV cache events"),
        (RUN, {"block_tokens": 16}, "block_tokens does not go with KV cache events"),
        (RUN, {"curve": True}, "a curve needs a trace of block hashes, got KV cache events"),
        (RUN, {"sample": "x"}, "sample must be a number above 0 and at most 1, got 'x'"),
        (RUN, {"sizes": 5, "curve": True}, "sizes must be an iterable"),
        (MOONCAKE, {"blocks": 0, "curve": True}, "blocks must be at least 1, got 0"),
        (MOONCAKE, {"seed": 3}, "seed says .* needs curve and sample as well"),
        (MOONCAKE, {"seed": 3, "curve": True}, "seed says .* needs sample as well"),
        (MOONCAKE, {"seed": 3, "sample": 0.1}, "seed says .* needs curve as well"),
        (5, {}, "a path must be str"),
        (MOONCAKE, {"stream": "full"}, "stream does not go with a trace of block hashes"),
        (MOONCAKE, {"sample": 0.1}, "sample of a trace belongs to the curve"),
        (MOONCAKE, {"curve": True, "policy": "fifo"}, "the curve is that of lru"),
        (MOONCAKE, {"sizes": [5]}, "sizes belong to the curve"),
        (RUN, {"stream": "some"}, "stream must be copies or full, got 'some'"),
        (RUN, {"sample": 0}, "sample must be above 0 and at most 1"),
        (RUN, {"ttl": "soon"}, "a duration must be"),
        (RUN, {"remember": -1}, "remember"),
        ([], {}, "at least one path"),
        (["-", "-"], {}, "only once"),
    ],
)
def test_what_a_report_refuses(path: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        kv_report(path, **options)


def test_what_is_no_log_of_a_cache(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        kv_report(tmp_path / "nowhere.jsonl")
    other = tmp_path / "other.jsonl"
    other.write_text('{"id":"a","arrive_ns":1}\n')
    with pytest.raises(FormatError, match=r"other\.jsonl: expected KV events or block hashes, found none"):
        kv_report(other)
    with pytest.raises(FormatError):
        kv_report([RUN, MOONCAKE])
    with pytest.raises(FormatError, match="expected a trace of block hashes, got KV cache events"):
        KVTrace.read(VLLM)
    with pytest.raises(TypeError, match="a path must be str"):
        kv_report([b"bytes"])  # type: ignore[list-item]


def batch(seq: int, *events: str, topic: str = "kv", rank: int | None = None, t: float = 1.0) -> str:
    told = [{"type": kind, "block_hashes": [1], "medium": "GPU", "group_idx": 0} for kind in events]
    return json.dumps({"recv": t, "topic": topic, "seq": seq, "batch": [t, told, rank]}) + "\n"


def test_gaps_in_the_sequence_are_told(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(
        batch(0, "BlockStored") + batch(1, "BlockRemoved") + batch(5, "BlockStored") + batch(0, "BlockRemoved")
    )
    report = kv_report(path)
    assert report.loss == {"gaps": 1, "batches": 3, "restarts": 1}
    # The publisher that began anew has an empty cache, from which nothing can be removed.
    assert (report.evicted, report.refilled, report.cleared, report.blocks) == (1, 1, 1, 0)
    assert (report.rejected, report.unusable) == ({"unknown": 1}, 4)
    assert {one["line"] for one in report.notices} == {3, 4}
    assert all(one["path"] == str(path) for one in report.notices)


def test_publishers_have_caches_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(
        batch(0, "BlockStored", rank=0)
        + batch(0, "BlockStored", rank=1)
        + batch(1, "BlockRemoved", rank=0)
        + batch(0, "BlockRemoved", topic="other")
    )
    report = kv_report(path)
    assert (report.evicted, report.repeated, report.streams) == (1, 0, 3)
    assert report.rejected == {"unknown": 1}
    assert report.loss == {"gaps": 0, "batches": 0, "restarts": 0}


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(
        '{"t_ns":1,"ev":"kv_store","hashes":[1,"2",-3]}\n'
        "nonsense\n"
        '{"t_ns":2,"ev":"kv_evict"}\n'
        '{"t_ns":2,"ev":"kv_evict","hashes":[1],"tier":"hbm"}\n'
        '{"t_ns":3,"id":"a","ev":"arrive"}\n'
        '{"t_ns":4,"ev":"kv_lookup","queried":1,"hit":2}\n'
        '{"t_ns":5,"ev":"kv_clear"}\n'
    )
    report = kv_report(path)
    (one,) = report.inputs
    assert one["skipped"] == {"missing_field": 1, "not_json": 1}
    assert one["lines"] == 7
    assert one["passed"] == 1
    assert report.rejected == {"invalid": 1, "tier": 1}
    assert (report.stored, report.cleared, report.blocks) == (3, 1, 0)
    assert report.unusable == 4


def test_names_are_public() -> None:
    for name in ("KVReport", "KVSnapshot", "KVTrace", "KVTracker", "kv_report"):
        assert name in tokenpulse.__all__
