"""Whether the client kept up: the verdict by delay and by rate, and when there is none."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tokenpulse.analysis.saturation import Client, figures

TTFT = np.array([0.2] * 90 + [0.4] * 10)


def verdict(
    client: Client, ttft: Any = TTFT, arrivals: int = 1000, rate: float | None = 10.0, peak: int = 5
) -> dict[str, Any]:
    found = figures(replace(client, ttft=ttft), arrivals, rate, peak)
    json.dumps(found, allow_nan=False)
    return found


def delays(*seconds: float) -> Client:
    return Client(delays=np.array(seconds))


def test_without_a_sign_there_is_no_verdict() -> None:
    found = verdict(Client())
    assert (found["verdict"], found["judged_by"]) == ("not judged", [])
    assert len(found["needs"]) == 2
    assert "--request-rate" in found["needs"][1]
    assert found["schedule_delay"] is found["delay_to_ttft"] is found["requested_rate"] is None
    assert found["achieved_rate"] == 10.0


def test_a_client_in_time() -> None:
    found = verdict(delays(*[0.001] * 99, 0.03))
    assert (found["verdict"], found["judged_by"], found["signs"]) == ("not saturated", ["schedule_delay"], [])
    expected = {"count": 100, "mean": pytest.approx(0.00129), "p50": 0.001, "p90": 0.001, "p99": 0.001, "max": 0.03}
    assert found["schedule_delay"] == expected
    assert found["delay_to_ttft"] == {"p50": 0.005, "p99": 0.0025}


def test_a_client_late_by_the_median_or_in_the_tail() -> None:
    for late in ([0.021] * 100, [0.0] * 90 + [0.05] * 10):
        found = verdict(delays(*late))
        assert (found["verdict"], found["signs"]) == ("client saturated", ["schedule_delay"])
    # A tenth of TTFT exactly is not over it.
    assert verdict(delays(*[0.02] * 50))["verdict"] == "not saturated"


def test_sent_early_is_in_time_and_unknown_is_left_out() -> None:
    found = verdict(delays(-1.0, math.nan, 0.0))
    assert found["schedule_delay"]["count"] == 2
    assert found["schedule_delay"]["max"] == 0
    assert verdict(delays(math.nan))["schedule_delay"] is None


def test_a_delay_against_no_ttft() -> None:
    assert verdict(delays(0.1), ttft=None)["verdict"] == "not judged"
    found = verdict(delays(0.1), ttft=np.zeros(3))
    assert (found["verdict"], found["delay_to_ttft"]) == ("client saturated", {"p50": None, "p99": None})
    assert verdict(delays(0.0), ttft=np.zeros(3))["verdict"] == "not saturated"


@pytest.mark.parametrize(
    ("arrivals", "rate", "expected"),
    [
        (100_000, 9.6, "not saturated"),
        (100_000, 9.4, "client saturated"),
        # 100 arrivals at random miss their rate by a fifth in one run of twenty.
        (100, 8.1, "not saturated"),
        (100, 7.9, "client saturated"),
        (100_000, 12.0, "not saturated"),
    ],
)
def test_the_rate(arrivals: int, rate: float, expected: str) -> None:
    found = verdict(Client(requested_rate=10.0), arrivals=arrivals, rate=rate)
    assert (found["verdict"], found["judged_by"]) == (expected, ["rate"])
    assert found["rate_ratio"] == pytest.approx(rate / 10)


def test_either_sign_convicts() -> None:
    client = Client(delays=np.full(100, 0.001), requested_rate=20.0)
    found = verdict(client)
    assert (found["verdict"], found["judged_by"], found["signs"]) == (
        "client saturated",
        ["schedule_delay", "rate"],
        ["rate"],
    )


def test_a_limit_that_was_reached_explains_both_signs() -> None:
    """With at most 5 in flight requests are held back by design, and the rate is what the server makes of it."""
    held = Client(delays=np.full(100, 1.0), waits_for_room=True, requested_rate=20.0, concurrency=5)
    found = verdict(held, peak=5)
    assert found["verdict"] == "not judged"
    assert any("limit of 5" in need for need in found["needs"])
    assert verdict(held, peak=4)["verdict"] == "client saturated"
    # A delay that is not the wait for room convicts all the same, and one that is small acquits.
    assert verdict(replace(held, waits_for_room=False), peak=5)["signs"] == ["schedule_delay"]
    assert verdict(replace(held, delays=np.full(100, 0.001)), peak=5)["verdict"] == "not saturated"


def test_all_at_once_has_no_rate_to_miss() -> None:
    found = verdict(Client(requested_rate=math.inf), rate=None)
    assert (found["verdict"], found["requested_rate"]) == ("not judged", None)
    assert verdict(Client(requested_rate=5.0), arrivals=1, rate=None)["verdict"] == "not judged"
