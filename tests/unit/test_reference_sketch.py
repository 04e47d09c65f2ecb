"""The reference's sketch: its edges from the definition, its bytes as the official protobuf classes see them."""

from __future__ import annotations

import copy
import json
import math
import pickle
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tokenpulse.reference import DecodeError, Sketch
from tokenpulse.reference.buckets import edge, thresholds, whole_ns

VECTORS = Path(__file__).parents[1] / "vectors" / "sketch.json"


def cases(section: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(VECTORS.read_text())[section]
    assert found
    return found


def sketch_of(values: list[int], scale: int = 6) -> Sketch:
    sketch = Sketch(scale)
    for ns in values:
        sketch.record_ns(ns)
    return sketch


def test_edges_are_correctly_rounded() -> None:
    for case in cases("edges"):
        assert edge(case["index"], case["scale"]).hex() == case["seconds"]


@pytest.mark.parametrize("scale", range(9))
def test_thresholds_bracket_the_edges(scale: int) -> None:
    """`t` is the floor of the edge exactly when t^m <= 10^(9m) * 2^i < (t + 1)^m."""
    m = 2**scale
    edges = thresholds(scale)
    assert len(edges) == 32 * m + 1
    for position in range(0, len(edges), max(1, m // 8)):
        power = Fraction(2) ** (position - 20 * m) * 10 ** (9 * m)
        assert edges[position] ** m <= power < (edges[position] + 1) ** m


def test_every_edge_of_a_coarse_scale_is_one_of_the_finer() -> None:
    for scale in range(1, 9):
        assert thresholds(scale)[::2] == thresholds(scale - 1)


def test_split_gaps() -> None:
    for case in cases("splits"):
        sketch = Sketch(itl_rule="token")
        sketch.record_split(case["gap_ns"], case["k"])
        found = (sketch.count, sketch.sum_ns, sketch.min_ns, sketch.max_ns)
        assert found == (case["count"], case["sum_ns"], case["value_ns"], case["value_ns"])


@pytest.mark.parametrize("scale", [0, 3, 6, 8])
def test_quantiles_keep_their_guarantee(scale: int) -> None:
    source = random.Random(scale)
    values = [source.randint(954, 4096 * 10**9) for _ in range(300)]
    values += [int(10 ** source.uniform(3, 12.6)) for _ in range(300)]
    sketch = sketch_of(values, scale)
    values.sort()
    for q in (0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999):
        exact = values[max(1, math.ceil(q * len(values))) - 1] / 1e9
        assert abs(sketch.quantile(q) - exact) <= sketch.relative_error * exact * (1 + 1e-12)


def test_numbers_become_ns() -> None:
    assert whole_ns(3, "s") == 3 * 10**9
    assert whole_ns(9223372036, "s") == 9223372036 * 10**9  # exact, where the float64 product is not
    assert whole_ns(9223372037, "s") == "range"
    assert whole_ns(2.5, "ns") == 2
    assert whole_ns(3.5, "ns") == 4
    assert whole_ns(-(10**30), "ns") == "negative"
    with pytest.raises(TypeError):
        whole_ns("1", "s")


def test_a_merge_is_the_sketch_of_the_union() -> None:
    source = random.Random(1)
    parts = [[source.randint(0, 10**13) for _ in range(50)] for _ in range(3)]
    a, b, c = (sketch_of(part, scale) for part, scale in zip(parts, (6, 8, 3), strict=True))
    union = sketch_of([value for part in parts for value in part], 3)
    assert (a + b) + c == a + (b + c) == (c + a) + b == union


def test_rules_of_merging() -> None:
    token, chunk = Sketch(itl_rule="token"), Sketch(itl_rule="chunk")
    assert (Sketch() + token).itl_rule == (token + Sketch()).itl_rule == "token"
    for other in (chunk, sketch_of([1])):
        with pytest.raises(ValueError, match="ITL rule"):
            token.merge(other)
    refused = Sketch()
    refused.record(-1.0)
    assert dict((refused + token).rejected) == {"negative": 1}


def test_a_difference_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="snapshot"):
        sketch_of([1]) - sketch_of([1000])
    with pytest.raises(ValueError, match="snapshot"):
        sketch_of([5]) - sketch_of([3])  # no observation is left, but 2 ns are
    with pytest.raises(ValueError, match="scale"):
        sketch_of([1], 6) - sketch_of([1], 5)
    assert (sketch_of([5]) - sketch_of([5])).count == 0


def test_the_count_stays_below_2_63() -> None:
    sketch = Sketch()
    sketch.record_n(1.0, 2**63 - 1)
    with pytest.raises(ValueError, match="count"):
        sketch.record(1.0)
    with pytest.raises(ValueError, match="count"):
        sketch.merge(sketch.copy())
    assert sketch.count == 2**63 - 1
    assert Sketch.from_bytes(sketch.to_bytes()) == sketch


def test_copies_are_apart() -> None:
    sketch = sketch_of([1, 10**6])
    for twin in (copy.copy(sketch), copy.deepcopy(sketch), pickle.loads(pickle.dumps(sketch)), sketch.copy()):
        assert twin == sketch
        twin.record_ns(5)
        assert twin != sketch


def test_an_empty_sketch() -> None:
    sketch = Sketch()
    assert (sketch.count, sketch.sum, sketch.min_ns, sketch.max_ns) == (0, 0.0, None, None)
    assert all(math.isnan(x) for x in (sketch.mean, sketch.min, sketch.max, sketch.quantile(0.5), sketch.cdf(1.0)))


def test_bytes_are_canonical_protobuf() -> None:
    """The official classes read the bytes, and write the same ones."""
    pb2 = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2")
    source = random.Random(7)
    for scale in range(9):
        sketch = Sketch(scale, itl_rule=source.choice((None, "token")))
        for _ in range(60):
            sketch.record_n(source.choice((0.0, 10 ** source.uniform(-8, 5), math.nan)), source.randint(1, 500))
        point = pb2.ExponentialHistogramDataPoint.FromString(sketch.to_bytes())
        assert point.SerializeToString(deterministic=True) == sketch.to_bytes()
        assert sum(point.positive.bucket_counts) + point.zero_count == point.count == sketch.count
        assert (point.sum, point.min, point.max, point.scale) == (sketch.sum, sketch.min, sketch.max, scale)


def test_unknown_fields_are_skipped() -> None:
    sketch = sketch_of([5, 10**9])
    flags = bytes([10 << 3 | 0, 1])
    start_time = bytes([2 << 3 | 1]) + bytes(8)
    assert Sketch.from_bytes(flags + start_time + sketch.to_bytes() + flags) == sketch


def test_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(DecodeError, match="131072"):
        Sketch.from_bytes(sketch_of([5]).to_bytes() + bytes([2 << 3 | 1, *bytes(8)]) * 15000)
