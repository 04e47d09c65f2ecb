"""Our own request and event lines as `Records`, for whoever needs every value and not only counts.

A report of them needs no value twice: `engine.reduce_paths` counts them as they pass. Here they are held, which
`MAX_TOKENS` bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from tokenpulse import engine
from tokenpulse.readers.documents import Source
from tokenpulse.records import ABSENT, Floats, Ints, Ragged, Records

FORMAT = "tokenpulse"
MAX_TOKENS = 200_000_000
"""Emissions that are held at most: 24 bytes each."""

_EPOCH_NS = 10**18  # in 2001: a clock that counts from 1970 is beyond it, one that counts from a start is not
_IN_FLIGHT = 255


def recognises(keys: Set[str]) -> str | None:
    """Whether these keys are of a line of ours."""
    return FORMAT if keys & {"ev", "arrive_ns", "arrival_mono_ns"} else None


def read(source: Source) -> Iterator[Records]:
    """A file of our lines as one run."""
    if isinstance(source.where, str):
        yield records([source.where])
    else:
        yield of_rows(engine.read_rows_bytes([(source.name, source.where)], max_tokens=MAX_TOKENS))


def records(paths: Sequence[str], *, progress: engine.Progress | None = None) -> Records:
    """Several files of our lines as one run.

    A request in flight has the status 255, which is no place in `model.STATUSES`. Raises OSError and FormatError as
    `engine.reduce_paths` does, and ValueError for more than `MAX_TOKENS` emissions.
    """
    return of_rows(engine.read_rows(list(paths), max_tokens=MAX_TOKENS, progress=progress))


def of_rows(rows: Mapping[str, Any]) -> Records:
    """What the core read of our lines, in seconds.

    Differences of whole nanoseconds are divided once, so that each is the double nearest to it.
    """
    arrive: Ints = rows["arrive_ns"]
    times, offsets = rows["token_ns"], np.asarray(rows["token_offsets"], np.int64)
    emissions = Ragged(values=times, offsets=offsets)
    some = emissions.lengths > 0
    sizes = np.asarray(rows["n"], np.int64) if rows.get("n") is not None else np.ones(len(times), np.int64)
    chunks = Ragged(values=sizes, offsets=offsets)
    counted = np.zeros(len(arrive), np.int64)
    np.add.at(counted, chunks.rows, sizes)
    tokens = np.where(some | (rows["output_tokens"] == ABSENT), counted, rows["output_tokens"])
    first, last = np.array(rows["first_token_ns"]), np.array(rows["last_token_ns"])
    first[some], last[some] = times[offsets[:-1][some]], times[offsets[1:][some] - 1]
    same = emissions.rows[1:] == emissions.rows[:-1]
    lengths = np.maximum(emissions.lengths - 1, 0)
    skipped: dict[str, int] = {}
    for one in rows["inputs"]:
        for reason, count in one["skipped"].items():
            skipped[reason] = skipped.get(reason, 0) + count
    return Records(
        tool="tokenpulse",
        format=FORMAT,
        ids=rows["ids"],
        clock="epoch" if len(arrive) and int(arrive.max()) > _EPOCH_NS else "monotonic",
        arrive_ns=arrive,
        end_ns=rows["end_ns"],
        ttft=_since(arrive, first),
        e2e=_since(arrive, last),
        latency=_since(arrive, rows["end_ns"]),
        gaps=Ragged(values=np.diff(times)[same] / 1e9, offsets=np.concatenate(([0], np.cumsum(lengths)))),
        chunk_tokens=chunks,
        prompt_tokens=rows["prompt_tokens"],
        output_tokens=tokens,
        status=rows["status"],
        labels=rows["labels"],
        schedule_ns=rows["schedule_ns"],
        prefill_ns=rows["prefill_ns"],
        skipped=skipped,
        notices=[dict(notice) for notice in rows["notices"]],
    )


def in_flight(of: Records) -> int:
    """How many requests had not ended when the log did."""
    return int((of.status == _IN_FLIGHT).sum())


def _since(arrive: Ints, point: Ints) -> Floats:
    return np.where(point == ABSENT, np.nan, (np.where(point == ABSENT, arrive, point) - arrive) / 1e9)
