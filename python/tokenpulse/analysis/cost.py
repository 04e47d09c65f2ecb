"""What serving cost, and whose part it was: GPU-seconds times a price, shared out under a named rule.

The rule is one for reports, meters and the requests of `tokenpulse.convert`. Parts are whole multiples of the whole's
last binary digit, so that they add up to it exactly, in whatever order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpulse import formulas

COST_BY = ("output", "total", "busy")
"""What a cost is shared out by: output tokens, all tokens, or the time for which requests kept the server busy."""

MOST = 1e12
"""A price, and a number of GPUs, are below this."""

Block = Mapping[str, Any]
Figures = dict[str, Any]


@dataclass(frozen=True)
class Price:
    """What a GPU costs for an hour, in any currency; how many served; what the cost is shared out by.

    >>> round(Price(2.50, 8).per_second, 6)
    0.005556
    """

    gpu_hour: float
    gpus: float = 1
    by: str = "output"

    def __post_init__(self) -> None:
        for name, amount in (("gpu_hour", self.gpu_hour), ("gpus", self.gpus)):
            if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not amount > 0:
                raise ValueError(f"{name} must be a number above 0, got {amount!r}")
            if amount >= MOST:
                raise ValueError(f"{name} must be below {MOST:g}, got {amount!r}")
        if self.by not in COST_BY:
            raise ValueError(f"cost_by must be one of {', '.join(COST_BY)}, got {self.by!r}")

    @classmethod
    def of(cls, gpu_hour: float | None, gpus: float | None, by: str | None) -> Price | None:
        """The price that was asked for; None where there is none. ValueError where it lacks the hour's."""
        if gpu_hour is None:
            unpriced(gpus=gpus, cost_by=by)
            return None
        return cls(gpu_hour, 1 if gpus is None else gpus, COST_BY[0] if by is None else by)

    @property
    def per_second(self) -> float:
        """Of all GPUs together."""
        return self.gpu_hour * self.gpus / 3600

    def of_seconds(self, seconds: float) -> float:
        """What all GPUs cost for so long."""
        return seconds * self.gpus * (self.gpu_hour / 3600)


def unpriced(**given: object) -> None:
    """ValueError for a setting that was given although there is no price."""
    for name, setting in given.items():
        if setting is not None:
            raise ValueError(f"{name} needs gpu_hour, the price of a GPU for an hour")


# The rule


def busy_metrics(counts: Mapping[str, int], *, untimed: bool = False) -> tuple[str, ...]:
    """The metrics whose sum is the time for which requests kept the server busy, given how often each was observed.

    From the first schedule to the last token, where that is known of any request; else from the arrival to the last
    token. Where no gap between tokens is known, the time that successful requests took: unless none has a gap (not
    `untimed`: all tokens of a request came at once), and a schedule is known.

    >>> busy_metrics({"prefill": 2, "itl": 9}), busy_metrics({"ttft": 2, "itl": 9}), busy_metrics({"e2e": 2})
    (('scheduling', 'prefill', 'itl'), ('ttft', 'itl'), ('e2e',))
    >>> busy_metrics({"prefill": 2, "e2e": 2}), busy_metrics({"prefill": 2, "e2e": 2}, untimed=True)
    (('scheduling', 'prefill', 'itl'), ('e2e',))
    """
    if counts.get("prefill") and not untimed:
        return ("scheduling", "prefill", "itl")
    return ("ttft", "itl") if counts.get("itl") else ("e2e",)


def weight(block: Block, by: str, metrics: Iterable[str]) -> int:
    """What the cost of some requests is in proportion to: tokens, or nanoseconds of the metrics."""
    if by == "busy":
        return sum(int(block["latency"][metric].sum_ns) for metric in metrics)
    return int(block["output_tokens"]) + (int(block["prompt_tokens"]) if by == "total" else 0)


