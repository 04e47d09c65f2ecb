"""What must hold of the formulas for any arguments: arrays are numbers side by side, and formulas undo each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_formula_vectors import SPECIMEN, function

from tokenpulse import formulas

POSITIVE = st.floats(1e-6, 1e15)
SHARES = {name for name in SPECIMEN if name.endswith(("_utilization", "_rate", "_index", "attainment", "availability"))}
"""Their arguments must fit each other."""

Formula = Callable[..., Any]


def one(name: str, place: int) -> st.SearchStrategy[float]:
    """Arguments that are in the domain: a specimen's, times at most 1."""
    factor = st.sampled_from([0.25, 0.5, 1.0]) | st.floats(0.1, 1.0)
    value = SPECIMEN[name][place]
    if name in SHARES or (name, place) in (("prefill_seconds_chunked", 1), ("budget_left", 1)):
        return st.just(value)
    return factor.map(lambda times: value * times)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, list[Any], list[list[float]]]:
    """A formula, arguments of which each is a number or an array, and the same broadcast by hand: a list for each."""
    name = draw(st.sampled_from(sorted(SPECIMEN)))
    arguments: list[Any] = []
    columns: list[list[float]] = []
    for place in range(len(SPECIMEN[name])):
        values = [draw(one(name, place)) for _ in range(3)]
        kind = draw(st.sampled_from(["number", "list", "array", "column"]))
        if kind == "number":
            values = [values[0]] * 3
            arguments.append(values[0])
        else:
            arguments.append(values if kind == "list" else np.array(values))
        columns.append(values)
    return name, arguments, columns


@settings(max_examples=300, deadline=None)
@given(call=calls())
def test_arrays_are_numbers_side_by_side(call: tuple[str, list[Any], list[list[float]]]) -> None:
    name, arguments, columns = call
    found = function(name)(*arguments)
    expected = [function(name)(*row) for row in zip(*columns, strict=True)]
    if isinstance(found, float):
        assert [found] * 3 == expected
    else:
        assert found.tolist() == expected


@settings(max_examples=150, deadline=None)
@given(budget=POSITIVE, per_token=st.floats(1, 1e6), tokens=st.floats(1, 1e6))
def test_a_full_batch_fills_the_budget(budget: float, per_token: float, tokens: float) -> None:
    most = formulas.batch_max(budget, per_token, tokens)
    assert formulas.kv_step_bytes(most, per_token, tokens) == pytest.approx(budget, rel=1e-12)


@settings(max_examples=150, deadline=None)
@given(flops=POSITIVE, peak=POSITIVE, moved=POSITIVE, bandwidth=POSITIVE)
def test_the_roofline_bends_at_the_ridge(flops: float, peak: float, moved: float, bandwidth: float) -> None:
    seconds = formulas.roofline_seconds(flops, peak, moved, bandwidth)
    assert seconds == max(flops / peak, moved / bandwidth)
    intensity, ridge = formulas.arithmetic_intensity(flops, moved), peak / bandwidth
    if intensity < ridge * (1 - 1e-12):
        assert seconds == moved / bandwidth
    elif intensity > ridge * (1 + 1e-12):
        assert seconds == flops / peak


@settings(max_examples=150, deadline=None)
@given(prompt=st.integers(0, 10**6), chunk=st.integers(1, 10**5), seconds=st.floats(0, 10))
def test_chunks_are_as_many_as_it_takes(prompt: int, chunk: int, seconds: float) -> None:
    chunks = formulas.prefill_seconds_chunked(prompt, chunk, 1, 0)
    assert chunks == math.ceil(prompt / chunk)
    assert formulas.prefill_seconds_chunked(prompt, chunk, seconds, 1) == chunks * seconds + 1


@settings(max_examples=150, deadline=None)
@given(weights=POSITIVE, kv=POSITIVE, bandwidth=POSITIVE, more=st.floats(0, 1), batch=st.integers(1, 512))
def test_tokens_per_second_are_a_batch_for_each_step(
    weights: float, kv: float, bandwidth: float, more: float, batch: int
) -> None:
    tpot = formulas.tpot_seconds(weights, kv, bandwidth, more, 0)
    assert tpot >= formulas.tpot_seconds(weights, 0, bandwidth, 0, 0)
    assert tpot == formulas.tpot_seconds(weights, kv, bandwidth, 0, more)
    assert formulas.token_throughput_estimate(batch, tpot) * tpot == pytest.approx(batch)
    assert formulas.little_concurrency(formulas.token_throughput_estimate(batch, tpot), tpot) == pytest.approx(batch)


@settings(max_examples=150, deadline=None)
@given(counts=st.lists(st.integers(0, 100), min_size=5, max_size=5), well=st.integers(0, 500), aborts=st.integers(0, 9))
def test_availability_and_budget(counts: list[int], well: int, aborts: int) -> None:
    judged = sum(counts) + well
    by_status = dict(zip(formulas.UNAVAILABLE, counts, strict=True)) | {"stop": well, "abort": aborts}
    available = formulas.availability(*counts, judged)
    assert available == formulas.availability_of(by_status)
    if not judged:
        assert available is None
        return
    error_rate, burn = formulas.error_rate_of(by_status), formulas.burn_rate(sum(counts), judged, 0.999)
    left = formulas.budget_left(sum(counts), judged, 0.999)
    assert available is not None
    assert error_rate is not None
    assert burn is not None
    assert left is not None
    assert available == 1 - error_rate
    assert available == pytest.approx(well / judged)
    assert left == 1 - burn
    assert (left < 0) == (error_rate / (1 - 0.999) > 1)
