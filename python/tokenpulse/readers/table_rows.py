"""The rows of a table as `Records`: taken by the core as lines that say the same, so that it accepts the same ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokenpulse import engine
from tokenpulse.model import STATUSES
from tokenpulse.readers import own
from tokenpulse.records import ABSENT, Ints, Records

if TYPE_CHECKING:
    from tokenpulse.readers.table import Table

Columns = dict[str, Any]

EVENTS = ("arrive", "schedule", "prefill", "tokens", "preempt", "resume", "end", "ready")
NUMBERS = ("arrive_ns", "schedule_ns", "prefill_ns", "end_ns", "first_token_ns", "last_token_ns", "output_tokens")
LISTS = (("token_ns", "token_offsets"), ("dt_ns", "token_offsets"), ("n", "token_offsets"))
STALLS = (("preempt_ns", "preempt_offsets"), ("resume_ns", "resume_offsets"))
IN_FLIGHT = 255
MAX_TOKENS = 1 << 40
"""Of one request."""
UNSAID = {STATUSES.index("lost"): "abort", IN_FLIGHT: "abort"}
"""Statuses that no line has, and what stands for them: they are put back."""


def records(table: Table) -> Records:
    """See `Table.records`."""
    exact = rows(table)
    found = own.of_rows(exact)
    output: Ints = exact["output_tokens"]
    counted: Ints = output if found.output_tokens is None else found.output_tokens
    differs = (output != ABSENT) & (output != counted)
    return replace(
        found,
        tool="table",
        format=table.format,
        cached_tokens=exact.get("cached_tokens"),
        output_tokens=np.where(differs, output, counted),
        chunk_tokens=None if differs.any() else found.chunk_tokens,
        latency=np.where(exact["status"] == IN_FLIGHT, np.nan, found.latency),
    )


def rows(table: Table) -> dict[str, Any]:
    """The rows of a table that the core accepts, with their accepted events alone, as `engine.read_rows` gives them.

    Beside its columns: `cached_tokens` where the table has them. `output_tokens` is also given where it is another
    number than that of the emissions, and `status` where no line can say it. Raises as `Table.records` does.
    """
    batches = list(table.columns())
    if batches and batches[0][0] == "events":
        lines = [line for _, columns in batches for line in _event_lines(columns)]
        found = _read(table.name, lines)
    else:
        found = _of_requests(table.name, [columns for _, columns in batches])
    (one,) = found["inputs"]
    one["format"] = table.format
    for reason, count in table.skipped.items():
        one["skipped"][reason] = one["skipped"].get(reason, 0) + count
    found["notices"] = [*found["notices"], *table.notices]
    return found


def _read(name: str, lines: list[str]) -> dict[str, Any]:
    text = "\n".join(lines).encode()
    lines.clear()
    return dict(engine.read_rows_bytes([(name, text)], max_tokens=own.MAX_TOKENS))


def _event_lines(columns: Columns) -> Iterator[str]:
    ids = texts_of(columns.get("ids"))
    labels = _label_texts(columns)
    optional = [(name, columns[name].tolist()) for name in ("k", "prompt_tokens") if name in columns]
    statuses, degraded = columns.get("status"), columns.get("degraded")
    for row, (t, code) in enumerate(zip(columns["t_ns"].tolist(), columns["ev"].tolist(), strict=True)):
        line: dict[str, Any] = {"ev": EVENTS[code] if code < len(EVENTS) else "?"}
        if t != ABSENT:
            line["t_ns"] = t
        line |= {name: values[row] for name, values in optional if values[row] != ABSENT}
        if ids is not None:
            line["id"] = ids[row]
        if statuses is not None and line["ev"] == "end":
            line["status"] = _status(int(statuses[row]))
        if degraded is not None and degraded[row]:
            line["degraded"] = True
        if labels and line["ev"] == "arrive":
            line["labels"] = {name: texts[row] for name, texts in labels.items()}
        yield json.dumps(line)


def _status(code: int) -> str:
    return STATUSES[code] if code < STATUSES.index("lost") else "?"


def _of_requests(name: str, batches: list[Columns]) -> dict[str, Any]:
    """A row's number stands for its id; by it the accepted rows have back what no line says."""
    lines: list[str] = []
    numbers: list[Ints] = []
    first_row = 0
    for columns in batches:
        known = np.flatnonzero(columns["arrive_ns"] != ABSENT)
        lines.extend(_request_lines(columns, known, first_row))
        numbers.append(first_row + known)
        first_row += len(columns["arrive_ns"])
    found = _read(name, lines)
    read = np.concatenate(numbers) if numbers else np.empty(0, np.int64)
    accepted = np.array(found["ids"], np.int64)
    status = _joined(batches, "status", 0, np.uint8)[accepted]
    tokens = _joined(batches, "output_tokens")[accepted]
    given = _emitted(batches)[accepted]
    differs = (given > 0) & (tokens != ABSENT) & (tokens != given)
    found |= {
        "ids": _ids(batches, accepted),
        "labels": _labels(batches, accepted),
        "status": np.where(np.isin(status, list(UNSAID)), status, found["status"]),
        "end_ns": np.where(status == IN_FLIGHT, ABSENT, found["end_ns"]),
        "output_tokens": np.where(differs, tokens, found["output_tokens"]),
    }
    if any("cached_tokens" in columns for columns in batches):
        found["cached_tokens"] = _joined(batches, "cached_tokens")[accepted]
    (one,) = found["inputs"]
    one["lines"] += first_row - len(read)
    if first_row > len(read):
        one["skipped"]["missing_field"] = one["skipped"].get("missing_field", 0) + first_row - len(read)
    for notice in found["notices"]:
        notice["line"] = int(read[notice["line"] - 1]) + 1
    return found


