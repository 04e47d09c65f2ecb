"""The rows of the diagnosis table as plain statements about the figures of a baseline and of a current stretch.

A row is a list of comparisons that must all hold, and lists of which one must hold whole. Shares and weights are exact
fractions, so that no rounding decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from tokenpulse.reference.buckets import edge
from tokenpulse.reference.sketch import Sketch
from tokenpulse.reference.trend import mann_kendall, theil_sen

FEWEST = 100
"""Observations on either side, in all strata that both have."""

FEWEST_IN_STRATUM = 10
FEWEST_IN_PANE = 100
FEWEST_PANES = 10

ZERO, OVERFLOW = -(2**62), 2**62
"""The zero bucket lies below all others, the overflow bucket above."""

Strata = Mapping[str, Sketch]
"""One latency by prompt length."""


@dataclass(frozen=True, slots=True)
class Second:
    """What a second of a stretch came to; None where it was never reported."""

    itls: int = 0
    itl_p99: float | None = None
    evicted: float | None = None
    comm: float | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """The figures of one stretch; what was never reported is None."""

    ttft: Strata
    tpot: Strata
    batch_utilization: float | None = None
    kv_utilization: float | None = None
    waiting: float | None = None
    tokens_per_second: float | None = None
    decode_share: float | None = None
    hit_rate: float | None = None
    refill_rate: float | None = None
    dequant_share: float | None = None
    gpu_utilization: float | None = None
    intensity: float | None = None
    batch_max: float | None = None
    arrivals_per_end: float | None = None
    seconds: Sequence[Second] | None = None
    depths: Sequence[float] = ()
    """Waiting requests in each of the last seconds, on average; how many came and ended in them."""
    arrived: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """What the rows ask of the machine and the SLO: both may be unknown."""

    ridge: float | None = None
    """FLOPs per byte at which the roofline bends: peak over bandwidth."""
    tpot_limit: float | None = None
    tpot_p50: float | None = None
    """Of all requests of the current stretch, whatever their length; None for fewer than 100."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure and what it is held against: `over`, `at least`, `under` or `at most` it."""

    figure: float
    how: str
    threshold: float

    @property
    def holds(self) -> bool:
        if self.how == "at least":
            return self.figure >= self.threshold
        if self.how == "at most":
            return self.figure <= self.threshold
        return self.figure > self.threshold if self.how == "over" else self.figure < self.threshold

    @property
    def ratio(self) -> float:
        """How far it is past the threshold: 1 is just there. Infinite for something against nothing."""
        above, below = (
            (self.threshold, self.figure) if self.how in ("under", "at most") else (self.figure, self.threshold)
        )
        if below == 0:
            return math.inf if above > 0 else 1.0
        return above / below


