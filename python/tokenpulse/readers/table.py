"""Tables whose columns are named as the fields of our log: Arrow, Parquet, CSV, and what others hold in memory.

A row is a request with its lists, or an event. Rows go to the core batch by batch, as views of the table's own memory
where types allow. pyarrow does the reading; it is an extra, and loaded when a table is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from tokenpulse.engine import ColumnReducer, FormatError
from tokenpulse.records import Records

PARQUET, ARROW, CSV, MEMORY = "parquet", "arrow", "csv", "table"

_MISSING = "a table needs pyarrow, which is not installed: pip install 'tokenpulse[arrow]'"
_IN_FLIGHT = 255
_NOTICES = 5

Batches = Callable[[list[dict[str, Any]]], Iterator[Any]]


@runtime_checkable
class Streamable(Protocol):
    """What gives its rows through the Arrow C stream interface: tables of pyarrow, polars, pandas, duckdb."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class Table:
    """Rows that are read when they are asked for: by a reducer, in bounded memory, or as `Records`.

    `name` is what the table is called, `format` what it is. `once` says that it can be read only once. `skipped` and
    `notices` are of the last reading: rows that could not be read at all, by reason.
    """

    def __init__(self, name: str, format: str, batches: Batches, *, once: bool = False) -> None:  # noqa: A002
        self.name = name
        self.format = format
        self.once = once
        self.skipped: dict[str, int] = {}
        self.notices: list[dict[str, Any]] = []
        self._batches = batches
        self._read = False

    def __repr__(self) -> str:
        return f"Table({self.name!r}, format={self.format!r})"

    def columns(self, labels: Collection[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """`requests` or `events`, and the columns of a batch as `ColumnReducer` takes them, batch by batch.

        Of the labels those in `labels`, or all. Raises FormatError for a column that is missing or of the wrong type,
        OSError for a file that cannot be read, and ValueError for a second reading of what can be read only once.
        """
        if self.once and self._read:
            raise ValueError(f"{self.name} can be read only once")
        self._read = True
        from tokenpulse.readers import arrow_columns

        self.skipped, self.notices = {}, []
        faults: list[dict[str, Any]] = []
        first_row = 0
        try:
            for batch in self._batches(faults):
                self._note(faults)
                kind = arrow_columns.kind_of(batch.schema.names)
                taken = arrow_columns.request_columns if kind == "requests" else arrow_columns.event_columns
                yield kind, taken(batch, labels, first_row, self.format == CSV)
                first_row += batch.num_rows
                del batch  # before the next one is read
        except FormatError as error:
            text = str(error)
            raise error if text.startswith(self.name) else FormatError(f"{self.name}: {text}") from None
        self._note(faults)

    def _note(self, faults: list[dict[str, Any]]) -> None:
        for fault in faults:
            self.skipped[fault["reason"]] = self.skipped.get(fault["reason"], 0) + 1
            if len(self.notices) < _NOTICES:
                self.notices.append({"path": self.name, **fault})
        faults.clear()

    def reduce_into(
        self, reducer: ColumnReducer, name: str | None = None, labels: Collection[str] | None = None
    ) -> None:
        """Hand every row to a reducer, as an input of this name. Raises as `columns` does."""
        for kind, columns in self.columns(labels):
            take = reducer.requests if kind == "requests" else reducer.events
            take(self.name if name is None else name, self.format, columns)
            del columns  # before the next batch is read

    def records(self) -> Records:
        """Every request with all its values, in memory: as the core takes them, so that what it refuses is not there.

        Raises as `columns` does, and ValueError for more than `own.MAX_TOKENS` emissions.
        """
        from tokenpulse.readers import table_rows

        return table_rows.records(self)


def read(source: str | bytes, *, name: str | None = None, format: str) -> Table:  # noqa: A002
    """A Parquet, Arrow IPC or CSV file (`format` as `readers.detect` says): a path, or its bytes.

    Raises ModuleNotFoundError, which names the extra, where pyarrow is missing; FormatError where the columns are not
    those of our log; OSError for a file that cannot be read.
    """
    files = _arrow_files()
    called = name or (source if isinstance(source, str) else "<bytes>")
    files.exists(source)
    opened: Mapping[str, Batches] = {
        PARQUET: lambda _: files.parquet(source, called),
        ARROW: lambda _: files.arrow(source, called),
        CSV: lambda faults: files.table_csv(source, called, faults),
    }
    return Table(called, format, opened[format])


def of(given: Streamable, name: str = "table") -> Table:
    """A table in memory: anything with `__arrow_c_stream__`. What is a stream itself is read only once.

    Raises ModuleNotFoundError, which names the extra, where pyarrow is missing.

    >>> import pyarrow as pa
    >>> table = of(pa.table({"arrive_ns": [5, 6], "token_ns": [[8, 9], None], "labels.tenant": ["a", "b"]}))
    >>> [(kind, columns["token_ns"].tolist()) for kind, columns in table.columns()]
    [('requests', [8, 9])]
    """
    files = _arrow_files()
    import pyarrow as pa

    if not isinstance(given, Streamable):
        got = type(given).__name__
        raise TypeError(f"a table must have __arrow_c_stream__ (as pyarrow, polars, pandas and duckdb have), got {got}")

    def batches(_: Any) -> Iterator[Any]:
        with pa.RecordBatchReader.from_stream(given) as reader:
            for batch in reader:
                yield from files.small(batch)
                del batch  # before the next one is read

    return Table(name, MEMORY, batches, once=hasattr(given, "read_next_batch"))


def _arrow_files() -> Any:
    try:
        from tokenpulse.readers import arrow_files
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "pyarrow":
            raise
        raise ModuleNotFoundError(_MISSING, name="pyarrow") from None
    return arrow_files
