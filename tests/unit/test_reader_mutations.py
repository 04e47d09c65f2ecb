"""Whatever stands in a file, a reader skips and counts it, or says that the file cannot be read: it never breaks.

Each recorded file is taken apart, values are put in places where they do not belong, and the result is read and given
to the core.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import numpy as np
import pytest
from tool_files import TOOLS, content

from tokenpulse import readers
from tokenpulse.engine import ColumnReducer, FormatError
from tokenpulse.records import Records

ROWS = 6
"""Rows of a file that are kept: what breaks a reader breaks it in a few."""
ROUNDS = 60
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf"), 2**63, 2**64, 10**400,
    -(2**63) - 1, "", "7", "x", "inf", "1e3", "\ud83d", "\x00", [], {}, [None], [[]], [1, "x"], {"value": None},
)  # fmt: skip


def shortened(value: Any) -> Any:
    """The same document with short arrays."""
    if isinstance(value, list):
        return [shortened(one) for one in value[:ROWS]]
    return {key: shortened(one) for key, one in value.items()} if isinstance(value, dict) else value


def documents(name: str) -> list[Any]:
    text = content(name)
    values = text.splitlines()[:ROWS] if ".jsonl" in name else [text]
    return [shortened(json.loads(one)) for one in values]


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a document."""
    found = [at] if at else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        found += places(one, (*at, key))
    return found


def changed(value: Any, chance: random.Random) -> None:
    """One to three values of a document become others, vanish, or come twice."""
    for _ in range(chance.randint(1, 3)):
        paths = places(value)
        if not paths:
            return
        *way, last = chance.choice(paths)
        inner = value
        for key in way:
            inner = inner[key]
        what = chance.random()
        if what < 0.15:
            del inner[last]
        elif what < 0.25 and isinstance(inner, list):
            inner.append(inner[last])
        else:
            inner[last] = copy.deepcopy(chance.choice(ODD))


@pytest.mark.parametrize("name", sorted(file.name for file in TOOLS.iterdir() if "json" in file.name))
def test_odd_values_never_break_a_reader(name: str) -> None:
    chance = random.Random(name)
    whole = documents(name)
    form = readers.detect(readers.head(content(name)))
    read = 0
    for _ in range(ROUNDS):
        mutant = json.loads(json.dumps(whole))
        changed(mutant, chance)
        text = "\n".join(json.dumps(one) for one in mutant).encode()
        if chance.random() < 0.1:
            text = text[: chance.randrange(len(text) + 1)]
        for run in runs_of(text, form):
            read += 1
            assert sum(run.skipped.values()) == 0 or run.notices
            if isinstance(run, Records):
                assert_whole(run)
    assert read > ROUNDS / 4


def runs_of(text: bytes, form: str | None) -> list[Any]:
    """What is in a file; nothing where the reader says why it cannot be read."""
    try:
        return list(readers.read(text, name="mutant", format=form))
    except FormatError as error:
        message = str(error)
    assert message.startswith("mutant: ")
    return []


def assert_whole(run: Records) -> None:
    """Every column has as many rows as there are, and the core takes them."""
    n = len(run)
    for name in ("ttft", "e2e", "latency", "prompt_tokens", "output_tokens", "arrive_ns", "start", "ids", "errors"):
        column = getattr(run, name)
        assert column is None or len(column) == n, name
    for rows in (run.gaps, run.emissions, run.chunk_tokens, *run.own_ragged.values()):
        assert rows is None or (len(rows) == n and rows.offsets[-1] == len(rows.values))
    assert all(len(column) == n for column in run.own.values())
    assert not any(np.isinf(column).any() for column in (run.ttft, run.e2e))
    reducer = ColumnReducer()
    reducer.requests("mutant", run.format, run.columns())
    reduction = reducer.finish()
    counted = reduction["inputs"][0]
    assert counted["requests"] + sum(counted["skipped"].values()) + sum(reduction["rejected"].values()) >= int(
        run.counted.sum()
    )
