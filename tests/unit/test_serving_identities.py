"""What must hold between the figures of any run: a request's times, goodput and throughput, requests in the system."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpulse import KVTracker, Meter, engine, formulas, reference, report, simulate
from tokenpulse.simulate.faults import FAULTS
from tokenpulse.simulate.scheduler import POLICIES

SECOND_NS = 1_000_000_000
REDUCE = pytest.mark.parametrize("reduce", [reference.reduce_lines, engine.reduce_bytes], ids=["reference", "core"])

EMISSIONS = st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 7)), min_size=1, max_size=12)
"""The time since the emission before, in ns, and how many tokens."""


@REDUCE
@settings(max_examples=100, deadline=None)
@given(emissions=EMISSIONS, arrive_ns=st.integers(0, 10**15))
def test_e2e_is_ttft_and_the_other_tokens_tpot(reduce: Any, emissions: list[tuple[int, int]], arrive_ns: int) -> None:
    """E2E = TTFT + (N - 1) TPOT, exactly, before TPOT is floored to whole ns; and both are the sum of the gaps."""
    times, t_ns = [], arrive_ns
    for gap_ns, _ in emissions:
        t_ns += gap_ns
        times.append(t_ns)
    line = {"id": 1, "arrive_ns": arrive_ns, "token_ns": times, "n": [k for _, k in emissions], "status": "stop"}
    latency = reduce([("log", json.dumps(line).encode())])["total"]["latency"]
    n = sum(k for _, k in emissions)
    ttft_ns, e2e_ns = latency["ttft"].sum_ns, latency["e2e"].sum_ns
    assert latency["itl"].sum_ns == e2e_ns - ttft_ns
    if n == 1:
        assert e2e_ns == ttft_ns
        assert latency["tpot"].count == 0
        return
    tpot_ns = latency["tpot"].sum_ns
    assert tpot_ns == (e2e_ns - ttft_ns) // (n - 1)
    assert 0 <= e2e_ns - (ttft_ns + (n - 1) * tpot_ns) < n - 1


def random_log(path: Path, seed: int) -> Path:
    drawn = random.Random(seed)
    only_successes = seed % 2 == 0
    lines = []
    for number in range(drawn.randint(1, 40)):
        t_ns = drawn.randrange(50 * SECOND_NS)
        line: dict[str, Any] = {"id": number, "arrive_ns": t_ns, "status": "stop", "token_ns": []}
        for _ in range(drawn.randint(1 if only_successes else 0, 6)):
            t_ns += drawn.randrange(SECOND_NS)
            line["token_ns"].append(t_ns)
        if not only_successes:
            line["status"] = drawn.choice(["stop", "length", "abort", "error", "reject"])
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines))
    return path


def test_goodput_is_at_most_throughput_and_equal_only_if_all_were_good(tmp_path: Path) -> None:
    equal = less = 0
    for seed in range(60):
        limits = random.Random(-seed).choice(["ttft=10s,tpot=10s", "ttft=800ms,tpot=10s", "ttft=500ms,tpot=600ms"])
        found = report(random_log(tmp_path / "log.jsonl", seed), slo=f"all:{limits}").to_dict()
        (goodput,) = found["goodput"]
        succeeded, throughput = found["requests"]["succeeded"], found["rates"]["requests_per_second"]
        if throughput is None:
            continue
        assert goodput["requests_per_second"] <= throughput
        assert (goodput["requests_per_second"] == throughput) == (goodput["good"] == succeeded)
        assert goodput["good"] + sum(goodput["missed"].values()) == goodput["judged"]
        assert goodput["requests_per_second"] == formulas.goodput(goodput["good"], found["span_seconds"])
        equal += goodput["good"] == succeeded > 0
        less += goodput["good"] < succeeded
    assert equal > 5
    assert less > 5


def times_in_system(log: Path) -> list[tuple[int, int | None]]:
    """Arrival and end of each request of a log of events, read with nothing but JSON."""
    spans: dict[Any, tuple[int, int | None]] = {}
    with log.open() as lines:
        for text in lines:
            if '"arrive"' in text or '"end"' in text:
                event = json.loads(text)
                if event["ev"] == "arrive":
                    spans[event["id"]] = event["t_ns"], None
                elif event["ev"] == "end":
                    spans[event["id"]] = spans[event["id"]][0], event["t_ns"]
    return list(spans.values())


STEADY: list[dict[str, Any]] = [
    {"rate": 12, "duration": "60s", "output": "lognormal:40,cv=0.7"},
    {"rate": 60, "duration": "40s", "output": "fixed:30", "policy": "decode-first"},
    {"arrivals": "closed", "in_flight": 20, "duration": "40s", "output": "lognormal:30,cv=0.5"},
]


@pytest.mark.parametrize("given", STEADY, ids=lambda given: given.get("arrivals", f"{given.get('rate')}/s"))
def test_littles_law(tmp_path: Path, given: dict[str, Any]) -> None:
    """Requests in the system, from their arrivals and ends, are the rate of arrivals times the mean time in it."""
    log = tmp_path / "log.jsonl"
    result = simulate.run(seed=11, out=log, **given)
    spans = times_in_system(log)
    end_ns = max(end for _, end in spans if end is not None)
    area_ns = sum(min(end_ns, end_ns if end is None else end) - arrive for arrive, end in spans if arrive < end_ns)
    ended = [(end - arrive) / SECOND_NS for arrive, end in spans if end is not None]
    expected = formulas.little_concurrency(len(spans) / (end_ns / SECOND_NS), sum(ended) / len(ended))
    assert len(ended) > 300
    assert area_ns / end_ns == pytest.approx(expected, rel=0.02)
    assert result.mean_in_system == pytest.approx(expected, rel=0.02)
    law = report(log).to_dict()["flow"]["littles_law"]
    assert abs(law["relative_difference"]) < 0.02
    assert not law["warning"]


def test_a_simulated_run_keeps_the_identities(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    result = simulate.run(seed=5, out=log, rate=30, duration="20s", output="lognormal:30,cv=0.7", speculate=3)
    found = report(log, slo="all:ttft=1s,tpot=20ms").to_dict()
    requests, latency = found["requests"], found["latency"]
    assert requests["attempted"] == result.arrived
    assert requests["attempted"] == sum(requests["by_status"].values()) + requests["in_flight"]
    assert found["tokens"]["output"] == result.output_tokens
    assert latency["e2e"]["count"] == requests["succeeded"]
    assert found["goodput"][0]["requests_per_second"] <= found["rates"]["requests_per_second"]
    assert requests["succeeded"] > 100


def random_settings(seed: int) -> dict[str, Any]:
    drawn = random.Random(seed)
    given: dict[str, Any] = {
        "seed": seed,
        "duration": "4s",
        "rate": drawn.choice([20, 80]),
        "policy": POLICIES[seed % len(POLICIES)],
        "chunk": drawn.choice([256, 2048]),
        "batch_max": drawn.choice([4, 32, 128]),
        "kv_blocks": drawn.choice([60, 300, 2000]),
        "prompt": drawn.choice(["lognormal:300,cv=0.8", "fixed:64", "uniform:1-1200"]),
        "output": drawn.choice(["lognormal:60,cv=0.6", "geometric:40"]),
        "prefix_share": drawn.choice([0, 0.25, 0.8]),
        "timeout": drawn.choice([None, "1s"]),
        "abort_rate": drawn.choice([0, 0.3]),
        "speculate": drawn.choice([0, 3]),
        "arrivals": drawn.choice(["poisson", "bursty"]),
    }
    faults = [name for name in FAULTS if given["policy"] == "chunked" or name != "prefill-squeezed"]
    return given | ({"fault": f"{drawn.choice(faults)}:1"} if seed % 2 else {})


def test_a_meter_takes_all_that_any_simulation_tells() -> None:
    """Whatever the policy, the fault and the lack of room: no event is refused, and both count the same."""
    statuses: set[str] = set()
    preemptions = evicted = 0
    for seed in range(18):
        meter = Meter(windows=["1m"], kv=KVTracker())
        result = simulate.run(meter=meter, **random_settings(seed))
        snapshot = meter.snapshot()
        total, blocks = snapshot.total, snapshot.reading()["kv"]
        assert (snapshot.rejected, snapshot.clamped, blocks["rejected"]) == ({}, 0, {}), seed
        assert total.by_status == result.ended
        counts = ("attempted", "in_flight", "output_tokens", "preemptions", "oom_event")
        assert [total.counts[name] for name in counts] == [
            result.arrived,
            result.in_flight,
            result.output_tokens,
            result.preemptions,
            result.oom_events,
        ]
        assert blocks["total"]["evicted"] == result.evicted_blocks
        assert blocks["total"]["lookups"]["hit"] == result.hit_tokens
        used, room = total.gauges["kv_used"], total.gauges["kv_total"]
        assert used is not None
        assert room is not None
        assert used.max <= room.max
        statuses |= set(result.ended)
        preemptions += result.preemptions
        evicted += result.evicted_blocks
    assert statuses == {"stop", "abort", "timeout", "oom"}
    assert preemptions > 50
    assert evicted > 1000
