"""AIPerf's records: units, chunks, cancellations, refusals, warm-up, against the summary it made itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from tool_files import close, counted, document, jsonl, lines, means, only, path, statuses

from tokenpulse.records import ABSENT, Summary


def row(start: int = 1_000, **changed: Any) -> dict[str, Any]:
    metadata = {
        "x_request_id": f"id-{start}",
        "credit_issued_ns": start - 10,
        "request_start_ns": start,
        "request_ack_ns": start + 5,
        "request_end_ns": start + 500_000_000,
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    }
    metrics = {
        "time_to_first_token": {"value": 100.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [100.0, 0.0], "unit": "ms"},
        "request_latency": {"value": 200.0, "unit": "ms"},
        "input_sequence_length": {"value": 7, "unit": "tokens"},
        "output_sequence_length": {"value": 5, "unit": "tokens"},
        "inter_token_latency": {"value": 25.0, "unit": "ms"},
    }
    made = {"metadata": metadata | changed.pop("metadata", {}), "metrics": metrics | changed.pop("metrics", {})}
    return made | changed


@pytest.mark.parametrize("name", ["aiperf", "aiperf_cancel"])
def test_recorded_rows_come_to_aiperfs_own_figures(name: str) -> None:
    records = only(path(f"{name}.jsonl.gz"))
    own = document(f"{name}_summary.json.gz")
    good = records.succeeded & records.counted
    assert int(good.sum()) == own["request_count"]["avg"]
    assert np.mean(records.ttft[good]) * 1e3 == pytest.approx(own["time_to_first_token"]["avg"], rel=1e-12)
    assert np.percentile(records.e2e[good], 99) * 1e3 == pytest.approx(own["request_latency"]["p99"], rel=1e-12)
    chunks = records.gaps.select(good).values
    assert len(chunks) == own["inter_chunk_latency"]["count"]
    assert np.std(chunks) * 1e3 == pytest.approx(own["inter_chunk_latency"]["std"], rel=1e-12)
    assert records.output_tokens[good].sum() == own["total_osl"]["avg"]
    assert np.mean(records.own["inter_token_latency"][good]) == pytest.approx(
        own["inter_token_latency"]["avg"], rel=1e-12
    )
    assert records.own_units["inter_token_latency"] == "ms"
    assert records.notices == []
    reduction = counted(records)
    assert close(means(reduction)["tpot"][1], own["inter_token_latency"]["avg"] / 1e3)
    assert close(means(reduction)["e2e"][1], own["request_latency"]["avg"] / 1e3)


def test_cancelled_refused_and_warm_up_rows_stay_apart() -> None:
    records = only(path("aiperf_cancel.jsonl.gz"))
    assert (len(records), int(records.warmup.sum())) == (126, 6)
    assert Counter(np.array(statuses(records))[records.counted]) == {"stop": 88, "abort": 24, "error": 8}
    failed = ~records.succeeded
    assert np.isnan(records.ttft[failed]).all()
    assert np.isnan(records.e2e[failed]).all()
    assert (records.output_tokens[failed] == ABSENT).all()
    assert (records.end_ns[failed] >= records.arrive_ns[failed]).all()
    assert "maximum context length" in next(error for error in records.errors if error and "Bad Request" in error)
    reduction = counted(records)
    assert reduction["inputs"][0]["requests"] == 120
    assert reduction["clamped"] == 0


def test_the_columns() -> None:
    records = only(jsonl([row()]))
    assert (records.format, records.clock, records.ids) == ("aiperf-requests", "epoch", ["id-1000"])
    assert (records.arrive_ns[0], records.intended_ns[0], records.end_ns[0]) == (1_000, 990, 500_001_000)
    assert (records.ttft[0], records.e2e[0], records.latency[0]) == (0.1, 0.2, 0.5)
    assert records.gaps.values.tolist() == [0.1, 0.0]
    assert records.chunks_only
    assert means(counted(records)) == {"ttft": (1, 0.1), "tpot": (1, 0.025), "e2e": (1, 0.2), "itl": (2, 0.05)}


@pytest.mark.parametrize(
    ("unit", "value"), [("ns", 1e8), ("us", 1e5), ("ms", 100.0), ("s", 0.1), ("sec", 0.1), ("ms", "100.0")]
)
def test_the_unit_is_always_read(unit: str, value: Any) -> None:
    records = only(jsonl([row(metrics={"time_to_first_token": {"value": value, "unit": unit}})]))
    assert records.ttft[0] == pytest.approx(0.1, rel=1e-12)


@pytest.mark.parametrize("unit", ["fortnights", None, 3])
def test_a_unit_that_is_not_known_spoils_its_row(unit: Any) -> None:
    records = only(jsonl([row(metrics={"time_to_first_token": {"value": 1.0, "unit": unit}}), row(2_000)]))
    assert (len(records), records.skipped) == (1, {"bad_value": 1})
    assert "expected ns, us, ms or s" in records.notices[0]["message"]
    assert records.notices[0]["line"] == 1


@pytest.mark.parametrize(
    ("error", "cancelled", "status"),
    [
        (None, False, "stop"),
        ({}, False, "stop"),
        ({"code": 400, "type": "Bad Request", "message": "no"}, False, "error"),
        ({"type": "ClientConnectorError", "message": "refused"}, False, "error"),
        ({"code": 499, "type": "RequestCancellationError", "message": "late"}, True, "abort"),
        (None, True, "abort"),
        ({"code": 408, "type": "Request Timeout", "message": "x"}, False, "timeout"),
        ({"code": 504, "message": "x"}, False, "timeout"),
        ({"type": "TimeoutError", "message": "timeout"}, False, "error"),
        ("broken", False, "error"),
    ],
)
def test_how_a_request_ended(error: Any, cancelled: bool, status: str) -> None:
    made = row(metadata={"was_cancelled": cancelled})
    if status != "stop":
        made["metrics"] = {}
    if error is not None:
        made["error"] = error
    records = only(jsonl([made]))
    assert statuses(records) == [status]
    assert (records.errors[0] is None) == (status == "stop")


def test_a_row_without_chunk_gaps_still_has_its_last_token() -> None:
    made = row()
    del made["metrics"]["inter_chunk_latency"]
    records = only(jsonl([made, row(2_000)]))
    assert means(counted(records))["itl"] == (2, 0.05)
    assert means(counted(records))["e2e"] == (2, 0.2)
    assert means(counted(records))["tpot"] == (2, 0.025)
    alone = only(jsonl([made]))
    assert (alone.gaps, "latency.itl" in alone.absent) == (None, True)


def test_gaps_that_are_not_all_are_noted() -> None:
    records = only(jsonl([row(), row(2_000, metrics={"request_latency": {"value": 450.0, "unit": "ms"}})]))
    assert "do not add up" in records.notices[0]["message"]
    assert records.skipped == {}


def test_ids_that_come_twice_are_no_ids() -> None:
    assert only(jsonl([row(), row()])).ids is None
    assert counted(only(jsonl([row(), row()])))["inputs"][0]["requests"] == 2


def test_rows_at_fault_are_named_and_the_rest_is_read() -> None:
    bad: list[Any] = [
        row(metadata={"request_start_ns": None}),
        row(metadata={"request_start_ns": -5}),
        row(metrics={"output_sequence_length": {"value": 2.5, "unit": "tokens"}}),
        row(metrics={"inter_chunk_latency": {"value": [1.0, -1.0], "unit": "ms"}}),
        row(metrics={"inter_chunk_latency": {"value": 7.0, "unit": "ms"}}),
        {"metadata": row()["metadata"], "metrics": 5},
        {"metadata": [], "metrics": {}},
        [1],
    ]
    text = jsonl([row(1_000), *bad]) + b'\n{"metadata": \n' + jsonl([row(2_000)])
    records = only(text)
    assert len(records) == 2
    assert records.skipped == {"missing_field": 1, "bad_value": 3, "wrong_type": 3, "not_object": 1, "not_json": 1}
    assert [notice["line"] for notice in records.notices] == [2, 3, 4, 5, 6]
    assert all("expected" in notice["message"] for notice in records.notices)


def test_integers_as_text_and_bare_nan() -> None:
    made = row(
        metadata={"request_start_ns": "1000"}, metrics={"output_sequence_length": {"value": "5", "unit": "tokens"}}
    )
    made["metrics"]["request_latency"]["value"] = float("nan")
    records = only(jsonl([made]))
    assert (records.arrive_ns[0], records.output_tokens[0]) == (1_000, 5)
    assert np.isnan(records.e2e[0])


def test_every_scalar_is_kept_as_the_tool_has_it() -> None:
    records = only(path("aiperf.jsonl.gz"))
    first = lines("aiperf.jsonl.gz")[0]["metrics"]
    scalars = {key: one["value"] for key, one in first.items() if not isinstance(one["value"], list)}
    assert {key: records.own[key][0] for key in scalars} == scalars


def test_the_summary() -> None:
    summary = only(path("aiperf_cancel_summary.json.gz"))
    assert isinstance(summary, Summary)
    assert summary.figures == document("aiperf_cancel_summary.json.gz")
    assert summary.normalised["ttft"]["p99"] == pytest.approx(0.11841730098)
    assert summary.normalised["tpot"]["mean"] == pytest.approx(0.004671514017)
    assert summary.normalised["itl"]["mean"] == pytest.approx(0.007735606839)
    assert summary.normalised["requests"] == {"succeeded": 88, "failed": 32}
    assert summary.normalised["duration"] == 6.25277056


def test_chunks_are_no_count_of_tokens() -> None:
    """Without any request's number of tokens there is no TPOT, although there are chunks to be counted."""
    records = only(
        jsonl([row(metrics={"output_sequence_length": None}), row(2_000, metrics={"output_sequence_length": None})])
    )
    assert (records.output_tokens == ABSENT).all()
    assert (
        records.absent["latency.tpot"]
        == records.absent["tokens.output"]
        == "the file does not have the outputs' lengths"
    )
    assert "latency.tpot" not in only(jsonl([row(), row(2_000, metrics={"output_sequence_length": None})])).absent
    # Of requests that failed nobody expects one.
    assert (
        "latency.tpot" not in only(jsonl([row(metrics={"output_sequence_length": None}, error={"code": 500})])).absent
    )


def test_a_duration_without_nanoseconds_spoils_its_row() -> None:
    records = only(jsonl([row(), row(2_000, metrics={"request_latency": {"value": 1e300, "unit": "ms"}})]))
    assert (len(records), records.skipped) == (1, {"bad_value": 1})
