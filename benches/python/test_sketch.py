"""The sketch from Python, beside `datasketches` KLL and the `rddsketch` package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from datasketches import kll_doubles_sketch, kll_floats_sketch
from numpy.typing import NDArray
from rddsketch import DDSketch

from tokenpulse import Sketch

QUANTILES = [0.5, 0.9, 0.95, 0.99, 0.999]
RELATIVE_ERROR = Sketch().relative_error
Column = NDArray[np.float64]


def ns_of(seconds: Column) -> NDArray[np.int64]:
    return np.rint(seconds * 1e9).astype(np.int64)


def measure(benchmark: Any, n: int, function: Callable[[], Any], rounds: int, peer: str = "") -> Any:
    """Run a function that handles n values, and return what its last round returned."""
    benchmark.extra_info.update(values=n, peer=peer)
    return benchmark.pedantic(function, rounds=rounds, warmup_rounds=1 if rounds > 1 else 0)


def kll_of(kind: type[Any], column: NDArray[Any]) -> Any:
    sketch = kind()
    sketch.update(column)
    return sketch


def sketch_of(column: NDArray[Any], unit: str = "s") -> Sketch:
    sketch = Sketch()
    sketch.record_many(column, unit)
    return sketch


def rddsketch_of(values: list[float]) -> DDSketch:
    sketch = DDSketch(RELATIVE_ERROR)
    for value in values:
        sketch.add(value)
    return sketch


def close_to(estimate: float, exact: float, error: float = RELATIVE_ERROR) -> bool:
    return abs(estimate - exact) <= error * exact * (1 + 1e-12)


class TestRecordMany:
    @pytest.mark.benchmark(group="record_many float64")
    def test_tokenpulse(self, benchmark: Any, column: Column, rounds: int) -> None:
        sketch = measure(benchmark, column.size, lambda: sketch_of(column), rounds)
        assert sketch.count == column.size
        assert sketch.sum_ns == int(ns_of(column).sum())

    @pytest.mark.benchmark(group="record_many float64")
    def test_kll_doubles(self, benchmark: Any, column: Column, rounds: int) -> None:
        fill = partial(kll_of, kll_doubles_sketch, column)
        peer = measure(benchmark, column.size, fill, rounds, "KLL doubles")
        assert peer.n == column.size

    @pytest.mark.benchmark(group="record_many float64")
    def test_kll_floats(self, benchmark: Any, column: Column, rounds: int) -> None:
        """Given float32 beforehand: the conversion is not held against it."""
        fill = partial(kll_of, kll_floats_sketch, column.astype(np.float32))
        peer = measure(benchmark, column.size, fill, rounds, "KLL floats")
        assert peer.n == column.size

    @pytest.mark.benchmark(group="record_many int64 ns")
    def test_tokenpulse_int64(self, benchmark: Any, column: Column, rounds: int) -> None:
        ns = ns_of(column)
        sketch = measure(benchmark, ns.size, lambda: sketch_of(ns, "ns"), rounds)
        assert (sketch.count, sketch.sum_ns) == (ns.size, int(ns.sum()))

    @pytest.mark.benchmark(group="record_many int64 ns")
    def test_kll_doubles_int64(self, benchmark: Any, column: Column, rounds: int) -> None:
        """It has no 64-bit integers: given as float64 beforehand."""
        fill = partial(kll_of, kll_doubles_sketch, ns_of(column).astype(np.float64))
        peer = measure(benchmark, column.size, fill, rounds, "KLL doubles")
        assert peer.n == column.size


class TestRecord:
    """One value at a time, in a loop in Python; the loop's own cost is in both."""

    @pytest.mark.benchmark(group="record in a loop")
    def test_tokenpulse(self, benchmark: Any, values: list[float], rounds: int) -> None:
        def loop() -> Sketch:
            sketch = Sketch()
            record = sketch.record
            for value in values:
                record(value)
            return sketch

        sketch = measure(benchmark, len(values), loop, rounds * 4)
        assert sketch == sketch_of(np.array(values))

    @pytest.mark.benchmark(group="record in a loop")
    def test_tokenpulse_ns(self, benchmark: Any, values: list[float], rounds: int) -> None:
        ns = ns_of(np.array(values))
        listed = ns.tolist()

        def loop() -> Sketch:
            sketch = Sketch()
            record_ns = sketch.record_ns
            for value in listed:
                record_ns(value)
            return sketch

        assert measure(benchmark, ns.size, loop, rounds * 4) == sketch_of(ns, "ns")

    @pytest.mark.benchmark(group="record in a loop")
    def test_rddsketch(self, benchmark: Any, values: list[float], rounds: int) -> None:
        def loop() -> DDSketch:
            sketch = DDSketch(RELATIVE_ERROR)
            add = sketch.add
            for value in values:
                add(value)
            return sketch

        peer = measure(benchmark, len(values), loop, rounds * 4, "rddsketch")
        assert peer.count == len(values)


