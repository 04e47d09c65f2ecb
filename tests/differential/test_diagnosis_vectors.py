"""The vectors of diagnosis against the reference and the product."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_diagnosis import SECOND_NS, Both, merged, side_of, sketches

from tokenpulse import Sketch
from tokenpulse.analysis.diagnosis import ROWS, Case
from tokenpulse.analysis.diagnosis.checks import Judged
from tokenpulse.analysis.stretch import Pane, Stretch
from tokenpulse.reference import diagnosis

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "diagnosis.json").read_text())
assert VECTORS["cases"]


def latencies(strata: dict[str, list[tuple[float, int]]]) -> dict[str, Any]:
    """Values in seconds, and how often there are, by prompt length."""
    return {key: sketches([value for value, n in pairs for _ in range(n)]) for key, pairs in strata.items()}


def panes_of(runs: list[list[Any]]) -> tuple[Pane, ...]:
    """Seconds as [how many, gaps, their P99, blocks evicted, seconds of communication]."""
    return tuple(
        Pane(0, SECOND_NS, gaps, p99, 10, 10, None, evicted, round(comm * SECOND_NS))
        for n, gaps, p99, evicted, comm in runs
        for _ in range(n)
    )


def recent_of(runs: list[list[Any]]) -> tuple[Pane, ...]:
    """Seconds as [how many, requests waiting in the first, what each adds, arrived, ended]."""
    return tuple(
        Pane(0, SECOND_NS, 1000, 0.02, arrived, ended, float(start + each * place), 0, 0)
        for n, start, each, arrived, ended in runs
        for place in range(n)
    )


def stretch_of(changed: dict[str, Any]) -> Both:
    """The healthy stretch, but for what is changed."""
    one = VECTORS["healthy"] | changed
    ttft, tpot = latencies(one["ttft"]), latencies(one["tpot"])
    stretch = Stretch(
        seconds=one["seconds"],
        strata={
            key: {"ttft": ttft.get(key, sketches([]))[0], "tpot": tpot.get(key, sketches([]))[0]}
            for key in {**ttft, **tpot}
        },
        pooled={"ttft": merged(ttft), "tpot": merged(tpot), "itl": Sketch()},
        by_status={"stop": one["ended"]},
        added={
            **{f"{name}_ns": round(one[f"{name}_seconds"] * SECOND_NS) for name in ("gpu_active", "dequant")},
            **{name: one[name] for name in ("prefill_tokens", "decode_tokens", "flops", "bytes_moved")},
        },
        panes=panes_of(one["panes"]),
        recent=recent_of(one["recent"]),
        **{
            name: one[name]
            for name in (
                *("arrivals", "output_tokens", "prompt_tokens", "cached_tokens", "waiting", "running"),
                *("batch_max", "kv_used", "kv_total", "evicted", "refilled"),
            )
        },
    )
    return Both(stretch, side_of(stretch, ttft, tpot))


def by_reference(base: Both, current: Both, machine: dict[str, float], limit: float | None) -> dict[str, Any]:
    pooled = current.stretch.pooled["tpot"]
    known = diagnosis.Machine(
        ridge=machine["peak_flops"] / machine["bandwidth_bytes_per_second"] if machine else None,
        tpot_limit=limit,
        tpot_p50=pooled.quantile(0.5) if pooled.count >= 100 else None,
    )
    return {row: predicate(base.side, current.side, known) for row, predicate in diagnosis.ROWS.items()}


def by_product(base: Both, current: Both, machine: dict[str, float], limit: float | None) -> dict[str, Any]:
    case = Case.of(base.stretch, current.stretch, machine, limit)
    outcomes = {row: predicate(case) for row, predicate in ROWS.items()}
    return {row: one if isinstance(one, Judged) else None for row, one in outcomes.items()}


@pytest.mark.parametrize("judge", [by_reference, by_product])
@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_cases(judge: Any, case: dict[str, Any]) -> None:
    base, current = stretch_of(case.get("base", {})), stretch_of(case["current"])
    verdicts = judge(base, current, case.get("machine", VECTORS["machine"]), case.get("tpot_limit"))
    assert [row for row, one in verdicts.items() if one is None] == case.get("not_judged", [])
    held = {row: one.strength for row, one in verdicts.items() if one is not None and one.holds}
    within = case.get("within", 1e-8)
    assert held == {row: pytest.approx(strength, rel=within) for row, strength in case["holds"].items()}
