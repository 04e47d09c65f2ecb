"""Where a falling share meets a target: the fit, the estimate, what is surely known, and what is never said."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpulse.analysis.crossing import AT_LEAST, BETWEEN, UNDER, Crossing, Point, course, crossing, fitted
from tokenpulse.analysis.intervals import normal_quantile, wilson


def point(rate: float, share: float, weight: float = 100, reach: float = 0.0) -> Point:
    return Point(rate, share, weight, (max(0.0, share - reach), min(1.0, share + reach)))


def rate_of(found: Crossing | None) -> tuple[str, float]:
    assert found is not None
    return found.how, found.rate


def test_between_two_runs_it_is_a_straight_line_of_the_log_odds() -> None:
    """Nine to one for at 10, nine to one against at 30: as much for as against in the middle."""
    runs = [point(10, 0.9), point(30, 0.1)]
    assert rate_of(crossing(runs, 0.5)) == (BETWEEN, pytest.approx(20))
    assert rate_of(crossing(runs[::-1], 0.5)) == (BETWEEN, pytest.approx(20))
    # Three to one against is half the way from even to nine to one against.
    assert rate_of(crossing(runs, 0.25)) == (BETWEEN, pytest.approx(25))
    # Where none missed, half a case of 99 did: 199 to one.
    odds = math.log(199)
    assert rate_of(crossing([point(10, 1.0, 99), point(20, 0.5)], 0.9)) == (
        BETWEEN,
        pytest.approx(20 - 10 * math.log(9) / odds),
    )


def test_a_logistic_curve_is_found_again() -> None:
    def share(rate: float) -> float:
        return 1 / (1 + math.exp((rate - 40) / 3))

    runs = [point(rate, share(rate), 1e9) for rate in (10, 25, 33, 47, 60)]
    for target in (0.99, 0.9, 0.5, 0.2):
        assert rate_of(crossing(runs, target)) == (
            BETWEEN,
            pytest.approx(40 + 3 * math.log((1 - target) / target), abs=1e-4),
        )
    rates, shares = course(runs)
    assert shares == pytest.approx([share(rate) for rate in rates], abs=1e-6)
    assert {10, 25, 33, 47, 60} <= set(rates)


def test_a_run_of_few_requests_that_were_all_good_keeps_any_target() -> None:
    """Its log-odds alone would say that it keeps 98.9 % at most."""
    assert rate_of(crossing([point(10, 1.0, 45), point(20, 0.2, 45)], 0.99)) == (BETWEEN, 10)
    assert rate_of(crossing([point(10, 1.0, 45)], 0.99)) == (AT_LEAST, 10)


def test_nothing_is_said_beyond_the_runs() -> None:
    runs = [point(10, 0.95), point(20, 0.92)]
    assert crossing(runs, 0.9) == Crossing(AT_LEAST, 20, 20, None)
    assert crossing(runs, 0.92) == Crossing(AT_LEAST, 20, 20, None)
    assert crossing(runs, 0.99) == Crossing(UNDER, 10, None, 10)
    assert crossing([point(7, 0.9)], 0.9) == Crossing(AT_LEAST, 7, 7, None)
    assert crossing([], 0.9) is None


def test_the_interval_reaches_from_what_surely_keeps_it_to_what_surely_misses_it() -> None:
    runs = [
        point(10, 1.0, reach=0.01),
        point(20, 0.93, reach=0.05),
        point(30, 0.87, reach=0.05),
        point(40, 0.5, reach=0.1),
    ]
    found = crossing(runs, 0.9)
    assert found is not None
    assert (found.how, found.low, found.high) == (BETWEEN, 10, 40)
    assert not found.contradicts
    # A run that surely keeps it says so of every lower rate, whatever was measured there.
    runs[0] = point(10, 0.9, reach=0.2)
    runs[1] = point(20, 0.95, reach=0.04)
    found = crossing(runs, 0.9)
    assert found is not None
    assert found.low == 20


def test_runs_that_contradict_each_other_are_found_out() -> None:
    found = crossing([point(10, 0.5, reach=0.1), point(20, 1.0, reach=0.01)], 0.9)
    assert found is not None
    assert found.contradicts


def test_neighbours_that_rise_become_their_weighted_mean() -> None:
    assert fitted([point(1, 0.8, 100), point(2, 0.9, 300)]) == ([1, 2], [0.875, 0.875])
    assert fitted([point(1, 0.9, 1), point(2, 0.7, 1), point(3, 0.8, 1), point(4, 0.1, 1)])[1] == pytest.approx(
        [0.9, 0.75, 0.75, 0.1]
    )
    # Several runs at one rate are one point.
    assert fitted([point(5, 0.5, 100), point(5, 1.0, 100)]) == ([5], [0.75])


measured = st.lists(
    st.tuples(st.integers(1, 30), st.integers(0, 40), st.integers(1, 50)).map(lambda t: point(t[0], t[1] / 40, t[2])),
    min_size=1,
    max_size=8,
)


@given(measured)
def test_the_fit_is_that_of_the_least_squares(points: list[Point]) -> None:
    """By the max-min formula of isotonic regression, which knows nothing of pooling."""
    rates, shares = fitted(points)
    assert rates == sorted({one.rate for one in points})
    weights = [sum(one.weight for one in points if one.rate == rate) for rate in rates]
    totals = [sum(one.share * one.weight for one in points if one.rate == rate) for rate in rates]

    def mean(first: int, last: int) -> float:
        return sum(totals[first : last + 1]) / sum(weights[first : last + 1])

    n = len(rates)
    for place, share in enumerate(shares):
        by_formula = min(max(mean(first, last) for last in range(place, n)) for first in range(place + 1))
        assert share == pytest.approx(by_formula)


@given(measured, st.floats(0.05, 0.95))
def test_the_estimate_is_never_outside_the_runs(points: list[Point], target: float) -> None:
    found = crossing(points, target)
    assert found is not None
    rates, shares = fitted(points)
    assert rates[0] <= found.rate <= rates[-1]
    if found.how == AT_LEAST:
        assert shares[-1] >= target
    elif found.how == UNDER:
        assert shares[0] < target


def test_the_interval_holds_the_true_rate() -> None:
    """Of runs with known shares 95 % at least do, all runs of a sweep together."""
    rng = random.Random(3)
    rates, n, target = [30, 34, 38, 42, 46, 50, 54], 400, 0.9
    truth = 44 + 2.5 * math.log((1 - target) / target)
    shares = [1 / (1 + math.exp((rate - 44) / 2.5)) for rate in rates]
    level = 1 - 0.05 / len(rates)
    held, open_ends = 0, 0
    for _ in range(400):
        points = []
        for rate, share in zip(rates, shares, strict=True):
            good = sum(rng.random() < share for _ in range(n)) / n
            points.append(Point(rate, good, n, wilson(good * n, n, normal_quantile(level))))
        found = crossing(points, target)
        assert found is not None
        open_ends += found.low is None or found.high is None
        held += (found.low or 0) <= truth <= (found.high or math.inf)
    assert held >= 0.95 * 400
    assert open_ends == 0


@given(measured)
def test_the_course_falls_through_the_fit(points: list[Point]) -> None:
    rates, shares = course(points)
    assert rates == sorted(rates)
    assert all(after <= before + 1e-12 for before, after in pairwise(shares))
    assert set(zip(*fitted(points), strict=True)) <= set(zip(rates, shares, strict=True))
