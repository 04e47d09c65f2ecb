"""The vectors of the KV cache, which no engine owns, against the reference and the core."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agreement import differences
from caches import CACHES, CoreCache, ReferenceCache, without_zeros
from meters import ENGINES, Reference, at_path, comparable, sketch_figures

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "kv.json").read_text())["cases"]
assert CASES


def driven(make: Callable[..., ReferenceCache], case: dict[str, Any]) -> ReferenceCache | Reference:
    if case.get("settings", {}) is None:  # a meter without a cache
        meter = ENGINES[CACHES.index(make)](**case["meter"])
        meter.drive(case["calls"])
        return meter
    cache = make(case.get("meter"), **case.get("settings", {}))
    cache.drive(case["calls"])
    return cache


def named(reading: dict[str, Any]) -> dict[str, Any]:
    """A reading as the vectors name it."""
    if "total" in reading:
        return without_zeros(reading)
    found: dict[str, Any] = sketch_figures({key: value for key, value in reading.items() if key != "kv"})
    return {**found, "kv": None if reading["kv"] is None else without_zeros(reading["kv"])}


@pytest.mark.parametrize("make", CACHES, ids=lambda make: make.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_cases(make: Callable[..., ReferenceCache], case: dict[str, Any]) -> None:
    cache = driven(make, case)
    assert case["snapshots"]
    for snapshot in [*case["snapshots"], *case["snapshots"]]:  # reading is pure: the second time is as the first
        found = named(cache.reading(snapshot["t"]))
        assert snapshot["expect"]
        assert {path: at_path(found, path) for path in snapshot["expect"]} == snapshot["expect"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_the_cases_do_not_name(case: dict[str, Any]) -> None:
    caches = driven(CoreCache, case), driven(ReferenceCache, case)
    for snapshot in case["snapshots"]:
        core, oracle = (comparable(cache.reading(snapshot["t"])) for cache in caches)
        assert differences(core, oracle) == []


def test_every_rule_has_a_case() -> None:
    """Everything that can be counted, measured or refused is other than 0 in some expected figure."""
    seen: set[str] = set()
    for case in CASES:
        for snapshot in case["snapshots"]:
            for path, expected in snapshot["expect"].items():
                if path.removeprefix("kv.") in ("total", "rejected"):
                    seen |= expected.keys()
    assert seen >= {*reference_names()}


def reference_names() -> list[str]:
    total = ReferenceCache(mode="sampled").reading()["total"]
    return [*total, "negative", "future", "tier", "invalid", "full", "unknown"]
