"""`tokenpulse.alerts`: what is worth waking somebody for, over a live meter's snapshots or over a log.

`Alerts` is fed with snapshots, about once a second; `of` reads a log or another tool's file as such a meter would have
seen it. `Rules` has the thresholds. Nothing here reads a clock.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenpulse import engine
from tokenpulse.analysis.alerts.evaluation import Evaluation, Event, Highest, NotJudged, in_order
from tokenpulse.analysis.alerts.figures import Area, Figures
from tokenpulse.analysis.alerts.growth import grows
from tokenpulse.analysis.alerts.machine import Alert
from tokenpulse.analysis.alerts.rules import AVAILABILITY, LEVELS, Burn, Levels, QueueGrowth, Rules
from tokenpulse.analysis.alerts.trend import MannKendall, TheilSen, mann_kendall, theil_sen
from tokenpulse.grammar import Path, duration_ns, slo_sets
from tokenpulse.kv import KVTracker
from tokenpulse.meter import Meter
from tokenpulse.model import ITL_RULES, SLO
from tokenpulse.replaying import replay
from tokenpulse.snapshot import Snapshot
from tokenpulse.view import View

__all__ = [
    "Alert",
    "AlertReport",
    "Alerts",
    "Burn",
    "Event",
    "Highest",
    "Levels",
    "MannKendall",
    "NotJudged",
    "QueueGrowth",
    "Rules",
    "TheilSen",
    "grows",
    "mann_kendall",
    "of",
    "theil_sen",
]

SCHEMA = "tokenpulse.alerts/1"

MOST_CLEARED = 10_000
"""Alerts that are remembered after they cleared, the newest ones, by a live `Alerts`."""

P99 = 0.99

_Rules = Rules | Mapping[str, Any] | str | os.PathLike[str] | None


class Alerts:
    """The alerts of a live meter: call `update(meter.snapshot(now))` about once a second.

    `rules`: `Rules`, the same as a mapping, or the path of a TOML file; the defaults without it.
    `slos`: the meter's SLO sets; without them they are those of the first snapshot.

    The meter must keep the windows that the rules look at, 1 m and 5 m by default. ValueError for an SLO set named
    `availability`. An update takes about half a millisecond.

    >>> from tokenpulse import Meter
    >>> meter, alerts = Meter(windows=["1m", "5m"]), Alerts()
    >>> for second in range(40):
    ...     meter.gauge(second * 10**9, kv_used=85 if second < 35 else 0, kv_total=100)
    ...     for event in alerts.update(meter.snapshot(second * 10**9)):
    ...         print(second, event.kind, event.alert.rule, event.alert.severity, event.alert.peak)
    31 fired kv_utilization warning 0.85
    """

    def __init__(self, rules: _Rules = None, slos: Iterable[SLO] | None = None) -> None:
        self.rules = _rules(rules)
        self._evaluation = None if slos is None else Evaluation(self.rules, tuple(slos))
        self._cleared: deque[Alert] = deque(maxlen=MOST_CLEARED)

    def update(self, snapshot: Snapshot) -> list[Event]:
        """Evaluate every rule at the snapshot's moment: the alerts that fired or cleared at it.

        ValueError for a snapshot older than the last, of a meter with other SLO sets, or without the windows that the
        rules look at; nothing changes then. A meter that has seen nothing yet gives nothing.
        """
        if snapshot.t_ns is None:
            return []
        if self._evaluation is None:
            self._evaluation = Evaluation(self.rules, snapshot.slos)
        elif tuple(snapshot.slos) != self._evaluation.slos:
            raise ValueError("a snapshot must be of a meter with the same SLO sets as the one before")
        events = self._evaluation.update(figures_of(snapshot, self.rules))
        self._cleared.extend(event.alert for event in events if event.kind == "cleared")
        return events

    @property
    def t_ns(self) -> int | None:
        """The moment of the newest evaluation, on the meter's clock."""
        return None if self._evaluation is None else self._evaluation.t_ns

    @property
    def firing(self) -> list[Alert]:
        """The alerts that fire, in the order in which they began."""
        return [] if self._evaluation is None else self._evaluation.firing

    @property
    def pending(self) -> list[Alert]:
        """Those whose condition holds, but not for long enough yet."""
        return [] if self._evaluation is None else self._evaluation.pending

    @property
    def cleared(self) -> list[Alert]:
        """Those that fired and cleared, in the order in which they cleared: the newest 10,000."""
        return list(self._cleared)

    @property
    def highest(self) -> list[Highest]:
        """How high each rule's figure has been."""
        return [] if self._evaluation is None else self._evaluation.highest

    @property
    def not_judged(self) -> list[NotJudged]:
        """The rules that never had a figure, and what it would take."""
        return [] if self._evaluation is None else self._evaluation.not_judged

    @property
    def evaluations(self) -> int:
        """How many moments were evaluated."""
        return 0 if self._evaluation is None else self._evaluation.evaluations

    def __repr__(self) -> str:
        return f"<tokenpulse.Alerts: {len(self.firing)} firing, {len(self.pending)} pending>"


