"""Traces of requests, without any latency: Azure's and BurstGPT's CSV files, Mooncake's JSON lines."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import date
from typing import Any, Literal

import numpy as np

from tokenpulse.readers.documents import Source, each_line
from tokenpulse.readers.rows import (
    Faults,
    LabelColumns,
    RaggedColumn,
    UnreadableError,
    brief,
    integer,
    ints,
    number,
)
from tokenpulse.records import ABSENT, Ragged, Workload

AZURE = "azure-trace"
BURSTGPT = "burstgpt-trace"
MOONCAKE = "mooncake-trace"

_NO_LATENCY = "a trace says when requests arrived and how long they were; nothing was measured"
_ABSENT = dict.fromkeys(("latency", "goodput", "flow.littles_law", "flow.saturation"), _NO_LATENCY)

_AZURE = ("timestamp", "contexttokens", "generatedtokens")
_BURSTGPT = ("timestamp", "model", "request tokens", "response tokens")
_BLOCK_SIZES = (512, 16, 32, 64, 128, 256, 1024)
_SECOND = 1_000_000_000


def recognises(keys: Set[str]) -> str | None:
    """Whether these keys are of a line of Mooncake's traces."""
    ours = {"timestamp", "input_length"} <= keys and bool(keys & {"output_length", "hash_ids"})
    return MOONCAKE if ours else None


def recognises_header(columns: Sequence[str]) -> str | None:
    """Which trace has a CSV file with these columns."""
    names = {name.strip().lower() for name in columns}
    if names.issuperset(_BURSTGPT):
        return BURSTGPT
    return AZURE if names.issuperset(_AZURE) else None


class _Trace:
    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.arrive, self.prompt, self.output = array("q"), array("q"), array("q")
        self.failed = bytearray()
        self.labels = LabelColumns()

    def add(self, arrive: int, prompt: int, output: int, *, failed: bool = False, labels: Mapping[str, Any]) -> None:
        for column, value in ((self.arrive, arrive), (self.prompt, prompt), (self.output, output)):
            column.append(value)
        self.failed.append(failed)
        self.labels.append(labels)

    def workload(self, tool: str, form: str, clock: Literal["epoch", "relative"], **about: Any) -> Workload:
        return Workload(
            tool=tool,
            format=form,
            clock=clock,
            arrive_ns=ints(self.arrive),
            prompt_tokens=ints(self.prompt),
            output_tokens=ints(self.output),
            failed=np.array(self.failed, np.bool_) if any(self.failed) else None,
            labels=self.labels.finish(),
            absent=dict(_ABSENT),
            **self.faults.taken(),
            **about,
        )


def read_azure(source: Source) -> Iterator[Workload]:
    """`TIMESTAMP,ContextTokens,GeneratedTokens`; a time without a zone is taken as UTC."""
    trace = _Trace(Faults(source.name))
    clock = _Calendar()

    def add(row: Mapping[str, str]) -> None:
        trace.add(
            clock.ns(row["timestamp"]),
            _count(row, "contexttokens"),
            _count(row, "generatedtokens"),
            labels={},
        )

    _csv_rows(source, trace.faults, add)
    yield trace.workload("azure", AZURE, "epoch")


def read_burstgpt(source: Source) -> Iterator[Workload]:
    """`Timestamp,Model,Request tokens,Response tokens,...`, seconds from the trace's beginning.

    An answer of 0 tokens is how it marks a request that failed: it has no length then.
    """
    trace = _Trace(Faults(source.name))

    def add(row: Mapping[str, str]) -> None:
        arrive = number(row["timestamp"].strip() or None, "Timestamp")
        if not 0 <= arrive < 9.2e9:
            raise UnreadableError("bad_value", f"Timestamp: expected seconds of 0 or more, got {row['timestamp']!r}")
        output = _count(row, "response tokens")
        trace.add(
            round(arrive * _SECOND),
            _count(row, "request tokens"),
            output or ABSENT,
            failed=output == 0,
            labels={key.replace(" ", "_"): row[key] for key in ("model", "log type") if row.get(key)},
        )

    _csv_rows(source, trace.faults, add)
    yield trace.workload("burstgpt", BURSTGPT, "relative")


def read_mooncake(source: Source) -> Iterator[Workload]:
    """Lines with `timestamp` in ms, `input_length`, `output_length` and the hashes of the prompt's blocks."""
    trace = _Trace(Faults(source.name))
    hashes = RaggedColumn("Q")

    def add(row: dict[str, Any]) -> None:
        arrive = number(row.get("timestamp"), "timestamp")
        if not 0 <= arrive < 9.2e12:
            raise UnreadableError("bad_value", f"timestamp: expected ms of 0 or more, got {arrive!r}")
        prompt, output = (integer(row.get(key), key) for key in ("input_length", "output_length"))
        blocks = _hashes(row.get("hash_ids"))
        trace.add(round(arrive * 1_000_000), prompt, output, labels={"type": row.get("type")})
        hashes.append(blocks)

    each_line(source, trace.faults, add)
    rows = hashes.finish()
    rows = Ragged(values=rows.values.astype(np.uint64), offsets=rows.offsets)
    some = len(rows.values) > 0
    yield trace.workload(
        "mooncake",
        MOONCAKE,
        "relative",
        block_hashes=rows if some else None,
        block_tokens=_block_size(ints(trace.prompt), rows) if some else None,
    )


