"""What a simulation adds up to, exactly: counts, and levels weighted by time."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from tokenpulse.simulate.clock import SECOND_NS
from tokenpulse.simulate.request import Request


class Level:
    """A number that holds until it is set again; `area` is its integral over time, in ns."""

    __slots__ = ("_since_ns", "area", "now")

    def __init__(self) -> None:
        self.now = 0
        self.area = 0
        self._since_ns = 0

    def set(self, t_ns: int, value: int) -> None:
        """From `t_ns` on it is `value`."""
        self.area += self.now * (t_ns - self._since_ns)
        self._since_ns = t_ns
        self.now = value


class Moments:
    """Count, sum and sum of squares of times in ns: exact, as they are integers."""

    __slots__ = ("count", "squares", "sum")

    def __init__(self) -> None:
        self.count = self.sum = self.squares = 0

    def add(self, ns: int) -> None:
        """One more."""
        self.count += 1
        self.sum += ns
        self.squares += ns * ns

    @property
    def mean(self) -> float | None:
        """In seconds; None of nothing."""
        return self.sum / self.count / SECOND_NS if self.count else None

    @property
    def cv(self) -> float | None:
        """Standard deviation over mean; None of nothing."""
        if not self.sum:
            return None
        return math.sqrt(max(0, self.count * self.squares - self.sum**2)) / self.sum


class Tally:
    """Counts what the engine does."""

    def __init__(self) -> None:
        self.arrived = 0
        self.ended: Counter[str] = Counter()
        self.output_tokens = 0
        self.prefill_tokens = 0
        self.decode_tokens = 0
        self.rejected_drafts = 0
        self.steps = 0
        self.busy_ns = 0
        self.preemptions = 0
        self.oom_events = 0
        self.evicted = 0
        self.looked_up = 0
        self.hit = 0
        self.waiting, self.running = Level(), Level()
        self.queue, self.service, self.in_system = Moments(), Moments(), Moments()
        self.ttft, self.tpot = Moments(), Moments()

    def end(self, request: Request, t_ns: int) -> None:
        """A request ended, now."""
        self.ended[request.status or ""] += 1
        self.in_system.add(t_ns - request.arrive_ns)
        if request.schedule_ns is not None:
            self.service.add(t_ns - request.schedule_ns)
        if request.status == "stop" and request.output_tokens > 1:
            assert request.first_ns is not None
            self.tpot.add((t_ns - request.first_ns) // (request.output_tokens - 1))

    def result(self, t_ns: int) -> Result:
        """All of it, at the end."""
        self.waiting.set(t_ns, self.waiting.now)
        self.running.set(t_ns, self.running.now)
        return Result(
            seconds=t_ns / SECOND_NS,
            steps=self.steps,
            busy_seconds=self.busy_ns / SECOND_NS,
            arrived=self.arrived,
            ended=dict(sorted(self.ended.items())),
            in_flight=self.waiting.now + self.running.now,
            output_tokens=self.output_tokens,
            prefill_tokens=self.prefill_tokens,
            decode_tokens=self.decode_tokens,
            rejected_drafts=self.rejected_drafts,
            preemptions=self.preemptions,
            oom_events=self.oom_events,
            evicted_blocks=self.evicted,
            looked_up_tokens=self.looked_up,
            hit_tokens=self.hit,
            mean_waiting=self.waiting.area / t_ns,
            mean_running=self.running.area / t_ns,
            mean_in_system=(self.waiting.area + self.running.area) / t_ns,
            mean_time_in_system=self.in_system.mean,
            mean_queue_time=self.queue.mean,
            mean_service_time=self.service.mean,
            service_cv=self.service.cv,
            mean_ttft=self.ttft.mean,
            mean_tpot=self.tpot.mean,
        )


@dataclass(frozen=True, slots=True)
class Result:
    """What a simulation adds up to. Times are in seconds; a mean of nothing is None."""

    seconds: float
    """How long it lasted, in simulated time."""
    steps: int
    busy_seconds: float
    """The time in steps."""
    arrived: int
    ended: dict[str, int]
    """By status."""
    in_flight: int
    """Requests that had not ended when it stopped: arrived = ended + in_flight."""
    output_tokens: int
    prefill_tokens: int
    """Computed of prompts, and again after preemptions."""
    decode_tokens: int
    """Computed one by one, rejected drafts included."""
    rejected_drafts: int
    preemptions: int
    oom_events: int
    """Times at which running requests had to give way because the KV cache had shrunk."""
    evicted_blocks: int
    looked_up_tokens: int
    hit_tokens: int
    mean_waiting: float
    """Requests in the queue, weighted by time; so are the next two."""
    mean_running: float
    mean_in_system: float
    mean_time_in_system: float | None
    """From arrival to end, of requests that ended; so are the next three."""
    mean_queue_time: float | None
    """From arrival to the batch, of requests that came into it."""
    mean_service_time: float | None
    """From the batch to the end."""
    service_cv: float | None
    """Coefficient of variation of that."""
    mean_ttft: float | None
    mean_tpot: float | None

    @property
    def tokens_per_second(self) -> float:
        """Output tokens over time."""
        return self.output_tokens / self.seconds

    @property
    def requests_per_second(self) -> float:
        """Requests that ended well over time."""
        return self.ended.get("stop", 0) / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """The fields, and the two rates."""
        return asdict(self) | {
            "tokens_per_second": self.tokens_per_second,
            "requests_per_second": self.requests_per_second,
        }