def over(figure: float, *thresholds: float) -> list[Comparison]:
    return [Comparison(figure, "over", threshold) for threshold in thresholds]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a row holds, and its strength: the smallest ratio of a figure to its threshold."""

    holds: bool
    strength: float


def verdict(must: Sequence[Comparison], either: Sequence[Sequence[Comparison]] = ()) -> Verdict:
    """All that must hold does, and of the others, if there are any, one list does whole. The clearest one counts.

    >>> verdict(over(3.0, 2.0), [over(1.0, 2.0), over(5.0, 4.0)])
    Verdict(holds=True, strength=1.25)
    """
    ways = [(all(one.holds for one in way), min(one.ratio for one in way)) for way in either] or [(True, math.inf)]
    held, clearest = max(ways)
    return Verdict(all(one.holds for one in must) and held, min([clearest, *(one.ratio for one in must)]))


# One latency, compared within strata


@dataclass(frozen=True, slots=True)
class Mix:
    """Buckets of several strata together."""

    shares: Mapping[int, Fraction]
    """By bucket, ascending: the share of the whole at or below it."""
    whole: Sketch
    """All their values, each once."""

    def at_or_below(self, index: int) -> Fraction:
        below = [share for one, share in self.shares.items() if one <= index]
        return below[-1] if below else Fraction(0)

    def quantile(self, q: Fraction) -> float:
        """The estimate, in seconds, of the first bucket at or below which lies the share `q`."""
        index = next(index for index, share in self.shares.items() if share >= q)
        if index in (ZERO, OVERFLOW):
            estimate = 0.0 if index == ZERO else self.whole.max
        else:
            low, high = edge(index, self.whole.scale), edge(index + 1, self.whole.scale)
            estimate = 2 * low * high / (low + high)
        return min(max(estimate, self.whole.min), self.whole.max)


def counts_of(sketch: Sketch) -> dict[int, int]:
    """How many values each bucket has."""
    counts = dict(zip(*sketch.buckets(), strict=True)) | {ZERO: sketch.zero_count, OVERFLOW: sketch.overflow_count}
    return {index: count for index, count in counts.items() if count}


def mix(strata: Strata, weights: Mapping[str, Fraction]) -> Mix:
    """Strata together, each with its weight."""
    shares: dict[int, Fraction] = {}
    whole: Sketch | None = None
    for key, sketch in strata.items():
        whole = sketch if whole is None else whole + sketch
        for index, count in counts_of(sketch).items():
            shares[index] = shares.get(index, Fraction(0)) + weights[key] * Fraction(count, sketch.count)
    assert whole is not None
    return Mix(dict(zip(sorted(shares), accumulate(shares[index] for index in sorted(shares)), strict=True)), whole)


def rises(base: Strata, current: Strata) -> list[Comparison] | None:
    """What must hold for a latency to have risen; None where there is too little to tell.

    Only strata that both have are compared, the baseline's as if each had its share in the current stretch.
    """
    both = [key for key in base if key in current and min(base[key].count, current[key].count) >= FEWEST_IN_STRATUM]
    olds, news = ({key: side[key] for key in both} for side in (base, current))
    whole = sum(sketch.count for sketch in news.values())
    if min(whole, sum(sketch.count for sketch in olds.values())) < FEWEST:
        return None
    weights = {key: Fraction(news[key].count, whole) for key in both}
    before, after = mix(olds, weights), mix(news, weights)
    edges = {*before.shares, *after.shares}
    distance = max(abs(before.at_or_below(index) - after.at_or_below(index)) for index in edges)
    half, slow = Fraction(1, 2), Fraction(99, 100)
    return [
        *over(after.quantile(half), 1.2 * before.quantile(half)),
        *over(after.quantile(slow), 1.2 * before.quantile(slow)),
        *over(float(distance), 0.1),
    ]


# The rows. None: not judged, for want of what the row is about.


def tpot_batch(base: Side, current: Side, _: Machine) -> Verdict | None:
    """TPOT rises, and the batch or the KV cache is over 80 % full and over 1.1 times as full as before."""
    risen = rises(base.tpot, current.tpot)
    either = [
        over(new, 0.8, 1.1 * old)
        for old, new in (
            (base.batch_utilization, current.batch_utilization),
            (base.kv_utilization, current.kv_utilization),
        )
        if old is not None and new is not None
    ]
    return None if risen is None or not either else verdict(risen, either)


def ttft_queue(base: Side, current: Side, _: Machine) -> Verdict | None:
    """TTFT rises, and over 1 request waits on average, over twice as many as before."""
    risen = rises(base.ttft, current.ttft)
    if risen is None or base.waiting is None or current.waiting is None:
        return None
    return verdict([*risen, *over(current.waiting, 2 * base.waiting, 1)])


def ttft_decode_share(base: Side, current: Side, _: Machine) -> Verdict | None:
    """Throughput is at least 0.95 of the baseline's, TTFT rises, decode computes over 1.2 times the share it had."""
    risen = rises(base.ttft, current.ttft)
    if risen is None or base.decode_share is None or current.decode_share is None:
        return None
    if base.tokens_per_second is None or current.tokens_per_second is None:
        return None
    kept = Comparison(current.tokens_per_second, "at least", 0.95 * base.tokens_per_second)
    return verdict([kept, *risen, *over(current.decode_share, 1.2 * base.decode_share)])


