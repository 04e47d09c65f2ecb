"""`Choices`: what a tool decided where the same records allow several numbers, each decision by its name.

The fields are the questions, their types the answers that occur. A profile's arithmetic is driven by them where a
choice is one of a few (percentile method, divisor, comparison); where a tool does what no other does, its own file
says so.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from tokenpulse.profiles import percentile
from tokenpulse.records import Floats

Span = Literal["latency - ttft", "last - first", "last - start"]
Divisor = Literal["N - 1", "N", "N - k_first"]
Method = Literal["nearest_rank", "linear", "floor_index", "weighted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The choices of one tool.

    >>> from tokenpulse.profiles import PROFILES
    >>> PROFILES["vllm"].choices.percentile, PROFILES["llmperf"].choices.ddof
    ('linear', 1)
    """

    starts: str = "sending"
    """What TTFT and E2E count from."""
    first: str
    """What ends TTFT."""
    itl: str
    """What one observation of inter-token latency is."""
    tpot_span: Span | None
    """The time that TPOT divides; None where the tool has no TPOT."""
    tpot_divisor: Divisor | None
    """What TPOT divides it by."""
    counts: str
    """What N counts."""
    few_tokens: str
    """What a request of N <= 1 gives as TPOT."""
    percentile: Method
    ddof: Literal[0, 1] | None = 0
    """What the standard deviation subtracts from n; None where the tool has none."""
    empty: str
    """What stands where there is no value."""
    time: str
    """What rates divide by."""
    good: Literal["<", "<="] | None
    """How a value is held against its limit; None where the tool has no goodput."""
    good_of: str | None
    """What a share of good requests divides by, or what good requests are divided by."""
    failed: str = "left out of latencies and tokens"
    """What becomes of requests that did not succeed."""

    def to_dict(self) -> dict[str, str | int | None]:
        """The choices as JSON can hold them."""
        return asdict(self)

    def percentiles(self, values: Floats, q: list[float]) -> Floats:
        """Shares `q` of the values by this tool's method; all weights 1 where it weighs."""
        method = percentile.nearest_rank if self.percentile == "weighted" else getattr(percentile, self.percentile)
        found: Floats = method(values, q)
        return found
