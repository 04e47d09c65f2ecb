"""Rates and shares as pure functions of counts; times are in seconds.

Each gives None where its denominator is unknown or 0: absent is not 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

UNAVAILABLE = ("error", "timeout", "oom", "reject", "lost")
"""The endings that count against availability."""

Interval = tuple[float | None, float | None]
"""A low and a high end; both None where there is nothing to divide by."""

CONFIDENCE_95 = 1.96
"""Standard errors on either side that hold a normal value in 95 of 100 cases."""


def _per_second(amount: int, seconds: float | None, name: str) -> float | None:
    if amount < 0:
        raise ValueError(f"{name} must be 0 or more, got {amount}")
    if seconds is None:
        return None
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, got {seconds}")
    return amount / seconds


def _share(part: int, whole: int, name: str) -> float | None:
    if not 0 <= part <= whole:
        raise ValueError(f"{name} must be between 0 and {whole}, got {part}")
    return part / whole if whole else None


def token_throughput(tokens: int, seconds: float | None) -> float | None:
    """Tokens per second. Raises ValueError for a negative count or a time that is not positive.

    >>> token_throughput(300, 1.5)
    200.0
    """
    return _per_second(tokens, seconds, "tokens")


def request_throughput(succeeded: int, seconds: float | None) -> float | None:
    """Requests that ended successfully per second. Raises ValueError as `token_throughput` does.

    >>> request_throughput(3, None) is None
    True
    """
    return _per_second(succeeded, seconds, "succeeded")


def goodput(good: int, seconds: float | None) -> float | None:
    """Good requests per second: those that ended successfully within every limit of an SLO set. Raises ValueError
    as `token_throughput` does.

    >>> goodput(9, 3.0)
    3.0
    """
    return _per_second(good, seconds, "good")


def attainment(good: int, judged: int) -> float | None:
    """The share of judged requests that were good, 0 to 1. Raises ValueError unless 0 <= good <= judged.

    >>> attainment(99, 100)
    0.99
    """
    return _share(good, judged, "good")


def availability(by_status: Mapping[str, int]) -> float | None:
    """1 minus the share of errors, timeouts, oom, rejects and lost among the ended that the client did not abort.

    >>> availability({"stop": 3, "error": 1, "abort": 5})
    0.75
    """
    judged = sum(by_status.values()) - by_status.get("abort", 0)
    unavailable = _share(sum(by_status.get(status, 0) for status in UNAVAILABLE), judged, "unavailable")
    return None if unavailable is None else 1 - unavailable


def degraded_rate(degraded: int, ended: int) -> float | None:
    """The share of ended requests that a fallback path served. Raises ValueError unless 0 <= degraded <= ended.

    >>> degraded_rate(0, 0) is None
    True
    """
    return _share(degraded, ended, "degraded")


def fluidity_index(met: int, deadlines: int) -> float | None:
    """Token deadlines met / all token deadlines, 0 to 1. Raises ValueError unless 0 <= met <= deadlines.

    >>> fluidity_index(3, 4)
    0.75
    """
    return _share(met, deadlines, "met")


def oom_rate(oom: int, ended: int) -> float | None:
    """The share of ended requests that ran out of memory. Raises ValueError unless 0 <= oom <= ended.

    >>> oom_rate(1, 4)
    0.25
    """
    return _share(oom, ended, "oom")


def preemption_rate(preempted: int, ended: int) -> float | None:
    """The share of ended requests that were preempted at least once. Raises ValueError unless 0 <= preempted <= ended.

    >>> preemption_rate(1, 2)
    0.5
    """
    return _share(preempted, ended, "preempted")


def ratio(part: float, whole: float) -> float | None:
    """One amount over another of which it need not be a part: events per request, hits per look-up, bytes per second.

    None where the other is 0. Raises ValueError for a negative amount.

    >>> ratio(3, 2), ratio(3, 0)
    (1.5, None)
    """
    if part < 0 or whole < 0:
        raise ValueError(f"amounts must be 0 or more, got {part} and {whole}")
    return part / whole if whole else None


def burn_rate(bad: int, judged: int, objective: float) -> float | None:
    """How many times faster than allowed the error budget is spent: the bad share over 1 - objective.

    1 spends it exactly; None where nothing was judged. Raises ValueError unless 0 <= bad <= judged and
    0 < objective < 1.

    >>> burn_rate(1, 8, 0.75), burn_rate(0, 0, 0.75)
    (0.5, None)
    """
    if not 0 < objective < 1:
        raise ValueError(f"objective must be between 0 and 1, both excluded, got {objective}")
    share = _share(bad, judged, "bad")
    return None if share is None else share / (1 - objective)


def budget_left(bad: int, judged: int, objective: float) -> float | None:
    """The share of the error budget that is left: 1 at the start, 0 when spent, negative when overspent.

    None and ValueError as for `burn_rate`.

    >>> budget_left(1, 8, 0.75)
    0.5
    """
    rate = burn_rate(bad, judged, objective)
    return None if rate is None else 1 - rate


def refill_rate(evicted: int, refilled: int, forgotten: int = 0) -> Interval:
    """The share of evicted blocks that had to be computed again, as the two ends between which it lies: the refilled
    over the evicted, and with them those that the tracker forgot before it could know.

    Over a whole run neither exceeds 1; in a window both may, since blocks may return that were evicted before it.
    Raises ValueError for a negative count.

    >>> refill_rate(8, 2, 1), refill_rate(0, 0)
    ((0.25, 0.375), (None, None))
    """
    return ratio(refilled, evicted), ratio(refilled + forgotten, evicted)


def jackknife_error(parts: Sequence[int], wholes: Sequence[int], sampled: float) -> float | None:
    """The standard error of sum(parts) / sum(wholes), each group's part and whole left out in turn.

    `sampled` is the share of all that is in the groups, above 0 and at most 1: of everything there is no error left.
    None where the ratio, or one without a group, has nothing to divide by. Raises ValueError unless there are as many
    parts as wholes, two at least.

    >>> jackknife_error([1, 3], [4, 4], sampled=0.75), jackknife_error([1, 3], [4, 4], sampled=1.0)
    (0.125, 0.0)
    """
    groups = len(wholes)
    if len(parts) != groups or groups < 2:
        raise ValueError(f"there must be two groups or more, each with a part and a whole, got {len(parts)}, {groups}")
    if not 0 < sampled <= 1:
        raise ValueError(f"sampled must be above 0 and at most 1, got {sampled}")
    part, whole = sum(parts), sum(wholes)
    if any(whole == left_out for left_out in wholes):
        return None
    without = [(part - p) / (whole - w) for p, w in zip(parts, wholes, strict=True)]
    mean = sum(without) / groups
    return math.sqrt((groups - 1) / groups * sum((one - mean) ** 2 for one in without) * (1 - sampled))


def ratio_interval(
    low: Sequence[int], high: Sequence[int], wholes: Sequence[int], sampled: float, most: float | None = None
) -> Interval:
    """The interval of 95 % around a rate that lies between two ends, each the ratio of its groups' parts to the wholes.

    Each end has the larger of two errors: that of the jackknife, which knows of groups but says 0 where no part was
    seen; and that of a share with two successes and two failures more than were seen (Agresti and Coull, 1998), which
    is never 0 in a sample. Both are less by the share that was sampled. The interval reaches from the lower end to the
    higher, or from those shares where they lie further out, and 1.96 errors beyond; not below 0, nor above `most`.
    None at both ends where the wholes are 0. ValueError as `jackknife_error`.

    >>> ratio_interval([1, 3], [2, 4], [4, 4], sampled=1.0, most=1.0), ratio_interval([0, 0], [0, 0], [0, 0], 0.5)
    ((0.5, 0.75), (None, None))
    >>> [round(end, 3) for end in ratio_interval([0, 0], [0, 0], [2, 2], sampled=0.01, most=1.0)]
    [0.0, 0.548]
    """
    below, above = jackknife_error(low, wholes, sampled), jackknife_error(high, wholes, sampled)
    whole = sum(wholes)
    if not whole:
        return None, None
    left = 1 - sampled
    shrunk = whole + 4 * left

    def end(part: int, grouped: float | None) -> tuple[float, float]:
        """A share with successes and failures added, and the error to be reckoned with."""
        share = (part + 2 * left) / shrunk
        # In a window a share may exceed 1, where it has no such error.
        return share, max(grouped or 0.0, math.sqrt(max(0.0, share * (1 - share)) * left / shrunk))

    (low_share, low_error), (high_share, high_error) = end(sum(low), below), end(sum(high), above)
    first = max(0.0, min(sum(low) / whole, low_share) - CONFIDENCE_95 * low_error)
    last = max(sum(high) / whole, high_share) + CONFIDENCE_95 * high_error
    return first, last if most is None else min(most, last)
