"""Parquet, Arrow IPC and CSV files as batches of Arrow columns, one after the other, in bounded memory.

A batch has so many rows that its numbers take some megabytes; of a file no more is held. pyarrow is loaded here only.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from tokenpulse.engine import FormatError, PlainBytes

ROWS = 1 << 16
"""Rows of a batch at most."""
NUMBERS = 1 << 21
"""About so many numbers in the longest column of a batch."""
BLOCK = 1 << 20
"""Bytes of a CSV that are read at a time."""
HEADER = 1 << 16
"""Bytes in which the first line of a CSV must end."""

ABSENT_TEXTS = ["", "null", "NULL", "None", "nan", "NaN"]
Faults = list[dict[str, Any]]


def small(batch: Any) -> Iterator[Any]:
    """A batch in parts of at most `ROWS` rows, which are views of it."""
    for start in range(0, batch.num_rows, ROWS):
        yield batch.slice(start, ROWS)


def parquet(source: str | bytes, name: str) -> Iterator[Any]:
    """The batches of a Parquet file. Raises FormatError for one that is damaged."""
    where = source if isinstance(source, str) else pa.BufferReader(source)
    try:
        with pq.ParquetFile(where, buffer_size=BLOCK, pre_buffer=False) as file:
            yield from file.iter_batches(_rows_of(file.metadata), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(error, name, "Parquet") from error


def _rows_of(metadata: Any) -> int:
    """How many rows a batch may have for its longest column to have about `NUMBERS` values."""
    longest = 1.0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            longest = max(longest, column.num_values / max(group.num_rows, 1))
    return max(1, min(ROWS, int(NUMBERS / longest)))


def arrow(source: str | bytes, name: str) -> Iterator[Any]:
    """The batches of an Arrow IPC file or stream. Raises FormatError for one that is damaged."""
    try:
        with _opened(source) as file:
            is_file = file.read(6) == b"ARROW1"
        if is_file:
            with _opened(source) as file, pa.ipc.open_file(file) as reader:
                count = reader.num_record_batches
            for place in range(count):
                # Mapped for each batch anew: what has been read of a mapped file takes memory until it is closed.
                with _opened(source, mapped=True) as file, pa.ipc.open_file(file) as reader:
                    batch = reader.get_batch(place)
                yield from small(batch)
                del batch
        else:
            with _opened(source) as file, pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    yield from small(batch)
                    del batch  # before the next one is read
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(error, name, "Arrow") from error


def _opened(source: str | bytes, mapped: bool = False) -> Any:
    if isinstance(source, bytes):
        return pa.BufferReader(source)
    return pa.memory_map(source) if mapped else pa.OSFile(source)


def _unreadable(error: Exception, name: str, what: str) -> Exception:
    """What the system says of a file stays as it is; what pyarrow says of its content is one line."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    return FormatError(f"{name}: expected {what} that can be read: {said}")


def table_csv(source: str | bytes, name: str, faults: Faults) -> Iterator[Any]:
    """The batches of a CSV file, plain or compressed, all columns as texts.

    Rows with too many or too few cells are left out and added to `faults`. Raises FormatError for a header that is
    none, and for what is not UTF-8.
    """
    plain = PlainBytes(source, name=name)
    blocks = iter(plain)
    head = next(blocks, b"")
    delimiter, columns = _header(head, name)
    rows = head.partition(b"\n")[2]

    def is_wrong(row: Any) -> str:
        message = f"expected {row.expected_columns} cells, got {row.actual_columns}"
        faults.append({"line": row.number and row.number + 1, "reason": "length_mismatch", "message": message})
        return "skip"

    read = arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK, column_names=columns)
    parse = arrow_csv.ParseOptions(delimiter=delimiter, invalid_row_handler=is_wrong)
    convert = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=True, null_values=ABSENT_TEXTS
    )
    stream = pa.PythonFile(io.BufferedReader(_Blocks(rows, blocks), BLOCK), mode="r")
    try:
        with arrow_csv.open_csv(stream, read, parse, convert) as reader:
            yield from reader
    except pa.ArrowInvalid as error:
        if "Empty CSV" not in str(error):  # a header alone is a table without rows
            raise _unreadable(error, name, "CSV") from error


def _header(head: bytes, name: str) -> tuple[str, list[str]]:
    """What separates the cells, and the names of the columns."""
    line = head[:HEADER].decode("utf-8-sig", errors="replace").partition("\n")[0].rstrip("\r")
    delimiter = max(",;\t", key=line.count)
    columns = [column.strip() for column in next(csv.reader([line], delimiter=delimiter), [])]
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise FormatError(f"{name}: column {twice[0]}: expected it once, got it {columns.count(twice[0])} times")
    return delimiter, columns


class _Blocks(io.RawIOBase):
    """Blocks of bytes as a file."""

    def __init__(self, head: bytes, rest: Iterator[bytes]) -> None:
        self._left = memoryview(head)
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = memoryview(next(self._rest, b""))
        taken = self._left[: len(buffer)]
        buffer[: len(taken)] = taken
        self._left = self._left[len(taken) :]
        return len(taken)


def exists(source: str | bytes) -> None:
    """Raises OSError where a file cannot be opened."""
    if isinstance(source, str):
        with Path(source).open("rb"):
            pass
