"""What people write in options and arguments: durations such as `200ms`, and SLO sets in one line.

Everything is exact: `0.1s` is 100,000,000 ns, and what is no whole number of nanoseconds is refused.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tokenpulse.model import SLO

UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}

Path = str | os.PathLike[str]

AUTO = "auto"
"""The width of a timeline of which nobody cares how wide its bins are."""

_DURATION = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,18})?)(ns|us|ms|s|m|h)")
_LIMITS = ("ttft", "tpot", "e2e", "itl")


def parse_duration(text: str) -> int:
    """A duration as whole nanoseconds.

    Raises ValueError for anything but a positive decimal number with one of the units ns, us, ms, s, m, h.

    >>> parse_duration("1.5s"), parse_duration("250us"), parse_duration("1h")
    (1500000000, 250000, 3600000000000)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"a duration must be a number with one of the units ns, us, ms, s, m, h, such as 200ms; got {text!r}"
        )
    ns = Fraction(found[1]) * UNITS_NS[found[2]]
    if ns.denominator != 1:
        raise ValueError(f"a duration must be a whole number of nanoseconds, got {text!r}")
    if not 1 <= ns < 2**63:
        raise ValueError(f"a duration must be between 1ns and 2562047h, got {text!r}")
    return int(ns)


def duration_ns(duration: str | float) -> int:
    """A duration given as text (`"10s"`) or as a number of seconds, in whole nanoseconds.

    >>> duration_ns("10s") == duration_ns(10) == 10_000_000_000
    True
    """
    if isinstance(duration, str):
        return parse_duration(duration)
    if isinstance(duration, bool) or not isinstance(duration, (int, float)):
        raise TypeError(f"a duration must be text such as '10s' or a number of seconds, got {duration!r}")
    if not (0 < duration < 1e10 and 1 <= round(duration * 1_000_000_000) < 2**63):
        raise ValueError(f"a duration must be between 1e-9 and 9.2e9 seconds, got {duration!r}")
    return round(duration * 1_000_000_000)


def since_ns(moment: str | float) -> int:
    """A moment since the first arrival, as a duration is given; 0 is one.

    >>> since_ns("0s"), since_ns(0), since_ns("1.5s")
    (0, 0, 1500000000)
    """
    if isinstance(moment, str):
        found = _DURATION.fullmatch(moment.strip())
        return 0 if found is not None and not Fraction(found[1]) else parse_duration(moment)
    return 0 if not isinstance(moment, bool) and moment == 0 else duration_ns(moment)


def duration_text(ns: int) -> str:
    """A width as people write it, in the largest unit of which it is a whole number.

    >>> duration_text(15_000_000_000), duration_text(60_000_000_000), duration_text(3 * 86_400_000_000_000)
    ('15s', '1m', '3d')
    """
    units = {**UNITS_NS, "d": 24 * UNITS_NS["h"]}
    unit = max((size, name) for name, size in units.items() if ns % size == 0)
    return f"{ns // unit[0]}{unit[1]}"


def request_rate_of(rate: str | float) -> float:
    """Requests a second, as a number or as text; `inf` is as fast as possible.

    Raises ValueError unless it is above 0.

    >>> request_rate_of("12.5"), request_rate_of("inf")
    (12.5, inf)
    """
    try:
        found = float(rate)
    except (TypeError, ValueError):
        found = math.nan
    if not found > 0:
        raise ValueError(f"a request rate must be a number of requests a second above 0, or inf; got {rate!r}")
    return found


def path_names(paths: Path | Iterable[Path]) -> list[str]:
    """One path or several as text; `-` is standard input.

    Raises TypeError for what is no path, ValueError for none at all and for standard input given twice.

    >>> path_names("a.jsonl"), path_names(["a.jsonl", "-"])
    (['a.jsonl'], ['a.jsonl', '-'])
    """
    names = []
    if not isinstance(paths, (str, os.PathLike, bytes, Iterable)):
        raise TypeError(f"a path must be str or os.PathLike[str], got {paths!r}")
    for path in [paths] if isinstance(paths, (str, os.PathLike, bytes)) else paths:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"a path must be str or os.PathLike[str], got {path!r}")
        name = os.fspath(path)
        if not isinstance(name, str):
            raise TypeError(f"a path must be str or os.PathLike[str], got {path!r}")
        names.append(name)
    if not names:
        raise ValueError("there must be at least one path to report on")
    once_only(names)
    return names


