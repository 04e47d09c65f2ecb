"""The rules of `tokenpulse.alerts` as Prometheus alerting rules: text that `promtool check rules` accepts.

An alert fires above its threshold for as long as its rule says, and clears below `clear_below` of it, as ours do: the
second half of each expression keeps an alert that fires already. Figures are those of an exporter's series, so they are
as coarse as its scrapes, and rates are extrapolated as PromQL does.

What the series are called is written here once, in `Series`. A series of a counter has one sample for each class, with
the labels of that class; those of gauges have none. `queue_trend_z` and `queue_trend_rise` are computed where the pane
means are: PromQL has no Mann-Kendall.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from tokenpulse.analysis.alerts.rules import (
    AVAILABILITY,
    BURNS,
    CRITICAL,
    LEVELS,
    MEANING,
    SEVERITIES,
    Burn,
    Level,
    Rules,
)
from tokenpulse.formulas import UNAVAILABLE
from tokenpulse.grammar import duration_text
from tokenpulse.model import AVAILABILITY_OBJECTIVE, SLO

INTERVAL = "5s"
"""How often Prometheus evaluates the rules: well within the shortest `for`."""

BY = ("job", "instance")
"""An alert for each of these: one engine, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Series:
    """The names of the series that the rules read."""

    kv_used: str = "tokenpulse_kv_blocks_used"
    """Gauge: blocks of the KV cache in use."""
    kv_total: str = "tokenpulse_kv_blocks_capacity"
    """Gauge: blocks that there are."""
    evicted: str = "tokenpulse_kv_blocks_evicted_total"
    """Counter: blocks evicted."""
    refilled: str = "tokenpulse_kv_blocks_refilled_total"
    """Counter: blocks computed again after their eviction."""
    waiting: str = "tokenpulse_requests_waiting"
    """Gauge: requests that wait."""
    batch_max: str = "tokenpulse_batch_size_limit"
    """Gauge: the largest batch."""
    queue_trend_z: str = "tokenpulse_queue_trend_z"
    """Gauge: Mann-Kendall's Z of the newest 60 pane means of the waiting requests."""
    queue_trend_rise: str = "tokenpulse_queue_trend_rise"
    """Gauge: their Theil-Sen slope times the time from the first to the last, in requests."""
    ttft: str = "tokenpulse_ttft_seconds"
    """Native histogram: time to first token."""
    arrived: str = "tokenpulse_requests_arrived_total"
    """Counter: requests that arrived."""
    ended: str = "tokenpulse_requests_ended_total"
    """Counter, by `status`: requests that ended."""
    good: str = "tokenpulse_requests_good_total"
    """Counter, by `slo`: requests that met an SLO set."""
    judged: str = "tokenpulse_requests_judged_total"
    """Counter, by `slo`: requests that it judged."""


SERIES = Series()

NAMES = {
    "kv_utilization": "TokenpulseKVUtilization",
    "ttft_p99": "TokenpulseTTFTP99",
    "oom_rate": "TokenpulseOOMRate",
    "refill_rate": "TokenpulseRefillRate",
    "queue_depth": "TokenpulseQueueDepth",
    "queue_growth": "TokenpulseQueueGrowth",
    "burn_fast": "TokenpulseBurnFast",
    "burn_slow": "TokenpulseBurnSlow",
    "burn_ticket": "TokenpulseBurnTicket",
}
"""What the alerts are called, by rule."""

SHOWN = {
    "kv_utilization": "KV cache {{ $value | humanizePercentage }} full",
    "ttft_p99": "P99 of the time to first token is {{ $value | humanizeDuration }}",
    "oom_rate": "{{ $value | humanizePercentage }} of requests ran out of memory",
    "refill_rate": "{{ $value | humanizePercentage }} of evicted KV blocks were computed again",
    "queue_depth": "{{ $value | humanize }} times the largest batch is waiting",
    "queue_growth": "{{ $value | humanize }} requests wait, and ever more do",
    **dict.fromkeys(BURNS, "the error budget is spent {{ $value | humanize }} times too fast"),
}

_UNAVAILABLE = "|".join(UNAVAILABLE)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RANGES = re.compile(r"[1-9][0-9]*(ms|s|m|h|d)")


@dataclass(frozen=True, slots=True)
class _Alerting:
    """One alerting rule."""

    rule: str
    severity: str
    of: str | None
    expr: str
    for_ns: int
    description: str

    @property
    def labels(self) -> dict[str, str]:
        return {"severity": self.severity} | ({} if self.of is None else {"slo": self.of})


