"""A report for people: tables in milliseconds that fit 80 columns and need neither colour nor a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import IO, Any

from rich.console import RenderableType

from tokenpulse.reporting import availability_table, cost_table, flow_table, reasons, workload_table
from tokenpulse.reporting.layout import (
    HEADS,
    MARK,
    MAX_ROWS,
    figures_table,
    heading,
    note,
    percentile,
    show,
    too_few,
    unusable_table,
)
from tokenpulse.reporting.report import Report
from tokenpulse.reporting.text import (
    GOODPUT_HEADS,
    count,
    goodput_cells,
    in_order,
    ms,
    number,
    percent,
    printable,
    several,
)

BAR = 12
"""Length of the longest bar of a timeline."""

EVENTS = ("tokenpulse-events", "tokenpulse-mixed")
"""Formats whose requests are told event by event."""

LABELS = {"preemption_stall": "stall"}


def write(report: Report, stream: IO[str]) -> None:
    """Print the report to a stream; a terminal gets bold headings, everything else plain text."""
    show(parts(report), stream)


def parts(report: Report) -> Iterator[RenderableType]:
    """The report's sections, top to bottom."""
    yield from _inputs(report)
    if not _has_latency(report):
        yield from workload_table.parts(report)
        yield from _reported(report)
        yield from _unusable(report)
        return
    yield from _requests(report)
    yield from _latency(report)
    yield from _slowest(report)
    yield from _throughput(report)
    if report.goodput:
        yield from _goodput(report)
    yield from availability_table.parts(report)
    yield from cost_table.parts(report)
    yield from flow_table.parts(report)
    yield from workload_table.parts(report)
    yield from _definitions(report)
    if report.profiles:
        from tokenpulse.reporting import profile_table

        yield from profile_table.parts(report.profiles)
    yield from _reported(report)
    yield from _unusable(report)
    if report.by:
        yield from _by(report)
    if report.timeline:
        yield from _timeline(report)


def _has_latency(report: Report) -> bool:
    """Whether requests were followed; a trace has none that ended, and a summary has no request."""
    return report.requests["attempted"] is not None and "latency" not in report.absent


def _inputs(report: Report) -> Iterator[RenderableType]:
    yield heading("Inputs")
    table = figures_table("input", "format", "lines", "requests", left=2)
    for one in report.inputs[:MAX_ROWS]:
        table.add_row(
            printable(one["path"]),
            one["format"].removeprefix("tokenpulse-"),
            *("-" if one[name] is None else count(one[name]) for name in ("lines", "requests")),
        )
    yield table
    if len(report.inputs) > MAX_ROWS:
        yield note(f"... and {count(len(report.inputs) - MAX_ROWS)} more inputs: --json has them all.")
    warmup = sum(one.get("warmup") or 0 for one in report.inputs)
    if warmup:
        yield note(f"{several(warmup, 'request')} of a warm-up left out.")
    if report.cut is not None:
        yield note(_cut(report.cut))


def _cut(cut: Mapping[str, Any]) -> str:
    ends = [f"{end} {number(cut[f'{end}_seconds'])} s" for end in ("from", "to") if cut[f"{end}_seconds"] is not None]
    steady = ", the steady span" if cut["how"] == "steady" else ""
    left = several(cut["outside"], "request")
    return f"Only requests that arrived {' '.join(ends)} after the first one{steady}; {left} left out."


def _requests(report: Report) -> Iterator[RenderableType]:
    yield heading("Requests")
    requests = report.requests
    by_status = requests["by_status"]
    ended_as = {
        "succeeded": ("stop", "length"),
        "failed": ("error", "timeout", "oom"),
    }
    table = figures_table("", "", "requests", "", left=2, head=False)
    for position, name in enumerate(("succeeded", "failed", "aborted", "rejected", "lost", "in_flight")):
        detail = ", ".join(f"{s} {count(by_status[s])}" for s in ended_as.get(name, ()) if s in by_status)
        table.add_row("+" if position else " ", name.replace("_", " "), count(requests[name]), detail)
    table.add_row("=", "attempted", count(requests["attempted"]), "")
    table.columns[3].justify = "left"
    yield table


def _latency(report: Report) -> Iterator[RenderableType]:
    yield heading("Latency, ms")
    table = figures_table("", "count", "mean", *HEADS.values(), "max")
    marked: dict[str, int] = {}
    empty = []
    for metric, figures in report.latency.items():
        label = LABELS.get(metric, metric)
        if figures is None:
            empty.append(metric)
            continue
        table.add_row(
            label,
            count(figures["count"]),
            ms(figures["mean"]),
            *(percentile(figures, name, marked) for name in HEADS),
            ms(figures["max"]),
        )
    if table.row_count:
        yield table
    yield note(
        f"ITL rule: {report.rules['itl']}. Percentiles: nearest rank, "
        f"within {math.ceil(1e4 * report.rules['relative_error']) / 100} % of the exact value above 1 us."
    )
    if marked:
        yield too_few(marked)
    for reason, names in _by_reason(empty, report).items():
        yield note(f"No {', '.join(names)}: {reason}.")


