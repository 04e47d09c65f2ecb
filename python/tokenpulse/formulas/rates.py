"""Rates and shares of counts; times are in seconds.

A number is None where its denominator is unknown or 0, an element of an array NaN: absent is not 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

from numpy.typing import ArrayLike

from tokenpulse.formulas.domain import (
    ABOVE_0,
    AT_LEAST_0,
    OBJECTIVE,
    Array,
    Number,
    formula,
    quotient,
    share,
)

UNAVAILABLE = ("error", "timeout", "oom", "reject", "lost")
"""The endings that count against availability."""

PERIOD = ABOVE_0._replace(optional=True)
"""The seconds that a rate divides by; None where they are not known."""

# Rates


@overload
def token_throughput(tokens: Number, seconds: Number | None) -> float | None: ...
@overload
def token_throughput(tokens: ArrayLike, seconds: ArrayLike) -> Array: ...
@formula(tokens=AT_LEAST_0, seconds=PERIOD)
def token_throughput(tokens: Any, seconds: Any) -> Any:
    """Tokens per second: sum(N_out) / time, of all requests together.

    `tokens`: their sum, 0 or more. `seconds`: above 0, or None where the time is not known.

    >>> token_throughput(300, 1.5)
    200.0
    """
    return tokens / seconds


@overload
def token_throughput_estimate(active_requests: Number, tpot_seconds: Number) -> float: ...
@overload
def token_throughput_estimate(active_requests: ArrayLike, tpot_seconds: ArrayLike) -> Array: ...
@formula(active_requests=AT_LEAST_0, tpot_seconds=ABOVE_0)
def token_throughput_estimate(active_requests: Any, tpot_seconds: Any) -> Any:
    """Tokens per second that a batch makes: B_active / TPOT, a token for each request in each step.

    `active_requests` B_active: those that decode, 0 or more. `tpot_seconds` TPOT: a step's time, above 0.

    >>> token_throughput_estimate(64, 0.0064)
    10000.0
    """
    return active_requests / tpot_seconds


@overload
def request_throughput(succeeded: Number, seconds: Number | None) -> float | None: ...
@overload
def request_throughput(succeeded: ArrayLike, seconds: ArrayLike) -> Array: ...
@formula(succeeded=AT_LEAST_0, seconds=PERIOD)
def request_throughput(succeeded: Any, seconds: Any) -> Any:
    """Requests that ended successfully per second. Domains as for `token_throughput`.

    >>> request_throughput(3, None) is None
    True
    """
    return succeeded / seconds


@overload
def goodput(good: Number, seconds: Number | None) -> float | None: ...
@overload
def goodput(good: ArrayLike, seconds: ArrayLike) -> Array: ...
@formula(good=AT_LEAST_0, seconds=PERIOD)
def goodput(good: Any, seconds: Any) -> Any:
    """Good requests per second: good / time, those that ended successfully within every limit of an SLO set.

    Domains as for `token_throughput`.

    >>> goodput(9, 3.0)
    3.0
    """
    return good / seconds


@overload
def little_concurrency(requests_per_second: Number, mean_e2e_seconds: Number) -> float: ...
@overload
def little_concurrency(requests_per_second: ArrayLike, mean_e2e_seconds: ArrayLike) -> Array: ...
@formula(requests_per_second=AT_LEAST_0, mean_e2e_seconds=AT_LEAST_0)
def little_concurrency(requests_per_second: Any, mean_e2e_seconds: Any) -> Any:
    """Requests in the system on average: throughput_req · mean E2E (Little, 1961), whatever the distributions.

    `requests_per_second` X: 0 or more, in a steady state those that arrive as well as those that end.
    `mean_e2e_seconds` W: the mean time in the system, 0 or more.

    12 requests a second that take 5 s each keep a batch of 60 busy:

    >>> little_concurrency(12, 5.0)
    60.0
    """
    return requests_per_second * mean_e2e_seconds


# Shares of a machine


@overload
def gpu_utilization(active_seconds: Number, total_seconds: Number) -> float | None: ...
@overload
def gpu_utilization(active_seconds: ArrayLike, total_seconds: ArrayLike) -> Array: ...
@formula(active_seconds=AT_LEAST_0, total_seconds=AT_LEAST_0)
def gpu_utilization(active_seconds: Any, total_seconds: Any) -> Any:
    """The share of the time in which a GPU computes: T_active / T_total. Of several GPUs, both are GPU-seconds.

    `active_seconds` is 0 or more and at most `total_seconds`.

    >>> gpu_utilization(45, 60), gpu_utilization([45, 0], [60, 0]).tolist()
    (0.75, [0.75, nan])
    """
    return share(active_seconds, total_seconds, "active_seconds", "total_seconds")


@overload
def kv_utilization(used_blocks: Number, total_blocks: Number) -> float | None: ...
@overload
def kv_utilization(used_blocks: ArrayLike, total_blocks: ArrayLike) -> Array: ...
@formula(used_blocks=AT_LEAST_0, total_blocks=AT_LEAST_0)
def kv_utilization(used_blocks: Any, total_blocks: Any) -> Any:
    """The share of the KV cache's blocks that are in use: used / total; 0 <= used <= total.

    >>> kv_utilization(5_000, 8_000)
    0.625
    """
    return share(used_blocks, total_blocks, "used_blocks", "total_blocks")


@overload
def batch_utilization(mean_running: Number, batch_max: Number) -> float | None: ...
@overload
def batch_utilization(mean_running: ArrayLike, batch_max: ArrayLike) -> Array: ...
@formula(mean_running=AT_LEAST_0, batch_max=AT_LEAST_0)
def batch_utilization(mean_running: Any, batch_max: Any) -> Any:
    """Mean running requests, weighted by time, over the largest batch B_max; 0 <= mean_running <= batch_max.

    >>> batch_utilization(96, 128)
    0.75
    """
    return share(mean_running, batch_max, "mean_running", "batch_max")


@overload
def hit_rate(hit: Number, looked_up: Number) -> float | None: ...
@overload
def hit_rate(hit: ArrayLike, looked_up: ArrayLike) -> Array: ...
@formula(hit=AT_LEAST_0, looked_up=AT_LEAST_0)
def hit_rate(hit: Any, looked_up: Any) -> Any:
    """The share of what was looked up in a cache that was there, such as prompt tokens: hit / looked up; 0 <= hit <=
    looked_up.

    >>> hit_rate(1_536, 2_048)
    0.75
    """
    return share(hit, looked_up, "hit", "looked_up")


@overload
def refill_rate(refilled: Number, evicted: Number) -> float | None: ...
@overload
def refill_rate(refilled: ArrayLike, evicted: ArrayLike) -> Array: ...
@formula(refilled=AT_LEAST_0, evicted=AT_LEAST_0)
def refill_rate(refilled: Any, evicted: Any) -> Any:
    """Evicted blocks that had to be computed again, over all that were evicted: refilled / evicted.

    Both 0 or more; in a window it may exceed 1, since blocks may return that were evicted before it. Where some evicted
    blocks were forgotten before they could return, `refill_rate_ends` has both ends between which it lies.

    >>> refill_rate(2, 8)
    0.25
    """
    return quotient(refilled, evicted)


# Shares of requests


@overload
def attainment(good: Number, judged: Number) -> float | None: ...
@overload
def attainment(good: ArrayLike, judged: ArrayLike) -> Array: ...
@formula(good=AT_LEAST_0, judged=AT_LEAST_0)
def attainment(good: Any, judged: Any) -> Any:
    """The share of judged requests that were good; 0 <= good <= judged.

    >>> attainment(99, 100)
    0.99
    """
    return share(good, judged, "good", "judged")


@overload
def availability(
    error: Number, timeout: Number, oom: Number, reject: Number, lost: Number, judged: Number
) -> float | None: ...
@overload
def availability(
    error: ArrayLike, timeout: ArrayLike, oom: ArrayLike, reject: ArrayLike, lost: ArrayLike, judged: ArrayLike
) -> Array: ...
@formula(error=AT_LEAST_0, timeout=AT_LEAST_0, oom=AT_LEAST_0, reject=AT_LEAST_0, lost=AT_LEAST_0, judged=AT_LEAST_0)
def availability(error: Any, timeout: Any, oom: Any, reject: Any, lost: Any, judged: Any) -> Any:
    """1 - (error + timeout + oom + reject + lost) / judged: the share of judged requests that the server did not fail.

    `judged`: ended, aborts of the client left out. Each 0 or more, and the five together at most `judged`.

    >>> availability(error=1, timeout=1, oom=0, reject=2, lost=0, judged=1000)
    0.996
    """
    failed = share(error + timeout + oom + reject + lost, judged, "error + timeout + oom + reject + lost", "judged")
    return None if failed is None else 1 - failed


def availability_of(by_status: Mapping[str, int]) -> float | None:
    """`availability` of requests counted by the status with which they ended.

    >>> availability_of({"stop": 3, "error": 1, "abort": 5})
    0.75
    """
    error_rate = error_rate_of(by_status)
    return None if error_rate is None else 1 - error_rate


def error_rate_of(by_status: Mapping[str, int]) -> float | None:
    """1 - availability: (error + timeout + oom + reject + lost) / judged.

    >>> error_rate_of({"stop": 3, "error": 1, "abort": 5}), error_rate_of({"abort": 5})
    (0.25, None)
    """
    return attainment(unavailable_of(by_status), judged_of(by_status))


def unavailable_of(by_status: Mapping[str, int]) -> int:
    """Requests that count against availability: `error`, `timeout`, `oom`, `reject` and `lost`."""
    return sum(by_status.get(status, 0) for status in UNAVAILABLE)


def judged_of(by_status: Mapping[str, int]) -> int:
    """Requests that ended, aborts of the client left out."""
    return sum(by_status.values()) - by_status.get("abort", 0)


@overload
def degraded_rate(degraded: Number, ended: Number) -> float | None: ...
@overload
def degraded_rate(degraded: ArrayLike, ended: ArrayLike) -> Array: ...
@formula(degraded=AT_LEAST_0, ended=AT_LEAST_0)
def degraded_rate(degraded: Any, ended: Any) -> Any:
    """The share of ended requests that a fallback path served; 0 <= degraded <= ended.

    >>> degraded_rate(0, 0) is None
    True
    """
    return share(degraded, ended, "degraded", "ended")


@overload
def oom_rate(oom: Number, ended: Number) -> float | None: ...
@overload
def oom_rate(oom: ArrayLike, ended: ArrayLike) -> Array: ...
@formula(oom=AT_LEAST_0, ended=AT_LEAST_0)
def oom_rate(oom: Any, ended: Any) -> Any:
    """The share of ended requests that ended for want of memory; 0 <= oom <= ended.

    >>> oom_rate(1, 4)
    0.25
    """
    return share(oom, ended, "oom", "ended")


@overload
def preemption_rate(preempted: Number, ended: Number) -> float | None: ...
@overload
def preemption_rate(preempted: ArrayLike, ended: ArrayLike) -> Array: ...
@formula(preempted=AT_LEAST_0, ended=AT_LEAST_0)
def preemption_rate(preempted: Any, ended: Any) -> Any:
    """The share of ended requests that were preempted at least once; 0 <= preempted <= ended.

    >>> preemption_rate(1, 2)
    0.5
    """
    return share(preempted, ended, "preempted", "ended")


@overload
def fluidity_index(met: Number, deadlines: Number) -> float | None: ...
@overload
def fluidity_index(met: ArrayLike, deadlines: ArrayLike) -> Array: ...
@formula(met=AT_LEAST_0, deadlines=AT_LEAST_0)
def fluidity_index(met: Any, deadlines: Any) -> Any:
    """Token deadlines met over all token deadlines; 0 <= met <= deadlines.

    >>> fluidity_index(3, 4)
    0.75
    """
    return share(met, deadlines, "met", "deadlines")


def ratio(part: float, whole: float) -> float | None:
    """One amount over another of which it need not be a part: events per request, hits per look-up, bytes per second.

    Of numbers only. ValueError for a negative amount.

    >>> ratio(3, 2), ratio(3, 0)
    (1.5, None)
    """
    if part < 0 or whole < 0:
        raise ValueError(f"amounts must be 0 or more, got {part} and {whole}")
    return part / whole if whole else None


# Error budgets


@overload
def burn_rate(bad: Number, judged: Number, objective: Number) -> float | None: ...
@overload
def burn_rate(bad: ArrayLike, judged: ArrayLike, objective: ArrayLike) -> Array: ...
@formula(bad=AT_LEAST_0, judged=AT_LEAST_0, objective=OBJECTIVE)
def burn_rate(bad: Any, judged: Any, objective: Any) -> Any:
    """How many times faster than allowed the error budget is spent: the bad share over 1 - objective.

    1 spends it exactly. 0 <= bad <= judged, 0 < objective < 1.

    >>> burn_rate(1, 8, 0.75), burn_rate(0, 0, 0.75)
    (0.5, None)
    """
    part = share(bad, judged, "bad", "judged")
    return None if part is None else part / (1 - objective)


@overload
def budget_left(bad: Number, judged: Number, objective: Number) -> float | None: ...
@overload
def budget_left(bad: ArrayLike, judged: ArrayLike, objective: ArrayLike) -> Array: ...
@formula(bad=AT_LEAST_0, judged=AT_LEAST_0, objective=OBJECTIVE)
def budget_left(bad: Any, judged: Any, objective: Any) -> Any:
    """The share of the error budget that is left: 1 at the start, 0 when spent, negative when overspent.

    Domains as for `burn_rate`.

    >>> budget_left(1, 8, 0.75)
    0.5
    """
    part = share(bad, judged, "bad", "judged")
    return None if part is None else 1 - part / (1 - objective)


# Cost


@overload
def cost_per_1k_tokens(gpu_seconds: Number, price_per_gpu_second: Number, tokens: Number) -> float | None: ...
@overload
def cost_per_1k_tokens(gpu_seconds: ArrayLike, price_per_gpu_second: ArrayLike, tokens: ArrayLike) -> Array: ...
@formula(gpu_seconds=AT_LEAST_0, price_per_gpu_second=AT_LEAST_0, tokens=AT_LEAST_0)
def cost_per_1k_tokens(gpu_seconds: Any, price_per_gpu_second: Any, tokens: Any) -> Any:
    """What 1,000 tokens cost: 1000 · GPU-seconds · price / tokens, in the currency of the price.

    `gpu_seconds`: wall time times GPUs, 0 or more. `price_per_gpu_second`: an hour's price over 3,600, 0 or more.
    `tokens`: output tokens, or all, of that time; 0 or more.

    An hour of 8 GPUs at $2.50 an hour each, and 10,000 output tokens a second:

    >>> round(cost_per_1k_tokens(8 * 3600, 2.50 / 3600, 10_000 * 3600), 6)
    0.000556
    """
    return quotient(1000 * gpu_seconds * price_per_gpu_second, tokens)
