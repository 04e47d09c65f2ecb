"""What was asked of a server: when requests arrived, how long they were, and how much of their prompts was seen before.

A trace has nothing else. Figures are exact, percentiles nearest rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpulse.analysis.curve import Floats, Ints
from tokenpulse.analysis.saturation import nearest_rank
from tokenpulse.records import ABSENT, Ragged, Records, Workload

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Requests on one clock: arrivals in ns (ABSENT where unknown), lengths in tokens, hashes of prompts' blocks."""

    arrive_ns: Ints | None
    prompt_tokens: Ints | None
    output_tokens: Ints | None
    block_hashes: Ragged | None = None
    block_tokens: int | None = None
    failed: NDArray[np.bool_] | None = None
    count: int

    @classmethod
    def of(cls, content: Records | Workload) -> Requests:
        """A trace's requests, or a run's without warm-up."""
        if isinstance(content, Workload):
            return cls(
                arrive_ns=content.arrive_ns,
                prompt_tokens=content.prompt_tokens,
                output_tokens=content.output_tokens,
                block_hashes=content.block_hashes,
                block_tokens=content.block_tokens,
                failed=content.failed,
                count=len(content),
            )
        counted = content.counted
        arrive, prompt, output = (
            None if column is None else column[counted]
            for column in (content.arrive_ns, content.prompt_tokens, content.output_tokens)
        )
        return cls(arrive_ns=arrive, prompt_tokens=prompt, output_tokens=output, count=int(counted.sum()))

    def between(self, from_ns: int | None, to_ns: int | None) -> Requests:
        """The requests that arrived in a span, on the clock of the arrivals."""
        if self.arrive_ns is None:
            return self
        inside = np.ones(self.count, np.bool_) if from_ns is None else self.arrive_ns >= from_ns
        if to_ns is not None:
            inside = inside & (self.arrive_ns < to_ns)
        return Requests(
            arrive_ns=self.arrive_ns[inside],
            prompt_tokens=None if self.prompt_tokens is None else self.prompt_tokens[inside],
            output_tokens=None if self.output_tokens is None else self.output_tokens[inside],
            block_hashes=None if self.block_hashes is None else self.block_hashes.select(inside),
            block_tokens=self.block_tokens,
            failed=None if self.failed is None else self.failed[inside],
            count=int(inside.sum()),
        )


def figures(inputs: Sequence[Requests]) -> Figures | None:
    """The workload of several inputs together, each on a clock of its own; None without a request.

    `rate` is intervals over the time between first and last arrivals, `cv` the standard deviation of interarrival times
    over their mean: 1 for a Poisson process, 0 for an even one.
    """
    count = sum(one.count for one in inputs)
    if not count:
        return None
    gaps: list[Floats] = [np.diff(np.sort(_known(one.arrive_ns))).astype(np.float64) / 1e9 for one in inputs]
    between: Floats = np.sort(np.concatenate(gaps))
    seconds = float(sum(gap.sum() for gap in gaps))
    hashed = [one for one in inputs if one.block_hashes is not None]
    failed = [int(one.failed.sum()) for one in inputs if one.failed is not None]
    return {
        "requests": count,
        "failed": sum(failed) if failed else None,
        "seconds": seconds if any(len(_known(one.arrive_ns)) for one in inputs) else None,
        "arrivals": {
            "rate": len(between) / seconds if seconds > 0 else None,
            "interarrival": _interarrival(between),
        },
        "prompt_tokens": _lengths([one.prompt_tokens for one in inputs]),
        "output_tokens": _lengths([one.output_tokens for one in inputs]),
        "reuse": _reuse(hashed) if len(hashed) == len(inputs) else None,
    }


def _known(column: Ints | None) -> Ints:
    return np.empty(0, np.int64) if column is None else column[column != ABSENT]


def _interarrival(between: Floats) -> Figures | None:
    if not len(between):
        return None
    mean = float(between.mean())
    return {
        "count": len(between),
        "mean": mean,
        "cv": float(between.std()) / mean if mean > 0 else None,
        "min": float(between[0]),
        **{name: nearest_rank(between, q) for name, q in QUANTILES.items()},
        "max": float(between[-1]),
    }


def _lengths(columns: Sequence[Ints | None]) -> Figures | None:
    """Count, sum, mean, extremes and percentiles of lengths in tokens; None where none is known."""
    known = np.sort(np.concatenate([_known(column) for column in columns]))
    if not len(known):
        return None
    return {
        "count": len(known),
        "sum": int(known.sum()),
        "mean": float(known.mean()),
        "min": int(known[0]),
        **{name: int(nearest_rank(known, q)) for name, q in QUANTILES.items()},
        "max": int(known[-1]),
    }


def _reuse(inputs: Sequence[Requests]) -> Figures | None:
    """How many references to blocks were to one that an earlier request, or the same one, had.

    It is what an unbounded cache that all requests share would save. Inputs share blocks: a hash is a block.
    """
    columns = [one.block_hashes for one in inputs if one.block_hashes is not None]
    hashes = np.concatenate([column.values for column in columns]) if columns else np.empty(0)
    if not len(hashes):
        return None
    distinct = len(np.unique(hashes))
    return {
        "block_references": len(hashes),
        "distinct_blocks": distinct,
        "reused_share": 1 - distinct / len(hashes),
        "block_tokens": inputs[0].block_tokens,
        "requests_with_reuse": _requests_with_reuse(columns),
    }


def _requests_with_reuse(columns: Sequence[Ragged]) -> int:
    """Requests whose prompt begins with a block that a request before them had."""
    firsts = np.concatenate([column.values[column.offsets[:-1][column.lengths > 0]] for column in columns])
    hashes = np.concatenate([column.values for column in columns])
    starts = np.concatenate(
        [
            column.offsets[:-1][column.lengths > 0] + before
            for column, before in zip(
                columns, np.cumsum([0, *(len(column.values) for column in columns)]), strict=False
            )
        ]
    )
    _, first_place, number = np.unique(hashes, return_index=True, return_inverse=True)
    return int((first_place[number[starts]] < starts).sum()) if len(firsts) else 0
