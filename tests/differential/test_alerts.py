"""Alerts of random series and runs: the product, which goes forward in time, against the reference, which searches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from evaluations import SECOND_NS, Timed, fired, ns, product_of, readings_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_alert_vectors import by_product, by_reference

from tokenpulse import SLO, Meter
from tokenpulse.alerts import Alerts, Levels, Rules
from tokenpulse.analysis.alerts.growth import grows
from tokenpulse.reference import trend
from tokenpulse.reference.alerts import BURNS, FOR_NS, THRESHOLDS, Queue, alerts_of, growing

VALUES = st.sampled_from([None, 0.0, 8.9, 9.0, 9.1, 9.9, 10.0, 10.1, 12.0]) | st.floats(0, 20)
"""Around a threshold of 10 and nine tenths of it."""

EVALUATIONS = st.lists(st.tuples(st.integers(0, 3), VALUES, st.sampled_from([10.0, 10.0, 10.0, 9.0, 0.0, None])))


@settings(max_examples=400, deadline=None)
@given(evaluations=EVALUATIONS, for_ns=st.integers(0, 5))
def test_random_series(evaluations: list[tuple[int, float | None, float | None]], for_ns: int) -> None:
    t, series = 0, []
    for gap, value, threshold in evaluations:
        t += gap
        series.append((t, value, threshold))
    assert by_product(series, for_ns) == by_reference(series, for_ns)


@settings(max_examples=200, deadline=None)
@given(evaluations=EVALUATIONS, for_ns=st.integers(0, 5))
def test_what_holds_of_every_alert(evaluations: list[tuple[int, float | None, float | None]], for_ns: int) -> None:
    series = [(place, value, threshold) for place, (_, value, threshold) in enumerate(evaluations)]
    alerts = by_reference(series, for_ns)
    for alert in alerts:
        assert alert.fired_ns - alert.began_ns == for_ns
        lit = [value for _, value, _ in series[alert.began_ns : alert.cleared_ns]]
        assert alert.peak == max(value for value in lit if value is not None)
        assert series[alert.peak_ns][1] == alert.peak
        for _, value, threshold in series[alert.began_ns : alert.fired_ns + 1]:
            assert value is not None
            assert threshold is not None
            assert value > threshold
    for earlier, later in pairwise(alerts):
        assert earlier.cleared_ns is not None
        assert earlier.cleared_ns <= later.began_ns


def test_the_default_settings_are_those_of_the_reference() -> None:
    rules = Rules()
    for name, thresholds in THRESHOLDS.items():
        rule: Levels = getattr(rules, name)
        assert {severity: getattr(rule, severity) for severity in thresholds} == thresholds
        assert {severity: getattr(rule, severity) for severity in FOR_NS} == {**dict.fromkeys(FOR_NS), **thresholds}
        assert all(rule.level(severity).for_ns == FOR_NS[severity] for severity in thresholds)  # type: ignore[union-attr]
    for name, (severity, threshold, *widths) in BURNS.items():
        burn = getattr(rules, name)
        assert (burn.severity, burn.threshold, burn.long_ns, burn.short_ns) == (severity, threshold, *widths)
        assert burn.level().for_ns == FOR_NS[severity]
    assert rules.queue_growth.for_ns == FOR_NS["critical"]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), batch_max=st.sampled_from([1, 8, 30, 200]), more=st.integers(-1, 2))
def test_growth_without_pause(seed: int, batch_max: int, more: int) -> None:
    drawn = random.Random(seed)
    tilt, spread = drawn.choice([0, 0, 0.2, 0.5, 2]), drawn.choice([0, 1, 10, 40])
    means = [100 + tilt * place + float(drawn.randint(-spread, spread)) for place in range(60)]
    depth = sum(means) / 60
    found = grows(means, batch_max=batch_max, depth=depth, arrived=100 + more, ended=100)
    assert found == growing(Queue(0, means, depth, batch_max, 100 + more, 100)).holds


def test_the_test_alone_would_not_do() -> None:
    """A walk that goes nowhere has a trend by the test in many minutes; by the whole condition in few."""
    drawn = random.Random(1)
    trends = rises = 0
    for _ in range(100):
        level, means = 40.0, []
        for _ in range(60):
            level += drawn.gauss(0, 1) - 0.1 * (level - 40)  # it is drawn back to 40
            means.append(level)
        z = trend.mann_kendall(means)
        trends += z is not None and z > 2.33
        rises += growing(Queue(0, means, sum(means) / 60, 16, 101, 100)).holds
    assert trends > 10
    assert rises == 0


# Whole runs

SLOS = (SLO("all", ttft=1.0, tpot=0.5), SLO("chat", ttft=0.5, tpot=0.5, objective=0.9, where={"scenario": "chat"}))


def random_run(seed: int) -> list[Timed]:
    """Some minutes of an engine that goes from one mood to another; some gauges fall silent, some requests fail."""
    drawn = random.Random(seed)
    calls: list[Timed] = [(0, "gauge", {"batch_max": drawn.choice([4, 10]), "kv_total": 100})]
    waiting = 0
    trouble = False
    for second in range(420):
        if drawn.random() < 0.02:
            trouble = not trouble
        waiting = max(0, waiting + drawn.randint(-2, 3 if trouble else 1))
        if drawn.random() < (0.9 if seed % 2 else 0.999):
            used = drawn.randint(84, 100) if trouble else drawn.randint(60, 84)
            calls.append((ns(second + drawn.random()), "gauge", {"waiting": waiting, "kv_used": used}))
        for place in range(drawn.randint(0, 3)):
            calls += random_request(drawn, second + drawn.random(), f"{second}.{place}", trouble)
        calls.append((ns(second), "store", {"hashes": [second]}))
        calls.append((ns(second), "evict", {"hashes": [second]}))
        if drawn.random() < (0.3 if trouble else 0.02):
            calls.append((ns(second), "store", {"hashes": [drawn.randint(0, second)]}))
    return sorted(calls, key=lambda call: call[0])


def random_request(drawn: random.Random, arrive: float, name: str, trouble: bool) -> list[Timed]:
    scenario = drawn.choice(["chat", "batch"])
    calls: list[Timed] = [(ns(arrive), "arrive", {"name": name, "labels": {"scenario": scenario}})]
    token = arrive + drawn.choice([0.1, 0.3, 0.55, 0.8] if trouble else [0.1, 0.2])
    status = drawn.choice(["stop", "stop", "oom", "error"]) if trouble and drawn.random() < 0.3 else "stop"
    if status == "stop":
        calls.append((ns(token), "step", {"handles": name}))
    if not (trouble and drawn.random() < 0.2):
        calls.append((ns(token + 0.1), "end", {"handles": name, "status": status}))
    return calls


def times_of(seed: int, until: int) -> list[int]:
    """Evaluations each second; of some runs with gaps."""
    drawn = random.Random(seed)
    return [second for second in range(until) if seed % 3 or drawn.random() < 0.7]


def test_random_runs() -> None:
    seen: set[str] = set()
    for seed in range(5):
        run: dict[str, Any] = {"calls": random_run(seed), "seconds": times_of(seed, 420), "slos": SLOS, "kv": True}
        expected = fired(alerts_of(readings_of(True, **run), SLOS))
        assert product_of(**run) == expected
        seen |= {f"{rule}/{severity}" for rule, severity, _ in expected}
    assert {f"{rule}/warning" for rule in THRESHOLDS} <= seen
    assert {"queue_growth/critical", "burn_fast/critical", "kv_utilization/critical"} <= seen


def test_a_time_before_the_last_is_refused() -> None:
    meter, alerts = Meter(windows=["1m", "5m"]), Alerts()
    meter.gauge(5 * SECOND_NS, waiting=1)
    alerts.update(meter.snapshot(5 * SECOND_NS))
    with pytest.raises(ValueError, match="before"):
        alerts.update(meter.snapshot(4 * SECOND_NS))
    alerts.update(meter.snapshot(5 * SECOND_NS))


def test_severities_are_machines_of_their_own() -> None:
    values: Sequence[float] = [95] * 40 + [85] * 40 + [75] * 10 + [70] * 5
    series = [(second * SECOND_NS, float(value), 80.0) for second, value in enumerate(values)]
    critical = [(t_ns, value, 90.0) for t_ns, value, _ in series]
    (warning,), (worse,) = by_product(series, 30 * SECOND_NS), by_product(critical, 10 * SECOND_NS)
    assert (warning.fired_ns, warning.cleared_ns) == (30 * SECOND_NS, 90 * SECOND_NS)
    assert (worse.fired_ns, worse.cleared_ns) == (10 * SECOND_NS, 80 * SECOND_NS)
