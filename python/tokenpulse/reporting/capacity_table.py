"""A capacity for people: the runs, what each kept, the highest rates, costs, batches; in tables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from rich.console import RenderableType

from tokenpulse.analysis.batch import GAUGES
from tokenpulse.analysis.capacity import FAILED, PER_GOOD, RATE, Capacity
from tokenpulse.analysis.crossing import AT_LEAST, UNDER
from tokenpulse.reporting.layout import figures_table, heading, note, show
from tokenpulse.reporting.text import count, money, number, percent, printable, setting_percent

LIMITS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "itl": "ITL", FAILED: "failed"}

Figures = Mapping[str, Any]


def write(capacity: Capacity, stream: IO[str]) -> None:
    """Print the capacity to a stream; a terminal gets bold headings, everything else plain text."""
    show(parts(capacity), stream)


def parts(capacity: Capacity) -> Iterator[RenderableType]:
    """The sections, top to bottom."""
    yield from _runs(capacity)
    for slo in capacity.slos:
        yield from _attainment(capacity, slo)
        if slo["keeps"]:
            yield from _keeps(capacity, slo)
        if capacity.price is not None:
            yield from _cost(capacity, slo)
    yield from _batch(capacity)
    if capacity.warnings:
        yield heading("To be known")
        for text in capacity.warnings:
            yield note(printable(text))


def _runs(capacity: Capacity) -> Iterator[RenderableType]:
    yield heading("Runs")
    table = figures_table(
        "run", "offered\nreq/s", "served\nreq/s", "output\ntok/s", "requests", "in\nflight", "seconds"
    )
    for row in capacity.runs:
        table.add_row(
            printable(row["name"]),
            rate_text(row),
            number(row["requests_per_second"]),
            number(row["output_tokens_per_second"]),
            count(row["arrivals"]),
            "-" if row["in_flight"] is None else count(row["in_flight"]),
            number(row["seconds"]),
        )
    yield table


def rate_text(row: Figures) -> str:
    """The rate at which a run's requests came."""
    return "at once" if row["at_once"] else number(row["offered_per_second"])


def place_text(capacity: Capacity, row: Figures) -> str:
    """A run's place on the axis."""
    if capacity.axis == RATE:
        return rate_text(row)
    return printable(row["setting"]) if isinstance(row["setting"], str) else f"{row['setting']:.9g}"


def limits_text(slo: Figures) -> str:
    """An SLO set's limits in one line."""
    told = [
        f"{LIMITS[name]} < {1e3 * slo[name]:g} ms" for name in ("ttft", "tpot", "e2e", "itl") if slo[name] is not None
    ]
    where = [f"{printable(label)}={printable(value)}" for label, value in slo["where"].items()]
    return ", ".join([*told, *where])


def _attainment(capacity: Capacity, slo: Figures) -> Iterator[RenderableType]:
    yield heading(f"Attainment of {printable(slo['name'])}: {limits_text(slo['slo'])}")
    causes = [
        name for name in slo["runs"][0]["missed"] if name != FAILED or any(one["missed"][FAILED] for one in slo["runs"])
    ]
    priced = ["cost\nper good"] if capacity.price is not None else []
    axis = "offered\nreq/s" if capacity.axis == RATE else capacity.axis
    table = figures_table(
        axis, "good\nreq/s", "attained", "between", *(f"{LIMITS[name]}\nmisses" for name in causes), *priced
    )
    table.columns[0].justify = "right"
    for row, one in zip(capacity.runs, slo["runs"], strict=True):
        table.add_row(
            place_text(capacity, row),
            number(one["goodput_per_second"]),
            percent(one["attainment"]),
            "-" if one["interval"] is None else span(*(100 * end for end in one["interval"])) + " %",
            *(percent(one["missed"][name]) for name in causes),
            *([money(one["cost_per_good"])] if priced else []),
        )
    yield table


def span(low: float | None, high: float | None) -> str:
    """Two ends; one that is not known is open.

    >>> span(10.0, 24.5), span(None, 24.5), span(10.0, None), span(None, None)
    ('10.0 to 24.5', 'under 24.5', 'over 10.0', '-')
    """
    if low is None or high is None:
        return f"under {number(high)}" if high is not None else "-" if low is None else f"over {number(low)}"
    return f"{number(low)} to {number(high)}"


def rate_of(keeps: Figures) -> str:
    """The highest rate that keeps a target, in words.

    >>> rate_of({"how": "at least", "rate": 12.0}), rate_of({"how": "between", "rate": 12.0}), rate_of({"how": None})
    ('at least 12.0', '12.0', '-')
    """
    if keeps["how"] is None:
        return "-"
    return {AT_LEAST: "at least ", UNDER: "under "}.get(keeps["how"], "") + number(keeps["rate"])


