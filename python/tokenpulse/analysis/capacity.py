"""How much a system can take: runs at several rates, the highest rate that keeps a target, what binds first, what it
costs, and how large a batch the KV cache allows.

Pure functions of reports. A run is placed at the rate at which its requests arrived. Between runs the highest rate is
interpolated as `analysis.crossing` says, beyond them nothing is said. Each run's attainment has a binomial interval, of
as many independent requests as its own come to (see `analysis.dependence`); the intervals of all runs hold together
with the confidence of `CONFIDENCE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tokenpulse import formulas
from tokenpulse.analysis.batch import Gauges, batch_figures
from tokenpulse.analysis.capacity_warnings import warnings
from tokenpulse.analysis.changes import Run
from tokenpulse.analysis.cost import MOST, Price
from tokenpulse.analysis.crossing import AT_LEAST, UNDER, Crossing, Point, crossing
from tokenpulse.analysis.dependence import Dependence
from tokenpulse.analysis.intervals import Spread, normal_quantile, wilson
from tokenpulse.model import METRICS, SLO

SCHEMA = "tokenpulse.capacity/1"

CONFIDENCE = 0.95

TARGETS = (0.9, 0.99)
"""Attainments whose highest rate is looked for."""

RATE = "rate"
"""What differs between the runs, unless it is a setting of the system."""

FAILED = "failed"
"""The cause of a miss that is no limit: a request that failed, was rejected or lost, or had no tokens."""

NEAR_QUANTILE, NEAR = 0.99, 0.7
"""A latency is near its limit when this quantile is at this share of it or above: where alerts begin to warn."""

PER_GOOD, PER_HOUR = "good request", "hour"

Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Placed:
    """One run: its report, and what is known of the system that it ran on."""

    name: str
    """Short, and no other run's."""
    path: str
    run: Run
    gpus: float | None = None
    gauges: Gauges = field(default_factory=Gauges)
    setting: float | str | None = None
    """The value of what was varied, where that is not the rate."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a GPU costs for an hour, and the most that may be spent: on a good request, or in an hour."""

    gpu_hour: float
    limit: float | None = None
    per: str = PER_GOOD
    """What the limit is of."""

    def __post_init__(self) -> None:
        if self.limit is not None and not 0 < self.limit < MOST:
            raise ValueError(f"a cost limit must be above 0, got {self.limit!r}")

    def per_second(self, gpus: float | None) -> float:
        """Of so many GPUs; of one where their number is not known."""
        return Price(self.gpu_hour, 1 if gpus is None else gpus).per_second


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What the runs say together; named as the keys of its JSON."""

    schema: str = SCHEMA
    axis: str
    """`rate`, or the name of the setting that was varied."""
    confidence: float
    price: Figures | None
    runs: list[Figures]
    """In order of their rates, those that have none last; by a setting, in the order given."""
    slos: list[Figures]
    """By SLO set: each run's verdict in the order of `runs`, the highest rates, the best run."""
    warnings: list[str]

    def to_dict(self) -> Figures:
        """The JSON object that `tokenpulse capacity --json` prints."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def capacity_of(
    placed: Sequence[Placed],
    *,
    targets: Sequence[float] = TARGETS,
    budget: Budget | None = None,
    axis: str = RATE,
) -> Capacity:
    """What the runs say together. Raises ValueError where there is none, or no SLO set judged them all."""
    if not placed:
        raise ValueError("capacity needs at least one run")
    for target in targets:
        if not 0 < target < 1:
            raise ValueError(f"a target must be a share between 0 and 1, both excluded, got {target!r}")
    slos = [slo for slo in placed[0].run.slos if all(slo in one.run.slos for one in placed)]
    if not slos:
        raise ValueError("capacity needs an SLO set that judged all runs: give --slo ttft=..,tpot=..")
    ordered = sorted(placed, key=_rate_or_last) if axis == RATE else list(placed)
    rows = [_row(one) for one in ordered]
    level = 1 - (1 - CONFIDENCE) / len(ordered)
    judged = [_judged(slo, ordered, rows, level, targets if axis == RATE else (), budget) for slo in slos]
    return Capacity(
        axis=axis,
        confidence=CONFIDENCE,
        price=None if budget is None else {"gpu_hour": budget.gpu_hour, "limit": budget.limit, "per": budget.per},
        runs=rows,
        slos=judged,
        warnings=list(warnings(ordered, rows, judged, axis == RATE)),
    )


def _rate_or_last(one: Placed) -> float:
    rate = offered(one.run)
    return math.inf if rate is None else rate


def offered(run: Run) -> float | None:
    """Requests a second that arrived; None where their times are not known, or all came before the first had ended:
    then nothing of the run hung on their rate."""
    flow, cut = run.flow, run.reduction.get("cut")
    if flow is None or at_once(run):
        return None
    if cut is None:
        rate: float | None = flow["arrivals"]["rate"]
        return rate
    first, last = run.reduction["flow"]["first_arrival_ns"], run.reduction["flow"]["last_arrival_ns"]
    begin = first if cut["from_ns"] is None else max(first, cut["from_ns"])
    end = last if cut["to_ns"] is None else min(last, cut["to_ns"])
    return formulas.ratio(run.reduction["total"]["attempted"], (end - begin) / 1e9) if end > begin else None


def at_once(run: Run) -> bool:
    """Whether every request had come before the first one ended."""
    flow = run.reduction["flow"]
    first_end = flow["first_end_ns"]
    return first_end is None or flow["last_arrival_ns"] <= first_end


def _row(one: Placed) -> Figures:
    """What a run was, whatever its limits."""
    run = one.run
    total = run.reduction["total"]
    return {
        "path": one.path,
        "name": one.name,
        "setting": one.setting,
        "offered_per_second": offered(run),
        "at_once": run.flow is not None and at_once(run),
        "arrivals": total["attempted"],
        "ended": sum(total["by_status"].values()),
        "in_flight": run.requests["in_flight"],
        "seconds": run.span_seconds,
        "requests_per_second": run.rates["requests_per_second"],
        "output_tokens_per_second": run.rates["output_tokens_per_second"],
        "gpus": one.gpus,
        "batch": batch_figures(one.gauges, total, run.flow),
    }


# Verdicts


def _judged(
    slo: SLO,
    ordered: Sequence[Placed],
    rows: Sequence[Figures],
    level: float,
    targets: Sequence[float],
    budget: Budget | None,
) -> Figures:
    """What the runs say of one SLO set."""
    limits = [name for name in METRICS if name in ("ttft", "tpot", "e2e", "itl") and getattr(slo, name) is not None]
    verdicts = [_verdict(slo, one, limits, level, budget) for one in ordered]
    keeps = [_keeps(target, rows, verdicts, [*limits, FAILED]) for target in targets]
    figures = next(one for one in ordered[0].run.goodput if one["name"] == slo.name)
    judged: Figures = {"name": slo.name, "slo": figures["slo"], "runs": verdicts, "keeps": keeps}
    spent = _spent(rows, budget)
    for one in keeps:
        one |= _at_the_rate(one, rows, verdicts, spent)
    if budget is None:
        return judged | {"best": None, "pays": None}
    return judged | {"best": _best(rows, verdicts, budget), "pays": _pays(rows, verdicts, budget, spent)}


def _verdict(slo: SLO, one: Placed, limits: Sequence[str], level: float, budget: Budget | None) -> Figures:
    """How many of a run's requests were good, and what share of those judged each limit alone missed."""
    run = one.run
    place = run.slos.index(slo)
    missed = run.reduction["total"]["slos"][place]["missed"]
    figures = run.goodput[place]
    judged, attained = figures["judged"], figures["attainment"]
    alone = {name: sum(n for reason, n in missed.items() if name in reason.split("+")) for name in limits}
    alone[FAILED] = sum(n for reason, n in missed.items() if reason.split("+")[0] not in METRICS)
    interval, independent = None, 0.0
    if judged:
        depends = Dependence.of(None if "timeline" in run.absent else run.reduction["timeline"])
        independent = float(depends.independent(judged, _effect(depends, slo, place, run), level))
        low, high = wilson(attained * independent, independent, normal_quantile(level))
        interval = [low if attained else 0.0, high if attained < 1 else 1.0]
    spent = None if budget is None else budget.per_second(one.gpus)
    return {
        "good": figures["good"],
        "judged": judged,
        "attainment": attained,
        "interval": interval,
        "independent": independent,
        "goodput_per_second": figures["requests_per_second"],
        "missed": {name: formulas.ratio(n, judged) for name, n in alone.items()},
        "cost_per_good": _over(spent, figures["requests_per_second"]),
    }


