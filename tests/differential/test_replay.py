"""A log through a meter: the core and the reference hold the same at every moment, and are told of the same moments."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import numpy as np
import pytest
import replays
from agreement import differences
from meters import Core, Reference

from tokenpulse import KVTracker, engine
from tokenpulse.model import TTL_NS
from tokenpulse.reference import replay as oracle
from tokenpulse.reference.kv import KVTracker as ReferenceTracker

LOGS = int(os.environ.get("TOKENPULSE_REPLAYS", "300"))
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


@pytest.mark.parametrize("first", range(0, LOGS, 50))
def test_any_log(first: int) -> None:
    for seed in range(first, min(first + 50, LOGS)):
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
