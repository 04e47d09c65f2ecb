"""A log through a meter: the core and the reference hold the same at every moment, and are told of the same moments."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
import replays
from agreement import FORMAT_ERRORS, comparable, differences
from meters import Core, Reference
from recordings import FIXTURES, RECORDED

from tokenpulse import KVTracker, engine
from tokenpulse.model import STATUSES, TTL_NS
from tokenpulse.reference import replay as oracle
from tokenpulse.reference.kv import KVTracker as ReferenceTracker

LOGS = int(os.environ.get("TOKENPULSE_REPLAYS", "100"))
"""How many logs are made; each from its own number, so that a failure can be repeated."""


def both(rng: Random) -> tuple[Core, Reference]:
    """A meter of either engine, with the same settings."""
    settings: dict[str, Any] = {
        "slos": rng.choice(((), replays.SLOS)),
        "windows_ns": rng.choice(((), (60 * 10**9,), (15 * 10**9, 300 * 10**9))),
        "itl": rng.choice(("token", "token", "chunk", "stamp")),
        "max_requests": rng.choice((2, 3, 100)),
        "max_classes": rng.choice((2, 5, 100)),
        "ttl_ns": rng.choice((TTL_NS, TTL_NS, 10**6)),
        "burn": rng.random() < 0.3,
    }
    if rng.random() < 0.7:
        return Core(**settings, kv=KVTracker()), Reference(**settings, kv=ReferenceTracker())
    return Core(**settings), Reference(**settings)


def asked_of(rng: Random) -> dict[str, Any]:
    by = rng.choice(([], ["prompt_length"], ["tenant", "prompt_length"], ["tier", "tier"]))
    return {"every_ns": rng.choice((10**9, 10**9, 7 * 10**9, 3600 * 10**9)), "by": by}


@pytest.mark.parametrize("first", range(0, LOGS, 25))
def test_any_log(first: int) -> None:
    for seed in range(first, min(first + 25, LOGS)):
        content = replays.log_of(Random(seed))
        ways: list[dict[str, Any]] = [
            {"threads": 1},
            {"threads": 1, "plain": True},
            {"threads": 2, "chunk": Random(seed).choice((3, 31, 100, 300))},
        ]
        wanted = None
        for way in ways:
            rng = Random(seed)
            asked = asked_of(rng)
            core, reference = both(rng)
            if wanted is None:
                wanted = replays.by_reference(reference, content, asked)
            found = replays.by_core(core, content, asked, way)
            assert differences(found, wanted) == [], f"log {seed}, {way}, {asked}"


@pytest.mark.parametrize("first", range(0, LOGS, 50))
def test_the_rows_of_any_log_as_columns(first: int) -> None:
    for seed in range(first, min(first + 50, LOGS)):
        rng = Random(seed)
        content = replays.log_of(rng)
        try:
            rows = engine.read_rows_bytes([("log", content)])
        except FORMAT_ERRORS:
            continue
        if rng.random() < 0.3:  # chunks of unknown sizes
            rows["output_tokens"] = np.array([rng.choice((0, 1, 5, 99)) for _ in rows["arrive_ns"]], np.int64)
        if rng.random() < 0.3 and len(rows["arrive_ns"]):
            rows["arrive_ns"][rng.randrange(len(rows["arrive_ns"]))] = rng.choice((-1, -(2**63)))
        asked = asked_of(rng)
        outcomes = []
        for driven, replay in zip(both(rng), (engine.replay_columns, oracle.replay_columns), strict=True):
            seen = replays.Seen(driven)
            outcomes.append(seen.outcome(replay(driven.meter, rows, name="rows", format="f", **asked, on_pane=seen)))
        assert differences(*outcomes) == [], f"log {seed}, {asked}"


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs(name: str) -> None:
    """A recorded run, told of five times a second."""
    driven = Core(slos=replays.SLOS, kv=KVTracker()), Reference(slos=replays.SLOS, kv=ReferenceTracker())
    content = gzip.decompress((FIXTURES / name).read_bytes())
    asked = {"every_ns": 200 * 10**6, "by": ["tenant", "prompt_length"]}
    found = replays.by_core(driven[0], content, asked, {})
    assert len(found[1]) > 40
    assert differences(found, replays.by_reference(driven[1], content, asked)) == []


@pytest.mark.parametrize("name", RECORDED)
def test_a_run_is_the_same_as_events_as_requests_and_as_columns(name: str) -> None:
    path = str(FIXTURES / name)
    rows = engine.read_rows([path])
    lines = [line for line in request_lines(rows) if line["status"] is not None]
    assert len(lines) > 180
    assert len(lines) == len(rows["ids"]), "all have ended"
    Random(1).shuffle(lines)
    content = "\n".join(map(json.dumps, lines)).encode()
    by = ["tenant"]
    readings = []
    for put in (
        lambda meter: engine.replay(meter, path, by=by, on_pane=str),
        lambda meter: engine.replay_bytes(meter, "lines", content, by=by, on_pane=str),
        lambda meter: engine.replay_columns(meter, rows, by=by, on_pane=str),
    ):
        driven = Core(slos=replays.SLOS)
        put(driven.meter)
        reading = comparable(driven.reading())
        classes = sorted(reading["classes"], key=lambda each: each["key"].get("tenant", ""))
        readings.append({"all": reading["all"]["total"], "rejected": reading["rejected"], "classes": classes})
    assert readings[0]["all"]["by_status"]["length"] > 100
    assert differences(readings[1], readings[0]) == []
    assert differences(readings[2], readings[0]) == []


def request_lines(rows: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Exact rows as request lines."""
    codes, tenants = rows["labels"]["tenant"]
    for at, name in enumerate(rows["ids"]):
        status = int(rows["status"][at])
        line: dict[str, Any] = {"id": name, "status": STATUSES[status] if status < 7 else None}
        line["labels"] = {"tenant": tenants[codes[at]]} if codes[at] >= 0 else {}
        for field in ("arrive_ns", "schedule_ns", "prefill_ns", "end_ns", "prompt_tokens"):
            if rows[field] is not None and rows[field][at] >= 0:
                line[field] = int(rows[field][at])
        for field, offsets in (("token_ns", "token"), ("preempt_ns", "preempt"), ("resume_ns", "resume")):
            begin, end = rows[f"{offsets}_offsets"][at : at + 2]
            line[field] = rows[field][begin:end].tolist()
        yield line
