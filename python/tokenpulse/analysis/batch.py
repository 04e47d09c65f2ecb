"""How many requests can run at once for what the KV cache holds, beside how many did.

The budget is the blocks that there are; what a running request holds of them is measured by gauges where an engine
reports them, and else estimated from the lengths of prompts and outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokenpulse import formulas

GAUGES, LENGTHS, GIVEN, IN_SYSTEM = "gauges", "lengths", "given", "requests in the system"
"""Where a figure is from."""


@dataclass(frozen=True, kw_only=True)
class Gauges:
    """What an engine reported of itself over a run; None where it did not, or nobody could tell."""

    running_mean: float | None = None
    running_max: int | None = None
    batch_limit: int | None = None
    """The most requests that it may run at once."""
    kv_used_mean: float | None = None
    """Blocks that running requests hold."""
    kv_total: float | None = None
    """Blocks that there are."""
    block_tokens: float | None = None
    kv_tokens: float | None = None
    """Tokens that the cache has room for, where that is given and not to be worked out."""
    tokens_held: float | None = None
    """Tokens that a running request holds on average, likewise."""

    def with_given(self, given: Gauges, block_tokens: float | None = None) -> Gauges:
        """The same with what was given, and the tokens of a block that the machine is known to have."""
        size = given.block_tokens or self.block_tokens or block_tokens
        return replace(self, block_tokens=size, kv_tokens=given.kv_tokens, tokens_held=given.tokens_held)


def batch_figures(gauges: Gauges, total: Mapping[str, Any], flow: Mapping[str, Any] | None) -> dict[str, Any]:
    """The largest batch for the KV cache, the engine's own limit, and the mean and largest one observed.

    `total` is a reduction's, `flow` a report's. Without gauges the requests in the system stand for those that ran:
    no fewer, as some of them may have waited.

    >>> gauges = Gauges(running_mean=40, running_max=64, kv_used_mean=1600, kv_total=4800, block_tokens=16)
    >>> found = batch_figures(gauges, {}, None)
    >>> found["tokens_held"], found["kv_allows"]
    (640.0, 120.0)
    """
    held, held_by = _held(gauges, total)
    budget = gauges.kv_tokens
    if budget is None and gauges.kv_total is not None and gauges.block_tokens is not None:
        budget = gauges.kv_total * gauges.block_tokens
    mean, largest, observed_by = gauges.running_mean, gauges.running_max, GAUGES
    concurrency = (flow or {}).get("concurrency")
    if mean is None and concurrency is not None:
        mean, largest, observed_by = concurrency["mean"], concurrency["peak"]["at_least"], IN_SYSTEM
    return {
        "kv_tokens": budget,
        "block_tokens": gauges.block_tokens,
        "tokens_held": held,
        "tokens_held_by": held_by,
        # Budget and what a request holds are both in tokens here, so that a token's bytes cancel.
        "kv_allows": formulas.batch_max(budget, 1, held) if budget and held else None,
        "limit": gauges.batch_limit,
        "mean": mean,
        "largest": largest,
        "observed_by": None if mean is None else observed_by,
    }


def _held(gauges: Gauges, total: Mapping[str, Any]) -> tuple[float | None, str | None]:
    """Tokens that a running request holds on average, and how that is known.

    By lengths: its prompt and half its output, as if it stood in the cache for its whole prompt from the start and
    every token took the same time.
    """
    if gauges.tokens_held is not None:
        return gauges.tokens_held, GIVEN
    if gauges.kv_used_mean and gauges.running_mean and gauges.block_tokens:
        return gauges.kv_used_mean * gauges.block_tokens / gauges.running_mean, GAUGES
    arrived, ended = total.get("attempted", 0), sum(total.get("by_status", {}).values())
    if not ended or not total["prompt_tokens"]:
        return None, None
    return total["prompt_tokens"] / arrived + total["output_tokens"] / ended / 2, LENGTHS
