"""The KV-cache tracker: events of blocks, one call each, to evictions, refills and what lies between them.

A block is a group and a 64-bit hash. It is resident in tiers, may have several copies in each, and is evicted when the
last copy in the last tier goes. Evicted blocks are remembered in the order of their evictions, so many and so long;
one that is computed again while it is remembered is refilled, one that falls out of the memory is forgotten.

Bad events are refused and counted, never raised for; a refused event changes nothing else. A snapshot is pure.
"""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tokenpulse.reference.buckets import check_scale
from tokenpulse.reference.clock import MINUTE_NS, WINDOWS_NS, Clock, check_time
from tokenpulse.reference.scopes import Panes
from tokenpulse.reference.sketch import Sketch

TIERS = ("gpu", "cpu", "disk", "remote")
"""Where blocks are kept, the top first. Only in the top tier a block is computed."""

TOP = TIERS[0]
REPORTS = ("copies", "full")
MODES = ("exact", "sampled")
REASONS = ("negative", "future", "tier", "invalid", "full", "unknown")

COUNTS = (
    "stored",
    "repeated",
    "evicted",
    "released",
    "refilled",
    "forgotten",
    "onloaded",
    "offloaded",
    "touched",
    "cleared",
)
LOOKUPS = ("lookups", "relookups")
SPANS = ("lifetime", "idle", "gap")
FATES = ("evicted", "refilled", "forgotten")
"""What is also counted of each part of a sample."""

MAX_ENTRIES = 2**26 - 1
MAX_GROUP = 4095
MAX_COPIES = 8191
MAX_TOKENS = 2**40
REPLICATES = 32

WORD = 2**64

Hashes = int | Iterable[int]


class Block(NamedTuple):
    """What is stored and evicted; `hash` is within 64 bits."""

    group: int
    hash: int


@dataclass
class Residence:
    """A resident block: when it became so, when it was last used, and its copies in each tier that has any."""

    stored_ns: int
    used_ns: int
    copies: dict[str, int]


