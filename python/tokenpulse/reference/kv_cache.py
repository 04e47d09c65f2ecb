"""A trace of block look-ups replayed through a cache of a given size and policy, and hits and refills over all sizes.

A request looks up all its blocks in order; each miss is stored at once, and a block for which there was no room then
makes the policy's victim go, which is never the new one. What an eviction and a refill is, the tracker alone says.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from tokenpulse.reference.buckets import RANGE
from tokenpulse.reference.clock import Clock
from tokenpulse.reference.kv import MAX_ENTRIES, WORD, KVTracker, as_word, splitmix64


class Request(NamedTuple):
    """When a request came, the blocks of its prompt, and how many tokens that has, if it is known."""

    t_ns: int
    blocks: Sequence[int]
    input_tokens: int | None = None


class Cache(Protocol):
    """The blocks of a cache and which of them goes. Blocks are asked for, then either `hit` or `store`d."""

    def __contains__(self, block: int) -> bool: ...
    def __len__(self) -> int: ...
    def hit(self, block: int) -> None: ...
    def store(self, block: int) -> int | None:
        """Stores a block that is not there. Returns the one that had to go, if the cache was full."""


class Ordered:
    """Blocks in the order in which they would go, the next one first."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self.blocks

    def __len__(self) -> int:
        return len(self.blocks)

    def store(self, block: int) -> int | None:
        victim = self.blocks.popitem(last=False)[0] if len(self.blocks) == self.room else None
        self.blocks[block] = None
        return victim


class Lru(Ordered):
    """The block goes that was not used for the longest time.

    >>> cache = Lru(2)
    >>> cache.store(1), cache.store(2), cache.hit(1), cache.store(3)
    (None, None, None, 2)
    """

    def hit(self, block: int) -> None:
        self.blocks.move_to_end(block)


class Fifo(Ordered):
    """The block goes that was stored first; hits change nothing.

    >>> cache = Fifo(2)
    >>> cache.store(1), cache.store(2), cache.hit(1), cache.store(3)
    (None, None, None, 1)
    """

    def hit(self, block: int) -> None:
        pass