class TestMerge:
    MERGES = 1000

    @pytest.mark.benchmark(group="merge")
    def test_tokenpulse(self, benchmark: Any, million: Column, rounds: int) -> None:
        other = sketch_of(million)

        def loop() -> Sketch:
            sketch = Sketch()
            merge = sketch.merge
            for _ in range(self.MERGES):
                merge(other)
            return sketch

        sketch = measure(benchmark, self.MERGES, loop, rounds * 4)
        assert (sketch.count, sketch.sum_ns) == (self.MERGES * other.count, self.MERGES * other.sum_ns)

    @pytest.mark.benchmark(group="merge")
    def test_rddsketch(self, benchmark: Any, values: list[float], rounds: int) -> None:
        other = rddsketch_of(values)

        def loop() -> DDSketch:
            sketch = DDSketch(RELATIVE_ERROR)
            merge = sketch.merge
            for _ in range(self.MERGES):
                merge(other)
            return sketch

        peer = measure(benchmark, self.MERGES, loop, rounds * 4, "rddsketch")
        assert peer.count == self.MERGES * len(values)

    @pytest.mark.benchmark(group="merge")
    def test_kll_doubles(self, benchmark: Any, million: Column, rounds: int) -> None:
        other = kll_of(kll_doubles_sketch, million)

        def loop() -> kll_doubles_sketch:
            sketch = kll_doubles_sketch()
            for _ in range(self.MERGES):
                sketch.merge(other)
            return sketch

        peer = measure(benchmark, self.MERGES, loop, rounds * 4, "KLL doubles")
        assert peer.n == self.MERGES * million.size


class TestQuantiles:
    """Five quantiles after each added value: whatever was sorted or summed before is stale."""

    READS = 1000

    @pytest.mark.benchmark(group="five quantiles after an add")
    def test_tokenpulse(self, benchmark: Any, million: Column, rounds: int) -> None:
        sketch = sketch_of(million)
        added = million[: self.READS].tolist()

        def loop() -> list[float]:
            for value in added:
                sketch.record(value)
                found = sketch.quantiles(QUANTILES)
            return found

        found = measure(benchmark, self.READS, loop, rounds * 4)
        assert close_to(found[0], 0.05, 0.02)
        assert found == sorted(found)

    @pytest.mark.benchmark(group="five quantiles after an add")
    def test_rddsketch(self, benchmark: Any, values: list[float], rounds: int) -> None:
        sketch = rddsketch_of(values)
        added = (values * self.READS)[: self.READS]

        def loop() -> list[float | None]:
            for value in added:
                sketch.add(value)
                found = [sketch.quantile(q) for q in QUANTILES]
            return found

        found = measure(benchmark, self.READS, loop, rounds * 4, "rddsketch")
        assert close_to(found[0], 0.05, 0.1)

    @pytest.mark.benchmark(group="five quantiles after an add")
    def test_kll_doubles(self, benchmark: Any, million: Column, rounds: int) -> None:
        sketch = kll_of(kll_doubles_sketch, million)
        added = million[: self.READS].tolist()

        def loop() -> list[float]:
            for value in added:
                sketch.update(value)
                found: list[float] = sketch.get_quantiles(QUANTILES)
            return found

        found = measure(benchmark, self.READS, loop, rounds * 4, "KLL doubles")
        assert close_to(found[0], 0.05, 0.1)


class TestBytes:
    LIMIT = 1100

    @pytest.mark.benchmark(group="bytes of a million values")
    def test_tokenpulse(self, benchmark: Any, million: Column) -> None:
        sketch = sketch_of(million)
        encoded = benchmark(sketch.to_bytes)
        benchmark.extra_info.update(values=1, bytes=len(encoded))
        assert len(encoded) <= self.LIMIT
        assert Sketch.from_bytes(encoded) == sketch

    @pytest.mark.benchmark(group="bytes of a million values")
    def test_rddsketch(self, benchmark: Any, million: Column) -> None:
        sketch = rddsketch_of(million.tolist())
        encoded = benchmark(sketch.to_bytes)
        benchmark.extra_info.update(values=1, bytes=len(encoded), peer="rddsketch")
        assert DDSketch.from_bytes(encoded, RELATIVE_ERROR).count == million.size

    @pytest.mark.benchmark(group="bytes of a million values")
    def test_kll_doubles(self, benchmark: Any, million: Column) -> None:
        sketch = kll_of(kll_doubles_sketch, million)
        encoded = benchmark(sketch.serialize)
        benchmark.extra_info.update(values=1, bytes=len(encoded), peer="KLL doubles")
        assert kll_doubles_sketch.deserialize(encoded).n == million.size


def test_quantiles_are_as_close_as_promised(million: Column) -> None:
    """What is fast must also be right: each estimate against the sorted values."""
    exact = np.sort(ns_of(million))
    found = sketch_of(million).quantiles(QUANTILES)
    ranks = [int(np.ceil(q * million.size)) - 1 for q in QUANTILES]
    assert all(close_to(estimate, exact[rank] / 1e9) for estimate, rank in zip(found, ranks, strict=True))
