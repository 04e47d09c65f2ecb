"""What arrives: when, how long, and what prompts have in common.

A *source* hands requests to the engine: open loops (Poisson, bursty, a trace) do not care how it does, a closed loop
sends the next when one has ended. All draw from generators of their own that begin with the seed, so that another
policy, machine or fault meets the same requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Protocol

from tokenpulse.simulate.clock import SECOND_NS
from tokenpulse.simulate.lengths import Lengths, lengths
from tokenpulse.simulate.request import HASH_BITS, Request

if TYPE_CHECKING:
    from tokenpulse.simulate.simulation import Simulation

PROMPT = "lognormal:550,cv=0.8"
OUTPUT = "lognormal:150,cv=0.6"
PREFIX_SHARE = 0.25
PREFIXES = 16
RATE = 10.0
IN_FLIGHT = 64
TOP_UP_NS = SECOND_NS // 10


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt of a shared beginning and a part of its own: blocks of equal beginnings have equal hashes."""

    shared: int
    shared_tokens: int
    own: int

    def block_hashes(self, first: int, end: int, block_tokens: int) -> list[int]:
        """Those of blocks `first` to `end`, `end` left out."""
        bound = self.shared_tokens // block_tokens
        if first >= bound:
            return list(range(self.own + first, self.own + end))
        return [
            *range(self.shared + first, self.shared + min(end, bound)),
            *range(self.own + bound, self.own + end),
        ]


@dataclass(slots=True)
class Prefixes:
    """System prompts: `share` of the requests begin with one of `count` prefixes of `tokens` tokens."""

    count: int
    tokens: int
    share: float = 1.0


class Traffic:
    """Requests of one kind. All attributes may change while the simulation runs."""

    def __init__(
        self, seed: int, name: str, prompt: Lengths, output: Lengths, prefixes: Prefixes, labels: dict[str, str]
    ) -> None:
        self.prompt = prompt
        self.output = output
        self.prefixes = prefixes
        self.labels = labels
        self._lengths = Random(f"{seed}/{name}/lengths")
        self._content = Random(f"{seed}/{name}/content")
        self._beginnings = Random(f"{seed}/{name}/beginnings")
        self._shared: list[int] = []

    def request(self, number: int, t_ns: int) -> Request:
        """The next request, which arrives now."""
        prompt, output = self.prompt.draw(self._lengths), self.output.draw(self._lengths)
        return Request(number, t_ns, prompt, output, self._text(prompt), self.labels)

    def _text(self, prompt_tokens: int) -> Text:
        prefixes = self.prefixes
        which = int(self._content.random() * prefixes.count)
        begins_so = self._content.random() < prefixes.share
        own = self._content.getrandbits(HASH_BITS)
        while len(self._shared) <= which:
            self._shared.append(self._beginnings.getrandbits(HASH_BITS))
        return Text(self._shared[which], min(prefixes.tokens, prompt_tokens) if begins_so else 0, own)


class Kind(Protocol):
    """Requests of one kind, one after the other."""

    def request(self, number: int, t_ns: int) -> Request:
        """The next request, which arrives now."""


@dataclass(slots=True)
class Clients:
    """Those who wait: `abort_rate` of them give up after `mean_patience` seconds on average."""

    abort_rate: float
    mean_patience: float
    random: Random

    def __post_init__(self) -> None:
        if not 0 <= self.abort_rate <= 1:
            raise ValueError(f"abort_rate must be between 0 and 1, got {self.abort_rate}")

    def patience(self) -> float | None:
        """How long the next one waits, in seconds; None is for ever."""
        if not self.abort_rate or self.random.random() >= self.abort_rate:
            return None
        return self.random.expovariate(1 / self.mean_patience)


class Source(Protocol):
    """Hands requests to the engine."""

    def start(self, simulation: Simulation) -> None:
        """Begin, now."""