def prometheus_rules(rules: Rules | None = None, slos: Sequence[SLO] = (), by: Iterable[str] = BY) -> str:
    """Alerting rules as YAML; those of SLO sets for each set given.

    `by`: the labels of the series that tell one engine from another; sums are taken over all others. ValueError for a
    label that Prometheus does not take, or a window that is no whole number of milliseconds.

    >>> print(prometheus_rules(Rules.of({"batch_max": 64}), by=["job"]).partition("- alert")[0])
    groups:
      - name: tokenpulse
        interval: 5s
        rules:
    <BLANKLINE>
    """
    settings = rules or Rules()
    writer = _Writer(settings, tuple(_label(name) for name in by))
    lines = ["groups:", "  - name: tokenpulse", f"    interval: {INTERVAL}", "    rules:"]
    for one in writer.all(slos):
        lines += [
            f"      - alert: {NAMES[one.rule]}",
            "        expr: |-",
            *(f"          {line}" for line in one.expr.splitlines()),
            *([f"        for: {_range(one.for_ns)}"] if one.for_ns else []),
            "        labels:",
            *(f"          {name}: {_quoted(label)}" for name, label in one.labels.items()),
            "        annotations:",
            f"          summary: {_quoted(one.description)}",
            f"          description: {_quoted(MEANING[one.rule])}",
        ]
    if lines[-1].endswith("rules:"):
        lines[-1] += " []"
    return "\n".join(lines) + "\n"


