"""Streams of calls, the ill-behaved ones above all: the core's meter and the reference's come to the same reading.

Requests are named by how many arrivals were tried before theirs, so that the two engines' handles are never compared.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from meters import ENGINES, Call, Core, Reference, comparable, differences

from tokenpulse import engine
from tokenpulse.model import DAY_NS, METRICS, SLO, TTL_NS

FIXTURES = Path(__file__).parents[1] / "fixtures"
SECOND = 10**9
STATUSES = ("stop", "stop", "stop", "stop", "length", "length", "abort", "error", "timeout", "oom", "reject")

NARROW = ([60], [60, 600], [600, 6000], [60, 120, 6000], [6000], [])
"""Windows in which a step of a few ns enters a new pane."""

SMALL = (*range(13), *range(13), 0, 0, 1, 2, 10, 20, 59, 60, 61)
LARGE = (100, 599, 601, 6000, 7000, SECOND, 20 * SECOND, TTL_NS, TTL_NS + 1)
BACK = (-1, -2, -5, -60, -700, -7000, -3 * SECOND, -2 * TTL_NS)
FAR = (DAY_NS, DAY_NS + 1, DAY_NS + 1, 3 * DAY_NS, 40 * DAY_NS)
steps = st.sampled_from(SMALL * 12 + LARGE * 2 + BACK * 2 + FAR)
counts = st.sampled_from((1, 1, 1, 2, 3, 4, 5, 9) * 3 + (2**32 - 1, 0, -1, 2**32))
lengths = st.sampled_from((0, 1, 5, 127, 128, 200, 300, 512, 40_000, 2**40) * 4 + (2**40 + 1, -1))
gauged = st.sampled_from((None, 0, 1, 2, 3, 4, 5) * 3 + (2**40, -1))
whole = st.sampled_from((0, 1, 7, 10**12, -1))
work = st.one_of(whole, st.sampled_from((0.5, 1.5, 2.5, 1e15, -0.0, -0.5, math.nan, math.inf, -math.inf)))
values = st.one_of(
    st.integers(0, 9),
    st.sampled_from((1e-9, 2e-6, 0.5, 1e300, -1.0, -1e-12, -0.0, math.nan, math.inf, -math.inf, 5000)),
)
labels = st.dictionaries(st.sampled_from(("tenant", "tier")), st.sampled_from(("x", "y")), max_size=2)
names = st.sampled_from(
    ("oom_event", "semantic_lookup", "semantic_hit", "prompt_tokens", "cached_tokens", "output_tokens")
)

# A call as it is drawn: its step in time, its method, its arguments. Requests and classes are named by how many
# arrivals and classifications ago they were, so that a stream from which some calls are taken out is as good as any.
RECENT = (0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 7)
FORGED = (-1, -7, 2**62)
handles = st.lists(st.sampled_from(RECENT * 4 + FORGED), min_size=1, max_size=3)
classes = st.sampled_from((None, 0, 0, 0, 1, 2))


def method(called: str, /, optional: Mapping[str, Any] | None = None, **arguments: Any) -> st.SearchStrategy[Any]:
    return st.tuples(steps, st.just(called), st.fixed_dictionaries(arguments, optional=dict(optional or {})))


METHODS = {
    "arrive": method("arrive", prompt_tokens=lengths, cached_tokens=lengths, cls=classes),
    "step": method("step", handles=handles),
    "uneven step": method("step", pairs=st.lists(st.tuples(st.sampled_from(RECENT), counts), min_size=1, max_size=3)),
    "end": method("end", handles=handles, status=st.sampled_from(STATUSES), degraded=st.booleans()),
    "schedule": method("schedule", handles=handles),
    "prefill": method("prefill", handles=handles),
    "preempt": method("preempt", handles=handles),
    "resume": method("resume", handles=handles),
    "empty": method("step", handles=st.just([])),
    "classify": method("classify", {"prompt_tokens": st.sampled_from((5, 200))}, labels=labels),
    "observe": method(
        "observe",
        metric=st.sampled_from(METRICS),
        values=st.lists(values, max_size=4),
        unit=st.sampled_from(("s", "ns")),
        cls=classes,
        timeless=st.booleans(),
    ),
    "gauge": method("gauge", running=gauged, waiting=gauged, batch_max=gauged),
    "add": method("add", {"comm_ns": whole, "flops": work, "bytes_moved": work}),
    "count": method("count", name=names, n=st.sampled_from((1, 5, 0, 2**40, 2**40 + 1, -1)), cls=classes),
    "ready": method("ready"),
}
TIMES_OF = {
    "arrive": 6,
    "step": 9,
    "uneven step": 4,
    "end": 5,
    "classify": 2,
    "schedule": 2,
    "preempt": 2,
    "resume": 2,
    "gauge": 3,
}
calls_drawn = st.sampled_from([name for name in METHODS for _ in range(TIMES_OF.get(name, 1))]).flatmap(METHODS.get)

PARTS = st.tuples(*[st.lists(calls_drawn, max_size=16)] * 6)
"""Several lists, each of which shrinks to nothing: one alone would mostly be short."""


def calls_of(start_ns: int, drawn: Iterable[tuple[int, str, dict[str, Any]]]) -> list[Call]:
    """Calls at absolute times and with names, out of calls as they are drawn."""
    calls: list[Call] = []
    arrivals = classified = 0
    t = start_ns
    for step, name, arguments in drawn:
        meant = dict(arguments)
        at = max(0, t + step)
        if step != DAY_NS + 1:  # such a clock is back for the next call; others that are a day ahead stay there
            t = at
        meant["t"] = at
        if "pairs" in meant:
            pairs = meant.pop("pairs")
            meant["handles"] = [back for back, _ in pairs]
            meant["counts"] = [k for _, k in pairs]
        if "handles" in meant:
            meant["handles"] = [handle_of(arrivals, back) for back in meant["handles"]]
        if "cls" in meant:
            back = meant["cls"]
            meant["cls"] = f"class {classified - 1 - back}" if back is not None and back < classified else 0
        if meant.pop("timeless", False):
            del meant["t"]
        if name == "arrive":
            calls.append((name, meant, f"handle {arrivals}"))
            arrivals += 1
        elif name == "classify":
            del meant["t"]
            calls.append((name, meant | meant.pop("labels"), f"class {classified}"))
            classified += 1
        else:
            calls.append((name, meant))
    return calls


def handle_of(arrivals: int, back: int) -> str | int:
    """The handle that came so many arrivals before the latest; a forged one stands for itself."""
    if back in FORGED:
        return back
    return f"handle {arrivals - 1 - back}" if back < arrivals else -1


streams = st.builds(
    lambda start_ns, parts: calls_of(start_ns, itertools.chain.from_iterable(parts)),
    st.sampled_from((0, 5, 1000, 5 * SECOND, DAY_NS)),
    PARTS,
)


limits = st.sampled_from((1.0, 1e-9, 5e-9, 2e-8, 1e-7, 1e-6, 4000.0))
slos = st.builds(
    SLO,
    ttft=limits,
    tpot=limits,
    e2e=st.none() | limits,
    itl=st.none() | limits,
    where=st.sampled_from(({}, {}, {"tenant": "x"}, {"tenant": "x", "tier": "y"}, {"prompt_length": "128-512"})),
)
sets = st.lists(slos, max_size=2).map(lambda found: [replace(slo, name=f"set {i}") for i, slo in enumerate(found)])
settings_of_meters = st.fixed_dictionaries(
    {
        "windows_ns": st.sampled_from(NARROW),
        "max_requests": st.integers(3, 8) | st.integers(1, 2),
        "max_classes": st.integers(2, 4),
        "ttl_ns": st.sampled_from((TTL_NS, TTL_NS, TTL_NS, 5, 50, 700, 10 * DAY_NS)),
        "slos": sets,
    },
    optional={
        "scale": st.integers(0, 8),
        "itl": st.sampled_from(("token", "chunk", "stamp")),
        "burn": st.booleans(),
    },
)
defaults = st.fixed_dictionaries({}, optional={"slos": sets})

LATER = (0, 1, 9, 60, 700, 7000, 3 * SECOND, 16 * SECOND, TTL_NS, DAY_NS, -1, -9, -60, -700, -3 * SECOND)


def reading_times(newest_ns: int | None) -> Iterator[int | None]:
    yield None
    for later in LATER:
        if 0 <= (newest_ns or 0) + later < 2**63:
            yield (newest_ns or 0) + later


def assert_same(settings_given: dict[str, Any], calls: list[Call]) -> None:
    core, oracle = Core(**settings_given), Reference(**settings_given)
    core.drive(calls)
    oracle.drive(calls)
    for t in reading_times(oracle.reading()["newest_ns"]):
        assert differences(comparable(core.reading(t)), comparable(oracle.reading(t))) == [], t


@settings(deadline=None, max_examples=600, suppress_health_check=list(HealthCheck))
@given(calls=streams, given_settings=settings_of_meters)
def test_any_stream(calls: list[Call], given_settings: dict[str, Any]) -> None:
    assert_same(given_settings, calls)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(calls=streams, given_settings=defaults)
def test_any_stream_with_the_default_settings(calls: list[Call], given_settings: dict[str, Any]) -> None:
    assert_same(given_settings, calls)


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(calls=streams, given_settings=settings_of_meters)
def test_what_holds_of_any_reading(calls: list[Call], given_settings: dict[str, Any]) -> None:
    """Accounts that must balance, whoever keeps them."""
    for make in ENGINES:
        driven = make(**given_settings)
        driven.drive(calls)
        reading = driven.reading()
        assert comparable(reading) == comparable(driven.reading())
        total = reading["all"]["total"]
        in_flight = sum(reading["all"]["open"][kind]["n"] for kind in ("streams", "waits"))
        assert total["attempted"] == sum(total["by_status"].values()) + in_flight
        assert in_flight <= given_settings["max_requests"]
        judged = sum(total["by_status"].values()) - total["by_status"].get("abort", 0)
        for slo in total["slos"]:
            assert slo["good"] + sum(slo["missed"].values()) <= judged
        for window in reading["windows"]:
            assert 0 <= window["true_width_ns"] <= window["width_ns"] * 61 // 60
        for name in ("attempted", "output_tokens", "preemptions", "cached_tokens"):
            assert sum(each["total"][name] for each in reading["classes"]) == total[name]
            assert all(window[name] <= total[name] for window in reading["all"]["windows"])


# Whole recorded runs

RECORDED = ("run.jsonl.gz", "run_async.jsonl.gz")
LIMITS = [
    SLO(ttft=0.2, tpot=0.03),
    SLO("tight", ttft=0.05, tpot=0.01, e2e=1.0, itl=0.05),
    SLO("code", ttft=1, tpot=1, where={"tenant": "code"}),
]
BY = ["tenant", "prompt_length"]
STEP_KINDS = {"tokens": "step"}


def recorded_calls(name: str) -> Iterator[Call]:
    """A recorded run as calls, line by line; ids are handles' names."""
    lines = gzip.decompress((FIXTURES / name).read_bytes()).splitlines()
    assert lines
    for line in lines:
        event = json.loads(line)
        kind, t = event["ev"], event["t_ns"]
        match kind:
            case "arrive":
                tokens = event["prompt_tokens"]
                cls = f"class of {event['id']}"
                yield "classify", {"prompt_tokens": tokens, **event["labels"]}, cls
                yield "arrive", {"t": t, "prompt_tokens": tokens, "cls": cls}, event["id"]
            case "tokens":
                yield "step", {"t": t, "handles": [event["id"]], "counts": [event.get("k", 1)]}
            case "schedule" | "prefill" | "preempt" | "resume":
                yield kind, {"t": t, "handles": event["id"]}
            case "end":
                degraded = event.get("degraded", False)
                yield kind, {"t": t, "handles": event["id"], "status": event["status"], "degraded": degraded}
            case "gauge":
                yield kind, {key: value for key, value in event.items() if key not in ("ev", "t_ns")} | {"t": t}
            case "kv_lookup" if not event["preempted"]:  # once per request, at its admission
                yield "count", {"t": t, "name": "cached_tokens", "n": event["hit"]}
            case "ready":
                yield kind, {"t": t}


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("rule", ["token", "chunk", "stamp"])
def test_recorded_runs(name: str, rule: str) -> None:
    """Live, and from the log: three answers, one result."""
    reduced = engine.reduce_paths([str(FIXTURES / name)], LIMITS, rule, BY)
    driven = [make(slos=LIMITS, itl=rule) for make in ENGINES]
    calls = list(recorded_calls(name))
    parts = 5
    for part in range(parts):
        some = calls[len(calls) * part // parts : len(calls) * (part + 1) // parts]
        for each in driven:
            each.drive(some)
        newest_ns = driven[0].reading()["newest_ns"]
        for t in (None, newest_ns + 1, newest_ns - 4 * SECOND, newest_ns + 16 * SECOND, newest_ns + 400 * SECOND):
            readings = [comparable(each.reading(t)) for each in driven]
            assert differences(readings[-1], readings[0]) == []
    for each in driven:
        reading = each.reading()
        for key in ("first_arrival_ns", "last_emission_ns", "rejected", "clamped"):
            assert reading[key] == reduced[key]
        assert differences_from_block(reading["all"]["total"], reduced["total"]) == []
        classes = [entry for entry in reading["classes"] if entry["key"]]  # looked-up tokens bear no class
        assert [entry["key"] for entry in classes] == [entry["key"] for entry in reduced["by"]]
        for entry, expected in zip(classes, reduced["by"], strict=True):
            assert differences_from_block(entry["total"], expected["block"]) == []
        # The run is shorter than an hour: the longest window has all of it.
        assert differences_from_block(reading["all"]["windows"][-1], reduced["total"]) == []


def differences_from_block(live: dict[str, Any], block: dict[str, Any]) -> list[str]:
    """A block of a reading has everything that a block of a reduction has, and it is equal."""
    return differences(comparable({key: live[key] for key in block}), comparable(block))
