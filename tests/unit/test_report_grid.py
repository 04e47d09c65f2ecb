"""Attainment by pairs of limits: edges, and shares against requests judged one by one."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np

import tokenpulse
from tokenpulse import engine
from tokenpulse.reporting import Report
from tokenpulse.reporting.grid import MOST_LIMITS, OVERFLOW, ZERO, attainment_grid, upper_edge

FIXTURES = Path(__file__).parents[1] / "fixtures"
SECOND = 1_000_000_000


def test_edges_are_correctly_rounded() -> None:
    with localcontext() as context:
        context.prec = 60
        for index in range(ZERO, OVERFLOW):
            assert upper_edge(index) == float(Decimal(2) ** (Decimal(index + 1) / 8))


def reduction(rows: list[dict[str, Any]]) -> dict[str, Any]:
    lines = b"".join(json.dumps({"id": str(n), **row}).encode() + b"\n" for n, row in enumerate(rows))
    return engine.reduce_bytes([("rows", lines)])


def row(ttft: float, tpot: float | None = None, **fields: Any) -> dict[str, Any]:
    """A request of three tokens, or of one where it has no TPOT; times in seconds."""
    first = round(ttft * SECOND)
    later = [] if tpot is None else [first + round(tpot * SECOND), first + 2 * round(tpot * SECOND)]
    return {"arrive_ns": 0, "token_ns": [first, *later], **fields}


def test_shares_are_those_of_requests_judged_one_by_one() -> None:
    made = np.random.default_rng(3)
    pairs = [
        (float(ttft), None if alone else float(tpot))
        for ttft, tpot, alone in zip(
            made.lognormal(-1, 1.5, 500), made.lognormal(-4, 1, 500), made.random(500) < 0.1, strict=True
        )
    ]
    failed = [row(0.001, 0.001, status="error")] * 40 + [{"arrive_ns": 0, "status": "reject"}] * 10
    aborted = [row(0.001, 0.001, status="abort")] * 30
    grid = attainment_grid(reduction([row(*pair) for pair in pairs] + failed + aborted))
    assert grid is not None
    assert grid["judged"] == 550
    assert 10 < len(grid["ttft_limits"]) <= MOST_LIMITS
    assert 10 < len(grid["tpot_limits"]) <= MOST_LIMITS
    for ttft_limit, shares in zip(grid["ttft_limits"], grid["share"], strict=True):
        for tpot_limit, share in zip(grid["tpot_limits"], shares, strict=True):
            kept = sum(
                round(ttft * SECOND) <= ttft_limit * SECOND
                and (tpot is None or round(tpot * SECOND) <= tpot_limit * SECOND)
                for ttft, tpot in pairs
            )
            assert share == kept / 550
    # The largest limits hold every request that succeeded.
    assert grid["share"][-1][-1] == 500 / 550


def test_requests_of_one_token_are_judged_by_ttft_alone() -> None:
    grid = attainment_grid(reduction([row(0.1), row(0.4)]))
    assert grid is not None
    assert len(grid["tpot_limits"]) == 1
    assert grid["share"][0] == [0.5]
    assert grid["share"][-1] == [1.0]


def test_what_takes_no_time_or_for_ever() -> None:
    """A TTFT of 0 is under every limit, one above 2^12 s under none."""
    grid = attainment_grid(reduction([row(0.0, 0.0), row(5000.0, 0.5), row(0.5, 5000.0)]))
    assert grid is not None
    assert grid["ttft_limits"][-1] <= 0.5 * 1.1
    assert {share for shares in grid["share"] for share in shares} == {1 / 3}


def test_without_a_first_token_there_is_none() -> None:
    for rows in ([], [{"arrive_ns": 0}], [row(0.1, status="abort")], [{"arrive_ns": 0, "status": "error"}]):
        report = Report.of(reduction(rows))
        assert report.attainment_grid is None
        assert report.absent["attainment_grid"]


def test_a_cut_leaves_out_what_is_outside() -> None:
    path = FIXTURES / "demo_events.jsonl"
    whole, part = tokenpulse.report(path), tokenpulse.report(path, to="1s")
    assert whole.attainment_grid is not None
    assert part.attainment_grid is not None
    judged = part.requests["attempted"] - part.requests["aborted"] - part.requests["in_flight"]
    assert part.attainment_grid["judged"] == judged < whole.attainment_grid["judged"]


def test_the_grid_and_an_slo_say_the_same() -> None:
    """At a limit of the grid, goodput's share differs only by requests that lie on the limit itself."""
    path = FIXTURES / "demo_requests.jsonl"
    grid = tokenpulse.report(path).attainment_grid
    assert grid is not None
    for i, j in ((3, 5), (len(grid["share"]) // 2, len(grid["share"][0]) // 2), (-1, -1)):
        slo = tokenpulse.SLO(ttft=grid["ttft_limits"][i], tpot=grid["tpot_limits"][j])
        assert tokenpulse.report(path, slo=slo).goodput[0]["attainment"] == grid["share"][i][j]
