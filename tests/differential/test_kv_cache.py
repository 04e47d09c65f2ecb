"""Traces through caches of every size and policy: vectors, random traces, and a published one of 288,500 references.

The published trace goes through an LRU cache of this file's own, which knows neither the core nor the reference.
"""

from __future__ import annotations

import gzip
import json
import random
import statistics
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import differences
from caches import figures
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from meters import comparable

from tokenpulse import KVTrace
from tokenpulse.reference.kv_cache import POLICIES, Curve, Request, SampledCurve, replay

TESTS = Path(__file__).parents[1]
VECTORS: dict[str, list[dict[str, Any]]] = json.loads((TESTS / "vectors" / "kv_cache.json").read_text())
PUBLISHED = TESTS / "fixtures" / "mooncake_conversation.jsonl.gz"
MS = 1_000_000

Trace = Sequence[Sequence[Any]]
"""Requests as `[t_ms, blocks]` or `[t_ms, blocks, input tokens]`."""


def core_trace(path: Path, trace: Trace) -> Any:
    """The core's trace, by way of a file."""
    keys = ("timestamp", "hash_ids", "input_length")
    path.write_text("".join(json.dumps(dict(zip(keys, request, strict=False))) + "\n" for request in trace))
    return KVTrace.read(path)._raw


def requests_of(trace: Trace) -> list[Request]:
    return [Request(t_ms * MS, *rest) for t_ms, *rest in trace]


def references_of(trace: Trace) -> list[int]:
    return [block for request in trace for block in request[1]]


def settings_of(case: dict[str, Any]) -> dict[str, Any]:
    return {
        "blocks": case["blocks"],
        "policy": case["policy"],
        "remember": case.get("remember"),
        "ttl_ns": case.get("ttl_ns"),
        "block_tokens": case.get("block_tokens", 512),
    }


# Vectors


def assert_expected(found: dict[str, Any], expect: dict[str, Any]) -> None:
    named = {**found, "totals": figures(found["totals"])}
    assert expect["totals"] is not None
    assert {key: named[key] for key in expect} == expect


@pytest.mark.parametrize("case", VECTORS["replays"], ids=lambda case: case["name"])
def test_replays(tmp_path: Path, case: dict[str, Any]) -> None:
    core = core_trace(tmp_path / "trace.jsonl", case["trace"])
    asked = settings_of(case)
    for found in (replay(requests_of(case["trace"]), **asked), core.replay(*asked.values())):
        assert_expected(found, case["expect"])


@pytest.mark.parametrize(
    "case", [case for case in VECTORS["replays"] if "left" in case or "queues" in case], ids=lambda case: case["name"]
)
def test_what_is_left_in_the_cache(case: dict[str, Any]) -> None:
    blocks: Any = POLICIES[case["policy"]](case["blocks"])
    for block in references_of(case["trace"]):
        blocks.hit(block) if block in blocks else blocks.store(block)
    if "queues" in case:
        assert {name: list(getattr(blocks, name)) for name in case["queues"]} == case["queues"]
        return
    order = sorted(blocks.uses, key=blocks.uses.get) if case["policy"] == "lfu" else list(blocks.blocks)
    assert order == case["left"]


@pytest.mark.parametrize("case", VECTORS["curves"], ids=lambda case: case["name"])
def test_curves(tmp_path: Path, case: dict[str, Any]) -> None:
    oracle = Curve(case["references"])
    assert oracle.distinct == case["distinct"]
    for name in ("hits", "evicted", "refilled"):
        assert [getattr(oracle, name)(size) for size in case["sizes"]] == case[name]
    assert oracle.knee() == case["knee"]
    assert {limit: oracle.refill_under(float(limit)) for limit in case["refill_under"]} == case["refill_under"]
    found = core_trace(tmp_path / "trace.jsonl", [[0, case["references"]]]).curve(case["sizes"], None, 0)
    assert (found["references"], found["distinct"]) == (len(case["references"]), case["distinct"])
    assert {name: list(found[name]) for name in ("hits", "evicted", "refilled")} == {
        name: case[name] for name in ("hits", "evicted", "refilled")
    }
    assert marked(found) == {"knee": case["knee"], **case["refill_under"]}


def marked(curve: dict[str, Any]) -> dict[str, int | None]:
    """The sizes that a curve of the core has marked."""
    marks = {"knee": curve["knee"], **curve["refill_under"]}
    return {name: None if mark is None else mark["blocks"] for name, mark in marks.items()}


# Random traces

