"""`BlockPool`: the blocks of the KV cache: held by running requests, kept for the next request with the same prefix,
or blank.

A block holds the keys and values of a fixed number of tokens. A full one is known by the hash of all tokens up to its
end, so that a request whose prompt begins in the same way can share it. A block that nobody holds stays until its room
is needed; the one that was longest without a holder goes first (LRU). A hash is in the pool at most once.
"""

from __future__ import annotations

from collections import OrderedDict

from tokenpulse.simulate.request import Request


class BlockPool:
    """`capacity` blocks of `block_tokens` tokens each; `reuse` is whether full blocks are kept and shared.

    Always `used + kept + blank == capacity`; `blank` is below 0 only from `settle` until preemptions have made room.
    """

    def __init__(self, capacity: int, block_tokens: int, *, reuse: bool = True) -> None:
        for name, value in (("kv_blocks", capacity), ("block_tokens", block_tokens)):
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        self.capacity = capacity
        self.block_tokens = block_tokens
        self.reuse = reuse
        self.stored: list[int] = []
        """Hashes of blocks that were computed since these lists were last taken."""
        self.evicted: list[int] = []
        """Hashes of blocks that had to make room since then."""
        self._target = capacity
        self._holders: dict[int, int] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._partial = 0  # held blocks without a hash

    @property
    def used(self) -> int:
        """Blocks that running requests hold."""
        return len(self._holders) + self._partial

    @property
    def kept(self) -> int:
        """Blocks that nobody holds and that the next request may find."""
        return len(self._kept)

    @property
    def blank(self) -> int:
        """Blocks with nothing in them that is of use."""
        return self.capacity - len(self._holders) - self._partial - len(self._kept)

    @property
    def available(self) -> int:
        """Blocks that can be had: blank ones, and those kept."""
        return self.capacity - self.used

    def __contains__(self, block_hash: int) -> bool:
        return block_hash in self._holders or block_hash in self._kept

    def blocks_for(self, tokens: int) -> int:
        """How many blocks so many tokens of one request need."""
        return -(-tokens // self.block_tokens)

    # What a request does

    def find(self, request: Request) -> int:
        """How many of the request's first tokens the pool holds: whole blocks, and never all that it knows."""
        if not self.reuse:
            return 0
        most = (request.prompt_tokens + request.generated - 1) // self.block_tokens
        holders, kept = self._holders, self._kept
        found = 0
        for block_hash in request.content.block_hashes(0, most, self.block_tokens):
            if block_hash not in holders and block_hash not in kept:
                break
            found += 1
        return found * self.block_tokens

    def claim(self, request: Request, tokens: int) -> None:
        """Let the request hold the blocks of its first `tokens` tokens, which `find` has found."""
        request.hashes = request.content.block_hashes(0, tokens // self.block_tokens, self.block_tokens)
        for block_hash in request.hashes:
            self._hold(block_hash)
        request.blocks = len(request.hashes)
        request.computed = tokens

    def reserve(self, request: Request, tokens: int) -> bool:
        """See to it that the request holds blocks for its first `tokens` tokens; False where there are too few."""
        wanted = self.blocks_for(tokens) - request.blocks
        if wanted <= 0:
            return True
        lacking = wanted - self.blank
        if lacking > len(self._kept):
            return False
        self._evict(lacking)
        self._partial += wanted
        request.blocks += wanted
        return True

    def fill(self, request: Request) -> None:
        """Give their hashes to the blocks that the request has filled."""
        full, known = request.computed // self.block_tokens, len(request.hashes)
        if full == known or not self.reuse:
            return
        filled = request.content.block_hashes(known, full, self.block_tokens)
        self.stored += [block_hash for block_hash in filled if not self._hold(block_hash)]
        request.hashes += filled
        self._partial -= full - known  # each now has a hash, or was given up for the one that is there already

    def release(self, request: Request) -> None:
        """Take all its blocks from a request. The last one was nobody else's prefix: it is the first to go."""
        self._partial -= request.blocks - len(request.hashes)
        for block_hash in reversed(request.hashes):
            holders = self._holders[block_hash] - 1
            if holders:
                self._holders[block_hash] = holders
            else:
                del self._holders[block_hash]
                self._kept[block_hash] = None
        request.blocks, request.hashes, request.computed = 0, [], 0

    # What happens to the pool

    def resize(self, capacity: int) -> None:
        """Let the pool have `capacity` blocks from the next step on. ValueError for less than 1."""
        if capacity < 1:
            raise ValueError(f"a pool must have 1 block or more, got {capacity}")
        self._target = capacity

    def settle(self) -> int:
        """Take on the capacity that was asked for, and evict what it has no room for; how many blocks too many running
        requests still hold."""
        self.capacity = self._target
        self._evict(min(-self.blank, len(self._kept)))
        return max(0, -self.blank)

    def take_stored(self) -> list[int]:
        """The hashes of the blocks that were computed since this was last asked."""
        stored, self.stored = self.stored, []
        return stored

    def take_evicted(self) -> list[int]:
        """The hashes of the blocks that had to make room since this was last asked."""
        evicted, self.evicted = self.evicted, []
        return evicted

    def _hold(self, block_hash: int) -> bool:
        """One more holder; whether the block was there already."""
        holders = self._holders.get(block_hash, 0)
        self._holders[block_hash] = holders + 1
        if holders:
            return True
        if block_hash in self._kept:
            del self._kept[block_hash]
            return True
        return False

    def _evict(self, blocks: int) -> None:
        """Evict so many of the blocks that nobody holds, those first that were longest without a holder."""
        for _ in range(blocks):
            block_hash, _ = self._kept.popitem(last=False)
            self.evicted.append(block_hash)
