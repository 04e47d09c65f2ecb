"""The confidence of a sample's refill rate: that it holds the truth, and says so where it hardly knows anything."""

from __future__ import annotations

import math
import random

import pytest

from tokenpulse import formulas

Fates = list[tuple[int, int]]
"""Of each block, how often it was evicted and how often of these refilled."""


def test_an_interval_stays_within_its_bounds() -> None:
    low, high = formulas.ratio_interval([0, 9], [1, 9], [10, 10], 0.01, 1.0)
    assert (low, high) == (0.0, 1.0)
    unbounded = formulas.ratio_interval([0, 9], [1, 9], [10, 10], 0.01)[1]
    assert unbounded is not None
    assert unbounded > 1
    assert formulas.ratio_interval([30, 9], [31, 9], [10, 10], 0.01)[1] is not None  # a window's rate above 1


def test_of_everything_there_is_no_doubt() -> None:
    assert formulas.ratio_interval([2, 3], [4, 5], [10, 10], 1.0) == (0.25, 0.45)
    assert formulas.ratio_interval([0, 0], [0, 0], [0, 3], 1.0, 1.0) == (0.0, 0.0)
    assert formulas.ratio_interval([0, 3], [0, 3], [0, 3], 1.0, 1.0) == (1.0, 1.0)
    assert formulas.ratio_interval([0, 0], [0, 0], [0, 0], 1.0) == (None, None)


def test_nothing_was_evicted() -> None:
    for rate in (0.01, 0.5, 1.0):
        assert formulas.ratio_interval([0] * 32, [0] * 32, [0] * 32, rate, 1.0) == (None, None)
    assert formulas.ratio_interval([0, 1], [0, 1], [0, 0], 0.5) == (None, None)  # refilled in a window, none evicted


@pytest.mark.parametrize(("refilled", "evicted"), [(0, 4), (4, 4), (0, 1), (1, 1), (2, 4)])
def test_few_evictions_leave_much_open(refilled: int, evicted: int) -> None:
    wholes, parts = [0] * 32, [0] * 32
    for i in range(evicted):
        wholes[i], parts[i] = 1, int(i < refilled)
    low, high = formulas.ratio_interval(parts, parts, wholes, 0.01, 1.0)
    assert low is not None
    assert high is not None
    assert 0 <= low <= refilled / evicted <= high <= 1
    assert high - low > 0.5


def test_the_error_where_no_part_was_seen() -> None:
    low, high = formulas.ratio_interval([0] * 32, [0] * 32, [4] + [0] * 31, 0.5, 1.0)
    share = (0 + 2 * 0.5) / (4 + 4 * 0.5)  # one success of six
    error = math.sqrt(share * (1 - share) * 0.5 / 6)
    assert (low, high) == (0.0, pytest.approx(share + 1.96 * error, rel=1e-12))


def test_the_larger_error_counts() -> None:
    """Blocks that come and go in groups: the jackknife tells more than a share of as many single ones."""
    wholes = [20] * 32
    parts = [20 * (i % 2) for i in range(32)]
    low, high = formulas.ratio_interval(parts, parts, wholes, 0.1, 1.0)
    error = formulas.jackknife_error(parts, wholes, 0.1)
    assert error is not None
    assert error > 3 * math.sqrt(0.25 / 640)
    assert (low, high) == (pytest.approx(0.5 - 1.96 * error), pytest.approx(0.5 + 1.96 * error))


def single(rng: random.Random, blocks: int, share: float) -> Fates:
    return [(1, int(rng.random() < share)) for _ in range(blocks)]


def clustered(rng: random.Random, blocks: int, mean: float) -> Fates:
    """A third never returns; the others go and come back again and again."""
    times = [1 + int(rng.expovariate(1 / mean)) for _ in range(blocks)]
    return [(1, 0) if rng.random() < 1 / 3 else (n, n - rng.randrange(2)) for n in times]


CASES = {
    "four evictions": (lambda rng: single(rng, 400, 0.488), 0.01),
    "ten evictions, hardly a refill": (lambda rng: single(rng, 500, 0.03), 0.02),
    "ten evictions, nearly all refilled": (lambda rng: single(rng, 500, 0.97), 0.02),
    "half of a small cache": (lambda rng: single(rng, 60, 0.3), 0.5),
    "nearly all of it": (lambda rng: single(rng, 300, 0.01), 0.9),
    "some hundred evictions": (lambda rng: single(rng, 1000, 0.3), 0.2),
    "clustered, a dozen evictions": (lambda rng: clustered(rng, 400, 3.0), 0.01),
    "clustered, some fifty": (lambda rng: clustered(rng, 500, 3.0), 0.04),
    "clustered, some hundred": (lambda rng: clustered(rng, 600, 20.0), 0.03),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("forgetful", [0.0, 0.3])
def test_it_holds_the_truth(case: str, forgetful: float) -> None:
    """In nine of ten samples at least, also where some of what was evicted had been forgotten."""
    make, rate = CASES[case]
    rng = random.Random(case)
    fates = make(rng)
    truth = sum(refilled for _, refilled in fates) / sum(evicted for evicted, _ in fates)
    held = samples = 0
    while samples < 2_000:
        wholes, low, high = [0] * 32, [0] * 32, [0] * 32
        # Each block is in the sample or not, and in one of the groups, as its hash says.
        for evicted, refilled in rng.sample(fates, sum(rng.random() < rate for _ in fates)):
            group = rng.randrange(32)
            unknown = rng.random() < forgetful
            wholes[group] += evicted
            low[group] += 0 if unknown else refilled
            high[group] += evicted if unknown else refilled
        first, last = formulas.ratio_interval(low, high, wholes, rate, 1.0)
        if first is None or last is None:
            assert sum(wholes) == 0
            continue
        samples += 1
        held += first <= truth <= last
    assert held >= 0.9 * samples
