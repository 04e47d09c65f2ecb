"""Every profile on runs of any shape: empty, single, all failed, without times, tokens or gaps; of any tool's file."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from profiling import run, runs

from tokenpulse.profiles import PROFILES, profile, side_by_side

SHAPES: dict[str, dict[str, Any]] = {
    "whole": {},
    "without gaps": {"gaps": None},
    "without a clock": {"clock": None, "start": None, "arrive_ns": None},
    "without tokens": {"output_tokens": None, "prompt_tokens": None},
    "with nothing": {"gaps": None, "clock": None, "start": None, "arrive_ns": None, "output_tokens": None},
}
REQUESTS: dict[str, Any] = {
    "empty": {},
    "single": {"requests": [[0.1, 0.2]]},
    "one token": {"requests": [[0.1]]},
    "all failed": {"requests": [[], []], "status": ["error", "timeout"]},
    "all aborted": {"requests": [[0.1], []], "status": ["abort", "abort"]},
    "mixed": {"requests": [[0.1, 0.0, 0.2], [], [0.3]], "status": ["stop", "reject", "length"]},
}
FILES = (
    "vllm_bench_errors.json.gz",
    "aiperf_cancel.jsonl.gz",
    "guidellm_errors.json.gz",
    "inference_perf_requests.json.gz",
    "genai_bench.json.gz",
)


def plain(value: Any) -> bool:
    """Made of what JSON has, and of no number that it has not."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str)


@pytest.mark.parametrize("tool", ["table", "vllm", "aiperf", "guidellm", "inference-perf", "llmperf", "genai-bench"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("requests", REQUESTS)
def test_any_shape(requests: str, shape: str, tool: str) -> None:
    told = dict(REQUESTS[requests])
    one = run(*told.pop("requests", ()), tool=tool, **told, **SHAPES[shape])
    for goodput in (None, {"ttft": 0.2, "tpot": 0.1, "e2e": 1.0, "itl": 0.1}):
        made = {name: profile(name, one, goodput=goodput) for name in PROFILES}
        assert all(map(plain, made.values()))
        json.dumps(made, allow_nan=False)
        assert plain(side_by_side(one, profiles=made))


@pytest.mark.parametrize("name", FILES)
def test_any_file_by_any_tool(name: str) -> None:
    (one,) = runs(name)
    succeeded = int((one.succeeded & one.counted).sum())
    rows = {row["figure"]: row for row in side_by_side(one, goodput={"ttft": 0.1, "tpot": 0.02})}
    assert set(rows["requests.succeeded"]["values"].values()) == {succeeded}
    assert len(rows["ttft.mean"]["values"]) >= len(PROFILES) - 1
    assert len(rows) >= 16


def test_empty_values_are_what_each_tool_has() -> None:
    none = run(run={"duration": 1.0})
    assert profile("vllm", none)["p99_ttft_ms"] == 0.0
    assert profile("sglang", none)["mean_e2e_latency_ms"] is None
    assert "request_latency" not in profile("aiperf", none)
    assert profile("guidellm", none)["request_latency"]["total"]["mean"] == 0.0
    assert profile("inference-perf", none)["successes"]["latency"]["request_latency"] is None
    assert "no request succeeded" in profile("llmperf", none)["tokenpulse"]["absent"]["every distribution"]
    assert profile("tokenpulse", none)["latency"]["ttft"] is None


def test_what_cannot_be_had_is_named() -> None:
    found = profile("vllm", run([0.1, 0.1], gaps=None, clock=None, start=None, arrive_ns=None))
    assert found["request_throughput"] is None
    assert "mean_itl_ms" not in found
    assert {"duration", "*_itl_ms", "request_goodput", "max_concurrent_requests"} <= found["tokenpulse"][
        "absent"
    ].keys()


def test_tokens_that_nobody_counted_are_not_0() -> None:
    """A file with the answers' text and no counts: every figure in tokens is null or absent, in every profile."""
    one = run([0.1, 0.1], output_tokens=None, prompt_tokens=None, run={"duration": 1.0})
    one.absent["tokens.output"] = "the file has text only"
    made = {name: profile(name, one, goodput={"ttft": 0.2, "tpot": 0.2}) for name in PROFILES}
    for name, found in made.items():
        headline = found["tokenpulse"]["headline"]
        assert not {"output_tokens_per_second", "goodput", "tpot.mean"} & headline.keys(), name
        assert headline["ttft.mean"] == pytest.approx(0.1), name
    assert made["vllm"]["total_output_tokens"] is None
    assert made["guidellm"]["output_token_count"] is None
    assert made["inference-perf"]["successes"]["prompt_tokens"]["total"] is None
    assert made["genai-perf"]["output_token_throughput"]["avg"] is None
    assert made["tokenpulse"]["tokens"] == {"prompt": None, "output": None}
    assert "effective_prefill_throughput" not in made["aiperf"]
    assert "tokens.output" in made["tokenpulse"]["tokenpulse"]["absent"]


def test_rows_in_flight_are_no_failures() -> None:
    one = run([0.1, 0.1], [0.2])
    waiting = replace(one, status=one.status.copy())
    waiting.status[1] = 255
    assert profile("vllm", waiting)["failed"] == 0
    assert profile("tokenpulse", waiting)["requests"]["in_flight"] == 1
    assert "error_request_count" not in profile("aiperf", waiting)


def test_a_request_years_after_the_others_costs_vllms_profile_no_memory() -> None:
    (known,) = runs("vllm_bench_detailed.json.gz")
    assert known.start is not None
    late = replace(known, start=np.where(np.arange(len(known)) == 5, known.start + 4e9, known.start))
    usual, odd = profile("vllm", known), profile("vllm", late)
    assert usual["max_concurrent_requests"] - 1 <= odd["max_concurrent_requests"] <= usual["max_concurrent_requests"]
    assert 0 < odd["max_output_tokens_per_s"] <= usual["max_output_tokens_per_s"]


@pytest.mark.filterwarnings("error")
def test_figures_that_overflow_are_null_and_no_warning() -> None:
    (known,) = runs("genai_bench.json.gz")
    odd = replace(
        known, own={name: np.where(np.arange(len(known)) == 0, 1e308, one) for name, one in known.own.items()}
    )
    for tool in PROFILES:
        assert plain(profile(tool, odd))
