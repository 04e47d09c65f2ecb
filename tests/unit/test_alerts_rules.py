"""The settings of alerts: defaults, TOML files, and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import FIXTURES

from tokenpulse import SLO, Meter
from tokenpulse.alerts import Alerts, Burn, Levels, QueueGrowth, Rules
from tokenpulse.alerts import of as alerts_of
from tokenpulse.analysis.alerts.evaluation import Evaluation
from tokenpulse.analysis.alerts.figures import Area, Figures
from tokenpulse.analysis.alerts.machine import Machine

SECOND = 10**9


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        """
        clear_below = 0.8
        critical_for = "5s"
        batch_max = 256

        [kv_utilization]
        warning = 0.7
        critical = false

        [oom_rate]
        window = "1m"
        critical_for = 20

        [queue_growth]
        z = 3.1

        [burn_slow]
        threshold = 5
        long = "6h"
        short = "30m"

        [burn_ticket]
        threshold = false
        """
    )
    rules = Rules.load(path)
    assert rules == Rules(
        kv_utilization=Levels(0.7, None, critical_for="5s", clear_below=0.8),
        ttft_p99=Levels(0.7, 0.9, critical_for="5s", clear_below=0.8),
        oom_rate=Levels(0.0001, 0.001, window="1m", critical_for=20, clear_below=0.8),
        refill_rate=Levels(0.05, 0.15, window="5m", critical_for="5s", clear_below=0.8),
        queue_depth=Levels(2.0, critical_for="5s", clear_below=0.8),
        queue_growth=QueueGrowth(z=3.1, hold="5s"),
        burn_fast=Burn(14.4, "1h", "5m", severity="critical", hold="5s", clear_below=0.8),
        burn_slow=Burn(5, "6h", "30m", severity="critical", hold="5s", clear_below=0.8),
        burn_ticket=Burn(None, "3d", "6h", severity="warning", clear_below=0.8),
        batch_max=256,
    )
    assert Rules.of(rules.to_dict()).to_dict() == rules.to_dict()
    assert rules.windows_ns == (60 * SECOND, 300 * SECOND)


def test_the_defaults_come_back() -> None:
    assert Rules.of({}) == Rules()
    told = Rules().to_dict()
    assert told["kv_utilization"]["window"] == "1m"
    assert told["queue_growth"]["for"] == "10s"
    assert told["burn_ticket"]["for"] == "30s"
    assert Rules.of(told).to_dict() == told


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv": {}}, "expected one of kv_utilization, .*, got 'kv'"),
        ({"oom_rate": {"warn": 1}}, "oom_rate: expected one of warning, .*, got 'warn'"),
        ({"oom_rate": {"warning": -1}}, "oom_rate: warning must be a finite number of at least 0, got -1"),
        ({"oom_rate": {"warning": True}}, "oom_rate: warning must be a number, got True"),
        ({"oom_rate": {"critical_for": "soon"}}, "oom_rate: critical_for: a duration must be"),
        ({"oom_rate": {"clear_below": 1.5}}, "oom_rate: clear_below must be between 0 and 1, got 1.5"),
        ({"oom_rate": 3}, "oom_rate must be a table of settings, or false, got 3"),
        ({"oom_rate": {"window": "5"}}, "oom_rate: window: a duration must be"),
        ({"burn_fast": {"long": "2h"}}, "burn_fast: long must be one of 5m, .*, got '2h'"),
        ({"burn_fast": {"short": "6h"}}, "burn_fast: short must be less than long, '1h', got '6h'"),
        ({"burn_fast": {"severity": "page"}}, "burn_fast: severity must be warning or critical, got 'page'"),
        ({"queue_growth": {"z": "2"}}, "queue_growth: z must be a number of 0 or more, got '2'"),
        ({"queue_growth": {"window": "1.000000001s"}}, "queue_growth: window must be a multiple of 60 ns"),
        ({"queue_growth": {"on": 1}}, "queue_growth: on must be true or false, got 1"),
        ({"queue_growth": {"clear_z": 3}}, "queue_growth: clear_z must be at most z, 2.33, got 3"),
        ({"queue_growth": {"window": "7s"}}, "queue_growth: window must be a multiple of 60 ns"),
        ({"kv_utilization": {"warning": 0.95}}, "kv_utilization: warning must be at most critical, 0.9, got 0.95"),
        ({"kv_utilization": {"critical": 90}}, "kv_utilization: critical must be a share of at most 1, got 90"),
        ({"oom_rate": {"window": "2401h"}}, "oom_rate: window must be a multiple of 60 ns, and at most 2400h, got"),
        ({"batch_max": 0}, "batch_max must be at least 1, got 0"),
        ({"batch_max": 2.5}, "batch_max must be a whole number, got 2.5"),
        ({"clear_below": "much"}, "kv_utilization: clear_below must be a number, got 'much'"),
    ],
)
def test_what_does_not_fit(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Rules.of(settings)


def test_windows_that_no_meter_can_keep_together() -> None:
    rules = Rules.of({"oom_rate": {"window": "7m"}})
    message = "oom_rate: window must be a multiple of the next narrower one, 5m of refill_rate, got 7m"
    with pytest.raises(ValueError, match=message):
        alerts_of(FIXTURES / "run.jsonl.gz", rules=rules)


def test_a_file_that_does_not_fit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    for text, message in (
        ("oom_rate = 3", "oom_rate must be"),
        ("[oom_rate", "Expected"),
        ("x = 1", "expected one of"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=f"^{path}: .*{message}"):
            Rules.load(path)
    with pytest.raises(FileNotFoundError):
        Rules.load(tmp_path / "none.toml")


def at(second: float, **figures: Any) -> Figures:
    return Figures(t_ns=round(second * SECOND), **figures)


def test_what_is_off_is_not_judged_and_never_fires() -> None:
    rules = Rules.of(dict.fromkeys(("oom_rate", "ttft_p99", "refill_rate", "burn_fast", "burn_slow"), False))
    evaluation = Evaluation(rules)
    for second in range(100):
        assert evaluation.update(at(second, ended=10, oom=10)) == []
    told = {(one.rule, one.of): one.needs for one in evaluation.not_judged}
    assert told == {
        ("kv_utilization", None): "the gauges kv_used and kv_total",
        ("queue_depth", None): "the gauges waiting and batch_max",
        ("queue_growth", None): "the gauges waiting and batch_max",
        ("burn_ticket", None): "an SLO set: its limits and its objective",
        ("burn_ticket", "availability"): "a meter that keeps burn rates",
    }


def test_needs_are_those_that_are_left() -> None:
    evaluation = Evaluation(Rules(batch_max=8), [SLO(ttft=1, tpot=1)])
    burn = {"default": {"1h": 3.0, "5m": None}, "availability": {"1h": 20.0, "5m": 30.0}}
    for second in range(30):
        area = Area(second * SECOND, second * SECOND)
        evaluation.update(
            at(second, seen_ns=301 * SECOND, waiting=1.0, growth_waiting=1.0, waiting_area=area, burn=burn)
        )
    told = {(one.rule, one.of): one.needs for one in evaluation.not_judged}
    assert ("queue_depth", None) not in told
    assert told["queue_growth", None] == "the gauge waiting over 1m on end"
    assert told["burn_fast", "default"] == "requests that ended and were not aborted"
    assert ("burn_fast", "availability") not in told
    assert told["burn_slow", "availability"] == "events over 30m, its shorter window"
    assert [(one.rule, one.of, one.severity) for one in evaluation.firing] == [
        ("burn_fast", "availability", "critical")
    ]
    highest = {(one.rule, one.of): (one.value, one.t_ns, dict(one.thresholds)) for one in evaluation.highest}
    assert highest["burn_fast", "availability"] == (20.0, 0, {"critical": 14.4})
    assert highest["queue_depth", None] == (1.0, 0, {"warning": 16.0})


def test_severities_are_alerts_of_their_own() -> None:
    evaluation = Evaluation(Rules())
    events = []
    for second, share in enumerate([0.95] * 60 + [0.75] * 10 + [0.5]):
        events += evaluation.update(at(second, kv_used=share, kv_total=1.0))
    told = [(event.kind, event.t_ns // SECOND, event.alert.severity, event.alert.peak) for event in events]
    assert told == [
        ("fired", 10, "critical", 0.95),
        ("fired", 30, "warning", 0.95),
        ("cleared", 60, "critical", 0.95),
        ("cleared", 70, "warning", 0.95),
    ]


def test_time_does_not_run_back() -> None:
    evaluation = Evaluation(Rules())
    evaluation.update(at(2))
    evaluation.update(at(2))
    with pytest.raises(ValueError, match="t must not lie before the evaluation before, 2000000000, got 1000000000"):
        evaluation.update(at(1))
    machine = Machine("oom_rate", "warning", None, for_ns=0)
    machine.judge(2, 1.0, 2.0, clear_below=0.9)
    with pytest.raises(ValueError, match="t must not lie before"):
        machine.judge(1, 1.0, 2.0, clear_below=0.9)


def test_no_set_is_called_availability() -> None:
    with pytest.raises(ValueError, match="no SLO set may be named 'availability'"):
        Evaluation(Rules(), [SLO("availability", ttft=1, tpot=1)])


def test_a_queue_that_nobody_looked_at_for_a_while() -> None:
    # Looked at every 5 s: the mean of 5 s counts for each of its seconds.
    evaluation = Evaluation(Rules())
    fired = []
    for second in range(0, 200, 5):
        area = Area(sum(range(second)) * SECOND, second * SECOND)
        figures = {"waiting": second - 30.0, "growth_waiting": second - 30.0, "batch_max": 4.0, "waiting_area": area}
        fired += evaluation.update(at(second, growth_arrived=2, growth_ended=1, **figures))
    growth = [event for event in fired if event.alert.rule == "queue_growth"]
    # The first evaluation is the base; 60 means of a second are there 60 s later, and 10 s after that it fires.
    assert [(event.kind, event.alert.began_ns, event.t_ns) for event in growth] == [("fired", 60 * SECOND, 70 * SECOND)]


def test_a_live_meter_needs_the_windows() -> None:
    meter = Meter(windows=["1m"])
    alerts = Alerts()
    assert alerts.update(meter.snapshot()) == []
    meter.gauge(1, waiting=1)
    with pytest.raises(ValueError, match=r"rule oom_rate: window must be one that the meter keeps \(1m\), got '5m'"):
        alerts.update(meter.snapshot())
    assert alerts.t_ns is None
    other = Alerts({"oom_rate": {"window": "1m"}, "refill_rate": {"window": "1m"}})
    assert other.update(meter.snapshot()) == []
    assert other.t_ns == 1
    strange = Meter("ttft=1s,tpot=1s", ["1m"])
    strange.gauge(2, waiting=1)
    with pytest.raises(ValueError, match="same SLO sets"):
        other.update(strange.snapshot())


def test_an_alert_that_ends_for_want_of_a_figure() -> None:
    meter, alerts = Meter(windows=["1m", "5m"]), Alerts()
    meter.gauge(0, kv_used=99, kv_total=100)
    for second in range(90):
        alerts.update(meter.snapshot(second * SECOND))
    # A gauge is absent when it was not set for longer than its window.
    told = [(one.severity, one.fired_ns, one.cleared_ns, one.cleared_by) for one in alerts.cleared]
    assert told == [
        ("warning", 31 * SECOND, 61 * SECOND, "absent"),
        ("critical", 11 * SECOND, 61 * SECOND, "absent"),
    ]
    assert alerts.firing == alerts.pending == []
    assert alerts.cleared[0].to_dict()["state"] == "cleared"
