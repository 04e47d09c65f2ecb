"""The vectors of columns and of exact rows against both engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from batches import ABSENT, REDUCE_COLUMNS, arrays, as_lists

from tokenpulse import engine, reference
from tokenpulse.model import METRICS, SLO

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "columns.json").read_text())
SETTINGS = ("itl_rule", "ttl_ns", "by", "timeline_ns", "from_ns", "to_ns")
ROWS = {"reference": reference.rows_of, "core": getattr(engine, "read_rows_bytes", None)}


def named(section: str) -> list[Any]:
    assert VECTORS[section]
    return [pytest.param(case, id=case["name"]) for case in VECTORS[section]]


@pytest.fixture(params=REDUCE_COLUMNS)
def reduce_columns(request: pytest.FixtureRequest) -> Any:
    return REDUCE_COLUMNS[request.param]


@pytest.fixture(params=ROWS)
def rows_of(request: pytest.FixtureRequest) -> Any:
    return ROWS[request.param]


def figures(reduction: dict[str, Any]) -> dict[str, Any]:
    """Everything that a case may name."""
    total = reduction["total"]
    sketches = {metric: total["latency"][metric] for metric in METRICS}
    timeline = reduction["timeline"] or {"bins": []}
    blocks = [(each["start_ns"], each["block"]) for each in timeline["bins"]]
    first_input: dict[str, Any] = next(iter(reduction["inputs"]), {})
    return {
        **first_input,
        **reduction,
        **reduction["flow"],
        **total,
        **(total["slos"] or [{}])[0],
        "output_tokens": total["output_tokens"],
        "in_flight": total["attempted"] - sum(total["by_status"].values()),
        "latency": {m: [s.count, s.sum_ns, s.min_ns, s.max_ns] for m, s in sketches.items() if s.count},
        "slowest": {metric: list(map(list, each)) for metric, each in reduction["slowest"].items()},
        "timeline": [[at, block["attempted"], block["output_tokens"]] for at, block in blocks],
        "classes": [[each["key"], each["block"]["attempted"]] for each in reduction["by"]],
        "grid": list(map(list, reduction["grid"]["cells"])),
        "flow": [list(each.values()) for each in reduction["flow"]["bins"]],
        "notices": [[notice["line"], notice["reason"]] for notice in reduction["notices"]],
    }


@pytest.mark.parametrize("bytes_of_ids", [False, True], ids=["ids", "bytes"])
@pytest.mark.parametrize("case", named("cases"))
def test_columns(reduce_columns: Any, case: dict[str, Any], bytes_of_ids: bool) -> None:
    batches = [
        (
            each.get("kind", "requests"),
            each.get("name", "input"),
            each.get("format", "table"),
            arrays(each["columns"], bytes_of_ids),
        )
        for each in case["batches"]
    ]
    slos = [SLO(**case["slo"])] if "slo" in case else []
    found = figures(reduce_columns(batches, slos, **{key: case[key] for key in SETTINGS if key in case}))
    for metric in found["slowest"].keys() - case["expect"].get("slowest", {}).keys():
        del found["slowest"][metric]
    assert {key: found[key] for key in case["expect"]} == case["expect"]


def given_inputs(case: dict[str, Any]) -> list[tuple[str, bytes]]:
    inputs = case.get("inputs", [case.get("lines")])
    return [(f"input {i}", "\n".join(map(json.dumps, lines)).encode()) for i, lines in enumerate(inputs)]


def without_absent(value: Any) -> Any:
    """None for what is absent, and lists for tuples, as in the vectors."""
    if isinstance(value, (list, tuple)):
        return [without_absent(each) for each in value]
    if isinstance(value, dict):
        return {key: without_absent(each) for key, each in value.items()}
    return None if value == ABSENT else value


@pytest.mark.parametrize("case", named("rows"))
def test_rows(rows_of: Any, case: dict[str, Any]) -> None:
    settings = {"ttl_ns": case["ttl_ns"]} if "ttl_ns" in case else {}
    found = without_absent(as_lists(rows_of(given_inputs(case), **settings)))
    found["notices"] = [[notice["line"], notice["reason"]] for notice in found["notices"]]
    assert {key: found[key] for key in case["expect"]} == case["expect"]


def test_more_emissions_than_may_be_held(rows_of: Any) -> None:
    """Emissions count, not their tokens."""
    case = VECTORS["too_many"]
    assert len(rows_of(given_inputs(case), max_tokens=case["enough"])["token_ns"]) == case["enough"]
    with pytest.raises(ValueError, match=str(case["limit"])):
        rows_of(given_inputs(case), max_tokens=case["limit"])
