"""The vectors of trends against the reference and the product; the two against each other on random series."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpulse.analysis.alerts import trend as product
from tokenpulse.reference import trend as reference

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "trend.json").read_text()
)
assert all(VECTORS[section] for section in ("series", "sliding", "refused"))

IMPLEMENTATIONS = pytest.mark.parametrize("trend", [reference, product], ids=["reference", "product"])

SERIES = st.lists(st.integers(-3, 3) | st.floats(-1e6, 1e6, allow_nan=False), max_size=25)
"""Small whole numbers are often equal."""


def values_of(case: dict[str, Any]) -> list[float]:
    """Values as they are listed, or runs of [how many, the first, what each adds]."""
    if "values" in case:
        return [float(value) for value in case["values"]]
    return [start + place * each for n, start, each in case["runs"] for place in range(n)]


def assert_z(found: float | None, rounded: float | None) -> None:
    assert found == rounded if not rounded else found == pytest.approx(rounded, abs=6e-7)


def assert_slope(found: float | None, fraction: str | None) -> None:
    assert found == (None if fraction is None else pytest.approx(float(Fraction(fraction)), rel=1e-15))


@IMPLEMENTATIONS
@pytest.mark.parametrize("case", VECTORS["series"], ids=lambda case: case["name"])
def test_series(trend: Any, case: dict[str, Any]) -> None:
    values = values_of(case)
    assert_z(trend.mann_kendall(values), case["z"])
    assert_slope(trend.theil_sen(values, case.get("times")), case["slope"])


@pytest.mark.parametrize("case", VECTORS["series"], ids=lambda case: case["name"])
def test_what_z_is_made_of(case: dict[str, Any]) -> None:
    values = values_of(case)
    assert reference.kendall_s(values) == case["s"]
    assert reference.eighteen_variances(values) == case["variance_times_18"]


@pytest.mark.parametrize("case", VECTORS["sliding"], ids=lambda case: case["name"])
def test_sliding(case: dict[str, Any]) -> None:
    test, slope = product.MannKendall(case["n"]), product.TheilSen(case["n"])
    for place, value in enumerate(case["values"]):
        test.push(value)
        slope.push(value)
        assert test.s == case["s"][place]
        assert_z(test.z, case["z"][place])
        assert_slope(slope.slope, case["slope"][place])


@IMPLEMENTATIONS
@pytest.mark.parametrize("case", VECTORS["refused"], ids=lambda case: case["name"])
def test_refused(trend: Any, case: dict[str, Any]) -> None:
    values = [float(value) for value in case["values"]]
    with pytest.raises(ValueError, match=r"finite|nan|inf"):
        trend.mann_kendall(values)
    with pytest.raises(ValueError, match=r"finite|nan|inf"):
        trend.theil_sen(values)


@settings(max_examples=150, deadline=None)
@given(values=SERIES, n=st.integers(2, 12))
def test_sliding_is_the_definition_over_the_last_values(values: list[float], n: int) -> None:
    test, slope = product.MannKendall(n), product.TheilSen(n)
    for place, value in enumerate(values):
        test.push(value)
        slope.push(value)
        last = values[max(0, place + 1 - n) : place + 1]
        assert test.z == reference.mann_kendall(last)
        assert slope.slope == reference.theil_sen(last)


@settings(max_examples=150, deadline=None)
@given(values=SERIES, gaps=st.lists(st.integers(1, 5), min_size=25, max_size=25))
def test_a_whole_series_is_the_definition(values: list[float], gaps: list[int]) -> None:
    times = [sum(gaps[:place]) for place in range(len(values))]
    assert product.mann_kendall(values) == reference.mann_kendall(values)
    assert product.theil_sen(values) == reference.theil_sen(values)
    assert product.theil_sen(values, times) == reference.theil_sen(values, times)


def test_the_last_minute_of_a_long_series() -> None:
    drawn = random.Random(7)
    values = [float(drawn.randrange(40)) if place % 3 else drawn.gauss(20, 9) + place / 10 for place in range(260)]
    test, slope = product.MannKendall(60), product.TheilSen(60)
    for place, value in enumerate(values):
        test.push(value)
        slope.push(value)
        if place % 20 == 19:
            last = values[max(0, place - 59) : place + 1]
            assert (test.z, slope.slope) == (reference.mann_kendall(last), reference.theil_sen(last))


# What must hold of the definitions themselves


@settings(max_examples=200, deadline=None)
@given(values=st.lists(st.integers(-20, 20), min_size=2, max_size=20))
def test_z_of_the_reversed_and_of_the_negated_series_is_minus_z(values: list[int]) -> None:
    z = reference.mann_kendall(values)
    assert z is not None
    assert reference.mann_kendall(values[::-1]) == -z
    assert reference.mann_kendall([-value for value in values]) == -z


@settings(max_examples=200, deadline=None)
@given(values=st.lists(st.integers(-20, 20), min_size=2, max_size=20), shift=st.integers(-99, 99))
def test_z_knows_order_alone(values: list[int], shift: int) -> None:
    assert reference.mann_kendall([3 * value + shift for value in values]) == reference.mann_kendall(values)
    assert reference.mann_kendall([math.exp(value) for value in values]) == reference.mann_kendall(values)


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.integers(-1000, 1000), min_size=2, max_size=20),
    scale=st.sampled_from([-4, -1, 0.5, 2, 8]),
    shift=st.integers(-1000, 1000),
    tilt=st.integers(-50, 50),
)
def test_the_slope_goes_with_scale_shift_and_tilt(values: list[int], scale: float, shift: int, tilt: int) -> None:
    slope = reference.theil_sen(values)
    assert slope is not None
    tilted = [scale * value + shift + tilt * place for place, value in enumerate(values)]
    assert reference.theil_sen(tilted) == pytest.approx(scale * slope + tilt, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.integers(-1000, 1000), min_size=2, max_size=20))
def test_backwards_the_slope_turns_round(values: list[int]) -> None:
    slope = reference.theil_sen(values)
    assert slope is not None
    assert reference.theil_sen(values[::-1]) == -slope
    twice = [2 * place for place in range(len(values))]
    assert reference.theil_sen(values, twice) == slope / 2


def test_the_variance_is_that_over_all_orders() -> None:
    values = [1, 1, 2, 3, 3, 3]
    squares = [reference.kendall_s(order) ** 2 for order in permutations(values)]
    assert Fraction(sum(squares), len(squares)) == Fraction(reference.eighteen_variances(values), 18)