def _by_reason(metrics: list[str], report: Report) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for metric in metrics:
        found.setdefault(report.absent[f"latency.{metric}"], []).append(LABELS.get(metric, metric))
    return found


def _definitions(report: Report) -> Iterator[RenderableType]:
    """Where a tool's file has another definition than ours: a figure here and the tool's own may differ for that."""
    if not report.definitions:
        return
    table = figures_table("", "", left=2, head=False)
    table.columns[0].no_wrap = True
    for metric, texts in report.definitions.items():
        if metric == "goodput" and not report.goodput:
            continue
        for whose, text in texts.items():
            if whose != "tokenpulse":
                table.add_row(f"{whose} {metric.replace('_', ' ')}", printable(text))
    if table.row_count:
        yield heading("Defined in another way by the tool")
        yield table
        more = "" if report.profiles else "; --profile has the tool's own"
        yield note(f"The figures above are by our definitions, as far as the file allows{more}.")


def _reported(report: Report) -> Iterator[RenderableType]:
    """What a file of figures says by itself, in our units; the figures beside requests are left to JSON."""
    for one in report.reported:
        figures = one["normalised"]
        if not figures:
            continue
        yield heading(f"Figures of {one['tool']} itself: {printable(one['path'])}")
        names = [name for name in ("ttft", "tpot", "itl", "e2e") if figures.get(name)]
        shown = [name for name in ("mean", "std", *HEADS, "max") if any(name in figures[metric] for metric in names)]
        table = figures_table("ms", *(HEADS.get(name, name) for name in shown))
        for metric in names:
            values = (figures[metric].get(name) for name in shown)
            table.add_row(metric, *("-" if value is None else ms(value) for value in values))
        if table.row_count:
            yield table
        rest = figures_table("", "", left=1, head=False)
        for group in ("rates", "requests", "tokens"):
            for name, value in (figures.get(group) or {}).items():
                shown_value = count(value) if isinstance(value, int) else number(value)
                rest.add_row(f"{group}: {name.replace('_', ' ')}", shown_value)
        if figures.get("duration") is not None:
            rest.add_row("duration, s", number(figures["duration"]))
        if rest.row_count:
            yield rest
    if report.reported:
        yield note("--json has the tools' own figures in full, under reported.")


def _slowest(report: Report) -> Iterator[RenderableType]:
    """The requests to look at first; those of the metrics that a user feels."""
    table = figures_table("", "", left=2, head=False)
    for metric in ("ttft", "tpot", "e2e", "itl"):
        if report.slowest[metric]:
            worst = (f"{printable(one['id'])} {ms(one['value'])}" for one in report.slowest[metric])
            table.add_row(metric, ", ".join(worst))
    if table.row_count:
        yield heading("Slowest requests, ms")
        yield table


def _throughput(report: Report) -> Iterator[RenderableType]:
    yield heading("Throughput and availability")
    span = (
        f"; {report.absent['span_seconds']}" if report.span_seconds is None else f" in {number(report.span_seconds)} s"
    )
    requests = report.requests
    table = figures_table("", "", "", left=1, head=False)
    table.columns[2].justify = "left"
    tokens = report.tokens["output"]
    output = "not known" if tokens is None else f"{several(tokens, 'token')}{span}"
    table.add_row("output tokens/s", number(report.rates["output_tokens_per_second"]), output)
    table.add_row(
        "requests/s",
        number(report.rates["requests_per_second"]),
        f"{count(requests['succeeded'])} succeeded{span}",
    )
    if report.tokens["prompt"] is not None:
        table.add_row("prompt tokens", count(report.tokens["prompt"]), "of every arrival")
    for row in availability_table.rates(report):
        table.add_row(*row)
    yield table


def _goodput(report: Report) -> Iterator[RenderableType]:
    yield heading("Goodput")
    if "goodput" in report.absent:
        yield note(f"Not judged: {report.absent['goodput']}.")
        return
    table = figures_table("slo", *GOODPUT_HEADS)
    for one in report.goodput:
        table.add_row(printable(one["name"]), *goodput_cells(one))
    yield table
    for one in report.goodput:
        yield note(f"{printable(one['name'])}: {limits(one['slo'])}")
    misses = figures_table("slo", "missed", "requests", "of judged", left=2)
    for one in report.goodput:
        for reason, times in one["missed"].items():
            misses.add_row(printable(one["name"]), reason, count(times), percent(times / one["judged"]))
    yield misses if misses.row_count else note("No request that was judged missed a limit.")
    yield heading("Fluidity: the share of tokens that came by their deadline, per request")
    table = figures_table("slo", "n", "pooled", "mean", "min", "P1", "P5", "P10", "P50", "P90")
    for name, one in report.fluidity.items():
        shares = (one[key] for key in ("index", "mean", "min", "p1", "p5", "p10", "p50", "p90"))
        table.add_row(printable(name), count(one["count"]), *("-" if s is None else f"{s:.4f}" for s in shares))
    yield table


