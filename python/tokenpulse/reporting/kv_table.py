"""A KV report for people: tables that fit 80 columns, times in the unit that their row names.

On a narrower terminal texts are broken between words and tables are as wide as they must be: no figure is cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import IO

from rich.console import RenderableType
from rich.table import Table

from tokenpulse.reporting import reasons
from tokenpulse.reporting.kv import LIMITS, SPANS, Curve, Figures, KVReport
from tokenpulse.reporting.layout import (
    HEADS,
    MAX_ROWS,
    figures_table,
    heading,
    note,
    percentile,
    show,
    too_few,
    unusable_table,
)
from tokenpulse.reporting.text import count, in_unit, number, percent, printable, setting_percent, several, unit

MEANING = "gap: eviction to refill; lifetime: store to eviction; idle: last use to eviction."

HIGH = 0.05
"""The refill rate from which on it is worth to look for a cause."""

FEW_BLOCKS = 100
"""The blocks in the sample of a curve below which its figures are said to be rough."""

POLICIES = {"lru": "LRU", "fifo": "FIFO", "s3fifo": "S3-FIFO", "lfu": "LFU"}

_Row = tuple[str, str, str]


def write(report: KVReport, stream: IO[str]) -> None:
    """Print the report to a stream; a terminal gets bold headings, everything else plain text."""
    show(parts(report), stream)


def parts(report: KVReport) -> Iterator[RenderableType]:
    """The report's sections, top to bottom."""
    yield from _inputs(report)
    yield from _cache(report)
    yield from _times(report)
    yield from _unusable(report)
    if report.curve is not None:
        yield from _curve(report.curve)


def _inputs(report: KVReport) -> Iterator[RenderableType]:
    yield heading("Inputs")
    taken = "events" if report.kind == "events" else "requests"
    table = figures_table("input", "lines", taken, "other lines")
    for one in report.inputs[:MAX_ROWS]:
        table.add_row(printable(one["path"]), *(count(one[name]) for name in ("lines", taken, "passed")))
    yield table
    if len(report.inputs) > MAX_ROWS:
        yield note(f"... and {count(len(report.inputs) - MAX_ROWS)} more inputs: --json has them all.")


def _cache(report: KVReport) -> Iterator[RenderableType]:
    yield heading(_title(report))
    table = _plain()
    for row in (*_lookups(report), *_blocks(report)):
        table.add_row(*row)
    yield table
    yield from _notes(report)


def _title(report: KVReport) -> str:
    settings = report.settings
    if report.kind == "trace":
        room = (
            "with room for every block" if settings["blocks"] is None else f"of {several(settings['blocks'], 'block')}"
        )
        return f"KV cache {room}, {POLICIES[settings['policy']]}"
    caches = f"{count(report.streams)} KV caches" if report.streams and report.streams > 1 else "KV cache"
    return f"{caches}, events as {settings['report']}"


def _lookups(report: KVReport) -> Iterator[_Row]:
    if report.lookups is None:
        yield "hit rate", "-", "the log has no look-ups"
        return
    looked_up = several(report.lookups, report.unit.removesuffix("s"))
    asked = f"{count(report.hits or 0)} of {looked_up} that {several(report.requests or 0, 'request')} looked up"
    yield "hit rate", percent(report.hit_rate), asked
    if report.relookups is not None and report.relookups["n"]:
        hit, queried, n = (report.relookups[name] for name in ("hit", "queried", "n"))
        told = f"{count(hit)} of {several(queried, 'token')}, {several(n, 'preemption')}"
        yield "  when resumed", percent(report.relookups["hit_rate"]), told
    if report.tokens is not None:
        found = f"{count(report.tokens['hit'])} of {several(report.tokens['queried'], 'token')}"
        yield "token hit rate", percent(report.tokens["hit_rate"]), found


def _blocks(report: KVReport) -> Iterator[_Row]:
    if report.confidence is not None:
        share = setting_percent(report.settings["rate"])
        yield "sample", share, "of the blocks is followed"

    def row(name: str, one: str, many: str | None = None, pace: str = "") -> _Row:
        """A count and what it is of: of one block or of many."""
        amount = getattr(report, "blocks" if name == "resident" else name)
        meaning = one if many is None or amount == 1 else many
        if report.confidence is None:
            return name, count(amount), meaning + pace
        whole = count(round(amount / report.settings["rate"]))
        return name, count(amount), f"in the sample, about {whole} in all{pace}: {meaning}"

    yield row("stored", "block computed", "blocks computed")
    pace = "" if report.evicted_per_second is None else f", {number(report.evicted_per_second)}/s"
    if pace and report.span_seconds is not None:
        long = unit(report.span_seconds)
        pace += f" over {in_unit(report.span_seconds, long)} {long}"
    yield row("evicted", "for want of space", pace=pace)
    yield row("refilled", "computed again after their eviction")
    if report.forgotten:
        yield row("forgotten", "evicted, and no longer remembered")
    yield "refill rate", _refill_rate(report), "refilled of the evicted"
    if report.confidence is not None:
        low, high = report.confidence
        told = "-" if low is None or high is None else f"{percent(low)} to {percent(high)}"
        yield "  of all blocks", told, "with 95 % confidence, by the sample"
    for name, one, many in (
        ("repeated", "store of a block that was there", "stores of a block that was there"),
        ("released", "copy evicted while another stayed", "copies evicted while others stayed"),
        ("onloaded", "brought up from a lower tier", None),
        ("offloaded", "put into a lower tier", None),
    ):
        if getattr(report, name):
            yield row(name, one, many)
    if report.cleared:
        times = "time" if report.cleared == 1 else "times"
        yield "cleared", count(report.cleared), f"{times} that the cache was emptied"
    tiers = ", ".join(f"{tier} {count(n)}" for tier, n in report.resident.items() if n)
    at_end = "at the end" + (f": {tiers}" if tiers else "")
    yield row("resident", f"block {at_end}", f"blocks {at_end}")
    yield row("remembered", "evicted block at the end", "evicted blocks at the end")


