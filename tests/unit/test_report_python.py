"""`tokenpulse.report`: the figures of a small log, worked out by hand."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import tokenpulse
from tokenpulse import SLO, FormatError, Report
from tokenpulse.grammar import slo_sets
from tokenpulse.reference.report import reduce
from tokenpulse.reporting.json import dumps

MS = 1_000_000
FIXTURES = Path(__file__).parents[1] / "fixtures"


def line(name: str, arrive_ms: int, token_ms: list[int], **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "arrive_ns": arrive_ms * MS,
        "token_ns": [t * MS for t in token_ms],
        "prompt_tokens": 10,
        **fields,
    }


REQUESTS = [
    # ttft 100, tpot 20, e2e 140
    line("a", 0, [100, 120, 140], labels={"tenant": "x"}),
    # ttft 300, tpot 50, e2e 400
    line("b", 100, [400, 450, 500], status="length", labels={"tenant": "y"}),
    # ttft 50, one token: no tpot
    line("c", 900, [950], labels={"tenant": "x"}, degraded=True),
    line("d", 1000, [], status="error", labels={"tenant": "y"}),
    line("e", 1000, [1100], status="abort"),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in REQUESTS))
    return path


def test_counts_and_rates(log: Path) -> None:
    report = tokenpulse.report(log)
    assert report.schema == "tokenpulse.report/1"
    assert report.requests == {
        "attempted": 5,
        "succeeded": 3,
        "failed": 1,
        "aborted": 1,
        "rejected": 0,
        "lost": 0,
        "in_flight": 0,
        "by_status": {"stop": 2, "length": 1, "abort": 1, "error": 1},
    }
    assert report.tokens == {"prompt": 50, "output": 8}
    assert report.span_seconds == 1.1
    assert report.rates == {"output_tokens_per_second": 8 / 1.1, "requests_per_second": 3 / 1.1}
    assert report.availability == 0.75
    assert report.degraded == 0.2
    assert report.missing == {"ttft": 1, "queue": 5, "scheduling": 5, "prefill": 5}
    assert report.goodput == []
    assert report.by == report.timeline == []
    assert report.inputs == [
        {"path": str(log), "format": "tokenpulse-requests", "lines": 5, "requests": 5, "skipped": {}}
    ]


def test_latency(log: Path) -> None:
    report = tokenpulse.report(log)
    ttft = report.latency["ttft"]
    assert ttft is not None
    assert (ttft["count"], ttft["sum_ns"], ttft["min"], ttft["max"]) == (4, 550 * MS, 0.05, 0.3)
    assert ttft["p50"] == pytest.approx(0.1, rel=report.rules["relative_error"])
    assert report.latency["queue"] is None
    assert report.latency["tpot"]["count"] == 2
    assert report.sketches["ttft"].quantile(0.5) == ttft["p50"]
    assert report.slowest["ttft"][0] == {"id": "b", "value": 0.3}
    assert [one["id"] for one in report.slowest["ttft"]] == ["b", "a", "e", "c"]
    assert report.slowest["queue"] == []


def test_goodput(log: Path) -> None:
    limits = [SLO("loose", ttft=0.2, tpot=0.03), "y:ttft=1s,tpot=50ms,objective=0.5"]
    report = tokenpulse.report(log, slo=limits)
    loose, y = report.goodput
    assert (loose["good"], loose["judged"], loose["attainment"]) == (2, 4, 0.5)
    assert loose["missed"] == {"ttft+tpot": 1, "error": 1}
    assert loose["requests_per_second"] == 2 / 1.1
    assert loose["tokens_per_second"] == 4 / 1.1
    assert y["missed"] == {"tpot": 1, "error": 1}  # a tpot of 50 ms is not under 50 ms
    assert y["slo"] == {"ttft": 1.0, "tpot": 0.05, "e2e": None, "itl": None, "objective": 0.5, "where": {}}
    assert set(report.fluidity) == {"loose", "y"}
    # a: all 3 met. b: 1 late start (m = 1), then 2 late gaps (m = 1 each). c: met.
    assert (report.fluidity["loose"]["met"], report.fluidity["loose"]["deadlines"]) == (4, 7)


def test_groups_and_bins(log: Path) -> None:
    report = tokenpulse.report(str(log), by="tenant", timeline="500ms")
    assert [(one["key"], one["requests"]["attempted"]) for one in report.by] == [
        ({"tenant": "x"}, 2),
        ({"tenant": "y"}, 2),
        ({"tenant": None}, 1),
    ]
    assert [one["start_seconds"] for one in report.timeline] == [0.0, 0.5, 1.0]
    assert [one["requests"]["attempted"] for one in report.timeline] == [2, 1, 2]
    assert [one["requests"]["in_flight"] for one in report.timeline] == [1, 0, 0]
    assert report.timeline[0]["rates"]["output_tokens_per_second"] == 5 / 0.5
    assert report.timeline_width_seconds == report.timeline_asked_seconds == 0.5
    both = report.by_sketches[0]["ttft"] + report.by_sketches[1]["ttft"] + report.by_sketches[2]["ttft"]
    assert both == report.sketches["ttft"]


def test_the_accounting_of_every_block_adds_up() -> None:
    report = tokenpulse.report(FIXTURES / "demo_events.jsonl", by=["tenant"], timeline=0.5)
    for block in (report.to_dict(), *report.by):
        parts = ("succeeded", "failed", "aborted", "rejected", "lost", "in_flight")
        assert sum(block["requests"][part] for part in parts) == block["requests"]["attempted"]
    assert sum(one["requests"]["attempted"] for one in report.by) == report.requests["attempted"] == 60
    assert sum(one["tokens"]["output"] for one in report.timeline) == report.tokens["output"] == 3588
    assert report.preemptions["events"] == 3
    assert report.requests["by_status"] == {"stop": 9, "length": 46, "abort": 5}
    assert report.timeline[-1]["requests"]["in_flight"] == 0


def test_json_is_strict_and_whole(log: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    for path in (log, empty):
        report = tokenpulse.report(path, slo="ttft=1s,tpot=1s", by="tenant", timeline=1)
        parsed = json.loads(dumps(report), parse_constant=pytest.fail)
        assert parsed == report.to_dict()
    assert list(parsed) == [
        *("schema", "inputs", "span_seconds", "requests", "tokens", "preemptions", "latency", "fluidity"),
        *("slowest", "rates", "goodput", "availability", "error_rate", "degraded", "oom_rate", "oom_events"),
        *("preemption_rate", "preemptions_per_request", "error_budget", "rejected", "clamped", "missing"),
        *("rules", "by", "by_over", "timeline", "timeline_width_seconds", "timeline_asked_seconds"),
        *("flow", "attainment_grid", "cut", "workload", "cost", "definitions", "absent", "reported", "profiles"),
    ]
    assert parsed["inputs"][0]["format"] == "empty"
    assert parsed["span_seconds"] is parsed["availability"] is parsed["goodput"][0]["attainment"] is None
    assert set(parsed["latency"].values()) == {None}


def test_a_report_is_frozen_and_brief(log: Path) -> None:
    report = tokenpulse.report([log, log])
    assert isinstance(report, Report)
    assert repr(report) == "<tokenpulse.Report: 10 requests, 16 output tokens, 1.1 s>"
    with pytest.raises(AttributeError):
        report.clamped = 1
    before = copy.deepcopy(report.to_dict())
    report.sketches["ttft"].quantile(0.1)
    assert report.to_dict() == before


def test_what_does_not_fit_is_refused(log: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tokenpulse.report(tmp_path / "absent")
    strange = tmp_path / "strange.txt"
    strange.write_text("a,b\n1,2\n")
    with pytest.raises(FormatError):
        tokenpulse.report(strange)
    for wrong in (
        {"itl": "tokens"},
        {"timeline": "10"},
        {"timeline": 0},
        {"ttl": "0s"},
        {"by": ["a", "a"]},
        {"by": ""},
        {"by": [str(n) for n in range(9)]},
        {"slo": "ttft=1s"},
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            tokenpulse.report(log, **wrong)
    with pytest.raises(ValueError, match="at least one path"):
        tokenpulse.report([])
    with pytest.raises(ValueError, match="only once"):
        tokenpulse.report(["-", "-"])
    with pytest.raises(TypeError):
        tokenpulse.report([b"log"])


def test_an_exception_from_progress_ends_the_reading(log: Path) -> None:
    class EnoughError(Exception):
        pass

    def enough(_done: int, _total: int) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        tokenpulse.report(log, progress=enough)


@pytest.mark.parametrize("itl", ["token", "chunk", "stamp"])
@pytest.mark.parametrize("name", ["demo_events.jsonl", "demo_requests.jsonl"])
def test_the_reference_gives_the_same_report(name: str, itl: str) -> None:
    path, by = str(FIXTURES / name), ["tenant", "prompt_length"]
    sets = slo_sets(["ttft=60ms,tpot=6ms,itl=40ms", "chat:ttft=1s,tpot=5ms,e2e=500ms"], ["chat=tenant:conv"])
    measured = tokenpulse.report(path, slo=sets, itl=itl, by=by, timeline="100ms")
    expected = Report.of(reduce([path], sets, itl, by, 100 * MS), sets, itl)
    assert dumps(measured) == dumps(expected)
