"""The percentiles that profiles take, against NumPy's and against counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpulse.profiles import percentile

values = st.lists(st.integers(-1000, 1000).map(lambda n: n / 8), min_size=1, max_size=60)
shares = st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=1, max_size=8)


@given(values, shares)
def test_nearest_rank_is_the_least_value_with_enough_at_or_below_it(held: list[float], q: list[float]) -> None:
    ordered = sorted(held)
    for share, found in zip(q, percentile.nearest_rank(np.array(held), q), strict=True):
        place = ordered.index(found)
        at_or_below = sum(one <= found for one in ordered)
        assert at_or_below >= share * len(ordered) - 1e-9
        assert place == 0 or place < share * len(ordered) + 1e-9


@given(values, shares)
def test_linear_is_numpys(held: list[float], q: list[float]) -> None:
    assert percentile.linear(np.array(held), q).tolist() == np.quantile(held, q).tolist()


@given(values, shares)
def test_floor_index_is_a_place_of_the_sorted(held: list[float], q: list[float]) -> None:
    ordered = sorted(held)
    expected = [ordered[min(int(len(ordered) * share), len(ordered) - 1)] for share in q]
    assert percentile.floor_index(np.array(held), q).tolist() == expected


@given(values, shares, st.data())
def test_weights_are_as_many_values(held: list[float], q: list[float], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(0, 4), min_size=len(held), max_size=len(held)))
    written_out = [value for value, weight in zip(held, weights, strict=True) for _ in range(weight)]
    if not written_out:
        with pytest.raises(ValueError, match="at least one value"):
            percentile.weighted(np.array(held), np.array(weights, float), q)
        return
    found = percentile.weighted(np.array(held), np.array(weights, float), q)
    ordered = np.sort(written_out)
    # The share of the weight is a sum of floats: a value on either side of an edge will do.
    for share, one in zip(q, found, strict=True):
        edges = np.clip([share * ordered.size - 1e-6, share * ordered.size + 1e-6], 0, ordered.size)
        low, high = (ordered[max(0, int(np.ceil(edge)) - 1)] for edge in edges)
        assert low <= one <= high


@pytest.mark.parametrize("method", [percentile.nearest_rank, percentile.linear, percentile.floor_index])
def test_misuse(method) -> None:
    with pytest.raises(ValueError, match="at least one value, got none"):
        method(np.zeros(0), [0.5])
    with pytest.raises(ValueError, match="between 0 and 1"):
        method(np.ones(3), [99])