def _hashes(value: Any) -> list[int]:
    """Block hashes as unsigned 64 bits; as text, and as signed numbers too."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise UnreadableError("wrong_type", f"hash_ids: expected an array, got {brief(value)}")
    found = []
    for one in value:
        try:
            known = int(one) if isinstance(one, (int, str)) and not isinstance(one, bool) else None
        except ValueError:
            known = None
        if known is None:
            raise UnreadableError("wrong_type", f"hash_ids: expected whole numbers, got {brief(one)}")
        if not -(2**63) <= known < 2**64:
            raise UnreadableError("bad_value", f"hash_ids: expected numbers of 64 bits, got {known}")
        found.append(known % 2**64)
    return found


def _block_size(prompt: np.ndarray[Any, Any], rows: Ragged) -> int | None:
    """The tokens of a block: the one size in use with which every prompt has as many blocks as it should."""
    blocks = rows.lengths
    some = (blocks > 0) & (prompt != ABSENT)
    for size in _BLOCK_SIZES:
        if bool(np.all(-(-prompt[some] // size) == blocks[some])):
            return size
    return None


def _count(row: Mapping[str, str], name: str) -> int:
    """A count of tokens, which a trace's row must have."""
    text = row[name].strip()
    count = integer(text or None, name)
    if count == ABSENT:
        raise UnreadableError("missing_field", f"{name}: expected a number of tokens, got nothing")
    return count


def _csv_rows(source: Source, faults: Faults, add: Callable[[Mapping[str, str]], None]) -> None:
    """Gives each row by its columns' names in small letters; rows at fault are skipped and counted."""
    reader = csv.reader(source.text_lines(faults), strict=False)
    header = next((row for row in reader if any(cell.strip() for cell in row)), [])
    names = [name.strip().lower() for name in header]
    while True:
        try:
            row = next(reader, None)
            if row is None:
                return
            if not any(cell.strip() for cell in row):
                continue
            if len(row) < len(names):
                raise UnreadableError("missing_field", f"expected {len(names)} columns, got {len(row)}")
            add(dict(zip(names, row, strict=False)))
        except UnreadableError as error:
            faults.skip(reader.line_num, error.reason, str(error))
        except csv.Error as error:
            faults.skip(reader.line_num, "bad_value", f"expected a CSV row: {error}")


class _Calendar:
    """Times like `2023-11-16 18:17:03.9799600`, exact to the digit; rows of one second share its parsing."""

    def __init__(self) -> None:
        self.second, self.ns_of_second = "", 0

    def ns(self, text: str) -> int:
        """Nanoseconds since 1970."""
        text = text.strip()
        if text[:19] != self.second:
            self.second, self.ns_of_second = text[:19], self._second(text)
        rest, offset = text[19:], 0
        for sign in ("+", "-"):
            before, mark, zone = rest.partition(sign)
            if mark:
                rest, offset = before, (-1 if sign == "+" else 1) * self._zone(zone, text)
        fraction = rest.removesuffix("Z").removesuffix(" UTC").rstrip()
        if fraction and (fraction[0] not in ".," or not fraction[1:].isdigit()):
            raise UnreadableError("bad_value", f"TIMESTAMP: expected a date and time, got {text!r}")
        return self.ns_of_second + int(fraction[1:10].ljust(9, "0") or 0) + offset

    @staticmethod
    def _second(text: str) -> int:
        try:
            day = date(int(text[0:4]), int(text[5:7]), int(text[8:10])).toordinal() - date(1970, 1, 1).toordinal()
            hour, minute, second = int(text[11:13]), int(text[14:16]), int(text[17:19])
            if text[4] + text[7] + text[13] + text[16] != "--::" or not (hour < 24 and minute < 60 and second < 61):
                raise ValueError
        except (ValueError, IndexError):
            raise UnreadableError("bad_value", f"TIMESTAMP: expected a date and time, got {text!r}") from None
        return (((day * 24 + hour) * 60 + minute) * 60 + second) * _SECOND

    @staticmethod
    def _zone(zone: str, text: str) -> int:
        digits = zone.replace(":", "")
        if not (digits.isdigit() and len(digits) in (2, 4)):
            raise UnreadableError("bad_value", f"TIMESTAMP: expected a zone like +00:00, got {text!r}")
        return (int(digits[:2]) * 60 + int(digits[2:] or 0)) * 60 * _SECOND
