"""Bytes of a log to lines, and lines to records; what cannot be read is told by its reason, and the rest is read on.

The reasons are checked in the order of `docs/formats.md`, and so are the fields: the first that holds decides.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokenpulse.model import STATUSES

BOM = b"\xef\xbb\xbf"
"""What some editors put at the beginning of a text; nowhere else it is one of ours."""
MAX_LINE = 64 * 1024 * 1024
MAX_DEPTH = 128
MAX_TIME = 2**63 - 1
MAX_TOKENS = 2**40
MAX_EMITTED = 2**32 - 1
GIVEN_STATUSES = frozenset(STATUSES) - {"lost"}

REQUEST_EVENTS = ("arrive", "schedule", "prefill", "tokens", "preempt", "resume", "end")
OTHER_EVENTS = ("gauge", "add", "count", "kv_store", "kv_evict", "kv_lookup", "kv_clear", "ready")


class FormatError(ValueError):
    """No line of this input is one of ours."""


class Skip(Exception):  # noqa: N818 - it is no error: the rest is read on
    """A line that cannot be read, and the reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event as it happens. An event of no request has no `id`."""

    kind: str
    t_ns: int
    id: str = ""
    prompt_tokens: int = 0
    labels: Mapping[str, str] | None = None
    k: int = 1
    status: str = ""
    degraded: bool = False
    oom_events: int | None = None
    """Of a `count` line: how often memory ran out, where it tells that."""


@dataclass(frozen=True, slots=True)
class RequestLine:
    """A finished request. `output_tokens` is None where the emissions tell it.

    Only a row of columns has `output_tokens` beside emissions, a `status` of None (it is in flight) or `lost`.
    """

    id: str
    arrive_ns: int
    schedule_ns: int | None
    prefill_ns: int | None
    emissions: tuple[tuple[int, int], ...]
    output_tokens: int | None
    first_token_ns: int | None
    last_token_ns: int | None
    preempt_ns: tuple[int, ...]
    resume_ns: tuple[int, ...]
    end_ns: int | None
    status: str | None
    degraded: bool
    prompt_tokens: int
    labels: Mapping[str, str]


# Bytes to lines


def uncompressed(content: bytes) -> tuple[bytes, bool]:
    """The plain bytes, gzip told by its first two bytes; and whether the compressed ones end early or are damaged.

    Then the last line, if it has no end, is left out: nothing says that it is whole.
    """
    if not content.startswith(b"\x1f\x8b"):
        return content, False
    plain = bytearray()
    while content:
        member = zlib.decompressobj(wbits=31)
        try:
            for at in range(len(content)):  # byte by byte, so that all that comes before the damage is kept
                plain += member.decompress(content[at : at + 1])
                if member.eof:
                    content = content[at + 1 :].lstrip(b"\0")  # zeros may pad a member
                    break
        except zlib.error:
            pass
        if not member.eof:
            return bytes(plain[: plain.rfind(b"\n") + 1]), True
    return bytes(plain), False


def lines_of(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip(b" \t\r"):
            yield number, line


# A line to an object


def is_too_deep(text: str) -> bool:
    depth, in_string, escaped = 0, False, False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif char in "]}":
            depth -= 1
    return False


class Written(int):
    """An integer that knows how it was written. One too long for `int` is as one that is out of every range."""

    text: str

    def __new__(cls, text: str) -> Written:
        number = super().__new__(cls, text if len(text) <= 1000 else text[:1] + "9" * 999)
        number.text = text
        return number


def parse_object(line: bytes) -> dict[str, Any]:
    """The object of a line, without its nulls: a null is an absent field."""
    if len(line) > MAX_LINE:
        raise Skip("too_long", f"a line has at most {MAX_LINE} bytes, got {len(line)}")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise Skip("not_utf8", str(error)) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and is_too_deep(text):
        raise Skip("too_deep", f"nested deeper than {MAX_DEPTH}")
    try:
        parsed = json.loads(text, parse_int=Written)
    except ValueError as error:
        raise Skip("not_json", str(error)) from None
    if not isinstance(parsed, dict):
        raise Skip("not_object", f"a line must be an object, got {type(parsed).__name__}")
    return {key: value for key, value in parsed.items() if value is not None}


def is_event(fields: Mapping[str, Any]) -> bool:
    return "ev" in fields


def is_request(fields: Mapping[str, Any]) -> bool:
    return "ev" not in fields and ("arrive_ns" in fields or "arrival_mono_ns" in fields)


# Fields


def wrong_type(name: str, wanted: str, value: object) -> Skip:
    return Skip("wrong_type", f"{name} must be {wanted}, got {value!r:.60}")


def whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(name, "an integer", value)
    if isinstance(value, float) and not value.is_integer():
        raise wrong_type(name, "an integer", value)
    return int(value)


def number(name: str, value: object, least: int, most: int) -> int:
    n = whole(name, value)
    if not least <= n <= most:
        raise Skip("bad_value", f"{name} must be between {least} and {most}, got {n if abs(n) < 2**70 else 'more'}")
    return n


def time(name: str, value: object) -> int:
    return number(name, value, 0, MAX_TIME)


def tokens(name: str, value: object) -> int:
    return number(name, value, 0, MAX_TOKENS)


def identity(name: str, value: object) -> str:
    """A string, or the digits of an integer: a float is neither, integral or not."""
    if isinstance(value, str):
        return without_halves(value)
    if not isinstance(value, Written):
        raise wrong_type(name, "a string or an integer", value)
    return value.text


def without_halves(text: str) -> str:
    """Half of a surrogate pair, which an escape may give, is no character."""
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(name, "a boolean", value)
    return value


def ending(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise wrong_type(name, "a string", value)
    if value not in GIVEN_STATUSES:
        raise Skip("bad_value", f"{name} must be one of {', '.join(STATUSES[:-1])}, got {value!r:.60}")
    return value


def label_map(name: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise wrong_type(name, "an object", value)
    labels = {}
    for key, label in value.items():
        if isinstance(label, bool):
            labels[without_halves(key)] = "true" if label else "false"
        elif label is not None:
            labels[without_halves(key)] = identity(f"{name}.{key}", label)
    return labels


def array(name: str, value: object, element: Callable[[str, object], int]) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise wrong_type(name, "an array", value)
    return tuple(element(name, each) for each in value)


def times(name: str, value: object) -> tuple[int, ...]:
    return array(name, value, time)


def emitted(name: str, value: object) -> int:
    return number(name, value, 1, MAX_EMITTED)


def offset(name: str, value: object) -> int:
    return number(name, value, -MAX_TIME - 1, MAX_TIME)


def sizes(name: str, value: object) -> tuple[int, ...]:
    return array(name, value, emitted)


class Fields:
    """The fields of one line, read in the order in which they are asked for."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def needed(self, read: Callable[[str, object], Any], *names: str) -> Any:
        """The first of these names that is present; the line is refused if none is."""
        for name in names:
            if name in self._fields:
                return read(name, self._fields[name])
        raise Skip("missing_field", f"{names[0]} is absent")

    def given(self, read: Callable[[str, object], Any], *names: str, default: Any = None) -> Any:
        return self.needed(read, *names) if any(name in self._fields for name in names) else default

    def __contains__(self, name: str) -> bool:
        return name in self._fields


