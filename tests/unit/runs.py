"""Runs made for a purpose: requests as arrivals, first tokens and ends in ms, as rows, as columns and as log lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from tokenpulse import engine
from tokenpulse.analysis.curve import Curve
from tokenpulse.analysis.flow import Rows

MS = 1_000_000

Request = tuple[float, float | None, float | None]
"""Arrival, first token, end; None where there is none."""


def rows(requests: Iterable[Request]) -> Rows:
    """Each request's times in ns."""
    table = [[-1 if t is None else round(t * MS) for t in one] for one in requests]
    arrive, first, end = np.array(table, np.int64).T
    return Rows(arrive_ns=arrive, end_ns=end, first_ns=first)


def lines(requests: Iterable[Request], **fields: Any) -> bytes:
    """The same as event lines, in order of time."""
    events: list[tuple[int, int, dict[str, Any]]] = []
    for number, (arrive, first, end) in enumerate(requests):
        told = [(arrive, {"ev": "arrive", **fields}), (first, {"ev": "tokens"}), (end, {"ev": "end", "status": "stop"})]
        events += [
            (round(t * MS), rank, {"id": str(number), **ev}) for rank, (t, ev) in enumerate(told) if t is not None
        ]
    events.sort(key=lambda one: one[:2])
    return b"".join(json.dumps({"t_ns": t, **ev}).encode() + b"\n" for t, _, ev in events)


def reduction(requests: Iterable[Request]) -> dict[str, Any]:
    """What the core makes of the lines."""
    return engine.reduce_bytes([("run", lines(requests))])


def curves(requests: list[Request]) -> dict[str, Curve | None]:
    """Concurrency by a sweep over rows and from the core's bins."""
    found, made = rows(requests), reduction(requests)
    known = [t for one in requests for t in one if t is not None]
    return {
        "rows": Curve.of_rows(found.arrive_ns, found.end_ns, round(max(known) * MS)),
        "bins": Curve.of_bins(made["flow"], made["last_emission_ns"]),
    }


def trapezoid(height: int, up: float, level: float, down: float) -> list[Request]:
    """One more request at a time until there are `height`; all of them for a while; one less at a time."""
    begins, ends = np.linspace(0, up, height, endpoint=False), np.linspace(up + level, up + level + down, height)
    return [(float(a), float(a) + 1, float(e)) for a, e in zip(begins, ends, strict=True)]


def closed_loop(users: int, seconds: float, each_ms: float) -> list[Request]:
    """Each user sends its next request when the last one ended; all begin at once."""
    found: list[Request] = []
    for user in range(users):
        t = 0.0
        # Users drift apart, so that ends come one by one.
        length = each_ms * (1 + user / (10 * users))
        while t < seconds * 1000:
            found.append((t, t + length / 10, t + length))
            t += length
    return found