def _brief(keeps: Figures) -> str:
    """The same in signs."""
    return rate_of(keeps).replace("at least", "≥").replace("under", "<")


def binds_text(keeps: Figures) -> str:
    """What binds first, in words."""
    if keeps["binds"] is None:
        return "nothing missed" if keeps["how"] else "-"
    return LIMITS[keeps["binds"]]


def _keeps(capacity: Capacity, slo: Figures) -> Iterator[RenderableType]:
    yield heading(f"Highest rate that keeps {printable(slo['name'])}")
    causes = list(dict.fromkeys(name for keeps in slo["keeps"] for name in keeps["alone"]))
    if not any(one["missed"][FAILED] for one in slo["runs"]):
        causes = [name for name in causes if name != FAILED]
    priced = ["cost\nper good"] if capacity.price is not None else []
    table = figures_table(
        "attained",
        "req/s",
        "between",
        "binds\nfirst",
        *(f"{LIMITS[name]}\nalone" for name in causes),
        "good\nreq/s",
        *priced,
    )
    for keeps in slo["keeps"]:
        table.add_row(
            setting_percent(keeps["target"]),
            rate_of(keeps),
            span(*keeps["interval"]) if keeps["interval"] else "-",
            binds_text(keeps),
            *(_brief(keeps["alone"].get(name, {"how": None})) for name in causes),
            number(keeps["goodput_per_second"]),
            *([money(keeps["cost_per_good"])] if priced else []),
        )
    yield table
    yield note(
        "Along a curve through the runs; nothing is said beyond them. Between: from the highest rate that surely "
        f"keeps it to the lowest that surely misses it, with {setting_percent(capacity.confidence)} confidence."
    )


def _cost(capacity: Capacity, slo: Figures) -> Iterator[RenderableType]:
    assert capacity.price is not None
    limit, per, best = capacity.price["limit"], capacity.price["per"], slo["best"]
    asked = "" if limit is None else f" of those at {limit:.9g} or less per {per}"
    if best is None:
        yield note(f"No run had good requests{f' at {limit:.9g} or less per {per}' if limit is not None else ''}.")
        return
    row, one = capacity.runs[best["run"]], slo["runs"][best["run"]]
    place = (
        f"{place_text(capacity, row)} req/s"
        if capacity.axis == RATE
        else f"{capacity.axis} {place_text(capacity, row)}"
    )
    yield note(
        f"Best{asked}: {place}, {number(best['good_per_cost'])} good requests for a cost of 1, with "
        f"{percent(one['attainment'])} attained."
    )
    if slo["pays"] is not None and per == PER_GOOD:
        low, high = slo["pays"]
        yield note(f"A good request costs no more than {limit:.9g} from {number(low)} to {number(high)} req/s.")


def _batch(capacity: Capacity) -> Iterator[RenderableType]:
    rows = [row for row in capacity.runs if any(row["batch"][name] for name in ("mean", "kv_allows", "limit"))]
    if not rows:
        return
    yield heading("Batch")
    axis = "offered\nreq/s" if capacity.axis == RATE else capacity.axis
    table = figures_table(axis, "mean", "largest", "limit", "KV allows", "KV cache\ntokens", "held by a\nrequest")
    table.columns[0].justify = "right"
    for row in rows:
        batch = row["batch"]
        table.add_row(
            place_text(capacity, row),
            number(batch["mean"]),
            "-" if batch["largest"] is None else count(batch["largest"]),
            "-" if batch["limit"] is None else count(batch["limit"]),
            "-" if batch["kv_allows"] is None else f"{batch['kv_allows']:,.0f}",
            "-" if batch["kv_tokens"] is None else f"{batch['kv_tokens']:,.0f}",
            number(batch["tokens_held"]),
        )
    yield table
    yield from map(note, _batch_notes([row["batch"] for row in rows]))


def _batch_notes(batches: Sequence[Figures]) -> Iterator[str]:
    if any(one["observed_by"] not in (None, GAUGES) for one in batches):
        yield "Mean and largest: of requests in the system where no gauge tells what ran; no fewer, as some may wait."
    if any(one["tokens_held_by"] == "lengths" for one in batches):
        yield "Held by a request: its prompt and half its output, by the lengths, where no gauge tells."
    if any(one["kv_tokens"] is None for one in batches):
        yield "What the KV cache allows needs its size: --kv-tokens, or the kv_total gauge and --block-tokens."
