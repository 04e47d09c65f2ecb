"""Runs at a rate of which each request's fate is chosen: as request lines, so that a capacity is known beforehand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

MS = 1_000_000
SLO = "ttft=200ms,tpot=30ms"

Fate = Callable[[int], str]
"""Of the request of this number: `good`, `late` (good, by 20 ms of TTFT), the limits it misses joined by `+`, or a
status."""


def every(n: int, fate: str) -> Fate:
    """Each n-th request misses; the others are good."""
    return lambda number: fate if number % n == n - 1 else "good"


def write(path: Path, rate: float, requests: int, fate: Fate = lambda _: "good", **fields: Any) -> Path:
    """Requests in equal gaps of 1 / rate, with 5 tokens each."""
    lines = []
    for number in range(requests):
        arrive, told = round(number * 1e9 / rate), fate(number)
        missed = told.split("+")
        first = arrive + (300 if "ttft" in missed else 180 if told == "late" else 50) * MS
        gap = (40 if "tpot" in missed else 10) * MS
        status = "stop" if told in ("good", "late") or missed[0] in ("ttft", "tpot") else told
        lines.append(
            {
                "id": str(number),
                "arrive_ns": arrive,
                "token_ns": [first + gap * token for token in range(5)],
                "status": status,
                "prompt_tokens": 100,
                **fields,
            }
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
