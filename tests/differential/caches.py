"""Trackers of a KV cache driven by lists of calls, alone or in a meter: the reference's and the core's alike.

A call is `[method, arguments]`, as in `tests/vectors/kv.json`; in a meter those of its tracker are named `kv.store` and
so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from meters import Call, Core, Reading, Reference, sketch_figures

import tokenpulse
from tokenpulse import reference

KV = "kv."


class ReferenceCache:
    """The reference's tracker. Settings are named as in the vectors, with times in ns."""

    name = "reference"

    def __init__(self, meter: Mapping[str, Any] | None = None, **settings: Any) -> None:
        self.tracker = self.make(**settings)
        self.meter = None if meter is None else self.make_meter(kv=self.tracker, **meter)

    def make(self, **settings: Any) -> Any:
        return reference.KVTracker(**settings)

    def make_meter(self, **settings: Any) -> Reference:
        return Reference(**settings)

    def reading(self, t_ns: int | None = None) -> Reading:
        """The tracker's reading, or its meter's, in which that lies under `kv`."""
        return self.alone(t_ns) if self.meter is None else self.meter.reading(t_ns)

    def alone(self, t_ns: int | None = None) -> Reading:
        found: Reading = self.tracker.snapshot(t_ns)
        return found

    def drive(self, calls: Iterable[Call]) -> None:
        for method, arguments, *name in calls:
            if self.meter is None or method.startswith(KV):
                getattr(self.tracker, method.removeprefix(KV))(**meant(arguments))
            else:
                self.meter.drive([(method, arguments, *name)])


class CoreCache(ReferenceCache):
    """The core's tracker: the same calls, settings as durations."""

    name = "core"

    def make(self, **settings: Any) -> Any:
        widths_ns = settings.pop("windows_ns", None)
        if widths_ns is not None:
            settings["windows"] = [f"{width_ns}ns" for width_ns in widths_ns]
        if "ttl_ns" in settings:
            settings["ttl"] = f"{settings.pop('ttl_ns')}ns"
        return tokenpulse.KVTracker(**settings)

    def make_meter(self, **settings: Any) -> Reference:
        return Core(**settings)

    def alone(self, t_ns: int | None = None) -> Reading:
        found: Reading = self.tracker._snapshot(t_ns).kv()
        return found


CACHES: list[Callable[..., ReferenceCache]] = [ReferenceCache, CoreCache]


def meant(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with `{"hash": h, "times": n}` written out."""
    hashes = arguments.get("hashes")
    if isinstance(hashes, Mapping):
        return {**arguments, "hashes": [hashes["hash"]] * hashes["times"]}
    return dict(arguments)


def figures(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block as vectors name it: without what is 0 or empty."""
    named = {
        key: value for key, value in sketch_figures(block).items() if value not in (0, {"n": 0, "queried": 0, "hit": 0})
    }
    parts = named.pop("replicates")
    if parts is not None and any(map(any, parts)):
        named["replicates"] = {str(number): part for number, part in enumerate(parts) if any(part)}
    return named


def without_zeros(reading: Mapping[str, Any]) -> dict[str, Any]:
    """A reading whose blocks are as vectors name them."""
    windows = [{**window, "block": figures(window["block"])} for window in reading["windows"]]
    return {**reading, "total": figures(reading["total"]), "windows": windows}
