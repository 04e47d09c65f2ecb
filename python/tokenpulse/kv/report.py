"""`kv_report`: from logs of a KV cache's events, or a trace of block hashes, to a report."""

from __future__ import annotations

from collections.abc import Iterable

from tokenpulse import engine
from tokenpulse.grammar import Path, path_names
from tokenpulse.kv import checks
from tokenpulse.kv.trace import BLOCK_TOKENS, KINDS, MAX_BLOCK_TOKENS, MAX_REMEMBERED, MAX_SEED, KVTrace
from tokenpulse.reporting.kv import KVReport

STREAMS = ("copies", "full")
"""What a stream of events says of copies: each store is one and each evict takes one away; or neither does."""

NO_CURVE = f"a curve needs {KINDS['trace']}, got {KINDS['events']}"


def kv_report(
    paths: Path | Iterable[Path],
    *,
    stream: str | None = None,
    remember: int | None = None,
    ttl: str | float | None = None,
    sample: float | None = None,
    blocks: int | None = None,
    policy: str | None = None,
    block_tokens: int | None = None,
    curve: bool = False,
    sizes: Iterable[int] = (),
    seed: int | None = None,
    progress: engine.Progress | None = None,
) -> KVReport:
    """Read logs of KV-cache events, or a trace of block hashes, and report on what was evicted and computed again.

    `remember` and `ttl` limit the memory of evicted blocks: by default to a million and 30 minutes for events, and not
    at all for a trace.

    Of events (our own lines, or vLLM's): `stream` is `copies` (the default) or `full`; `sample`, above 0 and at most 1,
    follows only that share of the blocks. (A `KVTracker` has them as `report` and `rate`.)

    Of a trace: it is put through a cache of `blocks` (None: room for all) under `policy` (lru, fifo, s3fifo, lfu), with
    `block_tokens` (512) tokens a block. `curve` gives hits and refills over all sizes of an LRU cache, at `sizes` too;
    `sample` and `seed` make that an estimate.

    Lines that cannot be read are counted, not raised. Raises OSError for a file that cannot be read, FormatError for
    one of unknown format and for files of both kinds, and ValueError or TypeError for a setting that does not fit.
    """
    names = path_names(paths)
    sizes = checks.sizes(sizes)
    ttl_ns = None if ttl is None else checks.duration("ttl", ttl)
    sample = None if sample is None else checks.share("sample", sample)
    for name, value, least, most in (
        ("remember", remember, 0, MAX_REMEMBERED),
        ("blocks", blocks, 1, None),
        ("block_tokens", block_tokens, 1, MAX_BLOCK_TOKENS),
        ("seed", seed, 0, MAX_SEED),
    ):
        if value is not None:
            checks.whole(name, value, least, most)
    if stream is not None and stream not in STREAMS:
        raise ValueError(f"stream must be {' or '.join(STREAMS)}, got {stream!r}")
    if sizes and not curve:
        raise ValueError("sizes belong to the curve, which was not asked for")
    if seed is not None and (not curve or sample is None):
        missing = " and ".join(name for name, given in (("curve", curve), ("sample", sample is not None)) if not given)
        raise ValueError(f"seed says from which blocks the curve is estimated: it needs {missing} as well")
    if curve and policy not in (None, "lru"):
        raise ValueError(f"the curve is that of lru: policy must be lru with it, got {policy!r}")
    read = engine.read_kv(
        names,
        stream=stream or STREAMS[0],
        remember=remember,
        ttl_ns=ttl_ns,
        sample=sample,
        progress=progress,
    )
    given = {"blocks": blocks, "policy": policy, "block_tokens": block_tokens}
    wrong = [name for name, value in given.items() if value is not None]
    if read["kind"] == "trace":
        wrong = [] if stream is None else ["stream"]
        if sample is not None and not curve:
            raise ValueError("sample of a trace belongs to the curve, which was not asked for")
    elif curve:
        raise ValueError(NO_CURVE)
    if wrong:
        raise ValueError(f"{wrong[0]} does not go with {KINDS[read['kind']]}, which is what was read")
    if read["kind"] == "events":
        return KVReport.of_events(read["events"], read["inputs"])
    trace = KVTrace(read["trace"], read["inputs"])
    block_tokens = BLOCK_TOKENS if block_tokens is None else block_tokens
    found = None
    if curve:
        further = sizes if blocks is None else [*sizes, blocks]
        found = trace.curve(further, rate=sample, seed=seed or 0, block_tokens=block_tokens)
    return trace.replay(blocks, policy or "lru", remember=remember, ttl=ttl, block_tokens=block_tokens, curve=found)