hashes = st.integers(0, 9) | st.integers(0, 30) | st.sampled_from((-1, -(2**63), 2**63, 2**64 - 1))
traces = st.lists(
    st.tuples(
        st.integers(0, 50) | st.sampled_from((0, 10**6, 2 * 86_400_000)),
        st.lists(hashes, max_size=12),
        st.none() | st.integers(0, 70),
    ),
    min_size=1,
    max_size=30,
)


@settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
@given(
    trace=traces,
    blocks=st.none() | st.integers(1, 5) | st.integers(6, 25),
    policy=st.sampled_from(sorted(POLICIES)),
    remember=st.none() | st.integers(0, 6),
    ttl_ns=st.none() | st.sampled_from((1, MS, 20 * MS)),
    block_tokens=st.sampled_from((1, 5, 512)),
)
def test_any_trace(tmp_path_factory: pytest.TempPathFactory, trace: Trace, **asked: Any) -> None:
    core = core_trace(tmp_path_factory.getbasetemp() / "any.jsonl", trace)
    order = ("blocks", "policy", "remember", "ttl_ns", "block_tokens")
    found = core.replay(*[asked[name] for name in order])
    assert differences(comparable(found), comparable(replay(requests_of(trace), **asked))) == []


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_long_traces(tmp_path: Path, policy: str) -> None:
    """Skewed references among more blocks than fit, with scans between; everything that can happen does."""
    chance = random.Random(policy)
    trace = [
        [
            t,
            [min(int(chance.paretovariate(0.4)), 400) for _ in range(8)] if t % 5 else list(range(1000 + t, 1030 + t)),
            50,
        ]
        for t in range(120)
    ]
    core = core_trace(tmp_path / "trace.jsonl", trace)
    for blocks in (1, 2, 9, 10, 11, 40, 160):
        for remember, ttl_ns in ((None, None), (30, None), (None, 15 * MS)):
            wanted = replay(requests_of(trace), blocks, policy, remember, ttl_ns, 8)
            assert differences(comparable(core.replay(blocks, policy, remember, ttl_ns, 8)), comparable(wanted)) == []
            totals = wanted["totals"]
            assert 0 < wanted["hits"] < wanted["lookups"]
            assert totals["refilled"] > 0
            assert (totals["forgotten"] > 0) == (remember is not None or ttl_ns is not None)
            assert totals["evicted"] == totals["refilled"] + totals["forgotten"] + wanted["remembered"]


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(trace=traces, rate=st.none() | st.sampled_from((0.1, 0.5, 0.9, 1.0)), seed=st.sampled_from((0, 1, 2**63)))
def test_any_curve(tmp_path_factory: pytest.TempPathFactory, trace: Trace, rate: float | None, seed: int) -> None:
    references = references_of(trace)
    sizes = [*range(1, 40), 1000]
    core = core_trace(tmp_path_factory.getbasetemp() / "any.jsonl", trace).curve(sizes, rate, seed)
    oracle = Curve(references) if rate is None else SampledCurve(references, rate, seed)
    assert (core["references"], core["distinct"]) == (oracle.n, oracle.distinct)
    for name in ("hits", "evicted", "refilled"):
        assert list(core[name]) == [getattr(oracle, name)(size) for size in sizes]
    assert marked(core) == {
        "knee": oracle.knee(),
        "0.05": oracle.refill_under(0.05),
        "0.15": oracle.refill_under(0.15),
    }
    if rate is None:
        for size in (1, 3, 8):
            found = replay(requests_of(trace), size)
            assert (found["hits"], found["totals"]["evicted"], found["totals"]["refilled"]) == (
                oracle.hits(size),
                oracle.evicted(size),
                oracle.refilled(size),
            )


# The published trace

SIZES = (1_000, 10_000, 50_000, 100_000)
ALONE: dict[int, tuple[int, int, int]] = {}


@cache
def published() -> tuple[Any, list[Request]]:
    lines = [json.loads(line) for line in gzip.decompress(PUBLISHED.read_bytes()).splitlines()]
    return KVTrace.read(PUBLISHED)._raw, [
        Request(line["timestamp"] * MS, line["hash_ids"], line["input_length"]) for line in lines
    ]


def published_references() -> list[int]:
    return [block for request in published()[1] for block in request.blocks]


def by_hand(references: Iterable[int], room: int) -> tuple[int, int, int]:
    """Hits, evictions and refills of an LRU cache."""
    if room not in ALONE:
        there: OrderedDict[int, None] = OrderedDict()
        gone: set[int] = set()
        hits = evicted = refilled = 0
        for block in references:
            if block in there:
                there.move_to_end(block)
                hits += 1
                continue
            refilled += block in gone
            gone.discard(block)
            there[block] = None
            if len(there) > room:
                gone.add(there.popitem(last=False)[0])
                evicted += 1
        ALONE[room] = hits, evicted, refilled
    return ALONE[room]


