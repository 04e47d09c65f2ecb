"""The alerting rules for Prometheus: promtool takes them, and they fire and clear as ours do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tokenpulse import SLO
from tokenpulse.alerts import Rules
from tokenpulse.export.rules import NAMES, SERIES, prometheus_rules

CHAT = SLO("chat", ttft=0.2, tpot=0.03, objective=0.95, where={"tenant": 'a"b\\'})
PLAIN = SLO(ttft=1.0, tpot=0.05)
ENGINE = '{job="llm", instance="one"}'

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def checked(tmp_path: Path, text: str) -> str:
    path = tmp_path / "rules.yml"
    path.write_text(text)
    ran = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@promtool
@pytest.mark.parametrize(
    ("rules", "slos", "by", "expected"),
    [
        (Rules(), [], ["job", "instance"], 11),
        (Rules(), [CHAT, PLAIN], ["job", "instance"], 21),
        (Rules.of({"batch_max": 64, "burn_fast": {"for": 0}}), [PLAIN], [], 16),
        (Rules.of({"queue_growth": False, "oom_rate": {"warning": False, "window": "90s"}}), [], ["pod"], 9),
    ],
)
def test_promtool_takes_them(tmp_path: Path, rules: Rules, slos: list[SLO], by: list[str], expected: int) -> None:
    assert f"{expected} rules found" in checked(tmp_path, prometheus_rules(rules, slos, by))


def read(text: str) -> list[dict[str, Any]]:
    """The rules of a text, read without a YAML library: what we write has one form."""
    head, *blocks = text.split("      - alert: ")
    assert head == "groups:\n  - name: tokenpulse\n    interval: 5s\n    rules:\n"
    found = []
    for block in blocks:
        match = re.fullmatch(
            r"(?P<alert>\w+)\n"
            r"        expr: \|-\n(?P<expr>(?:          .+\n)+)"
            r"(?:        for: (?P<hold>\d+(?:ms|s|m|h))\n)?"
            r"        labels:\n(?P<labels>(?:          \w+: \".*\"\n)+)"
            r"        annotations:\n          summary: \".+\"\n          description: \".+\"\n",
            block,
        )
        assert match is not None, block
        labels = dict(line.strip().split(": ", 1) for line in match["labels"].splitlines())
        found.append({**match.groupdict(), "labels": {name: json.loads(label) for name, label in labels.items()}})
    return found


def test_their_form() -> None:
    found = read(prometheus_rules(slos=[CHAT, PLAIN]))
    told = [(one["alert"], one["labels"]["severity"], one["labels"].get("slo"), one["hold"]) for one in found]
    assert len(told) == len(set(told)) == 21
    assert {one[0] for one in told} == set(NAMES.values())
    assert ("TokenpulseTTFTP99", "warning", "chat", "30s") in told
    assert ("TokenpulseBurnTicket", "warning", "availability", "30s") in told
    assert ("TokenpulseQueueGrowth", "critical", None, "10s") in told
    for one in found:
        opened = re.sub(r'"(?:[^"\\]|\\.)*"', "", one["expr"])
        assert opened.count("(") == opened.count(")") > 0
        assert f'alertname="{one["alert"]}"' in one["expr"]
        assert all(name in SERIES.__slots__ for name in _series(opened))


def _series(expr: str) -> set[str]:
    """The fields of `Series` that an expression names."""
    by_name = {getattr(SERIES, name): name for name in SERIES.__slots__}
    return {by_name[name] for name in re.findall(r"tokenpulse_\w+", expr)}


def test_every_series_is_used() -> None:
    used = set()
    for one in read(prometheus_rules(slos=[PLAIN])):
        used |= _series(one["expr"])
    assert used == set(SERIES.__slots__)


def test_thresholds_stand_in_the_expressions() -> None:
    rules = Rules.of({"kv_utilization": {"warning": 0.6, "clear_below": 0.5, "warning_for": "1m"}})
    one = read(prometheus_rules(rules))[0]
    assert ") > 0.6)" in one["expr"]
    assert ") >= 0.3\n" in one["expr"]
    assert one["hold"] == "1m"


def test_without_any_rule() -> None:
    off = Rules.of(dict.fromkeys(NAMES, False))
    assert prometheus_rules(off) == "groups:\n  - name: tokenpulse\n    interval: 5s\n    rules: []\n"


def test_what_prometheus_would_not_take() -> None:
    with pytest.raises(ValueError, match="a label must be"):
        prometheus_rules(by=["a-b"])
    with pytest.raises(ValueError, match="a label must be"):
        prometheus_rules(slos=[SLO(ttft=1, tpot=1, where={"team.name": "x"})])
    with pytest.raises(ValueError, match="whole milliseconds"):
        prometheus_rules(Rules.of({"oom_rate": {"window": "60ns"}}))


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    told = "".join(f', {key}="{label}"' for key, label in labels.items())
    return {"series": f"{name}{ENGINE[:-1]}{told}}}", "values": values}


def firing(time: str, alert: str, severity: str | None, slo: str | None = None) -> dict[str, Any]:
    """That an alert fires at a time, or (severity None) that none of that name does."""
    labels = {"severity": severity, "job": "llm", "instance": "one"} | ({} if slo is None else {"slo": slo})
    return {"eval_time": time, "alertname": alert, "exp_alerts": [] if severity is None else [{"exp_labels": labels}]}


@promtool
def test_they_fire_and_clear(tmp_path: Path) -> None:
    # Critical levels only, so that each name fires once.
    levels = ("kv_utilization", "oom_rate", "refill_rate")
    rules = Rules.of({**{name: {"warning": False} for name in levels}, "burn_slow": False, "burn_ticket": False})
    text = re.sub(r"        annotations:\n(?:          .+\n)+", "", prometheus_rules(rules, [PLAIN]))
    (tmp_path / "rules.yml").write_text(text)
    # 15 s apart: 95 of 100 blocks for 4 minutes, 85 for 4, which is above 0.9 of the threshold, then 50.
    inputs = [
        series(SERIES.kv_used, "95x16 85x16 50x16"),
        series(SERIES.kv_total, "100x48"),
        # 1 in 100 ends oom for 6 minutes, then none.
        series(SERIES.ended, "0+1x24 24x24", status="oom"),
        series(SERIES.ended, "0+99x48", status="stop"),
        series(SERIES.good, "0+70x48", slo="default"),
        series(SERIES.judged, "0+100x48", slo="default"),
        series(SERIES.evicted, "0+10x48"),
        series(SERIES.refilled, "0+1x48"),
        # A queue of 0, then one that grows from minute 4 on by 10 every 15 s, with a trend that its exporter tells.
        series(SERIES.waiting, "0x15 0+10x16 160x16"),
        series(SERIES.batch_max, "16x48"),
        series(SERIES.queue_trend_z, "0x18 9x14 0x16"),
        series(SERIES.queue_trend_rise, "0x18 40x14 0x16"),
        series(SERIES.arrived, "0+150x48"),
    ]
    growth, kv, oom = (NAMES[name] for name in ("queue_growth", "kv_utilization", "oom_rate"))
    tests = [
        firing("5s", kv, None),
        firing("3m", kv, "critical"),
        firing("7m", kv, "critical"),
        firing("11m", kv, None),
        firing("6m", oom, "critical"),
        firing("12m", oom, None),
        firing("10m", NAMES["refill_rate"], None),
        firing("4m", growth, None),
        firing("7m", growth, "critical"),
        firing("11m", growth, None),
        firing("11m", NAMES["queue_depth"], "warning"),
        # Three in ten are missed: 30 times 1 - 0.99. One in a hundred ran out of memory: 10 times 1 - 0.999.
        {
            "eval_time": "8m",
            "alertname": NAMES["burn_fast"],
            "exp_alerts": [firing("", "", "critical", "default")["exp_alerts"][0]],
        },
    ]
    case = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "5s",
        "tests": [{"interval": "15s", "input_series": inputs, "alert_rule_test": tests}],
    }
    (tmp_path / "case.yml").write_text(json.dumps(case))  # JSON is YAML
    ran = subprocess.run(["promtool", "test", "rules", "case.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
