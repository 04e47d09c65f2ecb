"""`tokenpulse diagnose` from end to end: logs of simulated and recorded runs, other tools' files, and what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import FIXTURES, misuse, run

import tokenpulse
from tokenpulse import Run, simulate
from tokenpulse.analysis.diagnosis.rows import ROWS


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A healthy run and one that is overloaded from its 15th second on."""
    folder = tmp_path_factory.mktemp("runs")
    made = {"healthy": folder / "healthy.jsonl.gz", "overload": folder / "overload.jsonl"}
    simulate.run(seed=41, rate=20, duration="45s", out=made["healthy"])
    simulate.run(seed=42, rate=20, duration="45s", fault="overload:0.6", out=made["overload"])
    return made


def as_json(*args: object) -> dict[str, Any]:
    done = run("diagnose", *args, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_fault_in_figures(logs: dict[str, Path]) -> None:
    found = as_json(logs["overload"])
    assert set(found) == {"schema", "current", "baseline", "findings", "not_judged", "notices"}
    assert found["schema"] == "tokenpulse.diagnosis/1"
    first, *others = found["findings"]
    assert set(first) == {"row", "symptom", "cause", "action", "strength", "explained_by", "evidence"}
    assert (first["row"], first["explained_by"]) == ("queue-growth", None)
    assert all(len(pair) == 2 for pair in first["evidence"].values())
    before, now = first["evidence"]["queue_depth_mean_of_last_minute"]
    assert now > 2 * 128 > before
    assert {one["row"]: one["explained_by"] for one in others} == {
        "tpot-batch": "queue-growth",
        "ttft-queue": "queue-growth",
    }
    assert all(1 < one["strength"] <= first["strength"] for one in others)
    assert {one["row"] for one in found["not_judged"]} <= set(ROWS)
    assert (found["current"]["from_seconds"], found["current"]["to_seconds"]) == (30.0, 45.0)
    assert found["baseline"]["to_seconds"] == 15.0
    assert found["current"]["name"] == found["baseline"]["name"] == str(logs["overload"])


def test_a_healthy_run_has_no_findings(logs: dict[str, Path]) -> None:
    found = as_json(logs["healthy"])
    assert (found["findings"], found["not_judged"], found["notices"]) == ([], [], [])
    done = run("diagnose", logs["healthy"])
    assert done.returncode == 0
    assert b"\nNothing found\n" in done.stdout


def test_another_run_as_the_baseline(logs: dict[str, Path]) -> None:
    found = as_json(logs["overload"], "--baseline", logs["healthy"])
    assert found["findings"][0]["row"] == "queue-growth"
    assert found["baseline"]["name"] == str(logs["healthy"])
    assert found["current"]["seconds"] == found["baseline"]["seconds"] == 45.0
    other_way = as_json(logs["healthy"], "--baseline", logs["overload"])
    assert other_way["findings"] == []
    run_of = Run.of(logs["overload"])
    in_python = tokenpulse.diagnose(run_of, Run.of(logs["healthy"])).to_dict()
    assert in_python["findings"] == found["findings"]


def test_a_part_of_a_run(logs: dict[str, Path]) -> None:
    late = as_json(logs["overload"], "--from", "30s")
    assert late["findings"][0]["row"] == "queue-growth"
    assert [late[side]["from_seconds"] for side in ("baseline", "current")] == [0.0, 30.0]
    assert late["baseline"]["to_seconds"] == 30.0
    before = as_json(logs["overload"], "--to", "14s", "--baseline", logs["healthy"])
    assert before["findings"] == []
    assert before["current"]["to_seconds"] == 14.0
    assert before["baseline"]["seconds"] == 45.0


def test_plain_english(logs: dict[str, Path]) -> None:
    done = run("diagnose", logs["overload"])
    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert "1. queue-growth (strength " in text
    assert "2. tpot-batch (strength " in text
    assert "explained by queue-growth)" in text
    words = " ".join(text.split())
    assert "There is too little capacity: more requests arrive than can be completed." in words
    assert "Scale out, or limit the rate of requests." in words
    assert "TPOT P50, ms" in text
    assert "batch utilization, %" in text
    assert max(map(len, text.splitlines())) <= 120


def test_from_standard_input(logs: dict[str, Path]) -> None:
    done = run("diagnose", "-", "--json", stdin=logs["overload"].read_bytes())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["findings"] == as_json(logs["overload"])["findings"]


def test_the_machine_may_be_told(logs: dict[str, Path], tmp_path: Path) -> None:
    anonymous = tmp_path / "anonymous.jsonl"
    _, _, events = logs["overload"].read_bytes().partition(b"\n")
    anonymous.write_bytes(events)
    lacks = {one["row"]: one["needs"] for one in as_json(anonymous)["not_judged"]}
    assert "peak_flops and bandwidth_bytes_per_second" in lacks["memory-bound"]
    told = as_json(anonymous, "--peak-flops", "1.58e16", "--bandwidth", "2.68e13")
    assert told["not_judged"] == []
    assert "bandwidth" in misuse(run("diagnose", anonymous, "--bandwidth", "0"))


def test_what_a_log_does_not_tell_is_named() -> None:
    found = as_json(FIXTURES / "demo_events.jsonl")
    assert found["findings"] == []
    assert {one["row"] for one in found["not_judged"]} == set(ROWS)
    assert b"Nothing found by what could be judged" in run("diagnose", "demo_events.jsonl").stdout


@pytest.mark.parametrize("path", ["demo_requests.jsonl", "run.jsonl.gz", "tools/vllm_bench_errors.json.gz"])
def test_requests_are_replayed(path: str) -> None:
    found = as_json(path)
    assert found["current"]["arrivals"] + found["baseline"]["arrivals"] > 0
    assert {one["row"] for one in found["not_judged"]} >= {"memory-bound", "tpot-batch"}


def test_lines_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"t_ns":0,"id":"a","ev":"arrive"}\nnonsense\n{"t_ns":5000000000,"id":"a","ev":"tokens"}\n')
    found = as_json(log)
    assert [one["reason"] for one in found["notices"]] == ["not_json"]
    assert b"1 notice about lines that could not be used" in run("diagnose", log).stdout


def test_misuse(logs: dict[str, Path], tmp_path: Path) -> None:
    assert "no such file" in misuse(run("diagnose", tmp_path / "none.jsonl")).lower()
    assert "read only once" in misuse(run("diagnose", "-", "--baseline", "-"))
    other = tmp_path / "other.txt"
    other.write_text("hello\n")
    assert str(other) in misuse(run("diagnose", other))
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert str(empty) in misuse(run("diagnose", empty))
    assert "got 50 s to 45 s" in misuse(run("diagnose", logs["healthy"], "--from", "50s"))
    assert "got 20 s to 10 s" in misuse(run("diagnose", logs["healthy"], "--from", "20s", "--to", "10s"))
    assert "needs a baseline" in misuse(run("diagnose", logs["healthy"], "--to", "10s"))
    assert "--from: " in misuse(run("diagnose", logs["healthy"], "--from", "soon"))
    with pytest.raises(ValueError, match="of a log or a Run, got a Stretch"):
        tokenpulse.diagnose(Run.of(logs["healthy"]).whole, Run.of(logs["healthy"]), from_="1s")
    assert "tpot is missing" in misuse(run("diagnose", logs["healthy"], "--slo", "ttft=1s"))
