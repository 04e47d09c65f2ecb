"""The parts of a report that say how many requests were served at all, and what that leaves of the error budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType

from tokenpulse.reporting.layout import figures_table, heading, note
from tokenpulse.reporting.report import Report
from tokenpulse.reporting.text import count, number, percent, printable, several

BUDGET_HEADS = ("objective", "bad", "judged", "burn rate", "left")


def rates(report: Report) -> Iterator[tuple[str, str, str]]:
    """Rows of name, share and what it is a share of; what the inputs cannot tell is left out."""
    judged = report.error_budget["availability"]
    if judged["judged"] is None:
        return
    ended = sum(report.requests["by_status"].values())
    of_judged = f"of {several(judged['judged'], 'ended request')}, aborts left out"
    yield "availability", percent(report.availability), of_judged
    yield "error rate", percent(report.error_rate), f"{count(judged['bad'])} {of_judged}"
    if "degraded" not in report.absent or report.degraded is not None:
        yield "degraded", percent(report.degraded), f"of {count(ended)} ended"
    oom = report.requests["by_status"].get("oom", 0)
    events = "" if report.oom_events is None else f"; {several(report.oom_events, 'event')} counted apart"
    yield "out of memory", percent(report.oom_rate), f"{count(oom)} of {count(ended)} ended{events}"
    if report.preemptions["requests"] is not None:
        often = several(report.preemptions["events"], "preemption")
        told = f"{count(report.preemptions['requests'])} of {count(ended)} ended; {often}"
        each = report.preemptions_per_request
        yield "preempted", percent(report.preemption_rate), told + (f", {number(each)} a request" if each else "")


def budgets(report: Report) -> list[tuple[str, Mapping[str, Any]]]:
    """Of availability and each SLO set that judged a request, by name: objective, bad, judged, burn rate, left."""
    found = [("availability", report.error_budget["availability"])]
    for one in report.goodput:
        if one["good"] is not None:
            bad = one["judged"] - one["good"]
            found.append((one["name"], {**one, "objective": one["slo"]["objective"], "bad": bad}))
    return [(name, one) for name, one in found if one["budget_left"] is not None]


def budget_cells(one: Mapping[str, Any]) -> list[str]:
    """An error budget as the cells that a table and a page show under `BUDGET_HEADS`."""
    return [
        f"{100 * one['objective']:.9g} %",
        count(one["bad"]),
        count(one["judged"]),
        number(one["burn_rate"]),
        left(one["budget_left"]),
    ]


def left(share: float) -> str:
    """What is left of a budget, in percent; below 0 where more was spent than there was.

    >>> left(1.0), left(0.125), left(-44.4545), left(-0.0001)
    ('100 %', '12.5 %', '-4,445 %', '-0.01 %')
    """
    hundred = 100 * share
    if hundred < 0:
        return f"-{number(max(0.01, -hundred))} %"
    return "100 %" if share == 1 else f"{number(min(99.99, hundred)) if hundred else '0'} %"


def parts(report: Report) -> Iterator[RenderableType]:
    """The error budgets, where something was judged."""
    rows = budgets(report)
    if not rows:
        return
    yield heading("Error budgets")
    table = figures_table("", *BUDGET_HEADS)
    for name, one in rows:
        table.add_row(printable(name), *budget_cells(one))
    yield table
    yield note("Of this run's own requests: as if the budget were meant to last for the run alone.")
