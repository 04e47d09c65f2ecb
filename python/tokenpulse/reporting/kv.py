"""`KVReport` and `Curve`: what logs and traces of a KV cache say, as named figures.

Every figure is finite or None (absent, never 0 in its place). Times are in seconds unless a name says `_ns`. Counts
are exact; in sampled mode they are those of the sample.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenpulse import formulas
from tokenpulse.model import SketchLike
from tokenpulse.reporting.report import latency_figures

SCHEMA = "tokenpulse.kv/1"

SPANS = ("gap", "lifetime", "idle")
"""What is measured of evicted blocks, in the order in which reports list it."""

LIMITS = {"0.05": 0.05, "0.15": 0.15}
"""The refill rates that are asked to be stayed under, by their names in a curve."""

GRID = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""The sizes of a curve's points within a power of ten: about evenly spread on a logarithmic axis."""

LEAST = 10
"""The smallest size on the grid."""

Figures = dict[str, Any]

_NOT_KEYS = frozenset({"notices", "sketches"})


def grid(distinct: int) -> list[int]:
    """The sizes at which a curve over so many distinct blocks is given.

    >>> grid(33)
    [10, 12, 15, 20, 25, 30, 33]
    """
    sizes = []
    decade = LEAST
    while decade <= distinct:
        sizes += [size for size in (round(step * decade) for step in GRID) if size < distinct]
        decade *= 10
    return [*sizes, distinct] if distinct else []


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Curve:
    """Hits and refills of a trace through an LRU cache of every size.

    `points` are in order of size: `blocks`, `tokens` (blocks times tokens of a block), `hits`, `hit_rate`, `evicted`,
    `refilled`, `refill_rate`; those of `sizes` were asked for. `knee` is the point beyond which a further block brings
    less than the average one; `refill_under["0.05"]` that from which on the refill rate stays under 5 %. Both are
    looked for among all sizes. In sampled mode the counts are estimates, and no whole numbers; if not one block was in
    the sample, there is no estimate: `distinct`, the figures of the points, knee and limits are None.
    """

    mode: str
    rate: float
    seed: int
    sizes: list[int]
    references: int
    distinct: int | None
    sampled_references: int
    sampled_distinct: int
    block_tokens: int
    points: list[Figures]
    knee: Figures | None
    refill_under: dict[str, Figures | None]

    @classmethod
    def of(
        cls,
        raw: Mapping[str, Any],
        sizes: Sequence[int],
        asked: Sequence[int] = (),
        *,
        rate: float | None,
        seed: int,
        block_tokens: int,
    ) -> Curve:
        """The curve of what the engine found at these sizes, some of which were asked for."""
        references = raw["references"]
        empty = rate is not None and not raw["sampled_distinct"]
        counts = zip(raw["hits"].tolist(), raw["evicted"].tolist(), raw["refilled"].tolist(), strict=True)

        def point(size: int, hits: float, evicted: float, refilled: float) -> Figures:
            sized = {"blocks": size, "tokens": size * block_tokens}
            if empty:
                return sized | dict.fromkeys(("hits", "hit_rate", "evicted", "refilled", "refill_rate"))
            return {
                **sized,
                "hits": hits,
                "hit_rate": formulas.ratio(hits, references),
                "evicted": evicted,
                "refilled": refilled,
                "refill_rate": formulas.ratio(refilled, evicted),
            }

        def mark(found: Mapping[str, Any] | None) -> Figures | None:
            if found is None or empty:
                return None
            return point(found["blocks"], found["hits"], found["evicted"], found["refilled"])

        return cls(
            mode="exact" if rate is None else "sampled",
            rate=1.0 if rate is None else rate,
            seed=seed,
            sizes=list(asked),
            references=references,
            distinct=None if empty else raw["distinct"],
            sampled_references=raw["sampled_references"],
            sampled_distinct=raw["sampled_distinct"],
            block_tokens=block_tokens,
            points=[point(size, *count) for size, count in zip(sizes, counts, strict=True)],
            knee=mark(raw["knee"]),
            refill_under={name: mark(raw["refill_under"][name]) for name in LIMITS},
        )

    @property
    def is_empty(self) -> bool:
        """Whether not one block was in the sample, so that nothing is known."""
        return self.mode == "sampled" and not self.sampled_distinct

    def to_dict(self) -> Figures:
        """The curve as the JSON object that `tokenpulse kv --curve --json` prints under `curve`."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def plot(self, path: str | os.PathLike[str], blocks: int | None = None) -> None:
        """Draw the curve into a file that ends in .svg or .png; equal curves give equal SVG.

        The knee and the sizes of `refill_under` are named in it, and the point of so many `blocks`, if it has one.

        Needs Matplotlib: ModuleNotFoundError, which names the extra `plot`, where that is not installed. ValueError
        for another ending, for a trace without blocks and for a sample without one.
        """
        from tokenpulse.reporting.kv_plot import draw

        draw(self, path, blocks)

    def __repr__(self) -> str:
        how = "exact" if self.mode == "exact" else f"sampled at {self.rate:g}"
        blocks = "unknown" if self.distinct is None else self.distinct
        return f"<tokenpulse.kv.Curve, {how}: {self.references} references, {blocks} blocks>"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class KVReport:
    """The figures of one KV report, named as the keys of its JSON, and the sketches behind them.

    `kind` is `events` where a cache told what befell its blocks, `trace` where the blocks that requests asked for were
    put through a cache of so many blocks. `unit` is what `lookups` and `hits` count. `sketches` has gap, lifetime and
    idle; `notices` name the first lines and events of each input that could not be used.
    """

    schema: str = SCHEMA
    kind: str
    unit: str
    requests: int | None
    lookups: int | None
    hits: int | None
    hit_rate: float | None
    evicted: int
    refilled: int
    forgotten: int
    refill_rate: list[float | None]
    confidence: list[float | None] | None
    evicted_per_second: float | None
    gap: Figures | None
    lifetime: Figures | None
    idle: Figures | None
    stored: int
    repeated: int
    released: int
    onloaded: int
    offloaded: int
    cleared: int
    relookups: Figures | None
    tokens: Figures | None
    rejected: dict[str, int]
    clamped: int | None
    loss: Figures | None
    streams: int | None
    span_seconds: float | None
    resident: dict[str, int]
    blocks: int
    remembered: int
    settings: Figures
    inputs: list[Figures]
    curve: Curve | None = None
    notices: list[Figures] = field(default_factory=list)
    sketches: dict[str, SketchLike]

    @classmethod
    def of_events(cls, raw: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> KVReport:
        """The report of what caches told."""
        block = raw["totals"]
        lookups, relookups = block["lookups"], block["relookups"]
        told = bool(lookups["n"] or relookups["n"])  # an engine's KV events alone do not tell of look-ups
        settings = dict(raw["settings"])
        confidence = None
        if block["replicates"] is not None:
            evicted, refilled, forgotten = zip(*block["replicates"], strict=True)
            unseen = [known + unknown for known, unknown in zip(refilled, forgotten, strict=True)]
            confidence = formulas.ratio_interval(refilled, unseen, evicted, settings["rate"], 1.0)
        span = _span_seconds(raw["first_event_ns"], raw["newest_ns"])
        return cls(
            kind="events",
            unit="tokens",
            requests=lookups["n"] if told else None,
            lookups=lookups["queried"] if told else None,
            hits=lookups["hit"] if told else None,
            hit_rate=formulas.ratio(lookups["hit"], lookups["queried"]),
            **_fates(block),
            confidence=None if confidence is None else list(confidence),
            evicted_per_second=_per_second(block["evicted"] / settings["rate"], span),
            relookups=_relookups(relookups) if told else None,
            tokens=None,
            rejected=_ordered(raw["rejected"]),
            clamped=raw["clamped"],
            loss=dict(raw["loss"]),
            streams=raw["streams"],
            span_seconds=span,
            resident=dict(raw["resident"]),
            blocks=raw["blocks"],
            remembered=raw["remembered"],
            settings=settings,
            **_inputs(inputs),
        )

    @classmethod
    def of_trace(
        cls,
        replay: Mapping[str, Any],
        trace: Mapping[str, Any],
        settings: Mapping[str, Any],
        inputs: Sequence[Mapping[str, Any]],
        curve: Curve | None = None,
    ) -> KVReport:
        """The report of a trace that went through a cache. `trace` has requests, first_ns and last_ns."""
        block = replay["totals"]
        span = _span_seconds(trace["first_ns"], trace["last_ns"])
        return cls(
            kind="trace",
            unit="blocks",
            requests=trace["requests"],
            lookups=replay["lookups"],
            hits=replay["hits"],
            hit_rate=formulas.ratio(replay["hits"], replay["lookups"]),
            **_fates(block),
            confidence=None,
            evicted_per_second=_per_second(block["evicted"], span),
            relookups=None,
            tokens={
                "queried": replay["queried_tokens"],
                "hit": replay["hit_tokens"],
                "hit_rate": formulas.ratio(replay["hit_tokens"], replay["queried_tokens"]),
            },
            rejected={},
            clamped=replay.get("clamped"),
            loss=None,
            streams=None,
            span_seconds=span,
            resident={"gpu": replay["blocks"], "cpu": 0, "disk": 0, "remote": 0},
            blocks=replay["blocks"],
            remembered=replay["remembered"],
            settings=dict(settings),
            curve=curve,
            **_inputs(inputs),
        )

    @property
    def unusable(self) -> int:
        """How many lines were skipped, events refused and batches lost on their way, over all inputs."""
        skipped = sum(sum(one["skipped"].values()) for one in self.inputs)
        return skipped + sum(self.rejected.values()) + (self.loss["batches"] if self.loss else 0)

    def to_dict(self) -> Figures:
        """The report as the JSON object that `tokenpulse kv --json` prints."""
        figures = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _NOT_KEYS}
        return figures | {"curve": None if self.curve is None else self.curve.to_dict()}

    def __repr__(self) -> str:
        low, high = self.refill_rate
        share = "" if low is None else f" ({low:.4g} to {high:.4g})"
        return f"<tokenpulse.KVReport of {self.kind}: {self.evicted} evicted, {self.refilled} refilled{share}>"


def _fates(block: Mapping[str, Any]) -> Figures:
    """What became of blocks."""
    counts = ("evicted", "refilled", "forgotten", "stored", "repeated", "released", "onloaded", "offloaded", "cleared")
    return {
        **{name: block[name] for name in counts},
        "refill_rate": list(formulas.refill_rate_ends(block["refilled"], block["evicted"], block["forgotten"])),
        **{name: latency_figures(block[name]) for name in SPANS},
        "sketches": {name: block[name] for name in SPANS},
    }


def _relookups(counts: Mapping[str, int]) -> Figures:
    return {**counts, "hit_rate": formulas.ratio(counts["hit"], counts["queried"])}


def _inputs(inputs: Sequence[Mapping[str, Any]]) -> Figures:
    """The inputs' figures, and their notices apart."""
    return {
        "inputs": [
            {
                **{name: one[name] for name in one if name != "notices"},
                "skipped": _ordered(one["skipped"]),
            }
            for one in inputs
        ],
        "notices": [{"path": one["path"], **notice} for one in inputs for notice in one["notices"]],
    }


def _span_seconds(first_ns: int | None, last_ns: int | None) -> float | None:
    return None if first_ns is None or last_ns is None or last_ns <= first_ns else (last_ns - first_ns) / 1e9


def _per_second(amount: float, seconds: float | None) -> float | None:
    return None if seconds is None else formulas.ratio(amount, seconds)


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    return {reason: counts[reason] for reason in sorted(counts)}
