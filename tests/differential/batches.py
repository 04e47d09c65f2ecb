"""Columns as the core takes them, made from plain lists, and one way to call both engines with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokenpulse import engine, reference

ABSENT = -(2**63)
DTYPES = {"status": np.uint8, "ev": np.uint8, "degraded": np.bool_}

Batch = tuple[str, str, str, dict[str, Any]]


def arrays(columns: Mapping[str, Any], bytes_of_ids: bool = False) -> dict[str, Any]:
    """Lists, with None for what is absent, as arrays; ids and labels as they are given to both engines."""
    found: dict[str, Any] = {}
    for name, values in columns.items():
        if name == "labels":
            found[name] = {label: (np.array(codes, np.int32), texts) for label, (codes, texts) in values.items()}
        elif name == "ids":
            found[name] = text_column(values) if bytes_of_ids and values is not None else values
        else:
            plain = [ABSENT if value is None else value for value in values]
            found[name] = np.array(plain, DTYPES.get(name, np.int64))
    return found


def text_column(texts: Sequence[str]) -> tuple[Any, Any]:
    """Texts as Arrow has them: all bytes, and where each begins."""
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


def core(batches: Sequence[Batch], *settings: Any, **named: Any) -> Any:
    """The core's reduction of batches, called as the reference's `reduce_columns` is."""
    reducer = engine.ColumnReducer(*settings, **named)
    for kind, name, format_name, columns in batches:
        take = reducer.requests if kind == "requests" else reducer.events
        take(name, format_name, columns)
    return reducer.finish()


REDUCE_COLUMNS = {"reference": reference.reduce_columns, "core": core}


def as_lists(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of either engine with lists for arrays."""
    found = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in rows.items()}
    return found | {"labels": {name: (list(codes), list(texts)) for name, (codes, texts) in rows["labels"].items()}}
