"""The only file that imports the compiled core; everything else takes its names from here.

Settings arrive as the model's types and leave as the plain tuples that the core takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tokenpulse import _core
from tokenpulse._core import DecodeError, FormatError, IdMap, Sketch, SlidingSketch, __version__, read_blocks
from tokenpulse._core import KVTrace as CoreKVTrace
from tokenpulse._core import KVTracker as CoreKVTracker
from tokenpulse._core import Meter as CoreMeter
from tokenpulse._core import MeterReader as CoreMeterReader
from tokenpulse._core import Snapshot as RawSnapshot
from tokenpulse.model import MAX_TIMELINE_BINS, SLO, TTL_NS, Reduction

__all__ = [
    "CoreKVTrace",
    "CoreKVTracker",
    "CoreMeter",
    "CoreMeterReader",
    "DecodeError",
    "FormatError",
    "IdMap",
    "Progress",
    "RawSnapshot",
    "Sketch",
    "SlidingSketch",
    "__version__",
    "read_blocks",
    "read_kv",
    "reduce_bytes",
    "reduce_paths",
    "slo_settings",
]

Progress = Callable[[int, int], None]
"""Called a few times a second with the bytes done and the bytes in all (0 when unknown)."""

_Limits = tuple[str, int, int, int | None, int | None, dict[str, str]]


def _limits(slos: Sequence[SLO]) -> list[_Limits]:
    return [(s.name, s.ttft_ns, s.tpot_ns, s.e2e_ns, s.itl_ns, dict(s.where)) for s in slos]


def slo_settings(slos: Sequence[SLO]) -> list[tuple[_Limits, float]]:
    """What a meter judges by: limits and objective of each set."""
    return [(limits, slo.objective) for limits, slo in zip(_limits(slos), slos, strict=True)]


def reduce_paths(
    paths: Sequence[str],
    slos: Sequence[SLO] = (),
    itl_rule: str = "token",
    by: Sequence[str] = (),
    timeline_ns: int | None = None,
    ttl_ns: int = TTL_NS,
    progress: Progress | None = None,
    *,
    from_ns: int | None = None,
    to_ns: int | None = None,
    timeline_bins: int = MAX_TIMELINE_BINS,
) -> Reduction:
    """Read logs in one pass each and return what they come to; `-` is standard input.

    Only requests that arrive at `from_ns` or later and before `to_ns` are counted. Past `timeline_bins` bins (2 to
    10,000) the width of the timeline's bins doubles.

    Raises OSError for a file that cannot be read and FormatError for one whose format is unknown. An exception
    that `progress` raises ends the reading.
    """
    return _core.reduce_paths(
        list(paths),
        _limits(slos),
        itl_rule,
        list(by),
        timeline_ns,
        ttl_ns,
        progress,
        from_ns=from_ns,
        to_ns=to_ns,
        timeline_bins=timeline_bins,
    )


def reduce_bytes(
    named: Sequence[tuple[str, bytes]],
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
    """The same for logs already in memory, each with the name it is reported under."""
    return _core.reduce_bytes(
        list(named),
        _limits(slos),
        itl_rule,
        list(by),
        timeline_ns,
        ttl_ns,
        from_ns=from_ns,
        to_ns=to_ns,
        timeline_bins=timeline_bins,
    )


def read_kv(
    paths: Sequence[str],
    *,
    stream: str = "copies",
    remember: int | None = None,
    ttl_ns: int | None = None,
    sample: float | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Read logs of KV-cache events, or a trace of block hashes, in one pass each; `-` is standard input.

    `sample` is the share of blocks that is followed, None for every one. Raises as `reduce_paths` does.
    """
    return _core.read_kv(
        list(paths),
        stream=stream,
        remember=remember,
        ttl_ns=ttl_ns,
        mode="exact" if sample is None else "sampled",
        rate=1.0 if sample is None else sample,
        progress=progress,
    )
