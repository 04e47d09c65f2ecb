"""Other tools' files for the readers' tests: recorded ones by name, and ones made by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tokenpulse import readers
from tokenpulse.engine import ColumnReducer
from tokenpulse.model import STATUSES
from tokenpulse.records import Records

TOOLS = Path(__file__).parents[1] / "fixtures" / "tools"


def path(name: str) -> str:
    """Where a recorded file lies."""
    return str(TOOLS / name)


def content(name: str) -> bytes:
    """A recorded file, decompressed."""
    raw = (TOOLS / name).read_bytes()
    return gzip.decompress(raw) if name.endswith(".gz") else raw


def document(name: str) -> Any:
    """A recorded JSON document."""
    return json.loads(content(name))


def lines(name: str) -> list[Any]:
    """A recorded file of JSON lines."""
    return [json.loads(line) for line in content(name).splitlines()]


def only(source: str | bytes, **how: Any) -> Any:
    """The one run of a file."""
    runs = readers.read(source, **how)
    assert len(runs) == 1, [run.name for run in runs]
    return runs[0]


def dumped(value: Any) -> bytes:
    """A document as bytes; bare NaN and Infinity as Python writes them."""
    return json.dumps(value).encode()


def jsonl(rows: list[Any]) -> bytes:
    """JSON lines without a newline behind the last."""
    return "\n".join(json.dumps(row) for row in rows).encode()


def statuses(records: Records) -> list[str]:
    """Each row's status by name."""
    return [STATUSES[status] if status < len(STATUSES) else "in flight" for status in records.status]


def counted(records: Records) -> dict[str, Any]:
    """What the core counts of the rows."""
    reducer = ColumnReducer()
    reducer.requests(records.name or "run", records.format, records.columns())
    return reducer.finish()


def means(reduction: dict[str, Any]) -> dict[str, tuple[int, float]]:
    """Count and mean in seconds of each metric that was observed."""
    latency = reduction["total"]["latency"]
    return {name: (sketch.count, sketch.mean) for name, sketch in latency.items() if sketch.count}


def close(one: float, other: float) -> bool:
    """Durations in seconds that differ by no more than their rounding to nanoseconds, and TPOT's to the one below."""
    return abs(one - other) < 2e-9
