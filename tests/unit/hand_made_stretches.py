"""Stretches of a run that are made by hand, so that each figure can be set by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tokenpulse import Sketch
from tokenpulse.analysis.stretch import Pane, Stretch

SECOND = 1_000_000_000
MACHINE = {"peak_flops": 1e15, "bandwidth_bytes_per_second": 2.5e12}
"""A ridge of 400 FLOPs per byte."""


def sketch(values: Sequence[float]) -> Sketch:
    made = Sketch()
    made.record_many(list(values))
    return made


def spread(centre: float, n: int = 200) -> list[float]:
    """Values from 0.8 to 1.2 of the centre, evenly."""
    return [centre * (0.8 + 0.4 * k / (n - 1)) for k in range(n)]


def pane(second: int, **figures: Any) -> Pane:
    known = {
        "start_ns": second * SECOND,
        "end_ns": (second + 1) * SECOND,
        "itl_count": 1000,
        "itl_p99": 0.02,
        "arrivals": 10,
        "ended": 10,
        "waiting": 0.1,
        "evicted": 0,
        "comm_ns": 10_000_000,
    }
    return Pane(**{**known, **figures})


def panes(n: int = 40, **columns: Sequence[Any]) -> tuple[Pane, ...]:
    """`n` seconds; a column gives one figure's value in each."""
    return tuple(pane(second, **{name: values[second] for name, values in columns.items()}) for second in range(n))


def latencies(ttft: float, tpot: float, n: int = 200) -> dict[str, Sketch]:
    return {"ttft": sketch(spread(ttft, n)), "tpot": sketch(spread(tpot, n))}


def healthy(
    ttft: float = 0.1, tpot: float = 0.02, strata: Mapping[str, dict[str, Sketch]] | None = None, **figures: Any
) -> Stretch:
    """40 s of a healthy engine, but for the figures that are given."""
    known = strata or {"128-512": latencies(ttft, tpot)}
    first = next(iter(known.values()))
    made = Stretch(
        seconds=40.0,
        strata=known,
        pooled={**first, "itl": sketch([0.02])},
        arrivals=400,
        by_status={"stop": 400},
        output_tokens=40_000,
        prompt_tokens=200_000,
        cached_tokens=50_000,
        waiting=0.1,
        running=20.0,
        kv_used=100.0,
        kv_total=1000.0,
        batch_max=100.0,
        added={
            "gpu_active_ns": 16 * SECOND,
            "comm_ns": SECOND,
            "dequant_ns": SECOND,
            "prefill_tokens": 150_000,
            "decode_tokens": 40_000,
            "flops": 3_000_000_000,
            "bytes_moved": 10_000_000,
        },
        evicted=1000,
        refilled=10,
        forgotten=0,
        queried=200_000,
        hit=50_000,
        panes=panes(),
        recent=panes(60),
    )
    return replace(made, **figures)
