"""The fields of a file of sketches, read strictly: each with its type, its range, and what it must agree with.

Nothing in the file is trusted. What does not fit raises `FieldError`, whose message begins with the place in the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tokenpulse.model import (
    ITL_RULES,
    MAX_CLASSES,
    MAX_LABEL_KEYS,
    MAX_TIMELINE_BINS,
    METRICS,
    SLO,
    STATUSES,
)
from tokenpulse.sketches.merging import FLOW_BINS, SLOWEST

SCHEMA = "tokenpulse.sketches/1"

MAX_COUNT = 2**63 - 1
MAX_SUM = 2**127
"""Sums of nanoseconds have 128 bits, as in the core."""

_GRID = {3: (-161, 96)}
"""The scale of the grid, and its least and greatest index there."""

_REASONS = ("no_tokens", *STATUSES)

Decode = Callable[[str], Any]
"""Base64 text to a sketch; raises FieldError."""


class FieldError(ValueError):
    """What a field must be, and what it was."""


def read_saved(found: Any, decode: Decode) -> dict[str, Any]:
    """The arguments of `Saved`, from the file's object."""
    top = _Place("", found)
    schema = top.field("schema").text()
    if schema != SCHEMA:
        raise FieldError(f"schema: expected {SCHEMA!r}, got {schema!r:.60} (written by another version of tokenpulse?)")
    top.keys("schema", "version", "settings", "absent", "definitions", "reported", "reduction")
    top.field("version").text()
    settings = _settings(top.field("settings"))
    return {
        **settings,
        "absent": top.field("absent").texts(),
        "definitions": {metric: texts.texts() for metric, texts in top.field("definitions").items()},
        "reported": [dict(one.object()) for one in top.field("reported").list()],
        "reduction": _Reader(settings, decode).reduction(top.field("reduction")),
    }


