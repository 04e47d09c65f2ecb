"""What one call into the extension costs, beside the same call of a builtin, of Python and of `rddsketch`.

Every figure holds the loop and the look-up of a bound name, about the same for all of a group.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from math import sqrt
from typing import Any

import pytest
from rddsketch import DDSketch

from tokenpulse import Sketch

CALLS = 10_000


class PurePython:
    """The least that a sketch could be."""

    def __init__(self) -> None:
        self.total = 0.0
        self.n = 0

    @property
    def scale(self) -> int:
        return 6

    def cdf(self, seconds: float) -> float:
        return seconds

    def record(self, seconds: float) -> None:
        self.n += 1
        self.total += seconds


def measure(benchmark: Any, loop: Callable[[], Any], rounds: int, peer: str = "") -> Any:
    benchmark.extra_info.update(values=CALLS, peer=peer)
    return benchmark.pedantic(loop, rounds=rounds * 20, warmup_rounds=1)


def calls(function: Callable[[float], Any]) -> Callable[[], Any]:
    def loop() -> Any:
        for _ in repeat(None, CALLS):
            result = function(0.05)
        return result

    return loop


def reads_of_scale(owner: Any) -> Callable[[], Any]:
    def loop() -> Any:
        for _ in repeat(None, CALLS):
            result = owner.scale
        return result

    return loop


def reads_of_count(owner: Any) -> Callable[[], Any]:
    def loop() -> Any:
        for _ in repeat(None, CALLS):
            result = owner.count
        return result

    return loop


@pytest.mark.benchmark(group="call that does nothing")
class TestTrivialCall:
    def test_tokenpulse(self, benchmark: Any, rounds: int) -> None:
        nan = measure(benchmark, calls(Sketch().cdf), rounds)
        assert nan != nan  # of an empty sketch

    def test_builtin(self, benchmark: Any, rounds: int) -> None:
        assert measure(benchmark, calls(sqrt), rounds, "math.sqrt") == sqrt(0.05)

    def test_python(self, benchmark: Any, rounds: int) -> None:
        assert measure(benchmark, calls(PurePython().cdf), rounds, "method in Python") == 0.05


@pytest.mark.benchmark(group="call of record")
class TestRecord:
    def test_tokenpulse(self, benchmark: Any, rounds: int) -> None:
        sketch = Sketch()
        measure(benchmark, calls(sketch.record), rounds)
        assert sketch.count % CALLS == 0
        assert sketch.sum_ns == sketch.count * 50_000_000 > 0

    def test_rddsketch(self, benchmark: Any, rounds: int) -> None:
        peer = DDSketch(Sketch().relative_error)
        measure(benchmark, calls(peer.add), rounds, "rddsketch add")
        assert peer.count % CALLS == 0
        assert peer.count > 0

    def test_python(self, benchmark: Any, rounds: int) -> None:
        peer = PurePython()
        measure(benchmark, calls(peer.record), rounds, "two sums in Python")
        assert peer.n % CALLS == 0
        assert peer.n > 0


@pytest.mark.benchmark(group="read of a property")
class TestProperty:
    def test_tokenpulse_scale(self, benchmark: Any, rounds: int) -> None:
        assert measure(benchmark, reads_of_scale(Sketch()), rounds) == 6

    def test_tokenpulse_count(self, benchmark: Any, rounds: int) -> None:
        sketch = Sketch()
        sketch.record(0.05)
        assert measure(benchmark, reads_of_count(sketch), rounds) == 1

    def test_rddsketch_count(self, benchmark: Any, rounds: int) -> None:
        peer = DDSketch(Sketch().relative_error)
        peer.add(0.05)
        assert measure(benchmark, reads_of_count(peer), rounds, "rddsketch count") == 1

    def test_python(self, benchmark: Any, rounds: int) -> None:
        assert measure(benchmark, reads_of_scale(PurePython()), rounds, "property in Python") == 6
