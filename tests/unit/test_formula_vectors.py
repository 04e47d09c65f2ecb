"""The formulas against values worked by hand, over numbers and over arrays, and outside their domains."""

from __future__ import annotations

import inspect
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenpulse import formulas

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "formulas.json").read_text())
VALUES: list[dict[str, Any]] = VECTORS["values"]
assert VALUES

SPECIMEN = {case["name"]: case["arguments"] for case in reversed(VALUES)}
"""Arguments of each formula that are in its domain."""

EXAMINED = [(name, place) for name, arguments in SPECIMEN.items() for place in range(len(arguments))]


def function(name: str) -> Any:
    return getattr(formulas, name)


def exact(text: str) -> Fraction:
    return sum((Fraction(part.replace(" ", "")) for part in text.split(" + ")), Fraction(0))


def changed(name: str, place: int, value: Any) -> list[Any]:
    return [value if position == place else one for position, one in enumerate(SPECIMEN[name])]


@pytest.mark.parametrize("case", VALUES, ids=lambda case: f"{case['name']}-{case['how'][:30]}")
def test_values(case: dict[str, Any]) -> None:
    expected = float(exact(case["value"]))
    found = function(case["name"])(*case["arguments"])
    assert isinstance(found, float)
    assert found == pytest.approx(expected, rel=4e-16)


@pytest.mark.parametrize("case", VALUES, ids=lambda case: f"{case['name']}-{case['how'][:30]}")
def test_arrays_have_the_values_of_numbers(case: dict[str, Any]) -> None:
    expected = function(case["name"])(*case["arguments"])
    for place, argument in enumerate(case["arguments"]):
        arguments = [*case["arguments"]]
        arguments[place] = np.full((2, 3), argument)
        found = function(case["name"])(*arguments)
        assert found.dtype == np.float64
        assert found.tolist() == [[expected] * 3] * 2
    axes = len(case["arguments"])
    shapes = [[2 if axis == place else 1 for axis in range(axes)] for place in range(axes)]
    spread = [np.full(shape, one) for shape, one in zip(shapes, case["arguments"], strict=True)]
    found = function(case["name"])(*spread)
    assert found.shape == (2,) * axes
    assert np.unique(found).tolist() == [expected]


def test_the_names_are_those_of_the_vectors() -> None:
    skipped = {"availability_of", "error_rate_of", "judged_of", "unavailable_of", "ratio", "refill_rate_ends"}
    skipped |= {"jackknife_error", "ratio_interval"}
    public = {name for name in formulas.__all__ if inspect.isfunction(getattr(formulas, name))}
    assert public - skipped == set(SPECIMEN)


@pytest.mark.parametrize(("name", "arguments"), VECTORS["nothing_to_divide_by"], ids=lambda one: str(one))
def test_nothing_to_divide_by(name: str, arguments: list[float]) -> None:
    assert function(name)(*arguments) is None
    found = function(name)(*[[one, one] for one in arguments])
    assert np.isnan(found).all()
    assert found.shape == (2,)


@pytest.mark.parametrize(("name", "place"), EXAMINED)
@pytest.mark.parametrize("value", [-1.0, -1e-300, math.nan, math.inf, -math.inf])
def test_outside_every_domain(name: str, place: int, value: float) -> None:
    argument = list(inspect.signature(function(name)).parameters)[place]
    with pytest.raises(ValueError, match=rf"{argument}.* must be .*, got {value}"):
        function(name)(*changed(name, place, value))
    specimen = SPECIMEN[name][place]
    with pytest.raises(ValueError, match=rf"{argument}.* must be .*, got {value} at \[2\]"):
        function(name)(*changed(name, place, np.array([specimen, specimen, value])))


@pytest.mark.parametrize("name", VECTORS["positive"])
def test_what_must_be_positive(name: str) -> None:
    for place in range(len(SPECIMEN[name])):
        if place in VECTORS["positive"][name]:
            with pytest.raises(ValueError, match=list(inspect.signature(function(name)).parameters)[place]):
                function(name)(*changed(name, place, 0))
        elif "judged" not in inspect.signature(function(name)).parameters:  # of which others are a part
            assert function(name)(*changed(name, place, 0)) is not None


@pytest.mark.parametrize(("name", "arguments", "place"), VECTORS["outside"])
def test_outside(name: str, arguments: list[float], place: int) -> None:
    argument = list(inspect.signature(function(name)).parameters)[place]
    with pytest.raises(ValueError, match=argument):
        function(name)(*arguments)
    with pytest.raises(ValueError, match=argument):
        function(name)(*[[one] for one in arguments])


@pytest.mark.parametrize(("name", "place"), EXAMINED)
@pytest.mark.parametrize("value", [True, "1", b"1", [True], ["1"], 1j])
def test_what_is_no_number(name: str, place: int, value: Any) -> None:
    with pytest.raises(TypeError, match=list(inspect.signature(function(name)).parameters)[place]):
        function(name)(*changed(name, place, value))


def test_arrays_that_do_not_broadcast() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        formulas.prefill_seconds([1.0, 2.0], [1.0, 2.0, 3.0], 1e15, 0.5)
