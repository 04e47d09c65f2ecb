"""One request as a pure state machine: a state and an event give the next state and what was observed.

`step` never changes its arguments and never raises for what a log says: a bad event is refused with a reason, and the
state stays as it was. Which request an event belongs to, its lateness (`lost`) and `future` are the reader's to judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tokenpulse.model import SUCCEEDED

ORDER = ("arrive", "schedule", "resume", "prefill", "first", "last", "tokens", "preempt", "end")
"""The order in which events of the same time are taken. `first` and `last` are the two points of a request line that
gives no token times, only their number."""

RANK = {kind: rank for rank, kind in enumerate(ORDER)}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a request. `k` and `brings` are of `tokens`; `status` and `degraded` are of `end`.

    `brings` is how many tokens count at its time where that is not `k`: a share of those whose times are not known.
    """

    kind: str
    t_ns: int
    k: int = 1
    status: str = ""
    degraded: bool = False
    brings: int | None = None

    @property
    def tokens(self) -> int:
        """How many tokens count at its time."""
        if self.kind != "tokens":
            return 0
        return self.k if self.brings is None else self.brings


@dataclass(frozen=True, slots=True)
class Emission:
    """Some tokens that became visible at once, and the emissions before: a list that grows without being changed."""

    t_ns: int
    k: int
    before: Emission | None


@dataclass(frozen=True, slots=True)
class Observation:
    """A value of a metric, observed some times; the sum grows by `total_ns`, which may exceed `times * value_ns`."""

    metric: str
    value_ns: int
    times: int
    total_ns: int


def once(metric: str, value_ns: int) -> Observation:
    return Observation(metric, value_ns, 1, value_ns)