class Figures:
    """All that is counted over the whole run, or in one pane."""

    def __init__(self, scale: int, is_sampled: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.lookups = {name: [0, 0, 0] for name in LOOKUPS}  # how many, tokens queried, tokens hit
        self.spans = {name: Sketch(scale) for name in SPANS}
        self.replicates = [Counter[str]() for _ in range(REPLICATES)] if is_sampled else None

    def merge(self, other: Figures) -> None:
        self.counts.update(other.counts)
        for name in LOOKUPS:
            self.lookups[name] = [a + b for a, b in zip(self.lookups[name], other.lookups[name], strict=True)]
        for name in SPANS:
            self.spans[name].merge(other.spans[name])
        for mine, theirs in zip(self.replicates or (), other.replicates or (), strict=True):
            mine.update(theirs)

    def as_dict(self) -> dict[str, Any]:
        lookups = {name: dict(zip(("n", "queried", "hit"), self.lookups[name], strict=True)) for name in LOOKUPS}
        parts = self.replicates
        return {
            **{name: self.counts[name] for name in COUNTS},
            **lookups,
            **self.spans,
            "replicates": None if parts is None else [[part[fate] for fate in FATES] for part in parts],
        }


class KVTracker:
    """Counts what a cache tells it. All arguments but the times are as in `tokenpulse.KVTracker`.

    >>> cache = KVTracker(windows_ns=(60_000,))
    >>> cache.store(1_000, [11, 12])
    >>> cache.evict(3_000, [11])
    >>> cache.store(7_000, [11])
    >>> total = cache.snapshot()["total"]
    >>> total["evicted"], total["refilled"], total["lifetime"].sum_ns, total["gap"].sum_ns
    (1, 1, 2000, 4000)
    """

    def __init__(
        self,
        remember: int = 1_000_000,
        ttl_ns: int = 30 * MINUTE_NS,
        report: str = "copies",
        mode: str = "exact",
        rate: float = 0.01,
        windows_ns: Sequence[int] | None = None,
        max_blocks: int = 1_000_000,
        scale: int = 6,
    ) -> None:
        for name, given, least in (("remember", remember, 0), ("max_blocks", max_blocks, 1)):
            if not least <= given <= MAX_ENTRIES:
                raise ValueError(f"{name} must be between {least} and {MAX_ENTRIES}, got {given}")
        if ttl_ns < 1:
            raise ValueError(f"ttl_ns must be at least 1, got {ttl_ns}")
        if report not in REPORTS:
            raise ValueError(f"report must be one of {', '.join(REPORTS)}, got {report!r}")
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        if mode == "sampled" and not 0 < rate <= 1:
            raise ValueError(f"rate must be above 0 and at most 1, got {rate}")
        self.remember = remember
        self.ttl_ns = ttl_ns
        self.report = report
        self.mode = mode
        self.rate = rate if mode == "sampled" else 1.0
        self.windows_ns = windows_ns
        self.max_blocks = max_blocks
        self._is_used = False
        self._is_bound = False
        self._begin(Clock(WINDOWS_NS if windows_ns is None else windows_ns), scale)
        self._resident: dict[Block, Residence] = {}
        self._remembered: OrderedDict[Block, int] = OrderedDict()  # and when each was evicted
        self._newest_ns = 0  # of this tracker's own accepted events
        self._rejected: Counter[str] = Counter()
        self._clamped = 0

    def bind(self, clock: Clock, scale: int) -> None:
        """From now on its calls are events of a meter: windows, newest time and the sketches' scale are the meter's."""
        if self._is_used or self._is_bound:
            raise ValueError("a tracker must be unused and of no other meter, got one that is not")
        if self.windows_ns is not None and tuple(self.windows_ns) != clock.windows_ns:
            raise ValueError(f"windows must be those of the meter, {clock.windows_ns}, got {self.windows_ns}")
        self._is_bound = True
        self._begin(clock, scale)

    def _begin(self, clock: Clock, scale: int) -> None:
        self.scale = check_scale(scale)
        self._clock = clock
        self._total = self._figures()
        self._windows: list[Panes[Figures]] = clock.windows(self._figures)

    def _figures(self) -> Figures:
        return Figures(self.scale, self.mode == "sampled")

    # Calls

    def store(self, t: int, hashes: Hashes, tier: str = TOP, group: int = 0) -> None:
        """Blocks were stored in a tier."""
        self._each("store", t, hashes, tier, group)

    def evict(self, t: int, hashes: Hashes, tier: str = TOP, group: int = 0) -> None:
        """Blocks, or copies of them, left a tier for want of space."""
        self._each("evict", t, hashes, tier, group)

    def touch(self, t: int, hashes: Hashes, group: int = 0) -> None:
        """Resident blocks were used."""
        self._each("touch", t, hashes, TOP, group)

    def lookup(self, t: int, queried_tokens: int, hit_tokens: int, preempted: bool = False) -> None:
        """A request looked for its prompt: at its admission, or again after a preemption."""
        if not self._admits(t, 1):
            return
        if not 0 <= hit_tokens <= queried_tokens <= MAX_TOKENS:
            self._rejected["invalid"] += 1
            return
        for figures in self._accept(t):
            sums = figures.lookups["relookups" if preempted else "lookups"]
            for place, n in enumerate((1, queried_tokens, hit_tokens)):
                sums[place] += n
        self._clock.event(t)

    def clear(self, t: int) -> None:
        """The cache was emptied. That is no eviction, and what is remembered stays so."""
        if not self._admits(t, 1):
            return
        for figures in self._accept(t):
            figures.counts["cleared"] += 1
        self._resident.clear()
        self._clock.event(t)

    def _each(self, kind: str, t_ns: int, hashes: Hashes, tier: str, group: int) -> None:
        """Takes an event of each block, in order."""
        words = [as_word(word) for word in (hashes if isinstance(hashes, Iterable) else [hashes])]
        if not self._admits(t_ns, len(words)):
            return
        if tier not in TIERS:
            self._rejected["tier"] += len(words)
            return
        if not 0 <= group <= MAX_GROUP:
            self._rejected["invalid"] += len(words)
            return
        refused, take = {
            "store": (self._cannot_store, self._store),
            "evict": (self._cannot_evict, self._evict),
            "touch": (self._cannot_touch, self._touch),
        }[kind]
        accepted = 0
        scopes: list[Figures] = []
        for word in words:
            block, follows = Block(group, word), self._follows(word)
            reason = refused(block, tier) if follows else None
            if reason is not None:
                self._rejected[reason] += 1
                continue
            if not accepted:
                scopes = self._accept(t_ns)
            accepted += 1
            if follows:
                take(Event(t_ns, block, tier, scopes))
        if accepted:
            self._clock.event(t_ns, accepted)

    def _admits(self, t_ns: int, events: int) -> bool:
        """Whether a call at this time is looked at further. If not, its events are refused."""
        is_negative = operator.index(t_ns) < 0
        if not is_negative:
            check_time(t_ns)
        self._is_used = True
        if is_negative:
            self._rejected["negative"] += events
            return False
        if not self._clock.admits(t_ns):
            self._rejected["future"] += events
            return False
        return True

    def _accept(self, t_ns: int) -> list[Figures]:
        """The first event of a call is about to be taken: what is too old by now is forgotten before it.

        Returns where what happens at this time is counted: the total, and the panes that are still there.
        """
        self._clock.accept(t_ns)
        self._newest_ns = max(self._newest_ns, t_ns)
        panes = [window.pane(t_ns) for window in self._windows]
        scopes = [self._total, *(pane for pane in panes if pane is not None)]
        while self._remembered:
            oldest, evicted_ns = next(iter(self._remembered.items()))
            if self._newest_ns - evicted_ns <= self.ttl_ns:
                break
            del self._remembered[oldest]
            self._count_fate(scopes, "forgotten", oldest)
        return scopes

    def _follows(self, word: int) -> bool:
        """Whether a block with this hash is followed; the events of others are taken, and nothing comes of them."""
        return self.mode == "exact" or splitmix64(word) < int(self.rate * WORD)

    # What an event does to a block

    def _cannot_store(self, block: Block, tier: str) -> str | None:
        residence = self._resident.get(block)
        if residence is None:
            return "full" if len(self._resident) >= self.max_blocks else None
        return "full" if self.report == "copies" and residence.copies.get(tier, 0) == MAX_COPIES else None

    def _store(self, event: Event) -> None:
        block, tier, t_ns = event.block, event.tier, event.t_ns
        residence = self._resident.get(block)
        if residence is None:
            self._resident[block] = Residence(t_ns, t_ns, {tier: 1})
            if tier == TOP:
                self._compute(event)
            else:
                event.count("offloaded")
            return
        if tier in residence.copies:
            event.count("repeated")
            if self.report == "copies":
                residence.copies[tier] += 1
        else:
            below = TIERS[TIERS.index(tier) + 1 :]
            event.count("onloaded" if any(other in residence.copies for other in below) else "offloaded")
            residence.copies[tier] = 1
        residence.used_ns = max(residence.used_ns, t_ns)

    def _compute(self, event: Event) -> None:
        """A block that was nowhere is in the top tier: it was computed, and if it is remembered, computed again."""
        event.count("stored")
        if event.block in self._remembered:
            evicted_ns = self._remembered.pop(event.block)
            self._count_fate(event.scopes, "refilled", event.block)
            self._clamped += event.t_ns < evicted_ns
            event.observe("gap", max(0, event.t_ns - evicted_ns))

    def _cannot_evict(self, block: Block, tier: str) -> str | None:
        residence = self._resident.get(block)
        return None if residence is not None and tier in residence.copies else "unknown"

    def _evict(self, event: Event) -> None:
        block, tier = event.block, event.tier
        residence = self._resident[block]
        residence.copies[tier] -= 1
        if self.report == "full" or residence.copies[tier] == 0:
            del residence.copies[tier]
        if residence.copies:
            event.count("released")
            return
        del self._resident[block]
        evicted_ns = max(event.t_ns, residence.used_ns)
        self._clamped += event.t_ns < residence.used_ns
        self._count_fate(event.scopes, "evicted", block)
        event.observe("lifetime", evicted_ns - residence.stored_ns)
        event.observe("idle", evicted_ns - residence.used_ns)
        # It may be remembered already: offloaded after an eviction, without being computed. That memory is replaced.
        self._remembered.pop(block, None)
        self._remembered[block] = evicted_ns
        if len(self._remembered) > self.remember:
            oldest, _ = self._remembered.popitem(last=False)
            self._count_fate(event.scopes, "forgotten", oldest)

    def _cannot_touch(self, block: Block, _: str) -> str | None:
        return None if block in self._resident else "unknown"

    def _touch(self, event: Event) -> None:
        event.count("touched")
        residence = self._resident[event.block]
        residence.used_ns = max(residence.used_ns, event.t_ns)

    def _count_fate(self, scopes: Iterable[Figures], fate: str, block: Block) -> None:
        for figures in scopes:
            figures.counts[fate] += 1
            if figures.replicates is not None:
                figures.replicates[splitmix64(block.hash) % REPLICATES][fate] += 1

    # Reading

    def snapshot(self, t: int | None = None) -> dict[str, Any]:
        """Everything counted, as it stands at a time, by default the newest; what is resident, as of now."""
        now_ns = self._clock.newest_ns if t is None else check_time(t)
        return {
            "settings": {
                "remember": self.remember,
                "ttl_ns": self.ttl_ns,
                "report": self.report,
                "mode": self.mode,
                "rate": self.rate,
                "max_blocks": self.max_blocks,
            },
            "t_ns": now_ns,
            "newest_ns": self._clock.newest_ns,
            "first_event_ns": self._clock.first_event_ns,
            "resident": {tier: sum(tier in each.copies for each in self._resident.values()) for tier in TIERS},
            "blocks": len(self._resident),
            "remembered": len(self._remembered),
            "rejected": {reason: self._rejected[reason] for reason in REASONS if self._rejected[reason]},
            "clamped": self._clamped,
            "total": self._read(self._total),
            "windows": [
                {**reading, "block": window.read(now_ns).as_dict(), "panes": panes_of(window, now_ns)}
                for reading, window in zip(self._clock.reading(self._windows, now_ns), self._windows, strict=True)
            ],
        }

    def _read(self, figures: Figures) -> dict[str, Any]:
        copy = self._figures()
        copy.merge(figures)
        return copy.as_dict()


@dataclass(frozen=True, slots=True)
class Event:
    """One block of a call that is being taken, and where what it comes to is counted."""

    t_ns: int
    block: Block
    tier: str
    scopes: Sequence[Figures]

    def count(self, name: str) -> None:
        for figures in self.scopes:
            figures.counts[name] += 1

    def observe(self, span: str, ns: int) -> None:
        for figures in self.scopes:
            figures.spans[span].record_ns(ns)


def panes_of(window: Panes[Figures], now_ns: int | None) -> list[list[int]]:
    """The start of each pane in which blocks were evicted or refilled, and how many of each."""
    counted = [(start_ns, pane.counts["evicted"], pane.counts["refilled"]) for start_ns, pane in window.panes(now_ns)]
    return [[start_ns, evicted, refilled] for start_ns, evicted, refilled in counted if evicted or refilled]


def as_word(number: int) -> int:
    """A hash within 64 bits; a negative one is its two's complement.

    >>> as_word(-1) == 2**64 - 1
    True
    """
    if not -(WORD // 2) <= operator.index(number) < WORD:
        raise ValueError(f"a hash must be between -2^63 and 2^64 - 1, got {number}")
    return number % WORD


def splitmix64(word: int) -> int:
    """A bijection of 64 bits that leaves no pattern of its argument (Steele, Lea and Flood, OOPSLA 2014).

    >>> hex(splitmix64(0))
    '0xe220a8397b1dcdaf'
    """
    word = (word + 0x9E37_79B9_7F4A_7C15) % WORD
    word = (word ^ word >> 30) * 0xBF58_476D_1CE4_E5B9 % WORD
    word = (word ^ word >> 27) * 0x94D0_49BB_1331_11EB % WORD
    return word ^ word >> 31
