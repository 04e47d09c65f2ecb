"""Batches of Arrow columns as the NumPy columns that `engine.ColumnReducer` takes: views of the same memory where types
allow, so that nothing passes through Python.

int64 columns and lists of them, offsets and texts are views. Other widths, timestamps, dictionaries and columns with
nulls are converted, column by column. What is null is absent. pyarrow is loaded here only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenpulse.engine import FormatError
from tokenpulse.model import STATUSES
from tokenpulse.records import ABSENT, Ints, Labels

EVENTS = {
    name: code for code, name in enumerate(("arrive", "schedule", "prefill", "tokens", "preempt", "resume", "end"))
} | dict.fromkeys(("gauge", "add", "count", "kv_store", "kv_evict", "kv_lookup", "kv_clear", "ready"), 7)
"""Events by the code that the core has for them; those of no request are alike to it."""

IN_FLIGHT = 255
STATUS_CODES = {name: code for code, name in enumerate(STATUSES)} | {"in_flight": IN_FLIGHT}
UNKNOWN = 254
"""Stands for a status or an event that is none: the core skips the row."""

BAD = -1
"""Stands for a number that is none: no column may have it, and the core skips the row."""

ALIASES = {"arrive_ns": ("arrive_ns", "arrival_mono_ns"), "prompt_tokens": ("prompt_tokens", "ctx")}
INTEGERS = (
    "schedule_ns",
    "prefill_ns",
    "end_ns",
    "first_token_ns",
    "last_token_ns",
    "output_tokens",
    "prompt_tokens",
    "cached_tokens",
)
"""Columns of requests with one number a row, beside the arrival."""

Lists = tuple[Ints, Ints]
"""The numbers of all rows, and where those of each row begin and the last ones end."""


def kind_of(names: Collection[str]) -> str:
    """`requests` or `events`, by the names of the columns. Raises FormatError if they are neither."""
    is_requests = any(name in names for name in ALIASES["arrive_ns"])
    is_events = {"t_ns", "ev"} <= set(names)
    if is_requests and is_events:
        raise FormatError("expected columns of requests (arrive_ns) or of events (t_ns and ev), got both")
    if not is_requests and not is_events:
        got = ", ".join(sorted(names)[:12]) or "none"
        raise FormatError(f"expected a column arrive_ns, or t_ns and ev; got {got}")
    return "requests" if is_requests else "events"


def request_columns(batch: Any, labels: Collection[str] | None, first_row: int, text: bool = False) -> dict[str, Any]:
    """A batch of requests. Of the labels those in `labels`, or all; `first_row` is the number of the first row, from 0;
    with `text`, numbers stand as texts."""
    rows = Batch(batch, first_row, text)
    columns: dict[str, Any] = {"arrive_ns": rows.numbers("arrive_ns"), "ids": rows.ids()}
    for name in INTEGERS:
        if rows.has(name):
            columns[name] = rows.numbers(name)
    for name in ("preempt", "resume"):
        if (lists := rows.lists(f"{name}_ns")) is not None:
            columns[f"{name}_ns"], columns[f"{name}_offsets"] = lists
    columns["status"] = rows.codes("status", STATUS_CODES, absent=STATUS_CODES["stop"])
    columns["degraded"] = rows.flags("degraded")
    columns["labels"] = rows.labels(labels)
    columns |= _emissions(rows, columns)
    return {name: column for name, column in columns.items() if column is not None}


def event_columns(batch: Any, labels: Collection[str] | None, first_row: int, text: bool = False) -> dict[str, Any]:
    """A batch of events, likewise. An event of a request without an id lacks a field, and is given no time."""
    rows = Batch(batch, first_row, text)
    columns: dict[str, Any] = {"t_ns": rows.numbers("t_ns"), "ev": rows.codes("ev", EVENTS, absent=UNKNOWN)}
    nameless = rows.missing("id") & (columns["ev"] < EVENTS["ready"])
    if nameless.any():
        columns["t_ns"] = np.where(nameless, ABSENT, columns["t_ns"])
    columns["ids"] = rows.ids()
    for name in ("k", "prompt_tokens"):
        if rows.has(name):
            columns[name] = rows.numbers(name)
    columns["status"] = rows.codes("status", STATUS_CODES, absent=UNKNOWN)
    columns["degraded"] = rows.flags("degraded")
    columns["labels"] = rows.labels(labels)
    return {name: column for name, column in columns.items() if column is not None}


def _emissions(rows: Batch, columns: dict[str, Any]) -> dict[str, Any]:
    """`token_ns` or `dt_ns` with their offsets, and `n`. Where a row has both, its `token_ns` counts."""
    token, since = rows.lists("token_ns"), rows.lists("dt_ns")
    name, lists = ("dt_ns", since) if token is None else ("token_ns", token)
    if token is not None and since is not None and (lacking := rows.missing("token_ns")).any():
        base = np.repeat(np.where(columns["arrive_ns"] == ABSENT, 0, columns["arrive_ns"]), np.diff(since[1]))
        lists = _either(token, (since[0] + base, since[1]), lacking)
    if lists is None:
        return {}
    found: dict[str, Any] = {name: lists[0], "token_offsets": lists[1]}
    counts = rows.lists("n")
    if counts is None:
        return found
    lengths, given = np.diff(lists[1]), ~rows.missing("n")
    wrong = given & (np.diff(counts[1]) != lengths)
    if wrong.any():
        given_status = 0 if columns["status"] is None else columns["status"]
        columns["status"] = np.where(wrong, UNKNOWN, given_status).astype(np.uint8)
    if wrong.any() or not given.all():
        ones = (np.ones(len(lists[0]), np.int64), lists[1])
        counts = _either(counts, ones, wrong | ~given)
    return found | {"n": counts[0]}


def _either(first: Lists, second: Lists, use_second: NDArray[np.bool_]) -> Lists:
    """Of each row the list of the first, or of the second."""
    joined = np.concatenate((first[0], second[0]))
    starts = np.where(use_second, second[1][:-1] + len(first[0]), first[1][:-1])
    lengths = np.where(use_second, np.diff(second[1]), np.diff(first[1]))
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return joined[places], offsets


class Batch:
    """The columns of one batch, by the names that our log has for them."""

    def __init__(self, batch: Any, first_row: int, text: bool) -> None:
        self._batch = batch
        self._text = text
        self._names = batch.schema.names
        self._first_row = first_row
        self._n = batch.num_rows

    def has(self, name: str) -> bool:
        return any(alias in self._names for alias in ALIASES.get(name, (name,)))

    def column(self, name: str) -> Any:
        """A column, or None."""
        return self._decoded(name) if name in self._names else None

    def _decoded(self, name: str) -> Any:
        if self._names.count(name) > 1:
            raise FormatError(f"column {name}: expected it once, got it {self._names.count(name)} times")
        column = self._batch.column(self._names.index(name))
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        if pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        return column

    def missing(self, name: str) -> NDArray[np.bool_]:
        """Of each row whether it lacks this."""
        column = self.column(name)
        if column is None:
            return np.ones(self._n, np.bool_)
        if column.null_count == 0:
            return np.zeros(self._n, np.bool_)
        nulls: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
        return nulls

    def numbers(self, name: str) -> Ints:
        """Whole numbers. Of two names for the same the first counts, row by row."""
        columns = [
            integers(self._decoded(alias), alias, lambda at: f"row {self._first_row + at + 1}", self._text)
            for alias in ALIASES.get(name, (name,))
            if alias in self._names
        ]
        return columns[0] if len(columns) == 1 else np.where(columns[0] == ABSENT, columns[1], columns[0])

    def lists(self, name: str) -> Lists | None:
        """The lists of a column; null is an empty one. None if no row has any."""
        column = self.column(name)
        if column is None or pa.types.is_null(column.type):
            return None
        kind = column.type
        plain = bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
        view = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
        if not (plain or view or pa.types.is_fixed_size_list(kind)):
            _wrong(name, "lists of integers", kind)
        offsets, flat = _flattened(column, plain)

        def place(at: int) -> str:
            return f"row {self._first_row + int(np.searchsorted(offsets, at, 'right'))}"

        return integers(flat, name, place), offsets

    def flags(self, name: str) -> NDArray[np.bool_] | None:
        column = self.column(name)
        if column is None or pa.types.is_null(column.type):
            return None
        if self._text:
            column = pc.is_in(pc.utf8_lower(column), value_set=pa.array(["true", "1"]))
        if not pa.types.is_boolean(column.type):
            _wrong(name, "booleans", column.type)
        flags: NDArray[np.bool_] = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
        return flags

    def codes(self, name: str, known: dict[str, int], absent: int) -> NDArray[np.uint8] | None:
        """The code of each row's text."""
        column = self.column(name)
        if column is None or pa.types.is_null(column.type):
            return None if column is None else np.full(self._n, absent, np.uint8)
        codes, texts = _encoded(column, name, "strings", _is_text)
        table = np.array([*(known.get(text, UNKNOWN) for text in texts), absent], np.uint8)
        return table[codes]

    def ids(self) -> Any:
        """The texts of the ids and their offsets; None: none has one. A row without one is called by its number."""
        column = self.column("id")
        if column is None or pa.types.is_null(column.type):
            return None
        kind = column.type
        if pa.types.is_dictionary(kind):
            column, kind = pc.cast(column, kind.value_type), kind.value_type
        if not (_is_text(kind) or pa.types.is_integer(kind)):
            _wrong("id", "strings or integers", kind)
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            column = pc.cast(column, pa.large_string())
        if column.null_count:
            numbers = pa.array(np.arange(self._first_row, self._first_row + self._n)).cast(column.type)
            column = pc.coalesce(column, numbers)
        _, offsets, texts = column.buffers()
        width = np.int32 if pa.types.is_string(column.type) else np.int64
        if offsets is None or len(column) == 0:
            return np.empty(0, np.uint8), np.zeros(1, np.int64)
        bytes_of = np.empty(0, np.uint8) if texts is None else np.frombuffer(texts, np.uint8)
        return bytes_of, _part(np.frombuffer(offsets, width), column.offset, len(column) + 1)

    def labels(self, wanted: Collection[str] | None) -> Labels | None:
        """The labels of rows: the members of a struct or a map `labels`, and columns `labels.NAME`."""
        found: dict[str, Any] = {}
        column = self.column("labels")
        if column is not None and not pa.types.is_null(column.type):
            if pa.types.is_struct(column.type):
                members = column.flatten()
                found = {column.type.field(place).name: member for place, member in enumerate(members)}
            elif pa.types.is_map(column.type):
                return self._mapped(column, wanted)
            else:
                _wrong("labels", "a struct, a map, or columns labels.NAME", column.type)
        for name in self._names:
            if name.startswith("labels."):
                found[name.removeprefix("labels.")] = self._decoded(name)
        labels: Labels = {}
        for name, member in found.items():
            if (wanted is None or name in wanted) and not pa.types.is_null(member.type):
                labels[name] = _encoded(member, f"labels.{name}", "strings, integers or booleans", _is_label)
        return labels or None

    def _mapped(self, column: Any, wanted: Collection[str] | None) -> Labels | None:
        lists = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
        pairs = pc.list_flatten(lists).flatten()
        rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        key_codes, keys = _encoded(pairs[0], "labels", "strings", _is_text)
        codes, values = _encoded(pairs[1], "labels", "strings, integers or booleans", _is_label)
        labels: Labels = {}
        for place, key in enumerate(keys):
            if wanted is None or key in wanted:
                has = key_codes == place
                labels[key] = (np.full(self._n, -1, np.int32), values)
                labels[key][0][rows[has]] = codes[has]
        return labels or None


