"""A comparison for people: what changed and between which ends, in tables that fit 80 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import IO

from rich.console import RenderableType
from rich.table import Table

from tokenpulse.analysis.changes import BETTER, NOT_JUDGED, WORSE, Figures
from tokenpulse.analysis.compare import FELT, JUDGED, NAMES, Comparison
from tokenpulse.reporting.layout import MAX_ROWS, figures_table, heading, note, show
from tokenpulse.reporting.text import count, in_order, ms, number, percent, printable

TENFOLD = 9.0
"""From this relative change on it is told as a factor."""

LABELS = {"preemption_stall": "stall"}


def write(comparison: Comparison, stream: IO[str]) -> None:
    """Print the comparison to a stream; a terminal gets bold headings, everything else plain text."""
    show(parts(comparison), stream)


def parts(comparison: Comparison) -> Iterator[RenderableType]:
    """The comparison's sections, top to bottom."""
    yield from _runs(comparison)
    yield from _latency(comparison)
    yield from _distances(comparison)
    yield from _others(comparison)
    if comparison.by:
        yield from _by(comparison)
    if comparison.fail_if:
        yield from _fail_if(comparison)
    yield from _closing(comparison)


def _runs(comparison: Comparison) -> Iterator[RenderableType]:
    yield heading("Runs")
    table = figures_table("", "input", "requests", "succeeded", "seconds", left=2)
    for name, run in (("before", comparison.before), ("after", comparison.after)):
        paths = [printable(path) for path in run["paths"][:3]]
        more = len(run["paths"]) - len(paths)
        table.add_row(
            name,
            ", ".join(paths) + (f" and {count(more)} more" if more else ""),
            "-" if run["attempted"] is None else count(run["attempted"]),
            "-" if run["succeeded"] is None else count(run["succeeded"]),
            number(run["span_seconds"]),
        )
    yield table


def _latency(comparison: Comparison) -> Iterator[RenderableType]:
    yield heading(f"Latency, ms, and its change with the interval of {_confidence(comparison)}")
    table = _changes_table("", "")
    for metric, latency in comparison.latency.items():
        if latency is None:
            continue
        for n, (name, label) in enumerate(NAMES.items()):
            one = latency[name]
            table.add_row(
                LABELS.get(metric, metric) if not n else "",
                label,
                ms(one["before"]),
                ms(one["after"]),
                change(one["relative_change"]),
                span(one["relative_interval"]),
                mark(one["verdict"]),
            )
    if table.row_count:
        yield table
    lacking = [LABELS.get(metric, metric) for metric, latency in comparison.latency.items() if latency is None]
    if lacking:
        yield note(f"No values in both runs: {', '.join(lacking)}.")


def _changes_table(*heads: str) -> Table:
    table = figures_table(*heads, "before", "after", "change", "between", "", left=len(heads))
    table.columns[-1].justify = "left"
    for column in table.columns[: len(heads)]:
        column.no_wrap, column.min_width = True, None
    return table


def _distances(comparison: Comparison) -> Iterator[RenderableType]:
    table = figures_table(
        "", "values\nbefore", "values\nafter", "KS\ndistance", "KS by\nchance", "moved by\nms", "verdict"
    )
    table.columns[-1].justify = "left"
    for metric, latency in comparison.latency.items():
        if latency is not None:
            table.add_row(
                LABELS.get(metric, metric),
                count(latency["count"]["before"]),
                count(latency["count"]["after"]),
                f"{latency['ks']:.3f}",
                f"{latency['ks_by_chance']:.3f}",
                ms(latency["wasserstein_seconds"]),
                latency["verdict"],
            )
    if table.row_count:
        yield heading("Distributions")
        yield table
        yield note(
            "KS distance: the largest difference of the shares below a value; by chance it exceeds the next figure in "
            "one of 20 runs without a change. Moved by: how far a value lies from where it was, on average."
        )


def _others(comparison: Comparison) -> Iterator[RenderableType]:
    yield heading("Throughput, errors and goodput")
    table = _changes_table("")
    for name, one in (
        ("output tokens/s", comparison.rates["output_tokens_per_second"]),
        ("requests/s", comparison.rates["requests_per_second"]),
        *(row for good in comparison.goodput for row in _goodput_rates(good, len(comparison.goodput) > 1)),
    ):
        table.add_row(name, number(one["before"]), number(one["after"]), *_change_cells(one))
    for name, one in (
        ("error rate", comparison.shares["error_rate"]),
        ("degraded", comparison.shares["degraded"]),
        *((_of("attained", good, len(comparison.goodput) > 1), good["attainment"]) for good in comparison.goodput),
    ):
        table.add_row(
            name,
            percent(one["before"]),
            percent(one["after"]),
            points(one["change"]),
            span(one["interval"]),
            mark(one["verdict"]),
        )
    yield table


def _goodput_rates(good: Figures, several: bool) -> Iterator[tuple[str, Figures]]:
    yield _of("good req/s", good, several), good["requests_per_second"]
    yield _of("good tok/s", good, several), good["tokens_per_second"]


def _of(name: str, good: Figures, several: bool) -> str:
    return f"{name}, {printable(good['name'])}" if several else name


