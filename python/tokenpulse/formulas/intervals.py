"""Between which ends a rate lies: for what was forgotten, and for what a sample leaves open."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tokenpulse.formulas.rates import ratio

Interval = tuple[float | None, float | None]
"""A low and a high end; both None where there is nothing to divide by."""

CONFIDENCE_95 = 1.96
"""Standard errors on either side that hold a normal value in 95 of 100 cases."""


def refill_rate_ends(refilled: int, evicted: int, forgotten: int = 0) -> Interval:
    """The share of evicted blocks that had to be computed again, as the two ends between which it lies: the refilled
    over the evicted, and with them those that the tracker forgot before it could know.

    Over a whole run neither exceeds 1; in a window both may, since blocks may return that were evicted before it.
    Raises ValueError for a negative count.

    >>> refill_rate_ends(2, 8, 1), refill_rate_ends(0, 0)
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
