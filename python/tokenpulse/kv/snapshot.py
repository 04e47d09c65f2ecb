"""`KVSnapshot`: what a KV cache's tracker held at one moment, as figures of the whole run and of each window.

Immutable. Every figure is finite or None (absent, never 0 in its place). Times are in seconds unless a name says
`_ns`; counts are exact integers of the blocks that are followed: in sampled mode, of the sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, NamedTuple, Protocol, TypeVar

from tokenpulse import engine, formulas
from tokenpulse.formulas import Interval
from tokenpulse.grammar import duration_ns, duration_text
from tokenpulse.model import SketchLike
from tokenpulse.reporting.report import latency_figures

SCHEMA = "tokenpulse.kv_snapshot/1"

BLOCK_COUNTS = (
    "stored",
    "repeated",
    "evicted",
    "released",
    "refilled",
    "forgotten",
    "onloaded",
    "offloaded",
    "touched",
)
"""What is counted of single blocks, and in sampled mode of those in the sample only."""

SPANS = ("lifetime", "idle", "gap")
"""What is measured: from the store of a block to its eviction, from its last use to it, from it to the refill."""

PANES = 60
"""The panes of a window's width."""

_Self = TypeVar("_Self", bound="RawKV")


class RawKV(Protocol):
    """What a KV snapshot asks of the engine's reading."""

    def kv(self) -> dict[str, Any] | None: ...
    def merge(self: _Self, other: _Self, /) -> _Self: ...
    def to_bytes(self) -> bytes: ...


class Pane(NamedTuple):
    """What befell blocks in one pane of a window: a sixtieth of its width, from `start_ns` on."""

    start_ns: int
    evicted: int
    refilled: int


class Spike(NamedTuple):
    """The pane of a window that had the most evictions."""

    start_ns: int
    evicted: int
    per_second: float
    """Evictions per second of the pane, in sampled mode scaled to all blocks."""
    ratio: float
    """How many times the mean of the panes that the window covers since the first event."""


