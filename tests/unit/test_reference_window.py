"""The reference's rings, horizons and timelines against the vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenpulse.reference.sketch import Sketch
from tokenpulse.reference.window import Horizon, Ring, Timeline, check_windows

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "window.json").read_text())


def named(section: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in VECTORS[section]]


@pytest.mark.parametrize("case", named("rings"))
def test_rings(case: dict[str, Any]) -> None:
    ring = Ring(case["width_ns"], Sketch)
    for t in case["events"]:
        pane = ring.pane(t)
        if pane is not None:
            pane.record_ns(1)
    assert ring.late == case["late"]
    for read in [*case["reads"], *case["reads"]]:  # reading is pure: the second time is as the first
        content, width_ns = ring.at(read["now"])
        assert (content.count, width_ns) == (read["count"], read["width_ns"]), read


@pytest.mark.parametrize("width_ns", VECTORS["refused_widths"])
def test_widths_that_are_refused(width_ns: int) -> None:
    with pytest.raises(ValueError, match="multiple of 60 ns"):
        Ring(width_ns, Sketch)


def test_sets_of_windows() -> None:
    for case in VECTORS["window_sets"]:
        if case["good"]:
            check_windows(case["widths_ns"])
        else:
            with pytest.raises(ValueError, match="must"):
                check_windows(case["widths_ns"])


@pytest.mark.parametrize("case", named("horizons"))
def test_horizons(case: dict[str, Any]) -> None:
    horizon, admitted = Horizon(), []
    for t in case["times"]:
        admitted.append(horizon.admits(t))
        if admitted[-1]:
            horizon.accept(t)
    assert (admitted, horizon.newest_ns) == (case["admitted"], case["newest_ns"])


def test_a_refused_event_does_not_move_the_newest_time() -> None:
    horizon = Horizon()
    assert horizon.admits(5)
    assert horizon.admits(50)  # and then refused for another reason
    assert horizon.newest_ns == 5


@pytest.mark.parametrize("case", named("timelines"))
def test_timelines(case: dict[str, Any]) -> None:
    timeline = Timeline(case["width_ns"], Sketch)
    for t in case["times"]:
        timeline.bin(t).record_ns(1)
    assert (timeline.asked_ns, timeline.width_ns) == (case["width_ns"], case["final_width_ns"])
    assert [[start, content.count] for start, content in timeline.bins()] == case["bins"]


def test_timelines_merge_at_the_coarser_width() -> None:
    """Whether the times of a run come in one input or in two does not show."""
    fine, coarse, one = (Timeline(1, Sketch) for _ in range(3))
    for timeline, times in ((fine, (7, 8, 9000)), (coarse, (3, 70_000))):
        for t in times:
            timeline.bin(t).record_ns(t)
            one.bin(t).record_ns(t)
    fine.merge(coarse)
    assert fine.width_ns == one.width_ns == 8
    assert fine.bins() == one.bins()
