"""Reductions of several inputs as one: counts added, sketches merged, classes and bins brought together.

Exact: the order of what is merged is the order of the inputs, and the result equals the reduction of all of them read
together, whatever was merged first. Two things cannot be made good again: requests that were still in flight were
judged, lost or not, against the newest time of their own reduction; and a reduction of several inputs whose classes
went past the limit no longer knows which combinations are in its class `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tokenpulse.model import MAX_CLASSES, MAX_TIMELINE_BINS, METRICS, STATUSES, Reduction

SLOWEST = 5
"""Requests that are named of each metric."""

FLOW_BINS = 10_000
"""The bins past which the flow's width doubles."""

_Block = Mapping[str, Any]


def merge_reductions(reductions: Sequence[Reduction], timeline_bins: int = MAX_TIMELINE_BINS) -> Reduction:
    """Several reductions, made with the same settings, as one.

    `timeline_bins`: the bins past which the timeline's width doubles, as it was in each of them. ValueError where the
    settings can be seen to differ, or where there is nothing to merge. The reductions are left as they are.
    """
    parts = list(reductions)
    if not parts:
        raise ValueError("there must be at least one reduction to merge")
    if len(parts) == 1:
        return parts[0]
    by, over = _classes([(part["by"], part["by_interned_over"]) for part in parts])
    return {
        "inputs": [one for part in parts for one in part["inputs"]],
        "notices": [one for part in parts for one in part["notices"]],
        "first_arrival_ns": _first(part["first_arrival_ns"] for part in parts),
        "last_emission_ns": _last(part["last_emission_ns"] for part in parts),
        "newest_ns": _last(part["newest_ns"] for part in parts),
        "rejected": _counts([part["rejected"] for part in parts]),
        "clamped": sum(part["clamped"] for part in parts),
        "oom_events": _known_sum(part.get("oom_events") for part in parts),
        "total": _block([part["total"] for part in parts]),
        "slowest": {metric: _slowest([part["slowest"].get(metric, ()) for part in parts]) for metric in METRICS},
        "by": by,
        "by_interned_over": over,
        "timeline": _timeline([part["timeline"] for part in parts], timeline_bins),
        "flow": _flow([part["flow"] for part in parts]),
        "grid": _grid([part["grid"] for part in parts]),
        "cut": _cut([part["cut"] for part in parts]),
    }


def _first(times: Iterable[int | None]) -> int | None:
    return min((t for t in times if t is not None), default=None)


def _last(times: Iterable[int | None]) -> int | None:
    return max((t for t in times if t is not None), default=None)


def _known_sum(counts: Iterable[int | None]) -> int | None:
    """The sum of those that are known; None where none is."""
    known = [n for n in counts if n is not None]
    return sum(known) if known else None


def _counts(parts: Sequence[Mapping[str, int]], order: Sequence[str] = ()) -> dict[str, int]:
    """Counts by name, added; in the order given, then in that of appearance."""
    total: dict[str, int] = {}
    for part in parts:
        for name, n in part.items():
            total[name] = total.get(name, 0) + n
    known = {name: total.pop(name) for name in order if name in total}
    return known | total


def _sketch(parts: Sequence[Any]) -> Any:
    """The sketch of all values; those that are merged stay as they are."""
    merged = parts[0]
    for part in parts[1:]:
        merged = merged + part
    return merged


def _block(parts: Sequence[_Block]) -> _Block:
    if len(parts) == 1:
        return parts[0]
    judged = {len(part["slos"]) for part in parts}
    if len(judged) > 1:
        raise ValueError(f"reductions to merge must be judged by the same SLO sets, got {sorted(judged)} sets")
    sums = ("attempted", "degraded", "preempted", "preemptions", "prompt_tokens", "output_tokens")
    return {
        **{name: sum(part[name] for part in parts) for name in sums},
        "by_status": _counts([part["by_status"] for part in parts], STATUSES),
        "missing": _counts([part["missing"] for part in parts], METRICS),
        "latency": {metric: _sketch([part["latency"][metric] for part in parts]) for metric in METRICS},
        "slos": [_judged(sets) for sets in zip(*(part["slos"] for part in parts), strict=True)],
    }


def _judged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        **{name: sum(part[name] for part in parts) for name in ("good", "output_tokens", "met", "deadlines")},
        "missed": _counts([part["missed"] for part in parts]),
        "fluidity": _sketch([part["fluidity"] for part in parts]),
    }


def _slowest(parts: Sequence[Sequence[tuple[int, str]]]) -> list[tuple[int, str]]:
    """The largest of all; of equal ones those of the earlier input first."""
    return sorted((entry for part in parts for entry in part), key=lambda entry: -entry[0])[:SLOWEST]


