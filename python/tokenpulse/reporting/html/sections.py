"""The page's tables: latencies, goodput and what was missed, where time went, what could not be used, definitions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tokenpulse.model import METRICS
from tokenpulse.reporting import availability_table, cost_table, reasons
from tokenpulse.reporting.html import words
from tokenpulse.reporting.html.markup import Child, Column, Markup, table, tag
from tokenpulse.reporting.layout import ENOUGH, HEADS, MARK, MAX_ROWS
from tokenpulse.reporting.report import Report
from tokenpulse.reporting.table import limits
from tokenpulse.reporting.text import GOODPUT_HEADS, count, goodput_cells, ms, number, percent, several


def latencies(report: Report) -> Iterator[Markup]:
    """Every metric's count, mean, percentiles and largest value."""
    columns = [Column("", words=True), Column("values"), Column("mean"), *map(Column, HEADS.values()), Column("max")]
    rows: list[list[Child]] = []
    marked, empty = False, []
    for metric in METRICS:
        figures = report.latency[metric]
        if figures is None:
            empty.append(words.SHORT[metric])
            continue
        row: list[Child] = [words.heading(metric), count(figures["count"]), ms(figures["mean"])]
        for name in HEADS:
            few = figures["count"] < ENOUGH[name]
            marked = marked or few
            row.append(ms(figures[name]) + MARK * few)
        rows.append([*row, ms(figures["max"])])
    if rows:
        yield table(columns, rows, f"Latency of the {words.counted(report)}, ms")
    told = [f"{MARK} too few values for this percentile: it is near the maximum."] if marked else []
    if empty:
        told.append(f"No values: {', '.join(empty)}.")
    if told:
        yield tag("p", " ".join(told), class_="note")
    slowest: list[list[Child]] = [
        [
            words.SHORT[metric],
            words.listed([f"{one['id']}: {ms(one['value'])}" for one in report.slowest[metric]]),
        ]
        for metric in ("ttft", "tpot", "e2e", "itl")
        if report.slowest[metric]
    ]
    if slowest:
        yield table([Column("", words=True), Column("request: ms", words=True)], slowest, "Slowest requests")


def goodput(report: Report) -> Iterator[Markup]:
    """What each SLO set judged, what it found good, what was missed, and how smooth the tokens came."""
    columns = [Column("SLO set", words=True), Column("limits", words=True)]
    columns += [Column(head) for head in GOODPUT_HEADS]
    rows: list[list[Child]] = [
        [
            one["name"],
            limits(one["slo"]),
            *goodput_cells(one),
        ]
        for one in words.judged(report)[:MAX_ROWS]
    ]
    yield table(columns, rows, "Goodput")
    missed: list[list[Child]] = [
        [one["name"], _missed(reason), count(times), percent(times / one["judged"])]
        for one in words.judged(report)[:MAX_ROWS]
        for reason, times in one["missed"].items()
    ]
    if missed:
        columns = [Column("SLO set", words=True), Column("missed", words=True), Column("requests"), Column("of judged")]
        yield table(columns, missed, "What was missed")
    else:
        yield tag("p", "No request that was judged missed a limit.", class_="note")
    columns = [Column("SLO set", words=True), *(Column(h) for h in ("requests", "pooled", "mean", "min", "P1", "P50"))]
    rows = [
        [
            name,
            count(one["count"]),
            *("-" if one[key] is None else f"{one[key]:.4f}" for key in ("index", "mean", "min", "p1", "p50")),
        ]
        for name, one in list(report.fluidity.items())[:MAX_ROWS]
    ]
    yield table(columns, rows, "Fluidity: the share of tokens that came by their deadline, per request")
    if len(words.judged(report)) > MAX_ROWS:
        yield tag("p", f"... and {several(len(words.judged(report)) - MAX_ROWS, 'more SLO set')}.", class_="note")


