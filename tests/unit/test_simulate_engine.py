"""The parts of the simulated engine: the cache's blocks, who is in a step, and what a step takes."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpulse import formulas
from tokenpulse.simulate import Request, Simulation, Stage, build, known_gpus, known_machine, known_models
from tokenpulse.simulate.cache import BlockPool
from tokenpulse.simulate.clock import Clock
from tokenpulse.simulate.fluid import Demand, capacity, mean_batch
from tokenpulse.simulate.lengths import Lengths, lengths
from tokenpulse.simulate.scheduler import Plan, Scheduler
from tokenpulse.simulate.workload import Text

BLOCK = 16


def request(number: int, prompt: int, output: int = 10, *, shared: int = 0) -> Request:
    """A request whose first `shared` tokens are those of all others."""
    return Request(number, 0, prompt, output, Text(1 << 40, shared, number << 20))


# The cache


def admit(pool: BlockPool, one: Request) -> int:
    """Let it hold its whole prompt, computed; how many tokens were found."""
    found = pool.find(one)
    pool.claim(one, found)
    assert pool.reserve(one, one.prompt_tokens)
    one.computed = one.prompt_tokens
    pool.fill(one)
    return found


def test_equal_beginnings_share_blocks_and_no_more() -> None:
    pool = BlockPool(100, BLOCK)
    first, second = request(1, 100, shared=40), request(2, 100, shared=40)
    assert admit(pool, first) == 0
    assert admit(pool, second) == 2 * BLOCK  # the third block has tokens of its own
    assert pool.used == 7 + 7 - 2
    pool.release(first)
    assert (pool.used, pool.kept) == (7, 4)  # the last block was not full: nobody could find it
    pool.release(second)
    assert (pool.used, pool.kept, pool.blank) == (0, 10, 90)


def test_one_token_is_always_computed() -> None:
    pool = BlockPool(100, BLOCK)
    first = request(1, 64, shared=64)
    admit(pool, first)
    assert pool.find(request(2, 64, shared=64)) == 48
    assert pool.find(request(3, 65, shared=64)) == 64


def test_the_block_longest_without_a_holder_goes_first() -> None:
    pool = BlockPool(6, BLOCK)
    first, second = request(1, 3 * BLOCK), request(2, 3 * BLOCK)
    admit(pool, first)
    admit(pool, second)
    pool.release(first)
    pool.release(second)
    pool.take_stored()
    third = request(3, 2 * BLOCK)
    admit(pool, third)
    hashes = first.content.block_hashes(0, 3, BLOCK)
    assert pool.take_evicted() == [hashes[2], hashes[1]]  # of one request, the last block first
    assert hashes[0] in pool
    assert pool.take_stored() == third.hashes


def test_a_pool_that_shrinks_evicts_and_says_what_is_too_much() -> None:
    pool = BlockPool(10, BLOCK)
    held, gone = request(1, 5 * BLOCK), request(2, 4 * BLOCK)
    admit(pool, held)
    admit(pool, gone)
    pool.release(gone)
    pool.resize(6)
    assert (pool.capacity, pool.settle(), pool.capacity) == (10, 0, 6)
    assert len(pool.take_evicted()) == 3
    pool.resize(3)
    assert pool.settle() == 2
    assert not pool.reserve(request(3, 10), 10)
    with pytest.raises(ValueError, match="1 block or more, got 0"):
        pool.resize(0)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), capacity=st.integers(1, 60), shared=st.integers(0, 80))
def test_blocks_are_held_kept_or_blank(seed: int, capacity: int, shared: int) -> None:
    """Against an account by hand: each hash that somebody holds once, each other block of a request once."""
    random, pool, running = Random(seed), BlockPool(capacity, BLOCK), []
    resident: set[int] = set()
    for number in range(80):
        one = request(number, random.randint(1, 120), shared=shared)
        if random.random() < 0.6:
            pool.claim(one, pool.find(one))
            if pool.reserve(one, one.prompt_tokens):
                one.computed = one.prompt_tokens
                pool.fill(one)
                running.append(one)
            else:
                pool.release(one)
        elif running:
            pool.release(running.pop(random.randrange(len(running))))
        resident -= set(pool.take_evicted())
        stored = pool.take_stored()
        assert not resident & set(stored)
        resident |= set(stored)
        holders = Counter(block_hash for other in running for block_hash in other.hashes)
        partial = sum(other.blocks - len(other.hashes) for other in running)
        assert pool.used == len(holders) + partial
        assert pool.kept == len(resident - set(holders))
        assert pool.used + pool.kept + pool.blank == capacity
        assert pool.blank >= 0


# The scheduler


def done(scheduler: Scheduler, plan: Plan) -> None:
    """What an engine does after a step, without drafts."""
    for one in plan.decodes:
        one.computed += 1
        one.generated += 1
        if one.computed % BLOCK == 0:
            scheduler.pool.fill(one)
            scheduler.short_of_blocks.append(one)
    scheduler.decoding_cached += len(plan.decodes)
    for one, tokens in plan.prefills:
        one.schedule_ns = one.schedule_ns or 0
        one.computed += tokens
        scheduler.pool.fill(one)
        if not one.missing:
            one.generated += 1
            scheduler.begin_decoding(one)


def scheduler_with(*requests: Request, blocks: int = 1000, **settings: object) -> Scheduler:
    scheduler = Scheduler(BlockPool(blocks, BLOCK), **settings)  # type: ignore[arg-type]
    for one in requests:
        scheduler.add(one)
    return scheduler


def test_chunked_fills_the_step_with_prompts() -> None:
    first, second = request(1, 100), request(2, 300)
    scheduler = scheduler_with(first, second, chunk=256)
    assert (first.stage(), second.stage()) == (Stage.WAITING, Stage.WAITING)
    plan = scheduler.plan()
    assert plan.prefills == [(first, 100), (second, 156)]
    done(scheduler, plan)
    assert (first.stage(), second.stage()) == (Stage.DECODE, Stage.PREFILL)
    plan = scheduler.plan()
    assert (plan.decodes, plan.prefills) == ([first], [(second, 144)])
    assert plan.cached_tokens == 100 + 300


def test_prefill_first_and_decode_first_do_not_mix() -> None:
    for policy in ("prefill-first", "decode-first"):
        first, second, third = request(1, 100), request(2, 300), request(3, 100)
        scheduler = scheduler_with(first, second, policy=policy, chunk=256)
        plan = scheduler.plan()
        whole = [(first, 100), (second, 300)]
        assert plan.prefills == (whole[:1] if policy == "prefill-first" else whole)
        done(scheduler, plan)
        scheduler.add(third)
        plan = scheduler.plan()
        if policy == "prefill-first":
            assert (plan.decodes, plan.prefills) == ([], whole[1:])  # longer than a chunk: alone
        else:
            assert (plan.decodes, plan.prefills) == ([first, second], [])


def test_the_last_one_admitted_gives_way_and_comes_back_first() -> None:
    first, second, third = request(1, 32, 100), request(2, 32, 100), request(3, 32, 100)
    scheduler = scheduler_with(first, second, third, blocks=5)
    done(scheduler, scheduler.plan())
    assert scheduler.running == [first, second]
    plan = scheduler.plan()  # both need a third block, and there is one
    assert (plan.preempted, plan.decodes) == ([second], [first])
    assert second.stage() is Stage.PREEMPTED
    assert list(scheduler.waiting) == [second, third]
    assert plan.admitted == []
    scheduler.remove(first)
    plan = scheduler.plan()
    assert plan.admitted == [(second, 32), (third, 0)]  # its full blocks were still there
    assert second.stage() is Stage.PREFILL
    assert second.missing == 1


def test_who_can_never_fit_is_impossible() -> None:
    huge, alone = request(1, 200), request(2, 40, 100)
    scheduler = scheduler_with(huge, alone, blocks=3)
    plan = scheduler.plan()
    assert plan.impossible == [huge]
    for _ in range(9):
        done(scheduler, plan)
        plan = scheduler.plan()
    assert plan.impossible == [alone]  # 49 tokens need a fourth block, and nobody is left to preempt
    assert (scheduler.running, scheduler.pool.used) == ([], 0)


def test_quota_rate_batch_and_parts_bind() -> None:
    scheduler = scheduler_with(*(request(number, 100) for number in range(8)), prefill_quota=150, batch_max=4)
    plan = scheduler.plan()
    assert plan.prefill_tokens == 150
    scheduler.prefill_tokens_per_second = 1000.0
    done(scheduler, plan)
    scheduler.earn(plan, 0.2)
    plan = scheduler.plan()
    assert plan.prefill_tokens == 50
    scheduler.prefill_tokens_per_second = None
    for _ in range(4):
        done(scheduler, plan)
        plan = scheduler.plan()
    assert len(scheduler.running) == len(plan.decodes) == 4
    scheduler.decode_parts = 2.0
    turns = [scheduler.plan().decodes for _ in range(2)]
    assert [len(turn) for turn in turns] == [2, 2]
    assert {one.number for turn in turns for one in turn} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"policy": "fifo"}, "policy must be one of chunked, prefill-first, decode-first; got 'fifo'"),
        ({"chunk": 0}, "chunk must be 1 or more, got 0"),
        ({"batch_max": 0}, "batch_max must be 1 or more, got 0"),
        ({"speculate": -1}, "speculate must be 0 drafts or more, got -1"),
        ({"acceptance": 1.5}, "acceptance must be between 0 and 1, got 1.5"),
        ({"abort_rate": 2}, "abort_rate must be between 0 and 1, got 2"),
        ({"prefix_share": 1}, "prefix_share must be 0 or more and below 1, got 1"),
        ({"rate": 0}, "rate must be between 1e-9 and 1e9, got 0"),
        ({"arrivals": "closed", "in_flight": 0}, "in_flight must be 1 or more, got 0"),
        ({"arrivals": "bursty", "burstiness": float("nan")}, "burstiness must be between 1e-9 and 1e9, got nan"),
        ({"kv_blocks": 0}, "kv_blocks must be 1 or more, got 0"),
        ({"block_tokens": 0}, "block_tokens must be 1 or more, got 0"),
        ({"block_tokens": -1, "kv_blocks": 10}, "block_tokens must be 1 or more, got -1"),
        ({"fault": "overload", "fault_from": 120}, "fault_from must be before the end, 120 s, got 120"),
        ({"gpu": "abacus"}, "gpu must be one of h100-sxm, .* got 'abacus'"),
        ({"gpus": 0}, "gpus must be a whole number, 1 or more, got 0"),
        ({"gpus": 2.5}, "gpus must be a whole number, 1 or more, got 2.5"),
        ({"model": "llama-3.1-405b-fp8"}, None),
        ({"model": "llama-3.1-405b-fp8", "gpus": 2}, "does not fit on 2 x h100-sxm"),
    ],
)
def test_settings_out_of_range(wrong: dict[str, object], message: str | None) -> None:
    if message is None:
        build(**wrong)  # type: ignore[arg-type]
        return
    with pytest.raises(ValueError, match=message):
        build(**wrong)  # type: ignore[arg-type]


# While it runs


def run_to(simulation: Simulation, seconds: float) -> None:
    simulation.at(seconds, lambda: None)
    while simulation.now < seconds:
        simulation.engine.step()


def test_what_faults_turn_takes_effect() -> None:
    simulation = build(seed=1, duration="60s", arrivals="closed", in_flight=40)
    simulation.workload.start(simulation)
    engine = simulation.engine
    run_to(simulation, 2)
    assert engine.in_flight() == 40
    usual = step_seconds(simulation)
    engine.stall = 0.1
    assert step_seconds(simulation) == pytest.approx(usual + 0.1, abs=0.03)
    engine.stall, engine.comm_stall = 0.0, 0.2
    assert step_seconds(simulation) == pytest.approx(usual + 0.2, abs=0.03)
    engine.comm_stall, engine.dequant_share = 0.0, 9.0
    assert step_seconds(simulation) > 5 * usual
    engine.dequant_share = 0.0
    held = engine.pool.used
    engine.pool.resize(held // 2)
    engine.step()
    assert engine.pool.used <= held // 2 == engine.pool.capacity
    assert engine.tally.oom_events == 1
    assert engine.tally.preemptions > 0
    simulation.workload.add_closed_loop(60)
    assert engine.in_flight() == 60


def step_seconds(simulation: Simulation) -> float:
    """How long the next step takes in which nobody's prompt is computed."""
    while True:
        begun, prompts = simulation.now, simulation.engine.tally.prefill_tokens
        simulation.engine.step()
        if simulation.engine.tally.prefill_tokens == prompts:
            return simulation.now - begun


