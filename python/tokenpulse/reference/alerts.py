"""Alerts over a whole series: when each began, fired, peaked and cleared. The series is known to its end, so nothing is
kept from one evaluation to the next; each rule is a plain search through it.

First the rule itself (`episodes`), then growth's own condition, then what each rule looks at in a meter's readings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tokenpulse.model import SLO
from tokenpulse.reference.trend import mann_kendall, theil_sen

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS

FOR_NS = {"warning": 30 * SECOND_NS, "critical": 10 * SECOND_NS}
"""How long a condition must hold before the alert fires."""

CLEAR_BELOW = 0.9
"""An alert clears below this share of its threshold."""

THRESHOLDS = {
    "kv_utilization": {"warning": 0.8, "critical": 0.9},
    "ttft_p99": {"warning": 0.7, "critical": 0.9},
    "oom_rate": {"warning": 0.0001, "critical": 0.001},
    "refill_rate": {"warning": 0.05, "critical": 0.15},
    "queue_depth": {"warning": 2.0},
}
"""Of `ttft_p99` in TTFT limits, of `queue_depth` in largest batches."""

BURNS = {
    "burn_fast": ("critical", 14.4, HOUR_NS, 5 * MINUTE_NS),
    "burn_slow": ("critical", 6.0, 6 * HOUR_NS, 30 * MINUTE_NS),
    "burn_ticket": ("warning", 1.0, 3 * DAY_NS, 6 * HOUR_NS),
}
"""Severity, threshold, the long window and the short one."""

AVAILABILITY_OBJECTIVE = 0.999

POINTS = 60
"""The means of 1 s that growth is tested on."""


@dataclass(frozen=True, slots=True)
class Look:
    """One evaluation: the value at a time, whether the condition holds, whether a firing alert clears."""

    t_ns: int
    value: float | None
    holds: bool
    clears: bool


@dataclass(frozen=True, slots=True)
class Episode:
    """One time that an alert fired; `cleared_ns` is None if it did not clear before the series ended."""

    began_ns: int
    fired_ns: int
    peak: float
    peak_ns: int
    cleared_ns: int | None


def episodes(looks: Sequence[Look], for_ns: int) -> list[Episode]:
    """Every time that the alert fired, in order. ValueError for times that fall, or a negative `for_ns`.

    >>> values = [1, 5, 5, 7, 4.6, 4.4, 5]
    >>> series = [against(t, value, threshold=4.9) for t, value in enumerate(values)]
    >>> episodes(series, for_ns=2)
    [Episode(began_ns=1, fired_ns=3, peak=7, peak_ns=3, cleared_ns=5)]
    """
    if for_ns < 0:
        raise ValueError(f"for_ns must be 0 or more, got {for_ns}")
    for earlier, later in pairwise(looks):
        if later.t_ns < earlier.t_ns:
            raise ValueError(f"times must not fall, got {later.t_ns} after {earlier.t_ns}")
    found = []
    rest = looks
    while rest:
        # The condition begins to hold, and holds without a break ...
        began = first(rest, lambda look: look.holds)
        run = rest[began : began + first(rest[began:], lambda look: not look.holds)]
        firing_ns = run[0].t_ns + for_ns if run else 0
        fired = next((place for place, look in enumerate(run) if look.t_ns >= firing_ns), len(run))
        if fired == len(run):
            # ... but not for long enough.
            rest = rest[began + len(run) :]
            continue
        # It stays until it clears, whether or not the condition goes on to hold.
        lit = rest[began:]
        cleared = fired + 1 + first(lit[fired + 1 :], lambda look: look.clears)
        peak = max(value for look in lit[:cleared] if (value := look.value) is not None)
        found.append(
            Episode(
                began_ns=lit[0].t_ns,
                fired_ns=lit[fired].t_ns,
                peak=peak,
                peak_ns=next(look.t_ns for look in lit if look.value == peak),
                cleared_ns=lit[cleared].t_ns if cleared < len(lit) else None,
            )
        )
        rest = lit[cleared:]
    return found


def first(looks: Sequence[Look], wanted: Callable[[Look], bool]) -> int:
    """The place of the first evaluation that is wanted; how many there are, if none is."""
    return next((place for place, look in enumerate(looks) if wanted(look)), len(looks))


def against(t_ns: int, value: float | None, threshold: float | None, clear_below: float = CLEAR_BELOW) -> Look:
    """A value held against a threshold. Where either is absent nothing holds, and a firing alert clears."""
    if value is None or threshold is None:
        return Look(t_ns, None, holds=False, clears=True)
    return Look(t_ns, value, holds=value > threshold, clears=value < clear_below * threshold)


# Growth without pause


@dataclass(frozen=True, slots=True)
class Queue:
    """What is known of the queue at one evaluation, all over the last minute; None is absent.

    `means` are those of the waiting requests in each second, the newest last; `depth` is their mean over the minute,
    `batch_max` the largest batch.
    """

    t_ns: int
    means: Sequence[float]
    depth: float | None
    batch_max: float | None
    arrived: int
    ended: int


def growing(queue: Queue) -> Look:
    """Whether the queue grows without pause.

    >>> ramp = [float(second) for second in range(60)]
    >>> growing(Queue(0, ramp, depth=29.5, batch_max=8, arrived=120, ended=60)).holds
    True
    >>> growing(Queue(0, ramp, depth=29.5, batch_max=8, arrived=60, ended=60)).holds
    False
    """
    z = mann_kendall(queue.means) if len(queue.means) == POINTS else None
    slope = theil_sen(queue.means)
    if z is None or slope is None or queue.depth is None or not queue.batch_max:
        return Look(queue.t_ns, None, holds=False, clears=True)
    warning = 2 * queue.batch_max
    holds = (
        z > 2.33
        and slope * (POINTS - 1) > max(10, 0.5 * queue.batch_max)
        and queue.depth > warning
        and queue.arrived > queue.ended
    )
    return Look(queue.t_ns, queue.depth, holds=holds, clears=z < 1 or queue.depth < warning)


# What the rules look at

Reading = Mapping[str, Any]
"""A meter's reading, of this package's or the core's; it has windows of 1 m and 5 m."""