def served(report: Report) -> Iterator[Markup]:
    """The share of requests that were served at all, and what is left of the error budgets."""
    rows: list[list[Child]] = [list(row) for row in availability_table.rates(report)]
    if rows:
        yield table([Column("", words=True), Column("share"), Column("", words=True)], rows, "Availability")
    budgets: list[list[Child]] = [
        [name, *availability_table.budget_cells(one)] for name, one in availability_table.budgets(report)[:MAX_ROWS]
    ]
    if budgets:
        columns = [Column("", words=True), *map(Column, availability_table.BUDGET_HEADS)]
        yield table(columns, budgets, "Error budgets, of this run's own requests")


def cost(report: Report) -> Iterator[Markup]:
    """What the run cost, in all and by token and request, and each group's part of it."""
    if report.cost is None:
        return
    rows: list[list[Child]] = [list(row) for row in cost_table.lines(report)]
    yield table([Column("", words=True), Column("amount"), Column("", words=True)], rows, "Cost")
    groups: list[list[Child]] = [list(row) for row in cost_table.part_rows(report)]
    if groups:
        columns = [Column("group", words=True), *map(Column, cost_table.PART_HEADS)]
        yield table(columns, groups, "Each group's part")
        yield tag("p", cost_table.rule(report.cost), class_="note")


def _missed(reason: str) -> str:
    return {"no_tokens": "no token"}.get(reason, reason.replace("+", " + "))


def where_time_went(flow: Mapping[str, Any] | None) -> Iterator[Markup]:
    """What arrivals and ends say about the run, and about whoever sent the requests."""
    if flow is None:
        return
    rows: list[list[Child]] = []
    if flow["concurrency"]:
        peak = flow["concurrency"]["peak"]
        exact = peak["at_least"] == peak["at_most"]
        told = count(round(peak["at_most"])) if exact else f"{peak['at_least']:,g} to {peak['at_most']:,g}"
        rows.append(["Requests in the system", f"mean {number(flow['concurrency']['mean'])}, at most {told}"])
    if flow["utilisation"] is not None:
        told = f"{number(flow['arrival_rate'])} arrived and {number(flow['service_rate'])} ended per second"
        rows.append(["Arrival rate / service rate", f"{number(flow['utilisation'])}: {told}"])
    if flow["steady"]:
        one = flow["steady"]
        told = (
            f"from {number(one['from_seconds'])} s to {number(one['to_seconds'])} s, {percent(one['share'])} of the run"
        )
        rows.append(["Steady part", told])
    if flow["first_wave"] and flow["first_wave"]["ttft_mean"] is not None:
        rows.append(["First wave", _first_wave(flow["first_wave"])])
    if flow["littles_law"] and flow["littles_law"]["relative_difference"] is not None:
        rows.append(["Little's law", _littles_law(flow["littles_law"])])
    if flow["coalesced"]["share"] is not None:
        one = flow["coalesced"]
        told = f"{percent(one['share'])} of {several(one['emissions'], 'emission')} had several tokens"
        if one["zero_gap_share"]:
            told += f"; {percent(one['zero_gap_share'])} of the gaps are 1 \u00b5s or less"
        rows.append(["Coalesced tokens", told])
    if flow["saturation"]:
        rows.append(["The client", _saturation(flow["saturation"])])
    if rows:
        yield table([Column("", words=True), Column("", words=True)], rows, "Checks on the run")


def _first_wave(one: Mapping[str, Any]) -> str:
    told = f"{several(one['requests'], 'request')} arrived before any had ended: mean TTFT {ms(one['ttft_mean'])} ms"
    if one["others_ttft_mean"] is None:
        return told
    return f"{told}, that of the others {ms(one['others_ttft_mean'])} ms"


def _littles_law(one: Mapping[str, Any]) -> str:
    told = (
        f"{number(one['mean_in_system'])} in the system on average; throughput times mean time gives"
        f" {number(one['throughput_times_mean_time'])}, a difference of {percent(one['relative_difference'])}"
    )
    if one["warning"]:
        return f"{told}. Over 5 % in a steady part: the input contradicts itself"
    return told if one["warning"] is False else f"{told}; not judged, which needs {one['needs']}"


