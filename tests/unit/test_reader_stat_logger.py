"""Lines of vLLM's stat logger: lists that belong to no request, rows of those that finished, gauges."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from tool_files import counted, jsonl, lines, means, only, path, statuses

from tokenpulse.records import ABSENT

NOW = 1795961704.143073


def finished(**changed: Any) -> dict[str, Any]:
    made = {
        "finish_reason": 1,
        "request_id": "r0",
        "e2e_latency": 0.5,
        "num_prompt_tokens": 7,
        "num_generation_tokens": 5,
        "queued_time": 0.001,
        "prefill_time": 0.05,
        "decode_time": 0.4,
        "mean_time_per_output_token": 0.1,
    }
    return made | changed


def line(mono: float = 1868.25, engine: int | None = 0, **iteration: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "mono": mono,
        "engine": engine,
        "sched": {"num_running_reqs": 3, "num_waiting_reqs": 2, "kv_cache_usage": 0.5},
        "iter": {
            "iteration_timestamp": NOW + mono - 1868.25,
            "num_generation_tokens": 4,
            "num_preempted_reqs": 1,
            "prompt_token_stats": {"total": 7},
            "time_to_first_tokens_iter": [0.25],
            "inter_token_latencies_iter": [0.125, 0.0],
            "finished_requests": [],
        }
        | iteration,
    }
    return {key: value for key, value in made.items() if value is not None}


@pytest.mark.parametrize("name", ["stat_logger", "stat_logger_defaults_left_out"])
def test_recorded_lines(name: str) -> None:
    records = only(path(f"{name}.jsonl.gz"))
    rows = lines(f"{name}.jsonl.gz")
    iterations = [row["iter"] for row in rows if row["iter"]]
    done = [one for each in iterations for one in each.get("finished_requests", [])]
    assert len(records) == len(done)
    assert records.output_tokens.sum() == sum(one["num_generation_tokens"] for one in done)
    for metric, key in (("ttft", "time_to_first_tokens_iter"), ("itl", "inter_token_latencies_iter")):
        assert records.pooled[metric].tolist() == [value for each in iterations for value in each.get(key, [])]
    assert records.run["output_tokens"] == sum(each.get("num_generation_tokens", 0) for each in iterations)
    assert records.run["preemptions"] == sum(each.get("num_preempted_reqs", 0) for each in iterations)
    assert np.mean(records.pooled["queue"]) == pytest.approx(np.mean([one["queued_time"] for one in done]), rel=1e-12)
    assert np.mean(records.e2e) == pytest.approx(np.mean([one["e2e_latency"] for one in done]), rel=1e-12)
    assert means(counted(records))["e2e"] == (len(done), pytest.approx(float(np.mean(records.e2e)), abs=1e-8))
    assert len(records.gauges["running"].values) == len(rows)
    assert records.gauges["running"].values.max() == max(row["sched"].get("num_running_reqs", 0) for row in rows)
    assert (np.diff(records.gauges["running"].t_ns) >= 0).all()
    assert records.skipped == {}


def test_the_columns() -> None:
    records = only(jsonl([line(), line(1869.25, finished_requests=[finished()])]))
    assert (records.tool, records.format, records.clock) == ("vllm-stat-logger", "vllm-stat-logger", "epoch")
    assert (records.ids, statuses(records)) == (["r0"], ["length"])
    assert records.end[0] == NOW + 1.0
    assert records.arrive_ns[0] == pytest.approx((NOW + 0.5) * 1e9, abs=300)
    assert np.isnan(records.ttft[0])
    assert records.pooled["ttft"].tolist() == [0.25, 0.25]
    # A gap of 0 counts, and a step of several tokens gives one.
    assert records.pooled["itl"].tolist() == [0.125, 0.0, 0.125, 0.0]
    assert {name: records.pooled[name].tolist() for name in ("queue", "prefill", "tpot")} == {
        "queue": [0.001],
        "prefill": [0.05],
        "tpot": [0.1],
    }
    assert records.chunks_only
    assert records.run == {"output_tokens": 8, "preemptions": 2, "prompt_tokens": 14}
    gauge = records.gauges["waiting"]
    assert (gauge.values.tolist(), gauge.engine.tolist()) == ([2.0, 2.0], [0, 0])
    assert gauge.t_ns[0] == pytest.approx(NOW * 1e9, abs=300)
    assert means(counted(records)) == {"e2e": (1, 0.5)}


@pytest.mark.parametrize("key", ["engine", "engine_idx"])
def test_several_engines(key: str) -> None:
    rows = [line(engine=None, finished_requests=[finished(request_id=f"r{e}")]) | {key: e} for e in (0, 1, 1)]
    records = only(jsonl([*rows[:2], rows[2] | {"iter": None}]))
    assert records.labels["engine"] == (pytest.approx([0, 1]), ["0", "1"])
    assert records.gauges["running"].engine.tolist() == [0, 1, 1]


def test_fields_with_their_default_may_be_left_out() -> None:
    bare = {"mono_ns": 1_868_250_000_000, "sched": {"num_running_reqs": 1}, "iter": {"iteration_timestamp": NOW}}
    idle = {"mono_ns": 1_868_350_000_000, "sched": {}, "iter": None}
    records = only(jsonl([bare, idle]))
    assert records.gauges["running"].values.tolist() == [1.0, 0.0]
    assert records.gauges["waiting"].values.tolist() == [0.0, 0.0]
    assert records.gauges["running"].t_ns[1] - records.gauges["running"].t_ns[0] == 100_000_000
    assert len(records) == 0
    # No scheduler statistics at all is no gauge, not one of 0.
    assert len(only(jsonl([bare | {"sched": None}])).gauges["running"].values) == 0


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (0, "stop"),
        (1, "length"),
        (2, "abort"),
        (3, "error"),
        ("stop", "stop"),
        ("ABORT", "abort"),
        ("length", "length"),
    ],
)
def test_how_a_request_finished(reason: Any, status: str) -> None:
    records = only(jsonl([line(finished_requests=[finished(finish_reason=reason)])]))
    assert statuses(records) == [status]
    assert len(records.pooled["tpot"]) == (1 if status in ("stop", "length") else 0)


def test_a_request_of_one_token_has_no_tpot() -> None:
    one = finished(num_generation_tokens=1, mean_time_per_output_token=0.0)
    assert only(jsonl([line(finished_requests=[one])])).pooled["tpot"].tolist() == []


def test_lines_at_fault() -> None:
    rows = [
        line(),
        line(finished_requests=[finished(finish_reason="tired")]),
        line(inter_token_latencies_iter=[0.1, -0.1]),
        line(iteration_timestamp=None, finished_requests=[finished()]),
        {"sched": {}, "iter": 5, "mono": 1.0},
        line(engine=-1),
    ]
    records = only(jsonl(rows) + b"\nnot json\n")
    assert Counter(records.skipped) == {"bad_value": 3, "missing_field": 1, "wrong_type": 1, "not_json": 1}
    assert records.pooled["itl"].tolist() == [0.125, 0.0]
    assert len(records) == 0


def test_a_request_without_its_latency_has_no_arrival() -> None:
    records = only(jsonl([line(finished_requests=[finished(e2e_latency=None)])]))
    assert records.arrive_ns.tolist() == [ABSENT]