# An object to a record


def record_of(fields: Mapping[str, Any]) -> EventLine | RequestLine:
    """The record of an object; raises Skip with the reason if there is none."""
    if is_event(fields):
        return event_line(fields["ev"], Fields(fields))
    if is_request(fields):
        return request_line(Fields(fields))
    raise Skip("unknown_kind", "neither ev nor arrive_ns")


def event_line(kind: object, fields: Fields) -> EventLine:
    if kind not in (*REQUEST_EVENTS, *OTHER_EVENTS):
        raise Skip("unknown_kind", f"ev must be one of {', '.join((*REQUEST_EVENTS, *OTHER_EVENTS))}, got {kind!r:.60}")
    kind = str(kind)
    t_ns = fields.needed(time, "t_ns")
    if kind in OTHER_EVENTS:
        return EventLine(kind, t_ns, oom_events=oom_events_of(fields) if kind == "count" else None)
    name = fields.needed(identity, "id")
    if kind == "arrive":
        prompt_tokens = fields.given(tokens, "prompt_tokens", default=0)
        return EventLine(kind, t_ns, name, prompt_tokens, fields.given(label_map, "labels", default={}))
    if kind == "tokens":
        return EventLine(kind, t_ns, name, k=fields.given(emitted, "k", default=1))
    if kind == "end":
        status = fields.needed(ending, "status")
        return EventLine(kind, t_ns, name, status=status, degraded=fields.given(flag, "degraded", default=False))
    return EventLine(kind, t_ns, name)


def oom_events_of(fields: Fields) -> int | None:
    """How often memory ran out, by a `count` line; None if it counts something else, or does not say how often."""
    try:
        name: str = fields.needed(lambda _, value: value if isinstance(value, str) else "", "name")
        n: int = fields.given(tokens, "n", default=1)
    except Skip:
        return None
    return n if name == "oom_event" else None


def request_line(fields: Fields) -> RequestLine:
    name = fields.needed(identity, "id")
    arrive_ns = fields.needed(time, "arrive_ns", "arrival_mono_ns")
    schedule_ns = fields.given(time, "schedule_ns")
    prefill_ns = fields.given(time, "prefill_ns")
    emissions: tuple[tuple[int, int], ...] = ()
    output_tokens = first_token_ns = last_token_ns = None
    if "token_ns" in fields or "dt_ns" in fields:
        emissions = emissions_of(fields, arrive_ns)
    else:
        fields.given(sizes, "n")  # of no emission, yet a field of this kind of line
        output_tokens = fields.given(tokens, "output_tokens", default=0)
        first_token_ns = fields.given(time, "first_token_ns")
        last_token_ns = fields.given(time, "last_token_ns")
    return RequestLine(
        id=name,
        arrive_ns=arrive_ns,
        schedule_ns=schedule_ns,
        prefill_ns=prefill_ns,
        emissions=emissions,
        output_tokens=output_tokens,
        first_token_ns=first_token_ns,
        last_token_ns=last_token_ns,
        preempt_ns=fields.given(times, "preempt_ns", default=()),
        resume_ns=fields.given(times, "resume_ns", default=()),
        end_ns=fields.given(time, "end_ns"),
        status=fields.given(ending, "status", default="stop"),
        degraded=fields.given(flag, "degraded", default=False),
        prompt_tokens=fields.given(tokens, "prompt_tokens", "ctx", default=0),
        labels=fields.given(label_map, "labels", default={}),
    )


def emissions_of(fields: Fields, arrive_ns: int) -> tuple[tuple[int, int], ...]:
    """Time and number of tokens of each emission."""
    if "token_ns" in fields:
        at = fields.needed(times, "token_ns")
    else:
        # All must be whole numbers before any leaves the range of times.
        offsets = fields.needed(lambda name, value: array(name, value, offset), "dt_ns")
        at = tuple(time("dt_ns", arrive_ns + offset) for offset in offsets)
    n = fields.given(sizes, "n", default=(1,) * len(at))
    if len(n) != len(at):
        raise Skip("length_mismatch", f"n must have {len(at)} elements, got {len(n)}")
    return tuple(zip(at, n, strict=True))
