"""Stretches of a run are what a meter would have seen that was told only of them; and a long run stays small."""

from __future__ import annotations

import itertools
import random

import pytest

import tokenpulse
from tokenpulse import KVTracker, Meter, Run
from tokenpulse.analysis.stretch import NOTHING, Stretch, Totals
from tokenpulse.run import MOST_MOMENTS, _Thinned

SECOND = 1_000_000_000


def told(seconds: range, run: Run | None, start: int = 0) -> Meter:
    """A meter that was told what happened in these seconds, all of it within each: requests of 0.5 s at most."""
    meter = Meter(windows=(), burn=False, kv=KVTracker())
    assert meter.kv is not None
    if run is not None:
        run.take(meter.snapshot(start * SECOND))
    for second in seconds:
        chance = random.Random(second)
        t = second * SECOND
        meter.gauge(t, running=second % 7, waiting=second, kv_used=second * 2, kv_total=1000, batch_max=64)
        for n in range(chance.randrange(1, 5)):
            prompt = chance.choice((50, 300, 5000))
            at = t + 1000 * n
            handle = meter.arrive(at, prompt_tokens=prompt, cls=meter.classify(prompt_tokens=prompt))
            meter.schedule(at, [handle])
            for _ in range(4):
                at += chance.randrange(1, 100_000_000)
                meter.step(at, [handle])
            meter.end(at, [handle], chance.choice(("stop", "length", "error")))
        meter.kv.store(t, [second * 2, second * 2 + 1])
        meter.kv.evict(t + 5, [second * 2])
        meter.kv.lookup(t + 6, 100, second % 50)
        meter.add(t + 7, comm_ns=second, prefill_tokens=10, decode_tokens=second)
        if run is not None:
            run.take(meter.snapshot((second + 1) * SECOND))
    return meter


