"""Faults to inject: what goes wrong in practice, one kind for each sign that a diagnosis knows.

A fault begins at a moment of the simulation and lasts. How strong it must be follows from the machine and its load (the
fluid estimates), so that it shows at any rate that the machine can serve, and more with more `intensity`, 0 to 1.

| fault | what happens | what it shows in |
|---|---|---|
| `large-batch` | a router keeps too many requests in flight | TPOT, batch utilisation |
| `prefill-squeezed` | prompts get hardly more than they need of each step | TTFT, queue |
| `decode-fills` | jobs with long answers fill the batch | TTFT, decode's share |
| `refill-thrash` | more is shared than the cache can keep, and what comes back is dequantised | TPOT, refills |
| `eviction-storm` | another tenant takes blocks of the cache, and gives them back, again and again | ITL of seconds |
| `comm-spikes` | now and then, each exchange between the GPUs is delayed | ITL of seconds |
| `small-batch` | less arrives, and each step decodes only a part of the batch | TPOT, GPU utilisation |
| `overload` | more arrives than can be served | queue |
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from tokenpulse.simulate import fluid
from tokenpulse.simulate.fluid import Demand
from tokenpulse.simulate.workload import OpenLoop, Prefixes

if TYPE_CHECKING:
    from tokenpulse.simulate.simulation import Simulation

FULL = 1.0
"""The intensity of a fault that is named without one."""


@dataclass(frozen=True)
class Fault(ABC):
    """Something that goes wrong. `intensity` is from 0, hardly, to 1."""

    name: ClassVar[str]
    row: ClassVar[str]
    """Of the diagnosis table: what it should be found by."""
    intensity: float = FULL

    def __post_init__(self) -> None:
        if not 0 <= self.intensity <= 1:
            raise ValueError(f"a fault's intensity must be between 0 and 1, got {self.intensity}")

    @abstractmethod
    def begin(self, simulation: Simulation) -> None:
        """From now on it is there."""


class LargeBatch(Fault):
    """A router whose limit of concurrency is too large: it tops up the requests in flight to nearly a full batch."""

    name = "large-batch"
    row = "tpot-batch"

    def begin(self, simulation: Simulation) -> None:
        share = 0.85 + 0.12 * self.intensity
        simulation.workload.add_closed_loop(round(share * simulation.engine.scheduler.batch_max))


class PrefillSqueezed(Fault):
    """Prompts get so few tokens of each step that they need 75 to 95 % of them: a queue, but a stable one."""

    name = "prefill-squeezed"
    row = "ttft-queue"

    def begin(self, simulation: Simulation) -> None:
        scheduler = simulation.engine.scheduler
        if scheduler.policy != "chunked":
            raise ValueError(f"only the policy chunked has parts of steps to squeeze, got {scheduler.policy}")
        needed = _rate(simulation) * _demand(simulation).prompt_tokens
        scheduler.prefill_tokens_per_second = needed / (0.75 + 0.2 * self.intensity)


class DecodeFills(Fault):
    """Jobs with the same prompts and answers five times as long keep the batch full, and a few requests waiting."""

    name = "decode-fills"
    row = "ttft-decode-share"

    def begin(self, simulation: Simulation) -> None:
        share = 1.03 + 0.1 * self.intensity
        longer = simulation.workload.output.times(5.0)
        simulation.workload.add_closed_loop(round(share * simulation.engine.scheduler.batch_max), output=longer)


class RefillThrash(Fault):
    """Prompts share longer beginnings of more kinds than the cache, which has become small, can keep; each step has to
    dequantise what comes back."""

    name = "refill-thrash"
    row = "refill-thrash"

    COUNT = 64
    SHARED = 0.5
    """Of a mean prompt."""
    KEPT_FOR = 60
    """Requests after which an unused block is evicted: a beginning is used again after 64, on average."""

    def begin(self, simulation: Simulation) -> None:
        engine, workload = simulation.engine, simulation.workload
        engine.dequant_share = 0.35 + 0.65 * self.intensity
        demand = _demand(simulation)
        slowed = _rate(simulation) * (1 + engine.dequant_share)  # steps that are longer hold as much as more traffic
        batch = min(fluid.mean_batch(simulation.machine, demand, slowed), engine.scheduler.batch_max)
        held = batch * demand.cached_tokens
        prefixes = workload.traffic.prefixes = Prefixes(self.COUNT, round(self.SHARED * workload.prompt.mean))
        own = workload.prompt.mean * (1 - self.SHARED) + workload.output.mean
        shared = (1 - math.exp(-self.KEPT_FOR / self.COUNT)) * self.COUNT * prefixes.tokens
        kept = self.KEPT_FOR * own + shared
        engine.pool.resize(min(engine.pool.capacity, math.ceil((held + kept) / engine.pool.block_tokens)))


@dataclass(frozen=True)
class Bursts(Fault):
    """Trouble for two thirds of a second, every eight seconds on the second, as jobs are that a timer starts."""

    EVERY = 8.0
    """s."""
    LONGER = 6.0
    """How many times as long as the step of a long prompt one is at least."""
    FEW = 6.0
    """Requests in the batch, on average, up to which they are few."""

    def begin(self, simulation: Simulation) -> None:
        self._again(simulation, math.ceil(simulation.now))

    def _again(self, simulation: Simulation, when: float) -> None:
        def burst() -> None:
            self.trouble(simulation, self.lasts / self.steps(simulation))
            # Steps are longer than that, by what they compute: the last one begins before, and ends after this.
            simulation.at(when + self.lasts, lambda: self.relief(simulation))
            self._again(simulation, when + self.EVERY)

        simulation.at(when, burst)

    @property
    def lasts(self) -> float:
        """s: how long steps are held up in all."""
        return 0.6 + 0.1 * self.intensity

    def steps(self, simulation: Simulation) -> int:
        """How many steps fill a burst: one to three, each far longer than that of a long prompt, so that a healthy
        machine has no such steps. Of few requests it takes more to be a hundredth of a second's tokens."""
        machine, workload = simulation.machine, simulation.workload
        long_prompt = machine.step(round(2 * workload.prompt.mean), 0).seconds
        most = int(self.lasts / (self.LONGER * long_prompt))
        few = fluid.mean_batch(machine, _demand(simulation), _rate(simulation)) < self.FEW
        return max(1, min(3 if few or self.intensity < 0.5 else 2, most))

    @abstractmethod
    def trouble(self, simulation: Simulation, stall: float) -> None:
        """From now on each step takes `stall` seconds longer."""

    @abstractmethod
    def relief(self, simulation: Simulation) -> None:
        """All is well again."""