def refill_thrash(base: Side, current: Side, _: Machine) -> Verdict | None:
    """The prefix cache hits as often, TPOT rises, and over 5 % of evicted blocks come back, over 1.5 times as many as
    before, or dequantisation takes over 1.5 times the share it had.
    """
    risen = rises(base.tpot, current.tpot)
    if risen is None or (base.hit_rate is None and current.hit_rate is None):
        return None
    either = []
    if base.refill_rate is not None and current.refill_rate is not None:
        either.append(over(current.refill_rate, 0.05, 1.5 * base.refill_rate))
    if base.dequant_share is not None and current.dequant_share is not None:
        either.append(over(current.dequant_share, 1.5 * base.dequant_share))
    hits = Comparison(current.hit_rate or 0.0, "at least", base.hit_rate or 0.0)
    return verdict([hits, *risen], either) if either else None


def p99_swings(base: Side, current: Side, _: Machine) -> Verdict | None:
    """The P99 of seconds varies by over 0.3 of its mean, over twice as much as before; and in the tenth of the seconds
    in which it is highest, evictions or communication are over three times their median.
    """
    if base.seconds is None or current.seconds is None:
        return None
    old, new = (
        [one for one in side.seconds or () if one.itls >= FEWEST_IN_PANE and one.itl_p99 is not None]
        for side in (base, current)
    )
    if min(len(old), len(new)) < FEWEST_PANES:
        return None
    worst = sorted(new, key=lambda one: one.itl_p99 or 0.0)[-math.ceil(len(new) / 10) :]
    either = []
    for name in ("evicted", "comm"):
        bursts, usual = ([getattr(one, name) for one in seconds] for seconds in (worst, new))
        if None not in usual:
            either.append(over(sum(bursts) / len(bursts), 3 * median(usual)))
    if not either:
        return None
    before, after = (variation([one.itl_p99 or 0.0 for one in seconds]) for seconds in (old, new))
    return verdict(over(after, 0.3, 2 * before), either)


def median(values: Sequence[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def variation(values: Sequence[float]) -> float:
    """The standard deviation (of all, not of a sample) over the mean; 0 where the mean is 0.

    >>> variation([1.0, 3.0])
    0.5
    """
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean if mean else 0.0


def memory_bound(base: Side, current: Side, machine: Machine) -> Verdict | None:
    """The GPU computes less than half of the time, the arithmetic intensity is under half of the ridge, and TPOT's P50
    is over the SLO's limit, or TPOT rises while the intensity does not.
    """
    if machine.ridge is None or current.gpu_utilization is None or current.intensity is None:
        return None
    risen = rises(base.tpot, current.tpot)
    either = []
    if risen is not None:
        same = [] if base.intensity is None else [Comparison(current.intensity, "at most", 1.1 * base.intensity)]
        either.append([*risen, *same])
    if machine.tpot_limit is not None and machine.tpot_p50 is not None:
        either.append(over(machine.tpot_p50, machine.tpot_limit))
    must = [
        Comparison(current.gpu_utilization, "under", 0.5),
        Comparison(current.intensity, "under", machine.ridge / 2),
    ]
    return verdict(must, either) if either else None


def queue_growth(_: Side, current: Side, __: Machine) -> Verdict | None:
    """The queue grows without pause, and over 1.05 requests arrive for each that ends."""
    if current.batch_max is None or current.arrivals_per_end is None or len(current.depths) < 10:
        return None
    z, slope = mann_kendall(current.depths), theil_sen(current.depths)
    assert z is not None
    assert slope is not None
    return verdict(
        [
            *over(z, 2.33),
            *over(slope * (len(current.depths) - 1), max(10, current.batch_max / 2)),
            *over(sum(current.depths) / len(current.depths), 2 * current.batch_max),
            *over(current.arrived, current.ended),
            *over(current.arrivals_per_end, 1.05),
        ]
    )


ROWS: Mapping[str, Callable[[Side, Side, Machine], Verdict | None]] = {
    "tpot-batch": tpot_batch,
    "ttft-queue": ttft_queue,
    "ttft-decode-share": ttft_decode_share,
    "refill-thrash": refill_thrash,
    "p99-swings": p99_swings,
    "memory-bound": memory_bound,
    "queue-growth": queue_growth,
}
"""In the table's order."""
