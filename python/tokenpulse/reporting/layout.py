"""What tables for people are made of: headings, notes and columns that need neither colour nor a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any

from rich import box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tokenpulse.reporting.text import count, ms

MAX_ROWS = 40
"""Rows shown at most where there may be many; `--json` has them all."""

ENOUGH = {"p50": 2, "p90": 10, "p95": 20, "p99": 100, "p999": 1000}
"""The values a percentile needs for at least one of them to lie above it."""

MARK = "*"
HEADS = {"p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "p999": "P99.9"}


def show(parts: Iterable[RenderableType], stream: IO[str]) -> None:
    """Print to a stream; a terminal gets bold headings, everything else plain text."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=False)
    width = console.width
    for part in parts:
        console.width = max(1, _settle(console, part, width) if isinstance(part, Table) else width)
        console.print(part)


def _settle(console: Console, table: Table, width: int) -> int:
    """See to it that a table's figures are printed whole and its words unbroken, and return the width for that.

    A table too wide for the stream is printed as wide as it must be: a figure that is cut says something else, and one
    without its row's name says nothing. What room there is goes to the columns of text, the first ones first.
    """
    roomy = console.options.update(width=100_000)
    whole = Measurement.get(console, roomy, table).maximum
    if whole <= width:
        return width
    ranges = []
    for column in table.columns:
        cells = [Measurement.get(console, roomy, cell) for cell in (column.header, *column.cells)]
        most = max(column.min_width or 0, *(cell.maximum for cell in cells))
        least = max(column.min_width or 0, *(cell.minimum for cell in cells))
        ranges.append((most if column.no_wrap else least, most))
    between = whole - sum(most for _, most in ranges)
    room = max(0, width - between - sum(least for least, _ in ranges))
    for column, (least, most) in zip(table.columns, ranges, strict=True):
        column.width = min(most, least + room)
        room -= column.width - least
    return max(width, between + sum(column.width or 0 for column in table.columns))


def percentile(
    figures: Mapping[str, Any] | None, name: str, marked: dict[str, int], shown: Callable[[float], str] = ms
) -> Text:
    """A percentile, in ms unless shown otherwise; marked and dimmed where its sample is too small to have one."""
    if figures is None:
        return Text("- ")
    if figures["count"] >= ENOUGH[name]:
        return Text(shown(figures[name]) + " ")
    marked[name] = marked.get(name, 0) + 1
    return Text(shown(figures[name]) + MARK, style="dim")


def too_few(marked: Mapping[str, int]) -> RenderableType:
    """The note that explains the marked percentiles."""
    needs = "; ".join(f"{HEADS[name]} needs {count(ENOUGH[name])}" for name in HEADS if name in marked)
    return note(f"{MARK} too few values for this percentile ({needs}): it is near the maximum.")


def heading(text: str) -> Text:
    """What stands above a section."""
    return Text("\n" + text, style="bold")


def note(text: str) -> RenderableType:
    """A line below a table."""
    return Padding(Text(text), (0, 0, 0, 2))


def figures_table(*heads: str, left: int = 1, head: bool = True) -> Table:
    """Columns of figures to the right of `left` columns of text."""
    table = Table(
        box=box.SIMPLE_HEAD if head else None,
        show_header=head,
        show_edge=False,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for position, name in enumerate(heads):
        figures = position >= left
        marked = figures and name.split("\n")[-1] in HEADS.values()
        table.add_column(
            Text(name + " " * marked),
            justify="right" if figures else "left",
            overflow="fold",
            vertical="bottom" if any("\n" in one for one in heads) else "top",
            no_wrap=figures,
            min_width=None if figures else 8,
        )
    return table


def not_judged(head: str, rows: Iterable[tuple[str, str]]) -> Iterator[RenderableType]:
    """What could not be judged, and what it needs."""
    yield heading("Not judged")
    table = figures_table(head, "needs", left=2)
    for row in rows:
        table.add_row(*row)
    table.columns[0].no_wrap = True
    yield table


def unusable_table(inputs: Iterable[Mapping[str, Any]]) -> tuple[Table, dict[str, int]]:
    """A table of what could not be used, still empty, and how often each reason had something skipped."""
    table = figures_table("", "reason", "count", "what it means", left=2)
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    table.columns[3].justify, table.columns[3].no_wrap = "left", False
    skipped: dict[str, int] = {}
    for one in inputs:
        for reason, times in one["skipped"].items():
            skipped[reason] = skipped.get(reason, 0) + times
    return table, dict(sorted(skipped.items()))
