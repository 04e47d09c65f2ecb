"""HTML as values: whatever is put into an element as plain text is escaped there, so that no text of a log is markup.

Text is also made printable first: what a control character or a change of writing direction would do to a terminal, it
would do to a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from tokenpulse.reporting.text import printable

SHORT = 24
"""Rows up to which a table is not to be torn apart between two sheets of paper."""

BROAD = 7
"""Columns from which on a table needs a page that is wider than a telephone's is long."""

VOID = frozenset({"meta", "br", "hr"})


class Markup(str):
    """Text that is HTML already; any other `str` is not."""

    __slots__ = ()


Child = str | Markup | None

_UNIT = re.compile(r"(?<=\d) (?=(?:%|[num\u00b5]?s|min|h|d)(?!\w))")
"""The space between a figure and its unit, at which no line is broken."""

Attribute = str | int | None


def plain(text: str) -> Markup:
    """Text as HTML that shows it, whatever is in it.

    >>> plain("<b> & " + chr(27)), plain("in 5 ms")
    ('&lt;b&gt; &amp; \\\\x1b', 'in 5&nbsp;ms')
    """
    return Markup(_UNIT.sub("&nbsp;", escape(printable(text))))


def join(*children: Child) -> Markup:
    """One after the other; None is nothing."""
    return Markup("".join(one if isinstance(one, Markup) else plain(one) for one in children if one is not None))


def tag(element: str, *children: Child, **attributes: Attribute) -> Markup:
    """An element. An attribute's `_` stands for `-`, one at its end for nothing; None leaves it out.

    >>> tag("a", "1 < 2", href='#"', class_="x", title=None)
    '<a href="#&quot;" class="x">1 &lt; 2</a>'
    """
    told = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{plain(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    start = Markup(f"<{element}{told}>")
    return start if element in VOID else join(start, *children, Markup(f"</{element}>"))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its head, and whether it holds words (to the left) or figures (to the right)."""

    head: str
    words: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[Child]], caption: str, *, stacked: bool = True) -> Markup:
    """A table whose first column names its rows.

    Where there is no room for its columns it becomes, if `stacked`, a block a row, in which each figure has its
    column's head above it; roles keep it a table for those who have it read out.
    """
    heads = join(*(tag("th", one.head, scope="col", role="columnheader", class_=_words(one)) for one in columns))
    lines = []
    for row in rows:
        cells = [tag("th", row[0], scope="row", role="rowheader", class_=_words(columns[0]))]
        cells += [
            tag("td", cell, role="cell", class_=_words(column), data_head=column.head or None)
            for column, cell in zip(columns[1:], row[1:], strict=True)
        ]
        lines.append(tag("tr", *cells, role="row"))
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", heads, role="row"), role="rowgroup"),
        tag("tbody", *lines, role="rowgroup"),
        role="table",
        class_=" ".join(
            name
            for name, holds in (
                ("stacked", stacked),
                ("broad", stacked and len(columns) >= BROAD),
                ("short", len(lines) <= SHORT),
            )
            if holds
        )
        or None,
    )


def _words(column: Column) -> str | None:
    return "words" if column.words else None