def split_gap(gap_ns: int, k: int, rule: str) -> tuple[Observation, ...]:
    """What an emission of `k` tokens after a gap gives under an ITL rule.

    >>> [(o.value_ns, o.times, o.total_ns) for o in split_gap(10, 3, "token")]
    [(3, 3, 10)]
    """
    if rule == "token":
        return (Observation("itl", gap_ns // k, k, gap_ns),)
    if rule == "chunk" or k == 1:
        return (once("itl", gap_ns),)
    return once("itl", gap_ns), Observation("itl", 0, k - 1, 0)


@dataclass(frozen=True, slots=True)
class Request:
    """Where a request stands. An absent milestone is None, never 0.

    `given_tokens` is the number of tokens where their times are not known: of a request line that gives none, or of a
    row that gives another number beside its emissions. None for all others.
    """

    arrive_ns: int
    last_event_ns: int
    given_tokens: int | None = None
    schedule_ns: int | None = None
    prefill_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    seen_tokens: int = 0
    emissions: Emission | None = field(default=None, repr=False, compare=False)
    max_itl_ns: int | None = None
    preempted_since_ns: int | None = None
    stall_ns: int = 0
    preemptions: int = 0

    @property
    def output_tokens(self) -> int:
        return self.seen_tokens if self.given_tokens is None else self.given_tokens


def arrive(t_ns: int, given_tokens: int | None = None) -> Request:
    return Request(arrive_ns=t_ns, last_event_ns=t_ns, given_tokens=given_tokens)


@dataclass(frozen=True, slots=True)
class Step:
    """The next state; why the event was refused, or what it showed."""

    request: Request
    refused: str | None = None
    observed: tuple[Observation, ...] = ()


def step(request: Request, event: Event, rule: str) -> Step:
    """Takes any event of a request in flight but its `arrive` and its `end`."""
    if event.t_ns < request.last_event_ns:
        return Step(request, refused="negative")
    t = event.t_ns
    now = replace(request, last_event_ns=t)
    match event.kind:
        case "schedule" if request.schedule_ns is None:
            return Step(replace(now, schedule_ns=t), observed=(once("queue", t - request.arrive_ns),))
        case "prefill" if request.prefill_ns is None:
            known = request.schedule_ns
            observed = () if known is None else (once("scheduling", t - known),)
            return Step(replace(now, prefill_ns=t), observed=observed)
        case "preempt" if request.preempted_since_ns is None:
            return Step(replace(now, preempted_since_ns=t, preemptions=request.preemptions + 1))
        case "resume" if request.preempted_since_ns is not None:
            stall_ns = request.stall_ns + t - request.preempted_since_ns
            return Step(replace(now, preempted_since_ns=None, stall_ns=stall_ns))
        case "tokens":
            return _emit(now, t, event.k, rule)
        case "first":
            return Step(replace(now, first_ns=t), observed=_at_first_token(now, t))
        case "last":
            return Step(replace(now, last_ns=t))
    return Step(request, refused="duplicate")


def _emit(now: Request, t: int, k: int, rule: str) -> Step:
    emitted = replace(now, last_ns=t, seen_tokens=now.seen_tokens + k, emissions=Emission(t, k, now.emissions))
    if now.last_ns is None:
        return Step(replace(emitted, first_ns=t), observed=_at_first_token(now, t))
    observed = split_gap(t - now.last_ns, k, rule)
    largest = max(o.value_ns for o in observed)
    if now.max_itl_ns is not None:
        largest = max(largest, now.max_itl_ns)
    return Step(replace(emitted, max_itl_ns=largest), observed=observed)


def _at_first_token(now: Request, t: int) -> tuple[Observation, ...]:
    ttft = once("ttft", t - now.arrive_ns)
    if now.schedule_ns is None:
        return (ttft,)
    began_ns = now.schedule_ns if now.prefill_ns is None else now.prefill_ns
    return ttft, once("prefill", t - began_ns)


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that is over: all that accounts and verdicts ask of it. A metric that was not observed is None."""

    status: str
    degraded: bool
    clamped: bool
    output_tokens: int
    preemptions: int
    ttft_ns: int | None
    tpot_ns: int | None
    e2e_ns: int | None
    max_itl_ns: int | None
    stall_ns: int | None
    missing: tuple[str, ...]
    gaps: tuple[tuple[int, int], ...] | None
    """Time since the token before (since the arrival, for the first) and number of tokens of each emission; None if
    the times of the tokens are unknown, or if there is no token."""

    @property
    def succeeded(self) -> bool:
        return self.status in SUCCEEDED

    def observed(self) -> Iterator[Observation]:
        """What is observed at the end."""
        for metric, value in (
            ("tpot", self.tpot_ns),
            ("e2e", self.e2e_ns),
            ("preemption_stall", self.stall_ns),
        ):
            if value is not None:
                yield once(metric, value)


def finish(request: Request, t_ns: int, status: str, degraded: bool = False) -> Ended:
    """Ends a request. An end before its last event ends it at that event's time: no request hangs for a bad clock."""
    end_ns = max(t_ns, request.last_event_ns)
    arrived, first, last = request.arrive_ns, request.first_ns, request.last_ns
    n = request.output_tokens
    succeeded = status in SUCCEEDED
    tpot_ns = (last - first) // (n - 1) if succeeded and n >= 2 and first is not None and last is not None else None
    e2e_ns = last - arrived if succeeded and n >= 1 and last is not None else None
    stall_ns = request.stall_ns
    if request.preempted_since_ns is not None:
        stall_ns += end_ns - request.preempted_since_ns
    return Ended(
        status=status,
        degraded=degraded,
        clamped=t_ns < request.last_event_ns,
        output_tokens=n,
        preemptions=request.preemptions,
        ttft_ns=None if first is None else first - arrived,
        tpot_ns=tpot_ns,
        e2e_ns=e2e_ns,
        max_itl_ns=request.max_itl_ns,
        stall_ns=stall_ns if request.preemptions else None,
        missing=tuple(_missing(request, succeeded)),
        gaps=_gaps(request),
    )


def _missing(request: Request, succeeded: bool) -> Iterator[str]:
    """The metrics whose condition holds but which lack a milestone."""
    scheduled, prefilled, first, last = request.schedule_ns, request.prefill_ns, request.first_ns, request.last_ns
    n = request.output_tokens
    if first is None:
        yield "ttft"
    if scheduled is None:
        yield "queue"
    if scheduled is None or prefilled is None:
        yield "scheduling"
    if first is None or scheduled is None:
        yield "prefill"
    if succeeded and n >= 2 and (first is None or last is None):
        yield "tpot"
    if succeeded and n >= 1 and last is None:
        yield "e2e"
    if n >= 2 and request.given_tokens is not None and request.max_itl_ns is None:
        yield "itl"


def _gaps(request: Request) -> tuple[tuple[int, int], ...] | None:
    if request.given_tokens is not None:  # of a single untimed token the time is known all the same
        if request.given_tokens == 1 and request.first_ns is not None and request.emissions is None:
            return ((request.first_ns - request.arrive_ns, 1),)
        return None
    emissions = []
    emission = request.emissions
    while emission is not None:
        emissions.append(emission)
        emission = emission.before
    gaps, before_ns = [], request.arrive_ns
    for emission in reversed(emissions):
        gaps.append((emission.t_ns - before_ns, emission.k))
        before_ns = emission.t_ns
    return tuple(gaps) or None
