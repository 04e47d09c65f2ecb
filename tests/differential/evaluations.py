"""Runs written in seconds, as the vectors of alerts have them, put through meters and evaluated each second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tokenpulse
from tokenpulse.alerts import Alert, Alerts
from tokenpulse.model import SLO
from tokenpulse.reference import KVTracker as ReferenceTracker
from tokenpulse.reference.alerts import Episode, Key, Reading
from tokenpulse.reference.meter import Meter as ReferenceMeter

SECOND_NS = 1_000_000_000
WINDOWS_NS = (60 * SECOND_NS, 300 * SECOND_NS)

Timed = tuple[int, str, dict[str, Any]]
"""When, which method, its arguments; a request's handle is named by `handles`."""


def ns(seconds: float) -> int:
    return round(seconds * SECOND_NS)


def calls_of(does: Iterable[Mapping[str, Any]]) -> list[Timed]:
    """What is done, one call at a time, in the order of the times.

    Each is repeated every so many seconds. A number that goes on is `[the first, what each time adds]`.
    """
    calls: list[Timed] = []
    for number, one in enumerate(does):
        for place, second in enumerate(range(one["from"], one["to"] + 1, one["every"])):
            if one["do"] == "request":
                calls += request(one, second, f"{number}.{place}")
            elif one["do"] == "gauge":
                values = {name: value[0] + place * value[1] for name, value in one.items() if isinstance(value, list)}
                calls.append((ns(second + one["at"]), "gauge", values))
            else:
                first, more = one["hash"]
                calls.append((ns(second + one["at"]), one["do"], {"hashes": [first + place * more]}))
    return sorted(calls, key=lambda call: call[0])


def request(one: Mapping[str, Any], second: int, name: str) -> list[Timed]:
    """A request's calls: it arrives, may have one token, may end."""
    calls: list[Timed] = [(ns(second + one["arrive"]), "arrive", {"name": name, **one.get("given", {})})]
    if "token" in one:
        calls.append((ns(second + one["token"]), "step", {"handles": name}))
    if "end" in one:
        calls.append((ns(second + one["end"]), "end", {"handles": name, "status": one["status"]}))
    return calls


class Driven:
    """A meter of either engine, and a reading of it at each whole second."""

    def __init__(self, core: bool, slos: Sequence[SLO] = (), kv: bool = False) -> None:
        if core:
            widths = [f"{width_ns}ns" for width_ns in WINDOWS_NS]
            self.meter: Any = tokenpulse.Meter(slos=slos, windows=widths, kv=tokenpulse.KVTracker() if kv else None)
        else:
            self.meter = ReferenceMeter(slos=slos, windows_ns=WINDOWS_NS, kv=ReferenceTracker() if kv else None)
        self.core = core
        self._named: dict[str, int] = {}

    def until(self, calls: Sequence[Timed], seconds: Iterable[int]) -> Iterable[Any]:
        """A snapshot at each of the seconds, before what is done at that time."""
        rest = iter(calls)
        call = next(rest, None)
        for second in seconds:
            while call is not None and call[0] < second * SECOND_NS:
                self._do(*call)
                call = next(rest, None)
            yield self.meter.snapshot(second * SECOND_NS)

    def _do(self, t_ns: int, method: str, arguments: Mapping[str, Any]) -> None:
        given = dict(arguments)
        if method == "arrive":
            name, labels = given.pop("name"), given.pop("labels", None)
            if labels is not None:
                given["cls"] = self.meter.classify(**labels)
            self._named[name] = self.meter.arrive(t_ns, **given)
            return
        if "handles" in given:
            given["handles"] = self._named[given["handles"]]
        target = self.meter.kv if method in ("store", "evict") else self.meter
        getattr(target, method)(t_ns, **given)


def readings_of(
    core: bool, calls: Sequence[Timed], seconds: Iterable[int], slos: Sequence[SLO] = (), kv: bool = False
) -> list[Reading]:
    """The readings of one engine's meter."""
    snapshots = Driven(core, slos, kv).until(calls, seconds)
    return [snapshot.reading() if core else snapshot for snapshot in snapshots]


def product_of(
    calls: Sequence[Timed], seconds: Iterable[int], slos: Sequence[SLO] = (), kv: bool = False
) -> dict[Key, list[Episode]]:
    """The product's alerts that fired, as the reference names them."""
    alerts = Alerts()
    for snapshot in Driven(True, slos, kv).until(calls, seconds):
        alerts.update(snapshot)
    found: dict[Key, list[Episode]] = {}
    for alert in sorted([*alerts.cleared, *alerts.firing], key=lambda alert: alert.began_ns):
        found.setdefault((alert.rule, alert.severity, alert.of), []).append(episode(alert))
    return found


def episode(alert: Alert) -> Episode:
    assert alert.fired_ns is not None
    return Episode(alert.began_ns, alert.fired_ns, alert.peak, alert.peak_ns, alert.cleared_ns)


def fired(alerts: Mapping[Key, list[Episode]]) -> dict[Key, list[Episode]]:
    return {key: episodes for key, episodes in alerts.items() if episodes}


def in_seconds(alerts: Mapping[Key, list[Episode]]) -> dict[str, list[list[float | None]]]:
    """As the vectors have them: by `rule/severity` or `rule/severity/set`, [began, fired, peak, its time, cleared]."""

    def seconds(t_ns: int | None) -> float | None:
        return None if t_ns is None else t_ns / SECOND_NS

    return {
        "/".join(part for part in key if part is not None): [
            [seconds(one.began_ns), seconds(one.fired_ns), one.peak, seconds(one.peak_ns), seconds(one.cleared_ns)]
            for one in episodes
        ]
        for key, episodes in alerts.items()
        if episodes
    }
