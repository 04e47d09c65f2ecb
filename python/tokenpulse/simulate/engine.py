"""`Engine`: continuous batching, step by step.

Between two steps the batch is put together anew; during a step nothing can be changed; at its end each request in it
has its next token. `Engine.step` is that sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tokenpulse.simulate.cache import BlockPool
from tokenpulse.simulate.clock import SECOND_NS, Clock
from tokenpulse.simulate.hardware import Machine, StepCost
from tokenpulse.simulate.request import Request
from tokenpulse.simulate.scheduler import Plan, Scheduler
from tokenpulse.simulate.sinks import Levels, Sink
from tokenpulse.simulate.tally import Tally

ADD_EVERY_NS = SECOND_NS // 10
GAUGE_EVERY_NS = SECOND_NS
LOOK_AGAIN_SECONDS = 0.001
"""How long an engine waits that has requests, but none that may go on."""


class Took(NamedTuple):
    """How long a step takes, in seconds, of that communication and dequantisation; and its work, where it has any."""

    seconds: float
    work: StepCost | None = None
    communication: float = 0.0
    dequantisation: float = 0.0


class Engine:
    """A serving engine on a machine.

    What may be turned while it runs are plain attributes: of the scheduler (`scheduler.batch_max`, `.chunk`,
    `.prefill_quota`, `.prefill_tokens_per_second`, `.decode_parts`), the pool (`pool.resize`), and its own:

    - `comm_factor`, `comm_stall`: communication takes so many times as long, and so many seconds longer in each step.
    - `dequant_share`: a step takes longer by so much of itself, for dequantisation.
    - `stall`: seconds that each step takes longer. `eviction_seconds`: seconds that each evicted block costs.
    """

    def __init__(
        self,
        clock: Clock,
        machine: Machine,
        scheduler: Scheduler,
        sink: Sink,
        *,
        timeout_ns: int | None = None,
        acceptance: float = 0.7,
        random: Random,
    ) -> None:
        self.clock = clock
        self.machine = machine
        self.scheduler = scheduler
        self.pool: BlockPool = scheduler.pool
        self.sink = sink
        self.tally = Tally()
        self.timeout_ns = timeout_ns
        self.acceptance = acceptance
        self.comm_factor = 1.0
        self.comm_stall = 0.0
        self.dequant_share = 0.0
        self.stall = 0.0
        self.eviction_seconds = 0.0
        self.on_end: list[Callable[[Request], object]] = []
        """Who is told when a request ends."""
        self._random = random
        self._leaving: list[Request] = []
        self._amounts: dict[str, float] = {}
        self._amounts_since_ns = 0
        self._levels: Levels | None = None
        self._levels_since_ns = 0
        self._evicted = 0

    # A request comes and goes

    def submit(self, request: Request) -> None:
        """A request arrives, now."""
        t = self.clock.now_ns
        self.tally.arrived += 1
        self.scheduler.add(request)
        self.tally.waiting.set(t, len(self.scheduler.waiting))
        self.sink.arrive(t, request, min(self.pool.find(request), request.prompt_tokens))
        if self.timeout_ns is not None:
            self.clock.at(t + self.timeout_ns, lambda: self.leave(request, "timeout"))

    def leave(self, request: Request, status: str) -> None:
        """Nobody waits for the request any more: it ends, now or with the step that it is in."""
        if request.status is not None or request.leaves is not None:
            return
        request.leaves = status
        if request.in_batch:
            self._leaving.append(request)
        else:
            self._end(request, status)
            self.tally.waiting.set(self.clock.now_ns, len(self.scheduler.waiting))

    def in_flight(self) -> int:
        """Requests that arrived and have not ended."""
        return len(self.scheduler.waiting) + len(self.scheduler.running)

    # A step

    def step(self) -> None:
        """One step of continuous batching: who takes part, how long it takes, and what it leaves behind."""
        plan = self._plan()
        self._announce(plan)
        took = self._cost(plan)
        if self.clock.advance(self.clock.now_ns + round(took.seconds * SECOND_NS)):  # meanwhile others come and go
            self._account(plan, took)
            self._commit(plan)
            self.scheduler.earn(plan, took.seconds)

    def _plan(self) -> Plan:
        """Room is made in a cache that has shrunk; then the scheduler has its say."""
        too_many = self.pool.settle()
        made_way: list[Request] = []
        if too_many:
            made_way = self.scheduler.make_less(too_many)
            self.tally.oom_events += 1
            self.sink.count(self.clock.now_ns, "oom_event", 1)
        plan = self.scheduler.plan(may_admit=not made_way)
        plan.preempted = made_way + plan.preempted
        return plan

    def _announce(self, plan: Plan) -> None:
        """Tell who was put into the batch and who lost their place, and how full everything is."""
        t, sink = self.clock.now_ns, self.sink
        if plan.preempted:
            self.tally.preemptions += len(plan.preempted)
            sink.preempt(t, plan.preempted)
        for request in plan.impossible:
            self._end(request, "oom")
        if plan.admitted:
            self._announce_admitted(plan)
        self._evicted = 0
        if self.pool.evicted:
            evicted = self.pool.take_evicted()
            self._evicted = len(evicted)
            self.tally.evicted += self._evicted
            sink.kv_evict(t, evicted)
        self._measure()

    def _announce_admitted(self, plan: Plan) -> None:
        t, sink = self.clock.now_ns, self.sink
        new = [request for request, _ in plan.admitted if request.schedule_ns is None]
        back = [request for request, _ in plan.admitted if request.schedule_ns is not None]
        for request, found in plan.admitted:
            again = request.schedule_ns is not None
            looked_up = request.prompt_tokens + request.generated
            sink.kv_lookup(t, looked_up, found, again)
            if not again:
                self.tally.looked_up += looked_up
                self.tally.hit += found
        for request in new:
            request.schedule_ns = t
            self.tally.queue.add(t - request.arrive_ns)
        if new:
            sink.schedule(t, new)
            sink.prefill(t, new)
        if back:
            sink.resume(t, back)

    def _cost(self, plan: Plan) -> Took:
        """How long the step takes, as the machine is, and as it is with what slows it down."""
        tokens = plan.prefill_tokens + plan.decode_tokens
        if not tokens:
            return Took(LOOK_AGAIN_SECONDS)
        work = self.machine.step(tokens, plan.cached_tokens)
        communication = work.communication * self.comm_factor + self.comm_stall
        usual = work.seconds - work.communication + communication
        dequantisation = usual * self.dequant_share
        seconds = usual + dequantisation + self.stall + self._evicted * self.eviction_seconds
        return Took(seconds, work, communication, dequantisation)

    # What a step leaves behind

    def _account(self, plan: Plan, took: Took) -> None:
        """Add up what the step did."""
        if took.work is None:
            return
        self.tally.steps += 1
        self.tally.busy_ns += round(took.seconds * SECOND_NS)
        self.tally.prefill_tokens += plan.prefill_tokens
        self.tally.decode_tokens += plan.decode_tokens
        self._amount("gpu_active_ns", took.work.compute * SECOND_NS)
        self._amount("comm_ns", took.communication * SECOND_NS)
        self._amount("dequant_ns", took.dequantisation * SECOND_NS)
        self._amount("prefill_tokens", plan.prefill_tokens)
        self._amount("decode_tokens", plan.decode_tokens)
        self._amount("flops", took.work.flops)
        self._amount("bytes_moved", took.work.bytes_moved)

    def _commit(self, plan: Plan) -> None:
        """The step is done: tokens can be seen, full blocks have their hashes, and who is finished leaves."""
        finished: list[Request] = []
        counts = self._accepted(plan.decodes)
        if counts is None:
            self._advance_by_one(plan.decodes, finished)
        else:
            self._advance_by(plan.decodes, counts, finished)
            self.tally.rejected_drafts += plan.decode_tokens - sum(counts)
        firsts = self._advance_prompts(plan, finished)
        emitting = plan.decodes + firsts
        if emitting:
            self.sink.tokens(self.clock.now_ns, emitting, None if counts is None else counts + [1] * len(firsts))
        if self.pool.stored:
            self.sink.kv_store(self.clock.now_ns, self.pool.take_stored())
        self._see_off(finished)

    def _advance_by_one(self, decodes: list[Request], finished: list[Request]) -> None:
        """Each decoding request has its next token. This loop is where a simulation spends its time."""
        block_tokens = self.pool.block_tokens
        full = []
        for request in decodes:
            request.generated += 1
            request.computed += 1
            if not request.computed % block_tokens:
                full.append(request)
            if request.generated >= request.output_tokens:
                finished.append(request)
        for request in full:
            self.pool.fill(request)
        self.scheduler.short_of_blocks += full
        self.scheduler.decoding_cached += len(decodes)
        self.tally.output_tokens += len(decodes)

    def _advance_by(self, decodes: list[Request], counts: list[int], finished: list[Request]) -> None:
        """Each decoding request has as many tokens as its drafts were right, and one."""
        block_tokens = self.pool.block_tokens
        for request, count in zip(decodes, counts, strict=True):
            request.generated += count
            request.computed += count
            if request.computed % block_tokens < count:
                self.pool.fill(request)
            if request.generated >= request.output_tokens:
                finished.append(request)
        tokens = sum(counts)
        self.scheduler.decoding_cached += tokens
        self.tally.output_tokens += tokens

    def _accepted(self, decodes: list[Request]) -> list[int] | None:
        """How many tokens each request gets of its drafts: up to the first that is wrong; None without drafts."""
        drafts = self.scheduler.drafts
        if not drafts:
            return None
        counts = []
        for request in decodes:
            right = 0
            while right < drafts and self._random.random() < self.acceptance:
                right += 1
            counts.append(min(1 + right, request.output_tokens - request.generated))
        return counts

    def _advance_prompts(self, plan: Plan, finished: list[Request]) -> list[Request]:
        """Prompts are computed further; those that are whole give their next token: mostly the first one."""
        t = self.clock.now_ns
        done = []
        for request, tokens in plan.prefills:
            request.computed += tokens
            self.pool.fill(request)
            if request.missing:
                continue
            request.generated += 1
            done.append(request)
            if request.first_ns is None:
                request.first_ns = t
                self.tally.ttft.add(t - request.arrive_ns)
            if request.generated >= request.output_tokens:
                finished.append(request)
            else:
                self.scheduler.begin_decoding(request)
        self.tally.output_tokens += len(done)
        return done

    def _see_off(self, finished: list[Request]) -> None:
        """Requests end: those that have all their tokens, and those that nobody waits for any more."""
        for request in finished:
            self._end(request, "stop", tell=False)
        if finished:
            self.sink.end(self.clock.now_ns, finished, "stop")
        if self._leaving:
            leaving, self._leaving = self._leaving, []
            for request in leaving:
                if request.status is None:
                    self._end(request, request.leaves or "abort")

    def _end(self, request: Request, status: str, *, tell: bool = True) -> None:
        t = self.clock.now_ns
        request.status = status
        if request.in_batch or request in self.scheduler.waiting:
            self.scheduler.remove(request)
        self.tally.end(request, t)
        if tell:
            self.sink.end(t, (request,), status)
        for told in self.on_end:
            told(request)

    # How full everything is, and what was done

    def _measure(self) -> None:
        """Set the gauges where they changed, and now and then; hand on what was done every tenth of a second."""
        t, scheduler = self.clock.now_ns, self.scheduler
        running, waiting = len(scheduler.running), len(scheduler.waiting)
        self.tally.running.set(t, running)
        self.tally.waiting.set(t, waiting)
        levels = Levels(running, waiting, self.pool.used, self.pool.capacity, scheduler.batch_max)
        if levels != self._levels or t - self._levels_since_ns >= GAUGE_EVERY_NS:
            self._levels, self._levels_since_ns = levels, t
            self.sink.gauge(t, levels)
        if t - self._amounts_since_ns >= ADD_EVERY_NS:
            self.hand_on()

    def rest(self) -> None:
        """There is nothing to do: say so."""
        self._measure()

    def hand_on(self) -> None:
        """Tell the amounts of what was done since the last time."""
        self._amounts_since_ns = self.clock.now_ns
        amounts = {name: round(amount) for name, amount in self._amounts.items()}
        self._amounts.clear()
        if amounts:  # those that are 0 too: that nothing was dequantised is known
            self.sink.add(self.clock.now_ns, amounts)

    def _amount(self, name: str, amount: float) -> None:
        self._amounts[name] = self._amounts.get(name, 0) + amount
