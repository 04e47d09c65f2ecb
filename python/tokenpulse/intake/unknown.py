"""What to say of a file whose format is none that is known: what was expected, and what was found."""

from __future__ import annotations

from tokenpulse.readers.keys import keys_of

EXPECTED = (
    "expected tokenpulse request or event lines, a table of them, a file of vLLM, SGLang, AIPerf, genai-perf, "
    "GuideLLM, inference-perf, genai-bench, llmperf or InferenceX, or a trace of Azure, Mooncake or BurstGPT"
)

KEYS = 6
"""Keys that are named at most."""
SHOWN = 40
"""Characters of a text that are shown at most."""


def found(head: bytes) -> str:
    r"""What a file begins with, in a few words.

    >>> found(b'{"b": {"c": 1}, "a": 2}'), found(b"[1, 2]"), found(b"x,y\n1,2\n"), found(b"\x00\x01")
    ('JSON with the keys a, b', 'JSON without a key', "text that begins with 'x,y'", 'bytes that are no text')
    """
    text = head.decode("utf-8-sig", errors="replace").lstrip()
    control = sum(character == "\ufffd" or (character < " " and not character.isspace()) for character in text[:1000])
    if control > 1:  # one may be a character that is cut off
        return "bytes that are no text"
    if not text.startswith(("{", "[")):
        return f"text that begins with {text.partition(chr(10))[0].strip()[:SHOWN]!r}"
    keys = sorted({key.removeprefix("[].") for keys in list(keys_of(text))[:1] for key in keys})
    top = [key for key in keys if "." not in key and "[" not in key]
    if not top:
        return "JSON without a key"
    return f"JSON with the keys {', '.join(top[:KEYS])}{', ...' if len(top) > KEYS else ''}"
