"""Rows as a Parquet file, one row a request, with the columns that `tokenpulse report` reads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from tokenpulse.converting.rows import IN_FLIGHT, Rows
from tokenpulse.model import STATUSES
from tokenpulse.records import ABSENT, Ints

MISSING = "Parquet needs pyarrow, which is not installed: pip install 'tokenpulse[arrow]'"
GROUP = 1 << 16
"""Rows of a row group."""

_NUMBERS = (
    *("arrive_ns", "schedule_ns", "prefill_ns", "end_ns", "first_token_ns", "last_token_ns"),
    *("output_tokens", "prompt_tokens", "cached_tokens"),
)


def check() -> None:
    """Raise ValueError, which names the extra, where pyarrow is missing."""
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError:
        raise ValueError(MISSING) from None


def write(stream: BinaryIO, every: Sequence[Rows], extra: Sequence[Mapping[str, Sequence[Any]]]) -> None:
    """Write the rows of all inputs as one table; `extra` has further columns of each."""
    import pyarrow as pa
    from pyarrow import parquet

    labels = list(dict.fromkeys(name for rows in every for name in rows.labels))
    keys = list(dict.fromkeys(name for one in extra for name in one))
    texts = {name for one in extra for name, values in one.items() if any(isinstance(v, str) for v in values)}
    schema = pa.schema(
        [
            ("id", pa.string()),
            *((name, pa.int64()) for name in _NUMBERS),
            *((name, pa.list_(pa.int64())) for name in ("token_ns", "n", "preempt_ns", "resume_ns")),
            ("status", pa.string()),
            ("degraded", pa.bool_()),
            *((f"labels.{name}", pa.string()) for name in labels),
            *((name, pa.string() if name in texts or name.startswith("verdict.") else pa.float64()) for name in keys),
        ]
    )
    with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        for rows, own in zip(every, extra, strict=True):
            columns = _columns(pa, rows, labels)
            for name in keys:
                columns[name] = pa.array(own.get(name, [None] * len(rows)), schema.field(name).type)
            table = pa.table(columns, schema=schema)
            writer.write_table(table, row_group_size=GROUP)


def _columns(pa: Any, rows: Rows, labels: Sequence[str]) -> dict[str, Any]:
    names = dict(enumerate(STATUSES)) | {IN_FLIGHT: "in_flight"}
    return {
        "id": pa.array(rows.ids, pa.string()),
        **{name: _number(pa, getattr(rows, name)) for name in _NUMBERS},
        "token_ns": _lists(pa, rows.token_ns, rows.token_offsets, nothing=rows.emissions == 0),
        "n": _lists(pa, rows.counts, rows.token_offsets, nothing=rows.emissions == 0),
        "preempt_ns": _lists(pa, rows.preempt_ns, rows.preempt_offsets),
        "resume_ns": _lists(pa, rows.resume_ns, rows.resume_offsets),
        "status": pa.array([names[code] for code in rows.status.tolist()], pa.string()),
        "degraded": pa.array(rows.degraded),
        **{f"labels.{name}": _label(pa, rows, name) for name in labels},
    }


def _number(pa: Any, column: Ints) -> Any:
    return pa.array(column, pa.int64(), mask=column == ABSENT)


def _lists(pa: Any, values: Ints, offsets: Ints, nothing: Any = None) -> Any:
    mask = None if nothing is None else pa.array(np.asarray(nothing, np.bool_))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values, pa.int64()), mask=mask)


def _label(pa: Any, rows: Rows, name: str) -> Any:
    codes, texts = rows.labels.get(name, (np.full(len(rows), -1, np.int32), []))
    return pa.array([texts[code] if code >= 0 else None for code in codes.tolist()], pa.string())


def is_parquet(path: str) -> bool:
    """Whether a file of this name is to be a Parquet file.

    >>> is_parquet("run.parquet"), is_parquet("run.jsonl.gz")
    (True, False)
    """
    return os.fspath(path).endswith((".parquet", ".pq"))