def _flattened(column: Any, plain: bool) -> tuple[NDArray[Any], Any]:
    """The offsets of lists and what is in them; a null is an empty one. `plain` lists lie one behind the other."""
    if column.null_count or not plain:
        # What stands in place of a null is nobody's.
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        offsets = np.zeros(len(column) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return offsets, pc.list_flatten(column)
    offsets = column.offsets.to_numpy(zero_copy_only=True)
    if len(offsets) == 0:
        offsets = np.zeros(1, np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    return _aligned(offsets if first == 0 else offsets - first), column.values.slice(first, last - first)


def integers(column: Any, name: str, place: Callable[[int], str], text: bool = False) -> Ints:
    """Whole numbers as int64, `ABSENT` where there is none: a view if they are that and none is null.

    Timestamps and durations become nanoseconds. A float that is whole is one; one that is not, and what does not fit,
    becomes `BAD`, unless the column has nothing else: then it is of the wrong type. Raises FormatError with its name.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), ABSENT, np.int64)
    if pa.types.is_dictionary(kind):
        return integers(pc.cast(column, kind.value_type), name, place, text)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        nanoseconds = pa.timestamp("ns", kind.tz) if pa.types.is_timestamp(kind) else pa.duration("ns")
        try:
            column = column.cast(nanoseconds).cast(pa.int64())
        except pa.ArrowInvalid:
            raise FormatError(f"column {name}: expected times that fit 64 bits of nanoseconds, got {kind}") from None
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind) or (text and _is_text(kind)):
        return _whole(column, name, place)
    elif pa.types.is_uint64(kind):
        known = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        values = np.where(known > np.uint64(2**63 - 1), np.uint64(2**64 + BAD), known).astype(np.int64)
        return np.where(column.is_null().to_numpy(zero_copy_only=False), ABSENT, values)
    elif not pa.types.is_integer(kind):
        _wrong(name, "integers", kind)
    elif not pa.types.is_int64(kind):
        column = column.cast(pa.int64())
    if column.null_count:
        column = pc.fill_null(column, ABSENT)
    return _aligned(column.to_numpy(zero_copy_only=True))


def _whole(column: Any, name: str, place: Callable[[int], str]) -> Ints:
    """Numbers that are floats, decimals or, as in CSV, texts."""
    given = column.is_valid().to_numpy(zero_copy_only=False)
    try:
        return integers(pc.cast(column, pa.int64()), name, place)
    except pa.ArrowInvalid:
        pass
    # NaN stands for what is absent, as in pandas.
    floats = _floats(column)
    given &= ~(np.isnan(floats) & pa.types.is_floating(column.type))
    fits = np.isfinite(floats) & (np.abs(floats) < 2.0**63) & (np.floor(floats) == floats)
    values = np.where(fits, np.where(fits, floats, 0).astype(np.int64), BAD)
    if _is_text(column.type):
        # A text of digits alone is exact, whatever its neighbours are.
        digits = pc.fill_null(pc.match_substring_regex(column, r"^-?[0-9]{1,18}$"), False).to_numpy(
            zero_copy_only=False
        )
        exact = pc.cast(column.filter(pa.array(digits)), pa.int64()).to_numpy(zero_copy_only=False)
        values[digits], fits = exact, fits | digits
    if given.any() and not (fits & given).any():
        at = int(np.flatnonzero(given)[0])
        got = column[at].as_py()
        raise FormatError(f"column {name}: expected whole numbers (times in ns), got {got!r} in {place(at)}")
    return np.where(given, values, ABSENT)


def _floats(column: Any) -> NDArray[np.float64]:
    """Numbers as floats, NaN where there is none."""
    if _is_text(column.type):
        numbers = pc.match_substring_regex(column, r"^\s*[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?\s*$")
        column = pc.if_else(numbers, pc.utf8_trim_whitespace(column), None)
    floats: NDArray[np.float64] = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return floats


def _encoded(column: Any, name: str, expected: str, fits: Callable[[Any], bool]) -> tuple[NDArray[np.int32], list[str]]:
    """The code of each row (-1: none) and the texts that the codes stand for."""
    kind = column.type
    if not pa.types.is_dictionary(kind):
        column = column.dictionary_encode()
    if not fits(column.type.value_type):
        _wrong(name, expected, kind)
    codes = _aligned(pc.fill_null(column.indices.cast(pa.int32()), -1).to_numpy(zero_copy_only=True))
    texts = [_text(value) for value in column.dictionary.to_pylist()]
    if None in texts:
        known = np.array([-1 if text is None else place for place, text in enumerate(texts)] + [-1], np.int32)
        codes = known[codes]
    return codes, [text or "" for text in texts]


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_label(kind: Any) -> bool:
    return _is_text(kind) or bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _part(values: NDArray[Any], start: int, length: int) -> NDArray[Any]:
    return _aligned(values[start : start + length])


def _aligned(values: NDArray[Any]) -> NDArray[Any]:
    return np.require(values, requirements=["C", "A"])


def _wrong(name: str, expected: str, got: Any) -> NoReturn:
    raise FormatError(f"column {name}: expected {expected}, got {got}")