def _effect(depends: Dependence, slo: SLO, place: int, run: Run) -> float:
    """The design effect for the share of good requests: that of the misses, and of each latency that comes near its
    limit.

    Misses come in bunches, and a run that happened to have none, or few, does not show how large a bunch would have
    been; what makes requests wait together shows in their latencies all the same.
    """

    def good(block: Any) -> int:
        return int(block["slos"][place]["good"])

    def judged(block: Any) -> int:
        return good(block) + int(sum(block["slos"][place]["missed"].values()))

    found = [depends.share(good, judged)]
    for metric, limit in (("ttft", slo.ttft), ("tpot", slo.tpot), ("e2e", slo.e2e)):
        sketch = run.sketches[metric]
        if limit is not None and sketch.count and sketch.quantile(NEAR_QUANTILE) >= NEAR * limit:
            found.append(depends.mean(metric, Spread.of(sketch)))
    return max(found)


def _keeps(target: float, rows: Sequence[Figures], verdicts: Sequence[Figures], causes: Sequence[str]) -> Figures:
    """The highest rate that keeps a target, and what binds there."""

    def points(share: Callable[[Figures], float]) -> list[Point]:
        return [
            Point(row["offered_per_second"], share(one), one["independent"], tuple(one["interval"]))
            for row, one in zip(rows, verdicts, strict=True)
            if row["offered_per_second"] is not None and one["judged"]
        ]

    whole = points(lambda one: float(one["attainment"]))
    found = crossing(whole, target)
    if found is None:
        return {"target": target, "how": None, "rate": None, "interval": None, "binds": None, "alone": {}}
    alone = {name: crossing(points(partial(_spared, name)), target) for name in causes}
    ends = [found.low, found.high]
    return {
        "target": target,
        "how": found.how,
        "rate": found.rate,
        # Where they contradict each other the rate lies somewhere around both.
        "interval": [found.high, found.low] if found.contradicts else ends,
        "contradicts": found.contradicts,
        "binds": _binds(alone, rows, verdicts),
        "alone": {name: {"how": one.how, "rate": one.rate} for name, one in alone.items() if one is not None},
    }


