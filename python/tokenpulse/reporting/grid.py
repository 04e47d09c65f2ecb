"""Attainment under every pair of limits: the share of requests at or under a TTFT limit and a TPOT limit at once.

Read off a count in two dimensions, whose cells are the sketch's buckets at scale 3: limits lie 2^(1/8) apart (9 %), and
at these limits the shares are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpulse.model import Reduction

MOST_LIMITS = 24
"""Limits on either side: as many as a page can show. Where more buckets hold something, every second is a limit, or
every third."""

ZERO, OVERFLOW = -161, 96
"""The buckets at or below 2^-20 s and above 2^12 s."""

_MANTISSAS = (
    1.0,
    1.0905077326652577,
    1.189207115002721,
    1.2968395546510096,
    1.4142135623730951,
    1.5422108254079407,
    1.681792830507429,
    1.8340080864093424,
)
"""2^(j/8), correctly rounded."""


def upper_edge(index: int) -> float:
    """The upper edge of a bucket at scale 3 in seconds, correctly rounded.

    >>> upper_edge(-1), upper_edge(0), upper_edge(-161)
    (1.0, 1.0905077326652577, 9.5367431640625e-07)
    """
    exponent, part = divmod(index + 1, 8)
    return math.ldexp(_MANTISSAS[part], exponent)


def attainment_grid(reduction: Reduction) -> dict[str, Any] | None:
    """Limits in seconds, and for each pair the share of the judged requests that kept both; None without a request
    that succeeded with a first token.

    Judged are the ended without aborts, as for attainment. A request of one token has no TPOT and is judged by its
    TTFT alone; one whose TPOT is not known keeps no limit.
    """
    grid = reduction.get("grid")
    if not grid or not grid["cells"]:
        return None
    by_status: Mapping[str, int] = reduction["total"]["by_status"]
    judged = sum(by_status.values()) - by_status.get("abort", 0)
    cells: Sequence[tuple[int, int | None, int]] = grid["cells"]
    rows = _limits([ttft for ttft, _, _ in cells])
    columns = _limits([tpot for _, tpot, _ in cells if tpot is not None])
    within = within_limits(cells, rows, columns)
    return {
        "ttft_limits": [upper_edge(index) for index in rows],
        "tpot_limits": [upper_edge(index) for index in columns],
        "share": [[n / judged for n in row] for row in within.tolist()],
        "judged": judged,
    }


def within_limits(
    cells: Sequence[tuple[int, int | None, int]], rows: Sequence[int], columns: Sequence[int]
) -> NDArray[np.int64]:
    """How many of the counted requests keep both limits, for limits that are the upper edges of some buckets of TTFT
    (rows) and of TPOT (columns), each in ascending order.

    >>> within_limits([(-8, None, 1), (-4, -40, 2)], [-5, -4], [-41, -40]).tolist()
    [[1, 1], [1, 3]]
    """
    # Of each cell the first limits that hold it; one past the last where none does.
    first_row = np.searchsorted(rows, [ttft for ttft, _, _ in cells])
    first_column = np.searchsorted(columns, [columns[0] if tpot is None else tpot for _, tpot, _ in cells])
    counts = np.zeros((len(rows) + 1, len(columns) + 1), np.int64)
    np.add.at(counts, (first_row, first_column), [n for _, _, n in cells])
    found: NDArray[np.int64] = counts.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
    return found


def _limits(indices: Sequence[int]) -> list[int]:
    """Buckets whose upper edges are the limits: evenly apart, from the first that holds something to the last.

    Values of (almost) 0 lie under any limit: the range does not begin at them.
    """
    within = [index for index in indices if ZERO < index < OVERFLOW] or [OVERFLOW - 1]
    low, high = min(within), max(within)
    step = -(-(high - low + 1) // MOST_LIMITS)
    return list(range(high, low - 1, -step))[::-1]
