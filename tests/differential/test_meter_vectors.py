"""The vectors of the meter, which no engine owns, against the reference and the core."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agreement import differences
from meters import ENGINES, Core, Reference, at_path, comparable, sketch_figures

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "meter.json").read_text())["cases"]
assert CASES


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_cases(engine: Callable[..., Reference], case: dict[str, Any]) -> None:
    driven = engine(**case["settings"])
    driven.drive(case["calls"])
    for snapshot in [*case["snapshots"], *case["snapshots"]]:  # reading is pure: the second time is as the first
        found = sketch_figures(driven.reading(snapshot["t"]))
        assert {path: at_path(found, path) for path in snapshot["expect"]} == snapshot["expect"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_the_cases_do_not_name(case: dict[str, Any]) -> None:
    engines = Core(**case["settings"]), Reference(**case["settings"])
    for engine in engines:
        engine.drive(case["calls"])
    for snapshot in case["snapshots"]:
        core, oracle = (comparable(engine.reading(snapshot["t"])) for engine in engines)
        assert differences(core, oracle) == []
