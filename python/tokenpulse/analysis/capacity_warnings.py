"""What must be known of runs before their capacity is believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from tokenpulse import formulas
from tokenpulse.analysis.changes import Run, not_read
from tokenpulse.analysis.compare import CROWDED, LONGER
from tokenpulse.analysis.dependence import Dependence

FEW = 100
"""Requests judged, below which an attainment of 99 % cannot be told from one of 95 %."""

LEFT = 0.05
"""Of a run's requests, the share that may be in flight at its end."""

Figures = Mapping[str, Any]


class Placed(Protocol):
    """What is asked of a run."""

    @property
    def name(self) -> str: ...
    @property
    def run(self) -> Run: ...


def warnings(
    placed: Sequence[Placed], rows: Sequence[Figures], judged: Sequence[Figures], by_rate: bool
) -> Iterator[str]:
    """One line for each thing that runs lack or in which they differ; `by_rate`: they are placed by their rates."""
    for one, row in zip(placed, rows, strict=True):
        yield from (f"{one.name}: {text}" for text in _of_run(one.run, row, by_rate))
    crowded = [
        f"{one.name} ({row['in_flight']:,} of {row['arrivals']:,})"
        for one, row in zip(placed, rows, strict=True)
        if _crowded(one.run, row)
    ]
    if crowded:
        yield (
            "requests that had not ended have no verdict, and in a queue that grew they would have missed: "
            f"{_names(crowded)}"
        )
    few = [one.name for one, verdict in zip(placed, judged[0]["runs"], strict=True) if verdict["judged"] < FEW]
    if few:
        yield f"fewer than {FEW} requests were judged in {_names(few)}: take longer runs to know the rate for 99 %"
    alone = [one.name for one in placed if _undivided(one.run)]
    if alone:
        yield (
            f"{_names(alone)}: no timeline, so that requests are taken as independent of one another; where they wait "
            "in one queue the intervals are too narrow"
        )
    yield from _unlike(placed, rows, judged)


def _of_run(run: Run, row: Figures, by_rate: bool) -> Iterator[str]:
    if lacks := not_read(run):
        yield lacks
    if not row["arrivals"]:
        yield "no request arrived"
    elif row["at_once"]:
        yield "all requests came before the first had ended, which is no rate: its row is shown, and not interpolated"
    elif by_rate and row["offered_per_second"] is None:
        yield "the times of arrivals are not known, so that the run has no rate"
    if ((run.flow or {}).get("saturation") or {}).get("verdict") == "client saturated":
        yield "the load generator did not keep up: what it held back is in no latency"


def _crowded(run: Run, row: Figures) -> bool:
    """Whether a queue grew, so that more than a few requests were left when the run ended."""
    crowded = (run.flow or {}).get("utilisation")
    left = row["in_flight"] or 0
    return crowded is not None and crowded > CROWDED and left > LEFT * row["arrivals"]


def _unlike(placed: Sequence[Placed], rows: Sequence[Figures], judged: Sequence[Figures]) -> Iterator[str]:
    """In what the runs differ beside their rates."""
    for what, count in (("prompts", "prompt_tokens"), ("outputs", "output_tokens")):
        finished = [one.run.reduction["total"] for one in placed]
        amounts = [
            formulas.ratio(total[count], total["attempted"] if what == "prompts" else _done(total))
            for total in finished
        ]
        known = [amount for amount in amounts if amount]
        if known and max(known) > LONGER * min(known):
            yield f"{what} are up to {max(known) / min(known):.2f} times as long in one run as in another"
    gpus = sorted({row["gpus"] for row in rows if row["gpus"] is not None})
    if len(gpus) > 1:
        yield f"the runs had different numbers of GPUs ({', '.join(map(str, gpus))}): each has a capacity of its own"
    for one in judged:
        if any(keeps.get("contradicts") for keeps in one["keeps"]):
            yield f"attainment under {one['name']} does not fall as the rate rises: the runs differ in more than that"


def _done(total: Figures) -> int:
    return sum(total["by_status"].get(status, 0) for status in ("stop", "length"))


def _undivided(run: Run) -> bool:
    timeline = None if "timeline" in run.absent else run.reduction["timeline"]
    return bool(run.reduction["total"]["attempted"]) and Dependence.of(timeline).stretches is None


def _names(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
