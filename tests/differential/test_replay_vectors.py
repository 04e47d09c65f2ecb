"""The vectors of logs through a meter, which no engine owns, against the reference and the core."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from meters import ENGINES, Core, Reference, at_path, sketch_figures

from tokenpulse import KVTracker, engine
from tokenpulse.reference.kv import KVTracker as ReferenceTracker
from tokenpulse.reference.replay import replay_lines

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "replay.json").read_text())["cases"]
assert CASES


def named(found: Any, expect: Mapping[str, Any]) -> dict[str, Any]:
    return {path: at_path(found, path) for path in expect}


@pytest.mark.parametrize("make", ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_cases(make: Callable[..., Reference], case: dict[str, Any]) -> None:
    is_core = make is Core
    tracker = {"kv": KVTracker() if is_core else ReferenceTracker()} if case["kv"] else {}
    driven = make(**case["settings"], **tracker)
    moments: list[int] = []
    wanted = dict(map(tuple, case["at"]))

    def on_pane(t: int) -> None:
        expect = wanted.pop(len(moments), {})
        assert named(sketch_figures(driven.reading(t)), expect) == expect
        moments.append(t)

    content = "\n".join(case["lines"]).encode()
    read = engine.replay_bytes if is_core else replay_lines
    result = read(driven.meter, "log", content, every_ns=case["every_ns"], by=case["by"], on_pane=on_pane)
    assert moments == case["moments"]
    assert wanted == {}
    assert named(result, case["result"]) == case["result"]
    assert named(sketch_figures(driven.reading()), case["expect"]) == case["expect"]