class CommSpikes(Bursts):
    """The GPUs' exchange is delayed, by other traffic on their links or by retries."""

    name = "comm-spikes"
    row = "p99-swings"

    def trouble(self, simulation: Simulation, stall: float) -> None:
        simulation.engine.comm_stall = stall

    def relief(self, simulation: Simulation) -> None:
        simulation.engine.comm_stall = 0.0


class EvictionStorm(Bursts):
    """Another tenant takes part of the cache: what is kept is evicted, and steps wait for it. Then it gives it back."""

    name = "eviction-storm"
    row = "p99-swings"

    PIECES = 8

    def trouble(self, simulation: Simulation, stall: float) -> None:
        engine, pool = simulation.engine, simulation.engine.pool
        capacity = pool.capacity
        engine.stall = stall
        taken = round((0.4 + 0.3 * self.intensity) * pool.kept)
        first = capacity - pool.available + pool.kept  # what is blank goes before what is kept
        for piece in range(self.PIECES):
            size = max(1, first - taken * (piece + 1) // self.PIECES)
            after = piece * (self.lasts - stall) / self.PIECES
            simulation.at(simulation.now + after, partial(pool.resize, size))
        simulation.at(simulation.now + self.lasts, partial(pool.resize, capacity))

    def relief(self, simulation: Simulation) -> None:
        simulation.engine.stall = 0.0


class SmallBatch(Fault):
    """Each step decodes only a part of the requests, so that each read of the weights serves few of them. Some of the
    traffic goes elsewhere: a quarter, and more where the GPUs would be busy all the same."""

    name = "small-batch"
    row = "memory-bound"

    BUSY = 0.35
    STAYS = 0.75
    """The share of the traffic that stays at most, so that chance does not make it more than before."""
    ENOUGH = 130
    """Requests of a third of the run that are not turned away by that: with fewer nothing could be judged."""
    INTENSITY_OF_RIDGE = 0.35
    """Of the roofline's ridge: what the arithmetic intensity stays under."""

    def begin(self, simulation: Simulation) -> None:
        rate = _rate(simulation)
        main, left = simulation.workload.main, rate
        if isinstance(main, OpenLoop):
            enough = self.ENOUGH / (simulation.duration / 3)
            left = main.rate = min(self._idle_rate(simulation, rate), max(self.STAYS * rate, min(enough, rate)))
        faster = _tpot(simulation, rate) / _tpot(simulation, left)
        simulation.engine.scheduler.decode_parts = (1.6 + 0.7 * self.intensity) * faster

    def _idle_rate(self, simulation: Simulation, rate: float) -> float:
        """The rate, or the highest below it that leaves the GPUs idle enough."""
        low, high = 0.0, rate
        for _ in range(40):
            if self._busy(simulation, high):
                middle = (low + high) / 2
                low, high = (low, middle) if self._busy(simulation, middle) else (middle, high)
                if high - low < 1e-3:
                    return low
            else:
                return high
        return low

    def _busy(self, simulation: Simulation, rate: float) -> bool:
        machine, demand = simulation.machine, _demand(simulation)
        batch = fluid.mean_batch(machine, demand, rate)
        if not math.isfinite(batch) or fluid.gpu_utilization(machine, demand, rate) > self.BUSY:
            return True
        seconds = fluid.mean_step_seconds(machine, demand, batch, rate * demand.prompt_tokens)
        cost = machine.step(batch + rate * demand.prompt_tokens * seconds, batch * demand.cached_tokens)
        ridge = machine.peak_flops / machine.bandwidth
        return cost.flops / cost.bytes_moved > self.INTENSITY_OF_RIDGE * ridge


class Overload(Fault):
    """Arrivals at 1.2 to 1.8 times what the machine can serve."""

    name = "overload"
    row = "queue-growth"

    def begin(self, simulation: Simulation) -> None:
        scheduler = simulation.engine.scheduler
        most = fluid.capacity(simulation.machine, _demand(simulation), scheduler.batch_max)
        simulation.workload.rate = max(most, _rate(simulation)) * (1.2 + 0.6 * self.intensity)


FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        LargeBatch,
        PrefillSqueezed,
        DecodeFills,
        RefillThrash,
        EvictionStorm,
        CommSpikes,
        SmallBatch,
        Overload,
    )
}
"""By name."""


