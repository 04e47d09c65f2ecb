"""The top of the page: what was measured, the figures to know first, and how the requests add up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tokenpulse.reporting.html import scale, words
from tokenpulse.reporting.html.markup import Child, Column, Markup, join, table, tag
from tokenpulse.reporting.html.series import first_arrival
from tokenpulse.reporting.layout import ENOUGH, MAX_ROWS
from tokenpulse.reporting.report import Report
from tokenpulse.reporting.text import count, number, percent, several

EPOCH_FROM, EPOCH_TO = 1e9, 4e9
"""Seconds between which a clock tells the date: 2001 to 2096. No other clock of a computer runs for so long."""

KEPT, MISSED = "\u2713 at or over", "\u2717 under"


def title(report: Report) -> str:
    """The page's name, as a browser shows it."""
    names = [str(one["path"]) for one in report.inputs] + [str(one["path"]) for one in report.reported]
    names = [name.rstrip("/").split("/")[-1] or name for name in dict.fromkeys(names)]
    return f"{names[0] if names else 'report'}{' and more' if len(names) > 1 else ''} - tokenpulse"


def headline(report: Report) -> str:
    """What was measured, in a line."""
    attempted = report.requests["attempted"]
    if attempted is None:
        return "Summaries of other tools"
    span = f" in {number(report.span_seconds)} s" if report.span_seconds else ""
    return f"{several(attempted, 'request')}{span}"


def measured(report: Report) -> Iterator[Child]:
    """Where the figures come from: inputs, the time of the first arrival, what was left out."""
    told = []
    at = first_arrival(report) if report.flow else None
    if at is not None:
        told.append(f"The first request arrived at {_moment(at)}.")
    seconds = report.flow["seconds"] if report.flow else None
    if seconds and report.cut is None and number(seconds) != number(report.span_seconds):
        told.append(f"From then to the last event {number(seconds)} s passed.")
    if told:
        yield tag("p", " ".join(told), class_="muted")
    if report.cut is not None:
        yield tag("p", _cut(report.cut), class_="warning")
    columns = [Column("input", words=True), Column("format", words=True), Column("lines"), Column("requests")]
    if report.inputs:
        rows: list[list[Child]] = [
            [str(one["path"]), str(one["format"]), _known(one["lines"]), _known(one["requests"])]
            for one in report.inputs[:MAX_ROWS]
        ]
        yield table(columns, rows, "Inputs")
    if len(report.inputs) > MAX_ROWS:
        yield tag("p", f"... and {several(len(report.inputs) - MAX_ROWS, 'more input')}.", class_="note")


def _known(amount: int | None) -> str:
    return "-" if amount is None else count(amount)


def _moment(seconds: float) -> str:
    if EPOCH_FROM <= seconds < EPOCH_TO:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(seconds))
        return f"{at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{seconds:,.3f} s of the log's clock"


def _cut(cut: Mapping[str, Any]) -> str:
    begin = "the beginning" if cut["from_seconds"] is None else f"{number(max(0.0, cut['from_seconds']))} s"
    end = "the end" if cut["to_seconds"] is None else f"{number(cut['to_seconds'])} s"
    how = "the steady part of the run" if cut["how"] == "steady" else "a part of the run"
    return (
        f"Only {how} is counted: requests that arrived from {begin} to {end} after the first arrival."
        f" {several(cut['outside'], 'other')} {'is' if cut['outside'] == 1 else 'are'} left out, save in the figures of"
        " requests in the system and of arrivals and ends, which show the whole run."
    )


def tiles(report: Report) -> Markup | None:
    """The figures to know first."""
    shown = []
    rates = report.rates
    if rates["output_tokens_per_second"] is not None:
        told = several(report.tokens["output"], "token")
        shown.append(_tile("Output tokens per second", number(rates["output_tokens_per_second"]), told))
    if rates["requests_per_second"] is not None:
        told = f"{count(report.requests['succeeded'])} succeeded"
        shown.append(_tile("Requests per second", number(rates["requests_per_second"]), told))
    if report.workload and not report.requests["by_status"]:
        shown += _asked(report.workload)
    for metric, name in (("ttft", "TTFT"), ("tpot", "TPOT"), ("itl", "ITL"), ("e2e", "E2E")):
        figures = report.latency[metric]
        if figures is not None:
            far = "p99" if figures["count"] >= ENOUGH["p99"] else "max"
            told = f"P50; {'P99' if far == 'p99' else 'largest'} {scale.duration(figures[far])}"
            shown.append(_tile(name, scale.duration(figures["p50"]), told))
    shown += [_goodput(one, len(words.judged(report)) == 1) for one in words.judged(report)[:4]]
    if report.availability is not None:
        shown.append(_tile("Availability", percent(report.availability), "of the ended, aborts left out"))
    return tag("dl", *shown, class_="tiles") if shown else None


def _asked(workload: Mapping[str, Any]) -> Iterator[Markup]:
    """What a trace asks for."""
    arrivals = workload["arrivals"] or {}
    if arrivals.get("rate") is not None:
        yield _tile("Arrivals per second", number(arrivals["rate"]), several(workload["requests"], "request"))
    for key, name in (("prompt_tokens", "Prompt tokens"), ("output_tokens", "Output tokens")):
        if workload.get(key):
            yield _tile(name, number(workload[key]["mean"]), f"mean; {count(workload[key]['sum'])} in all")


def _tile(name: str, figure: Child, told: Child, mood: str | None = None) -> Markup:
    return tag(
        "div",
        tag("dt", name),
        tag("dd", figure, class_="figure"),
        tag("dd", told, class_=mood),
        class_="tile",
    )


def _goodput(one: Mapping[str, Any], only: bool) -> Markup:
    name = "Attained" if only else f"Attained, {one['name']}"
    if one["attainment"] is None:
        return _tile(name, "-", "no request judged")
    kept = one["attainment"] >= one["slo"]["objective"]
    objective = f"{100 * one['slo']['objective']:.9g} %"
    rate = one["requests_per_second"]
    speed = None if rate is None else f"{number(rate)} good requests per second. "
    told = f"{KEPT if kept else MISSED} the objective of {objective}"
    return _tile(name, percent(one["attainment"]), join(speed, tag("span", told, class_="good" if kept else "bad")))


def accounting(report: Report) -> Markup:
    """How the requests add up: attempted = succeeded + ... ."""
    requests = report.requests
    by_status = requests["by_status"] or {}
    ended_as = {"succeeded": ("stop", "length"), "failed": ("error", "timeout", "oom")}
    rows: list[list[Child]] = []
    for place, name in enumerate(("succeeded", "failed", "aborted", "rejected", "lost", "in_flight")):
        detail = ", ".join(f"{s} {count(by_status[s])}" for s in ended_as.get(name, ()) if s in by_status)
        amount = requests[name]
        share = amount / requests["attempted"] if requests["attempted"] and amount is not None else None
        rows.append(
            [
                Markup(f"{'+&nbsp;' if place else ''}{name.replace('_', '&nbsp;')}"),
                _known(amount),
                percent(share),
                detail,
            ]
        )
    rows.append([Markup("=&nbsp;attempted"), tag("b", _known(requests["attempted"])), "", ""])
    columns = [Column("", words=True), Column("requests"), Column("share"), Column("ended as", words=True)]
    return table(columns, rows, "Requests", stacked=False)
