"""The rows of the diagnosis on random figures: the product against plain statements, and what holds of all findings."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tokenpulse import Sketch, reference
from tokenpulse.analysis.diagnosis import ROWS, Case, Contrast, judge
from tokenpulse.analysis.diagnosis.checks import Lacking
from tokenpulse.analysis.stretch import Pane, Stretch
from tokenpulse.reference import diagnosis

SECOND_NS = 1_000_000_000
KEYS = ("0-128", "128-512", "512-2048", "2048-8192")


@dataclass(frozen=True)
class Both:
    """One stretch as the product has it, and as the reference has it."""

    stretch: Stretch
    side: diagnosis.Side


def sketches(values: list[float]) -> tuple[Sketch, reference.Sketch]:
    made = Sketch(), reference.Sketch()
    for sketch in made:
        sketch.record_many(values)
    return made


def drawn_latencies(drawn: random.Random, centre: float) -> dict[str, tuple[Sketch, reference.Sketch]]:
    """A latency that grows with the prompt; strata of very different sizes, some of them missing."""
    sizes = {key: drawn.choice([0, 5, 12, 90, 200]) for key in KEYS if drawn.random() < 0.9}
    return {
        key: sketches([centre * (1 + place) * drawn.lognormvariate(0, 0.3) for _ in range(sizes[key])])
        for place, key in enumerate(sizes)
    }


def maybe(drawn: random.Random, value: Any) -> Any:
    return None if drawn.random() < 0.05 else value


def drawn_panes(drawn: random.Random, swing: float) -> list[Pane]:
    """Seconds of which some are bad, and in these there may be evictions and communication."""
    panes = []
    without = drawn.random() < 0.1, drawn.random() < 0.1
    for second in range(drawn.choice([9, 30, 41, 60])):
        bad = drawn.random() < 0.12
        panes.append(
            Pane(
                start_ns=second * SECOND_NS,
                end_ns=(second + 1) * SECOND_NS,
                itl_count=drawn.choice([99, 100, 1000, 1000]),
                itl_p99=0.02 * (1 + swing * bad) * drawn.uniform(0.9, 1.1),
                arrivals=drawn.randint(8, 12),
                ended=drawn.randint(7, 11),
                waiting=None,
                evicted=None if without[0] else drawn.choice([0, 2, 3, 40 if bad else 3]),
                comm_ns=None if without[1] else drawn.randint(1, 2) * (5 if bad and swing > 3 else 1) * 10_000_000,
            )
        )
    return panes


def drawn_depths(drawn: random.Random) -> list[float]:
    level, tilt = drawn.choice([0, 50, 300]), drawn.choice([0, 0.1, 1, 4])
    return [level + tilt * second + drawn.randint(0, 20) for second in range(drawn.choice([8, 10, 40, 60]))]


def drawn_stretch(drawn: random.Random, factor: float) -> Both:
    """Figures around the thresholds of the rows, and now and then none."""
    ttft, tpot = drawn_latencies(drawn, 0.1 * factor), drawn_latencies(drawn, 0.02 * factor)
    seconds = drawn.choice([20.0, 40.0])
    panes = drawn_panes(drawn, drawn.choice([0, 1, 5]))
    recent = [
        replace(panes[0], waiting=depth, arrivals=drawn.randint(9, 11), ended=drawn.randint(8, 11))
        for depth in drawn_depths(drawn)
    ]
    added = {
        "gpu_active_ns": int(seconds * drawn.uniform(0.2, 0.8) * SECOND_NS),
        "dequant_ns": int(seconds * drawn.choice([0, 0.1, 0.2]) * SECOND_NS),
        "prefill_tokens": 1000,
        "decode_tokens": drawn.choice([300, 500, 1000]),
        "flops": drawn.randint(50, 400) * 1000,
        "bytes_moved": 1000,
    }
    for name in list(added):
        if drawn.random() < 0.04:
            del added[name]
    stretch = Stretch(
        seconds=seconds,
        strata={
            key: {"ttft": ttft.get(key, sketches([]))[0], "tpot": tpot.get(key, sketches([]))[0]}
            for key in {**ttft, **tpot}
        },
        pooled={"ttft": Sketch(), "tpot": merged(tpot), "itl": Sketch()},
        arrivals=drawn.randint(400, 450),
        by_status={"stop": drawn.randint(380, 420)},
        output_tokens=drawn.randint(30_000, 50_000),
        prompt_tokens=100_000,
        cached_tokens=drawn.randint(20_000, 40_000),
        waiting=maybe(drawn, drawn.choice([0.0, 0.4, 1.5, 4.0])),
        running=maybe(drawn, drawn.uniform(50, 100)),
        kv_used=maybe(drawn, drawn.uniform(50, 100)),
        kv_total=100.0,
        batch_max=maybe(drawn, 100.0),
        added=added,
        evicted=maybe(drawn, drawn.choice([0, 1000])),
        refilled=drawn.choice([0, 30, 60, 90]),
        forgotten=0,
        panes=maybe(drawn, tuple(panes)),
        recent=tuple(recent),
    )
    return Both(stretch, side_of(stretch, ttft, tpot))


def merged(latency: dict[str, tuple[Sketch, reference.Sketch]]) -> Sketch:
    whole = Sketch()
    for sketch, _ in latency.values():
        whole = whole + sketch
    return whole


def side_of(stretch: Stretch, ttft: Any, tpot: Any) -> diagnosis.Side:
    """The figures of a stretch, formed here from its counts."""
    one, added, seconds = stretch, stretch.added, stretch.seconds

    def over(part: Any, whole: Any) -> Any:
        return None if part is None or not whole else part / whole

    def per_second(name: str) -> Any:
        return over(added.get(name), seconds * SECOND_NS)

    computed = {"prefill_tokens", "decode_tokens"} <= set(added)
    refill_rate = None
    if one.evicted is not None and one.refilled is not None:
        refill_rate = one.refilled / one.evicted if one.evicted else 0.0
    return diagnosis.Side(
        ttft={key: pair[1] for key, pair in ttft.items()},
        tpot={key: pair[1] for key, pair in tpot.items()},
        batch_utilization=over(one.running, one.batch_max),
        kv_utilization=over(one.kv_used, one.kv_total),
        waiting=one.waiting,
        tokens_per_second=one.output_tokens / seconds,
        decode_share=added["decode_tokens"] / (added["prefill_tokens"] + added["decode_tokens"]) if computed else None,
        hit_rate=one.cached_tokens / one.prompt_tokens if one.cached_tokens else None,
        refill_rate=refill_rate,
        dequant_share=per_second("dequant_ns"),
        gpu_utilization=per_second("gpu_active_ns"),
        intensity=over(added.get("flops"), added.get("bytes_moved")),
        batch_max=one.batch_max,
        arrivals_per_end=one.arrivals / one.ended,
        seconds=None
        if one.panes is None
        else [diagnosis.Second(pane.itl_count, pane.itl_p99, pane.evicted, pane.comm_ns) for pane in one.panes],
        depths=[pane.waiting for pane in one.recent or () if pane.waiting is not None],
        arrived=sum(pane.arrivals for pane in one.recent or ()),
        ended=sum(pane.ended for pane in one.recent or ()),
    )


def drawn_pair(seed: int) -> tuple[Both, Both, dict[str, float], float | None]:
    drawn = random.Random(seed)
    base, current = drawn_stretch(drawn, 1.0), drawn_stretch(drawn, drawn.choice([1.0, 1.5, 2.0]))
    machine = {} if drawn.random() < 0.1 else {"peak_flops": 1e15, "bandwidth_bytes_per_second": 2.5e12}
    return base, current, machine, drawn.choice([None, 0.05])


def test_rows_on_random_figures() -> None:
    outcomes: dict[str, set[bool | None]] = {row: set() for row in ROWS}
    assert list(diagnosis.ROWS) == list(ROWS)
    for seed in range(150):
        base, current, told, limit = drawn_pair(seed)
        case = Case.of(base.stretch, current.stretch, told, limit)
        pooled = current.stretch.pooled["tpot"]
        machine = diagnosis.Machine(
            ridge=told["peak_flops"] / told["bandwidth_bytes_per_second"] if told else None,
            tpot_limit=limit,
            tpot_p50=pooled.quantile(0.5) if pooled.count >= 100 else None,
        )
        for row, predicate in ROWS.items():
            found, expected = predicate(case), diagnosis.ROWS[row](base.side, current.side, machine)
            if expected is None or isinstance(found, Lacking):
                assert isinstance(found, Lacking), (seed, row)
                assert expected is None, (seed, row)
                outcomes[row].add(None)
                continue
            assert found.holds == expected.holds, (seed, row)
            assert found.strength == pytest.approx(expected.strength, rel=1e-9), (seed, row)
            outcomes[row].add(found.holds)
    assert outcomes == {row: {True, False, None} for row in ROWS}


def test_findings_are_in_order() -> None:
    several = explained = 0
    for seed in range(150, 450):
        base, current, machine, limit = drawn_pair(seed)
        findings, not_judged = judge(base.stretch, current.stretch, machine=machine, tpot_limit=limit)
        strengths = {one.row: one.strength for one in findings}
        assert list(strengths.values()) == sorted(strengths.values(), reverse=True)
        places = [one.row for one in findings]
        assert not {one.row for one in not_judged} & set(places)
        for one in findings:
            assert one.strength >= 1
            if one.explained_by is not None:
                assert one.strength <= strengths[one.explained_by]
                assert places.index(one.explained_by) < places.index(one.row)
                explained += 1
        several += len(findings) > 1
    assert several > 20
    assert explained > 10


def test_a_run_against_itself_has_no_finding_but_for_a_queue_that_grows() -> None:
    """Whatever its figures. A queue's growth, and a TPOT over its limit, need no baseline."""
    for seed in range(60):
        both, _, machine, _ = drawn_pair(seed)
        findings, _ = judge(both.stretch, both.stretch, machine=machine)
        assert {one.row for one in findings} <= {"queue-growth"}


