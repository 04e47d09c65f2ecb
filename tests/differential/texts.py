"""Logs as text, made to mislead a reader that expects the next line to look like the last.

Lines of one shape follow one another, and now and then one differs from them: by its numbers' form, its keys' order,
an escape, a byte.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

Fields = list[tuple[str, Any]]

STATUSES = ("stop", "stop", "length", "abort", "error", "timeout", "oom", "reject", "lost", "STOP", "")
STARTS = (0, 0, 7, 98, 10**9 - 3, 1_763_000_000_000_000_000, 10**18 - 20, 2**63 - 2000, 2**63 - 5)
BYTES = b'{}[]",:\\ \t\r\x00\x01\x1f\x7f\x80\xc3\xa9\xed\xff0123456789.-+eEnulltrfasNI/u\xef\xbb\xbf'
STYLES = ((",", ":"), (",", ":"), (", ", ": "), (" ,", " :"), (",\t", ":  "), (" , ", ":"))
NAMES = ("a", "b", "r1", "req-000017", "\u00e9\u20ac", "x" * 40, "\U0001f600", 'q"\\/', "tab\t", "", " ", "\u2028")
NUMBERS = (
    *(
        "0",
        "-0",
        "00",
        "01",
        "-1",
        "+1",
        "1.",
        ".5",
        "1e0",
        "1E+2",
        "1e-1",
        "10e-1",
        "1.0",
        "1.5",
        "5e0",
        "0e9",
        "-0.0",
    ),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "9223372036854775807.0",
        "9.2e18",
        "9.3e18",
        "1e19",
        "1e400",
        "-1e400",
    ),
    *(
        "18446744073709551616",
        "18446744073709551615",
        "99999999999999999999999",
        "4294967295",
        "4294967296",
        "1" * 5000,
    ),
    *("1099511627776", "1099511627777", "NaN", "Infinity", "-Infinity", "-NaN", "nan", "true", "false", "null", '"5"'),
    *("[]", "[1]", "{}", "0x10", "1_0", "1 0", "--1", "1e", "1e+", "-", "1.0000000000000000000001", "123456789e-8"),
    *("0.1e1", "1234567890123456789e0", "5.000", "5.0e-0", "2e+00000000000000000000001", "1e-400", "0.0000"),
)
WORDS = (
    '"\\u0061"',
    '"\\ud83d\\ude00"',
    '"\\n\\t\\"\\\\\\/\\b\\f\\r"',
    '"\\x"',
    '"\\u12"',
    '"\\ud800"',
    '"\t"',
    '"\x7f"',
    '"',
    "''",
)
UNKNOWN: tuple[tuple[str, str], ...] = (
    ("x", "1"),
    ("x", '[[{"id": 5, "ev": [null, {}]}], "]}", -0.0, 1e5, NaN]'),
    ("x", '{"token_ns": [1, 2], "id": "no", "": {"ev": "end"}}'),
    ("x", '"a\\"b}, \\\\"'),
    ("token_nss", "[1]"),
    ("Token_ns", "[1]"),
    ("t", '"' + "y" * 300 + '"'),
    ("", "null"),
    ("cached_tokens", '"x"'),
    ("n\u0000", "[0]"),
    ("deep", "[" * 60 + "]" * 60),
    ("deep", "[" * 126 + "]" * 126),
    ("deep", "[" * 127 + "]" * 127),
    ("deep", "[" * 128 + "]" * 128),
)
ALIASES = {"arrive_ns": "arrival_mono_ns", "prompt_tokens": "ctx"}


def log_of(rng: Random) -> bytes:
    """One log: a stretch of lines of one shape after the other."""
    lines: list[bytes] = []
    mischief = rng.choice((0.0, 0.02, 0.1, 0.5))
    for _ in range(rng.randint(1, 4)):
        lines += stretch(rng, rng.choice((1, 3, 10, 30)), mischief)
    ends = rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b" \n"))
    text = ends.join(lines) + rng.choice((b"", ends, ends, b"\n \t\r\n", b"\r"))
    if rng.random() < 0.05:
        text = b"\xef\xbb\xbf" + text
    return text


def stretch(rng: Random, lines: int, mischief: float) -> Iterator[bytes]:
    """Lines of one shape, some of them spoilt."""
    make = rng.choice((requests, requests, events))
    item, colon = rng.choice(STYLES)
    order = rng.random()  # keys in one order throughout
    last = b"{}"
    for fields in make(rng, lines):
        if order < 0.3:
            Random(order).shuffle(fields)
        parts = [(json.dumps(key), rendered(value, item, colon)) for key, value in fields]
        line = item.join(key + colon + value for key, value in parts)
        line = "{" + line + "}"
        made = line.encode()
        if rng.random() < mischief:
            made = rng.choice(MISCHIEFS)(rng, parts, item, colon, made, last)
        last = made
        yield made


def rendered(value: Any, item: str, colon: str) -> str:
    return json.dumps(value, separators=(item, colon), ensure_ascii=isinstance(value, dict))


def a_name(rng: Random, often: int = 5) -> Any:
    if rng.random() < 0.7:
        return f"r{rng.randint(0, often)}"
    return rng.choice((*NAMES, rng.randint(0, often), 10**18 + 7, -3, 2**64, 2**70))


def labels(rng: Random) -> dict[str, Any]:
    return {key: rng.choice(("x", "y", 1, True, "\u00e9", None)) for key in ("tenant", "tier") if rng.random() < 0.6}


def requests(rng: Random, lines: int) -> Iterator[Fields]:
    """Request lines that all have the same fields."""
    has = {
        name: rng.random() < 0.5 for name in ("n", "schedule", "prefill", "preempt", "end", "status", "labels", "dt")
    }
    has |= {name: rng.random() < 0.2 for name in ("untimed", "alias", "degraded")}
    shared = rng.random() < 0.5  # as many tokens in every line
    m, t = rng.choice((0, 1, 2, 3, 8, 20)), rng.choice(STARTS)
    for _ in range(lines):
        t = max(0, min(2**63 - 1, t + rng.choice((0, 1, 9, 90, 1000, 10**6, 10**9, -1))))
        if not shared:
            m = rng.choice((0, 1, 2, 3, 8, 20, 100))
        at, times = t, []
        for _ in range(m):
            at = max(0, min(2**63 - 1, at + rng.choice((0, 1, 5, 99, 10**4, 10**7, 10**7, -1))))
            times.append(at)
        alias = (lambda name: ALIASES.get(name, name)) if has["alias"] else str
        fields: Fields = [("id", a_name(rng, 10**6)), (alias("arrive_ns"), t)]
        if has["schedule"]:
            fields.append(("schedule_ns", at if rng.random() < 0.1 else min(2**63 - 1, t + rng.randint(0, 20))))
        if has["prefill"]:
            fields.append(("prefill_ns", min(2**63 - 1, t + rng.randint(0, 20))))
        if has["untimed"]:
            fields += [("output_tokens", rng.choice((0, 1, 2, 300))), ("first_token_ns", t), ("last_token_ns", at)]
        elif has["dt"]:
            fields.append(("dt_ns", [each - t for each in times]))
        else:
            fields.append(("token_ns", times))
        if has["n"]:
            count = m + (rng.random() < 0.02)
            fields.append(("n", [rng.choice((1, 1, 1, 2, 9, 10, 2**32 - 1)) for _ in range(count)]))
        if has["preempt"]:
            fields += [("preempt_ns", sorted(rng.sample(times, min(m, 1)))), ("resume_ns", [at] * rng.randint(0, 1))]
        if has["end"]:
            fields.append(("end_ns", min(2**63 - 1, at + rng.randint(0, 5))))
        if has["status"]:
            fields.append(("status", rng.choice(STATUSES)))
        if has["degraded"]:
            fields.append(("degraded", rng.random() < 0.5))
        fields.append((alias("prompt_tokens"), rng.choice((0, 7, 374, 10**5))))
        if has["labels"]:
            fields.append(("labels", labels(rng)))
        yield fields


def events(rng: Random, lines: int) -> Iterator[Fields]:
    """Event lines of a few requests at once."""
    t = rng.choice(STARTS)
    with_k = rng.random() < 0.5
    for _ in range(lines):
        t = max(0, min(2**63 - 1, t + rng.choice((0, 0, 1, 9, 90, 1000, 10**6, -1))))
        kind = rng.choice(("arrive", "arrive", *["tokens"] * 6, "schedule", "prefill", "preempt", "resume", "end"))
        kind = rng.choice(("gauge", "ready", "kv_store", "add", "begin")) if rng.random() < 0.1 else kind
        fields: Fields = [("t_ns", t), ("id", a_name(rng, 3)), ("ev", kind)]
        if kind == "arrive":
            fields += [("prompt_tokens", rng.choice((0, 7, 374))), ("labels", labels(rng))]
        elif kind == "tokens" and with_k:
            fields.append(("k", rng.choice((1, 1, 2, 12, 2**32 - 1, 0))))
        elif kind == "end":
            fields += [("status", rng.choice(STATUSES)), ("degraded", rng.random() < 0.2)]
        yield fields


# Mischief: each makes of the parts of a line, and of the line, one that is a little different.

Parts = list[tuple[str, str]]
Mischief = Callable[[Random, Parts, str, str, bytes, bytes], bytes]


def joined(parts: Parts, item: str, colon: str) -> bytes:
    return ("{" + item.join(key + colon + value for key, value in parts) + "}").encode()


def another_value(rng: Random, parts: Parts, item: str, colon: str, _line: bytes, _last: bytes) -> bytes:
    at = rng.randrange(len(parts))
    return joined([*parts[:at], (parts[at][0], rng.choice(NUMBERS + WORDS)), *parts[at + 1 :]], item, colon)


def another_element(rng: Random, parts: Parts, item: str, colon: str, line: bytes, _last: bytes) -> bytes:
    lists = [at for at, (_, value) in enumerate(parts) if value.startswith("[") and len(value) > 2]
    if not lists:
        return line + b" "
    at = rng.choice(lists)
    elements = parts[at][1][1:-1].split(item)
    elements[rng.randrange(len(elements))] = rng.choice(NUMBERS)
    return joined([*parts[:at], (parts[at][0], "[" + item.join(elements) + "]"), *parts[at + 1 :]], item, colon)


def another_key(rng: Random, parts: Parts, item: str, colon: str, _line: bytes, _last: bytes) -> bytes:
    """A key with an escape, or one that nearly is it."""
    at = rng.randrange(len(parts))
    key = parts[at][0]
    escaped = '"' + "".join(f"\\u{ord(char):04x}" if rng.random() < 0.3 else char for char in key[1:-1]) + '"'
    other = rng.choice((escaped, escaped, key.upper(), key[:-2] + '"', key[:-1] + '_"', '" ' + key[1:], '"ev"'))
    return joined([*parts[:at], (other, parts[at][1]), *parts[at + 1 :]], item, colon)


def another_order(rng: Random, parts: Parts, item: str, colon: str, _line: bytes, _last: bytes) -> bytes:
    return joined(rng.sample(parts, len(parts)), item, colon)


def one_key_more(rng: Random, parts: Parts, item: str, colon: str, _line: bytes, _last: bytes) -> bytes:
    """An unknown key; or a known one again, of which the last counts."""
    key, value = rng.choice(UNKNOWN)
    more = (json.dumps(key), value) if rng.random() < 0.5 else (rng.choice(parts)[0], rng.choice(NUMBERS + WORDS))
    at = rng.randint(0, len(parts))
    return joined([*parts[:at], more, *parts[at:]], item, colon)


def one_key_less(rng: Random, parts: Parts, item: str, colon: str, _line: bytes, _last: bytes) -> bytes:
    at = rng.randrange(len(parts))
    return joined([*parts[:at], *parts[at + 1 :]], item, colon)


def spread_out(rng: Random, parts: Parts, item: str, colon: str, _line: bytes, _last: bytes) -> bytes:
    """White space where it may be, and once where it may not."""
    spaces = (" ", "\t", "\r", "  ", " " * 70)
    found = joined(parts, rng.choice(spaces) + item, colon + rng.choice(spaces)).decode()
    found = found.replace("[", "[ ").replace("]", rng.choice(spaces) + "]")
    return (rng.choice(spaces) + found + rng.choice(spaces)).encode()


def damaged(rng: Random, _parts: Parts, _item: str, _colon: str, line: bytes, _last: bytes) -> bytes:
    """A byte or two put in, taken out or exchanged."""
    for _ in range(rng.choice((1, 1, 1, 2))):
        at = rng.randint(0, len(line))
        gone, new = rng.choice(((0, 1), (1, 0), (1, 1), (1, 1), (2, 0)))
        line = line[:at] + bytes(rng.choices(BYTES, k=new)) + line[at + gone :]
    return line.replace(b"\n", b"")


def cut_short(rng: Random, _parts: Parts, _item: str, _colon: str, line: bytes, last: bytes) -> bytes:
    """A part of a line; or of the one before, with the rest of this one, as two writers of one file make them."""
    at = rng.randint(0, len(line))
    return rng.choice((line[:at], line[at:], last[:at] + line[at:], line + line[:at], line + last))


def last_but_one_byte(rng: Random, _parts: Parts, _item: str, _colon: str, _line: bytes, last: bytes) -> bytes:
    at = rng.randint(0, max(0, len(last) - 1))
    return (last[:at] + bytes(rng.choices(BYTES, k=1)) + last[at + 1 :]).replace(b"\n", b"")


def long_line(rng: Random, parts: Parts, item: str, colon: str, _line: bytes, _last: bytes) -> bytes:
    size = rng.choice((200, 1000, 5000, 70_000))
    more = rng.choice(
        ('"' + "z" * size + '"', "[" + item.join(["1"] * (size // 2)) + "]", '"' + "\\n\u00e9" * (size // 4) + '"')
    )
    at = rng.randint(0, len(parts))
    return joined([*parts[:at], ('"x"', more), *parts[at:]], item, colon)


def no_object(rng: Random, _parts: Parts, _item: str, _colon: str, line: bytes, _last: bytes) -> bytes:
    return rng.choice(
        (b"", b"[" + line + b"]", b"null", b"{}", b"[" * 129, b"\xef\xbb\xbf" + line, b"#" + line, line[1:-1])
    )


MISCHIEFS: tuple[Mischief, ...] = (
    another_value,
    another_value,
    another_element,
    another_element,
    another_key,
    another_order,
    one_key_more,
    one_key_more,
    one_key_less,
    spread_out,
    damaged,
    damaged,
    damaged,
    cut_short,
    last_but_one_byte,
    last_but_one_byte,
    long_line,
    no_object,
)


def packed(rng: Random, text: bytes) -> bytes:
    """A log as gzip: whole, in several members, cut off or damaged."""
    at = rng.randint(0, len(text))
    content = rng.choice((gzip.compress(text), gzip.compress(text[:at]) + gzip.compress(text[at:])))
    choice = rng.random()
    if choice < 0.3:
        return content[: rng.randint(3, len(content))]
    if choice < 0.5:
        at = rng.randint(10, len(content) - 1)
        return content[:at] + bytes([content[at] ^ (1 << rng.randint(0, 7))]) + content[at + 1 :]
    return content
