"""The vectors of alerts against the reference and the product: every beginning, firing, peak and clearing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from evaluations import SECOND_NS, calls_of, episode, fired, in_seconds, product_of, readings_of

from tokenpulse.analysis.alerts.machine import Machine
from tokenpulse.model import SLO
from tokenpulse.reference.alerts import CLEAR_BELOW, Episode, against, alerts_of, episodes

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "alerts.json").read_text()
)
assert VECTORS["thresholds"]
assert VECTORS["meters"]

Series = Sequence[tuple[int, float | None, float | None]]
"""Time in ns, value, threshold."""


def series_of(case: dict[str, Any]) -> Series:
    """Each second's value, or `[time, value]` and a threshold that may move."""
    if "at" in case:
        return [(t * SECOND_NS, value, *(rest or [case["threshold"]])) for t, value, *rest in case["at"]]
    values = case["values"] if "values" in case else [value for n, value in case["runs"] for _ in range(n)]
    return [(t * SECOND_NS, value, case["threshold"]) for t, value in enumerate(values)]


def by_reference(series: Series, for_ns: int) -> list[Episode]:
    return episodes([against(*one) for one in series], for_ns)


def by_product(series: Series, for_ns: int) -> list[Episode]:
    machine = Machine("rule", "warning", None, for_ns=for_ns)
    alerts = []
    for t_ns, value, threshold in series:
        if machine.judge(t_ns, value, threshold, clear_below=CLEAR_BELOW) == "cleared":
            alerts.append(machine.last)
    if machine.state == "firing":
        alerts.append(machine.current)
    return [episode(alert) for alert in alerts if alert is not None]


@pytest.mark.parametrize("judge", [by_reference, by_product])
@pytest.mark.parametrize("case", VECTORS["thresholds"], ids=lambda case: case["name"])
def test_thresholds(judge: Any, case: dict[str, Any]) -> None:
    found = {("rule", "warning", None): judge(series_of(case), case["for"] * SECOND_NS)}
    assert in_seconds(found).get("rule/warning", []) == case["expect"]


def run_of(case: dict[str, Any]) -> dict[str, Any]:
    return {
        "calls": calls_of(case["does"]),
        "seconds": range(1, case["until"] + 1),
        "slos": [SLO(**slo) for slo in case.get("slos", [])],
        "kv": case.get("kv", False),
    }


@pytest.mark.parametrize("case", VECTORS["meters"], ids=lambda case: case["name"])
def test_meters(case: dict[str, Any]) -> None:
    run = run_of(case)
    by_rule = fired(alerts_of(readings_of(True, **run), run["slos"]))
    assert product_of(**run) == by_rule
    found = in_seconds(by_rule)
    assert {key: [[*one[:2], *one[3:]] for one in found[key]] for key in found} == {
        key: [[*one[:2], *one[3:]] for one in case["expect"][key]] for key in case["expect"]
    }
    for key, alerts in case["expect"].items():
        assert [one[2] for one in found[key]] == pytest.approx([one[2] for one in alerts], rel=1e-12)


@pytest.mark.parametrize(
    "case", [one for one in VECTORS["meters"] if one["until"] <= 300][-3:], ids=lambda case: case["name"]
)
def test_readings_of_either_engine_give_the_same_alerts(case: dict[str, Any]) -> None:
    run = run_of(case) | {"seconds": range(1, case["until"] + 1, 5)}
    mine, cores = (alerts_of(readings_of(core, **run), run["slos"]) for core in (False, True))
    assert mine == cores