def parse_fault(text: str) -> Fault:
    """A fault as it is written: `NAME` or `NAME:INTENSITY`. Raises ValueError for what is none.

    >>> parse_fault("overload:0.6").intensity, parse_fault("overload").intensity
    (0.6, 1.0)
    """
    name, colon, strength = text.partition(":")
    if name not in FAULTS:
        raise ValueError(f"a fault must be one of {', '.join(FAULTS)}, with :INTENSITY from 0 to 1; got {text!r}")
    try:
        intensity = float(strength) if colon else FULL
    except ValueError:
        intensity = math.nan
    if not 0 <= intensity <= 1:
        raise ValueError(f"fault {text!r}: the intensity must be a number from 0 to 1, got {strength!r}")
    return FAULTS[name](intensity)


def _demand(simulation: Simulation) -> Demand:
    return Demand.of(simulation.workload, simulation.engine.pool.block_tokens)


def _rate(simulation: Simulation) -> float:
    """Requests/s: of the open loop, or those that came so far."""
    return simulation.workload.rate or simulation.engine.tally.arrived / max(simulation.now, 1.0)


def _tpot(simulation: Simulation, rate: float) -> float:
    """s: what a step takes at a rate, or with a full batch where it is too high."""
    machine, demand = simulation.machine, _demand(simulation)
    batch = min(fluid.mean_batch(machine, demand, rate), simulation.engine.scheduler.batch_max)
    return fluid.mean_step_seconds(machine, demand, batch, rate * demand.prompt_tokens)
