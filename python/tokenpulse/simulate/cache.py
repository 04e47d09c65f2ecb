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

    Always: `used + kept + blank == capacity`, but for the time after `resize` until `settle` and preemptions have made
    room.
    """

    def __init__(self, capacity: int, block_tokens: int, *, reuse: bool = True) -> None:
        if capacity < 1 or block_tokens < 1:
            raise ValueError(
                f"blocks and tokens of a block must be 1 or more, got {capacity} blocks of {block_tokens} tokens"
            )
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
    def available(self) -> int:
        """Blocks that can be had: blank ones, and those kept."""
        return self.capacity - len(self._holders) - self._partial

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
        found = 0
        for block_hash in request.content.block_hashes(0, most, self.block_tokens):
            if block_hash not in self:
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
        if wanted > self.available:
            return False
        self._make_blank(wanted)
        self._partial += wanted
        request.blocks += wanted
        return True

    def fill(self, request: Request) -> None:
        """Give their hashes to the blocks that the request has filled."""
        full = request.computed // self.block_tokens
        known = len(request.hashes)
        if not self.reuse or full <= known:
            return
        filled = request.content.block_hashes(known, full, self.block_tokens)
        for block_hash in filled:
            if block_hash not in self:
                self.stored.append(block_hash)
            self._hold(block_hash)
        self._partial -= len(filled)  # each now has a hash, or was given up for the one that others hold
        request.hashes += filled

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
        """Take on the capacity that was asked for, evicting what it has no room for; how many blocks too many
        running requests still hold."""
        self.capacity = self._target
        too_many = max(0, self.used - self.capacity)
        if not too_many:
            self._make_blank(0)
        return too_many

    def take_stored(self) -> list[int]:
        """The hashes of the blocks that were computed since this was last asked."""
        stored, self.stored = self.stored, []
        return stored

    def take_evicted(self) -> list[int]:
        """The hashes of the blocks that had to make room since this was last asked."""
        evicted, self.evicted = self.evicted, []
        return evicted

    def _hold(self, block_hash: int) -> None:
        self._kept.pop(block_hash, None)
        self._holders[block_hash] = self._holders.get(block_hash, 0) + 1

    def _make_blank(self, wanted: int) -> None:
        """Evict until `wanted` blocks are blank, or nothing is left to evict."""
        while self._kept and self.available - len(self._kept) < wanted:
            block_hash, _ = self._kept.popitem(last=False)
            self.evicted.append(block_hash)
