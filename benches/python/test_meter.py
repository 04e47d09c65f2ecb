"""The meter from Python: steps, observations and snapshots, beside what engines use in its place.

Bars for a step of 256 requests with one gap: 150 times as fast as the loop over `prometheus-client`, 3.5 times as fast
as NumPy with a KLL sketch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import prometheus_client
import pytest
from datasketches import kll_doubles_sketch

from peers import (
    MISSED,
    SECONDS,
    Kll,
    Metered,
    MeteredById,
    OpenTelemetry,
    Prometheus,
    PrometheusMultiprocess,
    Rdd,
    Scraped,
    Stepped,
)
from tokenpulse import Meter
from traffic import Call, Traffic, serve

QUANTILES = [0.5, 0.9, 0.95, 0.99, 0.999]
CLASSES = 16
WINDOWS = 4

Make = Callable[[Path], Stepped]

SUBJECTS: dict[str, Make] = {
    "tokenpulse": lambda _: Metered(),
    "prometheus": lambda _: Prometheus(),
    "multiprocess": PrometheusMultiprocess,
    "kll": lambda _: Kll(),
    "rddsketch": lambda _: Rdd(),
    "opentelemetry": lambda _: OpenTelemetry(),
}
QUICK = {"tokenpulse", "kll"}
"""Those of which a round may hold many steps."""


@pytest.fixture(params=list(SUBJECTS))
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def take(step: Callable[..., None], calls: list[Call]) -> None:
    for call in calls:
        step(*call)


def measure(
    benchmark: Any,
    subject: Stepped,
    setup: Callable[[], list[Call]],
    tokens: int,
    rounds: int,
) -> None:
    """Rounds of steps that bring so many tokens each; what is set up is not timed."""
    benchmark.extra_info.update(values=tokens, unit="token", peer=subject.NAME or "tokenpulse")
    benchmark.pedantic(
        lambda calls: take(subject.step, calls),
        setup=lambda: ((setup(),), {}),
        rounds=rounds * 4,
        warmup_rounds=1,
    )


def steps_of_a_round(name: str, rounds: int) -> int:
    """How many steps are timed together."""
    return (1000 if name in QUICK else 50) if rounds > 1 else 5


@pytest.mark.parametrize("requests", [256, 4096])
class TestStep:
    def test_shared_gap(self, benchmark: Any, name: str, requests: int, rounds: int, tmp_path: Path) -> None:
        """Every request's last token came with the step before."""
        benchmark.group = f"step of {requests}, shared gap"
        subject = SUBJECTS[name](tmp_path)
        traffic = Traffic(subject, requests)
        steps = steps_of_a_round(name, rounds)
        measure(benchmark, subject, lambda: traffic.calls(steps), steps * requests, rounds)
        traffic.check()

    def test_gaps_of_their_own(self, benchmark: Any, name: str, requests: int, rounds: int, tmp_path: Path) -> None:
        """Every request's last token came at a time of its own: 4,096 of them, in batches that take turns."""
        benchmark.group = f"step of {requests}, gaps of their own"
        subject = SUBJECTS[name](tmp_path)
        batches = 4096 // requests
        traffic = Traffic(subject, requests, batches)

        def setup() -> list[Call]:
            traffic.set_apart()
            return traffic.calls(batches)

        measure(benchmark, subject, setup, batches * requests, rounds * 4 if rounds > 1 else 1)
        traffic.check()


@pytest.mark.benchmark(group="step of 256, 1 to 4 tokens each")
class TestCounts:
    """Speculative decoding. The meter and KLL take each token's share of the gap, the client the gap itself."""

    @pytest.mark.parametrize("name", ["tokenpulse", "prometheus", "kll"])
    def test_counts(self, benchmark: Any, name: str, rounds: int, tmp_path: Path) -> None:
        subject = SUBJECTS[name](tmp_path)
        traffic = Traffic(subject, 256)
        counts = np.random.default_rng(3).integers(1, 5, (16, 256)).tolist()
        steps = steps_of_a_round(name, rounds) // 16 * 16 or 16
        tokens = steps // 16 * sum(map(sum, counts))
        measure(benchmark, subject, lambda: traffic.calls(steps, counts), tokens, rounds)
        traffic.check(gaps=False)


@pytest.mark.benchmark(group="step of 256, every token behind its SLO set's TPOT")
class TestMissed:
    """What costs the meter most: a deadline moves with every token. It is nothing to the peers, which know of none."""

    @pytest.mark.parametrize("name", ["tokenpulse", "prometheus", "kll"])
    def test_missed(self, benchmark: Any, name: str, rounds: int, tmp_path: Path) -> None:
        subject = Metered(MISSED) if name == "tokenpulse" else SUBJECTS[name](tmp_path)
        traffic = Traffic(subject, 256)
        steps = steps_of_a_round(name, rounds)
        measure(benchmark, subject, lambda: traffic.calls(steps), steps * 256, rounds)
        traffic.check()


@pytest.mark.benchmark(group="step of 256, by id")
class TestIds:
    @pytest.mark.parametrize("make", [MeteredById, Prometheus])
    def test_ids(self, benchmark: Any, make: Callable[[], Stepped], rounds: int) -> None:
        subject = make()
        traffic = Traffic(subject, 256)
        steps = steps_of_a_round("tokenpulse" if make is MeteredById else "prometheus", rounds)
        measure(benchmark, subject, lambda: traffic.calls(steps), steps * 256, rounds)
        traffic.check()


