"""The reduction of logs: every rule of the definitions, in the order in which they act.

An input is read line by line. A line of a request in flight is held back until a later one of that request comes, so
that events of the same time are taken in their order and not the log's; then it is applied.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenpulse.model import SLO, TTL_NS, Reduction
from tokenpulse.reference import log
from tokenpulse.reference.accounts import Accounts, Settings
from tokenpulse.reference.log import EventLine, FormatError, RequestLine, Skip
from tokenpulse.reference.request import RANK, Ended, Event, Request, arrive, finish, step
from tokenpulse.reference.slo import judge
from tokenpulse.reference.tally import Block
from tokenpulse.reference.window import Horizon

NOTICES = 5


@dataclass
class Held:
    """An event of a request in flight that waits for a later one, and the number of its line."""

    line: int
    event: Event


@dataclass
class Flight:
    """A request in flight, and what the accounts know of it."""

    id: str
    serial: int
    labels: Mapping[str, str]
    prompt_tokens: int
    state: Request
    block: Block | None
    """Its class; None if that is not known before the end, or if no classes were asked for."""
    held: list[Held] = field(default_factory=list)


class Input:
    """One input: its lines, its requests in flight, its newest time."""

    def __init__(self, path: str, settings: Settings) -> None:
        self.path = path
        self.settings = settings
        self.accounts = Accounts(settings)
        self.horizon = Horizon()
        self.flights: dict[str, Flight] = {}
        self.lines = 0
        self.requests = 0
        self.skipped: Counter[str] = Counter()
        self.notices: dict[tuple[int, str], str] = {}
        self._is_ours = False
        self._kinds: set[str] = set()

    # Lines

    def read(self, content: bytes) -> None:
        plain, damaged = log.uncompressed(content)
        for number, line in log.lines_of(plain):
            self.lines += 1
            try:
                self._take(number, line)
            except Skip as skip:
                self.skipped[skip.reason] += 1
                self._notice(number, skip.reason, str(skip))
        if damaged:
            self.skipped["truncated"] += 1
            self._notice(plain.count(b"\n") + 1, "truncated", "the compressed input ends early or is damaged")
        if self.lines and not self._is_ours:
            raise FormatError(f"{self.path}: no line has ev or arrive_ns")
        for flight in self.flights.values():
            self._release(flight)

    def _take(self, number: int, line: bytes) -> None:
        fields = log.parse_object(line)
        self._is_ours |= log.is_event(fields) or log.is_request(fields)
        record = log.record_of(fields)
        if isinstance(record, RequestLine):
            self._kinds.add("requests")
            self._take_request(number, record)
        else:
            self._kinds.add("events")
            self._take_event(number, record)

    @property
    def format(self) -> str:
        """The kinds of the lines that could be read."""
        if len(self._kinds) == 2:
            return "tokenpulse-mixed"
        return f"tokenpulse-{min(self._kinds)}" if self._kinds else "empty"

    def _notice(self, number: int, reason: str, message: str) -> None:
        if len(self.notices) < NOTICES:
            self.notices.setdefault((number, reason), message)

    def _reject(self, number: int, reason: str) -> None:
        self.accounts.rejected[reason] += 1
        self._notice(number, reason, f"refused: {reason}")

    # Event lines

    def _take_event(self, number: int, record: EventLine) -> None:
        t = record.t_ns
        if not self.horizon.admits(t):
            self._reject(number, "future")
        elif record.kind in log.OTHER_EVENTS:
            self.horizon.accept(t)
        elif record.kind == "arrive":
            self._arrive(number, record)
        elif (flight := self._in_flight(record.id, t)) is None:
            self._reject(number, "unknown")
        elif record.kind == "end":
            self._release(flight)
            self._finish(flight, t, record.status, record.degraded)
        else:
            self._hold(number, flight, Event(record.kind, t, record.k))

    def _arrive(self, number: int, record: EventLine) -> None:
        if self._is_taken(number, record.id, record.t_ns):
            return
        labels = record.labels or {}
        own = self.accounts.class_of(labels, record.prompt_tokens, None)
        self._open(record.id, record.t_ns, labels, record.prompt_tokens, own)

    def _in_flight(self, name: str, t_ns: int) -> Flight | None:
        """The request in flight with an id, unless an event at this time finds it lost."""
        flight = self.flights.get(name)
        if flight is None:
            return None
        if flight.held and flight.held[0].event.t_ns != t_ns:
            self._release(flight)
        if t_ns > flight.state.last_event_ns + self.settings.ttl_ns:
            self._lose(flight, t_ns)
            return None
        return flight

    def _is_taken(self, number: int, name: str, t_ns: int) -> bool:
        """Whether an id is in flight, so that its arrival is refused: at once, since nothing can come before it."""
        flight = self._in_flight(name, t_ns)
        if flight is None:
            return False
        self._reject(number, "negative" if t_ns < flight.state.last_event_ns else "duplicate")
        return True

    def _hold(self, number: int, flight: Flight, event: Event) -> None:
        if event.t_ns < flight.state.last_event_ns:
            self._reject(number, "negative")
        else:
            flight.held.append(Held(number, event))

    def _release(self, flight: Flight) -> None:
        """Applies what was held back, in the order of events that bear the same time."""
        held, flight.held = flight.held, []
        for each in sorted(held, key=lambda each: RANK[each.event.kind]):
            self._apply(each.line, flight, each.event)

    # Request lines

    def _take_request(self, number: int, record: RequestLine) -> None:
        if not self.horizon.admits(record.arrive_ns):
            self._reject(number, "future")
            return
        if self._is_taken(number, record.id, record.arrive_ns):
            return
        given = record.output_tokens
        n = sum(k for _, k in record.emissions) if given is None else given
        own = self.accounts.class_of(record.labels, record.prompt_tokens, n)
        flight = self._open(record.id, record.arrive_ns, record.labels, record.prompt_tokens, own, given)
        for event in merged_events(record):
            if self.horizon.admits(event.t_ns):
                self._apply(number, flight, event)
            else:
                self._reject(number, "future")
        if given:
            last, first = flight.state.last_ns, flight.state.first_ns
            at_ns = next(t for t in (last, first, record.arrive_ns) if t is not None)
            for block in self.accounts.blocks(at_ns, own):
                block.emit(given)
        end_ns = flight.state.last_event_ns if record.end_ns is None else record.end_ns
        if not self.horizon.admits(end_ns):
            self._reject(number, "future")  # a finished request is not left in flight: it ends at its last event
            end_ns = flight.state.last_event_ns
        self._finish(flight, end_ns, record.status, record.degraded)

    # Requests

    def _open(
        self,
        name: str,
        t_ns: int,
        labels: Mapping[str, str],
        prompt_tokens: int,
        own: Block | None,
        given_tokens: int | None = None,
    ) -> Flight:
        flight = Flight(name, self.requests, labels, prompt_tokens, arrive(t_ns, given_tokens), own)
        self.requests += 1
        self.flights[name] = flight
        self.horizon.accept(t_ns)
        self.accounts.arrived(t_ns)
        for block in self.accounts.blocks(t_ns, own):
            block.arrive(prompt_tokens)
        return flight

    def _apply(self, number: int, flight: Flight, event: Event) -> None:
        after = step(flight.state, event, self.settings.itl_rule)
        if after.refused is not None:
            self._reject(number, after.refused)
            return
        flight.state = after.request
        self.horizon.accept(event.t_ns)
        if event.kind in ("tokens", "first", "last"):
            self.accounts.emitted(event.t_ns)
        counted = event.kind in ("tokens", "preempt")
        for block in self.accounts.blocks(event.t_ns, flight.block) if counted or after.observed else ():
            if event.kind == "tokens":
                block.emit(event.k)
            elif event.kind == "preempt":
                block.preempt()
            for observation in after.observed:
                block.observe(observation)
        self.accounts.offer(flight.serial, flight.id, after.observed)

    def _finish(self, flight: Flight, t_ns: int, status: str, degraded: bool = False) -> None:
        ended = finish(flight.state, t_ns, status, degraded)
        self.accounts.clamped += ended.clamped
        end_ns = max(t_ns, flight.state.last_event_ns)
        self.horizon.accept(end_ns)
        self._close(flight, ended, end_ns)

    def _lose(self, flight: Flight, detected_ns: int) -> None:
        """A lost request has ended at its last event; it is counted where that is detected."""
        self._close(flight, finish(flight.state, flight.state.last_event_ns, "lost"), detected_ns)

    def _close(self, flight: Flight, ended: Ended, counted_ns: int) -> None:
        del self.flights[flight.id]
        own = flight.block
        if own is None:  # its class, if any, is known only now
            own = self.accounts.class_of(flight.labels, flight.prompt_tokens, ended.output_tokens)
            if own is not None:
                own.arrive(flight.prompt_tokens)
                own.emit(ended.output_tokens)
                own.preempt(ended.preemptions)
        verdicts = [judge(slo, ended, flight.labels) for slo in self.settings.slos]
        for block in self.accounts.blocks(counted_ns, own):
            block.end(ended, verdicts)
        self.accounts.offer(flight.serial, flight.id, ended.observed())

    def lose_the_silent(self, newest_ns: int) -> None:
        """At the end of all inputs: what has been silent for longer than the ttl is lost; the rest is in flight."""
        for flight in list(self.flights.values()):
            if newest_ns > flight.state.last_event_ns + self.settings.ttl_ns:
                self._lose(flight, newest_ns)

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "format": self.format,
            "lines": self.lines,
            "requests": self.requests,
            "skipped": dict(self.skipped),
        }

    def notices_as_dicts(self) -> list[dict[str, Any]]:
        return [
            {"path": self.path, "line": line, "reason": reason, "message": message}
            for (line, reason), message in self.notices.items()
        ]


def merged_events(record: RequestLine) -> Iterator[Event]:
    """A request line as its events between arrival and end: sequences each in its own order, the smallest head first.

    The tie order is schedule, resume, prefill, tokens, preempt. No token, no emission: without `output_tokens` the two
    points are none.
    """
    milestones = (("schedule", record.schedule_ns), ("prefill", record.prefill_ns))
    points = (("first", record.first_token_ns), ("last", record.last_token_ns)) if record.output_tokens else ()
    sequences = [[Event(kind, t)] for kind, t in milestones if t is not None]
    sequences.append([Event("resume", t) for t in record.resume_ns])
    sequences.append([Event(kind, t) for kind, t in points if t is not None])
    sequences.append([Event("tokens", t, k) for t, k in record.emissions])
    sequences.append([Event("preempt", t) for t in record.preempt_ns])
    heads = [0] * len(sequences)
    while any(head < len(sequence) for head, sequence in zip(heads, sequences, strict=True)):
        waiting = [which for which, sequence in enumerate(sequences) if heads[which] < len(sequence)]
        which = min(waiting, key=lambda w: (sequences[w][heads[w]].t_ns, RANK[sequences[w][heads[w]].kind]))
        yield sequences[which][heads[which]]
        heads[which] += 1


def reduce_lines(
    inputs: Sequence[tuple[str, bytes]],
    slos: Sequence[SLO] = (),
    itl_rule: str = "token",
    by: Sequence[str] = (),
    timeline_ns: int | None = None,
    ttl_ns: int = TTL_NS,
) -> Reduction:
    """The reduction of inputs given as (name, bytes of lines, plain or gzip)."""
    settings = Settings(slos, itl_rule, by, timeline_ns, ttl_ns)
    parts = [Input(path, settings) for path, _ in inputs]
    for part, (_, content) in zip(parts, inputs, strict=True):
        part.read(content)
    newest_ns = max((p.horizon.newest_ns for p in parts if p.horizon.newest_ns is not None), default=None)
    run = Accounts(settings)
    for part in parts:
        if newest_ns is not None:
            part.lose_the_silent(newest_ns)
        run.merge(part.accounts)
    notices = [notice for part in parts for notice in part.notices_as_dicts()]
    return {"inputs": [part.as_dict() for part in parts], "notices": notices, "newest_ns": newest_ns, **run.as_dict()}


def reduce(
    paths: Iterable[str],
    slos: Sequence[SLO] = (),
    itl_rule: str = "token",
    by: Sequence[str] = (),
    timeline_ns: int | None = None,
    ttl_ns: int = TTL_NS,
) -> Reduction:
    """The reduction of files, plain or gzip; `-` is standard input."""
    inputs = [(path, sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()) for path in map(str, paths)]
    return reduce_lines(inputs, slos, itl_rule, by, timeline_ns, ttl_ns)