def evenly(low: float, high: float, n: int) -> Sketch:
    return sketches([low + (high - low) * k / (n - 1) for k in range(n)])[0]


def test_the_current_sides_quantiles_are_those_of_its_sketches() -> None:
    """Narrow spreads, so that the quantiles fall into outermost buckets."""
    old, short, long = evenly(0.1, 0.2, 100), evenly(0.1001, 0.1012, 150), evenly(0.1005, 0.102, 60)
    contrast = Contrast.of(
        "tpot",
        {"0-128": {"tpot": old}, "128-512": {"tpot": old}},
        {"0-128": {"tpot": short}, "128-512": {"tpot": long}},
    )
    assert contrast is not None
    assert [contrast.p50, contrast.p99] == [(old.quantile(q), (short + long).quantile(q)) for q in (0.5, 0.99)]


def test_a_change_of_the_mix_is_no_rise() -> None:
    """Short prompts give way to long ones, each as fast as before: the pooled latency rises, within strata nothing."""
    fast, slow = evenly(0.09, 0.11, 1000), evenly(0.36, 0.44, 1000)
    few, many = evenly(0.09, 0.11, 100), evenly(0.36, 0.44, 100)
    contrast = Contrast.of(
        "ttft",
        {"0-128": {"ttft": fast}, "128-512": {"ttft": many}},
        {"0-128": {"ttft": few}, "128-512": {"ttft": slow}},
    )
    assert contrast is not None
    assert (slow + few).quantile(0.5) > 1.2 * (fast + many).quantile(0.5)
    assert contrast.p50[1] == pytest.approx(contrast.p50[0], rel=0.02)
    assert contrast.ks < 0.02
