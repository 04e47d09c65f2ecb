"""Every rule over one meter's figures, moment after moment: what fired, what cleared, what could not be judged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenpulse.analysis.alerts import growth
from tokenpulse.analysis.alerts.figures import Area, Figures
from tokenpulse.analysis.alerts.machine import FIRING, PENDING, Alert, Machine
from tokenpulse.analysis.alerts.rules import (
    AVAILABILITY,
    BURNS,
    CRITICAL,
    NAMES,
    PANES,
    SEVERITIES,
    UNITS,
    Burn,
    Level,
    Rules,
    width_text,
)
from tokenpulse.model import SLO

NO_EVENTS = "events"
NO_SLO = "an SLO set: its limits and its objective"
NO_BURN = "a meter that keeps burn rates"
NO_JUDGED = "requests that ended and were not aborted"


@dataclass(frozen=True, slots=True)
class Event:
    """What came of one evaluation: an alert that `fired` or `cleared`, as it stood then."""

    kind: str
    t_ns: int
    alert: Alert

    def to_dict(self) -> dict[str, Any]:
        """All of it as one object that JSON can hold."""
        return {"kind": self.kind, "t_ns": self.t_ns, "alert": self.alert.to_dict()}


@dataclass(frozen=True, slots=True)
class Highest:
    """How high a rule's figure has been, whether or not that was too high; None while there was none."""

    rule: str
    of: str | None
    value: float | None
    t_ns: int | None
    thresholds: Mapping[str, float]
    """By severity: in the figure's own unit, at that time."""

    @property
    def unit(self) -> str:
        """`ratio`, `seconds`, `requests` or `times`."""
        return UNITS[self.rule]

    def to_dict(self) -> dict[str, Any]:
        """All of it as one object that JSON can hold."""
        return {
            "rule": self.rule,
            "of": self.of,
            "unit": self.unit,
            "highest": self.value,
            "highest_ns": self.t_ns,
            "thresholds": dict(self.thresholds),
        }


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A rule that never had a figure, and what it would take."""

    rule: str
    of: str | None
    needs: str

    def to_dict(self) -> dict[str, Any]:
        """All of it as one object that JSON can hold."""
        return {"rule": self.rule, "of": self.of, "needs": self.needs}


class _Check:
    """A rule over one figure: its machines by severity, its highest value, and what it lacks."""

    __slots__ = ("highest", "levels", "machines", "needs", "of", "rule")

    def __init__(self, rule: str, of: str | None, levels: Mapping[str, Level]) -> None:
        self.rule = rule
        self.of = of
        self.levels = levels
        self.machines = {
            severity: Machine(rule, severity, of, for_ns=level.for_ns) for severity, level in levels.items()
        }
        self.highest = Highest(rule, of, None, None, {})
        self.needs: str | None = NO_EVENTS
        """What it would take to judge; None once it was judged."""

    def saw(self, t_ns: int, value: float | None, thresholds: Mapping[str, float], needs: str | None) -> None:
        """Keep what a figure was, or why there was none."""
        if needs is None:
            self.needs = None
        elif self.needs is not None:
            self.needs = needs
        if value is not None and (self.highest.value is None or value > self.highest.value):
            self.highest = Highest(self.rule, self.of, value, t_ns, thresholds)

    def judge(self, t_ns: int, value: float | None, unit: float | None, needs: str | None) -> Iterator[Event]:
        """Evaluate all severities; a threshold is so many times `unit`."""
        thresholds = {} if unit is None else {name: level.threshold * unit for name, level in self.levels.items()}
        self.saw(t_ns, value if thresholds else None, thresholds, needs)
        for severity, level in self.levels.items():
            machine = self.machines[severity]
            kind = machine.judge(t_ns, value, thresholds.get(severity), clear_below=level.clear_below)
            yield from _event(machine, kind, t_ns)


def _event(machine: Machine, kind: str | None, t_ns: int) -> Iterator[Event]:
    alert = machine.last if kind == "cleared" else machine.current
    if kind is not None and alert is not None:
        yield Event(kind, t_ns, alert)


class Evaluation:
    """The rules over time. Memory is bounded: a machine for each rule, severity and SLO set, and 60 pane means.

    Alerts that cleared are the caller's to keep. ValueError for an SLO set named `availability`.
    """

    __slots__ = ("_base", "_checks", "_evaluations", "_growing", "_pane_ns", "_queue", "rules", "slos", "t_ns")

    def __init__(self, rules: Rules, slos: Sequence[SLO] = ()) -> None:
        if any(slo.name == AVAILABILITY for slo in slos):
            raise ValueError(f"no SLO set may be named {AVAILABILITY!r}: that is what its own burn rate is called")
        self.rules = rules
        self.slos = tuple(slos)
        self.t_ns: int | None = None
        """The time of the newest evaluation."""
        self._evaluations = 0
        self._checks = {(check.rule, check.of): check for check in _checks(rules, self.slos)}
        self._growing = _Check("queue_growth", None, {}) if rules.queue_growth.on else None
        if self._growing is not None:
            self._growing.machines[CRITICAL] = Machine("queue_growth", CRITICAL, None, for_ns=rules.queue_growth.for_ns)
        self._pane_ns = rules.queue_growth.pane_ns
        self._queue = growth.QueueTrend(PANES)
        self._base: tuple[int, Area] | None = None

    def update(self, figures: Figures) -> list[Event]:
        """Evaluate all rules at a moment. ValueError for one before the last."""
        t_ns = figures.t_ns
        if self.t_ns is not None and t_ns < self.t_ns:
            raise ValueError(f"t must not lie before the evaluation before, {self.t_ns}, got {t_ns}")
        self._evaluations += t_ns != self.t_ns
        self.t_ns = t_ns
        events: list[Event] = []
        for check in self._checks.values():
            value, unit, needs = self._figure(check, figures)
            events += check.judge(t_ns, value, unit, needs)
        return events + list(self._grow(figures))

    # What each rule looks at: its figure, what its thresholds are multiples of, and what it lacks

    def _figure(self, check: _Check, figures: Figures) -> tuple[float | None, float | None, str | None]:
        if check.rule in BURNS:
            return self._burn(check, figures)
        if check.rule == "kv_utilization":
            return _kv_utilization(figures)
        if check.rule == "ttft_p99":
            if check.of is None:
                return None, None, NO_SLO
            value = figures.ttft_p99.get(check.of)
            return value, self._limit(check.of), None if value is not None else "requests with a time to first token"
        if check.rule == "oom_rate":
            if not figures.ended:
                return None, 1.0, "requests that ended"
            return figures.oom / figures.ended, 1.0, None
        if check.rule == "refill_rate":
            if not figures.kv_events:
                return None, 1.0, "events of the KV cache (kv_store, kv_evict)"
            return (figures.refilled / figures.evicted if figures.evicted else None), 1.0, None
        return self._depth(figures)

    def _limit(self, name: str) -> float:
        return next(slo.ttft for slo in self.slos if slo.name == name)

    def _batch_max(self, figures: Figures) -> float | None:
        return figures.batch_max or (None if self.rules.batch_max is None else float(self.rules.batch_max))

    def _depth(self, figures: Figures) -> tuple[float | None, float | None, str | None]:
        batch_max = self._batch_max(figures)
        return figures.waiting, batch_max, _lacking(waiting=figures.waiting, batch_max=batch_max)

    def _burn(self, check: _Check, figures: Figures) -> tuple[float | None, float | None, str | None]:
        rule: Burn = getattr(self.rules, check.rule)
        if check.of is None:
            return None, 1.0, NO_SLO
        if figures.burn is None:
            return None, 1.0, NO_BURN
        if figures.seen_ns < rule.short_ns:
            return None, 1.0, f"events over {rule.widths[1]}, its shorter window"
        both = [figures.burn.get(check.of, {}).get(width) for width in rule.widths]
        known = [rate for rate in both if rate is not None]
        return (min(known), 1.0, None) if len(known) == len(both) else (None, 1.0, NO_JUDGED)

    # The queue that grows

    def _grow(self, figures: Figures) -> Iterator[Event]:
        self._sample(figures)
        check, rule, t_ns = self._growing, self.rules.queue_growth, figures.t_ns
        if check is None:
            return
        depth, batch_max = figures.growth_waiting, self._batch_max(figures)
        z, rise = self._queue.z, self._queue.rise
        needs = _lacking(waiting=depth, batch_max=batch_max)
        if needs is None and z is None:
            needs = f"the gauge waiting over {width_text(rule.window_ns)} on end"
        machine = check.machines[CRITICAL]
        if depth is None or batch_max is None or z is None:
            check.saw(t_ns, None, {}, needs)
            kind = machine.step(t_ns, depth, None, holds=False, clears=True, absent=True)
        else:
            batches = self.rules.deep_batches
            deep = batches * batch_max
            holds = growth.holds(z, rise, batch_max, depth, figures.growth_arrived, figures.growth_ended, rule, batches)
            check.saw(t_ns, depth, {CRITICAL: deep}, needs)
            kind = machine.step(t_ns, depth, deep, holds=holds, clears=z < rule.clear_z or depth < deep, absent=False)
        yield from _event(machine, kind, t_ns)

    def _sample(self, figures: Figures) -> None:
        """Take the mean depth of every pane that ended since the evaluation before.

        Evaluations that are further apart than a pane tell one mean for all panes between them.
        """
        area, t_ns = figures.waiting_area, figures.t_ns
        if area is None or self._base is None or figures.growth_waiting is None:
            self._queue.clear()
            self._base = None if area is None else (t_ns, area)
            return
        base_ns, base = self._base
        panes = t_ns // self._pane_ns - base_ns // self._pane_ns
        if not panes:
            return
        self._base = (t_ns, area)
        covered_ns = area.covered_ns - base.covered_ns
        if covered_ns <= 0:
            self._queue.clear()
            return
        mean = (area.integral - base.integral) / covered_ns
        for _ in range(min(panes, PANES)):
            self._queue.push(mean)

    # What came of it

    @property
    def evaluations(self) -> int:
        """How many moments there were."""
        return self._evaluations

    @property
    def _all(self) -> list[_Check]:
        found = [*self._checks.values(), *([] if self._growing is None else [self._growing])]
        return sorted(found, key=lambda check: NAMES.index(check.rule))

    def _current(self, state: str) -> list[Alert]:
        machines = (machine for check in self._all for machine in check.machines.values())
        alerts = (machine.current for machine in machines if machine.state == state)
        return in_order(alert for alert in alerts if alert is not None)

    @property
    def firing(self) -> list[Alert]:
        """The alerts that fire, in the order in which they began."""
        return self._current(FIRING)

    @property
    def pending(self) -> list[Alert]:
        """Those whose condition holds, but not for long enough yet."""
        return self._current(PENDING)

    @property
    def highest(self) -> list[Highest]:
        """How high the figure of each rule has been, of those that were judged."""
        return [check.highest for check in self._all if check.needs is None]

    @property
    def not_judged(self) -> list[NotJudged]:
        """The rules that never had a figure."""
        return [NotJudged(check.rule, check.of, check.needs) for check in self._all if check.needs is not None]


def in_order(alerts: Iterable[Alert]) -> list[Alert]:
    """Alerts by their beginning, the worse and the earlier listed rule first where several began at once."""
    return sorted(
        alerts,
        key=lambda alert: (
            alert.began_ns,
            math.inf if alert.fired_ns is None else alert.fired_ns,
            -SEVERITIES.index(alert.severity),
            NAMES.index(alert.rule),
            alert.of or "",
        ),
    )


def _checks(rules: Rules, slos: Sequence[SLO]) -> Iterator[_Check]:
    """A check for each rule that is on, and each SLO set that it is of."""
    sets: list[str | None] = [slo.name for slo in slos] or [None]
    for name in NAMES:
        rule = getattr(rules, name)
        if isinstance(rule, Burn):
            level = rule.level()
            if level is not None:
                yield from (_Check(name, of, {rule.severity: level}) for of in (*sets, AVAILABILITY))
        elif name != "queue_growth":
            found = {severity: rule.level(severity) for severity in SEVERITIES}
            levels = {severity: level for severity, level in found.items() if level is not None}
            if levels:
                yield from (_Check(name, of, levels) for of in (sets if name == "ttft_p99" else [None]))


def _kv_utilization(figures: Figures) -> tuple[float | None, float | None, str | None]:
    used, total = figures.kv_used, figures.kv_total or None
    needs = _lacking(kv_used=used, kv_total=total)
    return (None if used is None or total is None else used / total), 1.0, needs


def _lacking(**gauges: float | None) -> str | None:
    """The gauges that are absent, as what it takes."""
    names = [name for name, value in gauges.items() if value is None]
    if not names:
        return None
    return f"the gauge{'' if len(names) == 1 else 's'} {' and '.join(names)}"
