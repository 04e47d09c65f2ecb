"""Each tool's own summary, from its records: every figure to 1e-9, but for exceptions that are named here and in docs.

A figure is an exception only because what it is made of is not among the records.
"""

from __future__ import annotations

from typing import Any

import pytest
from profiling import TOOLS, differences, document, figures_in, runs, summary

import tokenpulse
from tokenpulse.profiles import profile

SETTINGS = {"num_prompts", "request_rate", "burstiness", "max_concurrency"}
"""What a vLLM file says of the run and not of its requests."""

VLLM = {
    "vllm_bench_detailed.json.gz": {"ttft": 0.2, "tpot": 0.03},
    "vllm_bench_errors.json.gz": {"ttft": 0.025, "tpot": 0.005},
    "vllm_bench_append.jsonl.gz": {"ttft": 0.025, "tpot": 0.004},
}
"""The limits that each was run with: they are not in the files."""


@pytest.mark.parametrize("name", VLLM)
def test_vllm(name: str) -> None:
    found = runs(name)
    assert len(found) == (3 if "append" in name else 1)
    for one in found:
        figures = {key: value for key, value in one.summary.items() if isinstance(value, (int, float))}
        assert len(figures) > 30
        assert figures["request_goodput"] is not None
        assert set(differences(figures, profile("vllm", one, goodput=VLLM[name]))) <= SETTINGS


def test_vllm_gives_the_percentiles_that_the_file_has() -> None:
    (one,) = runs("vllm_bench_errors.json.gz")
    assert {key for key in profile("vllm", one) if key.startswith("p")} == {
        f"p{p}_{metric}_ms" for p in (50, 90, 95, 99) for metric in ("ttft", "tpot", "itl", "e2el")
    }


@pytest.mark.parametrize("name", ["aiperf", "aiperf_cancel"])
def test_aiperf(name: str) -> None:
    (one,) = runs(f"{name}.jsonl.gz")
    said = document(f"{name}_summary.json.gz")
    wanted = {tag: value for tag, value in said.items() if isinstance(value, dict) and "unit" in value}
    assert figures_in(wanted) > 500
    # With its summary beside it, which alone knows when the phase began and how long it was: everything.
    whole = profile("aiperf", one, summary=summary(f"{name}_summary.json.gz").figures)
    assert not set(differences(wanted, whole))
    # From the records alone: all but what is taken over the time of the phase, and that is named.
    alone = profile("aiperf", one)
    phase = {"request_throughput", "goodput", "output_token_throughput", "input_token_throughput"}
    phase |= {"total_token_throughput", "tokens_in_flight"}
    other = {place.partition(".")[0] for place in differences(wanted, alone)} - phase
    assert all(tag.startswith(("effective_", "active_")) and tag != "effective_latency" for tag in other)
    assert {"rates by AIPerf's phase", "effective_* and active_* curves"} <= alone["tokenpulse"]["absent"].keys()


def test_a_report_with_profiles() -> None:
    """By way of the report: the summary beside the records is used, a run of several files is told apart."""
    paths = [str(TOOLS / name) for name in ("aiperf_cancel.jsonl.gz", "aiperf_cancel_summary.json.gz")]
    report = tokenpulse.report(paths, profile=["aiperf", "llmperf"])
    said = document("aiperf_cancel_summary.json.gz")
    wanted = {tag: value for tag, value in said.items() if isinstance(value, dict) and "unit" in value}
    assert list(report.profiles) == ["aiperf", "llmperf"]
    assert not set(differences(wanted, report.profiles["aiperf"]))
    several = tokenpulse.report(str(TOOLS / "vllm_bench_append.jsonl.gz"), profile="vllm").profiles["vllm"]["runs"]
    for one, said in zip(several, document("vllm_bench_append.jsonl.gz"), strict=True):
        assert one["p99_itl_ms"] == pytest.approx(said["p99_itl_ms"], rel=1e-9)


def test_aiperf_warm_up() -> None:
    (one,) = runs("aiperf_cancel.jsonl.gz")
    said = document("aiperf_cancel_summary.json.gz")
    found = profile("aiperf", one, summary=said)["warmup_metrics"]
    missed = {place.partition(".")[0] for place in differences(said["warmup_metrics"], found)}
    assert all(tag.startswith(("effective_", "active_", "tokens_in_flight")) for tag in missed)
    assert "effective_latency" not in missed
    assert figures_in(found) > 300


def test_aiperf_has_no_tag_that_aiperf_does_not_have() -> None:
    (one,) = runs("aiperf_cancel.jsonl.gz")
    assert profile("aiperf", one).keys() - {"tokenpulse"} <= document("aiperf_cancel_summary.json.gz").keys()


@pytest.mark.parametrize("name", ["guidellm.json.gz", "guidellm_errors.json.gz"])
def test_guidellm(name: str) -> None:
    benchmarks = document(name)["benchmarks"]
    for one, said in zip(runs(name), benchmarks, strict=True):
        found = profile("guidellm", one)
        assert figures_in(said["metrics"]) > 2000
        assert not set(differences(said["metrics"], found))
        averages = {key: value for key, value in said["scheduler_metrics"].items() if key.endswith("_avg")}
        assert set(differences(averages, found["scheduler_metrics"])) == {"processed_delay_avg"}
        assert "scheduler_metrics.processed_delay_avg" in found["tokenpulse"]["absent"]


@pytest.mark.parametrize(
    ("name", "exceptions"),
    [
        ("inference_perf_summary.json.gz", {"load_summary.schedule_delay"}),
        ("inference_perf_stage.json.gz", {"load_summary.schedule_delay", "load_summary.requested_rate"}),
    ],
)
def test_inference_perf(name: str, exceptions: set[str]) -> None:
    (one,) = runs("inference_perf_requests.json.gz")
    wanted: dict[str, Any] = document(name)
    found = profile("inference-perf", one)
    assert figures_in(wanted) > 120
    assert set(differences(wanted, found)) == exceptions
    assert exceptions <= found["tokenpulse"]["absent"].keys()


def test_genai_bench() -> None:
    (one,) = runs("genai_bench.json.gz")
    wanted = document("genai_bench.json.gz")["aggregated_metrics"]
    assert figures_in(wanted) > 120
    # What the run was set to, not what came of it.
    assert set(differences(wanted, profile("genai-bench", one))) == {"num_concurrency", "batch_size"}
