"""`Stretch`: what happened between two moments of a run, from the differences of a meter's running totals.

Counts, gauges' integrals and sketches subtract exactly, so a stretch has what a meter that ran only then would have
had. A figure whose inputs were never reported is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tokenpulse import formulas

Distribution = Any
"""A sketch: it has `count`, `quantile(q)` and `buckets()`, and an earlier state of it can be subtracted."""

LATENCIES = ("ttft", "tpot")
"""What is kept for each stratum."""

UNKNOWN = "unknown"
"""The stratum of requests whose prompt length nobody told."""

_KV = ("evicted", "refilled", "forgotten")


@dataclass(frozen=True, slots=True)
class Pane:
    """About a second of a run."""

    start_ns: int
    end_ns: int
    itl_count: int
    itl_p99: float | None
    """s."""
    arrivals: int
    ended: int
    waiting: float | None
    """Mean."""
    evicted: int | None
    comm_ns: int | None


@dataclass(frozen=True)
class Totals:
    """All that happened from a meter's beginning to one moment."""

    t_ns: int
    arrivals: int
    by_status: Mapping[str, int]
    output_tokens: int
    prompt_tokens: int
    cached_tokens: int
    gauges: Mapping[str, tuple[int, int]]
    """Integral over time, and the nanoseconds that it covers."""
    added: Mapping[str, int]
    kv: Mapping[str, int] | None
    """Blocks evicted, refilled and forgotten; prompt tokens `queried` and `hit`. None if nothing told of blocks."""
    pooled: Mapping[str, Distribution]
    strata: Mapping[str, Mapping[str, Distribution]]

    @classmethod
    def of(cls, reading: Mapping[str, Any]) -> Totals:
        """From `Snapshot.reading()`."""
        whole = reading["all"]["total"]
        return cls(
            t_ns=reading["t_ns"],
            arrivals=whole["attempted"],
            by_status=whole["by_status"],
            output_tokens=whole["output_tokens"],
            prompt_tokens=whole["prompt_tokens"],
            cached_tokens=whole["cached_tokens"],
            gauges={
                name: (one["integral"], one["covered_ns"])
                for name, one in reading["gauges"]["total"].items()
                if one is not None
            },
            added={name: one["sum"] for name, one in reading["added"]["total"].items()},
            kv=_kv(reading["kv"]),
            pooled={name: whole["latency"][name] for name in (*LATENCIES, "itl")},
            strata=strata_of((one["key"], one["total"]["latency"]) for one in reading["classes"]),
        )

    @property
    def ended(self) -> int:
        return sum(self.by_status.values())

    def pane_since(self, earlier: Totals, start_ns: int) -> Pane:
        """What happened since an earlier moment, in few figures."""
        itl = _since(earlier.pooled, self.pooled, "itl")
        comm = self.added.get("comm_ns")
        return Pane(
            start_ns=start_ns,
            end_ns=self.t_ns,
            itl_count=itl.count,
            itl_p99=itl.quantile(0.99) if itl.count else None,
            arrivals=self.arrivals - earlier.arrivals,
            ended=self.ended - earlier.ended,
            waiting=_mean(self, earlier, "waiting"),
            evicted=_more(self, earlier, "evicted"),
            comm_ns=None if comm is None else comm - earlier.added.get("comm_ns", 0),
        )


NOTHING = Totals(0, 0, {}, 0, 0, 0, {}, {}, None, {}, {})
"""Before anything happened."""