def shared_out(whole: float, weights: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Parts in proportion to weights of 0 or more, which add up to the whole exactly; None where all are 0.

    Each is within two units in the whole's last place of its exact part, and exactly 0 where its weight is.

    >>> shared_out(1.0, [1, 0, 1, 1]).round(3).tolist(), sum(shared_out(0.1, [1, 1, 1]).tolist())
    ([0.333, 0.0, 0.333, 0.333], 0.1)
    """
    exact = np.asarray(weights) if len(weights) else np.zeros(0, np.int64)
    sums = np.cumsum(exact if exact.dtype.kind == "i" else exact.astype(np.float64)).astype(np.float64)
    if not len(sums) or not sums[-1] > 0:
        return None
    unit = math.ulp(whole)
    # Rounded sums rise with the sums, and the last is the whole: so are their differences parts of it.
    marks = np.rint(whole / unit * (sums / sums[-1]))
    return np.asarray(np.diff(marks, prepend=0.0) * unit, np.float64)


# Figures


@dataclass(frozen=True)
class Counted:
    """What a cost is divided by; None where it is not known."""

    requests: int | None
    output_tokens: int | None
    prompt_tokens: int | None
    good: Mapping[str, int | None]
    """By SLO set."""


@dataclass(frozen=True)
class Group:
    """Requests of a class: who they are, what was counted, and their block."""

    key: Mapping[str, Any]
    other: bool
    counted: Counted
    block: Block


def cost_figures(
    price: Price, seconds: float | None, block: Block, counted: Counted, groups: Sequence[Group] = ()
) -> Figures:
    """The cost of a stretch of wall time, what it comes to per token and request, and each group's part.

    `seconds` is None where the time is not known: then no cost is. What is of no group is `unattributed`.
    """
    total = None if seconds is None else price.of_seconds(seconds)
    counts = {name: sketch.count for name, sketch in block["latency"].items()}
    metrics = busy_metrics(counts, untimed=not counts.get("itl") and block["latency"]["tpot"].sum_ns > 0)
    weights = [weight(one.block, price.by, metrics) for one in groups]
    weights.append(max(0, weight(block, price.by, metrics) - sum(weights)))
    known = total is not None and not (
        (price.by != "busy" and counted.output_tokens is None)
        or (price.by == "total" and counted.prompt_tokens is None)
        or (price.by == "busy" and _unobserved(metrics, block, groups))
    )
    parts = shared_out(total, weights) if known and total is not None else None
    whole = sum(weights)

    def part(place: int) -> Figures:
        mine = None if parts is None else float(parts[place])
        return {
            "weight": weights[place] if price.by != "busy" else weights[place] / 1e9,
            "share": formulas.ratio(weights[place], whole) if known else None,
            "cost": mine,
        }

    return {
        "gpus": price.gpus,
        "gpu_hour": price.gpu_hour,
        "seconds": seconds,
        "gpu_seconds": None if seconds is None else seconds * price.gpus,
        "total": total,
        **_per(total, counted),
        "by": price.by,
        "busy_is": list(metrics) if price.by == "busy" else None,
        "parts": [
            {"key": dict(one.key), "other": one.other, **(mine := part(place)), **_per(mine["cost"], one.counted)}
            for place, one in enumerate(groups)
        ],
        "unattributed": part(len(groups)) if groups else None,
    }


def _unobserved(metrics: Iterable[str], block: Block, groups: Sequence[Group]) -> bool:
    """Whether groups with tokens have none of the metrics that all have: event lines do not tell the length of an
    output before its end, so that what was observed until then is of no group by that length.
    """

    def observed(one: Block) -> bool:
        return any(one["latency"][metric].count for metric in metrics)

    return (
        observed(block)
        and any(one.counted.output_tokens for one in groups)
        and not any(observed(one.block) for one in groups)
    )


def _per(cost: float | None, counted: Counted) -> Figures:
    """A cost over what it was spent on."""

    def over(amount: int | None, times: int = 1) -> float | None:
        return None if cost is None or amount is None else formulas.ratio(times * cost, amount)

    output, prompt = counted.output_tokens, counted.prompt_tokens
    return {
        "per_1k_output_tokens": over(output, 1000),
        "per_1k_total_tokens": over(None if output is None or prompt is None else output + prompt, 1000),
        "per_request": over(counted.requests),
        "per_good_request": {name: over(good) for name, good in counted.good.items()},
    }
