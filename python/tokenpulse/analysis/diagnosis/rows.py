"""The rows of the diagnosis table as predicates of a baseline and a current stretch.

Each is given both stretches, the latencies compared within strata, and what is known of the machine; it returns what
it found, or what it lacks. The thresholds are those of the definitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev

from tokenpulse.analysis.alerts.growth import DEPTH_BATCHES, GROWTH
from tokenpulse.analysis.alerts.trend import mann_kendall, theil_sen
from tokenpulse.analysis.diagnosis.checks import Checks, Judged, Lacking, rises
from tokenpulse.analysis.diagnosis.contrast import FEWEST, Contrast
from tokenpulse.analysis.stretch import Pane, Stretch

ENOUGH_IN_PANE = 100
"""Inter-token latencies that a pane's P99 needs."""

FEWEST_PANES = 10
"""Panes that the spread of their P99 needs."""

FEWEST_FOR_TREND = 10
"""Panes that a trend needs."""

FULL = 0.8
"""The utilisation from which on a batch or a KV cache is nearly full."""

WAITING = 1.0
"""Requests in the queue, on average, from which on it is one."""

OBSERVATIONS = f"{FEWEST} observations on either side within the same strata"


@dataclass(frozen=True)
class Case:
    """What is held against what."""

    base: Stretch
    current: Stretch
    machine: Mapping[str, float] = field(default_factory=dict)
    tpot_limit: float | None = None
    """s: the tightest TPOT limit of the SLO sets; None where there is none."""
    contrasts: Mapping[str, Contrast | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        base: Stretch,
        current: Stretch,
        machine: Mapping[str, float] | None = None,
        tpot_limit: float | None = None,
    ) -> Case:
        contrasts = {name: Contrast.of(name, base.strata, current.strata) for name in ("ttft", "tpot")}
        return cls(base, current, machine or {}, tpot_limit, contrasts)


Outcome = Judged | Lacking


def _needs(metric: str) -> Lacking:
    return Lacking(f"{metric}: {OBSERVATIONS}")


def tpot_batch(case: Case) -> Outcome:
    """TPOT rose, and the batch or the KV cache is nearly full, and fuller than before."""
    tpot = case.contrasts["tpot"]
    if tpot is None:
        return _needs("TPOT")
    ways = []
    for name in ("batch_utilization", "kv_utilization"):
        old, new = getattr(case.base, name), getattr(case.current, name)
        if old is not None and new is not None:
            way = Checks()
            way.show(name, old, new)
            way.over(new, FULL)
            way.over(new, 1.1 * old)
            ways.append(way)
    if not ways:
        return Lacking("the gauges running and batch_max, or kv_used and kv_total")
    checks = Checks()
    rises(checks, tpot)
    checks.any_of(ways)
    return checks.judged()


def ttft_queue(case: Case) -> Outcome:
    """TTFT rose, and requests wait."""
    ttft = case.contrasts["ttft"]
    if ttft is None:
        return _needs("TTFT")
    old, new = case.base.waiting, case.current.waiting
    if old is None or new is None:
        return Lacking("the gauge waiting")
    checks = Checks()
    rises(checks, ttft)
    checks.show("queue_depth_mean", old, new)
    checks.over(new, 2 * old)
    checks.over(new, WAITING)
    return checks.judged()


def ttft_decode_share(case: Case) -> Outcome:
    """As many tokens as before, TTFT rose, and decode takes more of the tokens that are computed."""
    ttft = case.contrasts["ttft"]
    if ttft is None:
        return _needs("TTFT")
    old, new = case.base.decode_share, case.current.decode_share
    if old is None or new is None:
        return Lacking("the sums prefill_tokens and decode_tokens")
    before, after = case.base.tokens_per_second, case.current.tokens_per_second
    if before is None or after is None:
        return Lacking("time in either stretch")
    checks = Checks()
    checks.show("output_tokens_per_second", before, after)
    checks.at_least(after, 0.95 * before)
    rises(checks, ttft)
    checks.show("decode_share_of_computed_tokens", old, new)
    checks.over(new, 1.2 * old)
    return checks.judged()


def batch_filled(current: Stretch) -> bool:
    """Whether the batch is full and requests wait for a place in it, by the thresholds of `tpot_batch` and
    `ttft_queue`."""
    utilization, waiting = current.batch_utilization, current.waiting
    return utilization is not None and utilization > FULL and waiting is not None and waiting > WAITING


