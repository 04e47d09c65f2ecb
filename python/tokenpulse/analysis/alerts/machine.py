"""How a condition becomes an alert and ceases to be one: inactive, pending, firing, in evaluations over time.

A condition that holds is pending until it has held for `for_ns` without a break, from the first evaluation at which it
held on; then its alert fires. A firing alert clears at the first evaluation at which its figure is well below the
threshold, or absent; until then the figure may waver around the threshold. Only evaluations count: what lies between
two of them is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

INACTIVE, PENDING, FIRING = "inactive", "pending", "firing"

BY_VALUE, BY_ABSENCE = "value", "absent"
"""Why an alert cleared: its figure fell, or there was none."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert from its beginning to its end, or as far as it is known.

    Times are on the meter's clock. `peak` is the largest value of the rule's figure from `began_ns` on, `peak_ns` the
    first time of it, `threshold` that at which it fired, or that of the newest evaluation while it is pending.
    """

    rule: str
    severity: str
    of: str | None
    """The SLO set, or `availability` for its burn rates; None for a rule that is of neither."""
    began_ns: int
    """The first evaluation from which on the condition held until the alert fired."""
    fired_ns: int | None
    """None while it is pending."""
    peak: float
    peak_ns: int
    threshold: float
    cleared_ns: int | None = None
    """None while it fires."""
    cleared_by: str | None = None
    """`value`, or `absent` where it ended because there was no figure any more; None while it fires."""

    @property
    def state(self) -> str:
        """`pending`, `firing` or `cleared`."""
        return PENDING if self.fired_ns is None else FIRING if self.cleared_ns is None else "cleared"

    def to_dict(self) -> dict[str, Any]:
        """All of it as one object that JSON can hold."""
        return {"state": self.state, **{name: getattr(self, name) for name in self.__slots__}}


class Machine:
    """The state of one rule at one severity. ValueError for a time before the last evaluation's.

    >>> machine = Machine("kv_utilization", "critical", None, for_ns=2)
    >>> [machine.judge(t, value, 0.9, clear_below=0.9) for t, value in enumerate((0.95, 0.93, 0.99, 0.85, 0.8))]
    [None, None, 'fired', None, 'cleared']
    >>> machine.last.began_ns, machine.last.fired_ns, machine.last.peak, machine.last.cleared_ns
    (0, 2, 0.99, 4)
    """

    __slots__ = (
        "_fired_ns",
        "_peak",
        "_peak_ns",
        "_since_ns",
        "_t_ns",
        "_threshold",
        "for_ns",
        "last",
        "of",
        "rule",
        "severity",
    )

    def __init__(self, rule: str, severity: str, of: str | None, *, for_ns: int) -> None:
        self.rule = rule
        self.severity = severity
        self.of = of
        self.for_ns = for_ns
        self.last: Alert | None = None
        """The last alert that cleared."""
        self._t_ns: int | None = None
        self._since_ns: int | None = None
        self._fired_ns: int | None = None
        self._peak = 0.0
        self._peak_ns = 0
        self._threshold = 0.0

    @property
    def state(self) -> str:
        """`inactive`, `pending` or `firing`."""
        return FIRING if self._fired_ns is not None else INACTIVE if self._since_ns is None else PENDING

    @property
    def current(self) -> Alert | None:
        """The alert that is pending or fires."""
        return None if self._since_ns is None else self._alert(None, None)

    def judge(self, t_ns: int, value: float | None, threshold: float | None, *, clear_below: float) -> str | None:
        """Evaluate a figure against its threshold: what came of it, `fired`, `cleared` or None.

        The condition holds above the threshold; a firing alert clears below `clear_below` of it. Where either is
        absent it holds neither.
        """
        absent = value is None or threshold is None
        holds = value is not None and threshold is not None and value > threshold
        clears = value is None or threshold is None or value < clear_below * threshold
        return self.step(t_ns, value, threshold, holds=holds, clears=clears, absent=absent)

    def step(
        self, t_ns: int, value: float | None, threshold: float | None, *, holds: bool, clears: bool, absent: bool
    ) -> str | None:
        """Evaluate a condition that was judged elsewhere: `holds` matters until it fires, `clears` from then on."""
        if self._t_ns is not None and t_ns < self._t_ns:
            raise ValueError(f"t must not lie before the evaluation before, {self._t_ns}, got {t_ns}")
        self._t_ns = t_ns
        if self._fired_ns is not None:
            if clears:
                self.last = self._alert(t_ns, BY_ABSENCE if absent else BY_VALUE)
                self._since_ns = self._fired_ns = None
                return "cleared"
            self._top(t_ns, value)
            return None
        if not holds:
            self._since_ns = None
            return None
        if self._since_ns is None:
            self._since_ns = t_ns
            self._peak, self._peak_ns = value or 0.0, t_ns
        self._top(t_ns, value)
        self._threshold = threshold or 0.0
        if t_ns - self._since_ns < self.for_ns:
            return None
        self._fired_ns = t_ns
        return "fired"

    def _top(self, t_ns: int, value: float | None) -> None:
        if value is not None and value > self._peak:
            self._peak, self._peak_ns = value, t_ns

    def _alert(self, cleared_ns: int | None, cleared_by: str | None) -> Alert:
        assert self._since_ns is not None
        return Alert(
            rule=self.rule,
            severity=self.severity,
            of=self.of,
            began_ns=self._since_ns,
            fired_ns=self._fired_ns,
            peak=self._peak,
            peak_ns=self._peak_ns,
            threshold=self._threshold,
            cleared_ns=cleared_ns,
            cleared_by=cleared_by,
        )
