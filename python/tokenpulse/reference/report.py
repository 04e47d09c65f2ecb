"""The reduction of logs and of columns: every input by itself, then all of them merged in order."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenpulse.model import MAX_TIMELINE_BINS, SLO, TTL_NS, Reduction
from tokenpulse.reference.accounts import Accounts, Settings
from tokenpulse.reference.columns import Batch, records_of
from tokenpulse.reference.inputs import Input


def reduce_lines(
    inputs: Sequence[tuple[str, bytes]],
    slos: Sequence[SLO] = (),
    itl_rule: str = "token",
    by: Sequence[str] = (),
    timeline_ns: int | None = None,
    ttl_ns: int = TTL_NS,
    *,
    from_ns: int | None = None,
    to_ns: int | None = None,
    timeline_bins: int = MAX_TIMELINE_BINS,
) -> Reduction:
    """The reduction of inputs given as (name, bytes of lines, plain or gzip)."""
    settings = Settings(slos, itl_rule, by, timeline_ns, ttl_ns, from_ns, to_ns, timeline_bins)
    parts = [Input(path, settings) for path, _ in inputs]
    for part, (_, content) in zip(parts, inputs, strict=True):
        part.read(content)
    return merged(parts, settings)


def reduce(
    paths: Iterable[str],
    slos: Sequence[SLO] = (),
    itl_rule: str = "token",
    by: Sequence[str] = (),
    timeline_ns: int | None = None,
    ttl_ns: int = TTL_NS,
    *,
    from_ns: int | None = None,
    to_ns: int | None = None,
    timeline_bins: int = MAX_TIMELINE_BINS,
) -> Reduction:
    """The reduction of files, plain or gzip; `-` is standard input."""
    inputs = [(path, sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()) for path in map(str, paths)]
    return reduce_lines(
        inputs, slos, itl_rule, by, timeline_ns, ttl_ns, from_ns=from_ns, to_ns=to_ns, timeline_bins=timeline_bins
    )


def reduce_columns(
    batches: Iterable[Batch],
    slos: Sequence[SLO] = (),
    itl_rule: str = "token",
    by: Sequence[str] = (),
    timeline_ns: int | None = None,
    ttl_ns: int = TTL_NS,
    *,
    from_ns: int | None = None,
    to_ns: int | None = None,
    timeline_bins: int = MAX_TIMELINE_BINS,
) -> Reduction:
    """The reduction of columns given as ("requests" or "events", name, format, columns), batch after batch.

    Columns are sequences of whole numbers. Batches of the same name are one input.
    """
    settings = Settings(slos, itl_rule, by, timeline_ns, ttl_ns, from_ns, to_ns, timeline_bins)
    parts: dict[str, Input] = {}
    for kind, name, format_name, columns in batches:
        part = parts.setdefault(name, Input(name, settings, format_name))
        if part.given_format != format_name:
            raise ValueError(f"{name}: an input has one format, got {part.given_format} and {format_name}")
        for record in records_of(kind, columns, first_row=part.lines):
            part.take(part.lines + 1, record)
    return merged(list(parts.values()), settings)


def merged(parts: Sequence[Input], settings: Settings) -> Reduction:
    """What inputs that have been read come to."""
    newest_ns = end_all(parts)
    run = Accounts(settings)
    for part in parts:
        run.merge(part.accounts)
    notices = [notice for part in parts for notice in part.notices_as_dicts()]
    return {"inputs": [part.as_dict() for part in parts], "notices": notices, "newest_ns": newest_ns, **run.as_dict()}


def end_all(parts: Sequence[Input]) -> int | None:
    """Ends what is left in inputs that have been read, against the newest time of them all, which it returns."""
    for part in parts:
        part.release_all()
    newest_ns = max((p.horizon.newest_ns for p in parts if p.horizon.newest_ns is not None), default=None)
    for part in parts:
        if newest_ns is not None:
            part.lose_the_silent(newest_ns)
    return newest_ns