def test_a_rate_may_change_and_a_stop_is_no_end() -> None:
    simulation = build(seed=1, duration="30s", rate=20)
    simulation.at(10, lambda: setattr(simulation.workload, "rate", 0.0))
    simulation.at(20, lambda: setattr(simulation.workload, "rate", 40.0))
    arrived: list[int] = []
    simulation.clock.every(10 * 10**9, lambda _t: arrived.append(simulation.engine.tally.arrived))
    result = simulation.run()
    assert arrived[0] == 0
    assert arrived[1] == pytest.approx(200, rel=0.25)
    assert arrived[2] == arrived[1]
    assert result.arrived - arrived[2] == pytest.approx(400, rel=0.25)


def test_a_clock_keeps_the_order() -> None:
    clock, order = Clock(10), list[str]()
    clock.at(5, lambda: order.append("b"))
    clock.at(5, lambda: order.append("c"))
    clock.at(5, lambda: order.append("a"), first=True)
    clock.at(10, lambda: order.append("never"))
    assert clock.advance(10)
    assert not clock.advance(11)
    assert order == ["a", "b", "c"]


# The machine


@pytest.mark.parametrize("model", known_models())
@pytest.mark.parametrize("gpu", known_gpus())
def test_a_step_is_the_formulas(model: str, gpu: str) -> None:
    machine = known_machine(model, gpu, 32)
    assert machine.kv_blocks(16) > 1000
    for tokens, cached in ((1, 700), (64, 64_000), (2048, 100_000)):
        cost = machine.step(tokens, cached)
        kv = formulas.kv_step_bytes(1, machine.model.kv_bytes_per_token, cached)
        compute = formulas.prefill_seconds(machine.model.computing, tokens, machine.peak_flops, machine.mfu)
        assert cost.compute == pytest.approx(compute)
        assert cost.bytes_moved == pytest.approx(machine.model.weight_bytes + kv)
        roofline = formulas.roofline_seconds(
            cost.flops, machine.peak_flops * machine.mfu, cost.bytes_moved, machine.bandwidth
        )
        assert cost.seconds == pytest.approx(roofline + cost.communication + machine.overhead_seconds)
        if cost.memory > cost.compute:
            tpot = formulas.tpot_seconds(
                machine.model.weight_bytes, kv, machine.bandwidth, cost.communication, machine.overhead_seconds
            )
            assert cost.seconds == pytest.approx(tpot)


