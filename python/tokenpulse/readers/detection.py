"""Which format a file has, from its first bytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Set

from tokenpulse.readers import (
    aiperf,
    guidellm,
    inference_perf,
    own,
    vllm,
)
from tokenpulse.readers.keys import keys_of

HEAD = 65_536
"""How many decompressed bytes a format is told by."""
OWN = own.FORMAT
"""Our own lines, which `engine.reduce_paths` reads."""

# The first that recognises the keys has the file: those whose keys are the most particular come first.
_JSON: tuple[Callable[[Set[str]], str | None], ...] = (
    aiperf.recognises,
    guidellm.recognises,
    inference_perf.recognises,
    vllm.recognises,
    own.recognises,
)


def detect(text: bytes) -> str | None:
    """The format of a file that begins with these (decompressed) bytes, None if it is none that is known.

    >>> detect(b'{"t_ns":1,"id":"a","ev":"arrive"}')
    'tokenpulse'
    >>> detect(b"hello") is None
    True
    """
    decoded = text.decode("utf-8-sig", errors="replace").lstrip()
    if not decoded.startswith(("{", "[")):
        return None
    return first_recognised(keys_of(decoded), _JSON)


def first_recognised(
    values: Iterable[Set[str]], candidates: tuple[Callable[[Set[str]], str | None], ...]
) -> str | None:
    """What the first value that any candidate knows is: a log may begin with a line that is nobody's."""
    for keys in values:
        for recognises in candidates:
            if (found := recognises(keys)) is not None:
                return found
    return None


def head(source: str | bytes) -> bytes:
    """The first `HEAD` bytes of a file, or of its beginning, decompressed. Raises OSError.

    >>> head(b"plain")
    b'plain'
    """
    if isinstance(source, bytes):
        raw = source
    else:
        with open(source, "rb") as file:
            raw = file.read(HEAD)
    if raw[:2] == b"\x1f\x8b":
        try:
            return zlib.decompressobj(wbits=31).decompress(raw, HEAD)
        except zlib.error:
            return b""
    return raw[:HEAD]