def test_a_stretch_is_what_a_meter_saw_that_ran_only_then() -> None:
    run = Run(whole=True)
    told(range(30), run)
    stretch = run.stretch(10, 20)
    meter = told(range(10, 20), None)
    reading = meter.snapshot(20 * SECOND).reading()
    alone = Stretch.between(NOTHING, Totals.of(reading), 10 * SECOND)
    for name in ("seconds", "arrivals", "ended", "output_tokens", "prompt_tokens", "added", "waiting", "running"):
        assert getattr(stretch, name) == getattr(alone, name), name
    for name in ("kv_used", "kv_total", "batch_max", "evicted", "refilled", "queried", "hit"):
        assert getattr(stretch, name) == getattr(alone, name), name
    assert {status: n for status, n in stretch.by_status.items() if n} == alone.by_status
    assert stretch.strata.keys() == alone.strata.keys()
    for key, stratum in alone.strata.items():
        for latency, sketch in stratum.items():
            ours = stretch.strata[key][latency]
            assert ours.count == sketch.count
            assert ours.sum_ns == sketch.sum_ns
            assert [side.tolist() for side in ours.buckets()] == [side.tolist() for side in sketch.buckets()]
    assert stretch.panes is not None
    assert [pane.start_ns // SECOND for pane in stretch.panes] == list(range(10, 20))
    assert [pane.waiting for pane in stretch.panes] == [float(second) for second in range(10, 20)]
    assert sum(pane.itl_count for pane in stretch.panes) == stretch.pooled["itl"].count
    assert sum(pane.arrivals for pane in stretch.panes) == stretch.arrivals
    assert sum(pane.comm_ns or 0 for pane in stretch.panes) == sum(range(10, 20))
    assert stretch.recent is not None
    assert len(stretch.recent) == 20


def test_a_live_run_begins_at_the_first_snapshot_that_it_takes() -> None:
    meter, run = told(range(5), None), Run()
    run.take(meter.snapshot(5 * SECOND))
    handle = meter.arrive(6 * SECOND)
    meter.end(6 * SECOND, [handle], "reject")
    run.take(meter.snapshot(7 * SECOND))
    assert (run.seconds, run.whole.arrivals, run.whole.by_status["reject"]) == (2.0, 1, 1)
    with pytest.raises(ValueError, match=r"in the order of their times: got one at 6000000000 ns after 7000000000 ns"):
        run.take(meter.snapshot(6 * SECOND))


def test_a_second_snapshot_of_one_moment_takes_the_place_of_the_first() -> None:
    meter, run = Meter(), Run(whole=True)
    meter.add(0, comm_ns=0)
    for second in range(1, 4):
        run.take(meter.snapshot(second * SECOND))
        meter.add(second * SECOND, comm_ns=1)
        run.take(meter.snapshot(second * SECOND))
    assert run.whole.added["comm_ns"] == 3
    assert [pane.comm_ns for pane in run.whole.panes or ()] == [1, 1, 1]
    live = Run()
    live.take(meter.snapshot(3 * SECOND))
    meter.add(3 * SECOND, comm_ns=5)
    live.take(meter.snapshot(3 * SECOND))
    live.take(meter.snapshot(4 * SECOND))
    assert live.whole.added["comm_ns"] == 0


def test_thirds_lie_inside_the_run() -> None:
    run = Run(whole=True)
    told(range(31), run)
    first, last = run.first_third, run.last_third
    assert (first.from_seconds, first.to_seconds) == (0.0, 10.0)
    assert (last.from_seconds, last.to_seconds) == (21.0, 31.0)
    assert run.whole.arrivals == run.stretch(0, 15).arrivals + run.stretch(15, 31).arrivals


def test_a_stretch_without_a_moment_inside_is_empty() -> None:
    run = Run(whole=True)
    told(range(5), run)
    nothing = run.stretch(1.2, 1.8)
    assert (nothing.seconds, nothing.arrivals, nothing.panes) == (0.0, 0, ())
    with pytest.raises(ValueError, match="0 <= from_seconds <= to_seconds, got from 3 to 2"):
        run.stretch(3, 2)
    with pytest.raises(ValueError, match="nothing happened"):
        _ = Run("empty").whole


def test_moments_thin_out_evenly() -> None:
    run = Run(whole=True)
    told(range(300), run)
    kept = run._moments.kept
    assert MOST_MOMENTS / 2 <= len(kept) <= MOST_MOMENTS
    assert {later.t_ns - earlier.t_ns for earlier, later in itertools.pairwise(kept)} == {4 * SECOND}
    assert run.whole.seconds == 300
    thinned: _Thinned[int] = _Thinned(4)
    for n in range(17):
        thinned.add(n)
    assert thinned.kept == [0, 8, 16]


def test_sides_may_be_snapshots_windows_and_stretches() -> None:
    run = Run(whole=True)
    meter = told(range(40), run)
    live = Meter(kv=KVTracker())
    handle = live.arrive(SECOND, prompt_tokens=50, cls=live.classify(prompt_tokens=50))
    live.step(2 * SECOND, [handle])
    snapshot = live.snapshot(3 * SECOND)
    for current in (run, run.last_third, meter.snapshot(), snapshot, snapshot.window("1m")):
        diagnosis = tokenpulse.diagnose(current, run.first_third)
        assert diagnosis.findings == ()
        assert diagnosis.not_judged
    window = tokenpulse.diagnose(snapshot.window("1m"), snapshot).to_dict()
    assert window["current"]["name"] == "view"
    assert window["current"]["arrivals"] == window["baseline"]["arrivals"] == 1
    with pytest.raises(ValueError, match="without a baseline"):
        tokenpulse.diagnose(snapshot)
    with pytest.raises(ValueError, match="machine must have peak_flops"):
        tokenpulse.diagnose(run, machine={"peak": 1.0})
    with pytest.raises(ValueError, match="bandwidth_bytes_per_second must be above 0"):
        tokenpulse.diagnose(run, machine={"bandwidth_bytes_per_second": 0.0})
