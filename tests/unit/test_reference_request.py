"""The reference's state machine, verdicts and strata by themselves: pure functions of what they are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenpulse.reference.request import Event, arrive, finish, split_gap, step
from tokenpulse.reference.slo import fluidity
from tokenpulse.reference.strata import OTHER, Interner, check_keys, length_bin

VECTORS = Path(__file__).parents[1] / "vectors"


def cases(name: str, section: str) -> list[Any]:
    found: list[Any] = json.loads((VECTORS / f"{name}.json").read_text())[section]
    assert found
    return found


def test_a_refused_event_changes_nothing() -> None:
    before = step(arrive(10), Event("schedule", 20), "token").request
    for event, reason in (
        (Event("tokens", 19, k=5), "negative"),
        (Event("schedule", 30), "duplicate"),
        (Event("resume", 30), "duplicate"),
    ):
        after = step(before, event, "token")
        assert (after.request, after.refused, after.observed) == (before, reason, ())


def test_a_step_leaves_the_state_it_came_from() -> None:
    start = arrive(0)
    first = step(start, Event("tokens", 5), "token").request
    left, right = (step(first, Event("tokens", t), "token").request for t in (7, 9))
    assert start == arrive(0)
    assert finish(first, 20, "stop").gaps == ((5, 1),)
    assert finish(left, 20, "stop").gaps == ((5, 1), (2, 1))
    assert finish(right, 20, "stop").gaps == ((5, 1), (4, 1))


@pytest.mark.parametrize("rule", ["token", "chunk", "stamp"])
@pytest.mark.parametrize(("gap", "k"), [(0, 1), (10, 1), (10, 3), (2, 5), (7, 7)])
def test_a_gap_is_neither_lost_nor_doubled(rule: str, gap: int, k: int) -> None:
    observed = split_gap(gap, k, rule)
    assert sum(o.total_ns for o in observed) == gap
    assert sum(o.times for o in observed) == (1 if rule == "chunk" else k)


def test_e2e_is_ttft_and_the_gaps() -> None:
    """E2E = TTFT + (N - 1) * TPOT, exactly, before the division."""
    request, gaps = arrive(3), (20, 7, 0, 11)
    for t in (23, 30, 30, 41):
        request = step(request, Event("tokens", t), "token").request
    ended = finish(request, 50, "stop")
    assert ended.ttft_ns == gaps[0]
    assert ended.e2e_ns == sum(gaps)
    assert ended.tpot_ns == sum(gaps[1:]) // 3


@pytest.mark.parametrize("case", cases("slo", "fluidity"), ids=lambda case: case["name"])
def test_fluidity(case: dict[str, Any]) -> None:
    gaps = [(gap, k) for gap, k in case["gaps"]]
    assert fluidity(gaps, case["ttft_ns"], case["tpot_ns"]) == (case["met"], case["deadlines"])


@pytest.mark.parametrize("case", cases("slo", "fluidity"), ids=lambda case: case["name"])
def test_fluidity_token_by_token(case: dict[str, Any]) -> None:
    """The same, one token at a time, those after an emission's first with no gap."""
    met = total = slack = 0
    deadline = case["ttft_ns"]
    for gap in [gap for first, k in case["gaps"] for gap in (first, *[0] * (k - 1))]:
        if gap <= slack + deadline:
            slack, met, total = slack + deadline - gap, met + 1, total + 1
        else:
            total, slack = total + 1 + (gap - slack - deadline) // deadline, 0
        deadline = case["tpot_ns"]
    assert (met, total) == (case["met"], case["deadlines"])


def test_length_bins() -> None:
    for tokens, text in cases("strata", "bins"):
        assert length_bin(tokens) == text


@pytest.mark.parametrize("case", cases("strata", "interning"), ids=lambda case: case["name"])
def test_interning(case: dict[str, Any]) -> None:
    interner = Interner(case["max_classes"])
    classes = [interner.intern((value,)) for value in case["values"]]
    assert ["other" if index == OTHER else index for index in classes] == case["classes"]
    assert classes.count(OTHER) == case["over"]


def test_keys() -> None:
    check_keys([*"abcdefgh", "prompt_length", "output_length"])
    with pytest.raises(ValueError, match="at most 8"):
        check_keys([*"abcdefghi"])
    with pytest.raises(ValueError, match="differ"):
        check_keys(["a", "a"])