def once_only(sources: Iterable[object]) -> None:
    """Raise ValueError where standard input is given twice."""
    if sum(isinstance(source, str) and source == "-" for source in sources) > 1:
        raise ValueError("standard input ('-') can be read only once")


def parse_slo(text: str) -> SLO:
    """One SLO set from `[NAME:]ttft=200ms,tpot=30ms[,e2e=..][,itl=..][,objective=0.99]`.

    Raises ValueError that names the part which does not fit.

    >>> parse_slo("chat:ttft=200ms,tpot=30ms").name
    'chat'
    """
    return _parse_slo(text)[0]


def _parse_slo(text: str) -> tuple[SLO, bool]:
    """The set, and whether it was given a name."""
    head, colon, tail = text.partition(":")
    named = bool(colon) and "=" not in head
    name, limits = (head.strip(), tail) if named else ("default", text)
    if not name:
        raise ValueError(f"slo {text!r}: the name before ':' is empty")
    given: dict[str, Any] = {}
    for part in limits.split(","):
        key, equals, written = (piece.strip() for piece in part.partition("="))
        if not equals or key not in (*_LIMITS, "objective"):
            raise ValueError(f"slo {text!r}: expected ttft=, tpot=, e2e=, itl= or objective=, got {part.strip()!r}")
        if key in given:
            raise ValueError(f"slo {text!r}: {key} is given twice")
        try:
            given[key] = _objective(written) if key == "objective" else parse_duration(written) / 1e9
        except ValueError as wrong:
            raise ValueError(f"slo {text!r}: {key}: {wrong}") from None
    for key in ("ttft", "tpot"):
        if key not in given:
            raise ValueError(f"slo {text!r}: {key} is missing; a set needs ttft and tpot")
    return SLO(name, **given), named


def _objective(written: str) -> float:
    try:
        objective = float(written)
    except ValueError:
        objective = math.nan
    if not 0 < objective < 1:
        raise ValueError(f"must be a number between 0 and 1, both excluded, got {written!r}")
    return objective


def slo_sets(given: SLO | str | Iterable[SLO | str] | None, where: Sequence[str] = ()) -> tuple[SLO, ...]:
    """The SLO sets of a report, named apart: sets written without a name are `default`, `slo2`, `slo3`, ...

    `where` holds restrictions written as `NAME=LABEL:VALUE`. Raises ValueError for two sets of one name and for
    a restriction of a set that is not there.

    >>> [slo.name for slo in slo_sets(["ttft=1s,tpot=50ms", "ttft=2s,tpot=90ms"])]
    ['default', 'slo2']
    """
    if given is None:
        given = ()
    elif isinstance(given, (SLO, str)):
        given = (given,)
    sets: dict[str, SLO] = {}
    unnamed = 0
    for one in given:
        if isinstance(one, SLO):
            slo = one
        elif isinstance(one, str):
            slo, named = _parse_slo(one)
            unnamed += not named
            if not named and unnamed > 1:
                slo = replace(slo, name=f"slo{unnamed}")
        else:
            raise TypeError(f"slo must be an SLO or text such as 'ttft=200ms,tpot=30ms', got {one!r}")
        if slo.name in sets:
            raise ValueError(f"two slo sets are named {slo.name!r}; give each a name of its own")
        sets[slo.name] = slo
    for restriction in where:
        name, equals, rest = restriction.partition("=")
        label, colon, wanted = rest.partition(":")
        if not equals or not colon or not name or not label:
            raise ValueError(f"slo-where must be NAME=LABEL:VALUE, got {restriction!r}")
        if name not in sets:
            known = ", ".join(sets) or "none"
            raise ValueError(f"slo-where {restriction!r}: no slo set is named {name!r} (named: {known})")
        if sets[name].where.get(label, wanted) != wanted:
            raise ValueError(f"slo-where {restriction!r}: {label} is already restricted to another value")
        sets[name] = replace(sets[name], where={**sets[name].where, label: wanted})
    return tuple(sets.values())
