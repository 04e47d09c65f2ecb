"""The verdict of an SLO set on each request, and its part of what the run cost.

Integers decide, and as the core decides them: every comparison is strict and between whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenpulse.analysis.cost import Price, busy_metrics, shared_out
from tokenpulse.converting.rows import IN_FLIGHT, LENGTH, STOP, Rows
from tokenpulse.model import SLO, STATUSES
from tokenpulse.records import ABSENT, Bools, Ints

GOOD = "good"

_ABORT = STATUSES.index("abort")
_LIMITS = ("ttft", "tpot", "e2e", "itl")


def verdicts(rows: Rows, slo: SLO, itl: str) -> list[str | None]:
    """Of each request `good`, the limits it missed joined by `+`, `no_tokens`, or the status it failed with.

    None where the set has no verdict: an abort, a request that has not ended, or one without the set's labels.
    """
    over = _over(rows, slo, itl)
    texts = [_text(bits) for bits in range(1 << len(_LIMITS))]
    empty, succeeded = rows.tokens == 0, np.isin(rows.status, (STOP, LENGTH))
    judged = (rows.status != _ABORT) & (rows.status != IN_FLIGHT) & _bears(rows, slo)
    found: list[str | None] = []
    for status, ok, none, missed, is_judged in zip(
        rows.status.tolist(), succeeded.tolist(), empty.tolist(), over.tolist(), judged.tolist(), strict=True
    ):
        if not is_judged:
            found.append(None)
        elif not ok:
            found.append(STATUSES[status])
        else:
            found.append("no_tokens" if none else texts[missed])
    return found


def _text(bits: int) -> str:
    """The limits that a number stands for, a bit each.

    >>> _text(0), _text(0b0011)
    ('good', 'ttft+tpot')
    """
    return "+".join(name for bit, name in enumerate(_LIMITS) if bits >> bit & 1) or GOOD


def _over(rows: Rows, slo: SLO, itl: str) -> Ints:
    """The limits that each request missed, a bit each. A figure that should be there and is not misses its limit."""
    several = rows.tokens >= 2
    timed = rows.emissions > 0
    known_times = timed & ~rows.uneven
    ttft, e2e = _since(rows.first, rows.arrive_ns), _since(rows.last, rows.arrive_ns)
    between = _since(rows.last, rows.first)
    tpot = np.where(several & (between != ABSENT), between // np.maximum(rows.tokens - 1, 1), ABSENT)
    gap = largest_gaps(rows, itl)
    missed = np.zeros(len(rows), np.int64)
    every = np.ones(len(rows), np.bool_)
    for bit, (limit, figure, due) in enumerate(
        (
            (slo.ttft_ns, ttft, every),
            (slo.tpot_ns, tpot, several),
            (slo.e2e_ns, e2e, every),
            (slo.itl_ns, gap, several & ~known_times),
        )
    ):
        if limit is not None:
            missed |= np.where(np.where(figure == ABSENT, due, figure >= limit), 1 << bit, 0)
    return missed


def _since(time: Ints, base: Ints) -> Ints:
    known = (time != ABSENT) & (base != ABSENT)
    return np.where(known, np.where(known, time, 0) - np.where(known, base, 0), ABSENT)


def largest_gaps(rows: Rows, itl: str) -> Ints:
    """ns: the largest inter-token latency of each request under a rule; `ABSENT` where it has none."""
    found = np.full(len(rows), ABSENT, np.int64)
    some = rows.emissions > 1
    if not some.any():
        return found
    gaps = np.zeros(len(rows.token_ns), np.int64)
    gaps[1:] = np.diff(rows.token_ns)
    if itl == "token":
        # Where N is given beside emissions, each counts as one token.
        gaps //= np.where(np.repeat(rows.uneven, rows.emissions), 1, rows.counts)
    gaps[rows.token_offsets[:-1][rows.emissions > 0]] = -1  # the first emission has no gap before it
    timed = np.flatnonzero(rows.emissions > 0)
    largest = np.maximum.reduceat(gaps, rows.token_offsets[:-1][timed])
    found[timed] = np.where(some[timed], largest, ABSENT)
    return found


def _bears(rows: Rows, slo: SLO) -> Bools:
    """Whether each request has the labels of a set."""
    bears = np.ones(len(rows), np.bool_)
    for name, wanted in slo.where.items():
        codes, texts = rows.labels.get(name, (np.full(len(rows), -1, np.int32), []))
        bears &= codes == (texts.index(wanted) if wanted in texts else -2)
    return bears


# Cost


def weights(rows: Rows, by: str, metrics: Sequence[str]) -> Ints:
    """What the cost of a run is in proportion to, by request: tokens, or nanoseconds of these metrics."""
    if by == "output":
        return rows.tokens
    if by == "total":
        return rows.tokens + rows.prompt_tokens
    observed = _observed(rows)
    return np.asarray(sum(observed[name] for name in metrics), np.int64)


def _observed(rows: Rows) -> dict[str, Ints]:
    """ns: of each request what a report observes of it and adds up, 0 where that is nothing."""
    scheduled, emitted = rows.schedule_ns != ABSENT, rows.first != ABSENT
    prepared = scheduled & (rows.prefill_ns != ABSENT)
    # A prefill that is told only after the first token is none of it.
    from_prefill = prepared & (rows.prefill_ns <= rows.first)
    begin = np.where(from_prefill, rows.prefill_ns, rows.schedule_ns)
    successes = np.isin(rows.status, (STOP, LENGTH)) & (rows.last != ABSENT)

    def where(known: Bools, end: Ints, start: Ints) -> Ints:
        return np.where(known, np.where(known, end, 0) - np.where(known, start, 0), 0)

    return {
        "ttft": where(emitted, rows.first, rows.arrive_ns),
        "scheduling": where(prepared, rows.prefill_ns, rows.schedule_ns),
        "prefill": where(scheduled & emitted, rows.first, begin),
        "itl": where(rows.emissions > 1, rows.last, rows.first),
        "e2e": where(successes, rows.last, rows.arrive_ns),
    }


def busy_metrics_of(parts: Sequence[Rows]) -> tuple[str, ...]:
    """The metrics that busy time is made of, as in a report on the same requests."""
    counts = {
        "prefill": sum(int(((one.schedule_ns != ABSENT) & (one.first != ABSENT)).sum()) for one in parts),
        "itl": sum(int((one.emissions > 1).sum()) for one in parts),
    }
    return busy_metrics(counts, untimed=not counts["itl"] and any(_has_tpot(one) for one in parts))


def _has_tpot(rows: Rows) -> bool:
    """Whether any success has a TPOT above 0."""
    known = np.isin(rows.status, (STOP, LENGTH)) & (rows.first != ABSENT) & (rows.last != ABSENT) & (rows.tokens > 1)
    return bool((rows.last[known] - rows.first[known] >= rows.tokens[known] - 1).any())


def span_seconds(parts: Sequence[Rows]) -> float | None:
    """First arrival to last token over all inputs; None where nothing lies between."""
    first = min((int(rows.arrive_ns.min()) for rows in parts if len(rows)), default=None)
    last = max((int(rows.last.max()) for rows in parts if len(rows)), default=ABSENT)
    return None if first is None or last <= first else (last - first) / 1e9


def costs(price: Price, parts: Sequence[Rows]) -> tuple[float, list[NDArray[np.float64]]] | None:
    """The cost of the whole run, and that of each request of each input, which add up to it exactly.

    None where there is no time, or nothing to share by.
    """
    seconds = span_seconds(parts)
    if seconds is None:
        return None
    metrics = busy_metrics_of(parts)
    each = [weights(rows, price.by, metrics) for rows in parts]
    whole = price.of_seconds(seconds)
    shares = shared_out(whole, np.concatenate(each))
    return None if shares is None else (whole, np.split(shares, np.cumsum([len(one) for one in each])[:-1]))