@pytest.mark.benchmark(group="observe a list of 256 floats")
class TestObserve:
    CALLS = 100

    @pytest.fixture
    def seconds(self, million: Any) -> list[float]:
        listed: list[float] = million[:256].tolist()
        return listed

    def measure(self, benchmark: Any, observe: Callable[[list[float]], Any], seconds: list[float], rounds: int) -> int:
        """Returns how often all of them were observed."""
        calls = 0

        def loop() -> None:
            nonlocal calls
            for _ in range(self.CALLS):
                observe(seconds)
            calls += self.CALLS

        benchmark.extra_info.update(values=self.CALLS * len(seconds))
        benchmark.pedantic(loop, rounds=rounds * 4, warmup_rounds=1)
        return calls

    def test_tokenpulse(self, benchmark: Any, seconds: list[float], rounds: int) -> None:
        subject = Metered()
        subject.arrive(10**12, 1)
        before = subject.meter.snapshot().total.latency["ttft"]
        observe = subject.meter.observe
        calls = self.measure(benchmark, lambda values: observe("ttft", values), seconds, rounds)
        after = subject.meter.snapshot().total.latency["ttft"]
        assert after.count - before.count == calls * len(seconds)
        assert after.sum_ns - before.sum_ns == calls * sum(round(value * 1e9) for value in seconds)

    def test_prometheus(self, benchmark: Any, seconds: list[float], rounds: int) -> None:
        registry = prometheus_client.CollectorRegistry()
        histogram = prometheus_client.Histogram("ttft", "", buckets=SECONDS, registry=registry)

        def observe(values: list[float]) -> None:
            one = histogram.observe
            for value in values:
                one(value)

        benchmark.extra_info.update(peer=Prometheus.NAME)
        calls = self.measure(benchmark, observe, seconds, rounds)
        assert registry.get_sample_value("ttft_count") == calls * len(seconds)

    def test_kll(self, benchmark: Any, seconds: list[float], rounds: int) -> None:
        sketch = kll_doubles_sketch()
        benchmark.extra_info.update(peer="KLL of an array made of it")
        calls = self.measure(benchmark, lambda values: sketch.update(np.array(values)), seconds, rounds)
        assert sketch.n == calls * len(seconds)


@pytest.fixture(scope="module")
def served(rounds: int) -> Meter:
    """A meter that has seen two hours: every latency of every class is in every window."""
    meter = Meter()
    serve(meter, 7200 if rounds > 1 else 60, CLASSES)
    snapshot = meter.snapshot()
    assert (snapshot.rejected, snapshot.dropped, len(snapshot.total.classes)) == ({}, 0, CLASSES)
    for view in (snapshot.total, *snapshot.windows.values()):
        assert all(sketch.count > 0 for sketch in view.latency.values())
    return meter


@pytest.mark.benchmark(group="snapshot of 16 classes and 4 windows")
class TestSnapshot:
    READS = 10

    def measure(self, benchmark: Any, read: Callable[[], Any], rounds: int, peer: str = "") -> Any:
        def loop() -> Any:
            for _ in range(self.READS):
                found = read()
            return found

        benchmark.extra_info.update(values=self.READS, unit="snapshot", peer=peer)
        return benchmark.pedantic(loop, rounds=rounds * 4, warmup_rounds=1)

    def test_snapshot(self, benchmark: Any, served: Meter, rounds: int) -> None:
        snapshot = self.measure(benchmark, served.snapshot, rounds)
        assert snapshot == served.snapshot()
        assert len(snapshot.windows) == WINDOWS
        assert snapshot.total.counts["output_tokens"] > 10_000

    def test_with_five_quantiles_of_all(self, benchmark: Any, served: Meter, rounds: int) -> None:
        found = self.measure(benchmark, lambda: served.snapshot().quantiles(QUANTILES), rounds)
        assert found.shape == (WINDOWS + 1, CLASSES + 1, 8, len(QUANTILES))
        sketch = served.snapshot().total.latency["itl"]
        itl = found[0, 0, 6]
        assert itl.tolist() == sketch.quantiles(QUANTILES)

    def test_later(self, benchmark: Any, served: Meter, rounds: int) -> None:
        """At a time at which panes are to be left out."""
        newest = served.snapshot().t_ns
        assert newest is not None
        snapshot = self.measure(benchmark, lambda: served.snapshot(newest + 10 * 10**9), rounds)
        total, window = snapshot.total.counts, snapshot.window("15s").counts
        assert 0 < window["output_tokens"] < served.snapshot().window("15s").counts["output_tokens"]
        assert total == served.snapshot().total.counts

    def test_scrape(self, benchmark: Any, rounds: int) -> None:
        """The totals of six latencies only."""
        scraped = Scraped(CLASSES)
        scraped.observe([0.01, 0.02, 0.3])
        text = self.measure(benchmark, scraped.scrape, rounds, "scrape of prometheus-client")
        assert text.count(b'le="+Inf"') == 6 * CLASSES
