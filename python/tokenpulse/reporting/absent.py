"""Why a figure of a report is null: each one that is has a reason under its name, in words for people.

A name is the figure's path in the JSON, such as `latency.queue`. What the inputs say of themselves comes first; the
rest follows from the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenpulse.reporting.reasons import MISSING

BY_DEFAULT = (
    "requests",
    "tokens.prompt",
    "tokens.output",
    "rates.output_tokens_per_second",
    "preemptions",
    "degraded",
    "flow.coalesced.emissions",
    "flow.coalesced.coalesced",
    "flow.coalesced.share",
)
"""What counts 0 where an input says nothing of it: null where the inputs say that they cannot tell."""

DERIVED = {
    "preemption_rate": "preemptions",
    "preemptions_per_request": "preemptions",
    "oom_rate": "requests",
    "error_rate": "requests",
}
"""What is null where another figure cannot be told."""

JUDGED_BY = frozenset({"goodput", "latency.ttft", "latency.tpot"})
"""Without these no request can be judged by an SLO set."""

_NO_TIME = "no time from the first arrival to the last token"
_NO_END = "no request ended"
_NO_JUDGED = "no request ended, aborts left out"
_NO_PRICE_OF = "needs the cost in all, and something to divide it by"
_NO_RUN = "nothing happened after the first arrival"

_REASONS = {
    "span_seconds": _NO_TIME,
    "rates.output_tokens_per_second": _NO_TIME,
    "rates.requests_per_second": _NO_TIME,
    "availability": _NO_JUDGED,
    "error_rate": _NO_JUDGED,
    "degraded": _NO_END,
    "oom_rate": _NO_END,
    "oom_events": "no line of an input counts an oom_event",
    "preemption_rate": _NO_END,
    "preemptions_per_request": _NO_END,
    "error_budget.availability.bad": _NO_JUDGED,
    "error_budget.availability.judged": _NO_JUDGED,
    "error_budget.availability.burn_rate": _NO_JUDGED,
    "error_budget.availability.budget_left": _NO_JUDGED,
    "cost.seconds": _NO_TIME,
    "cost.gpu_seconds": _NO_TIME,
    "cost.total": _NO_TIME,
    "cost.per_1k_output_tokens": _NO_PRICE_OF,
    "cost.per_1k_total_tokens": _NO_PRICE_OF,
    "cost.per_request": _NO_PRICE_OF,
    "cost.per_good_request": "needs the cost in all, and a good request",
    "cost.unattributed.share": "nothing to share the cost by, or not known of the groups",
    "cost.unattributed.cost": "nothing to share the cost by, or not known of the groups",
    "attainment_grid": "no request succeeded with a first token",
    "flow": "no request arrived",
    "flow.seconds": _NO_RUN,
    "flow.width_seconds": _NO_RUN,
    "flow.concurrency": _NO_RUN,
    "flow.rates": _NO_RUN,
    "flow.arrivals.rate": "all requests arrived at one moment, or there was one",
    "flow.ends.rate": "all requests ended at one moment, or at most one did",
    "flow.arrival_rate": "all but a few requests arrived at one moment, or there was one",
    "flow.service_rate": "all but a few requests ended at one moment, or at most one did",
    "flow.utilisation": "needs a rate of arrivals and one of ends",
    "flow.steady": _NO_RUN,
    "flow.first_wave": "cannot be told apart: the first end lies in the bin of the first arrival",
    "flow.first_wave.ttft_mean": "no request of it has a first token",
    "flow.first_wave.others_ttft_mean": "no other request has a first token",
    "flow.first_wave.ratio": "needs a first token in it and after it",
    "flow.littles_law": "needs requests that ended, and time",
    "flow.coalesced.share": "the times of emissions are not known",
    "flow.coalesced.zero_gap_share": "there are no inter-token latencies, or their zeros are of the rule's making",
    "flow.saturation.schedule_delay": "it is not known when each request was meant to be sent",
    "flow.saturation.delay_to_ttft": "needs schedule delays and first tokens",
    "flow.saturation.requested_rate": "not known, or no limit; --request-rate tells it",
    "flow.saturation.achieved_rate": "all requests arrived at one moment, or there was one",
    "flow.saturation.rate_ratio": "needs the rate that was asked for and the one that was reached",
    "workload.failed": "the file does not mark requests of the workload as failed",
    "workload.seconds": "the file does not say when a request was sent",
    "workload.arrivals.rate": "all requests arrived at one moment, or it is not known when",
    "workload.arrivals.interarrival": "needs two requests whose arrivals are known",
    "workload.arrivals.interarrival.cv": "all requests arrived at one moment",
    "workload.prompt_tokens": "the file does not have the prompts' lengths",
    "workload.output_tokens": "the file does not have the outputs' lengths",
    "workload.reuse": "the file does not have the hashes of prompts' blocks",
    "workload.reuse.block_tokens": "the file does not say how many tokens a block stands for",
    "workload": "told of traces and of files of other tools, whose rows are at hand",
}


def without(block: dict[str, Any], told: Mapping[str, str]) -> dict[str, Any]:
    """A block of figures, with null for what its inputs cannot tell."""
    for name in BY_DEFAULT:
        place, _, key = name.rpartition(".")
        parent = _at(block, place)
        if name in told and isinstance(parent, dict) and key in parent:
            whole = parent[key]
            parent[key] = dict.fromkeys(whole) if isinstance(whole, dict) else None
    for name, of in DERIVED.items():
        if of in told and name in block:
            block[name] = None
    if "requests" in told:
        block["error_budget"] = {name: dict.fromkeys(one) for name, one in block["error_budget"].items()}
    for metric in block["latency"]:
        if f"latency.{metric}" in told:
            # Where the inputs cannot tell a metric, what was counted as one is something else.
            block["latency"][metric] = None
    if "tokens.output" in told:
        for one in block["goodput"]:
            one["tokens_per_second"] = None
    if JUDGED_BY & told.keys():
        for one in block["goodput"]:
            one |= dict.fromkeys(
                ("good", "attainment", "burn_rate", "budget_left", "requests_per_second", "tokens_per_second")
            )
            one["missed"] = {}
    return block


def absences(figures: Mapping[str, Any], told: Mapping[str, str]) -> dict[str, str]:
    """Of every figure that is null, why: as the inputs tell, else as follows from the counts."""
    found: dict[str, str] = {}
    for metric, latency in figures["latency"].items():
        if latency is None:
            found[f"latency.{metric}"] = (
                told.get(f"latency.{metric}") or told.get("requests") or _no_values(metric, figures)
            )
    for name, reason in _REASONS.items():
        parent = name.rpartition(".")[0]
        if parent not in found and _is_null(figures, name):
            found[name] = (
                told.get(name)
                or told.get(DERIVED.get(name, name.split(".")[0]))
                or told.get("requests")
                or _untold_time(name, told)
                or reason
            )
    for name in sorted(JUDGED_BY):
        if name in told and figures["goodput"]:
            found.setdefault("goodput", told[name])
    if "timeline" in told:  # null or not, there is none
        found["timeline"] = told["timeline"]
    for name, reason in told.items():
        if name not in found and _is_null(figures, name):
            found[name] = reason
    return found


def _untold_time(name: str, told: Mapping[str, str]) -> str | None:
    """Why there is no cost where the inputs say that they have no time."""
    return told.get("span_seconds") if name.startswith("cost.") and name.endswith(("seconds", "total")) else None


def _no_values(metric: str, figures: Mapping[str, Any]) -> str:
    if not figures["requests"]["attempted"]:
        return "no request arrived"
    if metric in figures["missing"]:
        return MISSING[metric]
    return "no request was preempted" if metric == "preemption_stall" else "no request that it could be measured of"


def _is_null(figures: Mapping[str, Any], name: str) -> bool:
    """Whether a figure is there and null. What is below a null figure is not there."""
    place, _, key = name.rpartition(".")
    parent = _at(figures, place)
    return isinstance(parent, Mapping) and key in parent and _nothing(parent[key])


def _at(figures: Any, name: str) -> Any:
    """The figure of a name; None where there is none."""
    for key in name.split(".") if name else ():
        figures = figures.get(key) if isinstance(figures, Mapping) else None
    return figures


def _nothing(figure: Any) -> bool:
    """Whether a figure is null, or made of nulls only."""
    if isinstance(figure, Mapping):
        return bool(figure) and all(_nothing(part) for part in figure.values())
    return figure is None
