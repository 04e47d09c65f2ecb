"""Columns of tokens, each with its own time: the core's fast way through them against the reference's slow one."""

from __future__ import annotations

import random

import numpy as np
import pytest
from agreement import differences
from meters import Core, Reference, comparable

from tokenpulse.model import SLO

SECOND = 1_000_000_000
SLOS = [SLO("tight", ttft=0.2, tpot=0.02, itl=0.05), SLO("loose", ttft=2, tpot=0.2, e2e=20)]


def columns(seed: int, requests: int, tokens: int) -> tuple[list[int], list[int]]:
    """Times that mostly grow, with ties, steps back, jumps over panes and some far ahead; which request's token."""
    chance = random.Random(seed)
    t, times, whose = 5 * SECOND, [], []
    for _ in range(tokens):
        t += chance.choice((0, 1, 1000, 3_000_000, 20_000_000, 20_000_000, 300_000_000, -2_000_000, -700_000_000))
        t += chance.choice((0,) * 400 + (20 * SECOND, 4000 * SECOND, -30 * SECOND))
        times.append(max(0, t) + chance.choice((0,) * 200 + (2 * 86_400 * SECOND,)))
        whose.append(chance.randrange(requests))
    return times, whose


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_columns_of_tokens(seed: int, counted: bool) -> None:
    core, oracle = (engine(slos=SLOS, max_requests=40, ttl_ns=1_000_000 * SECOND).meter for engine in (Core, Reference))
    times, whose = columns(seed, requests=30, tokens=1500)
    chance = random.Random(seed)
    sizes = [chance.choice((1, 1, 1, 1, 2, 5, 300, 0, -1, 2**32)) for _ in times] if counted else None
    for meter in (core, oracle):
        classes = [meter.classify(tenant=tenant) for tenant in "abc"]
        handles = [meter.arrive(4 * SECOND, 10, cls=classes[i % 3]) for i in range(28)] + [-1, 12345]
        column = [handles[i] for i in whose]
        if meter is core:
            for part in np.array_split(np.arange(len(times)), 7):
                some = None if sizes is None else np.array(sizes)[part]
                core.tokens(np.array(times)[part], np.array(column)[part], some)
        else:
            oracle.tokens(times, column, sizes)
    for t in (None, times[-1] + 1, times[-1] + 7 * SECOND, times[-1] - 2 * SECOND):
        wanted = oracle.snapshot(t)
        assert wanted["all"]["total"]["output_tokens"] > 20
        assert differences(comparable(core.snapshot(t).reading()), comparable(wanted)) == []


def test_a_meter_of_several_shards_takes_the_same_columns() -> None:
    times, whose = columns(3, requests=20, tokens=800)
    sizes = [1 + at % 3 for at in range(len(times))]
    totals = []
    for shards in (1, 3):
        core = Core(shards=shards, windows_ns=())
        handles = [core.meter.arrive(4 * SECOND) for _ in range(20)]
        core.meter.tokens(times, [handles[i] for i in whose], sizes)
        totals.append(comparable(core.reading()["all"]["total"]))
    assert totals[0]["output_tokens"] > 100
    assert totals[0] == totals[1]


def test_columns_of_unequal_length_are_refused() -> None:
    core = Core().meter
    with pytest.raises(ValueError, match="handles must be as many as the others, 2, got 1"):
        core.tokens([1, 2], [3])
    with pytest.raises(ValueError, match="counts must be as many as the others, 1, got 2"):
        core.tokens([1], [3], [1, 1])
    with pytest.raises(ValueError, match="time in ns must be between 0"):
        core.tokens([-1], [3])
