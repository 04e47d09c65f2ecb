"""Rates and shares as pure functions of counts; times are in seconds.

Each gives None where its denominator is unknown or 0: absent is not 0.
"""

from __future__ import annotations

from collections.abc import Mapping

UNAVAILABLE = ("error", "timeout", "oom", "reject", "lost")
"""The endings that count against availability."""


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
