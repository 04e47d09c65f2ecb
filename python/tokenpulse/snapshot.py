"""`Snapshot`: what a meter held at one moment, as named figures of the whole run and of each window.

Immutable and lazy: a figure is formed when it is asked for. Every figure is finite or None (absent, never 0 in its
place). Times are in seconds unless a name says `_ns`; counts and sums are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Protocol, TypeVar

from tokenpulse import engine, formulas
from tokenpulse.grammar import UNITS_NS, duration_ns, duration_text
from tokenpulse.kv.snapshot import KVSnapshot
from tokenpulse.model import AVAILABILITY_OBJECTIVE, SLO
from tokenpulse.reporting.report import span_seconds
from tokenpulse.view import ALL, View

SCHEMA = "tokenpulse.snapshot/1"

SILENCES = ("1s", "5s", "15s", "60s")
"""How long a request in flight has been without a sign, at least: the limits by which the silent are counted."""

BUDGET_NS = 30 * 24 * UNITS_NS["h"]
"""The time over which an error budget is meant to last."""

_BudgetFormula = Callable[[int, int, float], float | None]
_Self = TypeVar("_Self", bound="Raw")


class Raw(Protocol):
    """What a snapshot asks of the engine's reading."""

    @property
    def t_ns(self) -> int | None: ...
    @property
    def slos(self) -> list[tuple[Any, float]]: ...
    @property
    def origin(self) -> dict[str, Any]: ...
    @property
    def class_keys(self) -> list[tuple[dict[str, str], bool]]: ...
    @property
    def dropped(self) -> int: ...
    def head(self) -> dict[str, Any]: ...
    def block(self, scope: int, classes: int | Sequence[int]) -> dict[str, Any]: ...
    def open(self, classes: int | Sequence[int]) -> dict[str, Any]: ...
    def quantiles(self, qs: Sequence[float], /) -> Any: ...
    def kv(self) -> dict[str, Any] | None: ...
    def merge(self: _Self, other: _Self, /) -> _Self: ...
    def to_bytes(self) -> bytes: ...


