"""`Report`: what a reduction's counts and sketches say, as named figures.

Every figure is finite or None (absent, never 0 in its place). Times and rates are in seconds; `sum_ns` is the
exact integer. Counts and sums are exact; quantiles are within `rules["relative_error"]` of the exact nearest-rank
value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenpulse import formulas
from tokenpulse.analysis import flow as where_time_went
from tokenpulse.analysis.cost import Counted, Group, Price, cost_figures
from tokenpulse.model import AVAILABILITY_OBJECTIVE, FAILED, METRICS, SLO, STATUSES, SUCCEEDED, Reduction, SketchLike
from tokenpulse.reporting.absent import JUDGED_BY, absences, without
from tokenpulse.reporting.grid import attainment_grid

SCHEMA = "tokenpulse.report/1"

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
"""The latency quantiles of a report. Few values lie above a good latency's tail, so they look upwards."""

FLUIDITY_QUANTILES = {"p1": 0.01, "p5": 0.05, "p10": 0.1, "p50": 0.5, "p90": 0.9}
"""The fluidity quantiles of a report. The worst requests have the lowest index, so they look downwards."""

Figures = dict[str, Any]

_NOT_KEYS = frozenset({"notices", "sketches", "by_sketches", "timeline_sketches", "slos", "reduction", "made_with"})


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Report:
    """The figures of one report, named as the keys of its JSON, and the sketches behind them.

    `sketches["ttft"]` is the whole run's sketch of a metric, to query or to merge with another report's;
    `by_sketches` and `timeline_sketches` hold those of each item of `by` and `timeline`. `notices` names the
    first lines and events of each input that could not be used. `reduction` is what the report was made of, and
    `made_with` the settings that it does not tell.
    """

    schema: str = SCHEMA
    inputs: list[Figures]
    span_seconds: float | None
    requests: Figures
    tokens: Figures
    preemptions: Figures
    latency: dict[str, Figures | None]
    fluidity: Figures
    slowest: dict[str, list[Figures]]
    rates: Figures
    goodput: list[Figures]
    availability: float | None
    error_rate: float | None
    degraded: float | None
    oom_rate: float | None
    oom_events: int | None
    preemption_rate: float | None
    preemptions_per_request: float | None
    error_budget: Figures
    rejected: dict[str, int]
    clamped: int
    missing: dict[str, int]
    rules: Figures
    by: list[Figures]
    by_over: int
    timeline: list[Figures]
    timeline_width_seconds: float | None
    timeline_asked_seconds: float | None
    flow: Figures | None = None
    attainment_grid: Figures | None = None
    cut: Figures | None = None
    workload: Figures | None = None
    cost: Figures | None = None
    definitions: dict[str, dict[str, str]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    reported: list[Figures] = field(default_factory=list)
    profiles: dict[str, Any] = field(default_factory=dict)
    slos: tuple[SLO, ...] = ()
    notices: list[Figures] = field(default_factory=list)
    sketches: dict[str, SketchLike]
    by_sketches: tuple[dict[str, SketchLike], ...] = ()
    timeline_sketches: tuple[dict[str, SketchLike], ...] = ()
    reduction: Reduction = field(default_factory=dict, compare=False)
    made_with: Figures = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        reduction: Reduction,
        slos: Sequence[SLO] = (),
        itl: str = "token",
        *,
        how: str = "from/to",
        absent: Mapping[str, str] | None = None,
        price: Price | None = None,
        **found: Any,
    ) -> Report:
        """The report of a reduction that was made with these SLO sets and this ITL rule.

        `how` says what a cut was made by. `absent` is what the inputs cannot give, and why; of what needs one clock
        (`span_seconds`, `timeline`, `flow`) and of what a log counts by default whatever it names is null. `price` is
        what a GPU costs, and gives `cost`. `found` holds the figures that a reduction does not tell, by the names of
        the report's keys: `workload`, `definitions`, `reported`, `profiles`; and `flow` where it is known better than
        from the reduction.
        """
        slos, told = tuple(slos), absent or {}
        total = reduction["total"]
        span = None if "span_seconds" in told else _span(reduction)
        timeline = None if "timeline" in told else reduction["timeline"]
        figures: Figures = {
            "span_seconds": span,
            **block_figures(total, slos, span, in_flight(total)),
            "attainment_grid": None if JUDGED_BY & told.keys() else attainment_grid(reduction),
            "cut": _cut(reduction, how),
            "workload": None,
            "oom_events": reduction.get("oom_events"),
            **found,
        }
        if "flow" in told:
            figures["flow"] = None
        elif "flow" not in found:
            figures["flow"] = where_time_went.of_reduction(reduction)
        without(figures, told)
        by: list[Figures] = [
            {
                "key": dict(one["key"]),
                "other": one["other"],
                **without(block_figures(one["block"], slos, span, in_flight(one["block"])), told),
            }
            for one in reduction["by"]
        ]
        figures["cost"] = None if price is None else _cost(price, figures, by, reduction)
        figures["absent"] = absences(figures, told)
        return cls(
            **figures,
            reduction=reduction,
            inputs=[{**one, "skipped": _ordered(one["skipped"])} for one in reduction["inputs"]],
            slowest={
                metric: [{"id": name, "value": ns / 1e9} for ns, name in reduction["slowest"].get(metric, ())]
                for metric in METRICS
            },
            rejected=_ordered(reduction["rejected"]),
            clamped=reduction["clamped"],
            rules={
                "itl": itl,
                "quantile": "nearest_rank",
                "relative_error": total["latency"]["ttft"].relative_error,
            },
            by=by,
            by_over=reduction["by_interned_over"],
            timeline=[without(one, told) for one in _bins(timeline, slos)],
            timeline_width_seconds=timeline["width_ns"] / 1e9 if timeline else None,
            timeline_asked_seconds=timeline["asked_ns"] / 1e9 if timeline else None,
            slos=slos,
            notices=[dict(one) for one in reduction["notices"]],
            sketches={
                metric: type(sketch)() if f"latency.{metric}" in told else sketch
                for metric, sketch in total["latency"].items()
            },
            by_sketches=tuple(dict(one["block"]["latency"]) for one in reduction["by"]),
            timeline_sketches=tuple(dict(one["block"]["latency"]) for one in (timeline["bins"] if timeline else ())),
        )

    @property
    def unusable(self) -> int:
        """How many lines were skipped and events refused, over all inputs."""
        return sum(sum(one["skipped"].values()) for one in self.inputs) + sum(self.rejected.values())

    def to_dict(self) -> Figures:
        """The report as the JSON object that `tokenpulse report --json` prints."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _NOT_KEYS}

    def __repr__(self) -> str:
        span = "no span" if self.span_seconds is None else f"{self.span_seconds:.6g} s"
        return (
            f"<tokenpulse.Report: {self.requests['attempted']} requests, {self.tokens['output']} output tokens, {span}>"
        )


def _span(reduction: Reduction) -> float | None:
    """The time that rates divide by: that of the cut, or of the whole run."""
    first, last, cut = reduction["first_arrival_ns"], reduction["last_emission_ns"], reduction.get("cut")
    if cut is None or first is None or last is None:
        return span_seconds(first, last)
    begin = first if cut["from_ns"] is None else max(first, cut["from_ns"])
    end = last if cut["to_ns"] is None else min(last, cut["to_ns"])
    return span_seconds(begin, end)


def _cost(price: Price, figures: Figures, by: Sequence[Figures], reduction: Reduction) -> Figures:
    """What the time that rates divide by cost, and each group's part of it."""
    groups = [
        Group(one["key"], one["other"], _counted(one), of["block"]) for one, of in zip(by, reduction["by"], strict=True)
    ]
    return cost_figures(price, figures["span_seconds"], reduction["total"], _counted(figures), groups)


