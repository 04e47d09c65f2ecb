"""`run`: a simulation from its settings to its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from tokenpulse import compressed
from tokenpulse.engine import CoreMeter
from tokenpulse.grammar import duration_ns, since_ns
from tokenpulse.simulate.cache import BlockPool
from tokenpulse.simulate.clock import SECOND_NS, Clock
from tokenpulse.simulate.engine import Engine
from tokenpulse.simulate.hardware import GPU, Machine, Model, known_machine
from tokenpulse.simulate.lengths import Lengths
from tokenpulse.simulate.request import Request
from tokenpulse.simulate.scheduler import Scheduler
from tokenpulse.simulate.sinks import Lines, Several, Sink, ToMeter
from tokenpulse.simulate.tally import Result
from tokenpulse.simulate.workload import (
    OUTPUT,
    PREFIX_SHARE,
    PROMPT,
    Clients,
    Kind,
    Workload,
    traffic_of,
    workload_of,
)

if TYPE_CHECKING:
    from tokenpulse.simulate.faults import Fault

MODEL = "llama-3.1-70b-fp8"
GPU_NAME = "h100-sxm"
GPUS = 8


class Simulation:
    """A clock, a machine with its engine, and a workload. A fault has this in its hands."""

    def __init__(self, clock: Clock, engine: Engine, workload: Workload, seed: int) -> None:
        self.clock = clock
        self.engine = engine
        self.machine = engine.machine
        self.workload = workload
        self.seed = seed
        self._number = 0

    @property
    def now(self) -> float:
        """Seconds since the simulation began."""
        return self.clock.now_ns / SECOND_NS

    @property
    def duration(self) -> float:
        """Seconds until it ends."""
        return self.clock.end_ns / SECOND_NS

    def at(self, seconds: float, callback: Callable[[], object]) -> None:
        """Call `callback` when it is so many seconds since the simulation began; what is due after its end never is."""
        self.clock.at(round(seconds * SECOND_NS), callback)

    def submit(self, traffic: Kind) -> Request:
        """The next request of this kind arrives, now."""
        self._number += 1
        request = traffic.request(self._number, self.clock.now_ns)
        self.engine.submit(request)
        patience = self.workload.clients.patience()
        if patience is not None:
            self.at(self.now + patience, lambda: self.engine.leave(request, "abort"))
        return request

    def about(self) -> dict[str, Any]:
        """What a log says of itself in its first line: the settings, and nothing of what will go wrong."""
        machine, scheduler, pool = self.machine, self.engine.scheduler, self.engine.pool
        return {
            "simulated": True,
            "seed": self.seed,
            "rate": self.workload.rate or None,
            "model": machine.model.name,
            "gpu": machine.gpu.name,
            "gpus": machine.gpus,
            "peak_flops": machine.peak_flops,
            "bandwidth_bytes_per_second": machine.bandwidth,
            "kv_block_tokens": pool.block_tokens,
            "policy": scheduler.policy,
        }

    def run(self) -> Result:
        """Let it run to its end. What is in flight then stays so."""
        self.workload.start(self)
        while self.clock.now_ns < self.clock.end_ns:
            if self.engine.in_flight():
                self.engine.step()
            else:
                self.engine.rest()
                self.clock.advance_to_next()
        self.engine.hand_on()
        self.clock.forget()
        return self.engine.tally.result(self.clock.end_ns)


def build(
    *,
    seed: int = 0,
    duration: str | float = "120s",
    rate: float | None = None,
    model: str | Model = MODEL,
    gpu: str | GPU = GPU_NAME,
    gpus: int = GPUS,
    policy: str = "chunked",
    chunk: int = 2048,
    prefill_quota: int | None = None,
    batch_max: int = 128,
    kv_blocks: int | None = None,
    block_tokens: int = 16,
    prefix_cache: bool = True,
    prompt: str | int | Lengths = PROMPT,
    output: str | int | Lengths = OUTPUT,
    prefix_share: float = PREFIX_SHARE,
    arrivals: str = "poisson",
    burstiness: float = 3.0,
    in_flight: int | None = None,
    labels: dict[str, str] | None = None,
    timeout: str | float | None = None,
    abort_rate: float = 0.0,
    patience: str | float = "2s",
    speculate: int = 0,
    acceptance: float = 0.7,
    machine: Machine | None = None,
    fault: str | Fault | None = None,
    fault_from: str | float | None = None,
    sink: Sink | None = None,
) -> Simulation:
    """A simulation that has not begun; `run` says what the settings mean."""
    clock = Clock(duration_ns(duration))
    machine = machine or known_machine(model, gpu, gpus)
    workload = workload_of(
        seed,
        arrivals=arrivals,
        rate=rate,
        cv=burstiness,
        in_flight=in_flight,
        traffic=traffic_of(seed, prompt, output, prefix_share, labels),
        clients=Clients(abort_rate, duration_ns(patience) / SECOND_NS, Random(f"{seed}/clients")),
    )
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance must be between 0 and 1, got {acceptance}")
    pool = BlockPool(
        machine.kv_blocks(block_tokens) if kv_blocks is None else kv_blocks, block_tokens, reuse=prefix_cache
    )
    scheduler = Scheduler(
        pool, policy=policy, batch_max=batch_max, chunk=chunk, prefill_quota=prefill_quota, drafts=speculate
    )
    engine = Engine(
        clock,
        machine,
        scheduler,
        Several(()) if sink is None else sink,
        timeout_ns=None if timeout is None else duration_ns(timeout),
        acceptance=acceptance,
        random=Random(f"{seed}/drafts"),
    )
    simulation = Simulation(clock, engine, workload, seed)
    if fault is not None:
        from tokenpulse.simulate.faults import parse_fault

        trouble = parse_fault(fault) if isinstance(fault, str) else fault
        begin_ns = clock.end_ns // 3 if fault_from is None else since_ns(fault_from)
        if begin_ns >= clock.end_ns:
            raise ValueError(f"fault_from must be before the end, {simulation.duration:g} s, got {fault_from}")
        name = fault if isinstance(fault, str) else type(fault).__name__

        def begin() -> None:
            try:
                trouble.begin(simulation)
            except ValueError as wrong:
                raise ValueError(f"fault {name}: {wrong}") from None

        clock.at(begin_ns, begin)
    return simulation


def run(
    *,
    out: str | os.PathLike[str] | BinaryIO | None = None,
    meter: CoreMeter | None = None,
    every_ns: int = SECOND_NS,
    on_pane: Callable[[int], object] | None = None,
    **settings: Any,
) -> Result:
    """Simulate a serving engine, and say what it adds up to.

    The same settings give the same events, whatever they are written to.

    `seed`: of all that is drawn. `duration`: when it stops (`"120s"`, or seconds); what is in flight then stays so.

    Machine: `model` and `gpu` are names of the catalog or objects, `gpus` how many share each layer; or a `machine`.

    Arrivals: `arrivals` is `poisson`, `bursty` (gaps are gamma-distributed with coefficient of variation `burstiness`),
    `closed` (`in_flight` requests are always in flight, by default 64) or the path of a trace (of Azure, BurstGPT or
    Mooncake); `rate` requests/s, by default 10, or as the trace has them. `prompt`, `output`: distributions of lengths
    in tokens, such as `lognormal:550,cv=0.8`. `prefix_share`: the share of a mean prompt that it has in common with
    others. `labels` of the requests. `abort_rate`: the share of requests whose client gives up, after `patience` on
    average (exponentially distributed).

    Engine: `policy` is `chunked`, `prefill-first` or `decode-first`; `chunk` most tokens of a step; `prefill_quota`
    most tokens of prompts in a step. `batch_max` most requests in the batch. `kv_blocks` of `block_tokens` tokens
    each, by default as many as the memory has room for; `prefix_cache` is whether they are shared. `timeout`: when the
    server gives a request up. `speculate`: drafts in a step, each accepted with the probability `acceptance`.

    `fault`: what goes wrong, as in `large-batch:0.6`, from `fault_from` on (seconds since the beginning; by default a
    third of the duration).

    `out`: where event lines go, a path (`.gz` and `.zst` are compressed) or a binary stream. `meter`: a meter to drive.
    `on_pane(t_ns)` is called at each multiple of `every_ns`, before what happens then, and at the end.

    Raises ValueError for a setting out of its range, FormatError and OSError for a trace that cannot be read, OSError
    for a file that cannot be written.

    >>> result = run(seed=1, duration="10s", rate=20)
    >>> result == run(seed=1, duration="10s", rate=20), result.arrived == sum(result.ended.values()) + result.in_flight
    (True, True)
    """
    with ExitStack() as stack:
        sinks: list[Sink] = []
        if out is not None:
            sinks.append(stack.enter_context(_lines(out)))
        if meter is not None:
            sinks.append(ToMeter(meter))
        sink = sinks[0] if len(sinks) == 1 else cast(Sink, Several(sinks))
        simulation = build(sink=sink, **settings)
        if on_pane is not None:
            simulation.clock.every(every_ns, on_pane)
        sink.ready(0, simulation.about())
        result = simulation.run()
        if on_pane is not None:
            on_pane(simulation.clock.now_ns)
        # The parts of a simulation hold one another until the garbage collector comes; the meter shall not wait for it.
        simulation.engine.sink = Several(())
        return result


@contextmanager
def _lines(out: str | os.PathLike[str] | BinaryIO) -> Iterator[Lines]:
    with ExitStack() as stack:
        path = os.fspath(out) if isinstance(out, (str, os.PathLike)) else None
        stream = stack.enter_context(compressed.writing(path)) if path is not None else cast(BinaryIO, out)
        lines = Lines(stream)
        yield lines
        lines.close()
