"""`Figures`: what the rules look at, at one moment. Every figure is finite or None: absent, never 0 in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Area(NamedTuple):
    """A gauge over all the time since it was first set."""

    integral: int
    """Of its value over ns."""
    covered_ns: int
    """How long it had a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one moment, of all rules."""

    t_ns: int
    seen_ns: int = 0
    """The time since the first event."""
    kv_used: float | None = None
    """Blocks in use, on average over the window."""
    kv_total: float | None = None
    """Blocks that there are."""
    ttft_p99: Mapping[str, float | None] = field(default_factory=dict)
    """By SLO set: of the requests that it judges, in seconds."""
    ended: int = 0
    """Requests that ended in the window of the OOM rate."""
    oom: int = 0
    """Those of them that ran out of memory."""
    kv_events: bool = False
    """Whether events of a KV cache are known at all."""
    evicted: int = 0
    """Blocks evicted in the window of the refill rate."""
    refilled: int = 0
    """Blocks computed again in it."""
    waiting: float | None = None
    """Requests waiting, on average over the window of the queue's depth."""
    batch_max: float | None = None
    """The largest batch."""
    waiting_area: Area | None = None
    """All of `waiting` so far; None if it was never set."""
    growth_waiting: float | None = None
    """Requests waiting, on average over the window of the queue's growth."""
    growth_arrived: int = 0
    """Requests that arrived in that window."""
    growth_ended: int = 0
    """Requests that ended in it."""
    burn: Mapping[str, Mapping[str, float | None]] | None = None
    """Burn rates by SLO set, and of availability, then by width; None where they are not kept."""
