"""Reductions that are kept: saved to one JSON file with every sketch in it, loaded again, and merged.

Merging is exact: the merged reductions of two inputs equal the reduction of both read together, but for what cannot be
known any more, the requests still in flight at the end of an input: they were judged against the newest time of their
own reduction (see docs/compare.md). A file is not trusted: every field has its type and range, and what does not fit
ends in one `DecodeError` that names the place.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenpulse import compressed
from tokenpulse.engine import DecodeError, Sketch, __version__
from tokenpulse.model import MAX_TIMELINE_BINS, SLO, TTL_NS, Reduction
from tokenpulse.sketches.fields import SCHEMA, FieldError, read_saved
from tokenpulse.sketches.merging import merge_reductions

MOST_BYTES = 1 << 29
"""The longest file that is read, uncompressed."""

ONE_CLOCK = ("span_seconds", "rates", "timeline", "flow")
"""What needs the time of every request on one clock."""

EPOCH_NS = 10**18
"""A time from here on counts from 1970: from the start of a machine it would be 31 years."""

TABLES = ("parquet", "arrow", "csv", "table")
"""Formats that hold our own fields as columns."""

_HOW = "tokenpulse report --sketches FILE writes one"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A reduction, the settings it was made with, and what was said of its inputs."""

    reduction: Reduction
    slos: tuple[SLO, ...] = ()
    itl: str = "token"
    by: tuple[str, ...] = ()
    timeline_ns: int | None = None
    """The width of the timeline's bins that was asked for; None: no timeline."""
    timeline_bins: int = MAX_TIMELINE_BINS
    ttl_ns: int = TTL_NS
    absent: dict[str, str] = field(default_factory=dict)
    """What the inputs could not give, and why."""
    definitions: dict[str, dict[str, str]] = field(default_factory=dict)
    """Where a tool's definition of a metric is another than ours: metric, whose, what it says."""
    reported: list[dict[str, Any]] = field(default_factory=list)
    """The tools' own summaries."""


def check(path: str) -> None:
    """Raise ValueError where `save` could not write a file of this name for want of a library."""
    compressed.check(path)


def save(path: str, saved: Saved) -> None:
    """Write a file that `load` reads; `.gz` and `.zst` are compressed.

    Raises OSError where it cannot be written, and ValueError for `.zst` without a library for it.
    """
    with compressed.writing(path) as stream:
        text = json.dumps(_written(saved), allow_nan=False, separators=(",", ":"), default=_encoded)
        stream.write(text.encode("ascii") + b"\n")


def load(path: str) -> Saved:
    """Read what `save` wrote, whatever its name.

    Raises OSError where the file cannot be read, and DecodeError for anything but a whole and consistent file.
    """
    try:
        return loads(compressed.read(path, MOST_BYTES))
    except ValueError as wrong:
        raise DecodeError(f"{path}: {wrong}") from None


def loads(text: bytes) -> Saved:
    """The same of a file's uncompressed bytes."""
    if not is_sketches(text):
        raise DecodeError(f"expected a file of sketches with the schema {SCHEMA!r} ({_HOW})")
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise DecodeError("expected JSON of a few levels, got one nested too deep") from None
    except UnicodeDecodeError as wrong:
        raise DecodeError(f"expected UTF-8: {wrong.reason} at byte {wrong.start}") from None
    except json.JSONDecodeError as wrong:
        early = "" if text.rstrip().endswith(b"}") else " (the file ends early)"
        raise DecodeError(f"expected JSON: {wrong}{early}") from None
    except ValueError as wrong:
        raise DecodeError(f"expected JSON: {wrong}") from None
    try:
        return Saved(**read_saved(found, _decoded))
    except FieldError as wrong:
        raise DecodeError(str(wrong)) from None


def is_sketches(head: bytes) -> bool:
    """Whether a file that begins so, uncompressed, claims to hold sketches, of whatever version.

    >>> is_sketches(b'{"schema":"tokenpulse.sketches/1",')
    True
    """
    return head[:256].replace(b" ", b"").lstrip().startswith(b'{"schema":"tokenpulse.sketches/')


