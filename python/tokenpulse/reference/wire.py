"""The bytes of a sketch: an OTLP `ExponentialHistogramDataPoint`, written and read by hand.

The writer is canonical: one sketch has one encoding. The reader takes any protobuf of that message, in any field order,
and skips fields it does not know; it holds no more than its input, which is at most 128 KiB, and fails with
`DecodeError` alone.

Source: opentelemetry-proto, `metrics/v1/metrics.proto` and `common/v1/common.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tokenpulse.model import ITL_RULES
from tokenpulse.reference.buckets import HIGH_EXPONENT, LOW_EXPONENT, MAX_SCALE, REASONS

MAX_BYTES = 128 * 1024
ZERO_THRESHOLD = 2.0**LOW_EXPONENT

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Attributes = dict[str, str | int | None]


class DecodeError(ValueError):
    """These bytes are no sketch."""


@dataclass
class Point:
    """What the bytes say. `counts` holds the overflow count under the index after the last."""

    scale: int
    count: int
    zero_count: int
    counts: dict[int, int]
    sum_ns: int
    min_ns: int | None
    max_ns: int | None
    itl_rule: str | None
    rejected: dict[str, int] = field(default_factory=dict)


# Writing


def varint(n: int) -> bytes:
    """Seven bits a byte, lowest first; a negative number as its 64-bit two's complement.

    >>> varint(300).hex()
    'ac02'
    """
    n &= 2**64 - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def zigzag(n: int) -> bytes:
    return varint(2 * n if n >= 0 else -2 * n - 1)


def tagged(number: int, kind: int, body: bytes) -> bytes:
    return varint(number << 3 | kind) + (varint(len(body)) + body if kind == BYTES else body)


def attribute(key: str, value: str | int) -> bytes:
    """A `KeyValue`. The value is a oneof, so 0 is written out."""
    any_value = tagged(1, BYTES, value.encode()) if isinstance(value, str) else tagged(3, VARINT, varint(value))
    return tagged(1, BYTES, tagged(1, BYTES, key.encode()) + tagged(2, BYTES, any_value))


def encode(point: Point) -> bytes:
    out = attribute("tokenpulse.version", 1) + attribute("tokenpulse.sum_ns", str(point.sum_ns))
    if point.min_ns is not None and point.max_ns is not None:
        out += attribute("tokenpulse.min_ns", point.min_ns) + attribute("tokenpulse.max_ns", point.max_ns)
    if point.itl_rule is not None:
        out += attribute("tokenpulse.itl_rule", point.itl_rule)
    for reason in REASONS:
        if point.rejected.get(reason):
            out += attribute(f"tokenpulse.rejected.{reason}", point.rejected[reason])
    if point.count:
        out += tagged(4, FIXED64, struct.pack("<Q", point.count))
    out += tagged(5, FIXED64, struct.pack("<d", float(point.sum_ns) / 1e9))
    if point.scale:
        out += tagged(6, VARINT, zigzag(point.scale))
    if point.zero_count:
        out += tagged(7, FIXED64, struct.pack("<Q", point.zero_count))
    if point.counts:
        first, last = min(point.counts), max(point.counts)
        packed = b"".join(varint(point.counts.get(i, 0)) for i in range(first, last + 1))
        offset = tagged(1, VARINT, zigzag(first)) if first else b""
        out += tagged(8, BYTES, offset + tagged(2, BYTES, packed))
    if point.min_ns is not None and point.max_ns is not None:
        out += tagged(12, FIXED64, struct.pack("<d", float(point.min_ns) / 1e9))
        out += tagged(13, FIXED64, struct.pack("<d", float(point.max_ns) / 1e9))
    return out + tagged(14, FIXED64, struct.pack("<d", ZERO_THRESHOLD))


# Reading


def read_varint(encoded: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    n = 0
    for step in range(10):
        if at + step >= len(encoded):
            raise DecodeError("the bytes end inside a number")
        byte = encoded[at + step]
        n |= (byte & 127) << 7 * step
        if byte < 128:
            if n >= 2**64:
                break
            return n, at + step + 1
    raise DecodeError("a number is longer than 64 bits")


def unzigzag(n: int) -> int:
    """A sint32; what is over 32 bits is far out of every range here and left so."""
    return n >> 1 ^ -(n & 1)


def signed(n: int) -> int:
    return n - 2**64 if n >= 2**63 else n


class Field(NamedTuple):
    """A field of a message: a number, or the bytes it holds."""

    tag: int
    kind: int
    number: int
    body: bytes

    def expect(self, kind: int) -> None:
        if self.kind != kind:
            raise DecodeError(f"field {self.tag} must have wire type {kind}, got {self.kind}")

    def as_number(self) -> int:
        self.expect(VARINT)
        return self.number

    def as_bytes(self) -> bytes:
        self.expect(BYTES)
        return self.body

    def as_fixed64(self) -> bytes:
        self.expect(FIXED64)
        return self.body

    def as_text(self) -> str:
        try:
            return self.as_bytes().decode()
        except UnicodeDecodeError:
            raise DecodeError("a string must be UTF-8") from None


def fields(encoded: bytes) -> Iterator[Field]:
    at = 0
    while at < len(encoded):
        key, at = read_varint(encoded, at)
        tag, kind = key >> 3, key & 7
        if not 1 <= tag < 2**29:
            raise DecodeError(f"a field number must be between 1 and 2^29 - 1, got {tag}")
        if kind == VARINT:
            number, at = read_varint(encoded, at)
            yield Field(tag, kind, number, b"")
            continue
        if kind == BYTES:
            length, at = read_varint(encoded, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise DecodeError(f"a wire type must be 0, 1, 2 or 5, got {kind}")
        if at + length > len(encoded):
            raise DecodeError("the bytes end inside a field")
        yield Field(tag, kind, 0, encoded[at : at + length])
        at += length


def read_attribute(encoded: bytes) -> tuple[str, str | int | None]:
    """A `KeyValue`; None for a value that is neither a string nor an integer."""
    name, any_value = "", b""
    for each in fields(encoded):
        if each.tag == 1:
            name = each.as_text()
        elif each.tag == 2:
            any_value = each.as_bytes()
    value: str | int | None = None
    for each in fields(any_value):
        value = each.as_text() if each.tag == 1 else signed(each.as_number()) if each.tag == 3 else None
    return name, value


def read_buckets(encoded: bytes) -> tuple[int, list[int]]:
    """Offset and counts; the counts packed, or one a field."""
    offset, counts = 0, []
    for each in fields(encoded):
        if each.tag == 1:
            offset = unzigzag(each.as_number())
        elif each.tag == 2 and each.kind == VARINT:
            counts.append(each.number)
        elif each.tag == 2:
            packed, at = each.as_bytes(), 0
            while at < len(packed):
                count, at = read_varint(packed, at)
                counts.append(count)
    return offset, counts


def decode(encoded: bytes) -> Point:
    """Reads a point. Whether its figures fit each other is the sketch's to judge."""
    if len(encoded) > MAX_BYTES:
        raise DecodeError(f"a sketch has at most {MAX_BYTES} bytes, got {len(encoded)}")
    attributes: Attributes = {}
    count = zero_count = scale = offset = 0
    threshold = 0.0
    counts: list[int] = []
    for each in fields(encoded):
        match each.tag:
            case 1:
                key, value = read_attribute(each.as_bytes())
                attributes[key] = value
            case 4:
                count = int.from_bytes(each.as_fixed64(), "little")
            case 6:
                scale = unzigzag(each.as_number())
            case 7:
                zero_count = int.from_bytes(each.as_fixed64(), "little")
            case 8:
                offset, counts = read_buckets(each.as_bytes())
            case 9:
                if any(read_buckets(each.as_bytes())[1]):
                    raise DecodeError("a duration is not negative, got negative buckets")
            case 14:
                (threshold,) = struct.unpack("<d", each.as_fixed64())
    if not 0 <= scale <= MAX_SCALE:
        raise DecodeError(f"scale must be between 0 and {MAX_SCALE}, got {scale}")
    if threshold != ZERO_THRESHOLD:
        raise DecodeError(f"zero_threshold must be 2^-20, got {threshold}")
    if counts and not LOW_EXPONENT << scale <= offset <= (HIGH_EXPONENT << scale) + 1 - len(counts):
        raise DecodeError(f"buckets must lie between 2^{LOW_EXPONENT} and 2^{HIGH_EXPONENT} s")
    if count >= 2**63:
        raise DecodeError(f"count must be below 2^63, got {count}")
    version = attributes.get("tokenpulse.version")
    if version != 1:
        raise DecodeError(f"tokenpulse.version must be 1, got {version!r}")
    refusals = {reason: integer(attributes, f"tokenpulse.rejected.{reason}") for reason in REASONS}
    return Point(
        scale=scale,
        count=count,
        zero_count=zero_count,
        counts={offset + step: n for step, n in enumerate(counts) if n},
        sum_ns=decimal(attributes, "tokenpulse.sum_ns"),
        min_ns=integer(attributes, "tokenpulse.min_ns"),
        max_ns=integer(attributes, "tokenpulse.max_ns"),
        itl_rule=rule_of(attributes, "tokenpulse.itl_rule"),
        rejected={reason: n for reason, n in refusals.items() if n},
    )


def integer(attributes: Attributes, key: str) -> int | None:
    if key not in attributes:
        return None
    value = attributes[key]
    if not isinstance(value, int) or value < 0:
        raise DecodeError(f"{key} must be an integer of at least 0, got {value!r}")
    return value


def decimal(attributes: Attributes, key: str) -> int:
    value = attributes.get(key)
    if not (isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 39):
        raise DecodeError(f"{key} must be a decimal number, got {value!r}")
    return int(value)


def rule_of(attributes: Attributes, key: str) -> str | None:
    if key not in attributes:
        return None
    value = attributes[key]
    if not isinstance(value, str) or value not in ITL_RULES:
        raise DecodeError(f"{key} must be one of {', '.join(ITL_RULES)}, got {value!r}")
    return value
