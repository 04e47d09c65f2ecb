"""Columns of numbers to the records of lines that say the same; what cannot be read is told by its reason.

A column is any sequence of whole numbers: a list, or an array. Lists of a row are given flat, with the offsets at which
each row begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tokenpulse.model import STATUSES
from tokenpulse.reference import log
from tokenpulse.reference.log import EventLine, RequestLine, Skip

ABSENT = -(2**63)
IN_FLIGHT = 255
"""The status of a row whose request has not ended."""

EVENTS = (*log.REQUEST_EVENTS, "other")
"""What the numbers in `ev` stand for. Any other event moves the newest time and is no request's."""

Batch = tuple[str, str, str, Mapping[str, Any]]
"""`"requests"` or `"events"`, the input's name, its format, its columns."""


def records_of(kind: str, columns: Mapping[str, Any], first_row: int = 0) -> Iterator[EventLine | RequestLine | Skip]:
    """Each row as a record, or why it cannot be read. `first_row` is the number of the first within its input.

    >>> columns = {"arrive_ns": [5, -1], "token_ns": [8, 9], "token_offsets": [0, 2, 2]}
    >>> first, second = records_of("requests", columns)
    >>> first.id, first.emissions, second.reason
    ('0', ((8, 1), (9, 1)), 'bad_value')
    """
    if kind not in ("requests", "events"):
        raise ValueError(f"kind must be requests or events, got {kind!r}")
    read, time_column = (request_row, "arrive_ns") if kind == "requests" else (event_row, "t_ns")
    for at in range(len(columns[time_column])):
        try:
            yield read(Row(columns, at, first_row + at))
        except Skip as skip:
            yield skip


class Row:
    """One row of columns. What has no column, or is marked so, is absent: None."""

    def __init__(self, columns: Mapping[str, Any], at: int, number: int) -> None:
        self._columns = columns
        self._at = at
        self._number = number

    def has(self, name: str) -> bool:
        return self._columns.get(name) is not None

    def number(self, name: str) -> int | None:
        if not self.has(name):
            return None
        value = int(self._columns[name][self._at])
        return None if value == ABSENT else value

    def time(self, name: str) -> int | None:
        value = self.number(name)
        return None if value is None else log.time(name, value)

    def needed_time(self, name: str) -> int:
        t_ns = self.time(name)
        if t_ns is None:
            raise Skip("missing_field", f"{name} is absent")
        return t_ns

    def tokens(self, name: str) -> int | None:
        value = self.number(name)
        return None if value is None else log.tokens(name, value)

    def numbers(self, name: str, offsets: str) -> list[int]:
        """The list of this row; an element that is absent is a number out of every range."""
        if not self.has(name):
            return []
        begin, end = self._columns[offsets][self._at : self._at + 2]
        return [int(value) for value in self._columns[name][begin:end]]

    def times(self, name: str, offsets: str) -> tuple[int, ...]:
        return tuple(log.time(name, value) for value in self.numbers(name, offsets))

    def flag(self, name: str) -> bool:
        return self.has(name) and bool(self._columns[name][self._at])

    @property
    def id(self) -> str:
        ids = self._columns.get("ids")
        if ids is None:
            return str(self._number)
        if isinstance(ids, tuple):
            text, offsets = ids
            return bytes(text)[offsets[self._at] : offsets[self._at + 1]].decode()
        return str(ids[self._at])

    @property
    def labels(self) -> dict[str, str]:
        labels = self._columns.get("labels") or {}
        found = {name: (int(codes[self._at]), texts) for name, (codes, texts) in labels.items()}
        return {name: texts[code] for name, (code, texts) in found.items() if code >= 0}


def event_row(row: Row) -> EventLine:
    code = row.number("ev")
    if code is None or not 0 <= code < len(EVENTS):
        raise Skip("bad_value", f"ev must be between 0 and {len(EVENTS) - 1}, got {code}")
    kind, t_ns = EVENTS[code], row.needed_time("t_ns")
    if kind == "other":
        return EventLine(log.OTHER_EVENTS[0], t_ns)
    if kind == "arrive":
        return EventLine(kind, t_ns, row.id, row.tokens("prompt_tokens") or 0, row.labels)
    if kind == "tokens":
        k = row.number("k")
        return EventLine(kind, t_ns, row.id, k=1 if k is None else log.emitted("k", k))
    if kind == "end":
        return EventLine(kind, t_ns, row.id, status=ended_status(row), degraded=row.flag("degraded"))
    return EventLine(kind, t_ns, row.id)


def request_row(row: Row) -> RequestLine:
    arrive_ns = row.needed_time("arrive_ns")
    schedule_ns, prefill_ns = row.time("schedule_ns"), row.time("prefill_ns")
    emissions = emissions_of(row, arrive_ns)
    output_tokens = row.tokens("output_tokens")
    if emissions and output_tokens == sum(k for _, k in emissions):
        output_tokens = None  # it says nothing new
    return RequestLine(
        id=row.id,
        arrive_ns=arrive_ns,
        schedule_ns=schedule_ns,
        prefill_ns=prefill_ns,
        emissions=emissions,
        output_tokens=output_tokens,
        first_token_ns=None if emissions else row.time("first_token_ns"),
        last_token_ns=None if emissions else row.time("last_token_ns"),
        preempt_ns=row.times("preempt_ns", "preempt_offsets"),
        resume_ns=row.times("resume_ns", "resume_offsets"),
        end_ns=row.time("end_ns"),
        status=None if row.number("status") == IN_FLIGHT else status_of(row, STATUSES),
        degraded=row.flag("degraded"),
        prompt_tokens=row.tokens("prompt_tokens") or 0,
        labels=row.labels,
    )


def emissions_of(row: Row, arrive_ns: int) -> tuple[tuple[int, int], ...]:
    """Time and number of tokens of each emission."""
    if row.has("token_ns"):
        at = row.times("token_ns", "token_offsets")
    else:
        at = tuple(log.time("dt_ns", arrive_ns + offset) for offset in row.numbers("dt_ns", "token_offsets"))
    if not row.has("n"):
        return tuple((t, 1) for t in at)
    return tuple(zip(at, (log.emitted("n", k) for k in row.numbers("n", "token_offsets")), strict=True))


def ended_status(row: Row) -> str:
    """The status of an `end`, which is never `lost`."""
    return status_of(row, STATUSES[:-1])


def status_of(row: Row, statuses: tuple[str, ...]) -> str:
    place = row.number("status") or 0
    if place >= len(statuses):
        raise Skip("bad_value", f"status must be the place of one of {', '.join(statuses)}, got {place}")
    return statuses[place]
