"""How often memory ran out: `count` lines in a log, by core and reference, with a cut and over several inputs."""

from __future__ import annotations

import json
import random

import pytest

from tokenpulse import engine, reference

ODD = [
    *({"name": "oom_event", "n": n} for n in (0, 3, -1, 2**40, 2**40 + 1, 1.5, True, "2", None)),
    *({"name": name, "n": 1} for name in ("semantic_hit", "other", 5, None, ["oom_event"])),
    {"name": "oom_event"},
    {"n": 2},
    {"name": "oom_event", "n": 2, "id": "x", "labels": {"a": "b"}},
]


def lines(seed: int) -> bytes:
    """Requests, and among them counts of every kind, some of them far ahead or of no time."""
    rng = random.Random(seed)
    text = []
    for number in range(60):
        t = number * 1000 + rng.randrange(500)
        kind = rng.random()
        if kind < 0.3:
            text.append({"t_ns": t, "id": str(number), "ev": "arrive"})
            text.append({"t_ns": t, "id": str(number), "ev": "end", "status": rng.choice(["stop", "oom"])})
        elif kind < 0.6:
            text.append({"t_ns": t, "ev": "count", "name": "oom_event", "n": rng.randrange(5)})
        elif kind < 0.95:
            text.append({"t_ns": t, "ev": "count", **rng.choice(ODD)})
        else:
            text.append({"t_ns": rng.choice([10**18, None, -1]), "ev": "count", "name": "oom_event"})
    return b"".join(json.dumps(line).encode() + b"\n" for line in text)


@pytest.mark.parametrize("seed", range(30))
def test_core_and_reference_count_the_same(seed: int) -> None:
    inputs = [("a", lines(seed)), ("b", lines(seed + 1000))]
    for given in (inputs[:1], inputs):
        for cut in ({}, {"from_ns": 10_000, "to_ns": 30_000}, {"to_ns": 1}):
            core = engine.reduce_bytes(given, **cut)
            other = reference.reduce_lines(given, **cut)
            assert core["oom_events"] == other["oom_events"]
            assert core["newest_ns"] == other["newest_ns"]
            assert core["rejected"] == other["rejected"]


def test_counts_worked_out_by_hand() -> None:
    def counted(*said: dict[str, object], **cut: int) -> object:
        text = b"".join(
            json.dumps({"t_ns": 10 * t, "ev": "count", **one}).encode() + b"\n" for t, one in enumerate(said)
        )
        found = engine.reduce_bytes([("a", text)], **cut)
        assert found["oom_events"] == reference.reduce_lines([("a", text)], **cut)["oom_events"]
        assert found["inputs"][0]["skipped"] == {}
        return found["oom_events"]

    once, thrice, hit = {"name": "oom_event"}, {"name": "oom_event", "n": 3}, {"name": "semantic_hit"}
    assert counted(once, thrice, hit) == 4
    assert counted(hit) is None
    assert counted({"name": "oom_event", "n": -1}) is None
    assert counted(once, thrice, once, from_ns=5, to_ns=15) == 3
    assert counted(once, from_ns=1) == 0