def _request_lines(columns: Columns, rows: Ints, first_row: int) -> Iterator[str]:
    numbers = [(name, columns[name].tolist()) for name in NUMBERS if name in columns]
    prompts, tokens = (columns[n].tolist() if n in columns else None for n in ("prompt_tokens", "output_tokens"))
    lists = [
        (name, columns[name].tolist(), columns[offsets].tolist())
        for name, offsets in (*LISTS, *STALLS)
        if name in columns
    ]
    statuses, degraded = columns.get("status"), columns.get("degraded")
    for row in rows.tolist():
        parts = [f'"id":"{first_row + row}"']
        code = 0 if statuses is None else int(statuses[row])
        parts += [
            f'"{name}":{values[row]}'
            for name, values in numbers
            if values[row] != ABSENT and not (name == "end_ns" and code in UNSAID and values[row] >= 0)
        ]
        if prompts is not None and prompts[row] != ABSENT:
            parts.append(f'"prompt_tokens":{prompts[row]}')
        timed = any(name in ("token_ns", "dt_ns") and at[row] < at[row + 1] for name, _, at in lists)
        for name, values, at in lists:
            # A row without emissions is one whose tokens have no times.
            if timed or (name, "token_offsets") not in LISTS:
                parts.append(f'"{name}":{values[at[row] : at[row + 1]]}')
        # A line does not look at this number beside emissions; a table does.
        refused = timed and tokens is not None and tokens[row] != ABSENT and not 0 <= tokens[row] <= MAX_TOKENS
        if statuses is not None or refused:
            parts.append(f'"status":"{"?" if refused else UNSAID.get(code) or _status(code)}"')
        if degraded is not None and degraded[row]:
            parts.append('"degraded":true')
        yield "{" + ",".join(parts) + "}"


def _joined(batches: list[Columns], name: str, absent: int = ABSENT, dtype: Any = np.int64) -> NDArray[Any]:
    """A column of all batches."""
    columns = [
        columns[name] if name in columns else np.full(len(columns["arrive_ns"]), absent, dtype) for columns in batches
    ]
    return np.concatenate(columns) if columns else np.empty(0, dtype)


def _emitted(batches: list[Columns]) -> Ints:
    """The tokens of each row's emissions, be they accepted or not."""
    found = []
    for columns in batches:
        offsets = columns.get("token_offsets")
        if offsets is None:
            found.append(np.zeros(len(columns["arrive_ns"]), np.int64))
        else:
            sizes = columns.get("n")
            sums = np.arange(offsets[-1] + 1) if sizes is None else np.concatenate(([0], np.cumsum(sizes)))
            found.append(np.diff(sums[offsets]))
    return np.concatenate(found) if found else np.empty(0, np.int64)


def texts_of(ids: Any) -> list[str] | None:
    """Ids as they are given to the core, as texts; None: they have none."""
    if ids is None or isinstance(ids, list):
        return ids
    text, offsets = bytes(ids[0]), ids[1].tolist()
    return [text[start:end].decode() for start, end in pairwise(offsets)]


def _ids(batches: list[Columns], rows: Ints) -> list[str]:
    names: list[str] = []
    for columns in batches:
        own_ids = texts_of(columns.get("ids"))
        numbers = range(len(names), len(names) + len(columns["arrive_ns"]))
        names.extend(map(str, numbers) if own_ids is None else own_ids)
    return [names[row] for row in rows.tolist()]


def _label_texts(columns: Columns) -> dict[str, list[str | None]]:
    return {
        name: [None if code < 0 else texts[code] for code in codes.tolist()]
        for name, (codes, texts) in (columns.get("labels") or {}).items()
    }


def _labels(batches: list[Columns], rows: Ints) -> dict[str, tuple[NDArray[np.int32], list[str]]]:
    """Labels of the rows, whose codes are the same in all batches."""
    names = list(dict.fromkeys(name for columns in batches for name in columns.get("labels") or {}))
    found = {}
    for name in names:
        known: dict[str, int] = {}
        parts = []
        for columns in batches:
            codes, texts = (columns.get("labels") or {}).get(name) or (np.full(len(columns["arrive_ns"]), -1), [])
            table = np.array([*(known.setdefault(text, len(known)) for text in texts), -1], np.int32)
            parts.append(table[codes])
        found[name] = (np.concatenate(parts)[rows], list(known))
    return found