@dataclass(frozen=True, kw_only=True)
class AlertReport:
    """The alerts of one log, from its beginning to its end."""

    alerts: tuple[Alert, ...]
    """Those that fired, in the order in which they began; the last ones may fire still."""
    pending: tuple[Alert, ...]
    """Those whose condition held when the log ended, but not for long enough."""
    highest: tuple[Highest, ...]
    """How high each rule's figure has been, where there was one."""
    not_judged: tuple[NotJudged, ...]
    """The rules that never had a figure, and what it would take."""
    rules: Rules
    slos: tuple[SLO, ...]
    evaluations: int
    first_ns: int | None
    newest_ns: int | None
    inputs: tuple[Mapping[str, Any], ...] = ()
    notices: tuple[Mapping[str, Any], ...] = ()
    rejected: Mapping[str, int]
    """Events that the meter refused, by reason."""

    @property
    def unusable(self) -> int:
        """Lines and events that could not be used."""
        return sum(sum(one["skipped"].values()) for one in self.inputs) + sum(self.rejected.values())

    def seconds(self, t_ns: int | None) -> float | None:
        """A moment on the log's clock in seconds since its first event."""
        return None if t_ns is None or self.first_ns is None else (t_ns - self.first_ns) / 1e9

    def to_dict(self) -> dict[str, Any]:
        """All of it as one object that JSON can hold; `began`, `fired` ... are seconds since the first event."""
        return {
            "schema": SCHEMA,
            "inputs": [dict(one) for one in self.inputs],
            "notices": [dict(one) for one in self.notices],
            "rejected": dict(self.rejected),
            "first_ns": self.first_ns,
            "newest_ns": self.newest_ns,
            "evaluations": self.evaluations,
            "rules": self.rules.to_dict(),
            "slos": [{"name": slo.name, **slo.limits()} for slo in self.slos],
            "alerts": [self._alert(alert) for alert in self.alerts],
            "pending": [self._alert(alert) for alert in self.pending],
            "highest": [one.to_dict() | {"highest_at": self.seconds(one.t_ns)} for one in self.highest],
            "not_judged": [one.to_dict() for one in self.not_judged],
        }

    def _alert(self, alert: Alert) -> dict[str, Any]:
        moments = {"began": alert.began_ns, "fired": alert.fired_ns, "peaked": alert.peak_ns}
        moments["cleared"] = alert.cleared_ns
        return alert.to_dict() | {name: self.seconds(t_ns) for name, t_ns in moments.items()}