Key = tuple[str, str, str | None]
"""Rule, severity, and the SLO set by name; "availability" for burn rates of availability."""


def alerts_of(readings: Sequence[Reading], slos: Sequence[SLO] = ()) -> dict[Key, list[Episode]]:
    """The alerts of a run, by the default settings, from readings about a second apart; those that never fired too."""
    found: dict[Key, list[Episode]] = {}
    for rule, thresholds in THRESHOLDS.items():
        for severity, threshold in thresholds.items():
            for slo in slos if rule == "ttft_p99" else [None]:
                looks = [against(one["t_ns"], *measured(rule, one, threshold, slo)) for one in readings]
                found[rule, severity, None if slo is None else slo.name] = episodes(looks, FOR_NS[severity])
    found["queue_growth", "critical", None] = episodes([growing(one) for one in queues(readings)], FOR_NS["critical"])
    for rule, (severity, threshold, *widths) in BURNS.items():
        for position, slo in enumerate([*slos, None]):
            looks = [
                against(one["t_ns"], burn(one, widths, None if slo is None else position, slo), threshold)
                for one in readings
            ]
            found[rule, severity, "availability" if slo is None else slo.name] = episodes(looks, FOR_NS[severity])
    return found


def measured(
    rule: str, reading: Reading, threshold: float, slo: SLO | None = None
) -> tuple[float | None, float | None]:
    """The value that a rule holds against which threshold."""
    if rule == "kv_utilization":
        used, total = mean(reading, "kv_used"), limit(reading, "kv_total")
        return (None if used is None or total is None else used / total), threshold
    if rule == "ttft_p99":
        assert slo is not None
        return ttft_p99(reading, slo), threshold * slo.ttft
    if rule == "oom_rate":
        by_status = reading["all"]["windows"][window(reading, 5 * MINUTE_NS)]["by_status"]
        ended = sum(by_status.values())
        return (by_status.get("oom", 0) / ended if ended else None), threshold
    if rule == "refill_rate":
        if reading["kv"] is None:
            return None, threshold
        block = reading["kv"]["windows"][window(reading["kv"], 5 * MINUTE_NS)]["block"]
        return (block["refilled"] / block["evicted"] if block["evicted"] else None), threshold
    batch_max = limit(reading, "batch_max")
    return mean(reading, "waiting"), None if batch_max is None else threshold * batch_max


