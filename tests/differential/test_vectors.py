"""The vectors, which no engine owns, against both engines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenpulse import DecodeError, FormatError, Sketch, engine, reference
from tokenpulse.model import METRICS, SLO

VECTORS = Path(__file__).parents[1] / "vectors"
REDUCE = {"reference": reference.reduce_lines, "core": engine.reduce_bytes}
SKETCHES = {"reference": reference.Sketch, "core": Sketch}
FORMAT_ERRORS = (FormatError, reference.FormatError)
DECODE_ERRORS = (DecodeError, reference.DecodeError)

Reduce = Callable[..., dict[str, Any]]


def cases(name: str, section: str) -> list[Any]:
    found: list[Any] = json.loads((VECTORS / f"{name}.json").read_text())[section]
    assert found
    return found


def named(name: str, section: str, key: str) -> list[Any]:
    return [pytest.param(case, id=case[key]) for case in cases(name, section)]


def text_of(lines: list[Any]) -> bytes:
    return "\n".join(json.dumps(line) for line in lines).encode()


def latency_of(block: dict[str, Any]) -> dict[str, list[int | None]]:
    """Count, sum, min and max of each metric that was observed."""
    sketches = {metric: block["latency"][metric] for metric in METRICS}
    return {m: [s.count, s.sum_ns, s.min_ns, s.max_ns] for m, s in sketches.items() if s.count}


def figures(reduction: dict[str, Any]) -> dict[str, Any]:
    """Everything that a case may name."""
    total = reduction["total"]
    return {
        **reduction["inputs"][0],
        **total,
        **{key: reduction[key] for key in ("first_arrival_ns", "last_emission_ns", "newest_ns", "rejected", "clamped")},
        "latency": latency_of(total),
        "slowest": {metric: list(map(list, each)) for metric, each in reduction["slowest"].items()},
        "in_flight": total["attempted"] - sum(total["by_status"].values()),
        "notices": [[notice["line"], notice["reason"]] for notice in reduction["notices"]],
    }


def assert_expected(reduction: dict[str, Any], expect: dict[str, Any]) -> None:
    found = figures(reduction)
    if "slowest" in expect:
        found["slowest"] = {metric: found["slowest"][metric] for metric in expect["slowest"]}
    assert {key: found[key] for key in expect} == expect


@pytest.fixture(params=REDUCE)
def reduce(request: pytest.FixtureRequest) -> Reduce:
    return REDUCE[request.param]


@pytest.fixture(params=SKETCHES)
def sketch_class(request: pytest.FixtureRequest) -> Any:
    return SKETCHES[request.param]


def filled(sketch_class: Any, case: dict[str, Any]) -> Any:
    sketch = sketch_class(case["scale"], itl_rule=case.get("itl_rule"))
    for ns in case["values_ns"]:
        sketch.record_ns(ns)
    refused = {"nan": math.nan, "infinite": math.inf, "negative": -1.0, "range": 1e300}
    for reason, times in case.get("rejected", {}).items():
        sketch.record_n(refused[reason], times)
    return sketch


# Reductions


@pytest.mark.parametrize("case", named("request", "cases", "name"))
def test_requests(reduce: Reduce, case: dict[str, Any]) -> None:
    inputs = [(f"input {i}", text_of(lines)) for i, lines in enumerate(case.get("inputs", [case.get("lines")]))]
    settings = {key: case[key] for key in ("itl_rule", "ttl_ns") if key in case}
    assert_expected(reduce(inputs, **settings), case["expect"])


@pytest.mark.parametrize("case", named("slo", "verdicts", "name"))
def test_verdicts(reduce: Reduce, case: dict[str, Any]) -> None:
    settings = {"itl_rule": case["itl_rule"]} if "itl_rule" in case else {}
    found = reduce([("input", text_of([case["line"]]))], [SLO(**case["slo"])], **settings)["total"]["slos"][0]
    keys = ("good", "output_tokens", "missed", "met", "deadlines")
    assert {key: found[key] for key in keys} == {key: case[key] for key in keys}
    index = case["met"] * 10**9 // case["deadlines"] if case["deadlines"] else None
    assert (found["fluidity"].min_ns, found["fluidity"].max_ns) == (index, index)


@pytest.mark.parametrize("case", named("strata", "by", "name"))
def test_classes(reduce: Reduce, case: dict[str, Any]) -> None:
    found = reduce([("input", text_of(case["lines"]))], by=case["by"])["by"]
    assert len(found) == len(case["expect"])
    for each, expect in zip(found, case["expect"], strict=True):
        entry = {**each["block"], "key": each["key"], "latency": latency_of(each["block"])}
        assert {key: entry[key] for key in expect} == expect


def skipped_lines() -> list[Any]:
    plain = [
        (case["line"].encode(), case["reason"]) for section in ("skipped", "order") for case in cases("log", section)
    ]
    raw = [(bytes.fromhex(case["hex"]), case["reason"]) for case in cases("log", "hex")]
    return [pytest.param(line, why, id=f"{why}-{line[:60].decode(errors='replace')}") for line, why in plain + raw]


@pytest.mark.parametrize(("line", "reason"), skipped_lines())
def test_lines_that_are_skipped(reduce: Reduce, line: bytes, reason: str) -> None:
    around = b'{"ev": "ready", "t_ns": 1}\n' + line + b'\n{"ev": "arrive", "t_ns": 2, "id": "a"}\n'
    expect = {"lines": 3, "skipped": {reason: 1}, "notices": [[2, reason]], "attempted": 1, "rejected": {}}
    assert_expected(reduce([("input", around)]), expect)


@pytest.mark.parametrize("case", named("log", "read", "why"))
def test_lines_that_are_read(reduce: Reduce, case: dict[str, Any]) -> None:
    found = reduce([("input", case["text"].encode())], by=case.get("by", []))
    assert_expected(found, case["expect"])
    assert [each["key"] for each in found["by"]] == case.get("keys", [])


@pytest.mark.parametrize("case", named("log", "gzip", "why"))
def test_compressed_inputs(reduce: Reduce, case: dict[str, Any]) -> None:
    assert_expected(reduce([("input", bytes.fromhex(case["hex"]))]), case["expect"])


@pytest.mark.parametrize(
    "content",
    [
        *(pytest.param(text.encode(), id=text.strip()) for text in cases("log", "unknown_format")),
        *(pytest.param(bytes.fromhex(case["hex"]), id=case["why"]) for case in cases("log", "unknown_gzip")),
    ],
)
def test_an_unknown_format_is_an_error(reduce: Reduce, content: bytes) -> None:
    with pytest.raises(FORMAT_ERRORS):
        reduce([("input", content)])


# Sketches


def test_every_value_lies_in_its_bucket(sketch_class: Any) -> None:
    for case in cases("sketch", "index"):
        sketch = filled(sketch_class, {**case, "values_ns": [case["ns"]]})
        indices = [int(i) for i in sketch.buckets()[0]]
        place = "zero" if sketch.zero_count else "overflow" if sketch.overflow_count else indices[0]
        assert place == case["bucket"], case


def test_seconds_become_ns(sketch_class: Any) -> None:
    for case in cases("sketch", "seconds"):
        sketch = sketch_class()
        sketch.record(float.fromhex(case["seconds"]))
        assert sketch.min_ns == case.get("ns"), case
        assert dict(sketch.rejected) == ({case["rejected"]: 1} if "rejected" in case else {}), case


def test_quantiles(sketch_class: Any) -> None:
    for case in cases("sketch", "quantiles"):
        sketch = filled(sketch_class, case)
        qs = [float.fromhex(q) for q in case["q"]]
        assert [float(x).hex() for x in sketch.quantiles(qs)] == case["seconds"]
        assert [sketch.quantile(q).hex() for q in qs] == case["seconds"]


def test_cdf(sketch_class: Any) -> None:
    for case in cases("sketch", "cdf"):
        sketch = filled(sketch_class, case)
        assert [sketch.cdf(float.fromhex(x)).hex() for x in case["x"]] == case["share"]


def test_merges(sketch_class: Any) -> None:
    for case in cases("sketch", "merges"):
        left, right = filled(sketch_class, case["left"]), filled(sketch_class, case["right"])
        assert (left + right).to_bytes().hex() == case["hex"]
        assert (right + left).to_bytes().hex() == case["hex"]
        left.merge(right)
        assert left.to_bytes().hex() == case["hex"]


def test_differences(sketch_class: Any) -> None:
    for case in cases("sketch", "differences"):
        since = filled(sketch_class, case["later"]) - filled(sketch_class, case["earlier"])
        found = {key: getattr(since, key) for key in ("count", "sum_ns", "min_ns", "max_ns")}
        assert found == {key: case[key] for key in found}


@pytest.mark.parametrize("case", named("sketch", "bytes", "name"))
def test_bytes(sketch_class: Any, case: dict[str, Any]) -> None:
    sketch = filled(sketch_class, case)
    assert sketch.to_bytes().hex() == case["hex"]
    again = sketch_class.from_bytes(bytes.fromhex(case["hex"]))
    assert again == sketch
    assert again.to_bytes() == sketch.to_bytes()


@pytest.mark.parametrize("case", named("sketch", "refused_bytes", "name"))
def test_bytes_that_are_refused(sketch_class: Any, case: dict[str, str]) -> None:
    with pytest.raises(DECODE_ERRORS):
        sketch_class.from_bytes(bytes.fromhex(case["hex"]))


def test_relative_error(sketch_class: Any) -> None:
    for case in cases("sketch", "relative_error"):
        assert sketch_class(case["scale"]).relative_error.hex() == case["error"]
