"""The reduction of logs: every rule of the definitions, in the order in which they act.

An input is read line by line. A line of a request in flight is held back until a later one of that request comes, so
that events of the same time are taken in their order and not the log's; then it is applied. State is per input; what
is added up (total, classes, timeline) is of the whole run.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenpulse.model import ITL_RULES, SLO, TTL_NS, Reduction
from tokenpulse.reference import log
from tokenpulse.reference.log import EventLine, FormatError, RequestLine, Skip
from tokenpulse.reference.request import RANK, Ended, Event, Observation, Request, arrive, finish, step
from tokenpulse.reference.slo import judge
from tokenpulse.reference.strata import OTHER, Interner, check_keys, combination
from tokenpulse.reference.tally import Block, Slowest
from tokenpulse.reference.window import Horizon, Timeline

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


class Run:
    """What is added up over all inputs."""

    def __init__(self, slos: Sequence[SLO], itl_rule: str, by: Sequence[str], timeline_ns: int | None) -> None:
        if itl_rule not in ITL_RULES:
            raise ValueError(f"itl_rule must be one of {', '.join(ITL_RULES)}, got {itl_rule!r}")
        check_keys(by)
        self.slos = slos
        self.itl_rule = itl_rule
        self.by = tuple(by)
        self.total = self.block()
        self.interner = Interner()
        self.classes: dict[int, Block] = {}
        self.timeline = None if timeline_ns is None else Timeline(timeline_ns, self.block)
        self.rejected: Counter[str] = Counter()
        self.clamped = 0
        self.first_arrival_ns: int | None = None
        self.last_emission_ns: int | None = None
        self.serials = 0

    def block(self) -> Block:
        return Block(self.itl_rule, len(self.slos))

    def class_of(self, labels: Mapping[str, str], prompt_tokens: int, output_tokens: int | None) -> Block | None:
        """The block of a request's class; None if it is not known yet or if none was asked for."""
        if not self.by or (output_tokens is None and "output_length" in self.by):
            return None
        index = self.interner.intern(combination(self.by, labels, prompt_tokens, output_tokens))
        return self.classes.setdefault(index, self.block())

    def blocks(self, t_ns: int, own: Block | None) -> list[Block]:
        """Every block in which something of a request at a time is counted."""
        bins = [] if self.timeline is None else [self.timeline.bin(t_ns)]
        return [self.total, *bins, *([] if own is None else [own])]

    def arrived(self, t_ns: int) -> None:
        self.first_arrival_ns = t_ns if self.first_arrival_ns is None else min(self.first_arrival_ns, t_ns)

    def emitted(self, t_ns: int) -> None:
        self.last_emission_ns = t_ns if self.last_emission_ns is None else max(self.last_emission_ns, t_ns)


