"""Cost and availability of reports, against the vectors; and what holds of every cost: its parts are the whole."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tokenpulse import report
from tokenpulse.analysis.cost import COST_BY, shared_out

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "cost.json").read_text())
assert VECTORS["runs"]
assert VECTORS["endings"]

SECOND_NS = 1_000_000_000


def written(path: Path, requests: list[dict[str, Any]]) -> Path:
    """A log of requests whose times are in seconds."""
    lines = []
    for number, one in enumerate(requests):
        line = {
            "id": number,
            "arrive_ns": round(one["arrive"] * SECOND_NS),
            "token_ns": [round(t * SECOND_NS) for t in one["tokens"]],
            "prompt_tokens": one["prompt"],
            "status": one["status"],
            "labels": one["labels"],
        }
        line |= {f"{name}_ns": round(one[name] * SECOND_NS) for name in ("schedule", "prefill") if name in one}
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines))
    return path


def about(fraction: str | None) -> Any:
    return None if fraction is None else pytest.approx(float(Fraction(fraction)), rel=1e-12)


@pytest.mark.parametrize("case", VECTORS["runs"], ids=lambda case: case["name"])
def test_runs(tmp_path: Path, case: dict[str, Any]) -> None:
    log = written(tmp_path / "log.jsonl", case["requests"])
    given = {"slo": case["slo"], "gpu_hour": case["gpu_hour"], "gpus": case["gpus"], "by": "scenario"}
    cost = report(log, **given).to_dict()["cost"]
    for figure, expected in case["expect"].items():
        if isinstance(expected, dict):
            assert cost[figure] == {name: about(fraction) for name, fraction in expected.items()}
        else:
            assert cost[figure] == about(expected), figure
    for share in case["shares"]:
        cost = report(log, **given, cost_by=share["by"]).to_dict()["cost"]
        assert cost["by"] == share["by"]
        parts = {part["key"]["scenario"]: part["cost"] for part in cost["parts"]}
        for scenario, fraction in ((name, share[name]) for name in ("chat", "batch")):
            assert parts[scenario] == pytest.approx(float(Fraction(fraction)) * cost["total"], rel=1e-12)
        assert cost["unattributed"]["cost"] == 0
        assert sum(parts.values()) == cost["total"]


@pytest.mark.parametrize("case", VECTORS["endings"], ids=lambda case: case["name"])
def test_endings(tmp_path: Path, case: dict[str, Any]) -> None:
    requests = [
        {
            "labels": {},
            "arrive": 0,
            "tokens": [1, 2] if status in ("stop", "length") else [],
            "prompt": 1,
            "status": status,
        }
        for status, n in case["by_status"].items()
        for _ in range(n)
    ]
    found = report(written(tmp_path / "log.jsonl", requests), slo="all:ttft=2s,tpot=2s,objective=0.9").to_dict()
    for figure in ("availability", "error_rate", "oom_rate"):
        assert found[figure] == about(case[figure]), figure
    budget, (goodput,) = found["error_budget"]["availability"], found["goodput"]
    for figure in ("burn_rate", "budget_left"):
        assert budget[figure] == about(case[figure]), figure
        assert goodput[figure] == about(case["set"][figure]), figure


@pytest.mark.parametrize("seed", range(4))
def test_the_parts_are_the_whole(tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    requests = []
    for _ in range(60):
        arrive = drawn.uniform(0, 50)
        tokens = sorted(arrive + drawn.expovariate(0.3) for _ in range(drawn.randint(0, 9)))
        labels = {"tenant": drawn.choice("abcdefg")} if drawn.random() < 0.9 else {}
        status = drawn.choice(["stop", "length", "error", "abort"])
        requests.append(
            {"labels": labels, "arrive": arrive, "tokens": tokens, "prompt": drawn.randint(0, 999), "status": status}
        )
    log = written(tmp_path / "log.jsonl", requests)
    for by in COST_BY:
        cost = report(
            log, by="tenant", gpu_hour=drawn.uniform(0.1, 9), gpus=drawn.randint(1, 64), cost_by=by
        ).to_dict()["cost"]
        parts = [*(part["cost"] for part in cost["parts"]), cost["unattributed"]["cost"]]
        assert len(parts) > 6
        assert all(part >= 0 for part in parts)
        for _ in range(3):
            drawn.shuffle(parts)
            assert sum(parts) == cost["total"]
        assert sum(part["share"] for part in [*cost["parts"], cost["unattributed"]]) == pytest.approx(1)


def test_parts_are_close_to_exact_shares() -> None:
    drawn = random.Random(9)
    for _ in range(200):
        whole = drawn.choice([drawn.uniform(0, 1), drawn.uniform(0, 1e6), 1e-9, 5e-324 * 4])
        weights = [
            drawn.choice([0, 1, drawn.randrange(10**6), drawn.randrange(10**12)]) for _ in range(drawn.randint(1, 40))
        ]
        parts = shared_out(whole, weights)
        if not any(weights):
            assert parts is None
            continue
        assert parts is not None
        assert math.fsum(parts) == whole == sum(parts.tolist())
        for part, weight in zip(parts.tolist(), weights, strict=True):
            exact = Fraction(whole) * weight / sum(weights)
            assert abs(Fraction(part) - exact) <= 2 * Fraction(math.ulp(whole))
            assert weight or part == 0