def refill_thrash(case: Case) -> Outcome:
    """The prefix cache hits as often as before or more, yet TPOT rose: what comes back costs more than it saves."""
    tpot = case.contrasts["tpot"]
    if tpot is None:
        return _needs("TPOT")
    known = (case.base.prefix_hit_rate, case.current.prefix_hit_rate)
    if known == (None, None):
        return Lacking("prefix look-ups, or prompt_tokens and cached_tokens of arrivals")
    hits = (known[0] or 0.0, known[1] or 0.0)
    ways = []
    old, new = case.base.refill_rate, case.current.refill_rate
    if old is not None and new is not None:
        way = Checks()
        way.show("refill_rate_low_end", old, new)
        way.over(new, 0.05)
        way.over(new, 1.5 * old)
        ways.append(way)
    old, new = case.base.dequant_share, case.current.dequant_share
    if old is not None and new is not None:
        way = Checks()
        way.show("dequantisation_share_of_time", old, new)
        way.over(new, 1.5 * old)
        ways.append(way)
    if not ways:
        return Lacking("KV events (stores and evictions), or the sum dequant_ns")
    checks = Checks()
    checks.show("prefix_hit_rate", hits[0], hits[1])
    checks.at_least(hits[1], hits[0])
    rises(checks, tpot)
    checks.any_of(ways)
    return checks.judged()


def p99_swings(case: Case) -> Outcome:
    """The P99 of seconds swings, and the bad seconds have evictions or communication that the others lack."""
    if case.base.panes is None or case.current.panes is None:
        return Lacking("the seconds of either stretch: a log or a Run")
    old, new = _full(case.base.panes), _full(case.current.panes)
    if min(len(old), len(new)) < FEWEST_PANES:
        return Lacking(f"{FEWEST_PANES} seconds with {ENOUGH_IN_PANE} inter-token latencies on either side")
    ways = []
    for name, attribute in (("evicted_blocks", "evicted"), ("communication", "comm_ns")):
        peak, usual = _upper_tenth(new, attribute)
        if peak is None or usual is None:
            continue
        way = Checks()
        unit = 1e-9 if attribute == "comm_ns" else 1.0
        suffix = "_seconds_per_second" if attribute == "comm_ns" else "_per_second"
        was = _upper_tenth(old, attribute)
        way.show(f"{name}{suffix}_in_worst_tenth", _scaled(was[0], unit), peak * unit)
        way.show(f"{name}{suffix}_median", _scaled(was[1], unit), usual * unit)
        way.over(peak, 3 * usual)
        ways.append(way)
    if not ways:
        return Lacking("KV evictions, or the sum comm_ns")
    checks = Checks()
    before, after = _variation(old), _variation(new)
    checks.show("itl_p99_coefficient_of_variation", before, after)
    checks.over(after, 0.3)
    checks.over(after, 2 * before)
    checks.show("itl_p99_seconds_worst_second", max(_p99s(old)), max(_p99s(new)))
    checks.any_of(ways)
    return checks.judged()


def memory_bound(case: Case) -> Outcome:
    """The GPU computes less than half of the time, TPOT is poor, and few operations are done for each byte moved.

    A machine that does more for each byte than before is less bound by memory: its load is what makes TPOT rise.
    """
    lacks = [name for name in ("peak_flops", "bandwidth_bytes_per_second") if not case.machine.get(name)]
    if lacks:
        return Lacking(f"the machine's {' and '.join(lacks)}: of the log's ready line, or given")
    utilization, intensity = case.current.gpu_utilization, case.current.arithmetic_intensity
    if utilization is None or intensity is None:
        return Lacking("the sums gpu_active_ns, flops and bytes_moved")
    ridge = case.machine["peak_flops"] / case.machine["bandwidth_bytes_per_second"]
    ways = []
    tpot = case.contrasts["tpot"]
    if tpot is not None:
        way = Checks()
        rises(way, tpot)
        before = case.base.arithmetic_intensity
        if before is not None:
            way.at_most(intensity, 1.1 * before)
        ways.append(way)
    pooled = case.current.pooled["tpot"]
    if case.tpot_limit is not None and pooled.count >= FEWEST:
        way = Checks()
        earlier = case.base.pooled["tpot"]
        way.show("tpot_p50_of_all_seconds", earlier.quantile(0.5) if earlier.count else None, pooled.quantile(0.5))
        way.show("tpot_limit_seconds", case.tpot_limit, case.tpot_limit)
        way.over(pooled.quantile(0.5), case.tpot_limit)
        ways.append(way)
    if not ways:
        return _needs("TPOT")
    checks = Checks()
    checks.show("gpu_utilization", case.base.gpu_utilization, utilization)
    checks.under(utilization, 0.5)
    checks.show("arithmetic_intensity_flops_per_byte", case.base.arithmetic_intensity, intensity)
    checks.show("roofline_ridge_flops_per_byte", ridge, ridge)
    checks.under(intensity, ridge / 2)
    checks.any_of(ways)
    return checks.judged()