def limits(slo: Mapping[str, Any]) -> str:
    """An SLO set's limits in one line.

    >>> limits({"ttft": 0.2, "tpot": 0.03, "e2e": None, "itl": None, "where": {"tenant": "a"}})
    'ttft < 200 ms, tpot < 30 ms, where tenant=a'
    """
    told = [f"{name} < {1e3 * slo[name]:.12g} ms" for name in ("ttft", "tpot") if slo[name] is not None]
    told += [
        f"{head} < {1e3 * slo[name]:.12g} ms"
        for name, head in (("e2e", "e2e"), ("itl", "largest itl"))
        if slo[name] is not None
    ]
    told += [f"where {printable(label)}={printable(value)}" for label, value in slo["where"].items()]
    return ", ".join(told)


def _unusable(report: Report) -> Iterator[RenderableType]:
    table, skipped = unusable_table(report.inputs)
    for reason, times in skipped.items():
        table.add_row("line skipped", reason, count(times), reasons.SKIPPED.get(reason, ""))
    for reason, times in report.rejected.items():
        table.add_row("event refused", reason, count(times), reasons.REJECTED.get(reason, ""))
    if report.clamped:
        table.add_row("end clamped", "", count(report.clamped), reasons.CLAMPED)
    for metric, times in report.missing.items():
        if report.latency[metric] is None:
            continue  # said of the metric as a whole
        table.add_row("not measured", metric, count(times), reasons.MISSING.get(metric, ""))
    if table.row_count:
        yield heading("Not counted, and why")
        yield table


def _by(report: Report) -> Iterator[RenderableType]:
    yield heading("By " + ", ".join(printable(name) for name in _keys(report)) + " (latency in ms)")
    judged = bool(report.goodput)
    heads = ["requests", "tokens/s", "TTFT\nP50", "TTFT\nP99", "TPOT\nP50", "TPOT\nP99", "ITL\nP99"]
    table = figures_table("group", *heads, *(["attained"] if judged else []))
    marked: dict[str, int] = {}
    for one in in_order(report.by)[:MAX_ROWS]:
        values = (f"{printable(v)}" if v is not None else "(none)" for v in one["key"].values())
        table.add_row(
            "(all others)" if one["other"] else ", ".join(values),
            count(one["requests"]["attempted"]),
            number(one["rates"]["output_tokens_per_second"]),
            *(
                percentile(one["latency"][metric], name, marked)
                for metric, name in (
                    ("ttft", "p50"),
                    ("ttft", "p99"),
                    ("tpot", "p50"),
                    ("tpot", "p99"),
                    ("itl", "p99"),
                )
            ),
            *([percent(one["goodput"][0]["attainment"])] if judged else []),
        )
    yield table
    yield from _below(report, marked, len(report.by) - MAX_ROWS, "groups")
    if "output_length" in _keys(report) and any(one["format"] in EVENTS for one in report.inputs):
        yield note("Event lines tell the output length only at a request's end: its TTFT and ITL are in no group.")
    if report.by_over:
        yield note(f"{count(report.by_over)} combinations past the first 256 are in (all others).")


def _timeline(report: Report) -> Iterator[RenderableType]:
    width = report.timeline[0]["width_seconds"]
    yield heading(f"Timeline, bins of {number(width)} s (latency in ms)")
    if width != report.timeline_asked_seconds:
        yield note(
            f"Bins of {number(report.timeline_asked_seconds)} s were asked for; they were widened to keep "
            "within 10,000."
        )
    judged = bool(report.goodput)
    heads = ["arrived", "in flight", "tokens/s", "TTFT\nP99", "ITL\nP99"]
    table = figures_table("start s", *heads, *(["attained"] if judged else []), "", left=0)
    table.columns[-1].justify = "left"
    marked: dict[str, int] = {}
    shown = report.timeline[:MAX_ROWS]
    first = report.timeline[0]["start_seconds"]
    places = min(9, max(0, -int(Decimal(repr(width)).normalize().as_tuple().exponent)))
    most = max(one["rates"]["output_tokens_per_second"] for one in shown)
    for one in shown:
        rate = one["rates"]["output_tokens_per_second"]
        table.add_row(
            f"{one['start_seconds'] - first:,.{places}f}",
            count(one["requests"]["attempted"]),
            count(one["requests"]["in_flight"]),
            number(rate),
            *(percentile(one["latency"][metric], "p99", marked) for metric in ("ttft", "itl")),
            *([percent(one["goodput"][0]["attainment"])] if judged else []),
            "#" * round(BAR * rate / most) if most else "",
        )
    yield table
    yield note(f"Start counts from the first bin, {first:.9g} s on the log's clock; empty bins are left out.")
    yield from _below(report, marked, len(report.timeline) - MAX_ROWS, "bins")


def _below(report: Report, marked: dict[str, int], more: int, what: str) -> Iterator[RenderableType]:
    if marked:
        yield note(f"{MARK} too few values for this percentile: it is near the maximum.")
    if report.goodput:
        yield note(f"Attained: for the SLO set {printable(report.goodput[0]['name'])}.")
    if more > 0:
        yield note(f"... and {count(more)} more {what}: --json has them all.")


def _keys(report: Report) -> list[str]:
    return next((list(one["key"]) for one in report.by if one["key"]), [])