class Snapshot:
    """What a meter held at one moment: `meter.snapshot()`.

    `total` is everything since the meter began, `window("1m")` the last minute: both are a `View`. Rates of the total
    divide by the time from the first arrival to the last token, those of a window by the time it covers.
    """

    __slots__ = ("_head", "_keys", "_raw", "_slos", "_total", "_windows")

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._head = head = raw.head()
        self._slos = tuple(
            SLO(
                name,
                ttft=ttft / 1e9,
                tpot=tpot / 1e9,
                e2e=None if e2e is None else e2e / 1e9,
                itl=None if itl is None else itl / 1e9,
                objective=objective,
                where=where,
            )
            for (name, ttft, tpot, e2e, itl, where), objective in raw.slos
        )
        first, now = head["first_event_ns"], head["t_ns"]
        seen = 0 if first is None or now is None else max(0, now - first)
        self._keys = raw.class_keys
        set_once = {name: head["gauges"]["total"][name] for name in ("kv_total", "batch_max")}
        limits = {name: figure["last"] for name, figure in set_once.items() if figure is not None}
        self._total = View(
            raw,
            self._slos,
            self._keys,
            scope=0,
            rate_seconds=span_seconds(head["first_arrival_ns"], head["last_emission_ns"]),
            true_width_ns=seen,
            resources={name: head[name]["total"] for name in ("gauges", "added", "batch_sizes")} | {"limits": limits},
        )
        self._windows = {
            duration_text(window["width_ns"]): View(
                raw,
                self._slos,
                self._keys,
                scope=position + 1,
                width_ns=window["width_ns"],
                rate_seconds=window["true_width_ns"] / 1e9 or None,
                true_width_ns=window["true_width_ns"],
                late=window["late"],
                resources={name: head[name]["windows"][position] for name in ("gauges", "added", "batch_sizes")}
                | {"limits": limits},
            )
            for position, window in enumerate(head["windows"])
        }

    @property
    def t_ns(self) -> int | None:
        """The moment, on the meter's clock: the one asked for, or the meter's newest; None for an unused meter."""
        return self._raw.t_ns

    @property
    def slos(self) -> tuple[SLO, ...]:
        """The SLO sets that the meter judges by."""
        return self._slos

    @property
    def origin(self) -> dict[str, Any]:
        """Who wrote, and on which clock."""
        return self._raw.origin

    @property
    def total(self) -> View:
        """Everything since the meter began."""
        return self._total

    @property
    def windows(self) -> dict[str, View]:
        """The sliding windows by width, narrowest first: `{"15s": View, "1m": View, ...}`."""
        return dict(self._windows)

    def window(self, width: str | float) -> View:
        """The sliding window of a width, as text or in seconds. ValueError for a width that the meter does not keep."""
        wanted = duration_ns(width)
        for view in self._windows.values():
            if view.width_ns == wanted:
                return view
        kept = ", ".join(self._windows) or "none"
        raise ValueError(f"window must be one that the meter keeps ({kept}), got {width!r}")

    @property
    def open(self) -> dict[str, dict[str, Any]]:
        """Requests in flight, by the silence they have kept: `streams` since their last token, `waits` for the first.

        `n` of them, the longest silence `oldest` in seconds (None when there is none), and how many are `over` each
        of 1, 5, 15 and 60 seconds.
        """
        return open_figures(self._raw.open(ALL))

    def gauge_area(self, name: str) -> tuple[int, int] | None:
        """A gauge since it was first set: the integral of its value over ns, and how many ns it has had one.

        What two snapshots differ by is the gauge between them. None if it was never set; KeyError for no gauge.
        """
        figure = self._head["gauges"]["total"][name]
        return None if figure is None else (figure["integral"], figure["covered_ns"])

    @property
    def kv(self) -> KVSnapshot | None:
        """What the meter's KV tracker held; None for a meter without one."""
        reading = self._raw.kv()
        return None if reading is None else KVSnapshot(self._raw, reading)

    @property
    def rejected(self) -> dict[str, int]:
        """Events that were refused, by reason; they changed nothing."""
        return dict(self._head["rejected"])

    @property
    def refused_values(self) -> dict[str, int]:
        """Observed values that were refused, by reason."""
        return dict(self._head["refused_values"])

    @property
    def clamped(self) -> int:
        """Ends that came with a time before their request's last event."""
        return int(self._head["clamped"])

    @property
    def over(self) -> int:
        """Classifications that found no room and went to the class `other`."""
        return int(self._head["over"])

    @property
    def dropped(self) -> int:
        """Observations that a window lacks for want of memory; the total has them."""
        return self._raw.dropped

    @property
    def itl_rule(self) -> str:
        """How emissions of several tokens were recorded."""
        return str(self._head["itl_rule"])

    @property
    def burn(self) -> dict[str, dict[str, float | None]] | None:
        """Burn rates by SLO set, then by width: 1 spends the error budget just in time. None if they are not kept.

        See `burn_availability` for that of availability.
        """
        if self._head["burn"] is None:
            return None
        return {slo.name: self._by_width(formulas.burn_rate, index) for index, slo in enumerate(self._slos)}

    @property
    def burn_availability(self) -> dict[str, float | None] | None:
        """Burn rates of availability (objective 0.999) by width. None if they are not kept."""
        return None if self._head["burn"] is None else self._by_width(formulas.burn_rate, None)

    @property
    def budget_left(self) -> dict[str, float | None] | None:
        """The share of each SLO set's error budget of 30 days that is left; negative when overspent."""
        if self._head["burn"] is None:
            return None
        month = duration_text(BUDGET_NS)
        return {
            slo.name: self._by_width(formulas.budget_left, index).get(month) for index, slo in enumerate(self._slos)
        }

    @property
    def budget_left_availability(self) -> float | None:
        """The same of availability."""
        if self._head["burn"] is None:
            return None
        return self._by_width(formulas.budget_left, None).get(duration_text(BUDGET_NS))

    def _by_width(self, formula: _BudgetFormula, index: int | None) -> dict[str, float | None]:
        """A formula of bad, judged and objective over each width, for an SLO set or (None) for availability."""
        figures = {}
        for width in self._head["burn"]:
            if index is None:
                counts, objective = width["availability"], AVAILABILITY_OBJECTIVE
                bad = counts["bad"]
            else:
                counts, objective = width["slos"][index], self._slos[index].objective
                bad = counts["judged"] - counts["good"]
            figures[duration_text(width["width_ns"])] = formula(bad, counts["judged"], objective)
        return figures

    @property
    def cold_start(self) -> float | None:
        """Seconds from the start of the process to the first token; None unless both are known on one clock."""
        return self._since_start(self._head["first_emission_ns"])

    @property
    def ready_after(self) -> float | None:
        """Seconds from the start of the process until the engine said that it was ready."""
        return self._since_start(self._head["ready_ns"])

    def _since_start(self, t_ns: int | None) -> float | None:
        origin = self.origin
        start = origin["process_start_ns"] if origin["monotonic"] else 0
        return (t_ns - start) / 1e9 if start and t_ns is not None and t_ns >= start else None

    def quantiles(self, qs: Sequence[float]) -> Any:
        """Quantiles of every latency at once, in seconds: a float64 array [scope, class, metric, q].

        Scopes are the total, then the windows; classes are all together, then those of `total.classes`; metrics are
        in the order of `METRICS`. NaN where there is no value. ValueError for a q outside 0 to 1.
        """
        return self._raw.quantiles(list(qs))

    def reading(self) -> dict[str, Any]:
        """All counts and sketches as plain dicts, before any ratio is formed."""
        head = self._head
        return {
            **{name: head[name] for name in head if name not in ("windows", "gauges", "added", "batch_sizes", "burn")},
            "windows": head["windows"],
            "classes": [
                {"key": key, "other": other, **self._class_reading(position)}
                for position, (key, other) in enumerate(self._keys)
            ],
            "all": self._class_reading(ALL),
            **{name: head[name] for name in ("gauges", "added", "batch_sizes", "burn")},
            "kv": None if self.kv is None else self.kv.reading(),
        }

    def _class_reading(self, position: int) -> dict[str, Any]:
        scopes = range(1, 1 + len(self._windows))
        return {
            "open": self._raw.open(position),
            "total": self._raw.block(0, position),
            "windows": [self._raw.block(scope, position) for scope in scopes],
        }

    def to_dict(self) -> dict[str, Any]:
        """All figures as one object that JSON can hold: finite numbers or None; times in seconds."""
        availability, kv = self.burn_availability, self.kv
        by_class = {name: view.classes for name, view in self._windows.items()}
        return {
            "schema": SCHEMA,
            "t_ns": self.t_ns,
            "origin": self.origin,
            "rules": {
                "itl": self.itl_rule,
                "quantile": "nearest_rank",
                "relative_error": self._total.latency["ttft"].relative_error,
            },
            "total": self._total.to_dict(),
            "windows": {name: view.to_dict() for name, view in self._windows.items()},
            "classes": [
                {
                    "key": one.key,
                    "other": one.other,
                    "open": open_figures(self._raw.open(position)),
                    "total": one.to_dict(),
                    "windows": {name: views[position].to_dict() for name, views in by_class.items()},
                }
                for position, one in enumerate(self._total.classes)
            ],
            "open": self.open,
            "rejected": self.rejected,
            "refused_values": self.refused_values,
            "clamped": self.clamped,
            "over": self.over,
            "dropped": self.dropped,
            "burn": None if availability is None else {"slos": self.burn, "availability": availability},
            "budget_left": None
            if availability is None
            else {"slos": self.budget_left, "availability": self.budget_left_availability},
            "cold_start": self.cold_start,
            "ready_after": self.ready_after,
            "kv": None if kv is None else kv.to_dict(),
        }

    def to_bytes(self) -> bytes:
        """The snapshot as bytes, for `from_bytes` anywhere; equal snapshots give equal bytes."""
        return self._raw.to_bytes()

    @classmethod
    def from_bytes(cls, encoded: bytes) -> Snapshot:
        """The snapshot that `to_bytes` wrote. DecodeError for anything else."""
        return cls(engine.RawSnapshot.from_bytes(encoded))

    @classmethod
    def merge(cls, snapshots: Iterable[Snapshot]) -> Snapshot:
        """Several snapshots as if one meter had seen it all. ValueError if there are none or they do not go together.

        Counts and sketches add up exactly. Gauges add up too: their means over the longer of the times covered, and
        their largest values to an upper bound. A window is as wide as the widest.
        """
        raws = [snapshot._raw for snapshot in snapshots]
        if not raws:
            raise ValueError("there must be at least one snapshot to merge")
        return cls(reduce(lambda merged, raw: merged.merge(raw), raws))

    def __add__(self, other: object) -> Snapshot:
        return Snapshot.merge([self, other]) if isinstance(other, Snapshot) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return self._raw == other._raw if isinstance(other, Snapshot) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return (Snapshot.from_bytes, (self.to_bytes(),))

    def __repr__(self) -> str:
        counts = self._total.counts
        moment = "unused" if self.t_ns is None else f"t={self.t_ns / 1e9:.3f} s"
        windows = ", ".join(self._windows) or "no windows"
        return (
            f"<tokenpulse.Snapshot {moment}: {counts['attempted']} requests, {counts['output_tokens']} output tokens,"
            f" {windows}>"
        )


def open_figures(counts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Requests in flight by their silence, in seconds."""
    return {
        kind: {
            "n": one["n"],
            "oldest": None if one["oldest_ns"] is None else one["oldest_ns"] / 1e9,
            "over": dict(zip(SILENCES, one["over"], strict=True)),
        }
        for kind, one in counts.items()
    }
