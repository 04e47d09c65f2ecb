"""What a simulation writes: lines that every reader takes, the same each time, and the same as a meter is told."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import pytest

import tokenpulse
from tokenpulse import KVTracker, Meter
from tokenpulse.simulate import run

FIXTURES = Path(__file__).parents[1] / "fixtures"

BUSY = {
    "seed": 5,
    "duration": "12s",
    "rate": 25.0,
    "kv_blocks": 400,
    "speculate": 2,
    "abort_rate": 0.1,
    "timeout": "4s",
    "labels": {"tenant": "a"},
}
"""Every kind of event occurs: preemptions, evictions, emissions of several tokens, all statuses but a few."""


def lines(**settings: object) -> bytes:
    out = io.BytesIO()
    run(out=out, **{**BUSY, **settings})
    return out.getvalue()


@pytest.fixture(scope="module")
def busy() -> bytes:
    return lines()


def test_the_same_seed_gives_the_same_bytes(busy: bytes) -> None:
    assert busy == lines()
    assert busy != lines(seed=6)


def test_another_policy_meets_the_same_requests(busy: bytes) -> None:
    def arrivals(log: bytes) -> list[tuple[int, int]]:
        told = [json.loads(line) for line in log.splitlines() if b'"arrive"' in line]
        return [(one["t_ns"], one["prompt_tokens"]) for one in told]

    assert arrivals(busy) == arrivals(lines(policy="prefill-first", batch_max=20))
    assert len(arrivals(busy)) > 200


def test_lines_are_in_order_and_say_everything_once(busy: bytes) -> None:
    told = [json.loads(line) for line in busy.splitlines()]
    assert told[0]["ev"] == "ready"
    assert told[0]["peak_flops"] == 8 * 1979e12
    assert told[0]["bandwidth_bytes_per_second"] == 8 * 3.35e12
    times = [one["t_ns"] for one in told]
    assert times == sorted(times)
    assert times[-1] <= 12 * 10**9
    kinds = Counter(one["ev"] for one in told)
    assert kinds.keys() == {
        *("ready", "arrive", "schedule", "prefill", "tokens", "preempt", "resume", "end", "gauge", "add"),
        *("kv_store", "kv_evict", "kv_lookup"),
    }
    resident: set[int] = set()
    for one in told:
        hashes = set(one.get("hashes", ()))
        assert max(hashes, default=0) < 2**64
        if one["ev"] == "kv_store":
            assert not resident & hashes
            resident |= hashes
        elif one["ev"] == "kv_evict":
            assert hashes <= resident
            resident -= hashes
        elif one["ev"] == "gauge":
            assert 0 <= one["kv_used"] <= one["kv_total"]
            assert one["running"] <= one["batch_max"]


def test_the_first_line_says_nothing_of_a_fault() -> None:
    plain, faulty = lines(fault=None), lines(fault="overload:0.5")
    assert plain.splitlines()[0] == faulty.splitlines()[0]
    assert plain != faulty


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_report_and_kv_take_every_line(tmp_path: Path, busy: bytes, suffix: str) -> None:
    path = tmp_path / f"run.jsonl{suffix}"
    result = run(out=path, **BUSY)
    report = tokenpulse.report(path)
    assert report.unusable == 0
    told = report.to_dict()
    assert told["requests"]["attempted"] == result.arrived
    assert told["requests"]["by_status"] == {status: n for status, n in result.ended.items() if n}
    assert told["requests"]["in_flight"] == result.in_flight
    assert told["inputs"][0]["lines"] == len(busy.splitlines())
    kv = tokenpulse.kv_report(path, stream="copies")
    assert kv.unusable == 0
    assert kv.evicted == result.evicted_blocks


def test_a_log_and_a_meter_are_told_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    meter = Meter(kv=KVTracker(), windows=())
    result = run(out=path, meter=meter, **BUSY)
    snapshot = meter.snapshot()
    assert snapshot.rejected == {}
    assert snapshot.kv is not None
    assert snapshot.kv.rejected == {}
    total, report = snapshot.total, tokenpulse.report(path)
    for metric in ("ttft", "queue", "itl", "tpot", "e2e", "preemption_stall"):
        live, read = total.latency[metric], report.latency[metric]
        assert (metric, live.count, live.sum_ns) == (metric, read["count"], read["sum_ns"])
    assert total.counts["output_tokens"] == result.output_tokens
    assert total.latency["ttft"].mean == pytest.approx(result.mean_ttft)
    assert total.added["prefill_tokens"] == result.prefill_tokens
    assert total.added["decode_tokens"] == result.decode_tokens


def test_panes_come_before_what_happens_in_them() -> None:
    meter = Meter(windows=())
    seen = []

    def on_pane(t_ns: int) -> None:
        seen.append((t_ns, meter.snapshot().total.counts["attempted"]))

    result = run(seed=1, duration="3s", rate=50, meter=meter, every_ns=10**9, on_pane=on_pane)
    assert [t for t, _ in seen] == [0, 10**9, 2 * 10**9, 3 * 10**9]
    assert seen[0][1] == 0
    assert 0 < seen[1][1] < seen[2][1] < seen[3][1] == result.arrived


def test_littles_law_of_the_report(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    run(out=path, seed=8, duration="60s", rate=20)
    law = tokenpulse.report(path).to_dict()["flow"]["littles_law"]
    assert abs(law["relative_difference"]) < 0.02


def test_a_trace_keeps_its_times_lengths_and_prefixes() -> None:
    mooncake = FIXTURES / "mooncake_conversation.jsonl.gz"
    own = run(seed=1, duration="30s", arrivals=str(mooncake), output=20)
    fast = run(seed=1, duration="30s", arrivals=str(mooncake), output=20, rate=10)
    assert own.hit_tokens > 0
    assert fast.arrived == pytest.approx(300, rel=0.2)
    assert fast.arrived > own.arrived > 0
    azure = run(seed=1, duration="600s", arrivals=str(FIXTURES / "tools" / "azure_code.csv"))
    assert azure.ended == {"stop": azure.arrived}
    assert azure.hit_tokens == 0
    with pytest.raises(ValueError, match="is no trace of requests"):
        run(arrivals=str(FIXTURES / "run.jsonl.gz"))


def test_bursts_make_longer_queues_than_poisson() -> None:
    results = [run(seed=9, duration="60s", rate=25, arrivals=arrivals) for arrivals in ("poisson", "bursty")]
    assert results[1].mean_waiting > 2 * results[0].mean_waiting
    assert results[1].arrived == pytest.approx(results[0].arrived, rel=0.3)
