"""A meter and what engines use in its place, behind one face: requests that run, and the steps that bring them tokens.

Each is given its requests in the form that suits it best and times in its own unit, prepared beforehand. All keep a
request's last time and the distribution of gaps between tokens; the meter keeps all else that it does, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import prometheus_client
import pytest
from datasketches import kll_doubles_sketch
from numpy.typing import NDArray
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from prometheus_client import CollectorRegistry, multiprocess, values
from rddsketch import DDSketch

from tokenpulse import IdMap, Meter, Sketch

MS = 1_000_000
KEPT = "ttft=500ms,tpot=30ms"
"""Steps are 20 ms apart or a little more: the requests keep to this."""
MISSED = "ttft=500ms,tpot=15ms"
"""And miss this."""

LATENCIES = ("ttft", "queue", "prefill", "itl", "tpot", "e2e")
"""The latencies of which an engine keeps a histogram each."""

SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
"""The buckets of an engine's histogram of gaps."""

TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
"""The buckets of an engine's histogram of tokens in a step."""


@dataclass(frozen=True)
class Found:
    """Tokens, observed gaps, and the gaps' sum in seconds."""

    tokens: int
    gaps: int
    seconds: float


class Stepped(Protocol):
    """What a benchmark of steps asks for."""

    NAME: str
    TICKS: int
    """Nanoseconds in one unit of the times that it takes."""

    def arrive(self, t: Any, n: int) -> list[Any]:
        """So many requests arrive at t and have their first token then."""
        ...

    def column(self, requests: list[Any]) -> Any:
        """The requests of a step as it takes them."""
        ...

    def counts(self, counts: list[int]) -> Any:
        """Numbers of tokens as it takes them."""
        ...

    def step(self, t: Any, requests: Any, counts: Any = None) -> None: ...
    def found(self) -> Found: ...


class Metered:
    """The meter, with an SLO set, all windows and all metrics in use."""

    NAME = ""
    TICKS = 1

    def __init__(self, slos: str | list[str] = KEPT) -> None:
        self.meter = Meter(slos)
        self.step = self.meter.step

    def arrive(self, t: int, n: int) -> list[int]:
        # One request before these goes through all that a request can.
        first = self.meter.arrive(t - 50 * MS, 10)
        for event, ms in (
            ("schedule", 40),
            ("prefill", 39),
            ("step", 30),
            ("preempt", 20),
            ("resume", 10),
            ("step", 5),
        ):
            getattr(self.meter, event)(t - ms * MS, first)
        self.meter.end(t - 5 * MS, first, "stop")
        requests: list[int] = self.meter.arrive(t - 4 * MS, [100] * n).tolist()
        self.meter.schedule(t - 3 * MS, requests)
        self.meter.prefill(t - 2 * MS, requests)
        self.meter.step(t, requests)
        return requests

    def column(self, requests: list[int]) -> NDArray[np.int64]:
        return np.array(requests, np.int64)

    def counts(self, counts: list[int]) -> NDArray[np.int64]:
        return np.array(counts, np.int64)

    def found(self) -> Found:
        snapshot = self.meter.snapshot()
        assert (snapshot.rejected, snapshot.clamped, snapshot.dropped) == ({}, 0, 0)
        total = snapshot.total
        assert all(sketch.count > 0 for sketch in total.latency.values())
        itl = total.latency["itl"]
        # But for the request before: two tokens, 25 ms apart.
        return Found(total.counts["output_tokens"] - 2, itl.count - 1, (itl.sum_ns - 25 * MS) / 1e9)


class MeteredById(Metered):
    """The meter, by the engine's own ids."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = IdMap(self.meter)
        self.step = self.ids.step

    def arrive(self, t: int, n: int) -> list[str]:
        super().arrive(t - 10 * MS, 0)
        requests = ids(n)
        for request in requests:
            self.ids.arrive(t - 4 * MS, request, 100)
        self.ids.schedule(t - 3 * MS, requests)
        self.ids.prefill(t - 2 * MS, requests)
        self.ids.step(t, requests)
        return requests

    def column(self, requests: list[str]) -> list[str]:
        return requests


def ids(n: int) -> list[str]:
    """Ids as servers make them, each an object of its own."""
    return [f"chatcmpl-{request * 0x9E3779B97F4A7C15 % 2**64:016x}" for request in range(n)]


class RequestState:
    """What an engine keeps of a request for its metrics."""

    __slots__ = ("last", "tokens")

    def __init__(self, last: float) -> None:
        self.last = last
        self.tokens = 1


class Prometheus:
    """How an engine feeds `prometheus-client`: a loop over the requests of a step, then one over their gaps."""

    NAME = "prometheus-client"
    TICKS = 10**9

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ["model_name", "engine"]
        bound = {"model_name": "model", "engine": "0"}
        histogram = prometheus_client.Histogram("itl", "", labels, buckets=SECONDS, registry=self.registry)
        self.itl = histogram.labels(**bound)
        histogram = prometheus_client.Histogram("step", "", labels, buckets=TOKENS, registry=self.registry)
        self.tokens_of_step = histogram.labels(**bound)
        counter = prometheus_client.Counter("tokens", "", labels, registry=self.registry)
        self.tokens = counter.labels(**bound)
        self.states: dict[str, RequestState] = {}

    def arrive(self, t: float, n: int) -> list[str]:
        requests = ids(n)
        self.states.update((request, RequestState(t)) for request in requests)
        self.tokens.inc(n)
        return requests

    def column(self, requests: list[str]) -> list[str]:
        return requests

    def counts(self, counts: list[int]) -> list[int]:
        return counts

    def step(self, t: float, requests: list[str], counts: list[int] | None = None) -> None:
        states = self.states
        gaps: list[float] = []
        tokens = 0
        for request, k in zip(requests, counts or [1] * len(requests), strict=True):
            state = states[request]
            gaps.append(t - state.last)
            state.last = t
            state.tokens += k
            tokens += k
        observe = self.itl.observe
        for gap in gaps:
            observe(gap)
        self.tokens.inc(tokens)
        self.tokens_of_step.observe(tokens)

    def collected(self) -> CollectorRegistry:
        return self.registry

    def found(self) -> Found:
        samples = {
            sample.name: sample.value
            for metric in self.collected().collect()
            for sample in metric.samples
            if "le" not in sample.labels
        }
        return Found(int(samples["tokens_total"]), int(samples["itl_count"]), samples["itl_sum"])


class PrometheusMultiprocess(Prometheus):
    """The same in multiprocess mode: every value lies in a mapped file of the folder."""

    NAME = "prometheus-client, multiprocess"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # What the client chooses when it is imported with the variable set.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PROMETHEUS_MULTIPROC_DIR", str(folder))
            patch.setattr(values, "ValueClass", values.MultiProcessValue())
            super().__init__()
        assert list(folder.glob("*.db"))

    def collected(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry, str(self.folder))
        return registry


class Slots:
    """A base for those that find a request's last time by its number."""

    NAME = ""
    TICKS = 10**9

    def __init__(self) -> None:
        self.last: list[float] = []
        self.tokens = 0

    def arrive(self, t: float, n: int) -> list[int]:
        self.last = [t] * n
        self.tokens = n
        return list(range(n))

    def column(self, requests: list[int]) -> Any:
        return requests

    def counts(self, counts: list[int]) -> Any:
        return counts


