"""Workload figures, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokenpulse.analysis.workload import Requests, figures
from tokenpulse.records import ABSENT, Ragged, Records

SECOND = 1_000_000_000


def requests(arrive: list[float] | None, **columns: Any) -> Requests:
    count = len(arrive) if arrive is not None else len(columns["prompt_tokens"])
    times = None if arrive is None else np.array([ABSENT if t is None else round(t * SECOND) for t in arrive])
    given = {
        name: None if columns.get(name) is None else np.array(columns[name], np.int64)
        for name in ("prompt_tokens", "output_tokens")
    }
    hashes = columns.get("block_hashes")
    blocks = None if hashes is None else Ragged.of(hashes, np.uint64)
    return Requests(arrive_ns=times, block_hashes=blocks, count=count, **given)


def test_arrivals() -> None:
    """Whatever their order: gaps of 1, 1 and 4 s; the one whose arrival is not known counts as a request only."""
    found = figures([requests([10, 12, 11, 16, None])])  # type: ignore[list-item]
    assert found is not None
    assert (found["requests"], found["seconds"]) == (5, 6.0)
    assert found["arrivals"]["rate"] == 0.5
    between = found["arrivals"]["interarrival"]
    assert (between["count"], between["mean"], between["min"], between["max"]) == (3, 2.0, 1.0, 4.0)
    assert between["cv"] == pytest.approx(np.sqrt(2) / 2)
    assert (between["p50"], between["p90"], between["p99"]) == (1.0, 4.0, 4.0)
    assert found["prompt_tokens"] is found["output_tokens"] is found["reuse"] is None


def test_even_arrivals_and_random_ones() -> None:
    even = figures([requests([float(n) for n in range(100)])])
    random = figures([requests(np.cumsum(np.random.default_rng(1).exponential(0.1, 20_000)).tolist())])
    assert even is not None
    assert random is not None
    assert even["arrivals"]["interarrival"]["cv"] == 0
    assert random["arrivals"]["interarrival"]["cv"] == pytest.approx(1, abs=0.05)
    assert random["arrivals"]["rate"] == pytest.approx(10, rel=0.05)


def test_runs_on_clocks_of_their_own() -> None:
    """No gap is taken from one run to the other; rates are those of both times together."""
    found = figures([requests([0, 1, 2]), requests([500, 503])])
    assert found is not None
    assert found["arrivals"]["rate"] == 3 / 5
    assert found["arrivals"]["interarrival"]["max"] == 3.0


def test_lengths() -> None:
    found = figures([requests(None, prompt_tokens=[5, 1, ABSENT, 9], output_tokens=[ABSENT] * 4)])
    assert found is not None
    lengths = found["prompt_tokens"]
    assert (lengths["count"], lengths["sum"], lengths["mean"]) == (3, 15, 5.0)
    assert [lengths[name] for name in ("min", "p50", "p90", "p99", "max")] == [1, 5, 9, 9, 9]
    assert found["output_tokens"] is found["seconds"] is found["arrivals"]["rate"] is None


def test_reuse() -> None:
    """Blocks 1 and 2 come again; 3 comes twice in one request, which is a reuse too, but no prompt begins with it."""
    found = figures([requests([0, 1, 2, 3], block_hashes=[[1, 2], [1, 5], [3, 3], []])])
    assert found is not None
    assert found["reuse"] == {
        "block_references": 6,
        "distinct_blocks": 4,
        "reused_share": 1 - 4 / 6,
        "block_tokens": None,
        "requests_with_reuse": 1,
    }
    apart = figures([requests([0], block_hashes=[[2**64 - 1]]), requests([0], block_hashes=[[2**64 - 1, 7]])])
    assert apart is not None
    assert (apart["reuse"]["distinct_blocks"], apart["reuse"]["requests_with_reuse"]) == (2, 1)
    assert figures([requests([0], block_hashes=[[1]]), requests([0])])["reuse"] is None  # type: ignore[index]


def test_a_part_of_the_time() -> None:
    part = requests([0, 1, 2, 3], prompt_tokens=[1, 2, 3, 4], block_hashes=[[1], [2], [3], [4]]).between(
        1 * SECOND, 3 * SECOND
    )
    found = figures([part])
    assert found is not None
    assert (found["requests"], found["prompt_tokens"]["sum"], found["reuse"]["block_references"]) == (2, 5, 2)


def test_edges() -> None:
    assert figures([]) is None
    assert figures([requests([])]) is None
    one = figures([requests([7])])
    assert one is not None
    assert (one["seconds"], one["arrivals"]) == (0.0, {"rate": None, "interarrival": None})
    at_once = figures([requests([7, 7])])
    assert at_once is not None
    assert (at_once["arrivals"]["rate"], at_once["arrivals"]["interarrival"]["cv"]) == (None, None)


def test_warm_up_is_no_workload() -> None:
    n = 3
    records = Records(
        tool="x",
        format="x",
        clock="epoch",
        arrive_ns=np.array([1, 2, 3]),
        ttft=np.full(n, np.nan),
        e2e=np.full(n, np.nan),
        latency=np.full(n, np.nan),
        prompt_tokens=np.array([100, 5, 6]),
        status=np.zeros(n, np.uint8),
        warmup=np.array([True, False, False]),
    )
    found = figures([Requests.of(records)])
    assert found is not None
    assert (found["requests"], found["prompt_tokens"]["max"]) == (2, 6)
