"""Which format a file has, from its first bytes."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Set

from tokenpulse.engine import DecodeError, PlainBytes
from tokenpulse.readers import (
    aiperf,
    genai_bench,
    genai_perf,
    guidellm,
    inference_perf,
    inferencex,
    llmperf,
    own,
    sglang,
    stat_logger,
    traces,
    vllm,
)
from tokenpulse.readers.keys import keys_of

HEAD = 65_536
"""How many decompressed bytes a format is told by, if they tell it."""
FURTHER = 4 << 20
"""How many of a JSON text that has no key in them by which it could be told: a long text may stand first."""
OWN = own.FORMAT
"""Our own lines, which `engine.reduce_paths` reads."""
PARQUET, ARROW, CSV = "parquet", "arrow", "csv"
TABLES = (PARQUET, ARROW, CSV)
"""Tables of our own columns, which `readers.table` reads."""
IN_ARRAYS = frozenset({inference_perf.REQUESTS, llmperf.REQUESTS})
"""Formats whose tools write an array of requests."""

EITHER_WAY = IN_ARRAYS | {
    aiperf.REQUESTS,
    aiperf.SUMMARY,
    genai_bench.FORMAT,
    genai_perf.FORMAT,
    guidellm.FORMAT,
    inference_perf.STAGE,
    inference_perf.SUMMARY,
    llmperf.SUMMARY,
    sglang.FORMAT,
    stat_logger.FORMAT,
    traces.MOONCAKE,
    vllm.DETAILED,
    vllm.SUMMARY,
}
"""Formats that are read one after the other as well as in an array, however their tool writes them."""

# The first that recognises the keys has the file: those whose keys are the most particular come first.
_JSON: tuple[Callable[[Set[str]], str | None], ...] = (
    own.recognises,
    aiperf.recognises,
    genai_perf.recognises,
    genai_bench.recognises,
    guidellm.recognises,
    inference_perf.recognises,
    llmperf.recognises,
    stat_logger.recognises,
    sglang.recognises,
    inferencex.recognises,
    vllm.recognises,
    traces.recognises,
)
_MAGIC = {b"PAR1": PARQUET, b"ARROW1": ARROW, b"\xff\xff\xff\xff": ARROW}


def detect(text: bytes) -> str | None:
    """The format of a file that begins with these (decompressed) bytes, None if it is none that is known.

    >>> detect(b'{"t_ns":1,"id":"a","ev":"arrive"}')
    'tokenpulse'
    >>> detect(b"TIMESTAMP,ContextTokens,GeneratedTokens\\r\\n")
    'azure-trace'
    >>> detect(b"hello") is None
    True
    """
    for magic, name in _MAGIC.items():
        if text.startswith(magic):
            return name
    decoded = text.decode("utf-8-sig", errors="replace").lstrip()
    if decoded.startswith(("{", "[")):
        return first_recognised(keys_of(decoded), _JSON)
    columns = next(csv.reader([decoded.partition("\n")[0].strip()]), [])
    names = {name.strip() for name in columns}
    if "arrive_ns" in names or {"t_ns", "ev"} <= names:
        return CSV
    return traces.recognises_header(columns)


def first_recognised(
    values: Iterable[Set[str]], candidates: tuple[Callable[[Set[str]], str | None], ...]
) -> str | None:
    """What the first value that any candidate knows is: a log may begin with a line that is nobody's."""
    for keys in values:
        # As the tool writes it; else the elements of an array in place of values, or values in place of elements.
        inside = {key.removeprefix("[].") for key in keys if key.startswith("[].")}
        for known in (keys, inside or {f"[].{key}" for key in keys}):
            for recognises in candidates:
                if (found := recognises(known)) is not None and (known is keys or found in EITHER_WAY):
                    return found
    return None


def head(source: str | bytes) -> bytes:
    """The first `HEAD` bytes of a file, or of its beginning, decompressed; up to `FURTHER` of JSON that needs them.

    Raises OSError.

    >>> head(b"plain")
    b'plain'
    >>> len(head(b'{"a": "' + b"x" * 100_000 + b'", "ttfts": [], "itls": []}'))
    100034
    """
    blocks, enough = b"", HEAD
    try:
        for block in PlainBytes(source):
            blocks += block
            if enough == HEAD and len(blocks) >= HEAD and needs_more(blocks[:HEAD]):
                enough = FURTHER
            if len(blocks) >= enough:
                break
    except DecodeError:
        pass  # what came before is enough, or there is nothing to be told
    return blocks[:enough]


def needs_more(text: bytes) -> bool:
    """Whether a beginning of `HEAD` bytes or more is JSON whose format the bytes after it may tell."""
    begins = text[:1024].decode("utf-8-sig", errors="replace").lstrip()[:1]
    return begins in ("{", "[") and len(text) < FURTHER and detect(text) is None