def _refill_rate(report: KVReport) -> str:
    low, high = report.refill_rate
    return percent(low) if low == high else f"{percent(low)} to {percent(high)}"


def _notes(report: KVReport) -> Iterator[RenderableType]:
    low, high = report.refill_rate
    if low is None or high is None:
        yield note("Nothing was evicted: there is no refill rate.")
        return
    if low != high:
        yield note("Refill rate: the higher end counts forgotten blocks as computed again.")
    if low > HIGH:
        yield note(f"{percent(low)} of the evicted blocks were computed again: docs/kv.md says what helps.")


def _times(report: KVReport) -> Iterator[RenderableType]:
    told = [(name, figures) for name in SPANS if (figures := getattr(report, name)) is not None]
    if not told:
        return
    yield heading("Times of blocks")
    table = figures_table("", "", "count", "mean", *HEADS.values(), "max", left=2)
    table.columns[1].header = "unit"
    table.columns[1].min_width = 4
    marked: dict[str, int] = {}
    for name, figures in told:
        shown = unit(figures["p50"])
        in_its = partial(in_unit, name=shown)
        table.add_row(
            name,
            shown,
            count(figures["count"]),
            in_its(figures["mean"]),
            *(percentile(figures, head, marked, in_its) for head in HEADS),
            in_its(figures["max"]),
        )
    yield table
    yield note(MEANING)
    if marked:
        yield too_few(marked)


def _unusable(report: KVReport) -> Iterator[RenderableType]:
    table, skipped = unusable_table(report.inputs)
    for reason, times in skipped.items():
        table.add_row("skipped", reason, count(times), reasons.KV_SKIPPED.get(reason, ""))
    for reason, times in report.rejected.items():
        table.add_row("event refused", reason, count(times), reasons.KV_REJECTED.get(reason, ""))
    if report.clamped:
        table.add_row("time clamped", "", count(report.clamped), reasons.KV_CLAMPED)
    loss = report.loss or {}
    if loss.get("batches"):
        table.add_row("batch lost", "gap", count(loss["batches"]), reasons.KV_LOST)
    if loss.get("restarts"):
        table.add_row("sequence", "restart", count(loss["restarts"]), reasons.KV_RESTARTED)
    if table.row_count:
        yield heading("Not counted, and why")
        yield table


def _curve(curve: Curve) -> Iterator[RenderableType]:
    how = "exact" if curve.mode == "exact" else f"estimated from {setting_percent(curve.rate)} of the blocks"
    yield heading(f"LRU caches of every size, {how}: {_seen(curve)}")
    table = figures_table("", "blocks", "tokens", "hit rate", "refill rate", "evicted", "refilled")
    marks = _marks(curve)
    rows = [point for point in curve.points if _is_shown(point["blocks"], curve)]
    sizes = {point["blocks"] for point in rows}
    rows += {mark["blocks"]: mark for mark in marks.values() if mark["blocks"] not in sizes}.values()
    rows.sort(key=lambda one: one["blocks"])
    for one in rows:
        names = [name for name, mark in marks.items() if mark["blocks"] == one["blocks"]]
        table.add_row(
            ", ".join(names),
            count(one["blocks"]),
            count(one["tokens"]),
            percent(one["hit_rate"]),
            percent(one["refill_rate"]),
            *("-" if one[name] is None else count(round(one[name])) for name in ("evicted", "refilled")),
        )
    yield table
    if curve.is_empty:
        yield note("No block was in the sample: there are no figures. Take a higher rate.")
    elif curve.mode == "sampled" and curve.sampled_distinct < FEW_BLOCKS:
        yield note(f"A rough estimate: it rests on {several(curve.sampled_distinct, 'block')}. Take a higher rate.")
    if len(rows) < len(curve.points):
        yield note("--json has more sizes.")
    if marks:
        yield note("Knee: beyond it a further block brings less than the average one.")
        yield note("refill < 5 %: the least cache from which on the refill rate stays under that.")


def _seen(curve: Curve) -> str:
    """What a curve is of, as far as it is known."""
    references = several(curve.references, "reference")
    return references if curve.distinct is None else f"{references} to {several(curve.distinct, 'block')}"


def _is_shown(size: int, curve: Curve) -> bool:
    """Whether a size is asked for, the last, or 1, 2 or 5 times a power of ten: all others are left to JSON."""
    return size in curve.sizes or size == curve.points[-1]["blocks"] or str(size).rstrip("0") in ("1", "2", "5")


def _marks(curve: Curve) -> dict[str, Figures]:
    """The sizes worth naming, by what to call them."""
    under = {f"refill < {100 * limit:g} %": curve.refill_under[name] for name, limit in LIMITS.items()}
    named = {"knee": curve.knee, **under}
    return {name: mark for name, mark in named.items() if mark is not None}


def _plain() -> Table:
    table = figures_table("", "", "", left=1, head=False)
    table.columns[0].min_width = 14
    table.columns[2].justify, table.columns[2].no_wrap = "left", False
    return table