class _Writer:
    """Rules to expressions."""

    def __init__(self, rules: Rules, by: tuple[str, ...]) -> None:
        self.rules = rules
        self.by = ", ".join(by)

    def all(self, slos: Sequence[SLO]) -> Iterator[_Alerting]:
        for name in LEVELS:
            rule = getattr(self.rules, name)
            levels = {severity: level for severity in SEVERITIES if (level := rule.level(severity)) is not None}
            for slo in slos if name == "ttft_p99" else [None]:
                for severity, level in levels.items():
                    yield self._level(name, severity, level, slo)
            if name == "queue_depth" and self.rules.queue_growth.on:
                yield self._growth()
        for name in BURNS:
            burn: Burn = getattr(self.rules, name)
            if (level := burn.level()) is not None:
                for one in (*slos, None):
                    yield self._burn(name, burn, level, one)

    # Expressions

    def _sum(self, series: str) -> str:
        return f"sum by ({self.by}) ({series})"

    def _mean(self, gauge: str, window: str) -> str:
        return self._sum(f"avg_over_time({gauge}[{window}])")

    def _share(self, part: str, whole: str, window: str) -> str:
        return f"{self._sum(f'increase({part}[{window}])')} / {self._sum(f'increase({whole}[{window}])')}"

    def _batch_max(self, window: str) -> str:
        named = self.rules.batch_max
        return self._mean(SERIES.batch_max, window) if named is None else str(named)

    def _figure(self, name: str, slo: SLO | None) -> str:
        window = _range(getattr(self.rules, name).window_ns)
        if name == "kv_utilization":
            return f"{self._mean(SERIES.kv_used, window)} / {self._mean(SERIES.kv_total, window)}"
        if name == "ttft_p99":
            assert slo is not None
            series = f"{SERIES.ttft}{_matchers(slo.where)}"
            return f"histogram_quantile(0.99, {self._sum(f'rate({series}[{window}])')})"
        if name == "oom_rate":
            return self._share(f'{SERIES.ended}{{status="oom"}}', SERIES.ended, window)
        if name == "refill_rate":
            return self._share(SERIES.refilled, SERIES.evicted, window)
        return f"{self._mean(SERIES.waiting, window)} / {self._batch_max(window)}"

    def _level(self, name: str, severity: str, level: Level, slo: SLO | None) -> _Alerting:
        figure, threshold = self._figure(name, slo), _number(level.threshold)
        low = _number(level.clear_below * level.threshold)
        if name == "ttft_p99":
            assert slo is not None
            threshold = f"{threshold} * {_number(slo.ttft)}"
            low = f"{_number(level.clear_below)} * {threshold}"
        of = None if slo is None else slo.name
        expr = self._or_firing(f"({figure}) > {threshold}", f"({figure}) >= {low}", name, severity, of)
        return _Alerting(name, severity, of, expr, level.for_ns, SHOWN[name])

    def _or_firing(self, above: str, still: str, name: str, severity: str, of: str | None) -> str:
        """What begins an alert, or keeps one that fires."""
        labels = {"alertname": NAMES[name], "alertstate": "firing", "severity": severity}
        firing = f"ALERTS{_matchers(labels | ({} if of is None else {'slo': of}))}"
        return f"({above})\nor\n({still}\n  and on ({self.by}) {firing})"

    def _growth(self) -> _Alerting:
        rule = self.rules.queue_growth
        window = _range(rule.window_ns)
        depth, batch_max = self._mean(SERIES.waiting, window), self._batch_max(window)
        batches = _number(self.rules.deep_batches)
        trend = {
            name: f"max by ({self.by}) ({getattr(SERIES, name)})" for name in ("queue_trend_z", "queue_trend_rise")
        }
        arrived, ended = (self._sum(f"increase({name}[{window}])") for name in (SERIES.arrived, SERIES.ended))
        on = f"\n  and on ({self.by}) "
        above = on.join(
            (
                f"{depth} > {batches} * {batch_max}",
                f"({trend['queue_trend_z']} > {_number(rule.z)})",
                f"({trend['queue_trend_rise']} > {_number(rule.rise)})",
                f"({trend['queue_trend_rise']} > {_number(rule.rise_batches)} * {batch_max})",
                f"({arrived} > {ended})",
            )
        )
        still = f"{depth} >= {batches} * {batch_max}{on}({trend['queue_trend_z']} >= {_number(rule.clear_z)})"
        expr = self._or_firing(above, still, "queue_growth", CRITICAL, None)
        return _Alerting("queue_growth", CRITICAL, None, expr, rule.for_ns, SHOWN["queue_growth"])

    def _burn(self, name: str, burn: Burn, level: Level, slo: SLO | None) -> _Alerting:
        of = AVAILABILITY if slo is None else slo.name
        long, short = (self._burn_rate(_range(width_ns), slo) for width_ns in (burn.long_ns, burn.short_ns))
        threshold, low = _number(level.threshold), _number(level.clear_below * level.threshold)
        on = f"\n  and on ({self.by}) "
        expr = self._or_firing(
            f"{long} > {threshold}{on}({short} > {threshold})",
            f"{long} >= {low}{on}({short} >= {low})",
            name,
            burn.severity,
            of,
        )
        return _Alerting(name, burn.severity, of, expr, level.for_ns, SHOWN[name])

    def _burn_rate(self, window: str, slo: SLO | None) -> str:
        if slo is None:
            unavailable = f'{SERIES.ended}{{status=~"{_UNAVAILABLE}"}}'
            bad = self._share(unavailable, f'{SERIES.ended}{{status!="abort"}}', window)
            return f"(({bad}) or 0 * {self._judged(window)}) / (1 - {_number(AVAILABILITY_OBJECTIVE)})"
        only = _matchers({"slo": slo.name})
        attained = self._share(f"{SERIES.good}{only}", f"{SERIES.judged}{only}", window)
        return f"(1 - {attained}) / (1 - {_number(slo.objective)})"

    def _judged(self, window: str) -> str:
        judged = f'{SERIES.ended}{{status!="abort"}}'
        return self._sum(f"increase({judged}[{window}])")


def _label(name: str) -> str:
    if not _LABEL.fullmatch(name):
        raise ValueError(f"a label must be of letters, digits and _, and not begin with a digit, got {name!r}")
    return name


def _quoted(text: str) -> str:
    """Text in double quotes, as YAML and PromQL both read it."""
    return json.dumps(text, ensure_ascii=False)


def _matchers(labels: Mapping[str, str]) -> str:
    """`{name="value"}`, or nothing without labels."""
    if not labels:
        return ""
    return "{" + ", ".join(f"{_label(name)}={_quoted(label)}" for name, label in labels.items()) + "}"


def _range(ns: int) -> str:
    """A duration as Prometheus writes it."""
    text = duration_text(ns)
    if not _RANGES.fullmatch(text):
        raise ValueError(f"Prometheus takes whole milliseconds, got {text}")
    return text


def _number(value: float) -> str:
    """A number with the digits that it takes.

    >>> _number(2.0), _number(0.9 * 0.0001), _number(14.4 * 0.9)
    ('2', '0.00009', '12.96')
    """
    return f"{Decimal(f'{value:.12g}'):f}"