def _saturation(one: Mapping[str, Any]) -> str:
    told = str(one["verdict"])
    if one["needs"] and not one["judged_by"]:
        told += f"; needs {words.listed([str(need) for need in one['needs']], 'or')}"
    return told


def unusable(report: Report) -> Iterator[Markup]:
    """What was not counted, and why."""
    skipped: dict[str, int] = {}
    for one in report.inputs:
        for reason, times in one["skipped"].items():
            skipped[reason] = skipped.get(reason, 0) + times
    rows: list[list[Child]] = [
        [f"line skipped: {reason}", count(times), reasons.SKIPPED.get(reason, "")]
        for reason, times in sorted(skipped.items())
    ]
    rows += [
        [f"event refused: {reason}", count(times), reasons.REJECTED.get(reason, "")]
        for reason, times in report.rejected.items()
    ]
    if report.clamped:
        rows.append(["end clamped", count(report.clamped), reasons.CLAMPED])
    rows += [
        [f"not measured: {words.SHORT.get(metric, metric)}", count(times), reasons.MISSING.get(metric, "")]
        for metric, times in report.missing.items()
    ]
    if rows:
        columns = [Column("reason", words=True), Column("count"), Column("what it means", words=True)]
        yield table(columns, rows, "Not counted")
    elif report.requests["attempted"]:
        told = "Every line and every event was used"
        yield tag("p", told + (", and every metric of every request was measured." if not report.absent else "."))
    if report.notices:
        yield _notices(report)
    if report.absent:
        reasons_of: dict[str, list[str]] = {}
        for name, why in report.absent.items():
            reasons_of.setdefault(why, []).append(name)
        absent: list[list[Child]] = [[why, words.listed(names)] for why, names in reasons_of.items()]
        columns = [Column("why", words=True), Column("figures, as the JSON names them", words=True)]
        yield table(columns, absent, "What these inputs cannot tell")


def _notices(report: Report) -> Markup:
    rows: list[list[Child]] = [
        [str(one["path"]), _known(one.get("line")), str(one["reason"]), str(one.get("message") or "")]
        for one in report.notices[:MAX_ROWS]
    ]
    columns = [Column("input", words=True), Column("line"), Column("reason", words=True), Column("what", words=True)]
    return table(columns, rows, "The first of them")


def _known(amount: int | None) -> str:
    return "-" if amount is None else count(amount)


def definitions(report: Report) -> Iterator[Markup]:
    """What the figures mean, and by which rules they were formed."""
    rows: list[list[Child]] = [[words.heading(metric), words.MEANING[metric]] for metric in METRICS]
    columns = [Column("", words=True), Column("", words=True)]
    yield table(columns, rows, "Metrics")
    rule = report.rules["itl"]
    error = math.ceil(1e4 * report.rules["relative_error"]) / 100
    rows = [
        [
            "Percentiles",
            f"By nearest rank, within {error} % of the exact value above 1 \u00b5s. Counts and sums are exact.",
        ],
        ["ITL rule", f"{rule}: {words.ITL_RULE[rule]}"],
        [
            "Rates",
            "Divided by the time from the first arrival to the last token; those of a bin by what the run has of it.",
        ],
        [
            "Good",
            "Ended successfully with at least one token and under every limit of the SLO set (less than, not equal).",
        ],
        ["Judged", "Ended, save what the client aborted. Attainment is good / judged."],
        ["Availability", "1 - (errors, timeouts, out of memory, rejected and lost) / judged."],
        [
            "Fluidity",
            "Tokens that came by their deadline / all deadlines; time won by an early token may be used later.",
        ],
    ]
    yield table(columns, rows, "Rules")
    if report.definitions:
        differ: list[list[Child]] = [
            [words.SHORT.get(metric, metric), tool, text]
            for metric, texts in report.definitions.items()
            for tool, text in texts.items()
        ]
        columns = [Column("metric", words=True), Column("tool", words=True), Column("definition", words=True)]
        yield table(columns, differ, "Where the tool that wrote an input defines a metric otherwise")
