"""Inputs that the fuzzing began with, and those that once failed: every way of reading against the reference."""

from __future__ import annotations

from pathlib import Path

import pytest
from agreement import differences, outcome

from tokenpulse import _core, reference
from tokenpulse.model import TTL_NS

FUZZ = Path(__file__).parents[1] / "fuzz"
KEPT = sorted(path for kind in ("seeds", "regressions") for path in (FUZZ / kind / "reader").iterdir())
WAYS = ({"plain": True}, {}, {"chunk": 40}, {"threads": 2, "chunk": 100})


def test_there_are_both_kinds() -> None:
    assert {path.parts[-3] for path in KEPT} == {"seeds", "regressions"}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_kept_input(path: Path, way: dict[str, int]) -> None:
    named = [("log", path.read_bytes())]
    expected = outcome(reference.reduce_lines, named, (), "token", ["tenant"], 1000, TTL_NS)
    found = outcome(_core.reduce_bytes, named, [], "token", ["tenant"], 1000, TTL_NS, **{"threads": 1, **way})
    assert differences(found, expected) == []
