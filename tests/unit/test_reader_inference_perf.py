"""inference-perf: requests against the summary it made of them, and its summaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tool_files import close, counted, document, dumped, means, only, path, statuses

from tokenpulse.records import ABSENT, Summary


def request(start: float = 100.0, **changed: Any) -> dict[str, Any]:
    """Sent at 100 s; a token at 0.25 s, three in one chunk at 0.5 s, one at 0.75 s; over at 1 s."""
    answer = {
        "output_tokens": 5,
        "server_usage": {"prompt_tokens": 7, "completion_tokens": 4},
        "response_chunks": ["{}"],
        "chunk_times": [start + 0.25, start + 0.5, start + 0.75],
        "output_token_times": [start + 0.25, *[start + 0.5] * 3, start + 0.75],
    }
    made: dict[str, Any] = {
        "start_time": start,
        "end_time": start + 1.0,
        "request": '{"prompt": "\u00e4"}',
        "response": "data: ...",
        "info": {"response_metrics": answer | changed.pop("answer", {}), "input_tokens": 7, "labels": {"tenant": "p"}},
        "error": None,
    }
    return made | changed


def test_the_recorded_file_comes_to_the_tools_own_figures() -> None:
    records = only(path("inference_perf_requests.json.gz"))
    own = document("inference_perf_summary.json.gz")["successes"]
    latency = own["latency"]
    assert len(records) == own["count"]
    assert np.mean(records.ttft) == pytest.approx(latency["time_to_first_token"]["mean"], rel=1e-12)
    assert np.mean(records.latency) == pytest.approx(latency["request_latency"]["mean"], rel=1e-12)
    tpot = (records.e2e - records.ttft) / (records.output_tokens - 1)
    assert np.percentile(tpot, 99) == pytest.approx(latency["time_per_output_token"]["p99"], rel=1e-9)
    times = records.own_ragged["output_token_times"]
    gaps = np.concatenate([np.diff(row) for row in times])
    assert np.mean(gaps) == pytest.approx(latency["inter_token_latency"]["mean"], rel=1e-9)
    assert records.prompt_tokens.sum() == own["prompt_tokens"]["total"]
    assert records.own["server_usage.completion_tokens"].sum() == own["output_tokens"]["total"]
    assert records.own["request_bytes"].mean() == own["request_size_bytes"]["mean"]
    assert close(means(counted(records))["tpot"][1], float(np.mean(tpot)))
    assert means(counted(records))["itl"][0] >= len(records.gaps.values)


def test_all_tokens_of_a_chunk_are_one_emission() -> None:
    records = only(dumped([request(), request(200.0)]))
    assert records.emissions.values.tolist() == [100.25, 100.5, 100.75, 200.25, 200.5, 200.75]
    assert records.chunk_tokens.values.tolist() == [1, 3, 1] * 2
    assert records.gaps.values.tolist() == [0.25] * 4
    assert records.own_ragged["output_token_times"].lengths.tolist() == [5, 5]
    assert not records.chunks_only
    assert (records.ttft.tolist(), records.e2e.tolist(), records.latency.tolist()) == (
        [0.25] * 2,
        [0.75] * 2,
        [1.0] * 2,
    )
    assert (records.clock, records.labels["tenant"][1]) == ("monotonic", ["p"])
    assert means(counted(records)) == {
        "ttft": (2, 0.25),
        "tpot": (2, 0.125),
        "e2e": (2, 0.75),
        "itl": (8, pytest.approx(0.125, abs=1e-9)),
    }


def test_rows_that_begin_when_the_one_before_ended_stay_apart() -> None:
    records = only(
        dumped([request(), request(100.5, answer={"output_token_times": [100.75, 101.0], "output_tokens": 2})])
    )
    assert records.emissions.offsets.tolist() == [0, 3, 5]
    assert records.chunk_tokens.values.tolist() == [1, 3, 1, 1, 1]


def test_failed_requests() -> None:
    error = {"error_type": "ClientResponseError", "error_msg": "503"}
    bad = request(200.0, error=error, answer={"output_tokens": 0, "output_token_times": [], "chunk_times": []})
    broken = request(300.0, error=error)
    bare = {"start_time": 400.0, "end_time": 400.5, "request": "{}", "info": {}, "error": {"error_msg": "gone"}}
    records = only(dumped([request(), bad, broken, bare]))
    assert statuses(records) == ["stop", "error", "error", "error"]
    assert records.output_tokens.tolist() == [5, ABSENT, 5, ABSENT]
    assert np.isnan(records.ttft).tolist() == [False, True, False, True]
    assert records.errors == [None, "ClientResponseError: 503", "ClientResponseError: 503", "gone"]
    assert records.labels["error_type"][1] == ["ClientResponseError"]
    reduction = counted(records)
    assert (means(reduction)["ttft"][0], means(reduction)["e2e"][0]) == (2, 1)
    assert reduction["inputs"][0]["requests"] == 4


def test_an_answer_that_was_not_streamed_has_no_token_times() -> None:
    records = only(dumped([request(answer={"output_token_times": [], "chunk_times": []})]))
    assert np.isnan(records.ttft).all()
    assert {"latency.itl", "latency.tpot"} <= set(records.absent)
    assert records.latency.tolist() == [1.0]


def test_rows_at_fault_and_a_file_that_breaks_off() -> None:
    bad = [
        request(start_time=None),
        request(answer={"output_token_times": [1.0, "x"]}),
        request(answer={"output_tokens": True}),
        [],
        request(300.0),
    ]
    records = only(dumped(bad))
    assert (len(records), records.skipped) == (1, {"missing_field": 1, "wrong_type": 2, "not_object": 1})
    assert records.notices[1]["line"] == 2
    assert 'request 2: output_token_times[1]: expected a number, got "x"' in records.notices[1]["message"]
    text = dumped([request(), request(200.0), request(300.0)])
    cut = only(text[: len(text) - 40])
    assert (len(cut), cut.skipped) == (2, {"truncated": 1})


def test_an_older_file_without_chunk_times() -> None:
    made = request()
    del made["info"]["response_metrics"]["chunk_times"]
    assert only(dumped([made])).chunk_tokens.values.tolist() == [1, 3, 1]


def test_a_file_with_chunk_times_alone_has_chunks_of_unknown_size() -> None:
    made = request()
    del made["info"]["response_metrics"]["output_token_times"]
    records = only(dumped([made]))
    assert (records.gaps.values.tolist(), records.chunk_tokens, records.chunks_only) == ([0.25, 0.25], None, True)
    assert means(counted(records))["tpot"] == (1, 0.125)


def test_an_older_file_with_everything_under_info() -> None:
    made = request()
    made["info"] = {key: made["info"]["response_metrics"][key] for key in ("output_tokens", "output_token_times")}
    made["info"]["input_tokens"] = 7
    records = only(dumped([made]))
    assert (records.output_tokens.tolist(), records.prompt_tokens.tolist()) == ([5], [7])
    assert records.chunk_tokens.values.tolist() == [1, 3, 1]


@pytest.mark.parametrize(("name", "form"), [("stage", "inference-perf-stage"), ("summary", "inference-perf-summary")])
def test_summaries_are_in_seconds_already(name: str, form: str) -> None:
    summary = only(path(f"inference_perf_{name}.json.gz"))
    own = document(f"inference_perf_{name}.json.gz")
    assert isinstance(summary, Summary)
    assert (summary.format, summary.figures) == (form, own)
    assert summary.normalised["ttft"]["p99.9"] == own["successes"]["latency"]["time_to_first_token"]["p99.9"]
    assert summary.normalised["requests"] == {"attempted": 32, "succeeded": 32, "failed": 0}
    assert summary.run["requested_rate"] == (6.0 if name == "stage" else None)
