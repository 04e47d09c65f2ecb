"""Verdicts: whether a request kept its limits, and how smoothly its tokens came.

All comparisons are of whole nanoseconds and strict: a request at its limit has missed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tokenpulse.model import SLO
from tokenpulse.reference.request import Ended


@dataclass(frozen=True, slots=True)
class Verdict:
    """`missed` is None for a good request, else why it is not. `met` of `deadlines` is its fluidity, if it has one."""

    missed: str | None
    met: int = 0
    deadlines: int = 0

    @property
    def fluidity_ns(self) -> int | None:
        """The index in units of 1e-9, so that a sketch shows 1.0 as one second."""
        return self.met * 10**9 // self.deadlines if self.deadlines else None


def judge(slo: SLO, ended: Ended, labels: Mapping[str, str]) -> Verdict | None:
    """The verdict of one set of limits; None for a client's abort and for requests the set does not concern."""
    if ended.status == "abort" or any(labels.get(key) != value for key, value in slo.where.items()):
        return None
    if not ended.succeeded:
        return Verdict(missed=ended.status)
    if ended.output_tokens == 0:
        return Verdict(missed="no_tokens")
    met, deadlines = (0, 0) if ended.gaps is None else fluidity(ended.gaps, slo.ttft_ns, slo.tpot_ns)
    return Verdict("+".join(limits_missed(slo, ended)) or None, met, deadlines)


def limits_missed(slo: SLO, ended: Ended) -> Iterator[str]:
    """The limits a success missed. A metric that is unknown for want of a milestone misses its limit."""
    several = ended.output_tokens >= 2
    if over(ended.ttft_ns, slo.ttft_ns):
        yield "ttft"
    if several and over(ended.tpot_ns, slo.tpot_ns):
        yield "tpot"
    if slo.e2e_ns is not None and over(ended.e2e_ns, slo.e2e_ns):
        yield "e2e"
    # Tokens that came in one emission have no gap, and nothing to miss; unknown times are another matter.
    has_itl = "itl" in ended.missing or ended.max_itl_ns is not None
    if slo.itl_ns is not None and has_itl and over(ended.max_itl_ns, slo.itl_ns):
        yield "itl"


def over(value_ns: int | None, limit_ns: int) -> bool:
    return value_ns is None or value_ns >= limit_ns


def fluidity(gaps: Iterable[tuple[int, int]], ttft_ns: int, tpot_ns: int) -> tuple[int, int]:
    """Deadlines met and their total, over emissions given as (time since the token before, number of tokens).

    Time in hand carries over: a token that comes early gives its slack to the next.

    >>> fluidity([(100, 1), (10, 1), (35, 1)], ttft_ns=100, tpot_ns=10)
    (2, 5)
    """
    met = total = slack = 0
    deadline = ttft_ns
    for gap, k in gaps:
        if gap <= slack + deadline:
            slack += deadline - gap
            met += 1
            total += 1
        else:
            total += 1 + (gap - slack - deadline) // deadline
            slack = 0
        # The other tokens of the emission have no gap: each meets its deadline and leaves all of it as slack.
        deadline = tpot_ns
        met += k - 1
        total += k - 1
        slack += (k - 1) * deadline
    return met, total
