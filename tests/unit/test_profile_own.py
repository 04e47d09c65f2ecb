"""tokenpulse's own profile against the core: the same counts and sums, and percentiles within the sketch's error."""

from __future__ import annotations

from pathlib import Path

import pytest
from profiling import run, runs

import tokenpulse
from tokenpulse import engine
from tokenpulse.model import SLO
from tokenpulse.profiles import profile
from tokenpulse.readers import own
from tokenpulse.records import Records
from tokenpulse.reporting import Report

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = (
    "vllm_bench_detailed.json.gz",
    "vllm_bench_errors.json.gz",
    "aiperf_cancel.jsonl.gz",
    "guidellm_errors.json.gz",
    "inference_perf_requests.json.gz",
)
SLOS = (SLO(ttft=0.05, tpot=0.004), SLO(ttft=0.3, tpot=0.02, e2e=0.8, itl=0.05))


def reported(records: Records, slo: SLO) -> Report:
    reducer = engine.ColumnReducer((slo,), "chunk" if records.chunks_only else "token")
    reducer.requests("run", records.format, records.columns())
    return Report.of(reducer.finish(), (slo,), "token")


def agree(records: Records, slo: SLO) -> None:
    report, exact = reported(records, slo), profile("tokenpulse", records, goodput=slo)
    assert exact["requests"] == report.requests
    assert exact["tokens"]["output"] == report.tokens["output"]
    assert exact["span_seconds"] == report.span_seconds
    assert exact["rates"] == report.rates
    assert exact["availability"] == report.availability
    (judged,) = report.goodput
    for key in ("good", "judged", "attainment", "requests_per_second", "tokens_per_second"):
        assert exact["goodput"][key] == judged[key], key
    for metric, found in exact["latency"].items():
        sketch = report.latency[metric]
        if found is None or sketch is None:
            assert found is sketch is None, metric
            continue
        assert (found["count"], found["min"], found["max"]) == (sketch["count"], sketch["min"], sketch["max"]), metric
        # A token's share of a gap is floored to whole ns for the percentiles; the sum keeps what that leaves over.
        assert found["sum"] == pytest.approx(sketch["sum"], abs=1e-9 * found["count"]), metric
        for name in ("p50", "p90", "p95", "p99", "p999"):
            error = report.rules["relative_error"]
            assert sketch[name] == pytest.approx(found[name], rel=error, abs=2e-6), (metric, name)


@pytest.mark.parametrize("slo", SLOS, ids=["two limits", "four limits"])
@pytest.mark.parametrize("name", FILES)
def test_tool_files(name: str, slo: SLO) -> None:
    (one,) = runs(name)
    agree(one, slo)


def test_chunks_and_endings_of_every_kind() -> None:
    one = run(
        [0.1, 0.3, 0.1],
        [0.2],
        [0.2, 0.1],
        [],
        [0.1, 0.2],
        tokens=[6, 1, 2, 0, 3],
        chunks=[[1, 3, 2], [1], [1, 1], [], [2, 1]],
        status=["stop", "length", "timeout", "reject", "abort"],
    )
    for slo in (SLO(ttft=0.2, tpot=0.1), SLO(ttft=0.21, tpot=0.081, itl=0.11)):
        agree(one, slo)


@pytest.mark.parametrize("name", ["demo_requests.jsonl", "demo_events.jsonl", "run.jsonl.gz", "run_async.jsonl.gz"])
def test_own_lines(name: str) -> None:
    """From our own lines by way of exact rows: what the reducer of lines says, exactly."""
    path = FIXTURES / name
    slo = SLO(ttft=0.1, tpot=0.006)
    report = tokenpulse.report(path, slo=slo)
    exact = profile("tokenpulse", own.records([str(path)]), goodput=slo)
    assert exact["requests"] == report.requests
    assert exact["tokens"] == report.tokens
    assert exact["rates"] == report.rates
    assert exact["availability"] == report.availability
    (judged,) = report.goodput
    assert {key: judged[key] for key in exact["goodput"]} == exact["goodput"]
    for metric, found in exact["latency"].items():
        sketch = report.latency[metric]
        if found is None or sketch is None:
            assert found is sketch is None, metric
            continue
        assert (found["count"], found["min"], found["max"]) == (sketch["count"], sketch["min"], sketch["max"]), metric
        assert sketch["p99"] == pytest.approx(found["p99"], rel=report.rules["relative_error"], abs=2e-6), metric