def _spared(cause: str, verdict: Figures) -> float:
    """The share of requests that one cause alone would have let pass."""
    return 1 - float(verdict["missed"][cause])


def _binds(alone: Mapping[str, Crossing | None], rows: Sequence[Figures], verdicts: Sequence[Figures]) -> str | None:
    """The cause that by itself allows the lowest rate; of equals the one that misses more. Where no run with a rate
    missed anything, the one that misses most in those without."""
    judged = [
        (row["offered_per_second"] is not None, one) for row, one in zip(rows, verdicts, strict=True) if one["judged"]
    ]
    placed = [one for has_rate, one in judged if has_rate]
    order = {UNDER: 0, AT_LEAST: 2}

    def key(name: str) -> tuple[int, float, float]:
        found = alone[name]
        assert found is not None
        at = placed[0] if found.how == UNDER else placed[-1]
        return order.get(found.how, 1), found.rate, -at["missed"][name]

    first = min(alone, key=key)
    if any(one["missed"][first] for one in placed):
        return first
    rest = {name: max((one["missed"][name] for _, one in judged), default=0.0) for name in alone}
    most = max(rest, key=lambda name: rest[name])
    return most if rest[most] else None


def _at_the_rate(keeps: Figures, rows: Sequence[Figures], verdicts: Sequence[Figures], spent: float | None) -> Figures:
    """Good requests a second at the highest rate, and what one of them costs there."""
    if keeps["how"] in (None, UNDER):
        return {"goodput_per_second": None, "cost_per_good": None, "cost_interval": None}
    under = [
        (row, one)
        for row, one in zip(rows, verdicts, strict=True)
        if row["offered_per_second"] is not None and row["offered_per_second"] <= keeps["rate"] and one["judged"]
    ]
    row, one = under[-1]
    # Aborted requests have no verdict, so that not all that arrive can be good.
    judged = one["judged"] / row["ended"]
    share = max(keeps["target"], one["attainment"]) if keeps["how"] == AT_LEAST else keeps["target"]
    ends = reversed(keeps["interval"])
    return {
        "goodput_per_second": keeps["rate"] * share * judged,
        "cost_per_good": _over(spent, keeps["rate"] * share * judged),
        "cost_interval": None
        if spent is None
        else [None if rate is None else _over(spent, rate * keeps["target"] * judged) for rate in ends],
    }


# Cost


def _spent(rows: Sequence[Figures], budget: Budget | None) -> float | None:
    """What a second costs; None where the runs had different numbers of GPUs."""
    if budget is None or len({row["gpus"] for row in rows}) > 1:
        return None
    return budget.per_second(rows[0]["gpus"])


def _over(spent: float | None, rate: float | None) -> float | None:
    return None if spent is None or not rate else spent / rate


def _best(rows: Sequence[Figures], verdicts: Sequence[Figures], budget: Budget) -> Figures | None:
    """The run with the most good requests for its cost, of those within the limit."""
    found = []
    for number, (row, one) in enumerate(zip(rows, verdicts, strict=True)):
        each = one["cost_per_good"]
        if each is None:
            continue
        asked = each if budget.per == PER_GOOD else 3600 * budget.per_second(row["gpus"])
        if budget.limit is None or asked <= budget.limit:
            found.append((1 / each, -number))
    if not found:
        return None
    good_per_cost, number = max(found)
    return {"run": -number, "good_per_cost": good_per_cost, "cost_per_good": verdicts[-number]["cost_per_good"]}


def _pays(
    rows: Sequence[Figures], verdicts: Sequence[Figures], budget: Budget, spent: float | None
) -> list[float] | None:
    """From and to which rate a good request costs no more than the limit, along straight lines between the runs: below
    it GPUs idle, above it too few requests are good. None where it does nowhere."""
    if budget.limit is None or budget.per != PER_GOOD or spent is None:
        return None
    needed = spent / budget.limit
    line = [
        (row["offered_per_second"], one["goodput_per_second"])
        for row, one in zip(rows, verdicts, strict=True)
        if row["offered_per_second"] is not None and one["goodput_per_second"] is not None
    ]
    enough = [number for number, (_, good) in enumerate(line) if good >= needed]
    if not enough:
        return None

    def meets(inside: int, outside: int) -> float:
        (rate, good), (other, less) = line[inside], line[outside]
        return float(rate + (other - rate) * (good - needed) / (good - less))

    first, last = enough[0], enough[-1]
    return [
        line[0][0] if first == 0 else meets(first, first - 1),
        line[-1][0] if last == len(line) - 1 else meets(last, last + 1),
    ]
