"""vLLM's `bench serve` results: recorded ones against vLLM's own figures, and what goes wrong in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tool_files import close, counted, document, dumped, lines, means, only, path, statuses

from tokenpulse import readers
from tokenpulse.engine import FormatError
from tokenpulse.records import ABSENT, Records, Summary

RUN: dict[str, Any] = {
    "date": "20260101-000000",
    "endpoint_type": "vllm",
    "backend": "vllm",
    "model_id": "m",
    "tokenizer_id": "m",
    "num_prompts": 3,
    "request_rate": 4.0,
    "burstiness": 1.0,
    "max_concurrency": None,
    "duration": 2.0,
    "completed": 2,
    "failed": 1,
    "input_lens": [5, 6, 7],
    "output_lens": [3, 0, 1],
    "ttfts": [0.1, 0.0, 0.25],
    "itls": [[0.1, 0.0], [], []],
    "latencies": [0.2, 0.0, 0.25],
    "start_times": [100.0, 100.5, 101.0],
    "queue_times": [0.001, 0.0, 0.002],
    "generated_texts": ["a", "", "b"],
    "errors": ["", "Bad Request", ""],
    "mean_ttft_ms": 175.0,
}


def run(**changed: Any) -> Records:
    without = changed.pop("without", ())
    got = only(dumped({key: value for key, value in (RUN | changed).items() if key not in without}))
    assert isinstance(got, Records)
    return got


@pytest.mark.parametrize("name", ["vllm_bench_detailed.json.gz", "vllm_bench_errors.json.gz"])
def test_recorded_runs_come_to_vllms_own_figures(name: str) -> None:
    records = only(path(name))
    own = document(name)
    good = records.succeeded
    assert (int(good.sum()), int((~good).sum())) == (own["completed"], own["failed"])
    assert records.output_tokens[good].sum() == own["total_output_tokens"]
    assert records.prompt_tokens[good].sum() == own["total_input_tokens"]
    assert np.mean(records.ttft[good]) * 1000 == own["mean_ttft_ms"]
    assert np.mean(records.e2e[good]) * 1000 == own["mean_e2el_ms"]
    assert np.percentile(records.gaps.select(good).values, 99) * 1000 == own["p99_itl_ms"]
    assert (records.run["duration"], records.run["requested_rate"]) == (own["duration"], own["request_rate"])
    assert records.summary["mean_tpot_ms"] == own["mean_tpot_ms"]
    assert "ttfts" not in records.summary
    assert close(means(counted(records))["e2e"][1], own["mean_e2el_ms"] / 1000)
    assert close(means(counted(records))["tpot"][1], own["mean_tpot_ms"] / 1000)


def test_failed_rows_have_no_zeros() -> None:
    records = only(path("vllm_bench_errors.json.gz"))
    failed = ~records.succeeded
    broken = failed & (records.gaps.lengths > 0)
    assert (int(failed.sum()), int(broken.sum())) == (71, 2)
    assert np.isnan(records.ttft[failed & ~broken]).all()
    assert (records.ttft[broken] > 0).all()
    assert np.isnan(records.e2e[failed]).all()
    assert (records.output_tokens[failed] == ABSENT).all()
    assert sum("TransferEncodingError" in error for error in records.errors if error) == 2
    reduction = counted(records)
    assert reduction["inputs"][0]["requests"] == 180
    # What came before the connection broke was seen: TTFT is of all, E2E of those that ended well.
    assert means(reduction)["ttft"][0] == 111
    assert means(reduction)["e2e"][0] == 109


def test_every_appended_run_is_one() -> None:
    runs = readers.read(path("vllm_bench_append.jsonl.gz"))
    assert [one.run["requested_rate"] for one in runs] == [4.0, 12.0, float("inf")]
    assert [one.name for one in runs] == ["1: 4/s", "2: 12/s", "3: inf/s"]
    for one, own in zip(runs, lines("vllm_bench_append.jsonl.gz"), strict=True):
        assert np.mean(one.ttft) * 1000 == own["mean_ttft_ms"]


def test_the_columns() -> None:
    records = run()
    assert (records.tool, records.format, records.clock) == ("vllm", "vllm-bench-detailed", "monotonic")
    assert statuses(records) == ["stop", "error", "stop"]
    assert records.arrive_ns.tolist() == [100_000_000_000, 100_500_000_000, 101_000_000_000]
    assert records.intended_ns.tolist() == [99_999_000_000, 100_500_000_000, 100_998_000_000]
    assert records.gaps.values.tolist() == [0.1, 0.0]
    assert records.errors == [None, "Bad Request", None]
    assert records.own["queue_times"].tolist() == [0.001, 0.0, 0.002]
    # A gap of 0 counts as one.
    assert means(counted(records))["itl"] == (2, 0.05)


def test_an_older_file_without_latencies_queue_and_start_times() -> None:
    records = run(without=("latencies", "queue_times", "start_times"))
    assert records.e2e.tolist()[::2] == [0.2, 0.25]
    assert np.isnan(records.e2e[1])
    assert "added up" in records.definitions["e2e"]
    assert (records.clock, records.arrive_ns, records.intended_ns) == (None, None, None)
    assert {"rates", "timeline", "flow", "span_seconds", "flow.saturation.schedule_delay"} <= set(records.absent)


def test_only_the_summary() -> None:
    arrays = [key for key, value in RUN.items() if isinstance(value, list)]
    summary = only(dumped({key: value for key, value in RUN.items() if key not in arrays}))
    assert isinstance(summary, Summary)
    assert (summary.format, summary.figures["mean_ttft_ms"]) == ("vllm-bench-summary", 175.0)
    assert summary.normalised["ttft"] == {"mean": 0.175}
    assert "--save-detailed" in summary.absent["latency"]


def test_a_rate_as_text_and_a_key_with_a_colon() -> None:
    summary = only(path("inferencex_minimax-m2.5.json"))
    assert summary.run["requested_rate"] == float("inf")
    assert "request_goodput:" in summary.figures
    assert "good_requests" not in summary.normalised["rates"]
    changed = summary.figures | {"request_goodput:": 2.5}
    assert only(dumped(changed)).normalised["rates"]["good_requests"] == 2.5


def test_null_errors_are_none_and_missing_errors_are_told_by_zeros() -> None:
    assert statuses(run(errors=[None, "x", None])) == ["stop", "error", "stop"]
    records = run(without=("errors",))
    assert statuses(records) == ["stop", "error", "stop"]
    assert "rows of zeros" in records.notices[0]["message"]


def test_an_empty_error_is_one_where_the_tool_counted_it() -> None:
    # A server that gives no reason leaves no text. Without the count only the text tells.
    assert statuses(run(errors=["", "", ""])) == ["stop", "error", "stop"]
    assert statuses(run(errors=["", "", ""], completed=3)) == ["stop", "stop", "stop"]
    records = run(errors=["", "", ""], completed=3)
    assert np.isnan(records.ttft[1])
    assert records.output_tokens[1] == 0


def test_numbers_as_text_null_and_nan() -> None:
    records = run(
        output_lens=["3", 0, "1"],
        ttfts=[0.1, None, float("nan")],
        completed="2",
        duration="2.0",
        itls=[[0.1], None, []],
    )
    assert records.output_tokens.tolist() == [3, ABSENT, 1]
    assert np.isnan(records.ttft[1:]).all()
    assert records.gaps.lengths.tolist() == [1, 0, 0]
    assert records.run["duration"] == 2.0


def test_rows_with_values_that_can_be_none_are_skipped() -> None:
    inf = float("inf")
    assert run(ttfts=[inf, 0.0, 0.25]).output_tokens.tolist() == [ABSENT, 1]
    for changed in (
        {"itls": [[], [], [-0.1]]},
        {"latencies": [0.2, 0.0, -1.0]},
        {"start_times": [100.0, 100.5, 1e300]},
        {"output_lens": [3, 0, -1]},
    ):
        records = run(**changed)
        assert (statuses(records), records.skipped) == (["stop", "error"], {"bad_value": 1})
        assert "row 3" in records.notices[0]["message"]
    # An unknown time is no fault of the row.
    assert len(run(start_times=[100.0, None, 101.0])) == 3


def test_of_a_key_given_twice_the_last_counts() -> None:
    text = dumped(RUN).replace(b'"ttfts":', b'"ttfts": [9.0, 9.0, 9.0], "ttfts":')
    assert only(text).ttft[0] == 0.1


def test_arrays_of_different_length_lose_the_rows_that_some_lack() -> None:
    records = run(ttfts=[0.1, 0.0])
    assert (len(records), records.skipped) == (2, {"length_mismatch": 1})
    assert "ttfts: expected 3" in records.notices[0]["message"]


def test_a_file_that_breaks_off_keeps_what_came_before() -> None:
    whole = dumped(RUN) + b"\n"
    runs = readers.read(whole + dumped(RUN)[:200])
    assert len(runs) == 1
    assert runs[0].skipped == {"truncated": 1}
    late = dumped(RUN)[:-30]
    assert late.count(b"errors") == 1
    broken = only(late)
    assert (len(broken), statuses(broken)) == (3, ["stop", "error", "stop"])
    assert broken.skipped == {"truncated": 1}
    with pytest.raises(FormatError, match=r"line 1, byte \d+"):
        readers.read(dumped(RUN)[:200])


def test_no_request_at_all() -> None:
    records = run(**{key: [] for key, value in RUN.items() if isinstance(value, list)})
    assert len(records) == 0
    assert counted(records)["inputs"][0]["requests"] == 0