class Lfu:
    """The block goes that was used least often since it was stored; of several, the one used least recently.

    >>> cache = Lfu(2)
    >>> cache.store(1), cache.store(2), cache.hit(1), cache.store(3), cache.store(4)
    (None, None, None, 2, 3)
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.uses: dict[int, tuple[int, int]] = {}  # how often, and when last
        self._now = 0

    def __contains__(self, block: int) -> bool:
        return block in self.uses

    def __len__(self) -> int:
        return len(self.uses)

    def _use(self, block: int, times: int) -> None:
        self._now += 1
        self.uses[block] = times, self._now

    def hit(self, block: int) -> None:
        self._use(block, self.uses[block][0] + 1)

    def store(self, block: int) -> int | None:
        victim = None
        if len(self.uses) == self.room:
            victim = min(self.uses, key=self.uses.__getitem__)
            del self.uses[victim]
        self._use(block, 1)
        return victim


class S3Fifo:
    """S3-FIFO: a small queue that new blocks must outlive, a main one, and the hashes of those that did not.

    After Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1.
    The small queue is meant for a tenth of the blocks, at least one; the main queue for the rest. A block counts its
    hits up to 3, from 0 when it is stored. One block goes for each that is stored into a full cache:

    - from the small queue, if that has its tenth or more. Its oldest block, if it was hit more than once, goes to the
      main queue and counts from 0 again; if that overfills the main queue, one goes from there, else the next oldest is
      looked at. The first that was not hit more than once goes, and is remembered as a ghost; there are as many ghosts
      as the main queue is meant for, the oldest is forgotten. If no block is left, one goes from the main queue.
    - else from the main queue. Its oldest block, if it was hit, counts one less and becomes the newest, and the next
      oldest is looked at; the first that was not hit goes.

    A block that is then a ghost is stored in the main queue and is one no longer, any other in the small queue.

    >>> cache = S3Fifo(3)  # one small, two main, two ghosts
    >>> [cache.store(block) for block in (1, 2, 3, 4, 1)]
    [None, None, None, 1, 2]
    >>> list(cache.small), list(cache.main), list(cache.ghosts)
    ([3, 4], [1], [2])
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.small_room = max(1, room // 10)
        self.main_room = room - self.small_room
        self.small: OrderedDict[int, int] = OrderedDict()  # hits of each block, the oldest first
        self.main: OrderedDict[int, int] = OrderedDict()
        self.ghosts: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self.small or block in self.main

    def __len__(self) -> int:
        return len(self.small) + len(self.main)

    def hit(self, block: int) -> None:
        queue = self.small if block in self.small else self.main
        queue[block] = min(queue[block] + 1, 3)

    def store(self, block: int) -> int | None:
        victim = self._evict() if len(self) == self.room else None
        if block in self.ghosts:
            del self.ghosts[block]
            self.main[block] = 0
        else:
            self.small[block] = 0
        return victim

    def _evict(self) -> int:
        return self._evict_small() if len(self.small) >= self.small_room else self._evict_main()

    def _evict_small(self) -> int:
        while self.small:
            oldest, hits = self.small.popitem(last=False)
            if hits <= 1:
                self.ghosts[oldest] = None
                if len(self.ghosts) > self.main_room:
                    self.ghosts.popitem(last=False)
                return oldest
            self.main[oldest] = 0
            if len(self.main) > self.main_room:
                break
        return self._evict_main()

    def _evict_main(self) -> int:
        while True:
            oldest, hits = self.main.popitem(last=False)
            if hits == 0:
                return oldest
            self.main[oldest] = hits - 1


POLICIES: dict[str, Callable[[int], Cache]] = {"lru": Lru, "fifo": Fifo, "lfu": Lfu, "s3fifo": S3Fifo}


class AnyTime(Clock):
    """The clock of a trace, which is no live log: no time in it is too far ahead."""

    def admits(self, t_ns: int) -> bool:  # noqa: ARG002
        return True


def replay(
    trace: Iterable[Request],
    blocks: int | None,
    policy: str = "lru",
    remember: int | None = None,
    ttl_ns: int | None = None,
    block_tokens: int = 512,
) -> dict[str, Any]:
    """What a trace comes to in a cache of so many blocks; None: of any number, so that nothing ever goes.

    Block after block a request's tokens are `block_tokens` each; the last block has what is left, if that is known and
    fits.

    >>> found = replay([Request(0, [1, 2], 700), Request(5, [1, 3], 1024)], blocks=2)
    >>> {key: found[key] for key in ("lookups", "hits", "queried_tokens", "hit_tokens", "blocks", "remembered")}
    {'lookups': 4, 'hits': 1, 'queried_tokens': 1724, 'hit_tokens': 512, 'blocks': 2, 'remembered': 1}
    """
    cache = POLICIES[policy](MAX_ENTRIES if blocks is None else blocks)
    tracker = KVTracker(
        remember=MAX_ENTRIES if remember is None else remember,
        ttl_ns=RANGE - 1 if ttl_ns is None else ttl_ns,
        max_blocks=MAX_ENTRIES,
        windows_ns=(),
    )
    tracker.bind(AnyTime(()), tracker.scale)
    lookups = hits = queried_tokens = hit_tokens = 0
    for t_ns, hashes, input_tokens in trace:
        for tokens, hash_ in zip(tokens_of(len(hashes), input_tokens, block_tokens), hashes, strict=True):
            block = as_word(hash_)
            lookups += 1
            queried_tokens += tokens
            if block in cache:
                hits += 1
                hit_tokens += tokens
                cache.hit(block)
                tracker.touch(t_ns, block)
                continue
            victim = cache.store(block)
            tracker.store(t_ns, block)
            if victim is not None:
                tracker.evict(t_ns, victim)
    reading = tracker.snapshot()
    assert not reading["rejected"], "the cache and the tracker know the same blocks"
    return {
        "lookups": lookups,
        "hits": hits,
        "queried_tokens": queried_tokens,
        "hit_tokens": hit_tokens,
        "totals": reading["total"],
        "blocks": reading["blocks"],
        "remembered": reading["remembered"],
    }


def tokens_of(blocks: int, input_tokens: int | None, block_tokens: int) -> list[int]:
    """The tokens of each block of a prompt.

    >>> tokens_of(2, 700, 512), tokens_of(2, None, 512), tokens_of(2, 100, 512)
    ([512, 188], [512, 512], [512, 512])
    """
    tokens = [block_tokens] * blocks
    left = block_tokens if input_tokens is None else input_tokens - (blocks - 1) * block_tokens
    if blocks and 1 <= left <= block_tokens:
        tokens[-1] = left
    return tokens


class Curve:
    """Hits, evictions and refills of an LRU cache over all sizes.

    A reference to a block hits in every cache that holds more blocks than were used since its last one: the number of
    these and itself is its stack distance (Mattson et al., IBM Systems Journal, 1970). Of the `n` references to
    `distinct` blocks, `repeats` are not first ones.

    >>> curve = Curve([1, 2, 1, 3, 2])
    >>> [curve.hits(blocks) for blocks in (1, 2, 3, 9)]
    [0, 1, 2, 2]
    >>> curve.evicted(2), curve.refilled(2), curve.knee()
    (2, 1, 3)
    """

    def __init__(self, references: Sequence[int]) -> None:
        references = [as_word(block) for block in references]
        self.n = len(references)
        self.distinct = self.largest = len(set(references))
        self.repeats = self.n - self.distinct
        self.distances = Counter(stack_distances(references))

    def hits(self, blocks: int) -> float:
        return sum(times for distance, times in self.distances.items() if distance <= blocks)

    def evicted(self, blocks: int) -> float:
        return self.n - self.hits(blocks) - min(blocks, self.distinct)

    def refilled(self, blocks: int) -> float:
        return self.repeats - self.hits(blocks)

    def knee(self) -> int | None:
        """The size whose hits lie furthest above the line from no cache to one that holds everything."""
        if not self.n:
            return None
        all_hits = self._hits(self.largest)
        return max(self._sizes(), key=lambda blocks: self._hits(blocks) * self.largest - blocks * all_hits)

    def refill_under(self, limit: float) -> int | None:
        """The least size from which on the refill rate stays under a limit."""

        def is_over(blocks: int) -> bool:
            return self.evicted(blocks) > 0 and self.refilled(blocks) / self.evicted(blocks) >= limit

        return 1 + max(filter(is_over, self._sizes()), default=0) if self.n else None

    def _sizes(self) -> range:
        return range(1, self.largest + 1)

    def _hits(self, blocks: int) -> float:
        return self.hits(blocks)


class SampledCurve(Curve):
    """The same, estimated from the blocks of a sample: SHARDS (Waldspurger et al., FAST 2015), with their adjustment.

    Of the blocks at a rate, stack distances are taken among themselves, and stand for `distance / rate` among all;
    between two of these the curve is a straight line. The references that a sample of that rate should have and does
    not have count as hits at the least distance, those that it has too many are taken off.
    """

    def __init__(self, references: Sequence[int], rate: float, seed: int = 0) -> None:
        salt = splitmix64(seed % WORD) if seed else 0
        words = [as_word(block) for block in references]
        sampled = [word for word in words if splitmix64(word ^ salt) < int(rate * WORD)]
        self.rate = rate
        self.n = len(references)
        self.sampled_n = len(sampled)
        self.sampled_distinct = len(set(sampled))
        self.surplus = self.n * rate - self.sampled_n
        self.distinct = round(self.sampled_distinct / rate)
        self.largest = max(1, min(math.ceil(self.sampled_distinct / rate), self.n))
        distances = Counter(stack_distances(sampled))
        self._within = list(accumulate(distances[distance] for distance in range(self.sampled_distinct + 1)))

    def _weight(self, distance: int) -> float:
        """Sampled references within a distance, adjusted."""
        return self.surplus + self._within[min(distance, self.sampled_distinct)] if distance else 0.0

    def _hits(self, blocks: int) -> float:
        """Sampled references that hit."""
        distance = blocks * self.rate
        nearer = int(distance)
        here, next_one = self._weight(nearer), self._weight(nearer + 1)
        return max(0.0, here + (next_one - here) * (distance - nearer))

    def hits(self, blocks: int) -> float:
        return min(float(self.n), self._hits(blocks) / self.rate)

    def refilled(self, blocks: int) -> float:
        if self._has_room_for_all(blocks):
            return 0.0
        return max(0.0, (self.surplus + self._within[-1] - self._hits(blocks)) / self.rate)

    def evicted(self, blocks: int) -> float:
        if self._has_room_for_all(blocks):
            return 0.0
        return max(self.refilled(blocks), self.n - self.hits(blocks) - blocks)

    def _has_room_for_all(self, blocks: int) -> bool:
        return blocks >= self.sampled_distinct / self.rate


def stack_distances(references: Iterable[int]) -> Iterator[int]:
    """The stack distance of each reference that is not the first to its block."""
    stack: list[int] = []  # the most recently used block last
    for block in references:
        if block in stack:
            yield len(stack) - stack.index(block)
            stack.remove(block)
        stack.append(block)
