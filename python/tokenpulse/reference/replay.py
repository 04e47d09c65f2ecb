"""A log through a meter: each line as the call that an engine would have made.

Times stand for the clock. Before the first line at or past a multiple of a width is applied, `on_pane` is told of that
moment. A log that begins with a request line is held whole, and gone through in the order of its times; any other is
applied as its lines come.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tokenpulse.model import LENGTH_KEYS
from tokenpulse.reference import columns as rows
from tokenpulse.reference import log
from tokenpulse.reference.clock import HOUR_NS
from tokenpulse.reference.gauges import GAUGES
from tokenpulse.reference.inputs import NOTICES, merged_events
from tokenpulse.reference.kv import TIERS
from tokenpulse.reference.log import EventLine, Fields, FormatError, RequestLine, Skip
from tokenpulse.reference.meter import INCREMENTS, TOKEN_COUNTS, WHOLE_INCREMENTS, Meter
from tokenpulse.reference.scopes import EVENTS
from tokenpulse.reference.window import Horizon

OnPane = Callable[[int], object]
NO_TIER = "another"


@dataclass(frozen=True, slots=True)
class EngineLine:
    """What an engine tells of itself: the call that says it, and for `ready` the machine's numbers."""

    kind: str
    t_ns: int
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bearing:
    """What a request bears when it arrives."""

    prompt_tokens: int
    cached_tokens: int
    cls: int


Line = EventLine | RequestLine | EngineLine


# Lines


def amount(name: str, value: object) -> int:
    return log.number(name, value, 0, log.MAX_TIME)


def at_least_one(name: str, value: object) -> int:
    return log.number(name, value, 1, log.MAX_TIME)


def any_integer(name: str, value: object) -> int:
    return log.number(name, value, -log.MAX_TIME - 1, log.MAX_TIME)


