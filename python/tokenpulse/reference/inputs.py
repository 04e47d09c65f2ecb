"""One input: its lines or rows, its requests in flight, its newest time.

Every rule of the definitions stands here in the order in which it acts. An event of a request in flight is held back
until a later one of that request comes, so that events of the same time are taken in their order and not the log's;
then it is applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenpulse.reference import log
from tokenpulse.reference.accounts import Accounts, Settings
from tokenpulse.reference.log import EventLine, FormatError, RequestLine, Skip
from tokenpulse.reference.request import RANK, Ended, Event, Observation, Request, arrive, finish, step
from tokenpulse.reference.slo import judge
from tokenpulse.reference.tally import Block
from tokenpulse.reference.window import Horizon

NOTICES = 5


@dataclass
class Held:
    """An event of a request in flight that waits for a later one, and the number of its line or row."""

    line: int
    event: Event


@dataclass
class Flight:
    """A request from its arrival on, and what the accounts know of it."""

    id: str
    serial: int
    labels: Mapping[str, str]
    prompt_tokens: int
    state: Request
    is_inside: bool
    """Whether it is counted, or lies outside the cut and is only followed."""
    block: Block | None
    """Its class; None if that is not known before the end, if no classes were asked for, or if it is not counted."""
    held: list[Held] = field(default_factory=list)
    accepted: list[Event] = field(default_factory=list)
    ended: Ended | None = None
    end_ns: int | None = None


class Input:
    """Takes an input line by line, or row by row. `given_format` is what it is said to be; without, its lines tell."""

    def __init__(self, path: str, settings: Settings, given_format: str | None = None) -> None:
        self.path = path
        self.settings = settings
        self.given_format = given_format
        self.accounts = Accounts(settings)
        self.horizon = Horizon()
        self.flights: dict[str, Flight] = {}
        """By id, those that have not ended."""
        self.requests: list[Flight] = []
        """All that arrived, in that order."""
        self.lines = 0
        self.skipped: Counter[str] = Counter()
        self.notices: dict[tuple[int, str], str] = {}
        self._is_ours = False
        self._kinds: set[str] = set()

    # Lines and rows

    def read(self, content: bytes) -> None:
        plain, damaged = log.uncompressed(content)
        plain = plain.removeprefix(log.BOM)
        for number, line in log.lines_of(plain):
            self.take(number, self._record_of(line))
        if damaged:
            self._skip(plain.count(b"\n") + 1, Skip("truncated", "the compressed input ends early or is damaged"))
        if (self.lines or damaged) and not self._is_ours:
            raise FormatError(f"{self.path}: no line has ev or arrive_ns")

    def _record_of(self, line: bytes) -> EventLine | RequestLine | Skip:
        try:
            fields = log.parse_object(line)
            self._is_ours |= log.is_event(fields) or log.is_request(fields)
            return log.record_of(fields)
        except Skip as skip:
            return skip

    def take(self, number: int, record: EventLine | RequestLine | Skip) -> None:
        """One line or row, by its number from 1: what it says, or why it cannot be read."""
        self.lines += 1
        if isinstance(record, Skip):
            self._skip(number, record)
        elif isinstance(record, RequestLine):
            self._kinds.add("requests")
            self._take_request(number, record)
        else:
            self._kinds.add("events")
            self._take_event(number, record)

    def _skip(self, number: int, skip: Skip) -> None:
        self.skipped[skip.reason] += 1
        self._notice(number, skip.reason, str(skip))

    def release_all(self) -> None:
        """At the end of the input: nothing will come that what was held back could wait for."""
        for flight in self.flights.values():
            self._release(flight)

    def lose_the_silent(self, newest_ns: int) -> None:
        """At the end of all inputs: what has been silent for longer than the ttl is lost; the rest is in flight."""
        for flight in list(self.flights.values()):
            if newest_ns > flight.state.last_event_ns + self.settings.ttl_ns:
                self._lose(flight, newest_ns)

    @property
    def format(self) -> str:
        """What it was said to be, or else the kinds of the lines that could be read."""
        if self.given_format is not None:
            return self.given_format
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
            if record.oom_events is not None:
                self.accounts.ran_out_of_memory(t, record.oom_events)
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
        self._open(record.id, record.t_ns, labels, record.prompt_tokens)

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
        flight = self._open(record.id, record.arrive_ns, record.labels, record.prompt_tokens, n, given)
        for event in merged_events(record):
            if self.horizon.admits(event.t_ns):
                self._apply(number, flight, event)
            else:
                self._reject(number, "future")
        if given is not None:
            self._count_the_rest(flight, given)
        if record.status is None:
            return  # it has not ended
        if record.status == "lost":
            self._lose(flight, flight.state.last_event_ns)
            return
        end_ns = flight.state.last_event_ns if record.end_ns is None else record.end_ns
        if not self.horizon.admits(end_ns):
            self._reject(number, "future")  # a finished request is not left in flight: it ends at its last event
            end_ns = flight.state.last_event_ns
        self._finish(flight, end_ns, record.status, record.degraded)

    def _count_the_rest(self, flight: Flight, given_tokens: int) -> None:
        """Tokens that no accepted emission brought count at the last time at which there can have been any."""
        rest = given_tokens - sum(event.tokens for event in flight.accepted)
        last, first = flight.state.last_ns, flight.state.first_ns
        at_ns = next(t for t in (last, first, flight.state.arrive_ns) if t is not None)
        if rest:
            for block in self._blocks(flight, at_ns):
                block.emit(rest)

    # Requests

    def _open(
        self,
        name: str,
        t_ns: int,
        labels: Mapping[str, str],
        prompt_tokens: int,
        output_tokens: int | None = None,
        given_tokens: int | None = None,
    ) -> Flight:
        """Takes an arrival. `output_tokens` are those that are known of already, as in a request line."""
        is_inside = self.settings.is_inside(t_ns)
        own = self.accounts.class_of(labels, prompt_tokens, output_tokens) if is_inside else None
        flight = Flight(
            name, len(self.requests), labels, prompt_tokens, arrive(t_ns, given_tokens), is_inside=is_inside, block=own
        )
        self.requests.append(flight)
        self.flights[name] = flight
        self.horizon.accept(t_ns)
        self.accounts.arrived(t_ns)
        self.accounts.outside += not is_inside
        self.accounts.flow.arrive(t_ns)
        for block in self._blocks(flight, t_ns):
            block.arrive(prompt_tokens)
        return flight

    def _blocks(self, flight: Flight, t_ns: int) -> list[Block]:
        """Every block in which something of a request at a time is counted: none, if it lies outside the cut."""
        return self.accounts.blocks(t_ns, flight.block) if flight.is_inside else []

    def _apply(self, number: int, flight: Flight, event: Event) -> None:
        after = step(flight.state, event, self.settings.itl_rule)
        if after.refused is not None:
            self._reject(number, after.refused)
            return
        flight.state = after.request
        flight.accepted.append(event)
        self.horizon.accept(event.t_ns)
        if event.kind in ("tokens", "first", "last"):
            self.accounts.emitted(event.t_ns)
        self._tell_flow(flight, event, after.observed)
        counted = event.kind in ("tokens", "preempt")
        for block in self._blocks(flight, event.t_ns) if counted or after.observed else ():
            block.emit(event.tokens)
            if event.kind == "preempt":
                block.preempt()
            for observation in after.observed:
                block.observe(observation)
        self._offer(flight, after.observed)

    def _tell_flow(self, flight: Flight, event: Event, observed: Iterable[Observation]) -> None:
        if event.kind == "tokens":
            self.accounts.flow.emit(event.k)
        for observation in observed:
            if observation.metric == "ttft":
                self.accounts.flow.first_token(flight.state.arrive_ns, observation.value_ns)

    def _offer(self, flight: Flight, observed: Iterable[Observation]) -> None:
        if flight.is_inside:
            for each in observed:
                self.accounts.slowest.offer(each.metric, each.value_ns, flight.serial, flight.id)

    def _finish(self, flight: Flight, t_ns: int, status: str, degraded: bool) -> None:
        ended = finish(flight.state, t_ns, status, degraded)
        self.accounts.clamped += ended.clamped
        end_ns = max(t_ns, flight.state.last_event_ns)
        self.horizon.accept(end_ns)
        self._close(flight, ended, end_ns, end_ns)

    def _lose(self, flight: Flight, detected_ns: int) -> None:
        """A lost request has ended at its last event; it is counted where that is detected."""
        end_ns = flight.state.last_event_ns
        self._close(flight, finish(flight.state, end_ns, "lost"), end_ns, detected_ns)

    def _close(self, flight: Flight, ended: Ended, end_ns: int, counted_ns: int) -> None:
        del self.flights[flight.id]
        flight.ended, flight.end_ns = ended, end_ns
        self.accounts.flow.end(flight.state.arrive_ns, end_ns)
        if not flight.is_inside:
            return
        if flight.block is None:  # its class, if any, is known only now
            own = self.accounts.class_of(flight.labels, flight.prompt_tokens, ended.output_tokens)
            if own is not None:
                own.arrive(flight.prompt_tokens)
                own.emit(ended.output_tokens)
                own.preempt(ended.preemptions)
            flight.block = own
        verdicts = [judge(slo, ended, flight.labels) for slo in self.settings.slos]
        for block in self._blocks(flight, counted_ns):
            block.end(ended, verdicts)
        self.accounts.grid.add(ended)
        self._offer(flight, ended.observed())

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "format": self.format,
            "lines": self.lines,
            "requests": len(self.requests),
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
    points are none. Beside emissions `output_tokens` makes each of them one chunk.
    """
    milestones = (("schedule", record.schedule_ns), ("prefill", record.prefill_ns))
    is_untimed = record.output_tokens and not record.emissions
    points = (("first", record.first_token_ns), ("last", record.last_token_ns)) if is_untimed else ()
    sequences = [[Event(kind, t)] for kind, t in milestones if t is not None]
    sequences.append([Event("resume", t) for t in record.resume_ns])
    sequences.append([Event(kind, t) for kind, t in points if t is not None])
    sequences.append(token_events(record))
    sequences.append([Event("preempt", t) for t in record.preempt_ns])
    heads = [0] * len(sequences)
    while any(head < len(sequence) for head, sequence in zip(heads, sequences, strict=True)):
        waiting = [which for which, sequence in enumerate(sequences) if heads[which] < len(sequence)]
        which = min(waiting, key=lambda w: (sequences[w][heads[w]].t_ns, RANK[sequences[w][heads[w]].kind]))
        yield sequences[which][heads[which]]
        heads[which] += 1


def token_events(record: RequestLine) -> list[Event]:
    """The emissions. With another number of tokens beside them they are chunks, and bring even shares of it."""
    given, m = record.output_tokens, len(record.emissions)
    if given is None:
        return [Event("tokens", t, k) for t, k in record.emissions]
    shares = [(j + 1) * given // m - j * given // m for j in range(m)]
    return [Event("tokens", t, brings=share) for (t, _), share in zip(record.emissions, shares, strict=True)]