class Kll(Slots):
    """NumPy throughout, with a KLL sketch that takes a whole array of gaps."""

    NAME = "NumPy and KLL"

    def __init__(self) -> None:
        super().__init__()
        self.sketch = kll_doubles_sketch()
        self.seconds = 0.0

    def arrive(self, t: float, n: int) -> list[int]:
        requests = super().arrive(t, n)
        self.times = np.full(n, t)
        return requests

    def column(self, requests: list[int]) -> NDArray[np.int64]:
        return np.array(requests, np.int64)

    def counts(self, counts: list[int]) -> NDArray[np.int64]:
        return np.array(counts, np.int64)

    def step(self, t: float, requests: NDArray[np.int64], counts: NDArray[np.int64] | None = None) -> None:
        times = self.times
        gaps = t - times[requests]
        times[requests] = t
        if counts is None:
            self.tokens += requests.size
        else:
            gaps = np.repeat(gaps / counts, counts)
            self.tokens += gaps.size
        self.seconds += gaps.sum()
        self.sketch.update(gaps)

    def found(self) -> Found:
        return Found(self.tokens, self.sketch.n, self.seconds)


class Rdd(Slots):
    """A list of last times and one `add` a token."""

    NAME = "rddsketch"

    def __init__(self) -> None:
        super().__init__()
        self.sketch = DDSketch(Sketch().relative_error)

    def step(self, t: float, requests: list[int], counts: list[int] | None = None) -> None:
        assert counts is None
        last, add = self.last, self.sketch.add
        for request in requests:
            add(t - last[request])
            last[request] = t
        self.tokens += len(requests)

    def found(self) -> Found:
        return Found(self.tokens, self.sketch.count, self.sketch.sum)


class OpenTelemetry(Slots):
    """A list of last times and one `record` a token into an exponential histogram of the SDK."""

    NAME = "OpenTelemetry SDK"

    def __init__(self) -> None:
        super().__init__()
        self.reader = InMemoryMetricReader()
        view = View(instrument_name="itl", aggregation=ExponentialBucketHistogramAggregation())
        provider = MeterProvider([self.reader], views=[view], shutdown_on_exit=False)
        meter = provider.get_meter("peer")
        self.histogram = meter.create_histogram("itl", "s")
        self.counter = meter.create_counter("tokens")

    def arrive(self, t: float, n: int) -> list[int]:
        self.counter.add(n)
        return super().arrive(t, n)

    def step(self, t: float, requests: list[int], counts: list[int] | None = None) -> None:
        assert counts is None
        last, record = self.last, self.histogram.record
        for request in requests:
            record(t - last[request])
            last[request] = t
        self.counter.add(len(requests))

    def found(self) -> Found:
        collected = self.reader.get_metrics_data()
        assert collected is not None
        metrics = collected.resource_metrics[0].scope_metrics[0].metrics
        points: dict[str, Any] = {metric.name: metric.data.data_points[0] for metric in metrics}
        itl = points["itl"]
        assert len(itl.positive.bucket_counts) > 1
        return Found(points["tokens"].value, itl.count, itl.sum)


class Scraped:
    """Labelled histograms as an engine exposes them: a scrape is what a snapshot is to a meter."""

    def __init__(self, classes: int) -> None:
        self.registry = CollectorRegistry()
        made = (
            prometheus_client.Histogram(name, "", ["tenant"], buckets=SECONDS, registry=self.registry)
            for name in LATENCIES
        )
        self.histograms = [[one.labels(str(tenant)) for tenant in range(classes)] for one in made]

    def observe(self, seconds: Sequence[float]) -> None:
        for histogram in self.histograms:
            for labelled in histogram:
                for value in seconds:
                    labelled.observe(value)

    def scrape(self) -> bytes:
        return prometheus_client.generate_latest(self.registry)
