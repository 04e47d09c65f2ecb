"""Two runs held against each other: what changed, between which ends, and whether for better or worse.

Pure functions of two reports. A figure's interval holds its change with the confidence of `CONFIDENCE`, taken by
itself. A verdict rests on several figures at once, so each of them must change by more than an interval that all of
them keep together with that confidence (Bonferroni): of comparisons between runs without a change, one in 20 at most
finds one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tokenpulse import formulas
from tokenpulse.analysis.changes import (
    BETTER,
    WORSE,
    Block,
    Figures,
    Latency,
    Levels,
    Run,
    Side,
    Sides,
    not_read,
    rate_change,
    share_change,
    together,
)
from tokenpulse.analysis.dependence import FEWEST_STRETCHES
from tokenpulse.formulas import UNAVAILABLE
from tokenpulse.model import METRICS, SLO, SUCCEEDED

SCHEMA = "tokenpulse.compare/1"

CONFIDENCE = 0.95

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}

FELT = ("ttft", "tpot", "itl", "e2e")
"""The latencies that a user feels; the others say where they come from."""

JUDGED = ("p50", "p99")
"""The figures that a latency's verdict rests on."""

NAMES = {"mean": "mean", "p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "p999": "P99.9"}

LONGER = 1.1
"""Prompts or outputs that are longer by this factor, or shorter, are pointed out: latency grows with length."""

CROWDED = 1.05
"""Arrivals over ends: beyond it a queue grows as long as the run lasts."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs, figure by figure; named as the keys of its JSON."""

    schema: str = SCHEMA
    before: Figures
    after: Figures
    rules: Figures
    latency: dict[str, Figures | None]
    rates: dict[str, Figures]
    shares: dict[str, Figures]
    goodput: list[Figures]
    by: list[Figures]
    by_only: dict[str, list[Figures]]
    """Strata that only one of the runs has."""
    verdict: str
    because: list[Figures]
    """Those of the figures that the verdict rests on which changed, each with its own."""
    warnings: list[str]
    """What else differs, or is not known, so that the figures cannot be taken as they are."""
    fail_if: list[Figures] = field(default_factory=list)

    def to_dict(self) -> Figures:
        """The JSON object that `tokenpulse compare --json` prints."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def compare_runs(before: Run, after: Run) -> Comparison:
    """What changed from one run to another. ValueError where they were made with different ITL rules."""
    if before.rules["itl"] != after.rules["itl"]:
        raise ValueError(
            f"the runs have different ITL rules, {before.rules['itl']} and {after.rules['itl']}: "
            "read both with the same --itl (files of chunks of unknown size can only have chunk)"
        )
    sides = (Side.of(before), Side.of(after))
    slos = [slo for slo in before.slos if slo in after.slos]
    felt = [metric for metric in FELT if Latency.of(metric, sides, (sides[0].total, sides[1].total)) is not None]
    levels = Levels(CONFIDENCE, 1 - (1 - CONFIDENCE) / (len(felt) * len(JUDGED) + 2 + len(slos)))

    latency = {metric: _latency(metric, sides, levels) for metric in METRICS}
    tokens, requests = (lambda block: block["output_tokens"], _succeeded)
    rates = {
        name: rate_change(sides, (before.rates[name], after.rates[name]), (count, count), levels)
        for name, count in (("output_tokens_per_second", tokens), ("requests_per_second", requests))
    }
    shares = {
        "error_rate": share_change(sides, (_unavailable,) * 2, (_judged,) * 2, -1, levels),
        "degraded": share_change(sides, (lambda block: block["degraded"],) * 2, (_ended,) * 2, -1, levels),
    }
    goodput = [_goodput(slo, sides, levels) for slo in slos]
    judged: list[tuple[str, Figures]] = [
        *((f"{metric} {NAMES[name]}", (latency[metric] or {})[name]) for metric in felt for name in JUDGED),
        ("output tokens/s", rates["output_tokens_per_second"]),
        ("error rate", shares["error_rate"]),
        *((f"attainment of {one['name']}", one["attainment"]) for one in goodput),
    ]
    by, by_only = _strata(sides)
    return Comparison(
        before=_summary(before),
        after=_summary(after),
        rules={
            "itl": before.rules["itl"],
            "relative_error": max(run.rules["relative_error"] for run in (before, after)),
            "confidence": levels.alone,
            "joint_confidence": levels.together,
            "stretches": [None if s.depends.stretches is None else len(s.depends.stretches) for s in sides],
        },
        latency=latency,
        rates=rates,
        shares=shares,
        goodput=goodput,
        by=by,
        by_only=by_only,
        verdict=together(one["clearly"] for _, one in judged),
        because=[
            {"figure": name, "verdict": one["clearly"]} for name, one in judged if one["clearly"] in (BETTER, WORSE)
        ],
        warnings=list(_warnings(sides)),
    )


def _summary(run: Run) -> Figures:
    return {
        "paths": [one["path"] for one in run.inputs],
        "attempted": run.requests["attempted"],
        "succeeded": run.requests["succeeded"],
        "output_tokens": run.tokens["output"],
        "span_seconds": run.span_seconds,
    }


def _latency(metric: str, sides: Sides, levels: Levels) -> Figures | None:
    found = Latency.of(metric, sides, (sides[0].total, sides[1].total))
    if found is None:
        return None
    percentiles = {name: found.percentile(q, levels) for name, q in QUANTILES.items()}
    mean = found.mean(levels)
    return {
        "count": {"before": found.spreads[0].count, "after": found.spreads[1].count},
        "mean": mean,
        **percentiles,
        **found.distances(percentiles["p50"]["independent"]),
        "verdict": together(percentiles[name]["clearly"] for name in JUDGED),
    }


# What is counted in a block


def _ended(block: Block) -> int:
    return sum(block["by_status"].values())


def _judged(block: Block) -> int:
    return _ended(block) - int(block["by_status"].get("abort", 0))


def _unavailable(block: Block) -> int:
    return sum(block["by_status"].get(status, 0) for status in UNAVAILABLE)


def _succeeded(block: Block) -> int:
    return sum(block["by_status"].get(status, 0) for status in SUCCEEDED)


def _goodput(slo: SLO, sides: Sides, levels: Levels) -> Figures:
    """What changed under an SLO set, which need not stand in the same place in both runs."""
    places = [side.run.slos.index(slo) for side in sides]
    figures = [side.run.goodput[place] for side, place in zip(sides, places, strict=True)]

    def counts(name: str) -> Any:
        return tuple(lambda block, place=place: block["slos"][place][name] for place in places)

    judged: Any = tuple(
        lambda block, place=place: block["slos"][place]["good"] + sum(block["slos"][place]["missed"].values())
        for place in places
    )
    per_second = {
        name: rate_change(sides, [one[name] for one in figures], counts(counted), levels)
        for name, counted in (("requests_per_second", "good"), ("tokens_per_second", "output_tokens"))
    }
    return {"name": slo.name, "attainment": share_change(sides, counts("good"), judged, 1, levels), **per_second}


# Strata


def _strata(sides: Sides) -> tuple[list[Figures], dict[str, list[Figures]]]:
    """The strata of both runs, where they were made by the same keys; and those that only one of them has."""
    found = [
        {tuple(one["key"].items()): one["block"] for one in side.run.reduction["by"] if not one["other"]}
        for side in sides
    ]
    keys = [{tuple(name for name, _ in key) for key in strata} for strata in found]
    if not all(keys) or keys[0] != keys[1]:
        return [], {"before": [], "after": []}
    common = [key for key in found[0] if key in found[1]]
    levels = Levels(CONFIDENCE, 1 - (1 - CONFIDENCE) / max(1, len(common) * len(FELT) * len(JUDGED)))
    by = []
    for key in common:
        blocks = (found[0][key], found[1][key])
        latency = {metric: _stratum(Latency.of(metric, sides, blocks), levels) for metric in FELT}
        by.append(
            {
                "key": dict(key),
                "attempted": {"before": blocks[0]["attempted"], "after": blocks[1]["attempted"]},
                "latency": latency,
                "verdict": together(one["verdict"] for one in latency.values() if one is not None),
            }
        )
    only = {
        name: [dict(key) for key in mine if key not in other]
        for name, mine, other in (("before", found[0], found[1]), ("after", found[1], found[0]))
    }
    return by, only


def _stratum(latency: Latency | None, levels: Levels) -> Figures | None:
    if latency is None:
        return None
    figures = {name: latency.percentile(QUANTILES[name], levels) for name in JUDGED}
    return {
        "count": {"before": latency.spreads[0].count, "after": latency.spreads[1].count},
        **figures,
        "verdict": together(one["clearly"] for one in figures.values()),
    }


# Warnings


def _warnings(sides: Sides) -> Iterator[str]:
    for name, side in zip(("before", "after"), sides, strict=True):
        if lacks := not_read(side.run):
            yield f"{name}: {lacks}"
        if "requests" in side.run.absent:
            yield f"{name}: {side.run.absent['requests']}, and nothing to compare"
        elif side.depends.stretches is None and side.total["attempted"]:
            yield (
                f"{name}: no timeline of {FEWEST_STRETCHES} bins or more, so its requests are taken as independent of "
                "one another; where they wait in one queue the intervals are too narrow"
            )
        crowded = (side.run.flow or {}).get("utilisation")
        if crowded is not None and crowded > CROWDED:
            yield (
                f"{name}: requests came {crowded:.2f} times as fast as they were served; TTFT and E2E then grow as "
                "long as the run lasts, and differ between runs without a change"
            )
    for what, count, figure in (
        ("prompts", "prompt_tokens", "tokens.prompt"),
        ("outputs", "output_tokens", "tokens.output"),
    ):
        lengths = [formulas.ratio(side.total[count], side.total["attempted"]) for side in sides]
        if not all(lengths) or any(figure in side.run.absent for side in sides):
            continue
        before, after = (length or 0.0 for length in lengths)
        if not 1 / LONGER <= after / before <= LONGER:
            key = f"{what[:-1]}_length"
            yield f"{what} are {after / before:.2f} times as long as before: compare within strata, --by {key}"
    if sides[0].run.slos != sides[1].run.slos:
        yield "the runs were not judged by the same SLO sets: only those of both are compared"
    if len({side.run.reduction["cut"] is None for side in sides}) > 1:
        yield "only one of the runs is cut to a part of its requests"
