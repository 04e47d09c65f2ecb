"""The alerts of a log for people: what began, fired, peaked and cleared when, and how near the rest came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Protocol

from rich.console import RenderableType

from tokenpulse.analysis.alerts.evaluation import Highest, NotJudged
from tokenpulse.analysis.alerts.machine import BY_ABSENCE, Alert
from tokenpulse.analysis.alerts.rules import CRITICAL, MEANING, SEVERITIES, UNITS, WARNING
from tokenpulse.reporting import reasons
from tokenpulse.reporting.layout import MAX_ROWS, figures_table, heading, not_judged, note, show, unusable_table
from tokenpulse.reporting.text import count, ms, number, percent, printable, several

GONE = "!"
"""Marks an alert that cleared because its figure was absent."""


class Alerted(Protocol):
    """What is asked of a report of alerts."""

    @property
    def alerts(self) -> tuple[Alert, ...]: ...
    @property
    def pending(self) -> tuple[Alert, ...]: ...
    @property
    def highest(self) -> tuple[Highest, ...]: ...
    @property
    def not_judged(self) -> tuple[NotJudged, ...]: ...
    @property
    def evaluations(self) -> int: ...
    @property
    def first_ns(self) -> int | None: ...
    @property
    def newest_ns(self) -> int | None: ...
    @property
    def inputs(self) -> tuple[Mapping[str, Any], ...]: ...
    @property
    def rejected(self) -> Mapping[str, int]: ...
    def seconds(self, t_ns: int | None) -> float | None: ...


def write(report: Alerted, stream: IO[str]) -> None:
    """Print the report to a stream; a terminal gets bold headings, everything else plain text."""
    show(parts(report), stream)


def parts(report: Alerted) -> Iterator[RenderableType]:
    """The report's sections, top to bottom."""
    for one in report.inputs:
        yield note(f"{printable(one['path'])}: {one['format']}, {_length(report)}")
    yield from _alerts(report)
    if report.highest:
        yield from _highest(report)
    if report.not_judged:
        yield from not_judged("alert", ((_name(one.rule, one.of), one.needs) for one in report.not_judged))
    table, skipped = unusable_table(report.inputs)
    if skipped or report.rejected:
        yield heading("Not used")
        told = (("lines", skipped, reasons.SKIPPED), ("events", report.rejected, reasons.REJECTED))
        for group, found, meaning in told:
            for reason, times in found.items():
                table.add_row(group, reason, count(times), meaning.get(reason, ""))
        yield table


def _length(report: Alerted) -> str:
    lasted = report.seconds(report.newest_ns)
    return f"{number(lasted)} s, {several(report.evaluations, 'evaluation')}"


def _alerts(report: Alerted) -> Iterator[RenderableType]:
    alerts = [*report.alerts, *report.pending]
    if not report.alerts:
        yield heading("No alert fired")
    else:
        yield heading("Alerts, in seconds since the first event")
    if not alerts:
        return
    table = figures_table("alert", "severity", "began", "fired", "peak", "above", "peaked", "cleared", left=2)
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for alert in alerts[:MAX_ROWS]:
        cleared = {"pending": "pending", "firing": "firing"}.get(alert.state, _moment(report, alert.cleared_ns))
        table.add_row(
            _name(alert.rule, alert.of),
            alert.severity,
            _moment(report, alert.began_ns),
            _moment(report, alert.fired_ns),
            _figure(alert.rule, alert.peak),
            _figure(alert.rule, alert.threshold),
            _moment(report, alert.peak_ns),
            cleared + (GONE if alert.cleared_by == BY_ABSENCE else ""),
        )
    yield table
    if len(alerts) > MAX_ROWS:
        yield note(f"{count(len(alerts) - MAX_ROWS)} more: see --json.")
    if any(alert.cleared_by == BY_ABSENCE for alert in alerts[:MAX_ROWS]):
        yield note(f"{GONE} cleared because there was no figure any more.")
    for rule in dict.fromkeys(alert.rule for alert in report.alerts):
        yield note(f"{rule}: {MEANING[rule]}.")


def _highest(report: Alerted) -> Iterator[RenderableType]:
    yield heading("Highest figures")
    table = figures_table("alert", "highest", "at", *(f"{severity} above" for severity in SEVERITIES))
    table.columns[0].no_wrap = True
    for one in report.highest:
        table.add_row(
            _name(one.rule, one.of),
            "-" if one.value is None else _figure(one.rule, one.value),
            _moment(report, one.t_ns),
            *_thresholds(one),
        )
    yield table


def _thresholds(one: Highest) -> Sequence[str]:
    found = one.thresholds
    return [_figure(one.rule, found[severity]) if severity in found else "" for severity in (WARNING, CRITICAL)]


def _name(rule: str, of: str | None) -> str:
    return rule if of is None else f"{rule} {printable(of)}"


def _moment(report: Alerted, t_ns: int | None) -> str:
    seconds = report.seconds(t_ns)
    return "-" if seconds is None else f"{seconds:,.1f}"


def _figure(rule: str, value: float) -> str:
    """A figure in its unit."""
    unit = UNITS[rule]
    if unit == "seconds":
        return f"{ms(value)} ms"
    if unit == "ratio":
        return percent(value) if value <= 1 else f"{100 * value:,.0f} %"
    return f"{number(value)} x" if unit == "times" else number(value)
