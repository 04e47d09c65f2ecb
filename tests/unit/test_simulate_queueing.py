"""Where a simulation reduces to a queue that has a theory, or obeys a law, it agrees with it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpulse.simulate import GPU, Machine, Model, Result, run

MEAN_TOKENS = 1000


def one_server() -> Machine:
    """A machine whose steps take as long as their tokens, and no longer: memory and links have no limit."""
    model = Model("linear", parameters=8e9, layers=1, hidden=1, kv_heads=1, head_dim=1)
    gpu = GPU("linear", bf16_flops=1e15, memory_bytes=80e9, bandwidth=1e30, link_bandwidth=1e30)
    return Machine(model, gpu, overhead_seconds=0.0)


def queue(prompt: str, load: float, arrivals: int, seed: int) -> Result:
    """One request at a time, each done in one step: a queue with one server."""
    machine = one_server()
    rate = load / machine.step(MEAN_TOKENS, 0).seconds
    return run(
        seed=seed,
        duration=arrivals / rate,
        rate=rate,
        machine=machine,
        policy="prefill-first",
        batch_max=1,
        prompt=prompt,
        output="fixed:1",
        prefix_cache=False,
    )


def pollaczek_khinchine(load: float, cv: float) -> float:
    """Requests that wait in an M/G/1 queue, on average."""
    return load**2 * (1 + cv**2) / (2 * (1 - load))


@pytest.mark.parametrize(("load", "seed"), [(0.4, 1), (0.6, 2)])
def test_fixed_lengths_make_an_m_d_1_queue(load: float, seed: int) -> None:
    result = queue(f"fixed:{MEAN_TOKENS}", load, 40_000, seed)
    assert result.service_cv == pytest.approx(0, abs=1e-9)
    measured_load = result.arrived / result.seconds * (result.mean_service_time or 0)
    assert measured_load == pytest.approx(load, rel=0.02)
    assert result.mean_waiting == pytest.approx(pollaczek_khinchine(measured_load, 0), rel=0.03)


@pytest.mark.parametrize(("load", "seed"), [(0.4, 1), (0.6, 2)])
def test_exponential_lengths_make_an_m_m_1_queue(load: float, seed: int) -> None:
    result = queue(f"exponential:{MEAN_TOKENS}", load, 40_000, seed)
    assert result.service_cv == pytest.approx(1, rel=0.02)
    measured_load = result.arrived / result.seconds * (result.mean_service_time or 0)
    assert measured_load == pytest.approx(load, rel=0.02)
    assert result.mean_waiting == pytest.approx(pollaczek_khinchine(measured_load, result.service_cv or 0), rel=0.03)
    assert result.mean_waiting == pytest.approx(measured_load**2 / (1 - measured_load), rel=0.05)


def test_several_steps_a_request_are_one_service() -> None:
    """A prompt and its answer, each step with a cost of its own: an M/D/1 queue of the whole service."""
    result = run(seed=3, duration="900s", rate=4.0, batch_max=1, prompt=500, output=30, prefix_cache=False)
    measured_load = result.arrived / result.seconds * (result.mean_service_time or 0)
    assert 0.3 < measured_load < 0.8
    assert result.service_cv == pytest.approx(0, abs=1e-6)
    assert result.mean_waiting == pytest.approx(pollaczek_khinchine(measured_load, 0), rel=0.03)


@pytest.mark.parametrize(
    "how",
    [
        {"rate": 5},
        {"rate": 30},
        {"rate": 20, "arrivals": "bursty"},
        {"rate": 10, "policy": "prefill-first"},
        {"rate": 5, "policy": "decode-first"},
        {"rate": 15, "kv_blocks": 1200, "speculate": 3},
        {"rate": 15, "abort_rate": 0.2, "timeout": "3s"},
    ],
)
def test_littles_law(how: dict[str, object]) -> None:
    result = run(seed=4, duration="120s", **how)
    assert result.mean_time_in_system is not None
    ended = sum(result.ended.values())
    assert result.mean_in_system == pytest.approx(ended / result.seconds * result.mean_time_in_system, rel=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_chunks_shorten_tpot_and_lengthen_ttft(seed: int) -> None:
    """Small pieces of prompts disturb decoding less than whole prompts do, and take longer (Sarathi-Serve)."""
    same = {"seed": seed, "duration": "40s", "rate": 20}
    chunked, whole = run(**same, policy="chunked", chunk=256), run(**same, policy="prefill-first")
    assert chunked.mean_tpot is not None
    assert whole.mean_tpot is not None
    assert chunked.mean_ttft is not None
    assert whole.mean_ttft is not None
    assert chunked.mean_tpot < whole.mean_tpot
    assert chunked.mean_ttft > whole.mean_ttft


@pytest.mark.parametrize("seed", range(3))
def test_decode_first_shortens_tpot_and_lengthens_ttft(seed: int) -> None:
    """Nothing disturbs decoding where prompts wait for it to end; and they do wait."""
    same = {"seed": seed, "duration": "40s", "rate": 10}
    decode_first, prefill_first = run(**same, policy="decode-first"), run(**same, policy="prefill-first")
    assert decode_first.mean_tpot is not None
    assert prefill_first.mean_tpot is not None
    assert decode_first.mean_ttft is not None
    assert prefill_first.mean_ttft is not None
    assert decode_first.mean_tpot < 0.98 * prefill_first.mean_tpot
    assert decode_first.mean_ttft > 5 * prefill_first.mean_ttft


def test_a_prefill_quota_shortens_tpot_and_lengthens_ttft() -> None:
    same = {"seed": 6, "duration": "40s", "rate": 20}
    free, held = run(**same), run(**same, prefill_quota=256)
    assert free.mean_tpot is not None
    assert held.mean_tpot is not None
    assert free.mean_ttft is not None
    assert held.mean_ttft is not None
    assert held.mean_tpot < free.mean_tpot
    assert held.mean_ttft > free.mean_ttft


@pytest.mark.parametrize(("drafts", "acceptance"), [(1, 0.5), (4, 0.7), (3, 1.0), (2, 0.0)])
def test_drafts_give_as_many_tokens_as_they_are_right(drafts: int, acceptance: float) -> None:
    """A decode step gives 1 + a + ... + a^k tokens on average (Leviathan et al., 2023)."""
    result = run(seed=7, duration="20s", arrivals="closed", output=400, speculate=drafts, acceptance=acceptance)
    expected = sum(acceptance**draft for draft in range(drafts + 1))
    accepted = result.decode_tokens - result.rejected_drafts
    assert (1 + drafts) * accepted / result.decode_tokens == pytest.approx(expected, rel=0.02)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rate=st.floats(1, 80),
    policy=st.sampled_from(["chunked", "prefill-first", "decode-first"]),
    batch_max=st.integers(1, 100),
    chunk=st.integers(16, 3000),
    kv_blocks=st.integers(20, 3000),
    speculate=st.integers(0, 3),
    prefix_cache=st.booleans(),
    abort_rate=st.floats(0, 1),
    timeout=st.none() | st.floats(0.05, 3),
)
def test_requests_and_tokens_add_up(**how: object) -> None:
    result = run(duration="3s", **how)
    assert result.arrived == sum(result.ended.values()) + result.in_flight
    assert result.mean_in_system == pytest.approx(result.mean_waiting + result.mean_running)
    assert result.mean_running <= how["batch_max"]  # type: ignore[operator]
    assert result.hit_tokens <= result.looked_up_tokens
    assert result.busy_seconds <= result.seconds
    if result.oom_events == 0 and result.preemptions == 0:
        assert result.prefill_tokens <= result.looked_up_tokens - result.hit_tokens
