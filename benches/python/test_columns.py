"""Requests that are in memory as columns, beside what NumPy makes of the same arrays: vectorised percentiles, which are
exact, and a histogram of logarithms, chunk by chunk.

All tell the percentiles of TTFT, ITL, TPOT and E2E; tokenpulse follows every request beside, and judges an SLO set
where it is given one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from conftest import MS, SMOKE, START_NS
from tokenpulse import SLO
from tokenpulse.engine import ColumnReducer

Ints = NDArray[np.int64]
Found = dict[str, NDArray[np.float64]]

QUANTILES = (0.5, 0.9, 0.95, 0.99)
METRICS = ("ttft", "itl", "tpot", "e2e")
REQUESTS, TOKENS = (2_000, 200_000) if SMOKE else (200_000, 20_000_000)
CHUNK = 1 << 16
"""Values of a chunk: they and what is made of them stay in the cache."""
SCALE = 64
"""Buckets of the histogram in a doubling, as the sketch has them."""
BUCKETS = 64 * SCALE


@dataclass(frozen=True)
class Columns:
    """Requests that decode at the same time; `tokens[offsets[i]:offsets[i + 1]]` are of the i-th."""

    arrive: Ints
    tokens: Ints
    offsets: Ints


@pytest.fixture(scope="module")
def columns() -> Columns:
    random = np.random.default_rng(1)
    lengths = random.multinomial(TOKENS - 2 * REQUESTS, np.full(REQUESTS, 1 / REQUESTS)) + 2
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    arrive = START_NS + np.arange(REQUESTS) * 3 * MS
    steps = np.rint(random.lognormal(np.log(20 * MS), 0.4, TOKENS)).astype(np.int64)
    steps[offsets[:-1]] = np.rint(random.lognormal(np.log(300 * MS), 0.6, REQUESTS)).astype(np.int64)
    running = np.cumsum(steps)
    before = np.concatenate(([0], running[offsets[1:-1] - 1]))
    return Columns(arrive, running + np.repeat(arrive - before, lengths), offsets)


def metered(columns: Columns, slos: Sequence[SLO] = ()) -> Found:
    reducer = ColumnReducer(slos)
    arrays = {"arrive_ns": columns.arrive, "token_ns": columns.tokens, "token_offsets": columns.offsets}
    reducer.requests("columns", "arrays", arrays)
    total = reducer.finish()["total"]
    assert (total["attempted"], total["output_tokens"]) == (REQUESTS, TOKENS)
    return {metric: np.array(total["latency"][metric].quantiles(QUANTILES)) for metric in METRICS}


def of_requests(columns: Columns) -> dict[str, Ints]:
    """The metrics of which a request has one value."""
    first, last = columns.tokens[columns.offsets[:-1]], columns.tokens[columns.offsets[1:] - 1]
    return {
        "ttft": first - columns.arrive,
        "tpot": (last - first) // (np.diff(columns.offsets) - 1),
        "e2e": last - columns.arrive,
    }


def exact(columns: Columns) -> Found:
    gaps = np.diff(columns.tokens)
    within = np.ones(len(gaps), np.bool_)
    within[columns.offsets[1:-1] - 1] = False
    values = {**of_requests(columns), "itl": gaps[within]}
    percents = [100 * q for q in QUANTILES]
    return {metric: np.percentile(values[metric], percents, overwrite_input=True) / 1e9 for metric in METRICS}


def histograms(columns: Columns, dtype: Any) -> Found:
    counts = {metric: histogram(values, dtype) for metric, values in of_requests(columns).items()}
    # From one request to the next there is no gap: the bucket of 1 ns, which has no others, takes it.
    ends = columns.offsets[1:-1] - 1
    counts["itl"] = histogram(columns.tokens, dtype, ends)
    counts["itl"][0] -= len(ends)
    assert counts["itl"].sum() == TOKENS - REQUESTS
    return {metric: quantiles(counts[metric]) for metric in METRICS}


def histogram(values: Ints, dtype: Any, ends: Ints | None = None) -> Ints:
    """Counts by logarithm; of the gaps between values where `ends` says which of them are none."""
    counts = np.zeros(BUCKETS, np.int64)
    logarithms, places = np.empty(CHUNK, dtype), np.empty(CHUNK, np.intp)
    gaps = np.empty(CHUNK, np.int64)
    length = len(values) - (ends is not None)
    for start in range(0, length, CHUNK):
        stop = min(start + CHUNK, length)
        chunk = values[start:stop]
        if ends is not None:
            chunk = np.subtract(values[start + 1 : stop + 1], chunk, out=gaps[: stop - start])
            chunk[ends[slice(*np.searchsorted(ends, (start, stop)))] - start] = 1
        logarithm, place = logarithms[: stop - start], places[: stop - start]
        logarithm[:] = chunk
        np.log2(logarithm, out=logarithm)
        logarithm *= SCALE
        place[:] = logarithm
        counts += np.bincount(place, minlength=BUCKETS)
    return counts


def quantiles(counts: Ints) -> NDArray[np.float64]:
    """In seconds, from the middle of their buckets."""
    ranks = np.array(QUANTILES) * counts.sum()
    places = np.searchsorted(np.cumsum(counts), ranks)
    return np.asarray(np.exp2((places + 0.5) / SCALE) / 1e9)


WAYS: dict[str, Callable[[Columns], Found]] = {
    "": metered,
    "tokenpulse with an SLO set": lambda columns: metered(columns, [SLO(ttft=0.5, tpot=0.03)]),
    "NumPy percentiles": exact,
    "NumPy histogram": lambda columns: histograms(columns, np.float64),
    "NumPy histogram, single precision": lambda columns: histograms(columns, np.float32),
}


@pytest.mark.parametrize("way", WAYS)
def test_columns(benchmark: Any, columns: Columns, way: str, rounds: int) -> None:
    benchmark.group = f"{REQUESTS:,} requests in memory"
    benchmark.extra_info.update(values=TOKENS, unit="token", peer=way)
    found: Found = benchmark.pedantic(lambda: WAYS[way](columns), rounds=rounds, warmup_rounds=1)
    for metric, expected in exact(columns).items():
        # Half a bucket, and between neighbouring ranks.
        np.testing.assert_allclose(found[metric], expected, rtol=0.01, err_msg=metric)