def test_one_gpu_talks_to_nobody() -> None:
    assert known_machine("llama-3.1-8b", "h100-sxm").step(100, 0).communication == 0
    assert known_machine("llama-3.1-8b", "h100-sxm", 2).step(100, 0).communication > 0


def test_the_fluid_is_near_the_simulation() -> None:
    simulation = build(seed=2, duration="60s", rate=20)
    demand = Demand.of(simulation.workload)
    expected = mean_batch(simulation.machine, demand, 20)
    assert simulation.run().mean_running == pytest.approx(expected, rel=0.25)
    full = build(seed=2, duration="30s", arrivals="closed", in_flight=256)
    assert full.run().requests_per_second == pytest.approx(capacity(full.machine, demand, 128), rel=0.2)


# Lengths


@pytest.mark.parametrize(
    ("text", "mean", "cv"),
    [
        ("lognormal:550", 550, 0.8),
        ("lognormal:150,cv=0.3", 150, 0.3),
        ("fixed:77", 77, 0),
        ("uniform:100-300", 200, 0.29),
        ("geometric:20", 20, (1 - 1 / 20) ** 0.5),
        ("exponential:400", 400, 1),
        (12, 12, 0),
    ],
)
def test_lengths_have_their_mean_and_spread(text: str | int, mean: float, cv: float) -> None:
    random, drawn_from = Random(1), lengths(text)
    drawn = [drawn_from.draw(random) for _ in range(20_000)]
    found = sum(drawn) / len(drawn)
    spread = (sum((one - found) ** 2 for one in drawn) / len(drawn)) ** 0.5
    assert drawn_from.mean == mean
    assert found == pytest.approx(mean, rel=0.03)
    assert spread / found == pytest.approx(cv, abs=0.04)
    assert min(drawn) >= 1
    assert lengths(str(drawn_from)) == drawn_from


@pytest.mark.parametrize("text", ["", "x", "fixed", "fixed:0", "uniform:5", "uniform:9-3", "fixed:5,cv=1", "normal:5"])
def test_lengths_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="a length must be"):
        lengths(text)


def test_lengths_can_be_stretched() -> None:
    assert lengths("uniform:10-20").times(3) == Lengths("uniform", 45, low=30, high=60)