def test_the_published_trace_is_whole() -> None:
    core, requests = published()
    references = published_references()
    assert (len(requests), len(references), len(set(references))) == (12_031, 288_500, 182_790)
    assert (core.requests, core.references, core.distinct) == (12_031, 288_500, 182_790)
    assert (core.first_ns, core.last_ns) == (requests[0].t_ns, requests[-1].t_ns)


@pytest.mark.parametrize("blocks", SIZES)
def test_the_published_trace_at_one_size(blocks: int) -> None:
    core, requests = published()
    hits, evicted, refilled = by_hand(published_references(), blocks)
    assert refilled > 0
    found = core.replay(blocks, "lru", None, None, 512)
    totals = found["totals"]
    assert (found["hits"], totals["evicted"], totals["refilled"]) == (hits, evicted, refilled)
    assert (found["lookups"], totals["stored"], totals["forgotten"]) == (288_500, 288_500 - hits, 0)
    assert found["queried_tokens"] == sum(request.input_tokens or 0 for request in requests)


def test_the_published_trace_at_all_sizes() -> None:
    core, _ = published()
    curve = core.curve([*SIZES, 182_790], None, 0)
    assert (curve["references"], curve["distinct"]) == (288_500, 182_790)
    for place, blocks in enumerate(SIZES):
        at = curve["hits"][place], curve["evicted"][place], curve["refilled"][place]
        assert at == by_hand(published_references(), blocks)
    assert (curve["hits"][-1], curve["evicted"][-1], curve["refilled"][-1]) == (288_500 - 182_790, 0, 0)


def test_marks_of_the_published_trace() -> None:
    """The curve at every size says where its own marks lie."""
    core, _ = published()
    distinct = 182_790
    curve = core.curve(list(range(1, distinct + 1)), None, 0)
    hits, evicted, refilled = (curve[name].tolist() for name in ("hits", "evicted", "refilled"))
    above = [n * distinct - size * hits[-1] for size, n in enumerate(hits, 1)]
    over = {
        limit: [size for size, n in enumerate(evicted, 1) if n and refilled[size - 1] / n >= limit]
        for limit in (0.05, 0.15)
    }
    assert all(over.values())
    marks = {"knee": above.index(max(above)) + 1, "0.05": over[0.05][-1] + 1, "0.15": over[0.15][-1] + 1}
    assert marked(curve) == marks
    for name, size in marks.items():
        mark = curve["knee"] if name == "knee" else curve["refill_under"][name]
        at = size - 1
        assert mark == {"blocks": size, "hits": hits[at], "evicted": evicted[at], "refilled": refilled[at]}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_begin_of_the_published_trace_under_any_policy(tmp_path: Path, policy: str) -> None:
    """As much of it as the reference gets through, with LFU the least."""
    lines = gzip.decompress(PUBLISHED.read_bytes()).splitlines()[: 400 if policy == "lfu" else 800]
    (tmp_path / "begin.jsonl").write_bytes(b"\n".join(lines))
    requests, blocks, remember = published()[1][: len(lines)], 600, 2_000
    found = KVTrace.read(tmp_path / "begin.jsonl")._raw.replay(blocks, policy, remember, None, 512)
    wanted = replay(requests, blocks, policy, remember)
    assert differences(comparable(found), comparable(wanted)) == []
    assert wanted["totals"]["forgotten"] > 0 < wanted["totals"]["refilled"]


@pytest.mark.parametrize(("rate", "bound"), [(0.1, 0.01), (0.01, 0.03)])
def test_a_sample_of_the_published_trace(rate: float, bound: float) -> None:
    """Mean absolute error over the sizes, in the median of nine seeds; of hit rate and refill rate."""
    core, _ = published()
    sizes = list(range(1_000, 182_790, 1_000))
    exact = core.curve(sizes, None, 0)
    curves = [core.curve(sizes, rate, seed) for seed in range(9)]
    assert len({tuple(curve["hits"]) for curve in curves}) == 9
    sampled = [curve["sampled_references"] for curve in curves]
    assert all(0.5 * rate < n / 288_500 < 2 * rate for n in sampled)
    for rate_of in (hit_rate, refill_rate):
        errors = [abs(rate_of(curve) - rate_of(exact)).mean() for curve in curves]
        assert 0 < statistics.median(errors) <= bound


def hit_rate(curve: dict[str, Any]) -> Any:
    return np.asarray(curve["hits"]) / curve["references"]


def refill_rate(curve: dict[str, Any]) -> Any:
    evicted = np.asarray(curve["evicted"])
    return np.divide(curve["refilled"], evicted, out=np.zeros(len(evicted)), where=evicted > 0)
