"""Meters driven by lists of calls, so that the same list goes to the reference and to the core.

A call is `[method, arguments]` or `[method, arguments, name]`; the name stands for what the call returned: a handle,
wherever `handles` has it, or a class, where `cls` has it. Numbers stand for themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tokenpulse
from tokenpulse.model import SLO
from tokenpulse.reference.meter import Meter as ReferenceMeter

WORDS = {"nan": math.nan, "inf": math.inf}
"""What JSON has no numbers for."""

Call = Sequence[Any]
Reading = dict[str, Any]


class Reference:
    """The reference's meter. Settings are named as in the vectors, with times in ns."""

    name = "reference"

    def __init__(self, **settings: Any) -> None:
        self.meter: Any = self.make(**with_slos(settings))
        self.returned: dict[Any, int] = {}

    def make(self, **settings: Any) -> Any:
        return ReferenceMeter(**settings)

    def reading(self, t_ns: int | None = None) -> Reading:
        found: Reading = self.meter.snapshot(t_ns)
        return found

    def drive(self, calls: Iterable[Call]) -> None:
        for method, arguments, *name in calls:
            found = getattr(self.meter, method)(**self.meant(arguments))
            if name:
                self.returned[name[0]] = found

    def meant(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with names replaced by what they stand for."""
        meant = dict(arguments)
        if "cls" in meant:
            meant["cls"] = self._value(meant["cls"])
        if "handles" in meant:
            handles = meant["handles"]
            meant["handles"] = [self._value(h) for h in handles] if isinstance(handles, list) else self._value(handles)
        if "values" in meant:
            meant["values"] = [WORDS.get(value, value) for value in meant["values"]]
        return meant

    def _value(self, named: Any) -> int:
        return named if isinstance(named, int) else self.returned[named]


class Core(Reference):
    """The core's meter: the same calls, settings as durations."""

    name = "core"

    def make(self, **settings: Any) -> Any:
        if "windows_ns" in settings:
            settings["windows"] = [f"{width_ns}ns" for width_ns in settings.pop("windows_ns")]
        if "ttl_ns" in settings:
            settings["ttl"] = f"{settings.pop('ttl_ns')}ns"
        return tokenpulse.Meter(**settings)

    def reading(self, t_ns: int | None = None) -> Reading:
        found: Reading = self.meter.snapshot(t_ns).reading()
        return found


def with_slos(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings whose SLO sets may be given as their fields."""
    given = dict(settings)
    if "slos" in given:
        given["slos"] = [slo if isinstance(slo, SLO) else SLO(**slo) for slo in given["slos"]]
    return given


ENGINES: list[Callable[..., Reference]] = [Reference, Core]


def comparable(value: Any) -> Any:
    """A reading with sketches as their bytes."""
    if hasattr(value, "to_bytes") and not isinstance(value, int):
        return value.to_bytes().hex()
    if isinstance(value, Mapping):
        return {key: comparable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [comparable(each) for each in value]
    return value


def sketch_figures(value: Any) -> Any:
    """A reading as vectors name it: a sketch as [count, sum, min, max], without those that are empty."""
    if hasattr(value, "to_bytes") and not isinstance(value, int):
        return [value.count, value.sum_ns, value.min_ns, value.max_ns]
    if isinstance(value, Mapping):
        full = {key: each for key, each in value.items() if not (hasattr(each, "sum_ns") and each.count == 0)}
        return {str(key): sketch_figures(each) for key, each in full.items()}
    if isinstance(value, (list, tuple)):
        return [sketch_figures(each) for each in value]
    return value


def at_path(value: Any, path: str) -> Any:
    """What a reading has at a path such as `all.windows.0.attempted`."""
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value