def merge(parts: Sequence[Saved], names: Iterable[str] = ()) -> Saved:
    """Several into one. ValueError unless all were made with the same settings; `names` says whose they are in it.

    >>> from tokenpulse import engine
    >>> line = b'{"id":"a","arrive_ns":0,"token_ns":[1000000,2000000]}'
    >>> one = Saved(reduction=engine.reduce_bytes([("one", line)]))
    >>> merge([one, one]).reduction["total"]["attempted"]
    2
    """
    if not parts:
        raise ValueError("there must be at least one file of sketches to merge")
    labels = [*names, *(f"number {n + 1}" for n in range(len(parts)))]
    first = parts[0]
    for label, other in zip(labels[1:], parts[1:], strict=False):
        for setting, mine, theirs in _settings(first, other):
            if mine != theirs:
                raise ValueError(
                    f"{label}: made with {setting} {_told(theirs)}, but {labels[0]} with {_told(mine)}; "
                    "what is merged must be made with the same settings"
                )
    definitions: dict[str, dict[str, str]] = {}
    for part in parts:
        for metric, texts in part.definitions.items():
            definitions[metric] = {**texts, **definitions.get(metric, {})}
    return Saved(
        reduction=merge_reductions([part.reduction for part in parts], timeline_bins=first.timeline_bins),
        slos=first.slos,
        itl=first.itl,
        by=first.by,
        timeline_ns=first.timeline_ns,
        timeline_bins=first.timeline_bins,
        ttl_ns=first.ttl_ns,
        absent=_absent(parts),
        definitions=definitions,
        reported=[one for part in parts for one in part.reported],
    )


def _absent(parts: Sequence[Saved]) -> dict[str, str]:
    """What none of the parts could give; and what needs one clock, where one of them had none or they differ."""
    lacking = {name for name in parts[0].absent if all(name in part.absent for part in parts)}
    found = {name: why for name, why in parts[0].absent.items() if name in lacking}
    for part in reversed(parts):
        found |= {name: part.absent[name] for name in ONE_CLOCK if name in part.absent}
    clocks = [clock for number, part in enumerate(parts) if (clock := _clock(part, number)) is not None]
    if len(set(clocks)) > 1:
        found |= dict.fromkeys(ONE_CLOCK, "the runs count time from different moments")
    return found


def _clock(part: Saved, number: int) -> str | int | None:
    """What a part counts time from: 1970, the one clock that all of our own lines are taken to share, or its own."""
    first = part.reduction["first_arrival_ns"]
    if first is None:
        return None
    if first >= EPOCH_NS:
        return "1970"
    formats = {str(one["format"]) for one in part.reduction["inputs"] if one["requests"]}
    return "ours" if all(name.startswith("tokenpulse") or name in TABLES for name in formats) else number


def _settings(one: Saved, other: Saved) -> list[tuple[str, Any, Any]]:
    return [
        ("--itl", one.itl, other.itl),
        ("--by", one.by, other.by),
        ("SLO sets", one.slos, other.slos),
        ("a timeline in ns of", one.timeline_ns, other.timeline_ns),
        ("at most this many bins:", one.timeline_bins, other.timeline_bins),
        ("a ttl in ns of", one.ttl_ns, other.ttl_ns),
    ]


def _told(setting: Any) -> str:
    if isinstance(setting, tuple):
        shown = [one if isinstance(one, str) else _slo_text(one) for one in setting]
        return " ".join(shown) or "none"
    return "none" if setting is None else str(setting)


def _slo_text(slo: SLO) -> str:
    limits = ((name, getattr(slo, name)) for name in ("ttft", "tpot", "e2e", "itl"))
    told = [f"{name}={1e3 * seconds:.12g}ms" for name, seconds in limits if seconds is not None]
    told += [f"objective={slo.objective}", *(f"where {label}={value}" for label, value in slo.where.items())]
    return f"{slo.name}:{','.join(told)}"


def _written(saved: Saved) -> dict[str, Any]:
    """The file's object; the schema stands first, for a file is known by its head."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "settings": {
            "itl": saved.itl,
            "by": list(saved.by),
            "slos": [{"name": slo.name, **slo.limits()} for slo in saved.slos],
            "timeline_ns": saved.timeline_ns,
            "timeline_bins": saved.timeline_bins,
            "ttl_ns": saved.ttl_ns,
        },
        "absent": saved.absent,
        "definitions": saved.definitions,
        "reported": saved.reported,
        "reduction": saved.reduction,
    }


def _encoded(value: Any) -> str:
    """A sketch as the base64 of its OTLP bytes."""
    if not hasattr(value, "to_bytes"):
        raise TypeError(f"expected a sketch, got {value!r}")
    return base64.b64encode(value.to_bytes()).decode("ascii")


def _decoded(text: str) -> Sketch:
    try:
        return Sketch.from_bytes(base64.b64decode(text, validate=True))
    except binascii.Error as wrong:
        raise FieldError(f"expected base64: {wrong}") from None
    except DecodeError as wrong:
        raise FieldError(str(wrong)) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r:.60} is given twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