class _Place:
    """A value, and where it stands."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value

    def wrong(self, expected: str) -> FieldError:
        if isinstance(self.value, (dict, list)):
            shown = "an object" if isinstance(self.value, dict) else "an array"
        else:
            shown = f"{json.dumps(self.value):.60}"
        return FieldError(f"{self.name or 'the file'}: expected {expected}, got {shown}")

    def object(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self.value

    def keys(self, *names: str) -> None:
        """That it has exactly these."""
        there = self.object()
        for name in names:
            if name not in there:
                raise FieldError(f"{self.name or 'the file'}: expected the key {name!r}, it is absent")
        for name in there:
            if name not in names:
                raise FieldError(f"{self.name or 'the file'}: expected no key {name!r:.60}")

    def field(self, name: str) -> _Place:
        there = self.object()
        if name not in there:
            raise FieldError(f"{self.name or 'the file'}: expected the key {name!r}, it is absent")
        return _Place(f"{self.name}.{name}" if self.name else name, there[name])

    def items(self) -> list[tuple[str, _Place]]:
        return [(name, self.field(name)) for name in self.object()]

    def list(self, most: int | None = None) -> list[_Place]:
        if not isinstance(self.value, list):
            raise self.wrong("an array")
        if most is not None and len(self.value) > most:
            raise FieldError(f"{self.name}: expected at most {most} items, got {len(self.value)}")
        return [_Place(f"{self.name}[{n}]", one) for n, one in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong("text")
        return self.value

    def texts(self) -> dict[str, str]:
        return {name: one.text() for name, one in self.items()}

    def one_of(self, names: Sequence[str]) -> str:
        if self.value not in names:
            raise self.wrong(f"one of {', '.join(names)}")
        return str(self.value)

    def whole(self, least: int = 0, most: int = MAX_COUNT) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not least <= self.value <= most:
            raise self.wrong(f"a whole number from {least} to {most}")
        return self.value

    def maybe(self, least: int = 0, most: int = MAX_COUNT) -> int | None:
        return None if self.value is None else self.whole(least, most)

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def counts(self, names: Sequence[str] | None = None) -> dict[str, int]:
        """What occurred, by name; of certain names only, where they are given, and in their order."""
        found = {name: one.whole(1) for name, one in self.items()}
        for name in found:
            if names is not None and name not in names:
                raise FieldError(f"{self.name}: expected only {', '.join(names)}, got {name!r:.60}")
        return found if names is None else {name: found[name] for name in names if name in found}


def _settings(place: _Place) -> dict[str, Any]:
    place.keys("itl", "by", "slos", "timeline_ns", "timeline_bins", "ttl_ns")
    by = tuple(one.text() for one in place.field("by").list(MAX_LABEL_KEYS + 2))
    if len(set(by)) != len(by):
        raise place.field("by").wrong("keys that differ")
    slos = tuple(_slo(one) for one in place.field("slos").list())
    if len({slo.name for slo in slos}) != len(slos):
        raise FieldError("settings.slos: expected names that differ")
    return {
        "itl": place.field("itl").one_of(ITL_RULES),
        "by": by,
        "slos": slos,
        "timeline_ns": place.field("timeline_ns").maybe(1),
        "timeline_bins": place.field("timeline_bins").whole(2, MAX_TIMELINE_BINS),
        "ttl_ns": place.field("ttl_ns").whole(1),
    }


def _slo(place: _Place) -> SLO:
    place.keys("name", "ttft", "tpot", "e2e", "itl", "objective", "where")
    try:
        return SLO(
            place.field("name").text(),
            **{name: place.field(name).value for name in ("ttft", "tpot", "e2e", "itl", "objective")},
            where=place.field("where").texts(),
        )
    except (TypeError, ValueError) as wrong:
        raise FieldError(f"{place.name}: {wrong}") from None


class _Reader:
    """Reads a reduction that was made with certain settings."""

    def __init__(self, settings: Mapping[str, Any], decode: Decode) -> None:
        self.settings, self.decode = settings, decode
        self.scale: int | None = None

    def reduction(self, place: _Place) -> dict[str, Any]:
        counted = ["oom_events"] if "oom_events" in place.object() else []  # files of before had none
        place.keys(
            *("inputs", "notices", "first_arrival_ns", "last_emission_ns", "newest_ns", "rejected", "clamped", "total"),
            *("slowest", "by", "by_interned_over", "timeline", "flow", "grid", "cut"),
            *counted,
        )
        first, last = (place.field(name).maybe() for name in ("first_arrival_ns", "last_emission_ns"))
        if last is not None and (first is None or last < first):
            raise place.field("last_emission_ns").wrong("a time not before first_arrival_ns")
        if first != place.field("flow").field("first_arrival_ns").value:
            raise place.field("first_arrival_ns").wrong("that of the flow")
        return {
            "inputs": [self._input(one) for one in place.field("inputs").list()],
            "notices": [self._notice(one) for one in place.field("notices").list()],
            **{name: place.field(name).maybe() for name in ("first_arrival_ns", "last_emission_ns", "newest_ns")},
            "rejected": place.field("rejected").counts(),
            "clamped": place.field("clamped").whole(),
            "oom_events": place.field("oom_events").maybe() if counted else None,
            "total": self._block(place.field("total"), whole=True),
            "slowest": self._slowest(place.field("slowest")),
            "by": self._classes(place.field("by")),
            "by_interned_over": place.field("by_interned_over").whole(),
            "timeline": self._timeline(place.field("timeline")),
            "flow": self._flow(place.field("flow")),
            "grid": self._grid(place.field("grid")),
            "cut": self._cut(place.field("cut")),
        }

    def _input(self, place: _Place) -> dict[str, Any]:
        warmup = ["warmup"] if "warmup" in place.object() else []
        place.keys("path", "format", "lines", "requests", "skipped", *warmup)
        return {
            "path": place.field("path").text(),
            "format": place.field("format").text(),
            **{name: place.field(name).maybe() for name in ("lines", "requests")},
            "skipped": place.field("skipped").counts(),
            **{name: place.field(name).maybe() for name in warmup},
        }

    def _notice(self, place: _Place) -> dict[str, Any]:
        place.keys("path", "line", "reason", "message")
        texts = {name: place.field(name).text() for name in ("path", "reason", "message")}
        return {"path": texts["path"], "line": place.field("line").maybe(), **texts}

    def _sketch(self, place: _Place, itl: bool = False) -> Any:
        try:
            sketch = self.decode(place.text())
        except FieldError as wrong:
            raise FieldError(f"{place.name}: {wrong}") from None
        rule = self.settings["itl"] if itl else None
        if sketch.itl_rule != rule:
            raise FieldError(f"{place.name}: expected a sketch of the ITL rule {rule}, got {sketch.itl_rule}")
        if self.scale is None:
            self.scale = sketch.scale
        if sketch.scale != self.scale:
            raise FieldError(f"{place.name}: expected a sketch of scale {self.scale} as before it, got {sketch.scale}")
        return sketch

    def _block(self, place: _Place, whole: bool) -> dict[str, Any]:
        """Counts and sketches; `whole`: all the requests that ended in it arrived in it."""
        plain = ("attempted", "degraded", "preempted", "preemptions", "prompt_tokens", "output_tokens")
        place.keys(*plain, "by_status", "missing", "latency", "slos")
        latency = place.field("latency")
        latency.keys(*METRICS)
        slos = place.field("slos").list()
        if len(slos) != len(self.settings["slos"]):
            raise FieldError(f"{place.name}.slos: expected {len(self.settings['slos'])} items, got {len(slos)}")
        by_status = place.field("by_status").counts(STATUSES)
        block: dict[str, Any] = {
            "attempted": place.field("attempted").whole(),
            "by_status": by_status,
            **{name: place.field(name).whole() for name in plain[1:]},
            "missing": place.field("missing").counts(METRICS),
            "latency": {metric: self._sketch(latency.field(metric), metric == "itl") for metric in METRICS},
        }
        ended = sum(by_status.values())
        for name in ("degraded", "preempted"):
            place.field(name).whole(0, ended)
        if whole and ended > block["attempted"]:
            raise FieldError(f"{place.name}: expected at most {block['attempted']} requests to end, got {ended}")
        return block | {"slos": [self._judged(one, ended) for one in slos]}

    def _judged(self, place: _Place, ended: int) -> dict[str, Any]:
        place.keys("good", "output_tokens", "missed", "met", "deadlines", "fluidity")
        missed = place.field("missed").counts()
        for reason in missed:
            limits = reason.split("+")
            ranks = [METRICS.index(limit) for limit in limits if limit in ("ttft", "tpot", "e2e", "itl")]
            if reason not in _REASONS and (len(ranks) != len(limits) or ranks != sorted(set(ranks))):
                raise FieldError(f"{place.name}.missed: expected limits or a status, got {reason!r:.60}")
        judged = place.field("good").whole() + sum(missed.values())
        if judged > ended:
            raise FieldError(f"{place.name}: expected at most {ended} requests to be judged, got {judged}")
        deadlines = place.field("deadlines").whole()
        return {
            "good": place.field("good").whole(),
            "output_tokens": place.field("output_tokens").whole(),
            "missed": missed,
            "met": place.field("met").whole(0, deadlines),
            "deadlines": deadlines,
            "fluidity": self._sketch(place.field("fluidity")),
        }

    def _slowest(self, place: _Place) -> dict[str, list[tuple[int, str]]]:
        place.keys(*METRICS)
        found: dict[str, list[tuple[int, str]]] = {}
        for metric in METRICS:
            entries = [one.list(2) for one in place.field(metric).list(SLOWEST)]
            if any(len(entry) != 2 for entry in entries):
                raise place.field(metric).wrong("pairs of nanoseconds and an id")
            found[metric] = [(ns.whole(), name.text()) for ns, name in entries]
            if any(more[0] > less[0] for less, more in pairwise(found[metric])):
                raise place.field(metric).wrong("the slowest first")
        return found

    def _classes(self, place: _Place) -> list[dict[str, Any]]:
        keys = self.settings["by"]
        items = place.list(MAX_CLASSES)
        if items and not keys:
            raise FieldError(f"{place.name}: expected nothing where settings.by is empty")
        found: list[dict[str, Any]] = []
        for n, one in enumerate(items):
            one.keys("key", "other", "block")
            other = one.field("other").flag()
            if other and n + 1 < len(items):
                raise FieldError(f"{one.name}: expected the class of all others to stand last")
            key = one.field("key")
            key.keys(*([] if other else keys))
            values = {name: None if key.object()[name] is None else key.field(name).text() for name in key.object()}
            ordered = values if other else {name: values[name] for name in keys}
            found.append({"key": ordered, "other": other, "block": self._block(one.field("block"), whole=True)})
        known = [tuple(one["key"].values()) for one in found if not one["other"]]
        if len(set(known)) != len(known) or len(known) >= MAX_CLASSES:
            raise FieldError(f"{place.name}: expected at most {MAX_CLASSES - 1} keys that differ, and all others")
        return found

    def _bins(self, place: _Place, width: int, most: int) -> list[_Place]:
        """Bins in order of time, on multiples of their width, no more than there may be."""
        bins = place.list(most)
        starts = [one.field("start_ns").whole() for one in bins]
        for one, start, before in zip(bins, starts, [-1, *starts], strict=False):
            if start % width or start <= before:
                raise one.field("start_ns").wrong(f"a multiple of {width} above {before}")
        if starts and starts[-1] // width - starts[0] // width >= most:
            raise FieldError(f"{place.name}: expected at most {most} bins from first to last")
        return bins

    def _timeline(self, place: _Place) -> dict[str, Any] | None:
        asked = self.settings["timeline_ns"]
        if (place.value is None) != (asked is None):
            raise FieldError(f"{place.name}: expected {'none' if asked is None else 'one'}, by settings.timeline_ns")
        if place.value is None:
            return None
        place.keys("width_ns", "asked_ns", "bins")
        width = place.field("width_ns").whole(1)
        place.field("asked_ns").whole(asked, asked)
        _doubled(place.field("width_ns"), asked)
        bins = []
        for one in self._bins(place.field("bins"), width, self.settings["timeline_bins"]):
            one.keys("start_ns", "block")
            block = self._block(one.field("block"), whole=False)
            bins.append({"start_ns": one.field("start_ns").whole(), "block": block})
        return {"width_ns": width, "asked_ns": asked, "bins": bins}

    def _flow(self, place: _Place) -> dict[str, Any]:
        times = ("first_arrival_ns", "last_arrival_ns", "first_end_ns", "last_end_ns")
        place.keys("width_ns", "bins", *times, "residence_count", "residence_sum_ns", "emissions", "coalesced")
        width = place.field("width_ns").whole(1)
        _doubled(place.field("width_ns"), 1_000_000)
        bins = [self._flow_bin(one, width) for one in self._bins(place.field("bins"), width, FLOW_BINS)]
        arrived, ended = (sum(one[events] for one in bins) for events in ("arrivals", "ends"))
        if arrived < ended:
            raise FieldError(f"{place.name}.bins: expected at least as many arrivals as ends")
        for events in ("arrival", "end"):
            starts = [one["start_ns"] for one in bins if one[f"{events}s"]]
            for name, start in ((f"first_{events}_ns", starts[:1]), (f"last_{events}_ns", starts[-1:])):
                t = place.field(name).maybe()
                if (None if t is None else t // width * width) != (start[0] if start else None):
                    raise place.field(name).wrong("a time in the bin that tells of it")
            if starts and place.field(f"first_{events}_ns").whole() > place.field(f"last_{events}_ns").whole():
                raise FieldError(f"{place.name}: expected first_{events}_ns not after last_{events}_ns")
        emissions = place.field("emissions").whole()
        return {
            "width_ns": width,
            "bins": bins,
            **{name: place.field(name).maybe() for name in times},
            "residence_count": place.field("residence_count").whole(ended, ended),
            "residence_sum_ns": place.field("residence_sum_ns").whole(0, MAX_SUM),
            "emissions": emissions,
            "coalesced": place.field("coalesced").whole(0, emissions),
        }

    def _flow_bin(self, place: _Place, width: int) -> dict[str, int]:
        names = (*("start_ns", "arrivals", "arrival_offset_ns", "ends", "end_offset_ns"), "ttft_count", "ttft_sum_ns")
        place.keys(*names)
        found = {name: place.field(name).whole(0, MAX_SUM) for name in names}
        for events, offset in (("arrivals", "arrival_offset_ns"), ("ends", "end_offset_ns")):
            place.field(events).whole()
            place.field(offset).whole(0, found[events] * (width - 1))
        place.field("ttft_count").whole(0, found["arrivals"])
        return found

    def _grid(self, place: _Place) -> dict[str, Any]:
        place.keys("scale", "cells")
        scale = place.field("scale").whole(3, 3)
        least, most = _GRID[scale]
        cells = []
        for one in place.field("cells").list((most - least + 1) * (most - least + 2)):
            cell = one.list(3)
            if len(cell) != 3:
                raise one.wrong("TTFT index, TPOT index or null, count")
            cells.append([cell[0].whole(least, most), cell[1].maybe(least, most), cell[2].whole(1)])
        order = [(ttft, tpot is not None, tpot or 0) for ttft, tpot, _ in cells]
        if any(after <= before for before, after in pairwise(order)):
            raise FieldError(f"{place.name}.cells: expected them in order, each once")
        return {"scale": scale, "cells": cells}

    def _cut(self, place: _Place) -> dict[str, Any] | None:
        if place.value is None:
            return None
        place.keys("from_ns", "to_ns", "outside")
        return {name: place.field(name).maybe() for name in ("from_ns", "to_ns")} | {
            "outside": place.field("outside").whole()
        }


def _doubled(place: _Place, asked: int) -> None:
    """That a width is another one, doubled some times."""
    width = place.whole(asked)
    if width % asked or (width // asked) & (width // asked - 1):
        raise place.wrong(f"{asked} doubled")