def queue_growth(case: Case) -> Outcome:
    """The queue grows without pause, is long already, and more arrive than end."""
    current = case.current
    if current.recent is None:
        return Lacking("the last minute by seconds: a log or a Run")
    depths = [pane.waiting for pane in current.recent if pane.waiting is not None]
    if not depths:
        return Lacking("the gauge waiting")
    if current.batch_max is None:
        return Lacking("the gauge batch_max")
    if len(depths) < FEWEST_FOR_TREND:
        return Lacking(f"{FEWEST_FOR_TREND} seconds of the queue's depth")
    load = current.arrivals_per_end
    if load is None:
        return Lacking("requests that ended")
    z, slope = mann_kendall(depths), theil_sen(depths)
    assert z is not None
    assert slope is not None
    before = [pane.waiting for pane in case.base.recent or () if pane.waiting is not None]
    arrived, ended = (sum(getattr(pane, name) for pane in current.recent) for name in ("arrivals", "ended"))
    checks = Checks()
    checks.show("queue_depth_mean_of_last_minute", fmean(before) if before else case.base.waiting, fmean(depths))
    checks.over(fmean(depths), DEPTH_BATCHES * current.batch_max)
    checks.show("queue_trend_z", mann_kendall(before) if before else None, z)
    checks.over(z, GROWTH.z)
    rise = slope * (len(depths) - 1)
    checks.show("queue_rise_requests", _rise(before), rise)
    checks.over(rise, GROWTH.least_rise(current.batch_max))
    checks.over(arrived, ended)
    checks.show("arrivals_per_completion", case.base.arrivals_per_end, load)
    checks.over(load, 1.05)
    return checks.judged()


ROWS: dict[str, Callable[[Case], Outcome]] = {
    "tpot-batch": tpot_batch,
    "ttft-queue": ttft_queue,
    "ttft-decode-share": ttft_decode_share,
    "refill-thrash": refill_thrash,
    "p99-swings": p99_swings,
    "memory-bound": memory_bound,
    "queue-growth": queue_growth,
}
"""The table's rows, in its order."""


def _full(panes: Sequence[Pane]) -> list[Pane]:
    return [pane for pane in panes if pane.itl_count >= ENOUGH_IN_PANE and pane.itl_p99 is not None]


def _p99s(panes: Sequence[Pane]) -> list[float]:
    return [pane.itl_p99 or 0.0 for pane in panes]


def _variation(panes: Sequence[Pane]) -> float:
    """The coefficient of variation of the panes' P99."""
    values = _p99s(panes)
    mean = fmean(values)
    return pstdev(values, mean) / mean if mean else 0.0


def _upper_tenth(panes: Sequence[Pane], name: str) -> tuple[float | None, float | None]:
    """A figure's mean per second in the tenth of the panes with the highest P99, and its median over all of them."""
    values = [getattr(pane, name) for pane in panes]
    if any(value is None for value in values):
        return None, None
    rates = [value * 1e9 / (pane.end_ns - pane.start_ns) for pane, value in zip(panes, values, strict=True)]
    worst = sorted(range(len(panes)), key=lambda n: panes[n].itl_p99 or 0.0)[-math.ceil(len(panes) / 10) :]
    return fmean(rates[n] for n in worst), median(rates)


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _rise(depths: Sequence[float]) -> float | None:
    slope = theil_sen(depths)
    return None if slope is None else slope * (len(depths) - 1)
