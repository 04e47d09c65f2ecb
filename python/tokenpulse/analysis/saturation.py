"""Whether the client kept up: a load generator that is late measures itself, not the server.

Two signs. *Schedule delay*: how much later than meant each request was sent; what the client itself held back is in no
latency. *Rate*: the rate that was reached against the one that was asked for. Either can convict; without either
nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenpulse import formulas
from tokenpulse.analysis.curve import Floats

DELAY_TO_TTFT = 0.1
"""A client is late when its delay, by the median or by P99, is over this share of TTFT by the same: a tenth is as much
as people compare servers by, and far above what a healthy client needs to send a request."""

RATE_SHORTFALL = 0.05
"""A rate is missed when it is lower by more than this share, or by two standard errors of a Poisson process where that
is more: less than that chance alone does."""

JUDGED = ("not saturated", "client saturated", "not judged")


@dataclass(frozen=True, kw_only=True)
class Client:
    """What is known of the load generator."""

    delays: Floats | None = None
    """s: sent minus meant to be sent, one a request that has a first token; NaN where not known."""
    ttft: Floats | None = None
    """s: the same requests' time to first token."""
    waits_for_room: bool = False
    """Whether the delays hold the time in which it was not allowed to send, for want of room under `concurrency`."""
    requested_rate: float | None = None
    """1/s; inf where all were to be sent at once."""
    concurrency: float | None = None
    """Requests that it let be in flight at once, at most."""


def figures(client: Client, arrivals: int, achieved_rate: float | None, peak: int | None) -> dict[str, Any]:
    """The verdict, what it was judged by, and what it would need.

    `achieved_rate` is that of the arrivals, `peak` the most requests that were in flight at once.
    """
    delay, ttft, requested = _spread(client.delays), _spread(client.ttft), client.requested_rate
    signs: dict[str, bool] = {}
    needs: list[str] = []
    ratios = rate_ratio = None
    # A client that may have no more than so many in flight holds back by design, and its rate is the server's.
    limited = client.concurrency is not None and peak is not None and peak >= client.concurrency
    if delay is None:
        needs.append("the times at which requests were meant to be sent")
    elif ttft is None:
        needs.append("a request with a first token")
    else:
        ratios = {name: formulas.ratio(delay[name], ttft[name]) for name in ("p50", "p99")}
        late = any(delay[name] > DELAY_TO_TTFT * ttft[name] for name in ratios)
        if not (late and limited and client.waits_for_room):
            signs["schedule_delay"] = late
    if requested is None or not requested > 0:
        needs.append("the requested rate (--request-rate)")
    elif math.isinf(requested):
        needs.append("a finite requested rate: these were to be sent at once")
    elif achieved_rate is None:
        needs.append("two requests that did not arrive at the same time")
    else:
        rate_ratio = achieved_rate / requested
        missed = rate_ratio < 1 - max(RATE_SHORTFALL, 2 / math.sqrt(arrivals - 1))
        if not (missed and limited):
            signs["rate"] = missed
    if limited and not signs:
        needs.append(f"fewer requests in flight than its limit of {client.concurrency:g}, which held it back")
    return {
        "verdict": JUDGED[any(signs.values())] if signs else JUDGED[2],
        "judged_by": list(signs),
        "signs": [name for name, convicts in signs.items() if convicts],
        "schedule_delay": delay,
        "delay_to_ttft": ratios,
        "requested_rate": requested if requested is not None and math.isfinite(requested) else None,
        "achieved_rate": achieved_rate,
        "rate_ratio": rate_ratio,
        "needs": needs,
    }


def _spread(seconds: Floats | None) -> dict[str, Any] | None:
    """Count, mean, nearest-rank percentiles and maximum; a request that was sent early was not late."""
    known = np.empty(0) if seconds is None else np.maximum(seconds[~np.isnan(seconds)], 0.0)
    if not len(known):
        return None
    known.sort()
    return {
        "count": len(known),
        "mean": float(known.mean()),
        **{name: nearest_rank(known, q) for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))},
        "max": float(known[-1]),
    }


def nearest_rank(ascending: Floats | Sequence[float], q: float) -> float:
    """The value of nearest rank.

    >>> nearest_rank([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    return float(ascending[max(1, math.ceil(q * len(ascending))) - 1])