class KVView:
    """The whole run or one window of a `KVSnapshot`."""

    __slots__ = ("_block", "_rate", "_true_width_ns", "_until_ns", "late", "panes", "sample_rate", "width_ns")

    def __init__(
        self,
        block: Mapping[str, Any],
        *,
        sample_rate: float | None,
        true_width_ns: int,
        until_ns: int | None = None,
        width_ns: int | None = None,
        late: int = 0,
        panes: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        self._block = block
        self._true_width_ns = true_width_ns
        self._until_ns = until_ns
        self._rate = 1.0 if sample_rate is None else sample_rate
        self.sample_rate = sample_rate
        """The share of all blocks that is followed; None where every block is."""
        self.width_ns = width_ns
        """The nominal width; None for the whole run."""
        self.late = late
        """Events that the window no longer had a place for; the total has them."""
        self.panes = tuple(Pane(*pane) for pane in panes)
        """The panes in which blocks were evicted or refilled, in order of time; of a window only."""

    @property
    def true_width(self) -> float:
        """The seconds really covered: of the whole run, those since the first event."""
        return self._true_width_ns / 1e9

    # Blocks

    @property
    def counts(self) -> dict[str, int]:
        """What was counted of the blocks that are followed, and how often the cache was cleared."""
        return {name: self._block[name] for name in (*BLOCK_COUNTS, "cleared")}

    @property
    def estimated(self) -> dict[str, float]:
        """The same of all blocks: in sampled mode the counts over the sampling rate, else the counts themselves."""
        return {name: self._block[name] / self._rate for name in BLOCK_COUNTS}

    @property
    def evicted(self) -> int:
        """Blocks whose last copy in their last tier went for want of space."""
        return int(self._block["evicted"])

    @property
    def refilled(self) -> int:
        """Blocks that were computed again while they were remembered as evicted."""
        return int(self._block["refilled"])

    @property
    def forgotten(self) -> int:
        """Evicted blocks that the tracker no longer remembers: whether they were computed again is not known."""
        return int(self._block["forgotten"])

    @property
    def onloaded(self) -> int:
        """Blocks brought to a tier from one further down: they had not to be computed again."""
        return int(self._block["onloaded"])

    @property
    def refill_rate(self) -> Interval:
        """The two ends between which the share of evicted blocks that were computed again lies.

        The lower counts the refilled, the higher the forgotten too. Over a window both may exceed 1.
        """
        return formulas.refill_rate_ends(self.refilled, self.evicted, self.forgotten)

    @property
    def confidence(self) -> Interval | None:
        """In sampled mode: the interval of 95 % around both ends of the refill rate. None in exact mode."""
        replicates = self._block["replicates"]
        if replicates is None:
            return None
        evicted, refilled, forgotten = zip(*replicates, strict=True)
        unseen = [known + unknown for known, unknown in zip(refilled, forgotten, strict=True)]
        return formulas.ratio_interval(refilled, unseen, evicted, self._rate, None if self.width_ns else 1.0)

    def _per_second(self, count: int) -> float | None:
        return formulas.ratio(count / self._rate, self.true_width)

    @property
    def eviction_rate(self) -> float | None:
        """Blocks evicted per second, in sampled mode scaled to all blocks; None where no time is covered."""
        return self._per_second(self.evicted)

    @property
    def refills_per_second(self) -> float | None:
        """Blocks refilled per second, in sampled mode scaled to all blocks; None where no time is covered."""
        return self._per_second(self.refilled)

    @property
    def spike(self) -> Spike | None:
        """The pane with the most evictions, the earliest of equals; None for the whole run and without an eviction."""
        if self.width_ns is None or self._until_ns is None or not self.evicted:
            return None
        pane_ns = self.width_ns // PANES
        worst = max(self.panes, key=lambda pane: (pane.evicted, -pane.start_ns), default=None)
        if worst is None or not worst.evicted:
            return None
        first = min((self._until_ns - self._true_width_ns) // pane_ns, self.panes[0].start_ns // pane_ns)
        covered = self._until_ns // pane_ns - first + 1
        return Spike(
            worst.start_ns,
            worst.evicted,
            worst.evicted / self._rate / (pane_ns / 1e9),
            worst.evicted * covered / sum(pane.evicted for pane in self.panes),
        )

    # Look-ups

    @property
    def lookups(self) -> dict[str, int]:
        """Look-ups at admission, once a request: how many (`n`), tokens asked for and tokens found."""
        return dict(self._block["lookups"])

    @property
    def relookups(self) -> dict[str, int]:
        """The same of look-ups after a preemption."""
        return dict(self._block["relookups"])

    @property
    def hit_rate(self) -> float | None:
        """Tokens found over tokens looked up at admission."""
        return formulas.ratio(self._block["lookups"]["hit"], self._block["lookups"]["queried"])

    @property
    def rehit_rate(self) -> float | None:
        """The same of look-ups after a preemption: what of a preempted request survived its wait."""
        return formulas.ratio(self._block["relookups"]["hit"], self._block["relookups"]["queried"])

    # Times

    @property
    def lifetime(self) -> SketchLike:
        """From the store of a block to its eviction."""
        return self._sketch("lifetime")

    @property
    def idle(self) -> SketchLike:
        """From the last use of a block to its eviction."""
        return self._sketch("idle")

    @property
    def gap(self) -> SketchLike:
        """From the eviction of a block to its refill."""
        return self._sketch("gap")

    def _sketch(self, name: str) -> SketchLike:
        sketch: SketchLike = self._block[name]
        return sketch

    def to_dict(self) -> dict[str, Any]:
        """All figures as one object that JSON can hold: finite numbers or None; times in seconds."""
        confidence, spike = self.confidence, self.spike
        return {
            "width": None if self.width_ns is None else self.width_ns / 1e9,
            "true_width": self.true_width,
            "late": self.late,
            "counts": self.counts,
            "estimated": self.estimated,
            "refill_rate": list(self.refill_rate),
            "confidence": None if confidence is None else list(confidence),
            "eviction_rate": self.eviction_rate,
            "refills_per_second": self.refills_per_second,
            "lookups": self.lookups,
            "relookups": self.relookups,
            "hit_rate": self.hit_rate,
            "rehit_rate": self.rehit_rate,
            **{name: latency_figures(self._block[name]) for name in SPANS},
            "panes": [pane._asdict() for pane in self.panes],
            "spike": None if spike is None else spike._asdict(),
        }

    def __repr__(self) -> str:
        return f"<tokenpulse.KVView of {self.true_width:.6g} s: {fate(self)}>"


def fate(view: KVView) -> str:
    """Evictions and refills in one line."""
    low, high = view.refill_rate
    share = "" if low is None or high is None else f" ({low:.4g} to {high:.4g})"
    return f"{view.evicted} evicted, {view.refilled} refilled{share}"


class KVSnapshot:
    """What a tracker held at one moment: `tracker.snapshot()`, or `meter.snapshot().kv`.

    `total` is everything since it began, `window("1m")` the last minute: both are a `KVView`. The shortcuts
    (`evicted`, `refill_rate`, ...) are those of the total. Blocks resident and remembered are as of now, also where an
    earlier moment was asked for.
    """

    __slots__ = ("_raw", "_reading", "_total", "_windows")

    def __init__(self, raw: RawKV, reading: dict[str, Any] | None = None) -> None:
        if reading is None:
            reading = raw.kv()
        if reading is None:
            raise ValueError("the snapshot must be one of a KV tracker, got one without")
        self._raw = raw
        self._reading = reading
        first, now = reading["first_event_ns"], reading["t_ns"]
        self._total = KVView(
            reading["total"],
            sample_rate=self.sample_rate,
            true_width_ns=0 if first is None or now is None else max(0, now - first),
        )
        self._windows = {
            duration_text(window["width_ns"]): KVView(
                window["block"],
                sample_rate=self.sample_rate,
                width_ns=window["width_ns"],
                true_width_ns=window["true_width_ns"],
                until_ns=now,
                late=window["late"],
                panes=window["panes"],
            )
            for window in reading["windows"]
        }

    @property
    def t_ns(self) -> int | None:
        """The moment, on the tracker's clock: the one asked for, or its newest; None for an unused tracker."""
        t_ns: int | None = self._reading["t_ns"]
        return t_ns

    @property
    def settings(self) -> dict[str, Any]:
        """remember, ttl_ns, report, mode, rate (1.0 in exact mode) and max_blocks of the tracker."""
        return dict(self._reading["settings"])

    @property
    def sample_rate(self) -> float | None:
        """The share of all blocks that is followed; None in exact mode."""
        settings = self._reading["settings"]
        return float(settings["rate"]) if settings["mode"] == "sampled" else None

    @property
    def total(self) -> KVView:
        """Everything since the tracker began."""
        return self._total

    @property
    def windows(self) -> dict[str, KVView]:
        """The sliding windows by width, narrowest first: `{"15s": KVView, "1m": KVView, ...}`."""
        return dict(self._windows)

    def window(self, width: str | float) -> KVView:
        """The sliding window of a width, as text or in seconds. ValueError for a width that is not kept."""
        wanted = duration_ns(width)
        for view in self._windows.values():
            if view.width_ns == wanted:
                return view
        kept = ", ".join(self._windows) or "none"
        raise ValueError(f"window must be one that the tracker keeps ({kept}), got {width!r}")

    @property
    def resident(self) -> dict[str, int]:
        """Blocks that have a copy in each tier, now."""
        return dict(self._reading["resident"])

    @property
    def blocks(self) -> int:
        """Blocks that are resident in any tier, now."""
        return int(self._reading["blocks"])

    @property
    def remembered(self) -> int:
        """Evicted blocks that are remembered, now."""
        return int(self._reading["remembered"])

    @property
    def rejected(self) -> dict[str, int]:
        """Events that were refused, by reason; they changed nothing."""
        return dict(self._reading["rejected"])

    @property
    def clamped(self) -> int:
        """Evictions and refills that came with a time before what they followed."""
        return int(self._reading["clamped"])

    # The total's

    @property
    def evicted(self) -> int:
        """Blocks evicted since the tracker began."""
        return self._total.evicted

    @property
    def refilled(self) -> int:
        """Blocks computed again after their eviction."""
        return self._total.refilled

    @property
    def forgotten(self) -> int:
        """Evicted blocks no longer remembered."""
        return self._total.forgotten

    @property
    def onloaded(self) -> int:
        """Blocks brought up from a lower tier."""
        return self._total.onloaded

    @property
    def refill_rate(self) -> Interval:
        """The two ends between which the refill rate lies."""
        return self._total.refill_rate

    @property
    def confidence(self) -> Interval | None:
        """In sampled mode: the interval of 95 % around both."""
        return self._total.confidence

    @property
    def hit_rate(self) -> float | None:
        """Tokens found over tokens looked up."""
        return self._total.hit_rate

    @property
    def lifetime(self) -> SketchLike:
        """From the store of a block to its eviction."""
        return self._total.lifetime

    @property
    def idle(self) -> SketchLike:
        """From the last use of a block to its eviction."""
        return self._total.idle

    @property
    def gap(self) -> SketchLike:
        """From the eviction of a block to its refill."""
        return self._total.gap

    def reading(self) -> dict[str, Any]:
        """All counts and sketches as plain dicts, before any ratio is formed."""
        return dict(self._reading)

    def to_dict(self) -> dict[str, Any]:
        """All figures as one object that JSON can hold: finite numbers or None; times in seconds."""
        return {
            "schema": SCHEMA,
            "t_ns": self.t_ns,
            "first_event_ns": self._reading["first_event_ns"],
            "settings": self.settings,
            "resident": self.resident,
            "blocks": self.blocks,
            "remembered": self.remembered,
            "rejected": self.rejected,
            "clamped": self.clamped,
            "total": self._total.to_dict(),
            "windows": {name: view.to_dict() for name, view in self._windows.items()},
        }

    def to_bytes(self) -> bytes:
        """The snapshot as bytes, for `from_bytes` anywhere; equal snapshots give equal bytes."""
        return self._raw.to_bytes()

    @classmethod
    def from_bytes(cls, encoded: bytes) -> KVSnapshot:
        """The snapshot that `to_bytes` wrote. DecodeError for anything else."""
        raw: RawKV = engine.RawSnapshot.from_bytes(encoded)
        reading = raw.kv()
        if reading is None:
            raise engine.DecodeError("the bytes hold a snapshot without a KV tracker's figures")
        return cls(raw, reading)

    @classmethod
    def merge(cls, snapshots: Iterable[KVSnapshot]) -> KVSnapshot:
        """Several snapshots, each of a cache of its own, added up.

        Counts, sketches and blocks add up exactly. A window is as wide as the widest. `report`, `mode` and `rate`,
        windows and scale must be the same, else ValueError, as where there is none; `remember`, `ttl_ns` and
        `max_blocks` may differ: the first one's are shown.
        """
        raws = [snapshot._raw for snapshot in snapshots]
        if not raws:
            raise ValueError("there must be at least one snapshot to merge")
        return cls(reduce(lambda merged, raw: merged.merge(raw), raws))

    def __add__(self, other: object) -> KVSnapshot:
        return KVSnapshot.merge([self, other]) if isinstance(other, KVSnapshot) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return self._reading == other._reading if isinstance(other, KVSnapshot) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return (KVSnapshot.from_bytes, (self.to_bytes(),))

    def __repr__(self) -> str:
        moment = "unused" if self.t_ns is None else f"t={self.t_ns / 1e9:.3f} s"
        windows = ", ".join(self._windows) or "no windows"
        return f"<tokenpulse.KVSnapshot {moment}: {fate(self._total)}, {windows}>"
