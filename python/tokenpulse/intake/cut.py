"""Which part of a run is counted: from and to a time since the first arrival, or the steady span.

Neither is known before the inputs have been read once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tokenpulse.analysis import flow as where_time_went
from tokenpulse.analysis.steady import steady_span
from tokenpulse.grammar import since_ns
from tokenpulse.intake import told
from tokenpulse.intake.inputs import Intake, Settings


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The part that was asked for; false where it is the whole run."""

    from_ns: int | None = None
    """ns since the first arrival."""
    to_ns: int | None = None
    steady: bool = False

    @classmethod
    def of(cls, begin: str | float | None, end: str | float | None, steady: bool) -> Cut:
        """From text or seconds. Raises ValueError for what does not fit together.

        >>> Cut.of("10s", 70, False)
        Cut(from_ns=10000000000, to_ns=70000000000, steady=False)
        """
        from_ns, to_ns = (None if at is None else since_ns(at) for at in (begin, end))
        if steady and (from_ns is not None or to_ns is not None):
            raise ValueError("steady finds its own span: it must not be given together with from or to")
        if from_ns is not None and to_ns is not None and from_ns >= to_ns:
            raise ValueError(f"from must be before to, got {from_ns / 1e9:g} s and {to_ns / 1e9:g} s")
        return cls(from_ns=from_ns, to_ns=to_ns, steady=steady)

    def __bool__(self) -> bool:
        return self.steady or self.from_ns is not None or self.to_ns is not None

    @property
    def how(self) -> str:
        """How a report says it."""
        return "steady" if self.steady else "from/to"

    def found(self, intake: Intake, settings: Settings) -> tuple[int | None, int | None]:
        """The times on the log's clock from which and to which requests count; one reading of all inputs.

        Without a request there is nothing to cut. Raises ValueError where the inputs have no common clock, or no
        moment is steadier than another.
        """
        reduction = intake.reduce(replace(settings, slos=(), by=(), timeline_ns=None))
        first = reduction["first_arrival_ns"]
        lacking = told.absent(intake, reduction)
        why = lacking.get("flow") if self.steady else None if intake.workloads else lacking.get("span_seconds")
        if why is not None:
            raise ValueError(f"{self.how} needs the time of every request: {why}")
        if first is None:
            return None, None
        if not self.steady:
            begin, end = (None if at is None else first + at for at in (self.from_ns, self.to_ns))
            return begin, end
        curve = where_time_went.curve_of(reduction, told.rows(intake, reduction))
        span = steady_span(curve) if curve else None
        if span is None:
            raise ValueError("there is no steady span: no time passes between the first arrival and the last end")
        return first + span.from_ns, first + span.to_ns