def _counted(figures: Figures) -> Counted:
    """What a cost is divided by."""
    return Counted(
        requests=figures["requests"]["attempted"],
        output_tokens=figures["tokens"]["output"],
        prompt_tokens=figures["tokens"]["prompt"],
        good={one["name"]: one["good"] for one in figures["goodput"]},
    )


def _cut(reduction: Reduction, how: str) -> Figures | None:
    """Which requests were left out, by the time of their arrival since the first one."""
    cut, first = reduction.get("cut"), reduction["first_arrival_ns"]
    if cut is None:
        return None
    since = {
        f"{end}_seconds": None if cut[f"{end}_ns"] is None or first is None else (cut[f"{end}_ns"] - first) / 1e9
        for end in ("from", "to")
    }
    return {**since, "outside": cut["outside"], "how": how}


def span_seconds(first_arrival_ns: int | None, last_emission_ns: int | None) -> float | None:
    """First arrival to last token; None where either is unknown or nothing lies between them.

    >>> span_seconds(100, 1_500_000_100)
    1.5
    """
    if first_arrival_ns is None or last_emission_ns is None or last_emission_ns <= first_arrival_ns:
        return None
    return (last_emission_ns - first_arrival_ns) / 1e9


def in_flight(block: Mapping[str, Any]) -> int:
    """Requests of a block that arrived and have not ended."""
    ended: int = sum(block["by_status"].values())
    return int(block["attempted"]) - ended


