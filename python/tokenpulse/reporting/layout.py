"""What tables for people are made of: headings, notes and columns that need neither colour nor a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

from rich import box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tokenpulse.reporting.text import ms

MAX_ROWS = 40
"""Rows shown at most where there may be many; `--json` has them all."""

ENOUGH = {"p50": 2, "p90": 10, "p95": 20, "p99": 100, "p999": 1000}
"""The values a percentile needs for at least one of them to lie above it."""

MARK = "*"
HEADS = {"p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "p999": "P99.9"}


def show(parts: Iterable[RenderableType], stream: IO[str]) -> None:
    """Print to a stream; a terminal gets bold headings, everything else plain text."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=False)
    printed = list(parts)
    # A table too wide for the stream is printed as wide as it is: a figure without its row's name says nothing.
    roomy = console.options.update(width=1000)
    tables = [Measurement.get(console, roomy, part).minimum for part in printed if isinstance(part, Table)]
    console.width = max(console.width, *tables, 1)
    for part in printed:
        console.print(part)


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
