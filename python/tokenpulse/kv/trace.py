"""`KVTrace`: the blocks that requests asked for, to be put through caches of any size and policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenpulse import engine
from tokenpulse.grammar import Path, path_names
from tokenpulse.kv import checks
from tokenpulse.reporting.kv import Curve, KVReport, grid

POLICIES = ("lru", "fifo", "s3fifo", "lfu")
"""Which block makes room: the least recently used, the first stored, by three queues, the least often used."""

KINDS = {"events": "KV cache events", "trace": "a trace of block hashes"}
"""What files of each kind hold."""

BLOCK_TOKENS = 512
"""Tokens of a block, where a trace does not say."""

MAX_BLOCK_TOKENS = 1 << 30
MAX_REMEMBERED = (1 << 26) - 1
MAX_SEED = (1 << 64) - 1


class KVTrace:
    """Requests in order, each with the block hashes of its prompt: `KVTrace.read(paths)`.

    A request looks up its blocks in order; each that is not there is computed and stored, and what then does not fit
    is evicted. Immutable.
    """

    __slots__ = ("_inputs", "_raw")

    def __init__(self, raw: engine.CoreKVTrace, inputs: Sequence[Mapping[str, Any]] = ()) -> None:
        self._raw = raw
        self._inputs = tuple(inputs)

    @classmethod
    def read(cls, paths: Path | Iterable[Path], *, progress: engine.Progress | None = None) -> KVTrace:
        """Read one or more files as one trace, in this order; `"-"` is standard input.

        Lines that cannot be read are counted, not raised. Raises OSError for a file that cannot be read, FormatError
        for files that hold no trace of block hashes.
        """
        read = engine.read_kv(path_names(paths), progress=progress)
        if read["trace"] is None:
            raise engine.FormatError(f"expected a trace of block hashes, got {KINDS[read['kind']]}")
        return cls(read["trace"], read["inputs"])

    @property
    def requests(self) -> int:
        """Requests, those without a block included."""
        return self._raw.requests

    @property
    def references(self) -> int:
        """Blocks asked for, each as often as it was."""
        return self._raw.references

    @property
    def distinct(self) -> int:
        """Different blocks: with room for so many nothing is ever evicted."""
        return self._raw.distinct

    @property
    def seconds(self) -> float:
        """From the first request to the last."""
        first, last = self._raw.first_ns, self._raw.last_ns
        return 0.0 if first is None or last is None else (last - first) / 1e9

    @property
    def notices(self) -> list[dict[str, Any]]:
        """The first lines of each file that could not be read."""
        return [{"path": one["path"], **notice} for one in self._inputs for notice in one["notices"]]

    def replay(
        self,
        blocks: int | None = None,
        policy: str = "lru",
        *,
        remember: int | None = None,
        ttl: str | float | None = None,
        block_tokens: int = BLOCK_TOKENS,
        curve: Curve | None = None,
    ) -> KVReport:
        """The trace through a cache of so many blocks; None is room for all.

        `policy`: lru, fifo, s3fifo or lfu. `remember` and `ttl` limit the memory of evicted blocks, which has no limit
        otherwise. A `curve` is taken into the report as it is. ValueError or TypeError, which names the argument, for
        what does not fit.
        """
        if policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
        if curve is not None and not isinstance(curve, Curve):
            raise TypeError(f"curve must be what KVTrace.curve gave, or None, got {curve!r}")
        blocks = None if blocks is None else checks.whole("blocks", blocks, 1)
        remember = None if remember is None else checks.whole("remember", remember, 0, MAX_REMEMBERED)
        block_tokens = checks.whole("block_tokens", block_tokens, 1, MAX_BLOCK_TOKENS)
        ttl_ns = None if ttl is None else checks.duration("ttl", ttl)
        replay = self._raw.replay(blocks, policy, remember, ttl_ns, block_tokens)
        settings = {
            "blocks": blocks,
            "policy": policy,
            "remember": remember,
            "ttl_ns": ttl_ns,
            "block_tokens": block_tokens,
        }
        trace = {"requests": self.requests, "first_ns": self._raw.first_ns, "last_ns": self._raw.last_ns}
        return KVReport.of_trace(replay, trace, settings, self._inputs, curve)

    def curve(
        self,
        sizes: Iterable[int] = (),
        *,
        rate: float | None = None,
        seed: int = 0,
        block_tokens: int = BLOCK_TOKENS,
    ) -> Curve:
        """Hits and refills of an LRU cache of every size: at round sizes up to all blocks, and at `sizes`.

        With a `rate`, above 0 and at most 1, only that share of the blocks is looked at, chosen by `seed`: much
        faster, and an estimate. ValueError or TypeError, which names the argument, for what does not fit.
        """
        asked = sorted(set(checks.sizes(sizes)))
        rate = None if rate is None else checks.share("rate", rate)
        seed = checks.whole("seed", seed, 0, MAX_SEED)
        if rate is None and seed:
            raise ValueError("seed says from which blocks the curve is estimated: it needs a rate")
        block_tokens = checks.whole("block_tokens", block_tokens, 1, MAX_BLOCK_TOKENS)
        every = sorted({*grid(self.distinct), *asked})
        raw = self._raw.curve(every, rate, seed)
        return Curve.of(raw, every, asked, rate=rate, seed=seed, block_tokens=block_tokens)

    def __repr__(self) -> str:
        return (
            f"<tokenpulse.KVTrace of {self.seconds:.6g} s: {self.requests} requests, {self.references} references to"
            f" {self.distinct} blocks>"
        )