def window(reading: Reading, width_ns: int) -> int:
    return next(place for place, one in enumerate(reading["windows"]) if one["width_ns"] == width_ns)


def mean(reading: Reading, gauge: str) -> float | None:
    """A gauge's mean over the last minute."""
    figure = reading["gauges"]["windows"][window(reading, MINUTE_NS)][gauge]
    return float(figure["integral"] / figure["covered_ns"]) if figure is not None and figure["covered_ns"] else None


def limit(reading: Reading, gauge: str) -> float | None:
    """A gauge that says how much room there is. Many engines set it once, so the last value ever set holds on."""
    within = mean(reading, gauge)
    if within is None:
        ever = reading["gauges"]["total"][gauge]
        within = None if ever is None else ever["last"]
    return within or None


def ttft_p99(reading: Reading, slo: SLO) -> float | None:
    """The P99 of the last minute, in seconds, of the requests that the set is about."""
    place = window(reading, MINUTE_NS)
    if not slo.where:
        blocks = [reading["all"]["windows"][place]]
    else:
        blocks = [
            one["windows"][place]
            for one in reading["classes"]
            if not one["other"] and all(one["key"].get(name) == label for name, label in slo.where.items())
        ]
    merged = None
    for block in blocks:
        sketch = block["latency"]["ttft"]
        merged = sketch if merged is None else merged + sketch
    return float(merged.quantile(0.99)) if merged is not None and merged.count else None


def burn(reading: Reading, widths: Iterable[int], position: int | None, slo: SLO | None) -> float | None:
    """The smaller of the burn rates over a long and a short window, both of which must exceed.

    Absent where nothing was judged, and before the shorter one is full.
    """
    long, short = widths
    if reading["first_event_ns"] is None or reading["t_ns"] - reading["first_event_ns"] < short:
        return None
    rates = []
    for width in (long, short):
        counts = next(one for one in reading["burn"] if one["width_ns"] == width)
        if slo is None or position is None:
            bad, judged = counts["availability"]["bad"], counts["availability"]["judged"]
            objective = AVAILABILITY_OBJECTIVE
        else:
            bad = counts["slos"][position]["judged"] - counts["slos"][position]["good"]
            judged, objective = counts["slos"][position]["judged"], slo.objective
        if not judged:
            return None
        rates.append(float(bad / judged / (1 - objective)))
    return min(rates)


def queues(readings: Sequence[Reading]) -> list[Queue]:
    """The queue at each reading, with its means of whole seconds.

    Where a reading comes after several seconds, each of them has their common mean. Where the gauge of waiting
    requests is absent, the series begins anew.
    """
    found = []
    means: list[float] = []
    since: Reading | None = None
    before_ns = 0
    for reading in readings:
        t_ns, waiting = reading["t_ns"], reading["gauges"]["total"]["waiting"]
        if waiting is None or mean(reading, "waiting") is None:
            means, since, before_ns = [], waiting, t_ns
        elif since is None:
            since, before_ns = waiting, t_ns
        elif t_ns // SECOND_NS > before_ns // SECOND_NS:
            covered = waiting["covered_ns"] - since["covered_ns"]
            seconds = t_ns // SECOND_NS - before_ns // SECOND_NS
            one = (waiting["integral"] - since["integral"]) / covered if covered else None
            means = [*means, *[one] * seconds][-POINTS:] if one is not None else []
            since, before_ns = waiting, t_ns
        counts = reading["all"]["windows"][window(reading, MINUTE_NS)]
        found.append(
            Queue(
                t_ns,
                means,
                mean(reading, "waiting"),
                limit(reading, "batch_max"),
                counts["attempted"],
                sum(counts["by_status"].values()),
            )
        )
    return found
