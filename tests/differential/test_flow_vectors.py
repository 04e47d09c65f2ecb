"""The vectors of cuts, flow, grid and bounded timelines against both engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenpulse import engine, reference
from tokenpulse.model import METRICS, SLO

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "flow.json").read_text())
SETTINGS = ("ttl_ns", "by", "timeline_ns", "timeline_bins", "from_ns", "to_ns")


def named(section: str) -> list[Any]:
    assert VECTORS[section]
    return [pytest.param(case, id=case["name"]) for case in VECTORS[section]]


@pytest.fixture(params=[reference.reduce_lines, engine.reduce_bytes], ids=["reference", "core"])
def reduce(request: pytest.FixtureRequest) -> Any:
    return request.param


def reduced(reduce: Any, case: dict[str, Any]) -> Any:
    inputs = [
        (f"input {i}", "\n".join(map(json.dumps, lines)).encode())
        for i, lines in enumerate(case.get("inputs", [case.get("lines")]))
    ]
    slos = [SLO(**case["slo"])] if "slo" in case else []
    return reduce(inputs, slos, **{key: case[key] for key in SETTINGS if key in case})


def bins_of(flow: dict[str, Any]) -> list[list[int]]:
    """Each bin as a list, in the order of the vectors."""
    figures = ("start_ns", "arrivals", "arrival_offset_ns", "ends", "end_offset_ns", "ttft_count", "ttft_sum_ns")
    assert all(set(each) == set(figures) for each in flow["bins"])
    return [[each[figure] for figure in figures] for each in flow["bins"]]


def figures(reduction: dict[str, Any]) -> dict[str, Any]:
    """Everything that a case of a cut may name."""
    total = reduction["total"]
    sketches = {metric: total["latency"][metric] for metric in METRICS}
    timeline = reduction["timeline"] or {"bins": []}
    blocks = [(each["start_ns"], each["block"]) for each in timeline["bins"]]
    (judged,) = total["slos"] or [{"good": None, "missed": None}]
    keys = ("first_arrival_ns", "last_emission_ns", "newest_ns", "rejected", "clamped", "cut")
    return {
        **total,
        **{key: reduction[key] for key in keys},
        "requests": sum(each["requests"] for each in reduction["inputs"]),
        "in_flight": total["attempted"] - sum(total["by_status"].values()),
        "latency": {m: [s.count, s.sum_ns, s.min_ns, s.max_ns] for m, s in sketches.items() if s.count},
        "slowest": {metric: list(map(list, each)) for metric, each in reduction["slowest"].items()},
        "timeline": [[at, block["attempted"], block["output_tokens"], block["by_status"]] for at, block in blocks],
        "classes": [[each["key"], each["block"]["attempted"]] for each in reduction["by"]],
        "good": judged["good"],
        "missed": judged["missed"],
        "grid": reduction["grid"]["cells"],
    }


@pytest.mark.parametrize("case", named("flow"))
def test_flow(reduce: Any, case: dict[str, Any]) -> None:
    flow = reduced(reduce, case)["flow"]
    assert {**flow, "bins": bins_of(flow)} | case["expect"] == {**flow, "bins": bins_of(flow)}


@pytest.mark.parametrize("case", named("cut"))
def test_cuts(reduce: Any, case: dict[str, Any]) -> None:
    found = figures(reduced(reduce, case))
    for metric in found["slowest"].keys() - case["expect"].get("slowest", {}).keys():
        del found["slowest"][metric]
    assert {key: found[key] for key in case["expect"]} == case["expect"]


@pytest.mark.parametrize("cut", VECTORS["refused_cuts"], ids=str)
def test_cuts_that_are_refused(reduce: Any, cut: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="from_ns must be before to_ns" if len(cut) == 2 else "must be between 0 and"):
        reduce([], **cut)


@pytest.mark.parametrize("case", named("timeline_bins"))
def test_bounded_timelines(reduce: Any, case: dict[str, Any]) -> None:
    lines = [{"id": i, "arrive_ns": t} for i, t in enumerate(case["times"])]
    settings = {"timeline_ns": case["width_ns"], "timeline_bins": case["timeline_bins"]}
    timeline = reduced(reduce, {"lines": lines, **settings})["timeline"]
    assert (timeline["asked_ns"], timeline["width_ns"]) == (case["width_ns"], case["final_width_ns"])
    assert [[each["start_ns"], each["block"]["attempted"]] for each in timeline["bins"]] == case["bins"]
    apart = reduced(reduce, {"inputs": [[line] for line in lines], **settings})["timeline"]
    assert [[each["start_ns"], each["block"]["attempted"]] for each in apart["bins"]] == case["bins"]
    assert apart["width_ns"] == case["final_width_ns"]


@pytest.mark.parametrize("limit", [1, 0, -1, 10_001])
def test_numbers_of_bins_that_are_refused(reduce: Any, limit: int) -> None:
    with pytest.raises(ValueError, match=f"timeline bins must be between 2 and 10000, got {limit}"):
        reduce([], timeline_ns=10, timeline_bins=limit)


@pytest.mark.parametrize("case", named("grid"))
def test_grids(reduce: Any, case: dict[str, Any]) -> None:
    grid = reduced(reduce, case)["grid"]
    assert grid["scale"] == 3
    assert list(map(list, grid["cells"])) == case["cells"]