@dataclass(frozen=True)
class Stretch:
    """What happened between two moments. Times are in seconds, levels are means over the time that they are known."""

    seconds: float
    strata: Mapping[str, Mapping[str, Distribution]]
    """Sketches of `ttft` and `tpot` by prompt length."""
    pooled: Mapping[str, Distribution]
    """Those of all requests, and `itl`."""
    arrivals: int
    by_status: Mapping[str, int]
    output_tokens: int
    prompt_tokens: int
    cached_tokens: int
    waiting: float | None = None
    running: float | None = None
    kv_used: float | None = None
    kv_total: float | None = None
    batch_max: float | None = None
    added: Mapping[str, int] = field(default_factory=dict)
    """Sums of what the engine reported of its work."""
    evicted: int | None = None
    """Blocks of the KV cache, as the two below: None where nobody told of them."""
    refilled: int | None = None
    forgotten: int | None = None
    queried: int = 0
    """Prompt tokens that the prefix cache was asked for, and those it had."""
    hit: int = 0
    panes: tuple[Pane, ...] | None = None
    """Its seconds; None where only the whole is known."""
    recent: tuple[Pane, ...] | None = None
    """The last minute up to its end, which may reach back before its beginning."""
    from_seconds: float | None = None
    """Where in its run it lies."""
    to_seconds: float | None = None

    @classmethod
    def between(
        cls,
        earlier: Totals,
        later: Totals,
        start_ns: int,
        *,
        panes: tuple[Pane, ...] | None = None,
        recent: tuple[Pane, ...] | None = None,
        run_start_ns: int | None = None,
    ) -> Stretch:
        """From one moment of a meter, at `start_ns`, to a later one; `NOTHING` is the one at which it began."""
        return cls(
            seconds=(later.t_ns - start_ns) / 1e9,
            strata={
                key: {name: _since(earlier.strata.get(key, {}), stratum, name) for name in stratum}
                for key, stratum in later.strata.items()
            },
            pooled={name: _since(earlier.pooled, later.pooled, name) for name in later.pooled},
            arrivals=later.arrivals - earlier.arrivals,
            by_status={status: n - earlier.by_status.get(status, 0) for status, n in later.by_status.items()},
            output_tokens=later.output_tokens - earlier.output_tokens,
            prompt_tokens=later.prompt_tokens - earlier.prompt_tokens,
            cached_tokens=later.cached_tokens - earlier.cached_tokens,
            waiting=_mean(later, earlier, "waiting"),
            running=_mean(later, earlier, "running"),
            kv_used=_mean(later, earlier, "kv_used"),
            kv_total=_mean(later, earlier, "kv_total"),
            batch_max=_mean(later, earlier, "batch_max"),
            added={name: n - earlier.added.get(name, 0) for name, n in later.added.items()},
            evicted=_more(later, earlier, "evicted"),
            refilled=_more(later, earlier, "refilled"),
            forgotten=_more(later, earlier, "forgotten"),
            queried=_more(later, earlier, "queried") or 0,
            hit=_more(later, earlier, "hit") or 0,
            panes=panes,
            recent=recent,
            from_seconds=None if run_start_ns is None else (start_ns - run_start_ns) / 1e9,
            to_seconds=None if run_start_ns is None else (later.t_ns - run_start_ns) / 1e9,
        )

    @property
    def ended(self) -> int:
        """Requests that ended, however."""
        return sum(self.by_status.values())

    @cached_property
    def batch_utilization(self) -> float | None:
        """Mean running requests over the mean largest batch."""
        return _over(self.running, self.batch_max)

    @cached_property
    def kv_utilization(self) -> float | None:
        """Mean blocks in use over mean blocks there are."""
        return _over(self.kv_used, self.kv_total)

    @cached_property
    def gpu_utilization(self) -> float | None:
        """Time spent computing over time."""
        return self._time_share("gpu_active_ns")

    @cached_property
    def dequant_share(self) -> float | None:
        """Time spent on dequantisation over time."""
        return self._time_share("dequant_ns")

    def _time_share(self, name: str) -> float | None:
        return _over(self.added[name] / 1e9, self.seconds) if name in self.added else None

    @cached_property
    def decode_share(self) -> float | None:
        """Decode's share of the tokens computed."""
        if not {"prefill_tokens", "decode_tokens"} <= self.added.keys():
            return None
        decode = self.added["decode_tokens"]
        return formulas.ratio(decode, self.added["prefill_tokens"] + decode)

    @cached_property
    def arithmetic_intensity(self) -> float | None:
        """FLOPs per byte moved."""
        return _over(self.added.get("flops"), self.added.get("bytes_moved"))

    @cached_property
    def refill_rate(self) -> float | None:
        """The low end of the share of evicted blocks that had to be computed again; 0 where none was evicted."""
        if self.evicted is None or self.refilled is None:
            return None
        return formulas.ratio(self.refilled, self.evicted) or 0.0

    @cached_property
    def prefix_hit_rate(self) -> float | None:
        """Prompt tokens that the prefix cache had over those it was asked for; without look-ups, of arrivals.

        None where nobody told of a hit: an engine that says nothing of its prefix cache has no rate of 0.
        """
        if self.queried:
            return formulas.ratio(self.hit, self.queried)
        return formulas.ratio(self.cached_tokens, self.prompt_tokens) if self.cached_tokens else None

    @cached_property
    def tokens_per_second(self) -> float | None:
        """Output tokens over time."""
        return _over(self.output_tokens, self.seconds)

    @cached_property
    def arrivals_per_end(self) -> float | None:
        """Arrivals over ends: the load on what there is, where the queue grows."""
        return formulas.ratio(self.arrivals, self.ended)


def strata_of(
    classes: Iterable[tuple[Mapping[str, str], Mapping[str, Distribution]]],
) -> dict[str, dict[str, Distribution]]:
    """The latencies of each stratum, from classes' labels and sketches: those of the same prompt length are one."""
    strata: dict[str, dict[str, Distribution]] = {}
    for key, latency in classes:
        stratum = strata.setdefault(key.get("prompt_length") or UNKNOWN, {})
        for name in LATENCIES:
            stratum[name] = stratum[name] + latency[name] if name in stratum else latency[name]
    return strata


def _over(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None else formulas.ratio(part, whole)


def _since(earlier: Mapping[str, Distribution], later: Mapping[str, Distribution], name: str) -> Distribution:
    return later[name] - earlier[name] if name in earlier else later[name]


def _more(later: Totals, earlier: Totals, name: str) -> int | None:
    """What the KV cache did in between; None where nobody told of it."""
    return None if later.kv is None else later.kv[name] - (earlier.kv or {}).get(name, 0)


def _mean(later: Totals, earlier: Totals, name: str) -> float | None:
    """A gauge's mean over the time in between in which it was set."""
    if name not in later.gauges:
        return None
    integral, covered = later.gauges[name]
    before = earlier.gauges.get(name, (0, 0))
    return formulas.ratio(integral - before[0], covered - before[1])


def _kv(reading: Mapping[str, Any] | None) -> dict[str, int] | None:
    """What a tracker counted; None where it was told of nothing."""
    if reading is None:
        return None
    total = reading["total"]
    lookups = total["lookups"]
    if not any((total["stored"], total["evicted"], total["refilled"], lookups["n"])):
        return None
    return {name: total[name] for name in _KV} | {"queried": lookups["queried"], "hit": lookups["hit"]}