class OpenLoop:
    """Arrivals that do not wait for anything: gaps are gamma-distributed with coefficient of variation `cv`.

    With `cv` 1 they are exponential: a Poisson process. With a larger one requests come in bursts.
    """

    def __init__(self, traffic: Traffic, rate: float, cv: float, random: Random) -> None:
        self.traffic = traffic
        self._rate = rate
        self._cv = cv
        self._random = random
        self._simulation: Simulation | None = None
        self._epoch = 0

    @property
    def rate(self) -> float:
        """Requests/s; may be set at any time, 0 too. The gap under way is then drawn anew."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._rate = rate
        self._epoch += 1
        if self._simulation is not None:
            self._next(self._simulation, float(self._simulation.clock.now_ns), self._epoch)

    def start(self, simulation: Simulation) -> None:
        """Begin, now."""
        self._simulation = simulation
        self._next(simulation, float(simulation.clock.now_ns), self._epoch)

    def _next(self, simulation: Simulation, t_ns: float, epoch: int) -> None:
        if self._rate <= 0:
            return
        due_ns = t_ns + self._gap() * SECOND_NS

        def arrive() -> None:
            if epoch == self._epoch:
                simulation.submit(self.traffic)
                self._next(simulation, due_ns, epoch)

        simulation.clock.at(round(due_ns), arrive)

    def _gap(self) -> float:
        if self._cv == 1:
            return self._random.expovariate(self._rate)
        shape = 1 / self._cv**2
        return self._random.gammavariate(shape, 1 / (shape * self._rate))


class ClosedLoop:
    """Tops up the requests in flight, whoever sent them, to `target`: whenever one ends, and ten times a second."""

    def __init__(self, traffic: Traffic, target: int | Callable[[], int]) -> None:
        self.traffic = traffic
        self.target = target

    def start(self, simulation: Simulation) -> None:
        """Begin, now."""
        simulation.engine.on_end.append(lambda _request: self._top_up(simulation))
        self._watch(simulation)

    def _watch(self, simulation: Simulation) -> None:
        self._top_up(simulation)
        simulation.clock.at(simulation.clock.now_ns + TOP_UP_NS, lambda: self._watch(simulation))

    def _top_up(self, simulation: Simulation) -> None:
        target = self.target if isinstance(self.target, int) else self.target()
        for _ in range(target - simulation.engine.in_flight()):
            simulation.submit(self.traffic)


@dataclass(slots=True)
class Workload:
    """The sources of a simulation; `main` is the one that its settings describe."""

    seed: int
    main: Source
    traffic: Traffic
    clients: Clients
    sources: list[Source] = field(default_factory=list)
    _simulation: Simulation | None = None

    @property
    def rate(self) -> float:
        """Requests/s of the open loop; may be set at any time. A trace or a closed loop has none: 0."""
        return self.main.rate if isinstance(self.main, OpenLoop) else 0.0

    @rate.setter
    def rate(self, rate: float) -> None:
        if not isinstance(self.main, OpenLoop):
            raise ValueError("only Poisson or bursty arrivals have a rate that can be set")
        self.main.rate = rate

    @property
    def prompt(self) -> Lengths:
        """Lengths of prompts."""
        return self.traffic.prompt

    @prompt.setter
    def prompt(self, prompt: Lengths) -> None:
        self.traffic.prompt = prompt

    @property
    def output(self) -> Lengths:
        """Lengths of answers."""
        return self.traffic.output

    @output.setter
    def output(self, output: Lengths) -> None:
        self.traffic.output = output

    @property
    def prefixes(self) -> Prefixes:
        """What prompts begin with."""
        return self.traffic.prefixes

    @prefixes.setter
    def prefixes(self, prefixes: Prefixes) -> None:
        self.traffic.prefixes = prefixes

    def start(self, simulation: Simulation) -> None:
        """Let all sources begin."""
        self._simulation = simulation
        for source in self.sources:
            source.start(simulation)

    def add(self, source: Source) -> None:
        """One more source, which begins now or with the simulation."""
        self.sources.append(source)
        if self._simulation is not None:
            source.start(self._simulation)

    def add_closed_loop(
        self,
        target: int | Callable[[], int],
        prompt: str | int | Lengths | None = None,
        output: str | int | Lengths | None = None,
        prefix_share: float | None = None,
        labels: dict[str, str] | None = None,
    ) -> ClosedLoop:
        """One more source, which tops up the requests in flight to `target`; like the main one but for what is given.

        `prefix_share` is the share of a mean prompt that is one of this source's own prefixes.
        """
        main = self.traffic
        prompts = main.prompt if prompt is None else lengths(prompt)
        prefixes = main.prefixes
        if prefix_share is not None:
            prefixes = Prefixes(prefixes.count, round(prefix_share * prompts.mean))
        answers = main.output if output is None else lengths(output)
        name = f"closed loop {len(self.sources)}"
        loop = ClosedLoop(Traffic(self.seed, name, prompts, answers, prefixes, labels or main.labels), target)
        self.add(loop)
        return loop


def traffic_of(
    seed: int,
    prompt: str | int | Lengths = PROMPT,
    output: str | int | Lengths = OUTPUT,
    prefix_share: float = PREFIX_SHARE,
    labels: dict[str, str] | None = None,
) -> Traffic:
    """The main source's requests. ValueError for a share that is not between 0 and 1."""
    if not 0 <= prefix_share < 1:
        raise ValueError(f"prefix_share must be 0 or more and below 1, got {prefix_share}")
    prompts, answers = lengths(prompt, "prompt"), lengths(output, "output")
    prefixes = Prefixes(PREFIXES, round(prefix_share * prompts.mean))
    return Traffic(seed, "main", prompts, answers, prefixes, labels or {})


def workload_of(
    seed: int,
    *,
    traffic: Traffic,
    clients: Clients,
    arrivals: str = "poisson",
    rate: float | None = None,
    cv: float = 3.0,
    in_flight: int | None = None,
) -> Workload:
    """A workload of one source, by its name. Raises ValueError for a setting out of its range."""
    random = Random(f"{seed}/main/arrivals")
    for name, value in (("rate", rate), ("burstiness", cv)):
        if value is not None and not (isinstance(value, (int, float)) and 1e-9 <= value <= 1e9):
            raise ValueError(f"{name} must be between 1e-9 and 1e9, got {value!r}")
    if in_flight is not None and in_flight < 1:
        raise ValueError(f"in_flight must be 1 or more, got {in_flight}")
    main: Source
    if arrivals in ("poisson", "bursty"):
        main = OpenLoop(traffic, RATE if rate is None else rate, 1.0 if arrivals == "poisson" else cv, random)
    elif arrivals == "closed":
        main = ClosedLoop(traffic, IN_FLIGHT if in_flight is None else in_flight)
    else:
        from tokenpulse.simulate.trace import replay_of

        main = replay_of(arrivals, seed, rate, traffic)
    return Workload(seed, main, traffic, clients, [main])
