"""Streams of calls, the ill-behaved ones above all: the core's meter and the reference's come to the same reading."""

from __future__ import annotations

from typing import Any

import pytest
from agreement import differences
from hypothesis import HealthCheck, given, settings
from meters import ENGINES, Call, Core, Reference, comparable
from recordings import FIXTURES, RECORDED, recorded_calls
from streams import SECOND, defaults, reading_times, settings_of_meters, streams

from tokenpulse import engine
from tokenpulse.model import SLO


def assert_same(settings_given: dict[str, Any], calls: list[Call]) -> None:
    core, oracle = Core(**settings_given), Reference(**settings_given)
    core.drive(calls)
    oracle.drive(calls)
    for t in reading_times(oracle.reading()["newest_ns"]):
        assert differences(comparable(core.reading(t)), comparable(oracle.reading(t))) == [], t


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(calls=streams, given_settings=settings_of_meters)
def test_any_stream(calls: list[Call], given_settings: dict[str, Any]) -> None:
    assert_same(given_settings, calls)


@settings(deadline=None, max_examples=75, suppress_health_check=list(HealthCheck))
@given(calls=streams, given_settings=defaults)
def test_any_stream_with_the_default_settings(calls: list[Call], given_settings: dict[str, Any]) -> None:
    assert_same(given_settings, calls)


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
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

LIMITS = [
    SLO(ttft=0.2, tpot=0.03),
    SLO("tight", ttft=0.05, tpot=0.01, e2e=1.0, itl=0.05),
    SLO("code", ttft=1, tpot=1, where={"tenant": "code"}),
]
BY = ["tenant", "prompt_length"]


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
