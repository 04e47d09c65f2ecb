"""Availability, the rates beside it and the error budgets, worked out by hand, in JSON, table and page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import FIXTURES, run

import tokenpulse
from tokenpulse import Meter
from tokenpulse.reporting.json import dumps

MS = 1_000_000

RATES = ("availability", "error_rate", "degraded", "oom_rate", "preemption_rate", "preemptions_per_request")


def requests(**statuses: int) -> list[dict[str, Any]]:
    """So many requests of each status, all at once; of the successes each has 2 tokens."""
    made: list[dict[str, Any]] = []
    for status, n in statuses.items():
        for _ in range(n):
            line = {"id": str(len(made)), "arrive_ns": 0, "status": status, "end_ns": 3 * MS}
            made.append(line | ({"token_ns": [MS, 2 * MS]} if status in ("stop", "length") else {}))
    return made


def log(folder: Path, lines: list[dict[str, Any]]) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_rates_worked_out_by_hand(tmp_path: Path) -> None:
    lines = requests(stop=70, length=10, error=1, timeout=2, oom=3, reject=4, abort=30)
    lines[0] |= {"degraded": True, "preempt_ns": [MS, 2 * MS], "resume_ns": [MS, 2 * MS]}
    lines[1] |= {"preempt_ns": [MS], "resume_ns": [2 * MS]}
    made = tokenpulse.report(log(tmp_path, lines))
    # 90 of 120 ended were no aborts; 10 of these failed.
    assert made.availability == 1 - 10 / 90
    assert made.error_rate == 10 / 90
    assert (made.degraded, made.oom_rate) == (1 / 120, 3 / 120)
    assert made.preemptions == {"requests": 2, "events": 3}
    assert (made.preemption_rate, made.preemptions_per_request) == (2 / 120, 3 / 120)
    budget = made.error_budget["availability"]
    assert (budget["objective"], budget["bad"], budget["judged"]) == (0.999, 10, 90)
    assert budget["burn_rate"] == pytest.approx(10 / 90 / 0.001)
    assert budget["budget_left"] == pytest.approx(1 - 10 / 90 / 0.001)


def test_lost_requests_count_against_availability(tmp_path: Path) -> None:
    lines = [
        {"t_ns": 0, "id": "lost", "ev": "arrive"},
        {"t_ns": 7200 * 10**9, "id": "late", "ev": "arrive"},
        {"t_ns": 7200 * 10**9 + 1, "id": "late", "ev": "end", "status": "stop"},
    ]
    made = tokenpulse.report(log(tmp_path, lines))
    assert made.requests["lost"] == 1
    assert (made.availability, made.error_rate, made.error_budget["availability"]["bad"]) == (0.5, 0.5, 1)


def test_every_slo_set_has_a_budget(tmp_path: Path) -> None:
    made = tokenpulse.report(
        log(tmp_path, requests(stop=97, error=3, abort=5)),
        slo=["easy:ttft=1s,tpot=1s,objective=0.9", "hard:ttft=1ms,tpot=1s", "exact:ttft=1s,tpot=1s,objective=0.97"],
    )
    easy, hard, exact = made.goodput
    assert easy["burn_rate"] == pytest.approx(0.03 / 0.1)
    assert easy["budget_left"] == pytest.approx(0.7)
    assert hard["burn_rate"] == pytest.approx(100)
    assert hard["budget_left"] == pytest.approx(-99)
    assert exact["budget_left"] == pytest.approx(0, abs=1e-12)


def test_bins_groups_and_windows_have_the_same(tmp_path: Path) -> None:
    lines = requests(stop=3, error=1)
    for line in lines:
        line["labels"] = {"tenant": line["status"]}
    made = tokenpulse.report(log(tmp_path, lines), slo="ttft=1s,tpot=1s", by="tenant", timeline=1)
    served, failed = made.by
    assert (served["error_rate"], failed["error_rate"]) == (0.0, 1.0)
    assert failed["error_budget"]["availability"]["budget_left"] == pytest.approx(1 - 1 / 0.001)
    assert [one["error_rate"] for one in made.timeline] == [0.25]
    assert served["goodput"][0]["budget_left"] == 1.0

    meter = Meter("ttft=1s,tpot=1s")
    for status in ("stop", "stop", "stop", "error"):
        handle = meter.arrive(0)
        meter.step(MS, handle)
        meter.end(2 * MS, handle, status)
    meter.count(2 * MS, "oom_event", 2)
    window = meter.snapshot().window("1m")
    assert (window.error_rate, window.oom_rate, window.counts["oom_event"]) == (0.25, 0.0, 2)
    figures = window.to_dict()
    assert figures["error_rate"] == 0.25
    assert figures["error_budget"]["availability"]["bad"] == 1
    assert figures["goodput"][0]["budget_left"] == pytest.approx(1 - 25)


def test_absent_is_not_zero(tmp_path: Path) -> None:
    made = tokenpulse.report(log(tmp_path, requests(abort=3)))
    assert (made.availability, made.error_rate, made.oom_rate) == (None, None, 0.0)
    assert made.error_budget["availability"]["budget_left"] is None
    assert made.absent["error_rate"] == made.absent["error_budget.availability.budget_left"]
    assert "no request ended, aborts left out" in made.absent["error_rate"]
    empty = tokenpulse.report(log(tmp_path, []))
    assert [getattr(empty, name) for name in RATES] == [None] * len(RATES)
    assert set(RATES) <= set(empty.absent)


def test_running_out_of_memory_without_a_victim_is_counted_apart(tmp_path: Path) -> None:
    counted = [
        {"t_ns": MS, "ev": "count", "name": "oom_event"},
        {"t_ns": MS, "ev": "count", "name": "oom_event", "n": 4},
    ]
    path = log(tmp_path, [*requests(stop=3, oom=1), *counted])
    made = tokenpulse.report(path)
    assert (made.oom_rate, made.oom_events, made.requests["failed"]) == (0.25, 5, 1)
    text = run("report", path, "--sketches", tmp_path / "kept").stdout.decode()
    assert "out of memory 25.00 % 1 of 4 ended; 5 events counted apart" in " ".join(text.split())
    quiet = tmp_path / "quiet.jsonl"
    quiet.write_text('{"id":"a","arrive_ns":1}\n')
    run("report", quiet, "--sketches", tmp_path / "none")
    merged = json.loads(run("merge", tmp_path / "kept", tmp_path / "none", tmp_path / "kept", "--json").stdout)
    assert merged["oom_events"] == 10
    nothing = tokenpulse.report(quiet)
    assert nothing.oom_events is None
    assert nothing.absent["oom_events"] == "no line of an input counts an oom_event"


@pytest.mark.parametrize("path", sorted((FIXTURES / "tools").glob("*.*z")), ids=lambda path: path.name)
def test_what_a_tool_does_not_tell_has_a_reason(path: Path) -> None:
    made = tokenpulse.report(path, slo="ttft=1s,tpot=50ms")
    for name in RATES:
        assert (getattr(made, name) is None) == (name in made.absent), name
    if made.preemptions["requests"] is None:
        assert made.preemption_rate is None
        assert made.preemptions_per_request is None
    judged = made.error_budget["availability"]["judged"]
    assert (judged is None) == ("requests" in made.absent)
    for one in made.goodput:
        assert (one["good"] is None) <= (one["budget_left"] is None)
    json.loads(dumps(made), parse_constant=pytest.fail)


def test_the_table_and_the_page(tmp_path: Path) -> None:
    lines = requests(stop=98, oom=2, abort=1)
    lines[0] |= {"preempt_ns": [MS, 2 * MS], "resume_ns": [MS, 2 * MS]}
    page = tmp_path / "page.html"
    done = run("report", log(tmp_path, lines), "--slo", "chat:ttft=1s,tpot=1s", "--html", page)
    text = done.stdout.decode()
    for row in (
        r"availability   98.00 % of 100 ended requests, aborts left out",
        r"error rate      2.00 % 2 of 100 ended requests, aborts left out",
        r"out of memory   1.98 % 2 of 101 ended",
        r"preempted       0.99 % 1 of 101 ended; 2 preemptions, 0.0198 a request",
    ):
        assert " ".join(row.split()) in " ".join(text.split())
    budgets = text[text.index("\nError budgets\n") :].splitlines()
    assert budgets[4].split() == ["availability", "99.9", "%", "2", "100", "20.0", "-1,900", "%"]
    assert budgets[5].split() == ["chat", "99", "%", "2", "100", "2.00", "-100.0", "%"]
    assert "Of this run's own requests" in text
    assert "Error budgets, of this run" in page.read_text()
