"""`tokenpulse.alerts.of` and `tokenpulse alerts`: a log is judged as its meter would have been, second by second."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from command import FIXTURES, misuse, run
from driven_meter import drive, lines_of

import tokenpulse.alerts
from tokenpulse import SLO, FormatError, KVTracker, Meter
from tokenpulse.alerts import Alerts

SECOND = 10**9
BEGIN = 7 * SECOND + SECOND // 2
"""Where the log begins on its clock: seconds since its first event are not seconds of the clock."""


def events() -> list[dict[str, Any]]:
    """250 seconds of an engine: its cache is full from 20 to 99, requests of one tenant are slow from 100 to 180, and
    from 180 on more requests come than it can serve, while one in ten runs out of memory.
    """
    found: list[dict[str, Any]] = []

    def add(second: float, ev: str, **rest: Any) -> None:
        found.append({"t_ns": BEGIN + round(second * SECOND), "ev": ev, **rest})

    for second in range(250):
        grown = 4 * max(0, second - 180)
        used = 95 if 20 <= second < 99 else 30
        add(second, "gauge", waiting=grown, kv_used=used, **({"kv_total": 100, "batch_max": 16} if not second else {}))
        for n in range(10 if second < 180 else 12):
            name, tenant = f"{second}-{n}", "a" if n % 2 else "b"
            at, slow = second + n / 20, tenant == "a" and 100 <= second < 180
            add(at, "arrive", id=name, prompt_tokens=100, labels={"tenant": tenant})
            if second < 180 or n < 8:
                add(at + (0.4 if slow else 0.1), "tokens", id=name)
                add(at + 0.41, "end", id=name, status="oom" if second >= 180 and n == 7 else "stop")
    return sorted(found, key=lambda event: event["t_ns"])


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("alerts") / "engine.jsonl"
    path.write_text("\n".join(lines_of(events())) + "\n")
    return path


SETS = [SLO("a", ttft=0.3, tpot=0.05, where={"tenant": "a"}), SLO("b", ttft=0.3, tpot=0.05, where={"tenant": "b"})]


@pytest.fixture(scope="module")
def found(log: Path) -> tokenpulse.alerts.AlertReport:
    return tokenpulse.alerts.of(log, slo=SETS)


def driven(lines: list[str], slos: list[SLO]) -> Alerts:
    meter, alerts = Meter(slos, ["1m", "5m"], kv=KVTracker()), Alerts()
    drive(lines, meter, lambda t: alerts.update(meter.snapshot(t)), ("tenant",) if slos else ())
    return alerts


def test_a_log_is_as_its_meter_was(log: Path, found: tokenpulse.alerts.AlertReport) -> None:
    live = driven(log.read_text().splitlines(), SETS)
    assert {*found.alerts} == {*live.cleared, *live.firing}
    assert list(found.pending) == live.pending
    assert list(found.highest) == live.highest
    assert list(found.not_judged) == live.not_judged
    assert found.evaluations == live.evaluations > 240


@pytest.mark.parametrize("name", ["run", "run_async"])
def test_a_recording_is_as_its_meter_was(name: str) -> None:
    path = FIXTURES / f"{name}.jsonl.gz"
    found = tokenpulse.alerts.of(path)
    live = driven(gzip.decompress(path.read_bytes()).decode().splitlines(), [])
    assert list(found.highest) == live.highest
    assert list(found.pending) == live.pending
    assert [one.rule for one in found.pending] == ["refill_rate", "refill_rate"]


def test_what_is_found(found: tokenpulse.alerts.AlertReport) -> None:
    assert found.first_ns == BEGIN
    told = {(one.rule, one.severity, one.of): one for one in found.alerts}
    assert list(told) == [
        ("kv_utilization", "warning", None),
        ("kv_utilization", "critical", None),
        ("ttft_p99", "critical", "a"),
        ("ttft_p99", "warning", "a"),
        ("oom_rate", "warning", None),
        ("oom_rate", "critical", None),
        ("queue_growth", "critical", None),
        ("queue_depth", "warning", None),
    ]
    full = told["kv_utilization", "critical", None]
    assert full.state == "cleared"
    assert full.peak == 0.95
    # 60 s of 95 are there from 80 on, and after 99 the mean falls: to 81 % at about 112.
    assert 110 < (found.seconds(full.cleared_ns) or 0) < 115
    slow = told["ttft_p99", "critical", "a"]
    assert found.seconds(slow.began_ns) == 101.5
    assert slow.fired_ns == slow.began_ns + 10 * SECOND
    assert slow.peak == pytest.approx(0.4, rel=0.006)
    assert slow.threshold == 0.9 * 0.3
    assert told["queue_growth", "critical", None].state == "firing"
    assert [(one.rule, one.of) for one in found.not_judged] == [
        ("refill_rate", None),
        *(("burn_" + speed, of) for speed in ("fast", "slow", "ticket") for of in ("a", "b", "availability")),
    ]
    json.dumps(found.to_dict(), allow_nan=False)


TOOLS = ("aiperf.jsonl.gz", "guidellm.json.gz", "inference_perf_requests.json.gz", "vllm_bench_detailed.json.gz")


@pytest.mark.parametrize("name", TOOLS)
def test_files_of_other_tools(name: str) -> None:
    path = FIXTURES / "tools" / name
    found = tokenpulse.alerts.of(path, slo="ttft=1us,tpot=1s")
    told = {one.rule: one for one in found.highest}
    # Over all of a short run the highest P99 of a minute that grows is no less than that of the whole run.
    whole = tokenpulse.report(path).to_dict()["latency"]["ttft"]
    assert whole["p50"] < (told["ttft_p99"].value or 0) <= whole["max"]
    assert told["oom_rate"].value == 0
    assert found.inputs[0]["path"] == str(path)
    assert found.inputs[0]["requests"] == found.inputs[0]["lines"] > 0
    assert {one.rule: one.needs for one in found.not_judged if one.of is None} == {
        "kv_utilization": "the gauges kv_used and kv_total",
        "refill_rate": "events of the KV cache (kv_store, kv_evict)",
        "queue_depth": "the gauges waiting and batch_max",
        "queue_growth": "the gauges waiting and batch_max",
    }


def test_a_table_is_as_its_lines(tmp_path: Path) -> None:
    lines, table = FIXTURES / "demo_requests.jsonl", tmp_path / "demo.parquet"
    tokenpulse.convert(lines, table)
    by_lines, by_table = (tokenpulse.alerts.of(path, slo="ttft=100ms,tpot=1s") for path in (lines, table))
    assert by_lines.alerts == by_table.alerts
    assert by_lines.highest == by_table.highest
    assert by_lines.pending == by_table.pending
    assert by_lines.evaluations == by_table.evaluations > 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("aiperf_summary.json.gz", "found figures only"),
        ("genai_bench.json.gz", "expected when each request arrived"),
        ("vllm_bench_append.jsonl.gz", "expected one run, found 3"),
        ("azure_code.csv", "found a trace"),
    ],
)
def test_files_that_do_not_say_enough(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tokenpulse.alerts.of(FIXTURES / "tools" / name)


@pytest.mark.parametrize("later_ns", [0, 1])
def test_the_last_moment_of_a_log_counts(tmp_path: Path, later_ns: int) -> None:
    """Also where it is a whole second, at which the rules were evaluated before the events of that time."""
    end = 20 * SECOND + later_ns
    path = tmp_path / "last.jsonl"
    lines = [
        {"t_ns": 5 * SECOND, "ev": "arrive", "id": "1", "prompt_tokens": 5},
        {"t_ns": end, "ev": "tokens", "id": "1"},
        {"t_ns": end, "ev": "end", "id": "1", "status": "oom"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = tokenpulse.alerts.of(path, slo="ttft=1s,tpot=1s")
    assert {(one.rule, one.value, one.t_ns) for one in found.highest} == {
        ("ttft_p99", end / SECOND - 5, end),
        ("oom_rate", 1.0, end),
    }
    assert found.evaluations == 15 + later_ns


def test_nothing_in_a_log(tmp_path: Path) -> None:
    path = tmp_path / "ready.jsonl"
    path.write_text('{"t_ns": 5, "ev": "ready"}\n')
    found = tokenpulse.alerts.of(path)
    assert (found.alerts, found.highest, found.evaluations) == ((), (), 1)
    assert {one.rule for one in found.not_judged} == {
        *("kv_utilization", "ttft_p99", "oom_rate", "refill_rate", "queue_depth", "queue_growth"),
        *("burn_fast", "burn_slow", "burn_ticket"),
    }


def test_what_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    path.write_text("nothing\n")
    with pytest.raises(FormatError, match=r"none\.jsonl"):
        tokenpulse.alerts.of(path)
    with pytest.raises(ValueError, match="itl must be one of"):
        tokenpulse.alerts.of(path, itl="none")
    with pytest.raises(ValueError, match="found a trace"):
        tokenpulse.alerts.of(FIXTURES / "mooncake_conversation.jsonl.gz")


# The command


def test_json(log: Path) -> None:
    done = run("alerts", log, "--slo", "a:ttft=300ms,tpot=50ms", "--slo-where", "a=tenant:a", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == tokenpulse.alerts.of(log, slo=SETS[:1]).to_dict()
    assert told["schema"] == "tokenpulse.alerts/1"
    one = told["alerts"][0]
    assert (one["rule"], one["severity"], one["state"], one["cleared_by"]) == (
        *("kv_utilization", "warning"),
        *("cleared", "value"),
    )
    assert one["fired"] - one["began"] == pytest.approx(30)
    assert one["began"] < one["peaked"] < one["cleared"]


def test_tables(log: Path) -> None:
    done = run("alerts", log, "--slo", "a:ttft=300ms,tpot=50ms", "--slo-where", "a=tenant:a")
    assert done.returncode == 0, done.stderr
    printed = done.stdout.decode()
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= 90
    rows = [line.split() for line in printed.splitlines()]
    assert ["kv_utilization", "critical", "75.5", "85.5", "95.00", "%", "90.00", "%", "80.5", "112.5"] in rows
    assert any(row[:3] == ["queue_growth", "critical", "211.5"] and row[-1] == "firing" for row in rows), printed
    assert any(row[:2] == ["refill_rate", "events"] for row in rows)
    assert "queue_growth: add capacity or limit the rate" in printed


def test_settings_of_a_file(log: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[kv_utilization]\ncritical = 0.94\ncritical_for = "3s"\nwarning = false\n')
    done = run("alerts", log, "--rules", rules, "--json")
    told = [one for one in json.loads(done.stdout)["alerts"] if one["rule"] == "kv_utilization"]
    assert [(one["severity"], one["fired"] - one["began"]) for one in told] == [("critical", 3.0)]


def test_standard_input(log: Path) -> None:
    done = run("alerts", "-", "--json", stdin=log.read_bytes())
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["alerts"] == tokenpulse.alerts.of(log).to_dict()["alerts"]
    assert told["inputs"][0]["path"] == "-"


def test_prometheus() -> None:
    done = run("alerts", "--prometheus", "--slo", "chat:ttft=300ms,tpot=50ms")
    assert done.returncode == 0
    assert b"> 0.7 * 0.3" in done.stdout
    assert b'slo: "chat"' in done.stdout


def test_lines_that_cannot_be_used(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(log.read_text() + "{}\n" + '{"t_ns":258000000000,"id":"nobody","ev":"tokens"}\n')
    done = run("alerts", path, "--strict")
    assert done.returncode == 1
    assert b"2 lines or events could not be used" in done.stderr
    assert b"unknown_kind" in done.stdout
    assert b"request never arrived" in done.stdout


def test_output_lengths_are_not_known_in_time(log: Path) -> None:
    with pytest.raises(ValueError, match="known when a request arrives, got output_length"):
        tokenpulse.alerts.of(log, slo=SLO(ttft=0.2, tpot=0.03, where={"output_length": "0-128"}))


def test_misuse(log: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("[oom_rate]\nwarn = 1\n")
    assert "oom_rate: expected one of" in misuse(run("alerts", log, "--rules", rules))
    assert "PATH is missing" in misuse(run("alerts"))
    assert "leave out PATH" in misuse(run("alerts", log, "--prometheus"))
    assert "leave out --json and --ttl" in misuse(run("alerts", "--prometheus", "--json", "--ttl", "1m"))
    assert "--ttl: a duration must be" in misuse(run("alerts", log, "--ttl", "long"))
    assert "No such file" in misuse(run("alerts", "none.jsonl"))
    assert "no SLO set may be named 'availability'" in misuse(
        run("alerts", log, "--slo", "availability:ttft=1s,tpot=1s")
    )
