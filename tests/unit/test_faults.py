"""Faults that are injected into simulated runs are what the diagnosis finds first; a healthy run has no findings.

A short version of `benches/judging/diagnosis.py`, whose seeds these are not.
"""

from __future__ import annotations

import pytest

import tokenpulse
from tokenpulse import KVTracker, Meter, Run, simulate
from tokenpulse.simulate.faults import FAULTS, parse_fault


def simulated(seed: int, rate: float = 24.0, duration: str = "60s", fault: str | None = None) -> Run:
    machine = simulate.known_machine("llama-3.1-70b-fp8", "h100-sxm", 8)
    meter = Meter(windows=(), burn=False, kv=KVTracker())
    known = {"peak_flops": machine.peak_flops, "bandwidth_bytes_per_second": machine.bandwidth}
    run = Run(whole=True, machine=known)
    simulate.run(
        seed=seed,
        rate=rate,
        duration=duration,
        machine=machine,
        fault=fault,
        meter=meter,
        on_pane=lambda t_ns: run.take(meter.snapshot(t_ns)),
    )
    return run


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_first(fault: str) -> None:
    diagnosis = tokenpulse.diagnose(simulated(3000, fault=f"{fault}:0.6"))
    assert [one.row for one in diagnosis.findings][:1] == [FAULTS[fault].row]
    assert diagnosis.findings[0].explained_by is None
    assert diagnosis.not_judged == ()


def test_a_healthy_run_has_no_findings() -> None:
    runs = [simulated(3001, rate=8.0), simulated(3002, rate=30.0)]
    for run in runs:
        diagnosis = tokenpulse.diagnose(run)
        assert diagnosis.findings == ()
        assert diagnosis.not_judged == ()
    assert tokenpulse.diagnose(runs[1], simulated(3003, rate=30.0)).findings == ()


def test_before_its_moment_a_fault_is_not_there() -> None:
    healthy, faulty = simulated(3004, duration="10s"), simulated(3004, duration="30s", fault="overload")
    assert faulty.stretch(0, 10).tokens_per_second == healthy.whole.tokens_per_second
    assert faulty.stretch(10, 30).arrivals > 5 * healthy.whole.arrivals


def test_more_intensity_is_more_trouble() -> None:
    shares = [0.0, 1.0]
    batches = [simulated(3005, duration="24s", fault=f"large-batch:{share}").last_third.running for share in shares]
    assert batches[0] == pytest.approx(0.85 * 128, abs=3)
    assert batches[1] == pytest.approx(0.97 * 128, abs=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flood", r"a fault must be one of large-batch, .*overload, with :INTENSITY from 0 to 1; got 'flood'"),
        ("overload:2", r"fault 'overload:2': the intensity must be a number from 0 to 1, got '2'"),
        ("overload:", r"got ''"),
        ("overload:nan", r"got 'nan'"),
    ],
)
def test_what_is_no_fault_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_fault(text)
    with pytest.raises(ValueError, match="between 0 and 1, got -1"):
        FAULTS["overload"](-1)


def test_a_load_that_has_no_rate_cannot_be_overloaded() -> None:
    with pytest.raises(ValueError, match="rate"):
        simulate.run(seed=1, duration="3s", arrivals="closed", in_flight=4, fault="overload")