def _classes(parts: Sequence[tuple[Sequence[Mapping[str, Any]], int]]) -> tuple[list[dict[str, Any]], int]:
    """Classes in the order of first appearance, past the limit in `other`; and how many requests went there."""
    keys = {tuple(one["key"]) for classes, _ in parts for one in classes if not one["other"]}
    if len(keys) > 1:
        told = " and ".join(",".join(names) for names in sorted(keys))
        raise ValueError(f"reductions to merge must be grouped by the same keys, got {told}")
    known: dict[tuple[str | None, ...], tuple[Mapping[str, Any], list[_Block]]] = {}
    others: list[_Block] = []
    over = 0
    for classes, went_over in parts:
        over += went_over
        for one in classes:
            combination = tuple(one["key"].values())
            if one["other"]:
                others.append(one["block"])
            elif combination in known:
                known[combination][1].append(one["block"])
            elif len(known) + 1 < MAX_CLASSES:  # one class is kept for `other`
                known[combination] = (one["key"], [one["block"]])
            else:
                others.append(one["block"])
                over += one["block"]["attempted"]
    merged = [{"key": dict(key), "other": False, "block": _block(blocks)} for key, blocks in known.values()]
    if others:
        merged.append({"key": {}, "other": True, "block": _block(others)})
    return merged, over


def _wide_enough(width: int, starts: Sequence[int], most: int) -> int:
    """The least width, doubled from one that is given, at which the bins from first to last are at most so many.

    >>> _wide_enough(10, [0, 30], 2)
    20
    """
    while starts and max(starts) // width - min(starts) // width >= most:
        width *= 2
    return width


def _gathered(
    bins: Iterable[Mapping[str, Any]], width: int, merge: Callable[[int, list[Mapping[str, Any]]], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Bins brought together at a width, in order of time; `merge` is given the start of each and what falls into it."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for one in bins:
        found.setdefault(one["start_ns"] // width * width, []).append(one)
    return [merge(start, found[start]) for start in sorted(found)]


def _timeline(parts: Sequence[Mapping[str, Any] | None], most: int) -> dict[str, Any] | None:
    there = [part for part in parts if part is not None]
    if not there:
        return None
    asked = {part["asked_ns"] for part in there} | ({None} if len(there) < len(parts) else set())
    if len(asked) > 1:
        told = " and ".join("none" if ns is None else f"{ns} ns" for ns in sorted(asked, key=lambda ns: ns or 0))
        raise ValueError(f"reductions to merge must have timelines of the same width, got {told}")
    bins = [one for part in there for one in part["bins"]]
    width = _wide_enough(max(part["width_ns"] for part in there), [one["start_ns"] for one in bins], most)
    merged = _gathered(
        bins, width, lambda start, same: {"start_ns": start, "block": _block([b["block"] for b in same])}
    )
    return {"width_ns": width, "asked_ns": there[0]["asked_ns"], "bins": merged}


def _flow_bin(start: int, parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """What came and went in a bin. Offsets count from its start, which may lie before that of a part."""

    def offset(times: str, events: str) -> int:
        return sum(part[times] + part[events] * (part["start_ns"] - start) for part in parts)

    return {
        "start_ns": start,
        "arrivals": sum(part["arrivals"] for part in parts),
        "arrival_offset_ns": offset("arrival_offset_ns", "arrivals"),
        "ends": sum(part["ends"] for part in parts),
        "end_offset_ns": offset("end_offset_ns", "ends"),
        "ttft_count": sum(part["ttft_count"] for part in parts),
        "ttft_sum_ns": sum(part["ttft_sum_ns"] for part in parts),
    }


def _flow(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    bins = [one for part in parts for one in part["bins"]]
    width = _wide_enough(max(part["width_ns"] for part in parts), [one["start_ns"] for one in bins], FLOW_BINS)
    sums = ("residence_count", "residence_sum_ns", "emissions", "coalesced")
    return {
        "width_ns": width,
        "bins": _gathered(bins, width, _flow_bin),
        **{name: _first(part[name] for part in parts) for name in ("first_arrival_ns", "first_end_ns")},
        **{name: _last(part[name] for part in parts) for name in ("last_arrival_ns", "last_end_ns")},
        **{name: sum(part[name] for part in parts) for name in sums},
    }


def _grid(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scales = {part["scale"] for part in parts}
    if len(scales) > 1:
        raise ValueError(f"reductions to merge must have grids of one scale, got {sorted(scales)}")
    cells: dict[tuple[int, int | None], int] = {}
    for part in parts:
        for ttft, tpot, n in part["cells"]:
            cells[ttft, tpot] = cells.get((ttft, tpot), 0) + n
    ordered = sorted(cells, key=lambda cell: (cell[0], cell[1] is not None, cell[1] or 0))
    return {"scale": parts[0]["scale"], "cells": [[ttft, tpot, cells[ttft, tpot]] for ttft, tpot in ordered]}


def _cut(parts: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    spans = {None if part is None else (part["from_ns"], part["to_ns"]) for part in parts}
    if len(spans) > 1:
        raise ValueError(
            "reductions to merge must be cut at the same times of their clock, or none of them: save them whole, "
            "and cut the report that is made of all"
        )
    if parts[0] is None:
        return None
    outside = sum(part["outside"] for part in parts if part is not None)
    return {"from_ns": parts[0]["from_ns"], "to_ns": parts[0]["to_ns"], "outside": outside}
