"""What the core and the reference both speak: frozen settings, and the Protocols that both engines satisfy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

METRICS = ("ttft", "queue", "scheduling", "prefill", "tpot", "e2e", "itl", "preemption_stall")
"""The latency metrics, in the order in which reports list them."""

STATUSES = ("stop", "length", "abort", "error", "timeout", "oom", "reject", "lost")
"""How a request can end. `lost` is never given by a log: it is what a silent request ends with."""

SUCCEEDED = frozenset({"stop", "length"})
FAILED = frozenset({"error", "timeout", "oom"})

ITL_RULES = ("token", "chunk", "stamp")
"""What an emission of several tokens gives as inter-token latency."""

LENGTH_EDGES = (0, 128, 512, 2048, 8192, 32768, 131072)
"""Lower edges of the length bins, in tokens; each bin is `[lo, hi)`, the last open above."""

LENGTH_KEYS = ("prompt_length", "output_length")
"""The grouping keys that are length bins; every other key is a label."""

AVAILABILITY_OBJECTIVE = 0.999
"""The availability aimed at, where error budgets are concerned."""

MAX_LABEL_KEYS = 8
MAX_CLASSES = 256
MAX_TIMELINE_BINS = 10_000
TTL_NS = 3_600_000_000_000
"""A request silent for longer than this (one hour) is lost."""
DAY_NS = 86_400_000_000_000


def limit_ns(name: str, seconds: float) -> int:
    """A limit in seconds as whole nanoseconds.

    Raises ValueError unless it is a finite number of at least one nanosecond.

    >>> limit_ns("ttft", 0.2)
    200000000
    """
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        raise TypeError(f"slo {name} must be a number of seconds, got {seconds!r}")
    if not (0 < seconds < 1e10 and 1 <= round(seconds * 1e9) < 2**63):
        raise ValueError(f"slo {name} must be between 1e-9 and 9.2e9 seconds, got {seconds!r}")
    return round(seconds * 1e9)


@dataclass(frozen=True, slots=True)
class SLO:
    """One set of limits, in seconds: a request is good when it is under all of them.

    `e2e` and `itl` (the largest gap) are optional. `objective` is the attainment aimed at, between 0 and 1.
    `where` restricts the set to requests that bear all those labels.

    >>> SLO(ttft=0.2, tpot=0.03).tpot_ns
    30000000
    """

    name: str = "default"
    ttft: float = field(kw_only=True)
    tpot: float = field(kw_only=True)
    e2e: float | None = field(default=None, kw_only=True)
    itl: float | None = field(default=None, kw_only=True)
    objective: float = field(default=0.99, kw_only=True)
    where: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("ttft", "tpot", "e2e", "itl"):
            seconds = getattr(self, name)
            if seconds is not None:
                limit_ns(name, seconds)
            elif name in ("ttft", "tpot"):
                raise TypeError(f"slo {name} must be a number of seconds, got None")
        if not 0 < self.objective < 1:
            raise ValueError(f"slo objective must be between 0 and 1, both excluded, got {self.objective!r}")

    def limits(self) -> dict[str, Any]:
        """All but the name, as JSON has it: limits in seconds, None where there is none.

        >>> SLO(ttft=0.2, tpot=0.03).limits()["itl"] is None
        True
        """
        return {
            "ttft": self.ttft,
            "tpot": self.tpot,
            "e2e": self.e2e,
            "itl": self.itl,
            "objective": self.objective,
            "where": dict(self.where),
        }

    @property
    def ttft_ns(self) -> int:
        return limit_ns("ttft", self.ttft)

    @property
    def tpot_ns(self) -> int:
        return limit_ns("tpot", self.tpot)

    @property
    def e2e_ns(self) -> int | None:
        return None if self.e2e is None else limit_ns("e2e", self.e2e)

    @property
    def itl_ns(self) -> int | None:
        return None if self.itl is None else limit_ns("itl", self.itl)


class SketchLike(Protocol):
    """What a report asks of a sketch; `tokenpulse.Sketch` and the reference's satisfy it."""

    @property
    def count(self) -> int: ...
    @property
    def sum(self) -> float: ...
    @property
    def sum_ns(self) -> int: ...
    @property
    def mean(self) -> float: ...
    @property
    def min(self) -> float: ...
    @property
    def max(self) -> float: ...
    @property
    def relative_error(self) -> float: ...
    def quantile(self, q: float, /) -> float: ...
    def cdf(self, seconds: float, /) -> float: ...
    def merge(self, other: Any, /) -> None: ...
    def __add__(self, other: Any, /) -> Any: ...
    def to_bytes(self) -> bytes: ...


Reduction = dict[str, Any]
"""What reading logs comes to, before any ratio is formed: the same shape from the core and the reference."""
