"""What other tools' files say: the figures of their own summaries, and the workload of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tokenpulse.reporting.html import words
from tokenpulse.reporting.html.markup import Child, Column, Markup, table, tag
from tokenpulse.reporting.layout import MAX_ROWS
from tokenpulse.reporting.report import Report
from tokenpulse.reporting.text import count, ms, number, percent, several

MOST_FIGURES = 400
"""Figures shown at most of what a tool reported itself."""

COLUMNS = {"mean": "mean", "p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "max": "max"}


def reported(report: Report) -> Iterator[Markup]:
    """What the tools that wrote the inputs say themselves: latencies side by side, then all in their own words."""
    for one in report.reported[:MAX_ROWS]:
        yield from _latencies(one)
        figures = list(_flat(one["figures"]))
        if figures:
            columns = [Column("figure", words=True), Column("value", words=True)]
            told = f"{_whose(one)}, in its own names and units"
            whole = table(columns, figures[:MOST_FIGURES], told, stacked=False)
            more = len(figures) - MOST_FIGURES
            left = tag("p", f"... and {several(more, 'more figure')}.", class_="note") if more > 0 else None
            yield tag("details", tag("summary", told), whole, left)
    more = len(report.reported) - MAX_ROWS
    if more > 0:
        yield tag("p", f"... and {several(more, 'more summary')[:-1]}ies." if more > 1 else "... and 1 more summary.")


def _whose(one: Mapping[str, Any]) -> str:
    return f"{one['tool']}: {one['path']}"


def _latencies(one: Mapping[str, Any]) -> Iterator[Markup]:
    """The latencies of a summary, in milliseconds like all others here, and its rates."""
    figures = one.get("normalised") or {}
    rows: list[list[Child]] = [
        [words.SHORT[metric], *(ms(found[key]) if found.get(key) is not None else "-" for key in COLUMNS)]
        for metric in words.SHORT
        if isinstance(found := figures.get(metric), Mapping)
    ]
    if rows:
        yield table([Column("", words=True), *map(Column, COLUMNS.values())], rows, f"{_whose(one)}, latency in ms")
    counts: list[list[Child]] = [
        [name, amount(found)]
        for group, key, name in _COUNTS
        if isinstance(parent := figures.get(group), Mapping) and (found := parent.get(key)) is not None
    ]
    if figures.get("duration") is not None:
        counts.append(["seconds", number(figures["duration"])])
    if counts:
        yield table([Column("", words=True), Column("")], counts, f"{_whose(one)}, counts and rates", stacked=False)


_COUNTS = (
    ("requests", "attempted", "requests attempted"),
    ("requests", "succeeded", "requests succeeded"),
    ("tokens", "prompt", "prompt tokens"),
    ("tokens", "output", "output tokens"),
    ("rates", "requests", "requests per second"),
    ("rates", "output_tokens", "output tokens per second"),
    ("rates", "total_tokens", "tokens per second, prompt and output"),
)


def amount(found: float) -> str:
    """A count as it is, anything else in a few digits.

    >>> amount(12345), amount(0.5)
    ('12,345', '0.5')
    """
    return count(found) if isinstance(found, int) else number(found)


def _flat(figures: Mapping[str, Any], before: str = "") -> Iterator[list[Child]]:
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, float):
            yield [f"{before}{name}", f"{value:,.6g}"]
        elif isinstance(value, (int, str)):
            yield [f"{before}{name}", str(value)]


def workload(found: Mapping[str, Any]) -> Iterator[Markup]:
    """When requests arrived, how long they were, and how much of their prompts had been seen before."""
    rows: list[list[Child]] = [["Requests", count(found["requests"])]]
    arrivals = found["arrivals"] or {}
    if arrivals.get("rate") is not None:
        rows.append(["Arrivals per second", number(arrivals["rate"])])
    between = arrivals.get("interarrival")
    if between:
        told = f"mean {ms(between['mean'])} ms, P50 {ms(between['p50'])} ms, P99 {ms(between['p99'])} ms"
        rows.append(["Time between arrivals", told])
        if between["cv"] is not None:
            rows.append(["Its coefficient of variation", f"{number(between['cv'])} (1: a Poisson process)"])
    if found["reuse"]:
        reuse = found["reuse"]
        told = f"{percent(reuse['reused_share'])} of {several(reuse['block_references'], 'block reference')}"
        rows.append(["Prefix blocks seen before", f"{told}, to {several(reuse['distinct_blocks'], 'distinct block')}"])
    yield table([Column("", words=True), Column("", words=True)], rows, "Arrivals")
    keys = ("count", "mean", "p50", "p90", "p99", "max", "sum")
    lengths: list[list[Child]] = [
        [name.replace("_", " "), *("-" if found[name][key] is None else amount(found[name][key]) for key in keys)]
        for name in ("prompt_tokens", "output_tokens")
        if found.get(name)
    ]
    if lengths:
        heads = ("requests", "mean", "P50", "P90", "P99", "max", "sum")
        yield table([Column("", words=True), *map(Column, heads)], lengths, "Lengths in tokens")