def of(
    path: Path,
    *,
    slo: SLO | str | Iterable[SLO | str] | None = None,
    rules: _Rules = None,
    itl: str = "token",
    ttl: str | float = "1h",
    stream: str = "copies",
    progress: engine.Progress | None = None,
) -> AlertReport:
    """Evaluate the rules over a log, once a second of its own time, as they would have been over the live engine.

    `path`: one log, file of another tool or table, as for `tokenpulse.report`; `"-"` is standard input. `rules`: as for
    `Alerts`. `itl`: what an emission of several tokens gives. `ttl`: the silence after which a request is lost.
    `stream`: of KV cache events, whether each store is a copy (`copies`), or `full`, as for `tokenpulse.kv_report`.

    Lines that cannot be read are counted, not raised. Raises OSError for a file that cannot be read, FormatError for
    one of unknown format, and ValueError or TypeError for a setting that does not fit, for summaries and for traces.
    """
    settings, sets = _rules(rules), slo_sets(slo)
    if itl not in ITL_RULES:
        raise ValueError(f"itl must be one of {', '.join(ITL_RULES)}, got {itl!r}")
    duration_ns(ttl)
    alerts = Alerts(settings, sets)
    cleared: list[Alert] = []
    meters: list[Meter] = []

    def make(forced: str | None) -> Meter:
        widths = [width_ns / 1e9 for width_ns in settings.windows_ns]
        meters.append(Meter(sets, widths, itl=forced or itl, ttl=ttl, kv=KVTracker(report=stream)))
        return meters[0]

    def on_pane(meter: Meter, t_ns: int) -> None:
        cleared.extend(event.alert for event in alerts.update(meter.snapshot(t_ns)) if event.kind == "cleared")

    labels = sorted({name for one in sets for name in one.where})
    if "output_length" in labels:
        raise ValueError("an SLO set's where must name what is known when a request arrives, got output_length")
    told = replay(path, make, on_pane, by=labels, progress=progress)
    return AlertReport(
        alerts=tuple(in_order([*cleared, *alerts.firing])),
        pending=tuple(alerts.pending),
        highest=tuple(alerts.highest),
        not_judged=tuple(alerts.not_judged),
        rules=settings,
        slos=sets,
        evaluations=alerts.evaluations,
        first_ns=told["first_ns"],
        newest_ns=told["newest_ns"],
        inputs=tuple(told["inputs"]),
        notices=tuple(told["notices"]),
        rejected=meters[0].snapshot().rejected,
    )


def figures_of(snapshot: Snapshot, rules: Rules) -> Figures:
    """What the rules look at in a snapshot. ValueError where the meter lacks a window."""
    windows = _windows(snapshot, rules)
    used, queue, growing = (windows[name] for name in ("kv_utilization", "queue_depth", "queue_growth"))
    ended = windows["oom_rate"].by_status
    area = snapshot.gauge_area("waiting")
    assert snapshot.t_ns is not None
    return Figures(
        t_ns=snapshot.t_ns,
        seen_ns=round(snapshot.total.true_width * 1e9),
        kv_used=used.level("kv_used"),
        kv_total=used.level("kv_total"),
        ttft_p99={slo.name: _ttft_p99(windows["ttft_p99"], slo) for slo in snapshot.slos},
        ended=sum(ended.values()),
        oom=ended.get("oom", 0),
        **_refills(snapshot, rules),
        waiting=queue.level("waiting"),
        batch_max=queue.level("batch_max"),
        waiting_area=None if area is None else Area(*area),
        growth_waiting=growing.level("waiting"),
        growth_arrived=growing.counts["attempted"],
        growth_ended=sum(growing.by_status.values()),
        burn=_burn(snapshot),
    )


def _rules(given: _Rules) -> Rules:
    if given is None:
        return Rules()
    if isinstance(given, Rules):
        return given
    return Rules.of(given) if isinstance(given, Mapping) else Rules.load(given)


def _windows(snapshot: Snapshot, rules: Rules) -> dict[str, View]:
    """The window of each rule that has one."""
    kept = {view.width_ns: view for view in snapshot.windows.values()}
    found = {}
    for name in (*LEVELS, "queue_growth"):
        rule: Levels | QueueGrowth = getattr(rules, name)
        if rule.window_ns not in kept:
            told = ", ".join(snapshot.windows) or "none"
            raise ValueError(f"rule {name}: window must be one that the meter keeps ({told}), got {rule.window!r}")
        found[name] = kept[rule.window_ns]
    return found


def _ttft_p99(view: View, slo: SLO) -> float | None:
    """Of the requests that bear the labels of the set; None where there are none."""
    try:
        sketch = view.where(**slo.where).latency["ttft"]
    except ValueError:
        return None
    return sketch.quantile(P99) if sketch.count else None


def _refills(snapshot: Snapshot, rules: Rules) -> dict[str, Any]:
    kv = snapshot.kv
    if kv is None:
        return {}
    try:
        view = kv.window(rules.refill_rate.window)
    except ValueError as wrong:
        raise ValueError(f"rule refill_rate: the KV tracker's {wrong}") from None
    known = any(kv.total.counts.values())
    return {"kv_events": known, "evicted": view.evicted, "refilled": view.refilled}


def _burn(snapshot: Snapshot) -> dict[str, dict[str, float | None]] | None:
    by_set, availability = snapshot.burn, snapshot.burn_availability
    return None if by_set is None or availability is None else {**by_set, AVAILABILITY: availability}