def as_float(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise log.wrong_type(name, "a number", value)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def fraction(name: str, value: object) -> float:
    """An amount that need not be whole."""
    if isinstance(value, int) and not isinstance(value, bool) and value <= log.MAX_TIME:
        return amount(name, value)
    number = as_float(name, value)
    if not 0 <= number < 2.0**63:
        raise Skip("bad_value", f"{name} must be at least 0 and below 2^63, got {number}")
    return number


def rate(name: str, value: object) -> float:
    number = as_float(name, value)
    if not 0 < number < math.inf:
        raise Skip("bad_value", f"{name} must be above 0 and finite, got {number}")
    return number


def counted(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise log.wrong_type(name, "a string", value)
    if value not in EVENTS + TOKEN_COUNTS:
        raise Skip("bad_value", f"{name} must be one of {', '.join(EVENTS + TOKEN_COUNTS)}, got {value!r:.60}")
    return value


def tier(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise log.wrong_type(name, "a string", value)
    return value if value in TIERS else NO_TIER


def hashes(name: str, value: object) -> list[int]:
    """Integers of 64 bits, signed or not, also as strings."""
    if not isinstance(value, list):
        raise log.wrong_type(name, "an array", value)
    found = []
    for each in value:
        text = each if isinstance(each, str) else each.text if isinstance(each, log.Written) else ""
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            raise log.wrong_type(name, "an array of integers", each)
        if len(digits.lstrip("0")) > 20 or not -(2**63) <= int(text) < 2**64:
            raise Skip("bad_value", f"{name} must fit 64 bits, got {text:.60}")
        found.append(int(text))
    return found


def blocks(fields: Fields) -> dict[str, Any]:
    return {
        "hashes": fields.needed(hashes, "hashes"),
        "tier": fields.given(tier, "tier", default="gpu"),
        "group": fields.given(any_integer, "group", default=0),
    }


def engine_line(kind: str, fields: Fields) -> EngineLine:
    """A line without a request, in full; its fields are checked in the order of the documentation."""
    t_ns = fields.needed(log.time, "t_ns")
    named: dict[str, Any]
    match kind:
        case "gauge":
            named = {name: fields.given(amount, name) for name in GAUGES}
        case "add":
            readers = {name: amount if name in WHOLE_INCREMENTS else fraction for name in INCREMENTS}
            named = {name: fields.given(read, name) for name, read in readers.items()}
        case "count":
            named = {"name": fields.needed(counted, "name"), "n": fields.given(log.tokens, "n", default=1)}
        case "kv_store" | "kv_evict":
            named = blocks(fields)
        case "kv_lookup":
            named = {
                "queried_tokens": fields.needed(any_integer, "queried"),
                "hit_tokens": fields.needed(any_integer, "hit"),
                "preempted": fields.given(log.flag, "preempted", default=False),
            }
        case "ready":
            named = {name: fields.given(rate, name) for name in ("peak_flops", "bandwidth_bytes_per_second")}
            named |= {name: fields.given(at_least_one, name) for name in ("kv_block_tokens", "gpus")}
        case _:
            named = {}
    return EngineLine(kind, t_ns, {name: value for name, value in named.items() if value is not None})


def line_of(fields: Mapping[str, Any]) -> tuple[Line, int]:
    """The record of an object, and its cached tokens; raises Skip with the reason if there is none."""
    kind = fields.get("ev")
    if log.is_event(fields) and kind in log.OTHER_EVENTS:
        return engine_line(str(kind), Fields(fields)), 0
    cached_tokens, fault = 0, None
    try:
        cached_tokens = Fields(fields).given(log.tokens, "cached_tokens", default=0)
    except Skip as skip:
        fault = skip
    # Cached tokens come between prompt tokens and labels, the last field of all.
    without_labels = log.record_of({name: value for name, value in fields.items() if name != "labels"})
    is_arrival = isinstance(without_labels, RequestLine) or without_labels.kind == "arrive"
    if fault is not None and is_arrival:
        raise fault
    return log.record_of(fields), cached_tokens


# Moments


class Moments:
    """The times of the lines so far, and the moments that come between."""

    def __init__(self, every_ns: int) -> None:
        if every_ns < 1:
            raise ValueError(f"every_ns must be at least 1, got {every_ns}")
        self.every_ns = every_ns
        self.horizon = Horizon()
        self.first_ns: int | None = None
        self.told_ns: int | None = None

    def read(self, t_ns: int) -> Iterator[int] | None:
        """The moments before a time; None where it is refused as one too far ahead.

        >>> moments = Moments(10)
        >>> [list(moments.read(t)) for t in (5, 20, 20, 35, 12)]
        [[], [10, 20], [], [30], []]
        """
        before_ns = self.horizon.newest_ns
        if not self.horizon.admits(t_ns):
            return None
        self.horizon.accept(t_ns)
        self.first_ns = t_ns if self.first_ns is None else min(self.first_ns, t_ns)
        if before_ns is None:
            return iter(())
        until_ns = min(t_ns, before_ns + HOUR_NS)
        return iter(range((before_ns // self.every_ns + 1) * self.every_ns, until_ns + 1, self.every_ns))

    @property
    def newest_ns(self) -> int | None:
        return self.horizon.newest_ns


# Acts of a finished request


@dataclass(frozen=True, slots=True)
class Act:
    """What happens to a request after its arrival: a call of the meter and its arguments, or `first` or `end`."""

    not_before_ns: int
    t_ns: int
    kind: str
    n: int = 1


def acts_of(record: RequestLine) -> Iterator[Act]:
    """The acts of a request line, each no earlier than those before it.

    Of tokens without times the first is one emission and all others are another; where the last has no time, they are
    counted by name, and of the first there is TTFT alone. Chunks of unknown sizes bring equal shares, rounded up so
    that the first has a token.
    """
    newest_ns = record.arrive_ns
    for t_ns, kind, n in untimed_acts(record):
        newest_ns = max(newest_ns, t_ns)
        yield Act(newest_ns, t_ns, kind, n)
    if record.status is not None:
        end_ns = None if record.status == "lost" else record.end_ns
        at_ns = newest_ns if end_ns is None else end_ns
        yield Act(max(newest_ns, at_ns), at_ns, "end_untimed" if end_ns is None else "end")


def untimed_acts(record: RequestLine) -> Iterator[tuple[int, str, int]]:
    given, m = record.output_tokens, len(record.emissions)
    before = [-(-j * (given or 0) // m) for j in range(m + 1)] if m else []
    shares = iter([after - this for this, after in pairwise(before)])
    first_ns, last_ns = record.first_token_ns, record.last_token_ns
    at_first = {"first": [("tokens", 1)], "last": [("tokens", (given or 0) - 1)]}
    if given == 1 and first_ns is not None:
        at_first["last"] = []
    elif first_ns is None or last_ns is None:
        at_first = {"first": [("first_token", 1), ("count", given or 0)], "last": [("count", given or 0)]}
    if given and not m and first_ns is None and last_ns is None:
        # Of no time at all: where the request ends, in the place of an emission.
        at_ns = record.arrive_ns if record.end_ns is None else record.end_ns
        stand_in = replaced(record, last_token_ns=at_ns)
    else:
        stand_in = record
    for event in merged_events(stand_in):
        if event.kind in at_first:
            for kind, n in at_first[event.kind]:
                yield event.t_ns, kind, n
        elif event.kind == "tokens":
            n = next(shares) if given is not None else event.k
            if n:
                yield event.t_ns, "tokens", n
        else:
            yield event.t_ns, event.kind, 1


def replaced(record: RequestLine, **fields: Any) -> RequestLine:
    names = RequestLine.__dataclass_fields__
    return RequestLine(**{name: getattr(record, name) for name in names} | fields)


# Replaying


class Replay:
    """A meter, and the ids of the requests in flight."""

    def __init__(self, meter: Meter, every_ns: int, by: Sequence[str], on_pane: OnPane) -> None:
        if LENGTH_KEYS[1] in by:
            raise ValueError(f"by must be prompt_length and labels, got {LENGTH_KEYS[1]}")
        self.meter = meter
        self.by = by
        self.on_pane = on_pane
        self.moments = Moments(every_ns)
        self.handles: dict[str, int] = {}
        self.requests = 0
        self.machine: dict[str, float] = {}

    def at(self, t_ns: int) -> bool:
        """An event of this time comes next: the moments before it are told. Whether it is a time at all."""
        moments = self.moments.read(t_ns)
        for moment in moments or ():
            self.moments.told_ns = moment
            self.on_pane(moment)
        return moments is not None

    def finish(self) -> None:
        newest_ns, told_ns = self.moments.newest_ns, self.moments.told_ns
        if newest_ns is not None and (told_ns is None or newest_ns > told_ns):
            self.on_pane(newest_ns)

    def bearing(self, record: EventLine | RequestLine, cached_tokens: int) -> Bearing:
        labels = {name: value for name, value in (record.labels or {}).items() if name in self.by}
        labels.pop(LENGTH_KEYS[0], None)
        length = record.prompt_tokens if LENGTH_KEYS[0] in self.by else None
        cls = self.meter.classify(length, **labels)
        return Bearing(record.prompt_tokens, cached_tokens, cls)

    def arrive(self, t_ns: int, bearing: Bearing) -> int | None:
        handle = self.meter.arrive(t_ns, bearing.prompt_tokens, bearing.cached_tokens, bearing.cls)
        self.requests += handle >= 0
        return handle if handle >= 0 else None

    def is_free(self, name: str, t_ns: int) -> bool:
        return name not in self.handles or self.meter.is_free(t_ns, self.handles[name])

    def take_event(self, line: EventLine, bearing: Bearing | None) -> None:
        self.at(line.t_ns)
        t_ns, handle = line.t_ns, self.handles.get(line.id, -1)
        if bearing is not None:
            if self.is_free(line.id, t_ns):
                arrived = self.arrive(t_ns, bearing)
                if arrived is not None:
                    self.handles[line.id] = arrived
        elif line.kind == "tokens":
            self.meter.tokens(t_ns, handle, line.k)
        elif line.kind == "end":
            self.meter.end(t_ns, handle, line.status, line.degraded)
            if not self.meter.is_in_flight(handle):
                self.handles.pop(line.id, None)
        else:
            getattr(self.meter, line.kind)(t_ns, handle)

    def take_engine(self, line: EngineLine) -> None:
        self.at(line.t_ns)
        if line.kind == "ready":
            self.machine |= line.arguments
            self.meter.ready(line.t_ns)
        elif not line.kind.startswith("kv_"):
            getattr(self.meter, line.kind)(line.t_ns, **line.arguments)
        elif self.meter.kv is not None:
            getattr(self.meter.kv, line.kind.removeprefix("kv_"))(line.t_ns, **line.arguments)

    def start(self, record: RequestLine, bearing: Bearing, name: str | None = None) -> Whole | None:
        """A request whose events are all known arrives; None if it is refused, and its events with it.

        Of a name that is in flight, if one is given, it is refused.
        """
        self.at(record.arrive_ns)
        if name is not None and not self.is_free(name, record.arrive_ns):
            return None
        handle = self.arrive(record.arrive_ns, bearing)
        return None if handle is None else Whole(self, record, bearing, handle)


class Whole:
    """A request whose events are all known, and the last time of it that was one."""

    def __init__(self, replay: Replay, record: RequestLine, bearing: Bearing, handle: int) -> None:
        self.replay = replay
        self.record = record
        self.bearing = bearing
        self.handle = handle
        self.newest_ns = record.arrive_ns
        self.acts = list(acts_of(record))

    def take(self, act: Act) -> None:
        t_ns, meter = act.t_ns, self.replay.meter
        if act.kind == "end_untimed":
            t_ns = self.newest_ns
        if self.replay.at(t_ns):
            self.newest_ns = max(self.newest_ns, t_ns)
        match act.kind:
            case "tokens":
                meter.tokens(t_ns, self.handle, act.n)
            case "first_token":
                if t_ns >= self.record.arrive_ns:
                    ttft_ns = t_ns - self.record.arrive_ns
                    meter.observe("ttft", [ttft_ns], unit="ns", cls=self.bearing.cls, t=t_ns)
            case "count":
                meter.count(t_ns, "output_tokens", act.n, self.bearing.cls)
            case "end" | "end_untimed" if self.record.status == "lost":
                meter.lose(t_ns, self.handle)
            case "end" | "end_untimed":
                meter.end(t_ns, self.handle, str(self.record.status), self.record.degraded)
            case kind:
                getattr(meter, kind)(t_ns, self.handle)


Told = tuple[Line, Bearing | None]


def play(replay: Replay, lines: Iterable[Told]) -> None:
    """Lines in the order of their times, and the acts of requests between them; ties in the order of the lines."""
    pending: list[tuple[int, int, int, Any]] = []
    for number, (line, bearing) in enumerate(lines):
        t_ns = line.arrive_ns if isinstance(line, RequestLine) else line.t_ns
        pending.append((t_ns, number, 0, (line, bearing)))
    while pending:
        at = min(range(len(pending)), key=lambda place: pending[place][:3])
        _, number, step, what = pending.pop(at)
        if isinstance(what, Whole):
            whole = what
            whole.take(whole.acts[step - 1])
        else:
            line, bearing = what
            if not isinstance(line, RequestLine):
                take_line(replay, line, bearing)
                continue
            started = replay.start(line, bearing)
            if started is None:
                continue
            whole = started
        if step < len(whole.acts):
            pending.append((whole.acts[step].not_before_ns, number, step + 1, whole))


def take_line(replay: Replay, line: Line, bearing: Bearing | None) -> None:
    """A line as it comes."""
    if isinstance(line, EngineLine):
        replay.take_engine(line)
    elif isinstance(line, EventLine):
        replay.take_event(line, bearing)
    elif bearing is not None:
        whole = replay.start(line, bearing, line.id)
        if whole is not None:
            for act in whole.acts:
                whole.take(act)


class Input:
    """What is known of the lines."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines = 0
        self.kinds: set[str] = set()
        self.skipped: Counter[str] = Counter()
        self.notices: list[dict[str, Any]] = []

    def skip(self, number: int, skip: Skip) -> None:
        self.skipped[skip.reason] += 1
        if len(self.notices) < NOTICES:
            notice = {"path": self.name, "line": number, "reason": skip.reason, "message": str(skip)}
            self.notices.append(notice)

    def result(self, replay: Replay, given_format: str | None = None) -> dict[str, Any]:
        own = "tokenpulse-mixed" if len(self.kinds) == 2 else f"tokenpulse-{min(self.kinds, default='')}"
        one = {
            "path": self.name,
            "format": given_format or (own if self.kinds else "empty"),
            "lines": self.lines,
            "requests": replay.requests,
            "skipped": dict(self.skipped),
        }
        times = {"first_ns": replay.moments.first_ns, "newest_ns": replay.moments.newest_ns}
        return {"inputs": [one], "notices": self.notices, **times, "machine": replay.machine}


def replay_lines(
    meter: Meter, name: str, content: bytes, *, every_ns: int, by: Sequence[str], on_pane: OnPane
) -> dict[str, Any]:
    """A log through a meter.

    >>> meter, seen = Meter(windows_ns=()), []
    >>> log = b'{"id": "a", "arrive_ns": 5, "token_ns": [12, 31]}'
    >>> replay_lines(meter, "log", log, every_ns=10, by=(), on_pane=seen.append)["newest_ns"], seen
    (31, [10, 20, 30, 31])
    """
    replay, known = Replay(meter, every_ns, by, on_pane), Input(name)
    plain, damaged = log.uncompressed(content)
    plain = plain.removeprefix(log.BOM)
    held: list[Told] | None = None
    is_ours = False
    for number, text in log.lines_of(plain):
        known.lines += 1
        try:
            fields = log.parse_object(text)
            is_ours |= log.is_event(fields) or log.is_request(fields)
            line, cached_tokens = line_of(fields)
        except Skip as skip:
            known.skip(number, skip)
            continue
        bears = not isinstance(line, EngineLine) and (isinstance(line, RequestLine) or line.kind == "arrive")
        bearing = replay.bearing(line, cached_tokens) if bears else None  # type: ignore[arg-type]
        if not known.kinds and isinstance(line, RequestLine):
            held = []
        known.kinds.add("requests" if isinstance(line, RequestLine) else "events")
        if held is None:
            take_line(replay, line, bearing)
        else:
            held.append((line, bearing))
    if damaged:
        known.skip(plain.count(b"\n") + 1, Skip("truncated", "the compressed input ends early or is damaged"))
    if (known.lines or damaged) and not is_ours:
        raise FormatError(f"{name}: no line has ev or arrive_ns")
    play(replay, held or ())
    replay.finish()
    return known.result(replay)


def replay_columns(
    meter: Meter,
    columns: Mapping[str, Any],
    *,
    name: str = "columns",
    format: str = "columns",  # noqa: A002
    every_ns: int,
    by: Sequence[str],
    on_pane: OnPane,
) -> dict[str, Any]:
    """Requests in columns through a meter, in the order of their times."""
    replay, known = Replay(meter, every_ns, by, on_pane), Input(name)
    held: list[Told] = []
    for record in rows.records_of("requests", columns):
        known.lines += 1
        if isinstance(record, RequestLine):
            held.append((record, replay.bearing(record, 0)))
        elif isinstance(record, Skip):
            known.skip(known.lines, record)
    play(replay, held)
    replay.finish()
    return known.result(replay, format)