def _change_cells(one: Figures) -> Sequence[str]:
    return change(one["relative_change"]), span(one["relative_interval"]), mark(one["verdict"])


def _by(comparison: Comparison) -> Iterator[RenderableType]:
    keys = list(comparison.by[0]["key"])
    yield heading("Change by " + ", ".join(printable(key) for key in keys))
    shown = [(metric, name) for metric in FELT[:3] for name in JUDGED]  # as many as fit 80 columns
    heads = [f"{metric.upper()}\n{NAMES[name]}" for metric, name in shown]
    table = figures_table("group", "requests\nafter", *heads)
    for one in in_order(comparison.by)[:MAX_ROWS]:
        cells = []
        for metric, name in shown:
            figure = (one["latency"][metric] or {}).get(name)
            cells.append("-" if figure is None else change(figure["relative_change"], short=True) + _sign(figure))
        values = (printable(value) if value is not None else "(none)" for value in one["key"].values())
        table.add_row(", ".join(values), count(one["attempted"]["after"]), *cells)
    yield table
    yield note("In %; ! is clearly worse, + clearly better, all groups looked at together. E2E: --json.")
    if len(comparison.by) > MAX_ROWS:
        yield note(f"... and {count(len(comparison.by) - MAX_ROWS)} more groups: --json has them all.")
    for name, only in comparison.by_only.items():
        if only:
            told = "; ".join(", ".join(printable(str(v)) for v in key.values()) for key in only[:5])
            more = f" and {count(len(only) - 5)} more" if len(only) > 5 else ""
            yield note(f"Only {name}: {told}{more}.")


def _sign(figure: Figures) -> str:
    return {WORSE: "!", BETTER: "+"}.get(figure["clearly"], " ")


def _fail_if(comparison: Comparison) -> Iterator[RenderableType]:
    yield heading("Conditions to fail by")
    table = figures_table("condition", "before", "after", "change", "holds", "", left=1)
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for one in comparison.fail_if:
        figures = (one["before"], one["after"])
        table.add_row(
            printable(one["condition"]),
            *("-" if value is None else f"{value:.6g}" for value in figures),
            change(one["relative_change"]),
            {True: "yes", False: "no", None: "unknown"}[one["holds"]],
            one["why"] or "",
        )
    yield table
    yield note("Times in s, rates per s, shares of 1.")


def _closing(comparison: Comparison) -> Iterator[RenderableType]:
    yield heading(f"Verdict: {comparison.verdict}")
    for word in (WORSE, BETTER):
        told = [printable(one["figure"]) for one in comparison.because if one["verdict"] == word]
        if told:
            yield note(f"Clearly {word}: {', '.join(told)}.")
    yield note(
        f"By P50 and P99 of {', '.join(FELT)}, output tokens/s, error rate and attainment, by intervals that all of "
        f"them keep together with {_confidence(comparison)}. An open end, or ?: too few values to tell."
    )
    for warning in comparison.warnings:
        yield note(f"Warning: {printable(warning)}.")


def _confidence(comparison: Comparison) -> str:
    return f"{100 * comparison.rules['confidence']:.3g} %"


# Figures as text


def change(share: float | None, short: bool = False) -> str:
    """A relative change in percent, with its sign; as a factor where it is tenfold or more.

    >>> change(0.1234), change(-0.0712), change(0.0), change(8.83), change(11.5), change(None), change(0.5, short=True)
    ('+12.3 %', '-7.1 %', '0 %', '+883 %', 'x 12.5', '-', '+50.0')
    """
    if share is None or not math.isfinite(share):
        return "-"
    if share >= TENFOLD:
        return f"x{'' if short else ' '}{number(1 + share)}"
    return _signed(100 * share) + ("" if short else " %")


def points(share: float | None) -> str:
    """The change of a share in percentage points, with its sign.

    >>> points(0.0123), points(0.0)
    ('+1.2 pp', '0 pp')
    """
    return "-" if share is None else _signed(100 * share) + " pp"


def _signed(percent: float) -> str:
    """Tenths below 100, none above; 0 only where it is."""
    if percent == 0:
        return "0"
    if abs(percent) < 0.1:
        return f"{percent:+.1g}" if abs(percent) >= 0.001 else f"{percent:+.0e}"
    return f"{percent:+.1f}" if abs(percent) < 99.95 else f"{percent:+,.0f}"


def span(ends: Sequence[float | None] | None) -> str:
    """An interval in percent, or in points; an end that is not known is open.

    >>> span([-0.01, 0.2]), span([None, 0.5]), span([-0.9, 33.0]), span(None)
    ('-1.0 .. +20.0', '.. +50.0', '-90.0 .. x34.0', '-')
    """
    if ends is None or ends[0] is ends[1] is None:
        return "-"
    low, high = ("" if end is None else change(end, short=True) for end in ends)
    return f"{low} .. {high}".strip()


def mark(verdict: str) -> str:
    """A verdict as a word, or nothing where there is none to give.

    >>> mark("worse"), mark("no clear change")
    ('worse', '')
    """
    return {BETTER: BETTER, WORSE: WORSE, NOT_JUDGED: "?"}.get(verdict, "")
