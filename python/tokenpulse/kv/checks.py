"""What arguments must be. Each check returns what it was given, or raises ValueError or TypeError that says which
argument it was, what was expected and what came.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from tokenpulse.grammar import duration_ns


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number from `least` on, and up to `most` if there is one.

    >>> whole("blocks", 5, 1)
    5
    """
    bounds = f"at least {least}" if most is None else f"between {least} and {most}"
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, {bounds}, got {value!r}")
    if number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be {bounds}, got {value!r}")
    return number


def share(name: str, value: Any) -> float:
    """A number above 0 and at most 1.

    >>> share("rate", 1)
    1.0
    """
    try:
        number = None if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError):
        number = None
    if number is None:
        raise TypeError(f"{name} must be a number above 0 and at most 1, got {value!r}")
    if not 0 < number <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {value!r}")
    return number


def sizes(value: Any) -> list[int]:
    """Sizes of caches, as any iterable of them.

    >>> sizes(range(1, 4))
    [1, 2, 3]
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"sizes must be an iterable of whole numbers, such as [1000, 10000], got {value!r}")
    return [whole("each of sizes", one, 1) for one in value]


def duration(name: str, value: Any) -> int:
    """A duration, in nanoseconds.

    >>> duration("ttl", "30m")
    1800000000000
    """
    try:
        return duration_ns(value)
    except (TypeError, ValueError) as wrong:
        raise type(wrong)(f"{name}: {wrong}") from None
