"""What a formula's arguments may be, checked once for numbers and for arrays.

A `formula` is a function of plain arithmetic. Its wrapper checks each argument against its domain, and hands on floats
and integers as they are, so that a call with numbers costs about a microsecond; anything that is like an array becomes
one of float64, and all are broadcast. Numbers give a float, arrays an array of float64, and never an infinity.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from functools import wraps
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Number = float | np.floating[Any] | np.integer[Any]
"""What gives a float; anything else that is like an array gives an array."""

_Function = TypeVar("_Function", bound=Callable[..., Any])

MAX = sys.float_info.max
LEAST = math.ulp(0.0)
"""The smallest float above 0."""


class Domain(NamedTuple):
    """The values from `low` to `high`, both included, in words; `optional`: or None, which makes the result None."""

    low: float
    high: float
    text: str
    optional: bool = False


AT_LEAST_0 = Domain(0, MAX, "a finite number of 0 or more")
ABOVE_0 = Domain(LEAST, MAX, "a finite number above 0")
AT_LEAST_1 = Domain(1, MAX, "a finite number of 1 or more")
EFFICIENCY = Domain(LEAST, 1, "above 0 and at most 1")
OBJECTIVE = Domain(LEAST, math.nextafter(1, 0), "between 0 and 1, both excluded")


def formula(**domains: Domain) -> Callable[[_Function], _Function]:
    """Check the arguments of a function, which are named in their order, before it computes.

    ValueError where one lies outside its domain, where arrays do not broadcast, or where the result is beyond what a
    float can hold; TypeError for what is neither a number nor an array of numbers.
    """
    names = tuple(domains)
    bounds = tuple(domains.values())

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        if tuple(signature.parameters) != names:
            raise TypeError(f"{function.__name__}: domains are of {', '.join(names)}, not of its parameters")
        needed = len(names)
        defaults = tuple((name, one.default) for name, one in signature.parameters.items())

        def called(args: tuple[Any, ...]) -> Any:
            plain = True
            for value, (low, high, _, _) in zip(args, bounds, strict=True):
                kind = type(value)
                if kind is not float and kind is not int:
                    plain = False
                elif not low <= value <= high:
                    refuse(names, args, bounds)
            if not plain:
                args = tuple(_number(name, value) for name, value in zip(names, args, strict=True))
                refuse(names, args, bounds)
                if any(value is None for value in args):
                    return None
                if any(isinstance(value, np.ndarray) for value in args):
                    return _over_arrays(function, names, args)
            try:
                result = function(*args)
            except (OverflowError, ZeroDivisionError):
                result = math.inf
            if result is None:
                return None
            if not -MAX <= result <= MAX:
                raise ValueError(_beyond(function))
            return float(result)

        @wraps(function)
        def wrapper(*args: Any, **named: Any) -> Any:
            if named or len(args) != needed:
                args = _bound(signature, defaults, args, named)
            return called(args)

        return wrapper  # type: ignore[return-value]

    return decorate


def _bound(
    signature: inspect.Signature, defaults: tuple[tuple[str, Any], ...], args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...]:
    """All arguments in their order. TypeError as Python's own."""
    rest = [named.pop(name, default) for name, default in defaults[len(args) :]]
    if named or len(args) > len(defaults) or any(value is inspect.Parameter.empty for value in rest):
        given = {name: value for (name, _), value in zip(defaults[len(args) :], rest, strict=True)}
        signature.bind(
            *args, **named, **{name: one for name, one in given.items() if one is not inspect.Parameter.empty}
        )
    return (*args, *rest)


def _number(name: str, value: Any) -> Any:
    """A number as an int or a float, anything else but None as an array of float64."""
    if value is None or type(value) in (int, float):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "iuf":
        return value.item() if value.dtype.itemsize <= 8 else float(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value)
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise ValueError(f"{name} must be a number or an array of numbers, got {value!r}") from None
    if array.dtype.kind not in "iuf" and array.size:
        raise TypeError(f"{name} must be a number or an array of numbers, got {value!r}")
    return array.astype(np.float64)


def refuse(names: tuple[str, ...], args: tuple[Any, ...], bounds: tuple[Domain, ...]) -> None:
    """ValueError for the first argument that has a value outside its domain."""
    for name, value, (low, high, text, optional) in zip(names, args, bounds, strict=True):
        if value is None:
            if not optional:
                raise TypeError(f"{name} must be a number or an array of numbers, got None")
        elif isinstance(value, np.ndarray):
            wrong = ~((value >= low) & (value <= high))
            if wrong.any():
                raise ValueError(f"{name} must be {text}, got {first(value, wrong)}")
        elif type(value) in (int, float) and not low <= value <= high:
            raise ValueError(f"{name} must be {text}, got {value}")


def first(values: Array, wrong: NDArray[np.bool_]) -> str:
    """The first of an array's values that is wrong, and where it stands.

    >>> first(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[False, False], [True, True]]))
    '3.0 at [1, 0]'
    """
    place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    text = f"{np.broadcast_to(values, wrong.shape)[place]}"
    return f"{text} at [{', '.join(str(int(axis)) for axis in place)}]" if place else text


def _over_arrays(function: Callable[..., Any], names: tuple[str, ...], args: tuple[Any, ...]) -> Array:
    try:
        np.broadcast_shapes(*(np.shape(value) for value in args))
    except ValueError:
        shapes = ", ".join(f"{name} {np.shape(value)}" for name, value in zip(names, args, strict=True))
        raise ValueError(f"arrays must broadcast together, got the shapes {shapes}") from None
    arrays = np.broadcast_arrays(*(np.asarray(value, np.float64) for value in args))
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            return np.asarray(function(*arrays), np.float64)
    except FloatingPointError:
        raise ValueError(_beyond(function)) from None


def _beyond(function: Callable[..., Any]) -> str:
    return f"{function.__name__}: the result is beyond what a float can hold"


# Quotients that may be absent

_ARRAYS = (np.ndarray, np.generic)
"""Arrays, and what arithmetic makes of arrays without a dimension."""


def quotient(part: Any, whole: Any) -> Any:
    """One over the other; where the other is 0, None for a number and NaN in an array."""
    if isinstance(part, _ARRAYS):
        part, whole = np.broadcast_arrays(part, whole)
        return np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole != 0)
    return part / whole if whole else None


def share(part: Any, whole: Any, name: str, whole_name: str) -> Any:
    """The same of a part, which cannot be more than the whole: ValueError where it is."""
    if isinstance(part, _ARRAYS):
        wrong = np.asarray(part > whole)
        if wrong.any():
            most = first(whole, wrong).partition(" at ")[0]
            raise ValueError(f"{name} must be at most {whole_name} ({most}), got {first(np.asarray(part), wrong)}")
    elif part > whole:
        raise ValueError(f"{name} must be at most {whole_name} ({whole}), got {part}")
    return quotient(part, whole)
