"""GuideLLM's benchmarks: 0.8.1's against its own figures, older keys, and what goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tool_files import close, counted, document, dumped, means, only, path, statuses

from tokenpulse import readers
from tokenpulse.records import ABSENT, Summary, time_ns

START = 1795962137.1209857


def request(**changed: Any) -> dict[str, Any]:
    """A successful request as 0.8.1 writes it: sent at START, tokens from 0.25 s to 0.75 s, over at 1 s."""
    timings = {
        "targeted_start": START - 0.0078125,
        "request_start": START,
        "first_token_iteration": START + 0.25,
        "last_token_iteration": START + 0.75,
        "request_end": START + 1.0,
        "resolve_end": START + 1.5,
        "token_iterations": 3,
    }
    made: dict[str, Any] = {
        "request_id": "a",
        "info": {"status": "completed", "timings": timings | changed.pop("timings", {}), "error": None},
        "input_metrics": {"text_tokens": 7, "total_tokens": 7},
        "output_metrics": {"text_tokens": 5, "total_tokens": 5},
        "output": "text",
    }
    return made | changed


def report(successful: list[Any], errored: Any = (), incomplete: Any = (), **benchmark: Any) -> dict[str, Any]:
    requests = {"successful": successful, "errored": list(errored), "incomplete": list(incomplete), "total": None}
    made = {
        "type_": "generative_benchmark",
        "config": {"strategy": {"type_": "poisson", "rate": 6.0}},
        "requests": requests,
        "duration": 3.5,
        "metrics": {"request_latency": {"successful": {"mean": 1.0}}},
        "scheduler_metrics": {"measure_start_time": START},
    }
    return {"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": [made | benchmark]}


@pytest.mark.parametrize("name", ["guidellm.json.gz", "guidellm_errors.json.gz"])
def test_recorded_benchmarks_come_to_guidellms_own_figures(name: str) -> None:
    records = only(path(name))
    own = document(name)["benchmarks"][0]["metrics"]
    good, bad, cut = (np.array(statuses(records)) == status for status in ("stop", "error", "abort"))
    totals = own["request_totals"]
    assert [int(mask.sum()) for mask in (good, bad, cut)] == [
        totals[key] for key in ("successful", "errored", "incomplete")
    ]
    ttft = own["time_to_first_token_ms"]["successful"]
    assert np.isfinite(records.ttft[good]).sum() == ttft["count"]
    assert np.nanmean(records.ttft[good]) * 1e3 == pytest.approx(ttft["mean"], rel=1e-12)
    assert np.mean(records.latency[good]) == pytest.approx(own["request_latency"]["successful"]["mean"], rel=1e-12)
    assert records.output_tokens[good].sum() == own["output_token_count"]["successful"]["total_sum"]
    assert records.summary["request_totals"] == totals
    assert records.notices == []
    # Weighted by N - 1, as GuideLLM pools what it calls inter token latency.
    gaps = (records.output_tokens - 1)[good]
    tpot = (records.e2e - records.ttft)[good] / np.maximum(gaps, 1)
    timed = np.isfinite(tpot) & (gaps > 0)
    assert np.average(tpot[timed], weights=gaps[timed]) * 1e3 == pytest.approx(
        own["inter_token_latency_ms"]["successful"]["mean"], rel=1e-9
    )
    assert counted(records)["inputs"][0]["requests"] == totals["total"]


def test_a_success_without_a_token_time_has_none() -> None:
    records = only(path("guidellm_errors.json.gz"))
    odd = records.succeeded & np.isnan(records.ttft)
    assert int(odd.sum()) == 1
    assert records.output_tokens[odd].tolist() == [1]
    assert np.isnan(records.e2e[odd]).all()
    reduction = counted(records)
    # 140 of 141 successes and 5 of 6 that were cut off had a first token.
    assert means(reduction)["ttft"][0] == 145
    assert means(reduction)["e2e"][0] == 140


def test_the_columns() -> None:
    records = only(dumped(report([request()])))
    assert (records.format, records.name, records.clock) == ("guidellm-benchmarks", "poisson 6/s", "epoch")
    assert (records.ttft[0], records.e2e[0], records.latency[0]) == (0.25, 0.75, 1.0)
    assert records.arrive_ns.tolist() == time_ns(np.array([START])).tolist()
    assert records.intended_ns[0] - records.arrive_ns[0] == -7_812_500
    assert (records.prompt_tokens[0], records.output_tokens[0], records.gaps) == (7, 5, None)
    assert records.own["timings.token_iterations"].tolist() == [3.0]
    assert records.own["output_metrics.text_tokens"].tolist() == [5.0]
    assert records.summary["scheduler_metrics"] == {"measure_start_time": START}
    assert (records.run["duration"], records.run["requested_rate"]) == (3.5, 6.0)
    assert set(records.run["settings"]).isdisjoint({"requests", "metrics"})
    assert "latency.itl" in records.absent
    assert means(counted(records)) == {"ttft": (1, 0.25), "tpot": (1, 0.125), "e2e": (1, 0.75)}


def test_requests_by_how_they_ended_whatever_their_order() -> None:
    bad = request(request_id="b", info={"timings": {"request_start": START}, "error": "refused"}, output_metrics=None)
    cut = request(request_id="c", timings={"request_end": None}, info_status="cancelled")
    made = report([request()], [bad], [cut])
    requests = made["benchmarks"][0]["requests"]
    made["benchmarks"][0]["requests"] = {key: requests[key] for key in ("incomplete", "errored", "successful")}
    records = only(dumped(made))
    assert statuses(records) == ["stop", "error", "abort"]
    assert records.ids == ["a", "b", "c"]
    assert records.errors[1] == "refused"
    assert records.output_tokens.tolist() == [5, ABSENT, 5]
    assert np.isnan(records.latency[1:]).all()
    # Cut off: over when it was resolved.
    assert records.end[2] == START + 1.5


OLDER: list[dict[str, Any]] = [
    # 0.4: milestones of the iterations.
    request(
        timings={"first_token_iteration": None, "last_token_iteration": None}
        | {"first_iteration": START + 0.25, "last_iteration": START + 0.75, "iterations": 3}
    ),
    # 0.3: of the scheduler and the backend apart.
    {
        "request_id": "a",
        "scheduler_info": {
            "scheduler_timings": {"targeted_start": START - 0.0078125, "resolve_end": START + 1.5},
            "request_timings": {
                "request_start": START,
                "first_iteration": START + 0.25,
                "last_iteration": START + 0.75,
                "request_end": START + 1.0,
            },
        },
        "prompt_tokens": 7,
        "output_tokens": 5,
    },
    # 0.2: beside the tokens.
    {
        "request_id": "a",
        "scheduler_info": {"targeted_start_time": START - 0.0078125, "worker_start": START},
        "start_time": START,
        "first_token_time": START + 0.25,
        "last_token_time": START + 0.75,
        "end_time": START + 1.0,
        "prompt_tokens": 7,
        "output_tokens": 5,
    },
]


@pytest.mark.parametrize("older", OLDER, ids=["0.4", "0.3", "0.2"])
def test_older_keys(older: dict[str, Any]) -> None:
    new, old = only(dumped(report([request()]))), only(dumped(report([older])))
    for name in ("start", "first", "last", "end", "ttft", "e2e", "latency", "arrive_ns", "intended_ns"):
        assert getattr(old, name).tolist() == getattr(new, name).tolist(), name
    assert (old.prompt_tokens.tolist(), old.output_tokens.tolist()) == ([7], [5])


def test_an_older_report_without_its_version() -> None:
    made = report([request()])
    del made["metadata"]
    assert only(dumped(made)).tool == "guidellm"


def test_several_benchmarks_are_several_runs() -> None:
    made = report([request(), request(request_id="b")])
    made["benchmarks"].append(
        report([request()], config={"strategy": {"type_": "concurrent", "streams": 4}})["benchmarks"][0]
    )
    runs = readers.read(dumped(made))
    assert [len(run) for run in runs] == [2, 1]
    assert [run.name for run in runs] == ["poisson 6/s", "concurrent 4 streams"]
    assert runs[1].run["concurrency"] == 4.0


def test_a_benchmark_without_single_requests_is_a_summary() -> None:
    made = report([], metrics={"request_totals": {"total": 10}})
    summary = only(dumped(made))
    assert isinstance(summary, Summary)
    assert summary.figures["request_totals"] == {"total": 10}
    assert len(only(dumped(report([], metrics={"request_totals": {"total": 0}})))) == 0


def test_a_sample_of_the_requests_says_so() -> None:
    records = only(dumped(report([request()], metrics={"request_totals": {"total": 10}})))
    assert "holds 1 of 10 requests" in records.notices[0]["message"]


def test_rows_at_fault() -> None:
    bad = [request(timings={"request_start": "soon"}), 7, request(output_tokens=-1), request(request_id="z")]
    records = only(dumped(report(bad)))
    assert (records.ids, records.skipped) == (["z"], {"wrong_type": 1, "not_object": 1, "bad_value": 1})
    assert "request 1 of the benchmark: timings.request_start: expected a number" in records.notices[0]["message"]


def test_a_request_that_was_never_sent_has_no_arrival() -> None:
    timings = {"targeted_start": START, "queued": START, "request_start": None, "resolve_end": START + 1}
    never = request(info={"timings": timings}, output_metrics=None)
    records = only(dumped(report([request()], incomplete=[never])))
    assert (statuses(records), records.arrive_ns[1]) == (["stop", "abort"], ABSENT)
    assert counted(records)["inputs"][0]["skipped"] == {"missing_field": 1}


def test_of_requests_given_twice_the_last_count() -> None:
    text = dumped(report([request(), request(request_id="b")]))
    again = b'"requests": {"successful": [' + dumped(request(request_id="z")) + b'], "errored": [], "incomplete": []}, '
    records = only(text.replace(b'"duration":', again + b'"duration":', 1))
    assert records.ids == ["z"]
    kind = b'"successful": [' + dumped(request(request_id="y")) + b"], "
    assert only(text.replace(b'"errored":', kind + b'"errored":', 1)).ids == ["y"]
    twice = text[:-1] + b', "benchmarks": ' + text[text.index(b"[") :]
    assert len(readers.read(twice)) == 1


def test_a_document_that_breaks_off_keeps_its_requests() -> None:
    text = dumped(report([request(), request(request_id="b"), request(request_id="c")]))
    records = only(text[: text.index(b'"request_id": "c"')])
    assert (len(records), records.skipped) == (2, {"truncated": 1})


def test_the_durations_are_as_exact_as_the_file() -> None:
    records = only(path("guidellm.json.gz"))
    own = document("guidellm.json.gz")["benchmarks"][0]["requests"]["successful"]
    assert (records.ttft * 1e3).tolist() == pytest.approx([one["time_to_first_token_ms"] for one in own], rel=1e-12)
    assert close(means(counted(records))["ttft"][1], float(np.mean(records.ttft)))


def test_without_usage_there_is_no_tpot_and_no_verdict_on_it() -> None:
    text = dumped(report([request(output_metrics={}) for _ in range(3)]))
    records = only(text)
    assert (
        records.absent["latency.tpot"]
        == records.absent["tokens.output"]
        == "the file does not have the outputs' lengths"
    )
    assert "latency.tpot" not in only(dumped(report([request(output_metrics={}), request()]))).absent