class Input:
    """One input: its lines, its requests in flight, its newest time."""

    def __init__(self, run: Run, path: str, ttl_ns: int) -> None:
        self.run = run
        self.path = path
        self.ttl_ns = ttl_ns
        self.horizon = Horizon()
        self.flights: dict[str, Flight] = {}
        self.slowest = Slowest()
        self.lines = 0
        self.requests = 0
        self.skipped: Counter[str] = Counter()
        self.notices: dict[tuple[int, str], str] = {}
        self._kinds: set[str] = set()

    # Lines

    def read(self, content: bytes) -> None:
        plain, damaged = log.uncompressed(content)
        number = 0
        for number, line in log.lines_of(plain):
            self.lines += 1
            try:
                self._take(number, line)
            except Skip as skip:
                self.skipped[skip.reason] += 1
                self._notice(number, skip.reason, str(skip))
        if damaged:
            self.skipped["truncated"] += 1
            self._notice(number + 1, "truncated", "the compressed input ends early or is damaged")
        if self.lines and not self._kinds:
            raise FormatError(f"{self.path}: no line has ev or arrive_ns")
        for flight in self.flights.values():
            self._release(flight)

    def _take(self, number: int, line: bytes) -> None:
        fields = log.parse_object(line)
        if log.is_event(fields):
            self._kinds.add("events")
        elif log.is_request(fields):
            self._kinds.add("requests")
        record = log.record_of(fields)
        if isinstance(record, RequestLine):
            self._take_request(number, record)
        else:
            self._take_event(number, record)

    @property
    def format(self) -> str:
        if len(self._kinds) == 2:
            return "tokenpulse-mixed"
        return f"tokenpulse-{min(self._kinds)}" if self._kinds else "empty"

    def _notice(self, number: int, reason: str, message: str) -> None:
        if len(self.notices) < NOTICES:
            self.notices.setdefault((number, reason), message)

    def _reject(self, number: int, reason: str) -> None:
        self.run.rejected[reason] += 1
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
        flight = self._in_flight(record.id, record.t_ns)
        if flight is not None:
            self._hold(number, flight, Event("arrive", record.t_ns))
            return
        labels = record.labels or {}
        own = self.run.class_of(labels, record.prompt_tokens, None)
        self._open(record.id, record.t_ns, labels, record.prompt_tokens, own)

    def _in_flight(self, name: str, t_ns: int) -> Flight | None:
        """The request in flight with an id, unless an event at this time finds it lost."""
        flight = self.flights.get(name)
        if flight is None:
            return None
        if flight.held and flight.held[0].event.t_ns != t_ns:
            self._release(flight)
        if t_ns > flight.state.last_event_ns + self.ttl_ns:
            self._lose(flight, t_ns)
            return None
        return flight

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
        flight = self._in_flight(record.id, record.arrive_ns)
        if flight is not None:
            earlier = record.arrive_ns < flight.state.last_event_ns
            self._reject(number, "negative" if earlier else "duplicate")
            return
        given = record.output_tokens
        n = sum(k for _, k in record.emissions) if given is None else given
        own = self.run.class_of(record.labels, record.prompt_tokens, n)
        flight = self._open(record.id, record.arrive_ns, record.labels, record.prompt_tokens, own, given)
        for event in merged_events(record):
            if self.horizon.admits(event.t_ns):
                self._apply(number, flight, event)
            else:
                self._reject(number, "future")
        if given:
            last, first = flight.state.last_ns, flight.state.first_ns
            at_ns = next(t for t in (last, first, record.arrive_ns) if t is not None)
            for block in self.run.blocks(at_ns, own):
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
        flight = Flight(name, self.run.serials, labels, prompt_tokens, arrive(t_ns, given_tokens), own)
        self.run.serials += 1
        self.requests += 1
        self.flights[name] = flight
        self.horizon.accept(t_ns)
        self.run.arrived(t_ns)
        for block in self.run.blocks(t_ns, own):
            block.arrive(prompt_tokens)
        return flight

    def _apply(self, number: int, flight: Flight, event: Event) -> None:
        after = step(flight.state, event, self.run.itl_rule)
        if after.refused is not None:
            self._reject(number, after.refused)
            return
        flight.state = after.request
        self.horizon.accept(event.t_ns)
        if event.kind in ("tokens", "first", "last"):
            self.run.emitted(event.t_ns)
        counted = event.kind in ("tokens", "preempt")
        for block in self.run.blocks(event.t_ns, flight.block) if counted or after.observed else ():
            if event.kind == "tokens":
                block.emit(event.k)
            elif event.kind == "preempt":
                block.preempt()
            for observation in after.observed:
                block.observe(observation)
        self._offer(flight, after.observed)

    def _offer(self, flight: Flight, observed: Iterable[Observation]) -> None:
        for each in observed:
            self.slowest.offer(each.metric, each.value_ns, flight.serial, flight.id)

    def _finish(self, flight: Flight, t_ns: int, status: str, degraded: bool = False) -> None:
        ended = finish(flight.state, t_ns, status, degraded)
        self.run.clamped += ended.clamped
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
            own = self.run.class_of(flight.labels, flight.prompt_tokens, ended.output_tokens)
            if own is not None:
                own.arrive(flight.prompt_tokens)
                own.emit(ended.output_tokens)
                own.preempt(ended.preemptions)
        verdicts = [judge(slo, ended, flight.labels) for slo in self.run.slos]
        for block in self.run.blocks(counted_ns, own):
            block.end(ended, verdicts)
        self._offer(flight, ended.observed())

    def lose_the_silent(self, newest_ns: int) -> None:
        """At the end of all inputs: what has been silent for longer than the ttl is lost; the rest is in flight."""
        for flight in list(self.flights.values()):
            if newest_ns > flight.state.last_event_ns + self.ttl_ns:
                self._lose(flight, newest_ns)


def merged_events(record: RequestLine) -> Iterator[Event]:
    """A request line as its events between arrival and end: sequences each in its own order, the smallest head first.

    The tie order is schedule, resume, prefill, tokens, preempt.
    """
    milestones = (("schedule", record.schedule_ns), ("prefill", record.prefill_ns))
    points = (("first", record.first_token_ns), ("last", record.last_token_ns))
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
    run = Run(slos, itl_rule, by, timeline_ns)
    parts = []
    for path, content in inputs:
        parts.append(Input(run, path, ttl_ns))
        parts[-1].read(content)
    newest = max((p.horizon.newest_ns for p in parts if p.horizon.newest_ns is not None), default=None)
    for part in parts:
        if newest is not None:
            part.lose_the_silent(newest)
    return {
        "inputs": [
            {
                "path": part.path,
                "format": part.format,
                "lines": part.lines,
                "requests": part.requests,
                "skipped": dict(part.skipped),
            }
            for part in parts
        ],
        "notices": [
            {"path": part.path, "line": line, "reason": reason, "message": message}
            for part in parts
            for (line, reason), message in part.notices.items()
        ],
        "first_arrival_ns": run.first_arrival_ns,
        "last_emission_ns": run.last_emission_ns,
        "newest_ns": newest,
        "rejected": dict(run.rejected),
        "clamped": run.clamped,
        "total": run.total.as_dict(),
        "slowest": Slowest.merged([part.slowest for part in parts]),
        "by": classes(run),
        "by_interned_over": run.interner.over,
        "timeline": bins(run),
    }


def classes(run: Run) -> list[dict[str, Any]]:
    """In order of first appearance, `other` last."""
    named = [
        {"key": dict(zip(run.by, values, strict=True)), "other": False, "block": run.classes[index].as_dict()}
        for index, values in enumerate(run.interner.combinations())
    ]
    if OTHER in run.classes:
        named.append({"key": {}, "other": True, "block": run.classes[OTHER].as_dict()})
    return named


def bins(run: Run) -> dict[str, Any] | None:
    if run.timeline is None:
        return None
    return {
        "width_ns": run.timeline.width_ns,
        "asked_ns": run.timeline.asked_ns,
        "bins": [{"start_ns": start, "block": block.as_dict()} for start, block in run.timeline.bins()],
    }


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
