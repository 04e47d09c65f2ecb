"""What the tests of the profiles share: fixtures of other tools' files, small runs, and holding figures to figures."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenpulse import readers
from tokenpulse.model import STATUSES
from tokenpulse.records import Ragged, Records, Summary

TOOLS = Path(__file__).parents[1] / "fixtures" / "tools"


def runs(name: str) -> list[Records]:
    """The runs of a fixture."""
    found = readers.read(str(TOOLS / name))
    assert found
    return [one for one in found if isinstance(one, Records)]


def summary(name: str) -> Summary:
    """A fixture of figures alone."""
    (found,) = readers.read(str(TOOLS / name))
    assert isinstance(found, Summary)
    return found


def document(name: str) -> Any:
    """A fixture's JSON as it is; of several values one a line, all of them."""
    text = gzip.decompress((TOOLS / name).read_bytes()).decode()
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def differences(wanted: Mapping[str, Any], found: Any, path: str = "") -> Iterator[str]:
    """The places where figures are absent or differ by more than 1e-9, relatively; other text is not looked at."""
    for key, value in wanted.items():
        place = f"{path}.{key}" if path else key
        other = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(value, Mapping):
            if isinstance(other, Mapping):
                yield from differences(value, other, place)
            else:
                yield place
        elif isinstance(value, bool) or (isinstance(value, str) and key != "unit"):
            continue
        elif isinstance(value, (int, float)):
            if not isinstance(other, (int, float)) or abs(other - value) > 1e-9 * abs(value):
                yield place
        elif value != other and not isinstance(value, list):
            yield place


def figures_in(wanted: Mapping[str, Any]) -> int:
    """How many figures there are to be held."""
    held = 0
    for value in wanted.values():
        if isinstance(value, Mapping):
            held += figures_in(value)
        else:
            held += isinstance(value, (int, float)) and not isinstance(value, bool)
    return held


def run(
    *requests: Sequence[float],
    tokens: Sequence[int] | None = None,
    chunks: Sequence[Sequence[int]] | None = None,
    status: Sequence[str] | None = None,
    tail: float = 0.0,
    tool: str = "table",
    **more: Any,
) -> Records:
    """A run of requests a second apart, each given as its TTFT and the gaps after it, in s; `tail` until its end."""
    n = len(requests)
    ended = ["stop"] * n if status is None else status
    ok = np.array([one in ("stop", "length") for one in ended], np.bool_)
    ttft = np.array([one[0] if one else np.nan for one in requests], np.float64)
    e2e = np.array([sum(one) if one else np.nan for one in requests], np.float64)
    start = np.arange(n, dtype=np.float64)
    counts = [len(one) for one in requests] if tokens is None else tokens
    told: dict[str, Any] = {
        "format": "test",
        "clock": "monotonic",
        "start": start,
        "arrive_ns": (start * 1e9).astype(np.int64),
        "ttft": ttft,
        "e2e": np.where(ok, e2e, np.nan),
        "latency": np.where(ok, e2e + tail, np.nan),
        "gaps": Ragged.of([one[1:] for one in requests]),
        "chunk_tokens": None if chunks is None else Ragged.of(chunks, np.int64),
        "prompt_tokens": np.full(n, 10, np.int64),
        "output_tokens": np.array(counts, np.int64),
        "status": np.array([STATUSES.index(one) for one in ended], np.uint8),
    }
    return Records(tool=tool, **{**told, **more})
