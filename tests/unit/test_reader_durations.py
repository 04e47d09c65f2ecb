"""genai-bench, llmperf and InferenceX: files with durations or summaries only, and no times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tool_files import close, counted, document, dumped, means, only, path, statuses

from tokenpulse import readers
from tokenpulse.engine import FormatError
from tokenpulse.records import ABSENT, Records, Summary


def bench(rows: list[Any], **changed: Any) -> bytes:
    made = {
        "aggregated_metrics": {"scenario": "D(64,24)", "num_concurrency": 4, "run_duration": 1.5},
        "individual_request_metrics": rows,
        "_time_unit": "s",
    }
    return dumped(made | changed)


def measured(**changed: Any) -> dict[str, Any]:
    made = {
        "ttft": 0.25,
        "tpot": 0.125,
        "e2e_latency": 0.75,
        "output_latency": 0.5,
        "num_input_tokens": 7,
        "num_output_tokens": 5,
        "num_reasoning_tokens": 0,
        "error_code": None,
        "error_message": None,
    }
    return made | changed


def test_the_recorded_genai_bench_file_comes_to_its_own_figures() -> None:
    records = only(path("genai_bench.json.gz"))
    own = document("genai_bench.json.gz")["aggregated_metrics"]
    assert records.summary == own
    assert len(records) == own["num_completed_requests"]
    assert np.percentile(records.ttft, 99) == pytest.approx(own["stats"]["ttft"]["p99"], rel=1e-12)
    assert np.mean(records.e2e) == pytest.approx(own["stats"]["e2e_latency"]["mean"], rel=1e-12)
    assert records.output_tokens.sum() == own["stats"]["num_output_tokens"]["sum"]
    assert close(means(counted(records))["tpot"][1], own["stats"]["tpot"]["mean"])
    assert records.run["duration"] == own["run_duration"]


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1000)])
def test_genai_benchs_unit_is_read(unit: str, factor: float) -> None:
    row = measured(**{key: measured()[key] * factor for key in ("ttft", "tpot", "e2e_latency", "output_latency")})
    records = only(bench([row], _time_unit=unit))
    assert (records.ttft[0], records.e2e[0]) == (0.25, 0.75)
    assert records.own["ttft"][0] == 0.25 * factor
    assert records.own_units["ttft"] == unit
    # The duration of the run is in seconds, whatever the unit of the latencies.
    assert records.run["duration"] == 1.5
    assert means(counted(records)) == {"ttft": (1, 0.25), "tpot": (1, 0.125), "e2e": (1, 0.75)}


def test_a_unit_that_is_not_known_is_an_error() -> None:
    with pytest.raises(FormatError, match='_time_unit: expected s or ms, got "fortnights"'):
        readers.read(bench([measured()], _time_unit="fortnights"))


def test_genai_benchs_failed_rows_and_rows_at_fault() -> None:
    failed = measured(error_code=500, error_message="no", ttft=0.0, e2e_latency=0.0, num_output_tokens=0)
    null = {"error_code": 408, "error_message": "timed out", "ttft": None, "e2e_latency": None}
    records = only(bench([measured(), failed, null, measured(ttft=-1.0), 3, measured(num_output_tokens=2.5)]))
    assert statuses(records) == ["stop", "error", "timeout"]
    assert np.isnan(records.ttft[1:]).all()
    assert records.output_tokens.tolist() == [5, ABSENT, ABSENT]
    assert records.skipped == {"bad_value": 2, "not_object": 1}
    assert records.errors == [None, "500: no", "408: timed out"]
    assert counted(records)["inputs"][0]["requests"] == 3


def test_genai_bench_without_single_requests_is_a_summary() -> None:
    assert isinstance(only(bench([])), Summary)


def test_what_durations_alone_cannot_give_is_named() -> None:
    records = only(bench([measured()]))
    assert (records.clock, records.arrive_ns, records.gaps) == (None, None, None)
    assert {"rates", "timeline", "flow", "span_seconds", "latency.itl", "latency.queue"} <= set(records.absent)


def response(**changed: Any) -> dict[str, Any]:
    made = {
        "error_code": None,
        "error_msg": "",
        "inter_token_latency_s": 0.15,
        "ttft_s": 0.25,
        "end_to_end_latency_s": 0.75,
        "request_output_throughput_token_per_s": 6.7,
        "number_total_tokens": 12,
        "number_output_tokens": 5,
        "number_input_tokens": 7,
    }
    return made | changed


def test_llmperf() -> None:
    zeros = response(error_code=429, error_msg="busy", ttft_s=0, end_to_end_latency_s=0, number_output_tokens=0)
    unnamed = response(error_code=-1, error_msg="", ttft_s=0)
    records = only(dumped([response(), zeros, unnamed, response(error_code=float("nan"))]))
    assert (records.tool, records.format) == ("llmperf", "llmperf-requests")
    assert statuses(records) == ["stop", "error", "error", "stop"]
    assert np.isnan(records.ttft).tolist() == [False, True, True, False]
    assert records.own["inter_token_latency_s"].tolist()[0] == 0.15
    assert "time to the first token in it" in records.definitions["itl"]
    # Its inter_token_latency is no gap between tokens, and none is made of it.
    assert set(means(counted(records))) == {"ttft", "tpot", "e2e"}
    assert records.output_tokens.tolist() == [5, ABSENT, ABSENT, 5]


def test_llmperf_summary() -> None:
    made = {
        "version": "2023-08-31",
        "name": "m_550_150_summary",
        "num_concurrent_requests": 4,
        "results_ttft_s_quantiles_p99": 0.5,
        "results_ttft_s_mean": 0.25,
        "results_end_to_end_latency_s_mean": 0.75,
    }
    summary = only(dumped(made))
    assert summary.normalised == {"ttft": {"mean": 0.25, "p99": 0.5}, "e2e": {"mean": 0.75}}
    assert summary.run["concurrency"] == 4.0


def test_inferencex_in_seconds() -> None:
    summary = only(path("inferencex_agg.json"))
    assert (summary.tool, summary.name) == ("inferencex", "mi355x moonshotai/Kimi-K2.5 conc 32")
    assert summary.normalised["itl"]["mean"] == 0.6301551175580624
    assert summary.normalised["tpot"]["mean"] == 0.2241063620785443
    assert summary.normalised["rates"]["output_tokens_per_gpu"] == 17.57057269511527
    assert "std_intvty" in summary.figures
    assert "ITL is not TPOT" in summary.definitions["itl"]


def test_inferencex_with_vllms_keys_without_their_unit() -> None:
    summary = only(path("inferencex_glm5.json"))
    assert (summary.tool, summary.run["requested_rate"]) == ("inferencex", float("inf"))
    assert summary.normalised["ttft"] == {"p50": 0.9015302835032344, "p99": 7.094093782026331}
    assert "good_requests" not in summary.normalised["rates"]


def test_inferencex_as_the_benchmark_left_it_is_vllms_in_milliseconds() -> None:
    summary = only(path("inferencex_minimax-m2.5.json"))
    assert summary.format == "vllm-bench-summary"
    assert summary.normalised["ttft"]["p99.9"] == pytest.approx(0.27864237)


def test_inferencex_several_in_one_file() -> None:
    one = document("inferencex_agg.json")
    assert len(readers.read(dumped([one, one | {"conc": 64}]))) == 2
    assert len(readers.read(dumped(one) + b"\n" + dumped(one))) == 2


def test_a_run_of_durations_counts_no_request_twice() -> None:
    runs = readers.read(bench([measured()] * 3))
    assert isinstance(runs[0], Records)
    assert counted(runs[0])["inputs"][0]["requests"] == 3
