"""Sketches under random use: the core and the reference hold the same bytes and give the same doubles."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpulse import DecodeError, Sketch, reference

ROOM = 2**63
DECODE_ERRORS = (DecodeError, reference.DecodeError)

scales = st.integers(0, 8)
rules = st.sampled_from((None, None, "token", "chunk", "stamp"))
# Whole ns: small ones, those about powers of two in seconds (where the ties are), and any.
near_ties = st.builds(
    lambda exponent, off: max(0, 10**9 * 2**exponent // 1 + off if exponent >= 0 else 10**9 // 2**-exponent + off),
    st.integers(-21, 13),
    st.integers(-2, 2),
)
nanoseconds = st.one_of(st.integers(0, 2000), near_ties, st.integers(0, 5 * 10**12), st.integers(0, ROOM - 1))
seconds = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0, 1),
    st.floats(0, 5000),
    st.sampled_from((0.0, -0.0, 0.5e-9, 1.5e-9, 2.5e-9, 2.0**-20, 4096.0, 9223372036.854775, -5e-324)),
)
quantiles = st.one_of(st.floats(0, 1), st.sampled_from((0.0, 1.0, 0.5, 0.9, 0.99, 0.999, 1e-300, 1 - 2**-53)))

Pair = tuple[Sketch, Any]


def both(use: Callable[[Any], Any], pair: Pair) -> Any:
    """Does the same to both; returns what it gives, which must be the same, or the type of the error."""
    results = []
    for sketch in pair:
        try:
            results.append(use(sketch))
        except DECODE_ERRORS:
            results.append(DecodeError)
        except (ValueError, TypeError) as error:
            results.append(type(error))
    core, oracle = results
    assert repr(core) == repr(oracle)  # repr: NaN is NaN, 0.0 is not -0.0, and every bit of a double shows
    return oracle


def assert_same(pair: Pair) -> None:
    core, oracle = pair
    for name in (
        *("count", "sum", "sum_ns", "mean", "min", "min_ns", "max", "max_ns", "scale", "itl_rule"),
        *("zero_count", "overflow_count", "relative_error"),
    ):
        assert repr(getattr(core, name)) == repr(getattr(oracle, name)), name
    assert dict(core.rejected) == dict(oracle.rejected)
    assert [list(map(int, part)) for part in core.buckets()] == [list(part) for part in oracle.buckets()]
    assert core.to_bytes() == oracle.to_bytes()


@st.composite
def recorded(draw: st.DrawFn, rule: str | None = None) -> Pair:
    """A pair of sketches of which every value was recorded alike."""
    scale = draw(scales)
    pair: Pair = (Sketch(scale, itl_rule=rule), reference.Sketch(scale, itl_rule=rule))
    for _ in range(draw(st.integers(0, 12))):
        record(draw, pair)
    return pair


def record(draw: st.DrawFn, pair: Pair) -> None:
    kind = draw(st.sampled_from(("ns", "ns", "seconds", "n", "many", "array")))
    if kind == "ns":
        ns = draw(nanoseconds)
        both(lambda sketch: sketch.record_ns(ns), pair)
    elif kind == "seconds":
        x = draw(seconds)
        both(lambda sketch: sketch.record(x), pair)
    elif kind == "n":
        x, n = draw(seconds), draw(st.sampled_from((0, 1, 3, 2**32, 2**61)))
        both(lambda sketch: sketch.record_n(x, n), pair)
    elif kind == "many":
        unit = draw(st.sampled_from(("s", "ns")))
        values = draw(st.lists(seconds, max_size=5))
        both(lambda sketch: sketch.record_many(values, unit=unit), pair)
    else:
        unit = draw(st.sampled_from(("s", "ns")))
        dtype = draw(st.sampled_from((np.float64, np.float32, np.int64, np.uint64)))
        info = np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else None
        element = seconds if info is None else st.integers(int(info.min), int(info.max))
        with np.errstate(all="ignore"):
            array = np.array(draw(st.lists(element, max_size=6)), dtype=np.float64 if info is None else dtype)
            array = array.astype(dtype)
        both(lambda sketch: sketch.record_many(array, unit=unit), pair)


@settings(deadline=None, max_examples=250)
@given(pair=recorded(), qs=st.lists(quantiles, max_size=6), xs=st.lists(seconds, max_size=4))
def test_recording_and_reading(pair: Pair, qs: list[float], xs: list[float]) -> None:
    assert_same(pair)
    for q in qs:
        both(lambda sketch, q=q: sketch.quantile(q), pair)
    both(lambda sketch: [float(x) for x in sketch.quantiles(qs)], pair)
    for x in xs:
        both(lambda sketch, x=x: sketch.cdf(x), pair)


@settings(deadline=None, max_examples=120)
@given(data=st.data(), left_rule=rules, right_rule=rules)
def test_merging(data: st.DataObject, left_rule: str | None, right_rule: str | None) -> None:
    left, right = data.draw(recorded(left_rule)), data.draw(recorded(right_rule))
    sums = []
    for a, b in zip(left, right, strict=True):
        try:
            sums.append(a + b)
        except ValueError:
            sums.append(None)
    assert (sums[0] is None) == (sums[1] is None)
    if sums[0] is None:
        for a, b in zip(left, right, strict=True):
            with pytest.raises(ValueError, match=r"rule|count"):
                a.merge(b)
        assert_same(left)  # a merge that fails changes nothing
        return
    assert_same((sums[0], sums[1]))
    for a, b in zip(left, right, strict=True):
        a.merge(b)
    assert_same(left)
    assert left[0] == sums[0]
    assert left[1] == sums[1]


@settings(deadline=None, max_examples=120)
@given(data=st.data(), rule=rules, scale=scales)
def test_downscaling_and_snapshots(data: st.DataObject, rule: str | None, scale: int) -> None:
    pair = data.draw(recorded(rule))
    earlier = (pair[0].copy(), pair[1].copy())
    for _ in range(data.draw(st.integers(0, 5))):
        record(data.draw, pair)
    assert_same((pair[0] - earlier[0], pair[1] - earlier[1]))
    if scale <= pair[1].scale:
        coarse = (pair[0].downscale(scale), pair[1].downscale(scale))
        assert_same(coarse)
        assert_same((coarse[0] - earlier[0], coarse[1] - earlier[1]))
    else:
        both(lambda sketch: sketch.downscale(scale), pair)


@settings(deadline=None, max_examples=120)
@given(data=st.data(), rules=st.tuples(rules, rules))
def test_differences_of_strangers(data: st.DataObject, rules: tuple[str | None, str | None]) -> None:
    """What is no earlier snapshot is refused by both, or by neither."""
    later, earlier = data.draw(recorded(rules[0])), data.draw(recorded(rules[1]))
    found = []
    for a, b in zip(later, earlier, strict=True):
        try:
            found.append(a - b)
        except ValueError:
            found.append(None)
    assert (found[0] is None) == (found[1] is None)
    if found[0] is not None:
        assert_same((found[0], found[1]))


@settings(deadline=None, max_examples=120)
@given(pair=recorded(), other=recorded())
def test_equality(pair: Pair, other: Pair) -> None:
    assert (pair[0] == other[0]) == (pair[1] == other[1])
    assert pair[0] == Sketch.from_bytes(pair[1].to_bytes())
    assert pair[1] == reference.Sketch.from_bytes(pair[0].to_bytes())


@settings(deadline=None, max_examples=400)
@given(
    pair=recorded("token"),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255), st.booleans()), min_size=1, max_size=3),
)
def test_damaged_bytes(pair: Pair, changes: list[tuple[int, int, bool]]) -> None:
    """Bytes that were changed are read alike or refused by both."""
    encoded = bytearray(pair[1].to_bytes())
    for at, byte, is_inserted in changes:
        place = at % len(encoded)
        encoded[place : place + (0 if is_inserted else 1)] = bytes([byte])
    readers: Any = (Sketch.from_bytes, reference.Sketch.from_bytes)
    both(lambda read: read(bytes(encoded)).to_bytes(), readers)


@settings(deadline=None, max_examples=200)
@given(gap=st.integers(0, 10**13), k=st.sampled_from((1, 2, 3, 7, 1000, 2**32 - 1)))
def test_split_gaps_can_be_read_again(gap: int, k: int) -> None:
    """The sum of a split gap exceeds what its observations add up to, and that is no contradiction."""
    oracle = reference.Sketch(itl_rule="token")
    oracle.record_split(gap, k)
    assert (oracle.count, oracle.sum_ns, oracle.min_ns) == (k, gap, gap // k)
    assert Sketch.from_bytes(oracle.to_bytes()).to_bytes() == oracle.to_bytes()
    assert reference.Sketch.from_bytes(oracle.to_bytes()) == oracle


def test_a_quantile_outside_0_and_1_is_refused() -> None:
    pair: Pair = (Sketch(), reference.Sketch())
    for q in (-0.1, 1.1, math.nan, math.inf):
        assert both(lambda sketch, q=q: sketch.quantile(q), pair) is ValueError
