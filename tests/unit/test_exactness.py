"""The report against plain arithmetic on the recordings: counts and sums exact, quantiles within the bound."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from pathlib import Path

import pytest

import tokenpulse

FIXTURES = Path(__file__).parents[1] / "fixtures"
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}

Emissions = list[tuple[int, int]]


def lines(name: str) -> list[dict]:
    with (FIXTURES / name).open() as file:
        return [json.loads(line) for line in file]


def from_requests(name: str) -> list[tuple[int, Emissions, bool]]:
    """(arrival, emissions, succeeded) of each request."""
    rows = lines(name)
    return [
        (
            row["arrival_mono_ns"],
            [(row["arrival_mono_ns"] + dt, n) for dt, n in zip(row["dt_ns"], row["n"], strict=True)],
            row.get("status", "stop") in ("stop", "length"),
        )
        for row in rows
    ]


def from_events(name: str) -> list[tuple[int, Emissions, bool]]:
    arrivals: dict[str, int] = {}
    emissions: dict[str, Emissions] = defaultdict(list)
    succeeded: dict[str, bool] = {}
    for event in lines(name):
        match event["ev"]:
            case "arrive":
                arrivals[event["id"]] = event["t_ns"]
            case "tokens":
                emissions[event["id"]].append((event["t_ns"], event.get("k", 1)))
            case "end":
                succeeded[event["id"]] = event["status"] in ("stop", "length")
    return [(arrival, emissions[name], succeeded[name]) for name, arrival in arrivals.items()]


def exact(requests: list[tuple[int, Emissions, bool]], rule: str) -> dict[str, tuple[list[int], int]]:
    """Each metric's values, and their sum."""
    values: dict[str, list[int]] = defaultdict(list)
    itl_sum = 0
    for arrival, emissions, succeeded in requests:
        if not emissions:
            continue
        first, last, n = emissions[0][0], emissions[-1][0], sum(k for _, k in emissions)
        values["ttft"].append(first - arrival)
        for (before, _), (t, k) in itertools.pairwise(emissions):
            gap = t - before
            itl_sum += gap
            values["itl"] += {"token": [gap // k] * k, "chunk": [gap], "stamp": [gap] + [0] * (k - 1)}[rule]
        if succeeded:
            values["e2e"].append(last - arrival)
            if n >= 2:
                values["tpot"].append((last - first) // (n - 1))
    return {metric: (v, itl_sum if metric == "itl" else sum(v)) for metric, v in values.items()}


@pytest.mark.parametrize("rule", ["token", "chunk", "stamp"])
@pytest.mark.parametrize(("name", "read"), [("demo_requests.jsonl", from_requests), ("demo_events.jsonl", from_events)])
def test_a_recording(name: str, read, rule: str) -> None:
    latency = tokenpulse.report(FIXTURES / name, itl=rule).latency
    expected = exact(read(name), rule)
    assert set(expected) == {"ttft", "itl", "e2e", "tpot"}
    for metric, (values, total) in expected.items():
        told = latency[metric]
        values.sort()
        assert (told["count"], told["sum_ns"]) == (len(values), total), metric
        assert (told["min"], told["max"]) == (values[0] / 1e9, values[-1] / 1e9), metric
        for key, q in QUANTILES.items():
            nearest_rank = values[max(1, math.ceil(q * len(values))) - 1] / 1e9
            assert abs(told[key] - nearest_rank) <= 0.00542 * nearest_rank, (metric, key)
