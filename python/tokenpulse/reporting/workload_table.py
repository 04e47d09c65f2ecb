"""A workload for people: arrivals, lengths, and how much of the prompts had been seen before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import RenderableType

from tokenpulse.reporting.layout import figures_table, heading, note
from tokenpulse.reporting.report import Report
from tokenpulse.reporting.text import count, number, percent, several


def parts(report: Report) -> Iterator[RenderableType]:
    """A section on the requests that were asked for; nothing where they are not known one by one."""
    workload = report.workload
    if workload is None:
        return
    yield heading("Workload")
    table = figures_table("", "count", "mean", "min", "P50", "P90", "P99", "max")
    between = workload["arrivals"]["interarrival"]
    if between is not None:
        table.add_row("between arrivals, s", *_row(between, number))
    for name in ("prompt_tokens", "output_tokens"):
        if workload[name] is not None:
            table.add_row(name.replace("_", " "), *_row(workload[name], count))
    if table.row_count:
        yield table
    rate = workload["arrivals"]["rate"]
    if rate is not None:
        yield note(
            f"{number(rate)} requests/s over {number(workload['seconds'])} s; "
            f"times between arrivals vary by {number(between['cv'])} of their mean (1: at random, 0: even)."
        )
    if workload["failed"]:
        yield note(f"{several(workload['failed'], 'request')} failed.")
    yield from _reuse(workload["reuse"])


def _row(figures: Mapping[str, Any], shown: Callable[[Any], str]) -> Iterator[str]:
    yield count(figures["count"])
    yield number(figures["mean"])
    yield from (shown(figures[name]) for name in ("min", "p50", "p90", "p99", "max"))


def _reuse(reuse: Mapping[str, Any] | None) -> Iterator[RenderableType]:
    if reuse is None:
        return
    of = f" of {count(reuse['block_tokens'])} tokens" if reuse["block_tokens"] else ""
    yield note(
        f"{percent(reuse['reused_share'])} of {several(reuse['block_references'], 'reference')} to blocks{of} are to "
        f"one seen before ({several(reuse['distinct_blocks'], 'block')} in all). "
        "tokenpulse kv puts them through a cache."
    )
