"""Each row of the diagnosis table on stretches made by hand: what makes it hold, and what is enough to stop it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hand_made_stretches import MACHINE, SECOND, healthy, latencies, panes, sketch, spread

from tokenpulse.analysis.diagnosis import Finding, judge
from tokenpulse.analysis.diagnosis.contrast import Contrast
from tokenpulse.analysis.diagnosis.explains import EXPLAINS, ordered
from tokenpulse.analysis.diagnosis.rows import ROWS
from tokenpulse.analysis.diagnosis.words import WORDS
from tokenpulse.analysis.stretch import Stretch

ADDED = healthy().added


def found(base: Stretch, current: Stretch, **more: Any) -> dict[str, Finding]:
    findings, not_judged = judge(base, current, machine=MACHINE, **more)
    assert not_judged == []
    return {one.row: one for one in findings}


def added(**figures: int) -> dict[str, int]:
    return {**ADDED, **figures}


def test_nothing_is_found_where_nothing_changed() -> None:
    assert found(healthy(), healthy()) == {}


TOO_LARGE = {"tpot": 0.03, "running": 90.0}
SQUEEZED = {"ttft": 0.2, "waiting": 2.0}
FULL = {"ttft": 0.2, "added": added(decode_tokens=400_000)}
THRASH = {"tpot": 0.03, "refilled": 200}
DEQUANTISES = {"tpot": 0.03, "added": added(dequant_ns=4 * SECOND)}
STORM = {
    "panes": panes(
        itl_p99=[0.1 if second % 10 == 5 else 0.02 for second in range(40)],
        evicted=[5000 if second % 10 == 5 else 3 for second in range(40)],
    )
}
PEAKS = {
    "panes": panes(
        itl_p99=[0.1 if second % 10 == 5 else 0.02 for second in range(40)],
        comm_ns=[400_000_000 if second % 10 == 5 else 10_000_000 for second in range(40)],
    )
}
STARVED = {"tpot": 0.03, "added": added(gpu_active_ns=8 * SECOND, flops=1_000_000_000)}
OVERLOAD = {
    "by_status": {"stop": 300},
    "recent": panes(60, waiting=[200.0 + 5 * second for second in range(60)], ended=[7] * 60),
}


@pytest.mark.parametrize(
    ("row", "current"),
    [
        ("tpot-batch", TOO_LARGE),
        ("tpot-batch", {"tpot": 0.03, "kv_used": 900.0}),
        ("ttft-queue", SQUEEZED),
        ("ttft-decode-share", FULL),
        ("refill-thrash", THRASH),
        ("refill-thrash", DEQUANTISES),
        ("p99-swings", STORM),
        ("p99-swings", PEAKS),
        ("memory-bound", STARVED),
        ("queue-growth", OVERLOAD),
    ],
)
def test_a_row_holds_alone(row: str, current: dict[str, Any]) -> None:
    base = healthy(added=added(flops=3_000_000_000)) if row == "memory-bound" else healthy()
    # Where the baseline's GPU idles as well, a risen TPOT alone would be enough for `memory-bound`.
    held = found(base, healthy(**({"added": added(gpu_active_ns=30 * SECOND)} | current)))
    assert set(held) - ({"memory-bound"} if row == "refill-thrash" else set()) == {row}
    assert held[row].strength >= 1


@pytest.mark.parametrize(
    ("row", "current", "spoiled"),
    [
        ("tpot-batch", TOO_LARGE, {"tpot": 0.0235}),
        ("tpot-batch", TOO_LARGE, {"running": 79.0}),
        ("ttft-queue", SQUEEZED, {"waiting": 0.9}),
        ("ttft-queue", SQUEEZED, {"ttft": 0.115}),
        ("ttft-decode-share", FULL, {"output_tokens": 37_000}),
        ("ttft-decode-share", FULL, {"added": added(decode_tokens=48_000)}),
        ("refill-thrash", THRASH, {"hit": 49_000}),
        ("refill-thrash", THRASH, {"refilled": 49}),
        ("refill-thrash", DEQUANTISES, {"added": added(dequant_ns=1_400_000_000)}),
        ("p99-swings", STORM, {"panes": panes(itl_p99=[0.1 if n % 10 == 5 else 0.02 for n in range(40)])}),
        ("memory-bound", STARVED, {"tpot": 0.021}),
        ("memory-bound", STARVED, {"added": added(gpu_active_ns=21 * SECOND, flops=1_000_000_000)}),
        ("memory-bound", STARVED, {"added": added(gpu_active_ns=8 * SECOND, flops=2_100_000_000)}),
        ("queue-growth", OVERLOAD, {"by_status": {"stop": 390}}),
        ("queue-growth", OVERLOAD, {"recent": panes(60, waiting=[400.0] * 60, ended=[7] * 60)}),
        ("queue-growth", OVERLOAD, {"recent": panes(60, waiting=[100 + n for n in range(60)], ended=[7] * 60)}),
        ("queue-growth", OVERLOAD, {"batch_max": 200.0}),
    ],
)
def test_a_row_does_not_hold_without_one_of_its_figures(
    row: str, current: dict[str, Any], spoiled: dict[str, Any]
) -> None:
    assert row in found(healthy(), healthy(**current))
    assert row not in found(healthy(), healthy(**current | spoiled))


def test_swings_that_the_baseline_had_are_none() -> None:
    assert "p99-swings" not in found(healthy(**STORM), healthy(**STORM))


def test_the_cause_of_swings_is_the_one_that_the_bad_seconds_have() -> None:
    storm, peaks = (found(healthy(), healthy(**one))["p99-swings"] for one in (STORM, PEAKS))
    assert storm.cause.startswith("Eviction storm")
    assert peaks.cause.startswith("Communication")


def test_strength_is_the_smallest_ratio_of_a_figure_to_its_threshold() -> None:
    held = found(healthy(), healthy(**TOO_LARGE | {"added": added(gpu_active_ns=30 * SECOND)}))["tpot-batch"]
    assert held.evidence["batch_utilization"] == (0.2, 0.9)
    assert held.strength == 0.9 / 0.8
    p50, p99 = held.evidence["tpot_p50_seconds"], held.evidence["tpot_p99_seconds"]
    assert p50[0] == pytest.approx(0.02, rel=0.006)
    assert p99[1] == pytest.approx(0.03 * 1.196, rel=0.006)


def test_a_tpot_over_its_limit_is_poor_even_if_it_always_was() -> None:
    idle = healthy(added=added(gpu_active_ns=8 * SECOND, flops=1_000_000_000))
    assert found(idle, idle, tpot_limit=0.021) == {}
    (bound,) = found(idle, idle, tpot_limit=0.019).values()
    assert bound.row == "memory-bound"
    assert bound.evidence["tpot_limit_seconds"] == (0.019, 0.019)
    base, current = bound.evidence["tpot_p50_of_all_seconds"]
    assert base == current == pytest.approx(0.02, rel=0.006)


def test_causes_stand_before_what_they_explain() -> None:
    everything = healthy(**TOO_LARGE | SQUEEZED | OVERLOAD)
    findings, _ = judge(healthy(), everything, machine=MACHINE)
    assert [(one.row, one.explained_by) for one in findings][:3] == [
        ("queue-growth", None),
        ("tpot-batch", "queue-growth"),
        ("ttft-queue", "queue-growth"),
    ]
    assert findings[1].strength <= findings[0].strength


def test_decode_fills_a_machine_only_where_its_batch_is_full() -> None:
    waits = FULL | {"waiting": 2.0}
    full = found(healthy(), healthy(**waits | {"running": 90.0}))
    assert {row: one.explained_by for row, one in full.items()} == {
        "ttft-decode-share": None,
        "ttft-queue": "ttft-decode-share",
    }
    findings, _ = judge(healthy(), healthy(**waits), machine=MACHINE)
    assert {one.row: one.explained_by for one in findings} == {"ttft-queue": None, "ttft-decode-share": None}


def test_a_stronger_finding_stands_first_unless_it_is_explained() -> None:
    assert [row for row, *_ in ordered({"ttft-queue": 1.5, "memory-bound": 2.0})] == ["memory-bound", "ttft-queue"]
    assert set(EXPLAINS) | {row for rows in EXPLAINS.values() for row in rows} == set(ROWS) == set(WORDS)
    before: set[str] = set()
    for row, explained in EXPLAINS.items():
        before.add(row)
        assert not before & set(explained), "a row must stand before those that it explains"


@pytest.mark.parametrize(
    ("absent", "rows"),
    [
        ({"waiting": None}, {"ttft-queue"}),
        ({"running": None, "kv_total": None}, {"tpot-batch"}),
        ({"running": None}, set()),
        ({"batch_max": None}, {"queue-growth"}),
        ({"evicted": None, "refilled": None}, set()),
        ({"added": {}}, {"ttft-decode-share", "memory-bound"}),
        ({"added": {}, "evicted": None, "refilled": None}, {"ttft-decode-share", "memory-bound", "refill-thrash"}),
        ({"panes": None, "recent": None}, {"p99-swings", "queue-growth"}),
        ({"panes": panes(9)}, {"p99-swings"}),
        ({"panes": panes(itl_count=[99] * 40)}, {"p99-swings"}),
        ({"panes": panes(evicted=[None] * 40, comm_ns=[None] * 40)}, {"p99-swings"}),
    ],
)
def test_what_cannot_be_judged_is_named(absent: dict[str, Any], rows: set[str]) -> None:
    findings, not_judged = judge(healthy(), healthy(**absent), machine=MACHINE)
    assert findings == []
    assert {one.row for one in not_judged} == rows
    assert all(one.needs for one in not_judged)


def test_too_few_observations_are_not_judged() -> None:
    few = healthy(strata={"128-512": latencies(0.1, 0.02, n=99)})
    _, not_judged = judge(healthy(), few, machine=MACHINE)
    assert {one.row: one.needs for one in not_judged}["ttft-queue"] == (
        "TTFT: 100 observations on either side within the same strata"
    )
    assert {one.row for one in not_judged} == {
        "tpot-batch",
        "ttft-queue",
        "ttft-decode-share",
        "refill-thrash",
        "memory-bound",
    }
    _, not_judged = judge(healthy(), healthy(), machine={"peak_flops": 1e15})
    assert [one.row for one in not_judged] == ["memory-bound"]
    assert "bandwidth_bytes_per_second" in not_judged[0].needs


def mixed(short: int, long: int, factor: float = 1.0) -> dict[str, dict[str, Any]]:
    """A stratum of fast requests and one of slow ones."""
    return {
        "0-128": {"ttft": sketch(spread(0.05 * factor, short)), "tpot": sketch(spread(0.01 * factor, short))},
        "2048-8192": {"ttft": sketch(spread(1.0 * factor, long)), "tpot": sketch(spread(0.05 * factor, long))},
    }


def test_a_change_of_the_mix_is_no_symptom() -> None:
    same = Contrast.of("ttft", mixed(500, 100), mixed(100, 500))
    assert same is not None
    assert same.ks < 0.02
    assert same.p50[0] == pytest.approx(same.p50[1], rel=0.02)
    assert same.observations == (600, 600)
    slower = Contrast.of("ttft", mixed(500, 100), mixed(100, 500, factor=1.5))
    assert slower is not None
    assert slower.p50[1] / slower.p50[0] == pytest.approx(1.5, rel=0.03)
    assert slower.ks > 0.3
    current = healthy(strata=mixed(100, 500), waiting=2.0)
    assert found(healthy(strata=mixed(500, 100)), current) == {}


def test_strata_of_one_side_alone_are_left_out() -> None:
    base = {"0-128": latencies(0.1, 0.02), "8192-32768": latencies(9.0, 0.2, n=9)}
    compared = Contrast.of("ttft", base, {**base, "512-2048": latencies(0.5, 0.02)})
    assert compared is not None
    assert compared.strata == ("0-128",)
    assert compared.ks == 0
    assert Contrast.of("ttft", {"a": latencies(1, 1)}, {"b": latencies(1, 1)}) is None


def test_standardising_is_that_of_the_weighed_values() -> None:
    """Against values counted one by one: each of a stratum stands as often as the current one has of that stratum."""
    base = {"a": {"ttft": sketch([1.0] * 90 + [2.0] * 10)}, "b": {"ttft": sketch([4.0] * 60 + [8.0] * 40)}}
    current = {"a": {"ttft": sketch([1.0] * 50)}, "b": {"ttft": sketch([4.0] * 150)}}
    compared = Contrast.of("ttft", base, current)
    assert compared is not None
    # Of 200: 45 x 1, 5 x 2, 90 x 4, 60 x 8.
    assert compared.p50 == (pytest.approx(4.0, rel=0.006), pytest.approx(4.0, rel=0.006))
    assert compared.p99[0] == pytest.approx(8.0, rel=0.006)
    assert compared.ks == pytest.approx(60 / 200)


def test_an_empty_stretch_is_not_judged() -> None:
    nothing = replace(healthy(strata={"x": {"ttft": sketch([]), "tpot": sketch([])}}), panes=(), recent=())
    findings, not_judged = judge(nothing, nothing)
    assert findings == []
    assert {one.row for one in not_judged} == set(ROWS)
