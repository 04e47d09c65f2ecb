"""What a run cost, as tables: in all, by token and request, and each group's part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType

from tokenpulse.reporting.layout import MAX_ROWS, figures_table, heading, note
from tokenpulse.reporting.report import Report
from tokenpulse.reporting.text import count, in_order, money, number, percent, printable

RULES = {"output": "output tokens", "total": "prompt and output tokens", "busy": "busy time"}
"""What a cost is shared out by, in words."""

BUSY = {
    ("scheduling", "prefill", "itl"): "from schedule to last token",
    ("ttft", "itl"): "from arrival to last token: no schedule is known",
    ("e2e",): "of successful requests: no gap between tokens is known",
}
"""What busy time is, by the metrics that it is the sum of."""

PART_HEADS = ("share", "cost", "per request", "per good", "per 1k output")


def lines(report: Report) -> list[tuple[str, str, str]]:
    """Rows of what it is, how much, and what that was divided by. Empty without a price."""
    cost = report.cost
    if cost is None:
        return []
    seconds = "an unknown time" if cost["seconds"] is None else f"{number(cost['seconds'])} s"
    output, prompt = report.tokens["output"], report.tokens["prompt"]
    both = None if output is None or prompt is None else output + prompt
    rows = [
        ("GPU-seconds", number(cost["gpu_seconds"]), f"{cost['gpus']:.9g} x {seconds} of wall time"),
        ("cost", money(cost["total"]), f"at {money(cost['gpu_hour'])} for a GPU and hour"),
        ("per 1k output tokens", money(cost["per_1k_output_tokens"]), _of(output)),
        ("per 1k total tokens", money(cost["per_1k_total_tokens"]), _of(both)),
        ("per request", money(cost["per_request"]), f"{_of(report.requests['attempted'])} that arrived"),
    ]
    for one in report.goodput:
        told = f"{_of(one['good'])} under {printable(one['name'])}"
        rows.append(("per good request", money(cost["per_good_request"][one["name"]]), told))
    return rows


def _of(amount: int | None) -> str:
    return "not known" if amount is None else f"of {count(amount)}"


def rule(cost: Mapping[str, Any]) -> str:
    """What the cost was shared out by, in a sentence."""
    busy = cost["busy_is"]
    told = "" if busy is None else f" ({BUSY[tuple(busy)]})"
    return f"Shared out by {RULES[cost['by']]}{told}."


def part_rows(report: Report) -> list[list[str]]:
    """Each group's part, and what is of no group, as cells under `PART_HEADS` with the group before them."""
    cost = report.cost
    if cost is None or not cost["parts"]:
        return []
    rows = []
    for one in in_order(cost["parts"])[:MAX_ROWS]:
        values = (f"{printable(v)}" if v is not None else "(none)" for v in one["key"].values())
        good = next(iter(one["per_good_request"].values()), None)
        figures = (one["cost"], one["per_request"], good, one["per_1k_output_tokens"])
        name = "(all others)" if one["other"] else ", ".join(values)
        rows.append([name, percent(one["share"]), *(money(figure) for figure in figures)])
    rest = cost["unattributed"]
    if rest["weight"]:
        rows.append(["(in no group)", percent(rest["share"]), money(rest["cost"]), "-", "-", "-"])
    return rows


def parts(report: Report) -> Iterator[RenderableType]:
    """The section on cost; nothing where no price was given."""
    rows = lines(report)
    if report.cost is None:
        return
    yield heading("Cost")
    table = figures_table("", "", "", left=1, head=False)
    table.columns[2].justify = "left"
    for row in rows:
        table.add_row(*row)
    yield table
    groups = part_rows(report)
    if groups:
        table = figures_table("group", *PART_HEADS)
        for cells in groups:
            table.add_row(*cells)
        yield table
        yield note(rule(report.cost))
        if report.goodput:
            yield note(f"Good: for the SLO set {printable(report.goodput[0]['name'])}.")
        if len(report.cost["parts"]) > MAX_ROWS:
            yield note(f"... and {count(len(report.cost['parts']) - MAX_ROWS)} more groups: --json has them all.")
