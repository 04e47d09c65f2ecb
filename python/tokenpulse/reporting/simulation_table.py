"""A simulation for people: what it adds up to, and its latencies, as one short table each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Protocol

from rich.console import RenderableType

from tokenpulse.reporting.layout import figures_table, heading, percentile, show, too_few
from tokenpulse.reporting.text import count, ms, number, percent, several

METRICS = ("ttft", "queue", "prefill", "tpot", "itl", "e2e")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class Added(Protocol):
    """What is asked of a simulation's result."""

    def to_dict(self) -> dict[str, Any]: ...


class Distribution(Protocol):
    """What is asked of a sketch."""

    @property
    def count(self) -> int: ...
    @property
    def mean(self) -> float: ...
    @property
    def max(self) -> float: ...
    def quantile(self, q: float, /) -> float: ...


class Metered(Protocol):
    """What is asked of a meter's view."""

    @property
    def latency(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulation's result and what a meter measured of it."""

    result: Added
    metered: Metered

    def to_dict(self) -> dict[str, Any]:
        """The result's figures, and the latencies' in seconds; what was never observed is null."""
        return self.result.to_dict() | {
            "latency": {name: _figures(self.metered.latency[name]) for name in METRICS},
        }


def write(simulated: Simulated, stream: IO[str]) -> None:
    """Print the simulation to a stream; a terminal gets bold headings, everything else plain text."""
    show(_parts(simulated.to_dict()), stream)


def _figures(sketch: Distribution) -> dict[str, Any] | None:
    if not sketch.count:
        return None
    quantiles = {name: sketch.quantile(q) for name, q in QUANTILES.items()}
    return {"count": sketch.count, "mean": sketch.mean, **quantiles, "max": sketch.max}


def _parts(told: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield heading("Simulated")
    table = figures_table("", "", "", head=False)
    table.columns[2].justify, table.columns[2].no_wrap = "left", False
    for name, figure, about in _rows(told):
        table.add_row(name, figure, about)
    yield table
    yield heading("Latency, ms")
    yield from _latencies(told["latency"])


def _rows(told: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    ended = ", ".join(f"{status} {count(n)}" for status, n in told["ended"].items()) or "none"
    yield "requests", count(told["arrived"]), f"in {number(told['seconds'])} s; ended: {ended}"
    yield "in flight", count(told["in_flight"]), "when it stopped"
    yield "output tokens/s", number(told["tokens_per_second"]), several(told["output_tokens"], "token")
    yield "requests/s", number(told["requests_per_second"]), "that ended well"
    yield "batch", number(told["mean_running"]), "requests on average"
    yield "queue", number(told["mean_waiting"]), "requests on average"
    busy = percent(told["busy_seconds"] / told["seconds"])
    yield "steps", count(told["steps"]), f"which took {busy} of the time"
    share = told["hit_tokens"] / told["looked_up_tokens"] if told["looked_up_tokens"] else None
    yield "prefix hit rate", percent(share), f"of {several(told['looked_up_tokens'], 'prompt token')}"
    yield "evicted", count(told["evicted_blocks"]), "blocks of the KV cache"
    yield "preemptions", count(told["preemptions"]), f"and {several(told['oom_events'], 'OOM event')}"
    if told["rejected_drafts"]:
        yield "drafts", percent(told["rejected_drafts"] / told["decode_tokens"]), "of decode tokens were rejected"


def _latencies(latency: Mapping[str, Any]) -> Iterator[RenderableType]:
    table = figures_table("", "count", "mean", "P50", "P90", "P99", "max")
    marked: dict[str, int] = {}
    for name, figures in latency.items():
        if figures is None:
            table.add_row(name, "0", "-", *("- " for _ in QUANTILES), "-")
            continue
        shown = (percentile(figures, quantile, marked) for quantile in QUANTILES)
        table.add_row(name, count(figures["count"]), ms(figures["mean"]), *shown, ms(figures["max"]))
    yield table
    if marked:
        yield too_few(marked)
