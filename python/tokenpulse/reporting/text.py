"""Figures and names as text for people: few digits, thousands apart, nothing that upsets a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_DOWN, Context, Decimal
from typing import Any

from tokenpulse.model import LENGTH_KEYS


def count(amount: int) -> str:
    """A count with its thousands apart.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{amount:,}"


def several(amount: int, noun: str) -> str:
    """A count and what it counts, in the singular where it is one.

    >>> several(1, "block"), several(1200, "block"), several(0, "line")
    ('1 block', '1,200 blocks', '0 lines')
    """
    return f"{count(amount)} {noun}{'' if amount == 1 else 's'}"


def number(amount: float | None) -> str:
    """A figure with three or four digits that tell, or `-` where there is none.

    >>> number(0.01234), number(1.5), number(22.81), number(1234.5), number(-1.17), number(None)
    ('0.0123', '1.50', '22.8', '1,234', '-1.17', '-')
    """
    if amount is None:
        return "-"
    if amount == 0:
        return "0"
    if amount < 0:
        return f"-{number(-amount)}"
    if amount < 0.001 or amount >= 1e7:
        return f"{amount:.2e}"
    if amount < 1:
        return f"{amount:.3g}"
    if amount < 10:
        return f"{amount:.2f}"
    return f"{amount:.1f}" if amount < 1000 else f"{amount:,.0f}"


def money(amount: float | None) -> str:
    """A cost with three digits that tell, or `-` where there is none.

    >>> money(0.000556), money(1234.5), money(0.0), money(None)
    ('0.000556', '1,234', '0', '-')
    """
    if amount is None or not 0 < amount < 0.001:
        return number(amount)
    places = 2 - math.floor(math.log10(amount))
    return f"{amount:.{places}f}" if places <= 12 else number(amount)


def ms(seconds: float) -> str:
    """Seconds as milliseconds.

    >>> ms(0.02281), ms(0.0)
    ('22.8', '0')
    """
    return number(seconds * 1e3)


UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def unit(seconds: float) -> str:
    """The unit in which people would say a time: one in which it is a small number above 1.

    >>> unit(0.25), unit(119), unit(600), unit(86_400)
    ('ms', 's', 'min', 'h')
    """
    return "ms" if seconds < 1 else "s" if seconds < 120 else "min" if seconds < 7200 else "h"


def in_unit(seconds: float, name: str) -> str:
    """A time as a figure in a unit.

    >>> in_unit(90, "min"), in_unit(0.0228, "ms")
    ('1.50', '22.8')
    """
    return number(seconds / UNITS[name])


def percent(share: float | None) -> str:
    """A share in percent; never rounded up to 100 nor down to 0.

    >>> percent(0.5), percent(0.999999), percent(1.0), percent(None)
    ('50.00 %', '99.99 %', '100 %', '-')
    """
    if share is None:
        return "-"
    if share in (0, 1):
        return f"{share * 100:.0f} %"
    return f"{min(99.99, max(0.01, 100 * share)):.2f} %"


_SIX_DIGITS = Context(prec=6, rounding=ROUND_DOWN)


def setting_percent(share: float) -> str:
    """A share that was set, in percent, with as many digits as it takes, up to six: neither 0 nor 100 unless it is.

    >>> setting_percent(0.07), setting_percent(1e-8), setting_percent(0.99999999), setting_percent(1.0)
    ('7 %', '0.000001 %', '99.9999 %', '100 %')
    """
    value = _SIX_DIGITS.multiply(Decimal(repr(share)), Decimal(100))
    return f"{value.normalize(_SIX_DIGITS):{'f' if value >= Decimal('1e-9') else 'e'}} %"


def printable(text: str) -> str:
    """Text from a log, safe to print: control characters and lone surrogates are escaped.

    >>> printable("a" + chr(27) + "[31m")
    'a\\\\x1b[31m'
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown.encode("utf-8", "backslashreplace").decode()


def in_order(groups: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Groups as they are, but those that differ in a length alone by that length, and what is in none of them last.

    >>> [one["key"]["prompt_length"] for one in in_order([
    ...     {"key": {"prompt_length": name}, "other": False} for name in ("512-2048", "131072+", None, "0-128")])]
    ['0-128', '512-2048', '131072+', None]
    """
    found: dict[tuple[Any, ...], int] = {}

    def place(one: Mapping[str, Any]) -> tuple[Any, ...]:
        labels = tuple(value for name, value in one["key"].items() if name not in LENGTH_KEYS)
        lengths = [value for name, value in one["key"].items() if name in LENGTH_KEYS]
        lowest = [(value or "").rstrip("+").partition("-")[0] for value in lengths]
        edges = [int(edge) if edge.isdecimal() else 1 << 62 for edge in lowest]
        return (bool(one.get("other")), found.setdefault(labels, len(found)), *edges)

    return sorted(groups, key=place)


def goodput_cells(one: Mapping[str, Any]) -> list[str]:
    """What an SLO set found, as the cells that a table and a page show under `GOODPUT_HEADS`."""
    return [
        count(one["good"]),
        count(one["judged"]),
        percent(one["attainment"]),
        f"{100 * one['slo']['objective']:.9g} %",
        number(one["requests_per_second"]),
        number(one["tokens_per_second"]),
    ]


GOODPUT_HEADS = ("good", "judged", "attained", "objective", "good req/s", "good tok/s")