def block_figures(block: Mapping[str, Any], slos: Sequence[SLO], seconds: float | None, waiting: int | None) -> Figures:
    """The figures that a whole run, a group, a bin of a timeline and a live window have in common.

    `seconds` is the time that rates divide by, `waiting` how many requests are in flight, where that is known.
    """
    by_status = {status: block["by_status"][status] for status in STATUSES if status in block["by_status"]}
    ended = sum(by_status.values())
    succeeded = sum(by_status.get(status, 0) for status in SUCCEEDED)
    return {
        "requests": {
            "attempted": block["attempted"],
            "succeeded": succeeded,
            "failed": sum(by_status.get(status, 0) for status in FAILED),
            "aborted": by_status.get("abort", 0),
            "rejected": by_status.get("reject", 0),
            "lost": by_status.get("lost", 0),
            "in_flight": waiting,
            "by_status": by_status,
        },
        "tokens": {"prompt": block["prompt_tokens"], "output": block["output_tokens"]},
        "preemptions": {"requests": block["preempted"], "events": block["preemptions"]},
        "latency": {metric: latency_figures(block["latency"][metric]) for metric in METRICS},
        "rates": {
            "output_tokens_per_second": formulas.token_throughput(block["output_tokens"], seconds),
            "requests_per_second": formulas.request_throughput(succeeded, seconds),
        },
        "goodput": [goodput_figures(slo, one, seconds) for slo, one in zip(slos, block["slos"], strict=True)],
        "fluidity": {slo.name: fluidity_figures(one) for slo, one in zip(slos, block["slos"], strict=True)},
        "availability": formulas.availability_of(by_status),
        "error_rate": formulas.error_rate_of(by_status),
        "degraded": formulas.degraded_rate(block["degraded"], ended),
        "oom_rate": formulas.oom_rate(by_status.get("oom", 0), ended),
        "preemption_rate": formulas.preemption_rate(block["preempted"], ended),
        "preemptions_per_request": formulas.ratio(block["preemptions"], ended),
        "error_budget": {
            "availability": budget_figures(
                formulas.unavailable_of(by_status), formulas.judged_of(by_status), AVAILABILITY_OBJECTIVE
            )
        },
        "missing": {metric: block["missing"][metric] for metric in METRICS if metric in block["missing"]},
    }


def budget_figures(bad: int, judged: int, objective: float) -> Figures:
    """How much of the budget of errors that an objective leaves was spent, over these requests alone."""
    return {
        "objective": objective,
        "bad": bad,
        "judged": judged,
        "burn_rate": formulas.burn_rate(bad, judged, objective),
        "budget_left": formulas.budget_left(bad, judged, objective),
    }


def _bins(timeline: Mapping[str, Any] | None, slos: Sequence[SLO]) -> list[Figures]:
    """The bins of a timeline in which something happened; `in_flight` is what a bin leaves to the next."""
    if timeline is None:
        return []
    width = timeline["width_ns"] / 1e9
    bins: list[Figures] = []
    waiting = 0
    for one in timeline["bins"]:
        waiting += in_flight(one["block"])
        head = {"start_seconds": one["start_ns"] / 1e9, "width_seconds": width}
        bins.append(head | block_figures(one["block"], slos, width, waiting))
    return bins


def latency_figures(sketch: SketchLike) -> Figures | None:
    """Count, sum, mean, extremes and quantiles of a latency in seconds; None when there is no value."""
    if not sketch.count:
        return None
    return {
        "count": sketch.count,
        "sum": sketch.sum,
        "sum_ns": sketch.sum_ns,
        "mean": sketch.mean,
        "min": sketch.min,
        "max": sketch.max,
        **{name: sketch.quantile(q) for name, q in QUANTILES.items()},
    }


def goodput_figures(slo: SLO, judged: Mapping[str, Any], seconds: float | None) -> Figures:
    """How many requests an SLO set judged, how many were good, and what the others missed."""
    missed = dict(sorted(judged["missed"].items(), key=lambda reason: _miss_order(reason[0])))
    total = judged["good"] + sum(missed.values())
    return {
        "name": slo.name,
        "slo": slo.limits(),
        "good": judged["good"],
        "judged": total,
        "attainment": formulas.attainment(judged["good"], total),
        "burn_rate": formulas.burn_rate(total - judged["good"], total, slo.objective),
        "budget_left": formulas.budget_left(total - judged["good"], total, slo.objective),
        "requests_per_second": formulas.goodput(judged["good"], seconds),
        "tokens_per_second": formulas.token_throughput(judged["output_tokens"], seconds),
        "missed": missed,
    }


def _miss_order(reason: str) -> tuple[int, int, str]:
    """Limits first, the fewest at once first; then requests without a token; then the failures."""
    limits = reason.split("+")
    if limits[0] in METRICS:
        return (0, len(limits), "".join(str(METRICS.index(limit)) for limit in limits))
    return (1, 0, "") if reason == "no_tokens" else (2, STATUSES.index(reason), "")


def fluidity_figures(judged: Mapping[str, Any]) -> Figures:
    """The pooled fluidity index under an SLO set, and the distribution of the requests' own."""
    sketch: SketchLike = judged["fluidity"]
    return {
        "index": formulas.fluidity_index(judged["met"], judged["deadlines"]),
        "met": judged["met"],
        "deadlines": judged["deadlines"],
        "count": sketch.count,
        "mean": _finite(sketch.mean),
        "min": _finite(sketch.min),
        **{name: _finite(sketch.quantile(q)) for name, q in FLUIDITY_QUANTILES.items()},
    }


def _finite(figure: float) -> float | None:
    return figure if math.isfinite(figure) else None


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    return {reason: counts[reason] for reason in sorted(counts)}
