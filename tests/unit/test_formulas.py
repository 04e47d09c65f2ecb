"""The formulas: worked out by hand in fractions, the same over arrays as over numbers, refused outside a domain."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tokenpulse import formulas

# Of each formula arguments inside its domain and, from first principles, the exact result.
WORKED: list[tuple[Callable[..., Any], dict[str, Any], Fraction]] = [
    # 2 FLOP for each of 70e9 parameters and 2,048 tokens, over 8 x 1,979e12 FLOP/s of which half is reached.
    (
        formulas.prefill_seconds,
        {"parameters": 70e9, "prompt_tokens": 2048, "flops_per_second": 8 * 1979e12, "mfu": 0.5},
        Fraction(2 * 70 * 10**9 * 2048 * 2, 8 * 1979 * 10**12),
    ),
    # 5,000 tokens are 3 chunks of up to 2,048: 3 x 1/32 s, and 1/64 s between them.
    (
        formulas.prefill_seconds_chunked,
        {"prompt_tokens": 5000, "chunk_tokens": 2048, "chunk_seconds": 1 / 32, "interleave_seconds": 1 / 64},
        Fraction(7, 64),
    ),
    (
        formulas.ttft_seconds,
        {"queue_seconds": 0.5, "prefill_seconds": 0.25, "scheduling_seconds": 0.125},
        Fraction(7, 8),
    ),
    # A key and a value of 128 numbers of 2 bytes in each of 8 heads of 80 layers.
    (
        formulas.kv_bytes_per_token,
        {"layers": 80, "kv_heads": 8, "head_dim": 128, "dtype_bytes": 2},
        Fraction(2 * 80 * 8 * 128 * 2),
    ),
    (
        formulas.kv_step_bytes,
        {"active_requests": 64, "bytes_per_token": 327680, "mean_cached_tokens": 1000},
        Fraction(64 * 327680 * 1000),
    ),
    # 70e9 bytes of weights and the cache above at 26.8e12 B/s, 1/512 s of communication, 1/1024 s of scheduling.
    (
        formulas.tpot_seconds,
        {
            "weight_bytes": 70e9,
            "kv_bytes": 64 * 327680 * 1000,
            "bytes_per_second": 26.8e12,
            "communication_seconds": 1 / 512,
            "scheduling_seconds": 1 / 1024,
        },
        Fraction(70 * 10**9 + 64 * 327680 * 1000, 268 * 10**11) + Fraction(3, 1024),
    ),
    (formulas.token_throughput, {"tokens": 300, "seconds": 1.5}, Fraction(200)),
    (formulas.token_throughput_estimate, {"active_requests": 64, "tpot_seconds": 1 / 128}, Fraction(8192)),
    (formulas.request_throughput, {"succeeded": 9, "seconds": 2.25}, Fraction(4)),
    (formulas.goodput, {"good": 7, "seconds": 3.5}, Fraction(2)),
    (
        formulas.batch_max,
        {"kv_budget_bytes": 474e9, "bytes_per_token": 327680, "mean_cached_tokens": 4000},
        Fraction(474 * 10**9, 327680 * 4000),
    ),
    (formulas.little_concurrency, {"requests_per_second": 12, "mean_e2e_seconds": 2.5}, Fraction(30)),
    (formulas.arithmetic_intensity, {"flops": 140e9, "bytes_moved": 70e9}, Fraction(2)),
    # 64 requests of 70B: 64 x 140e9 FLOP take 0.57 ms, to read 70e9 bytes 2.61 ms.
    (
        formulas.roofline_seconds,
        {
            "flops": 64 * 140e9,
            "peak_flops_per_second": 8 * 1979e12,
            "bytes_moved": 70e9,
            "bytes_per_second": 26.8e12,
        },
        Fraction(70, 26800),
    ),
    (formulas.gpu_utilization, {"active_seconds": 45, "total_seconds": 60}, Fraction(3, 4)),
    (formulas.kv_utilization, {"used_blocks": 5000, "total_blocks": 8000}, Fraction(5, 8)),
    (formulas.batch_utilization, {"mean_running": 96, "batch_max": 128}, Fraction(3, 4)),
    (formulas.hit_rate, {"hit": 1536, "looked_up": 2048}, Fraction(3, 4)),
    (formulas.refill_rate, {"refilled": 3, "evicted": 2}, Fraction(3, 2)),
    (formulas.attainment, {"good": 99, "judged": 100}, Fraction(99, 100)),
    (
        formulas.availability,
        {"error": 1, "timeout": 2, "oom": 3, "reject": 4, "lost": 6, "judged": 64},
        Fraction(3, 4),
    ),
    (formulas.degraded_rate, {"degraded": 1, "ended": 8}, Fraction(1, 8)),
    (formulas.oom_rate, {"oom": 1, "ended": 4}, Fraction(1, 4)),
    (formulas.preemption_rate, {"preempted": 1, "ended": 2}, Fraction(1, 2)),
    (formulas.fluidity_index, {"met": 3, "deadlines": 4}, Fraction(3, 4)),
    (formulas.burn_rate, {"bad": 1, "judged": 8, "objective": 0.75}, Fraction(1, 2)),
    (formulas.budget_left, {"bad": 3, "judged": 8, "objective": 0.75}, Fraction(-1, 2)),
    # 8 GPUs for an hour at 2.50 an hour are 20, for 36 million tokens.
    (
        formulas.cost_per_1k_tokens,
        {"gpu_seconds": 28800, "price_per_gpu_second": 2.5 / 3600, "tokens": 36_000_000},
        Fraction(20, 36_000),
    ),
]
NAMES = [formula.__name__ for formula, _, _ in WORKED]
EACH = pytest.mark.parametrize(("formula", "given", "exact"), WORKED, ids=NAMES)
ARGUMENTS = [(formula, given, name) for formula, given, _ in WORKED for name in given]
EACH_ARGUMENT = pytest.mark.parametrize(
    ("formula", "given", "name"), ARGUMENTS, ids=[f"{formula.__name__}-{name}" for formula, _, name in ARGUMENTS]
)


def test_every_formula_over_arrays_is_worked_out() -> None:
    checked = {name for name in formulas.__all__ if hasattr(getattr(formulas, name), "__wrapped__")}
    assert checked == set(NAMES)


@EACH
def test_values_worked_out_by_hand(formula: Callable[..., Any], given: dict[str, Any], exact: Fraction) -> None:
    for result in (formula(*given.values()), formula(**given)):
        assert type(result) is float
        assert result == pytest.approx(float(exact), rel=1e-15)


@EACH
def test_arrays_broadcast_and_agree_with_numbers(
    formula: Callable[..., Any], given: dict[str, Any], exact: Fraction
) -> None:
    rng = random.Random(formula.__name__)
    names = list(given)
    rows, columns = 3, 4
    arrays: dict[str, Any] = {}
    for place, (name, value) in enumerate(given.items()):
        # Less of what is divided and more of what is not, so that a part stays one.
        last = place == len(names) - 1 and name not in ("objective", "mfu")
        grown = [value * (1 + rng.random() if last else rng.uniform(0.5, 1)) for _ in range(rows * columns)]
        if name == "chunk_tokens":
            grown = [max(1.0, one) for one in grown]
        arrays[name] = np.array(grown).reshape(rows, columns)
    shaped = dict(arrays)
    first, second = names[0], names[1]
    shaped[first], shaped[second] = arrays[first][:, :1], arrays[second][:1, :]
    result = formula(**shaped)
    assert (result.shape, result.dtype) == ((rows, columns), np.float64)
    full = {name: np.broadcast_to(one, (rows, columns)) for name, one in shaped.items()}
    for row in range(rows):
        for column in range(columns):
            alone = formula(*(float(one[row, column]) for one in full.values()))
            assert result[row, column] == alone
    one_list = {**given, first: [given[first]]}
    assert formula(**one_list).tolist() == [formula(**given)]
    assert float(exact) == pytest.approx(formula(**one_list)[0])


@pytest.mark.parametrize("scalar", [np.float64, np.float32, np.int64, Fraction, int])
def test_scalars_of_any_kind_give_a_float(scalar: Any) -> None:
    result = formulas.roofline_seconds(scalar(8), scalar(2), scalar(9), scalar(3))
    assert (type(result), result) == (float, 4.0)
    without_a_dimension = np.array(2.0)
    assert formulas.ttft_seconds(without_a_dimension, 2.0).shape == ()
    assert formulas.hit_rate(without_a_dimension, 4).tolist() == 0.5
    assert math.isnan(formulas.availability(0, 0, 0, 0, 0, np.array(0)))


@EACH_ARGUMENT
def test_every_argument_has_a_domain(formula: Callable[..., Any], given: dict[str, Any], name: str) -> None:
    for value in (-1.0, -1, math.nan, math.inf, -math.inf, 10**400):
        with pytest.raises(ValueError, match=rf"^{name} must be .*, got {str(value)[:20]}"):
            formula(**{**given, name: value})
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got -2.0 at \[1, 0\]$"):
        formula(**{**given, name: np.array([[given[name]] * 2, [-2.0, -3.0]], float)})
    for value in ("1", True, [[1.0], "x"], 1j, object()):
        with pytest.raises((TypeError, ValueError)):
            formula(**{**given, name: value})
    if name != "seconds":
        with pytest.raises(TypeError, match=rf"^{name} must be a number or an array of numbers, got None"):
            formula(**{**given, name: None})


ABOVE_0 = [
    *((formulas.prefill_seconds, name) for name in ("parameters", "flops_per_second", "mfu")),
    *((formulas.kv_bytes_per_token, name) for name in ("layers", "kv_heads", "head_dim", "dtype_bytes")),
    (formulas.prefill_seconds_chunked, "chunk_tokens"),
    (formulas.kv_step_bytes, "bytes_per_token"),
    (formulas.tpot_seconds, "bytes_per_second"),
    *((formula, "seconds") for formula in (formulas.token_throughput, formulas.request_throughput, formulas.goodput)),
    (formulas.token_throughput_estimate, "tpot_seconds"),
    *((formulas.batch_max, name) for name in ("bytes_per_token", "mean_cached_tokens")),
    (formulas.arithmetic_intensity, "bytes_moved"),
    *((formulas.roofline_seconds, name) for name in ("peak_flops_per_second", "bytes_per_second")),
    *((formula, "objective") for formula in (formulas.burn_rate, formulas.budget_left)),
]


@EACH_ARGUMENT
def test_zero_is_in_the_domain_of_what_is_not_divided_by(
    formula: Callable[..., Any], given: dict[str, Any], name: str
) -> None:
    if (formula, name) in ABOVE_0:
        for zero in (0, 0.0, [0.0]):
            with pytest.raises(ValueError, match=f"^{name} must be"):
                formula(**{**given, name: zero})
    elif name in ("total_seconds", "total_blocks", "batch_max", "looked_up", "judged", "ended", "deadlines"):
        nothing = {**dict.fromkeys(given, 0), **({"objective": 0.5} if "objective" in given else {})}
        assert formula(**nothing) is None
        listed = formula(**{**nothing, name: [0, 1]})
        assert math.isnan(listed[0])
        assert listed[1] == formula(**{**nothing, name: 1})
        with pytest.raises(ValueError, match=r"must be at most .* \(0\), got"):
            formula(**{**given, name: 0})
    else:
        result = formula(**{**given, name: 0})
        assert result is None or math.isfinite(result)


def test_what_is_no_part_is_divided_all_the_same() -> None:
    assert formulas.refill_rate(3, 0) is None
    assert formulas.cost_per_1k_tokens(3.0, 1.0, 0) is None
    assert np.isnan(formulas.refill_rate([3, 3], [0, 3])).tolist() == [True, False]
    assert formulas.token_throughput(3, None) is None
    with pytest.raises(ValueError, match="tokens must be"):
        formulas.token_throughput(-3, None)


def test_a_part_is_no_more_than_the_whole() -> None:
    with pytest.raises(ValueError, match=r"^hit must be at most looked_up \(3\), got 4$"):
        formulas.hit_rate(4, 3)
    with pytest.raises(ValueError, match=r"^hit must be at most looked_up \(3\.0\), got 4\.0 at \[1\]$"):
        formulas.hit_rate([3, 4, 5], 3)
    with pytest.raises(ValueError, match=r"^error \+ timeout \+ oom \+ reject \+ lost must be at most judged \(4\)"):
        formulas.availability(1, 1, 1, 1, 1, 4)
    with pytest.raises(ValueError, match=r"at most 1, got 1\.5"):
        formulas.prefill_seconds(1, 1, 1, 1.5)
    with pytest.raises(ValueError, match="both excluded, got 1"):
        formulas.burn_rate(1, 2, 1)


def test_what_does_not_fit_together() -> None:
    with pytest.raises(ValueError, match=r"broadcast together, got the shapes flops \(2,\), bytes_moved \(3,\)"):
        formulas.arithmetic_intensity([1, 2], [1, 2, 3])
    for call in (
        lambda: formulas.roofline_seconds(1, 2, 3),  # type: ignore[call-overload]
        lambda: formulas.roofline_seconds(1, 2, 3, 4, 5),  # type: ignore[call-overload]
        lambda: formulas.roofline_seconds(1, 2, 3, width=4),  # type: ignore[call-overload]
        lambda: formulas.roofline_seconds(1, 2, 3, 4, flops=1),  # type: ignore[call-overload]
    ):
        with pytest.raises(TypeError):
            call()


def test_rows_of_different_lengths_are_told_by_the_argument() -> None:
    with pytest.raises(ValueError, match=r"^hit must be a number or an array of numbers, got \[\[1\], \[2, 3\]\]"):
        formulas.hit_rate([[1], [2, 3]], 4)  # type: ignore[call-overload]


def test_a_result_beyond_floats_is_refused() -> None:
    for value in (1e300, [1e300]):
        with pytest.raises(ValueError, match="prefill_seconds: the result is beyond what a float can hold"):
            formulas.prefill_seconds(value, 1e300, 1.0, 1.0)
        with pytest.raises(ValueError, match="arithmetic_intensity: the result is beyond"):
            formulas.arithmetic_intensity(value, 1e-300)
    with pytest.raises(ValueError, match="beyond"):
        formulas.arithmetic_intensity(10**300, 5e-324)
    with pytest.raises(ValueError, match="beyond"):
        formulas.prefill_seconds(1.0, 1.0, 5e-324, 0.1)


def test_counts_are_divided_as_integers() -> None:
    assert formulas.attainment(10**17, 10**17 + 1) == 10**17 / (10**17 + 1)
    assert formulas.hit_rate(2**70, 2**71) == 0.5


def test_empty_arrays_give_empty_arrays() -> None:
    assert formulas.goodput([], 3.0).shape == (0,)
    assert formulas.hit_rate(np.zeros((0, 2)), 1).shape == (0, 2)


# Identities


@pytest.mark.parametrize("seed", range(20))
def test_identities(seed: int) -> None:
    rng = random.Random(seed)
    parameters, tokens, peak, mfu = rng.uniform(1e9, 1e12), rng.randrange(1, 10**6), rng.uniform(1e12, 1e16), 0.4
    whole = formulas.prefill_seconds(parameters, tokens, peak, mfu)
    # A step that only computes takes what the roofline says of its FLOP at the peak that is reached.
    assert whole == pytest.approx(formulas.roofline_seconds(2 * parameters * tokens, peak * mfu, 0, 1.0))
    # One chunk for all of it, and nothing between: the same.
    assert formulas.prefill_seconds_chunked(tokens, tokens, whole, 0) == whole
    assert formulas.prefill_seconds_chunked(tokens, 1, 1.0, 0) == tokens
    # At the largest batch the cache that a step reads is all of the budget.
    per_token, cached, budget = rng.uniform(1e4, 1e6), rng.uniform(1, 1e5), rng.uniform(1e9, 1e12)
    batch = formulas.batch_max(budget, per_token, cached)
    assert formulas.kv_step_bytes(batch, per_token, cached) == pytest.approx(budget)
    # Requests of N tokens, each as long as N steps, keep the batch full: Little's law.
    tpot = formulas.tpot_seconds(parameters, budget, 1e13)
    n = rng.randrange(1, 1000)
    rate = formulas.token_throughput_estimate(batch, tpot) / n
    assert formulas.little_concurrency(rate, n * tpot) == pytest.approx(batch)
    # E2E = TTFT + (N - 1) TPOT, in whole ns.
    ttft_ns, tpot_ns = rng.randrange(10**9), rng.randrange(10**8)
    assert ttft_ns + (n - 1) * tpot_ns == formulas.ttft_seconds(ttft_ns, (n - 1) * tpot_ns)
    # Budget: what is burnt and what is left are the whole.
    bad, judged = rng.randrange(10), rng.randrange(10, 100)
    burnt, left = formulas.burn_rate(bad, judged, 0.9), formulas.budget_left(bad, judged, 0.9)
    assert burnt is not None
    assert left is not None
    assert burnt + left == pytest.approx(1)
