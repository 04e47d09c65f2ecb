"""The live meter: events, one call each, to figures over sliding windows and over the whole run.

Every call with a time is one reading of the clock. Bad events are refused and counted, never raised for; only misuse
raises, and changes nothing. A snapshot is pure: two of the same time are equal, and neither moves anything.

The rules of requests are those of a report. What differs: events are taken in the order of the calls, with no holding
back of ties; and silent requests are swept whenever the newest time enters a new pane of the longest window.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenpulse.model import DAY_NS, ITL_RULES, LENGTH_KEYS, MAX_LABEL_KEYS, METRICS, SLO, STATUSES, TTL_NS
from tokenpulse.reference.buckets import RANGE, check_scale, whole_ns
from tokenpulse.reference.clock import HOUR_NS, MINUTE_NS, SECOND_NS, WINDOWS_NS, Clock, check_time
from tokenpulse.reference.gauges import GAUGES, Area, Held, split
from tokenpulse.reference.kv import KVTracker
from tokenpulse.reference.request import Ended, Event, Observation, Request, finish, once, step
from tokenpulse.reference.request import arrive as arrived
from tokenpulse.reference.scopes import EVENTS, MAX_BATCH, Burn, ClassTally, Panes, Scope
from tokenpulse.reference.slo import judge
from tokenpulse.reference.strata import OTHER, Interner, length_bin
from tokenpulse.reference.window import PANES, least

BURN_NS = (5 * MINUTE_NS, 30 * MINUTE_NS, HOUR_NS, 6 * HOUR_NS, 3 * DAY_NS, 30 * DAY_NS)
SWEEP_NS = MINUTE_NS
"""How often silent requests are looked for when there is no window."""

SILENCES_NS = (SECOND_NS, 5 * SECOND_NS, 15 * SECOND_NS, 60 * SECOND_NS)

WHOLE_INCREMENTS = ("gpu_active_ns", "comm_ns", "dequant_ns", "prefill_tokens", "decode_tokens")
INCREMENTS = (*WHOLE_INCREMENTS, "flops", "bytes_moved")
TOKEN_COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens")

MAX_EMISSION = 2**32 - 1
MAX_COUNT = 2**40
REASONS = ("negative", "duplicate", "unknown", "future", "full", "invalid")

Handles = int | Sequence[int]


@dataclass
class Flight:
    """A request in flight."""

    cls: int
    state: Request


class Meter:
    """Counts what an engine tells it. All arguments but the times are as in `tokenpulse.Meter`; a snapshot is a dict.

    >>> meter = Meter(windows_ns=(60_000,))
    >>> handle = meter.arrive(1_000, prompt_tokens=5)
    >>> meter.step(3_000, handle)
    >>> meter.step(3_500, [handle, -1])
    >>> meter.end(3_500, handle, "stop")
    >>> reading = meter.snapshot(4_000)
    >>> reading["all"]["windows"][0]["latency"]["ttft"].sum_ns, reading["all"]["total"]["output_tokens"]
    (2000, 2)
    >>> reading["rejected"], reading["windows"]
    ({'unknown': 1}, [{'width_ns': 60000, 'true_width_ns': 3000, 'late': 0}])
    """

    def __init__(
        self,
        slos: Sequence[SLO] = (),
        windows_ns: Sequence[int] = WINDOWS_NS,
        burn: bool = True,
        scale: int = 6,
        itl: str = "token",
        max_requests: int = 65_536,
        max_classes: int = 256,
        ttl_ns: int = TTL_NS,
        kv: KVTracker | None = None,
    ) -> None:
        self._clock = Clock(windows_ns)
        if itl not in ITL_RULES:
            raise ValueError(f"itl must be one of {', '.join(ITL_RULES)}, got {itl!r}")
        if max_requests < 1:
            raise ValueError(f"max_requests must be at least 1, got {max_requests}")
        if not 2 <= max_classes <= 4096:
            raise ValueError(f"max_classes must be between 2 and 4096, got {max_classes}")
        if ttl_ns < 1:
            raise ValueError(f"ttl_ns must be at least 1, got {ttl_ns}")
        self.slos = tuple(slos)
        self.itl_rule = itl
        self.scale = check_scale(scale)
        self.ttl_ns = ttl_ns
        self.max_requests = max_requests
        self._other = max_classes - 1
        self._interner = Interner(max_classes)
        self._keys: dict[int, dict[str, str]] = {self._other: {}}
        self._over = 0
        self.classify()  # the class without labels is there from the start
        self._total = self._scope()
        self._windows = self._clock.windows(self._scope)
        self._burn = (
            [self._clock.ring(width_ns, lambda: Burn(len(self.slos))) for width_ns in BURN_NS] if burn else None
        )
        self._clock.follow(self._moved)
        self.kv = kv
        if kv is not None:
            kv.bind(self._clock, self.scale)
        self._sweep_ns = windows_ns[-1] // PANES if windows_ns else SWEEP_NS
        self._swept: int | None = None
        self._flights: dict[int, Flight] = {}
        self._arrivals = 0
        self._held: dict[str, Held] = {}
        self._gauged_ns: int | None = None
        self._rejected: Counter[str] = Counter()
        self._refused_values: Counter[str] = Counter()
        self._clamped = 0
        self._first_arrival_ns: int | None = None
        self._first_emission_ns: int | None = None
        self._last_emission_ns: int | None = None
        self._ready_ns: int | None = None

    def _scope(self) -> Scope:
        return Scope(lambda: ClassTally(self.itl_rule, len(self.slos), self.scale))

    # Classes

    def classify(self, prompt_tokens: int | None = None, **labels: str) -> int:
        """The class of requests that bear these labels, and this prompt length if it is given.

        Past `max_classes` it is the class `other`, the last; how often that happened is counted.
        """
        if len(labels) > MAX_LABEL_KEYS:
            raise ValueError(f"at most {MAX_LABEL_KEYS} labels, got {len(labels)}")
        for name, value in labels.items():
            if not isinstance(value, str):
                raise TypeError(f"label {name} must be a string, got {value!r}")
        key = dict(labels)
        if prompt_tokens is not None:
            if prompt_tokens < 0 or LENGTH_KEYS[0] in labels:
                raise ValueError(f"prompt_tokens must be at least 0 and no label besides, got {prompt_tokens}")
            key[LENGTH_KEYS[0]] = length_bin(prompt_tokens)
        number = self._interner.intern(tuple(text for pair in sorted(key.items()) for text in pair))
        if number == OTHER:
            self._over += 1
            return self._other
        self._keys.setdefault(number, key)
        return number

    def _check_class(self, cls: int) -> int:
        if cls not in self._keys:
            raise ValueError(f"cls must be a class that classify has returned, got {cls}")
        return cls

    # Time

    def _admits(self, t_ns: int, events: int = 1) -> bool:
        """Whether a call at this time is looked at further. If not, its events are refused as `future`."""
        admitted = self._clock.admits(check_time(t_ns))
        if not admitted:
            self._rejected["future"] += events
        return admitted

    def _moved(self, newest_ns: int, before_ns: int | None) -> None:
        """A new pane of the longest window brings a sweep."""
        pane = newest_ns // self._sweep_ns
        if before_ns is not None and pane > before_ns // self._sweep_ns:
            self._swept = pane
            for handle in self._silent(newest_ns):
                self._lose(handle, newest_ns)

    def _scopes(self, t_ns: int) -> list[Scope]:
        """Where something at a time is counted: the total, and the panes that are still there."""
        panes = (window.pane(t_ns) for window in self._windows)
        return [self._total, *(pane for pane in panes if pane is not None)]

    def _event(self, t_ns: int, times: int = 1) -> list[Scope]:
        """The scopes of an accepted event."""
        self._clock.event(t_ns, times)
        return self._scopes(t_ns)

    # Requests

    def arrive(self, t: int, prompt_tokens: int = 0, cached_tokens: int = 0, cls: int = 0) -> int:
        """A request reached the server. Its handle; -1 if it was refused, so that its later events are `unknown`."""
        self._check_class(cls)
        if not self._admits(t):
            return -1
        if not (0 <= prompt_tokens <= MAX_COUNT and 0 <= cached_tokens <= MAX_COUNT):
            self._rejected["invalid"] += 1
            return -1
        if not self._has_room(t):
            self._rejected["full"] += 1
            return -1
        self._clock.accept(t)
        handle, self._arrivals = self._arrivals, self._arrivals + 1
        self._flights[handle] = Flight(cls, arrived(t))
        self._first_arrival_ns = least(self._first_arrival_ns, t)
        for scope in self._event(t):
            tally = scope.tally(cls)
            tally.block.arrive(prompt_tokens)
            tally.cached_tokens += cached_tokens
        return handle

    def _has_room(self, t_ns: int) -> bool:
        """Whether another request fits. A full table is swept first, at most once a pane."""
        pane = t_ns // self._sweep_ns
        if len(self._flights) >= self.max_requests and (self._swept is None or pane > self._swept):
            silent = self._silent(t_ns)
            if silent:
                self._clock.accept(t_ns)  # may sweep them all by itself
                for handle in silent:
                    self._lose(handle, t_ns)
            self._swept = pane
        return len(self._flights) < self.max_requests

    def is_in_flight(self, handle: int) -> bool:
        """Whether this request arrived and has not ended."""
        return handle in self._flights

    def is_free(self, t: int, handle: int) -> bool:
        """Whether another may arrive in the name of this request: it is not in flight, or is found lost.

        If not, that other arrival is refused.
        """
        flight = self._flights.get(handle)
        if flight is None:
            return True
        if not self._admits(t):
            return False
        if self._is_silent(flight, t):
            self._clock.accept(t)
            self._lose(handle, t)
            return True
        self._rejected["negative" if t < flight.state.last_event_ns else "duplicate"] += 1
        return False

    def schedule(self, t: int, handles: Handles) -> None:
        """They were put into a running batch for the first time."""
        self._take(t, handles, "schedule")

    def prefill(self, t: int, handles: Handles) -> None:
        """The computation of their prompts began."""
        self._take(t, handles, "prefill")

    def preempt(self, t: int, handles: Handles) -> None:
        """They lost their places in the running batch."""
        self._take(t, handles, "preempt")

    def resume(self, t: int, handles: Handles) -> None:
        """They regained them."""
        self._take(t, handles, "resume")

    def step(self, t: int, handles: Handles, counts: Handles | None = None) -> None:
        """One step of the batch: for each request the number of tokens that became visible, by default one each."""
        listed = as_list(handles)
        tokens = [1] * len(listed) if counts is None else as_list(counts)
        if len(tokens) != len(listed):
            raise ValueError(f"counts must be as many as handles, {len(listed)}, got {len(tokens)}")
        events = [Event("tokens", t, k) if 1 <= k <= MAX_EMISSION else None for k in tokens]
        if self._take_each(t, listed, events):
            for scope in self._scopes(t):
                scope.batch_sizes[min(len(listed), MAX_BATCH)] += 1

    def tokens(self, times: Handles, handles: Handles, counts: Handles | None = None) -> None:
        """Tokens that each have a time of their own: as many steps of one request, but no batch is counted."""
        listed = as_list(handles)
        each = [1] * len(listed) if counts is None else as_list(counts)
        for t, handle, k in zip(as_list(times), listed, each, strict=True):
            self._take_each(t, [handle], [Event("tokens", t, k) if 1 <= k <= MAX_EMISSION else None])

    def end(self, t: int, handles: Handles, status: str, degraded: bool = False) -> None:
        """They ended. `lost` is no status to give."""
        if status not in STATUSES or status == "lost":
            raise ValueError(f"status must be one of {', '.join(STATUSES[:-1])}, got {status!r}")
        self._take(t, handles, "end", status, degraded)

    def lose(self, t: int, handles: Handles) -> None:
        """They were found lost by someone else."""
        self._take(t, handles, "end", "lost")

    def _take(self, t_ns: int, handles: Handles, kind: str, status: str = "", degraded: bool = False) -> None:
        listed = as_list(handles)
        self._take_each(t_ns, listed, [Event(kind, t_ns, 1, status, degraded)] * len(listed))

    def _take_each(self, t_ns: int, handles: Sequence[int], events: Sequence[Event | None]) -> int:
        """Takes an event (None: not a valid one) of each request, in order. How many were accepted."""
        if not self._admits(t_ns, len(handles)):
            return 0
        pairs = list(zip(handles, events, strict=True))
        # A refused event changes nothing, so the first that counts is judged by how things stand now.
        if any(self._counts(handle, event) for handle, event in pairs):
            self._clock.accept(t_ns)
        return sum(self._apply(handle, event) for handle, event in pairs)

    def _counts(self, handle: int, event: Event | None) -> bool:
        """Whether an event would be accepted, or find its request lost."""
        flight = self._flights.get(handle)
        if event is None or flight is None:
            return False
        if self._is_silent(flight, event.t_ns) or event.kind == "end":
            return True
        return step(flight.state, event, self.itl_rule).refused is None

    def _apply(self, handle: int, event: Event | None) -> bool:
        if event is None:
            self._rejected["invalid"] += 1
            return False
        flight = self._flights.get(handle)
        if flight is not None and self._is_silent(flight, event.t_ns):
            self._lose(handle, event.t_ns)
            flight = None
        if flight is None:
            self._rejected["unknown"] += 1
            return False
        if event.kind == "end":
            ended = finish(flight.state, event.t_ns, event.status, event.degraded)
            self._clamped += ended.clamped
            self._close(handle, ended, max(event.t_ns, flight.state.last_event_ns))
            return True
        after = step(flight.state, event, self.itl_rule)
        if after.refused is not None:
            self._rejected[after.refused] += 1
            return False
        flight.state = after.request
        self._observe_all(flight.cls, event, after.observed)
        return True

    def _observe_all(self, cls: int, event: Event, observed: Iterable[Observation]) -> None:
        if event.kind == "tokens":
            self._first_emission_ns = least(self._first_emission_ns, event.t_ns)
            self._last_emission_ns = max(self._last_emission_ns or 0, event.t_ns)
        for scope in self._event(event.t_ns):
            block = scope.tally(cls).block
            if event.kind == "tokens":
                block.emit(event.k)
            elif event.kind == "preempt":
                block.preempt()
            for observation in observed:
                block.observe(observation)

    def _is_silent(self, flight: Flight, t_ns: int) -> bool:
        return flight.state.last_event_ns + self.ttl_ns < t_ns

    def _silent(self, t_ns: int) -> list[int]:
        return [handle for handle, flight in self._flights.items() if self._is_silent(flight, t_ns)]

    def _lose(self, handle: int, detected_ns: int) -> None:
        """A lost request has ended at its last event; it is counted where that is detected."""
        if handle in self._flights:
            state = self._flights[handle].state
            self._close(handle, finish(state, state.last_event_ns, "lost"), detected_ns)

    def _close(self, handle: int, ended: Ended, counted_ns: int) -> None:
        flight = self._flights.pop(handle)
        verdicts = [judge(slo, ended, self._keys[flight.cls]) for slo in self.slos]
        for scope in self._event(counted_ns):
            scope.tally(flight.cls).block.end(ended, verdicts)
        for ring in self._burn or ():
            burnt = ring.pane(counted_ns)
            if burnt is not None:
                burnt.end(ended, verdicts)

    # By value

    def observe(self, metric: str, values: Any, unit: str = "s", cls: int = 0, t: int | None = None) -> None:
        """Values of a metric, one observation each; without a time, at the newest. What is no duration is counted."""
        if metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
        if unit not in ("s", "ns"):
            raise ValueError(f"unit must be 's' or 'ns', got {unit!r}")
        self._check_class(cls)
        listed = list(values) if isinstance(values, Iterable) else [values]
        found = [whole_ns(value, unit) for value in listed]
        if t is not None and not self._admits(t):
            return
        recordable = [ns for ns in found if isinstance(ns, int)]
        self._refused_values.update(reason for reason in found if isinstance(reason, str))
        if not recordable:
            return
        if t is not None:
            self._clock.accept(t)
        at_ns = self._clock.newest_ns if t is None else t
        for scope in [self._total] if at_ns is None else self._event(at_ns, len(recordable)):
            for ns in recordable:
                scope.tally(cls).block.observe(once(metric, ns))

    def gauge(
        self,
        t: int,
        running: int | None = None,
        waiting: int | None = None,
        kv_used: int | None = None,
        kv_total: int | None = None,
        batch_max: int | None = None,
    ) -> None:
        """Sets gauges. Those that are not given hold what they held."""
        given = dict(zip(GAUGES, (running, waiting, kv_used, kv_total, batch_max), strict=True))
        values = {name: value for name, value in given.items() if value is not None}
        if not self._admits(t):
            return
        if any(value < 0 for value in values.values()):
            self._rejected["invalid"] += 1
            return
        if self._gauged_ns is not None and t < self._gauged_ns:
            self._rejected["negative"] += 1
            return
        self._clock.accept(t)
        self._gauged_ns = t
        self._clock.first_event_ns = least(self._clock.first_event_ns, t)
        for name, value in values.items():
            if name in self._held:
                self._integrate(name, self._held[name], t)
            self._held[name] = Held(value, t)
            for scope in self._scopes(t):
                scope.area(name).top(value)

    def _integrate(self, name: str, held: Held, until_ns: int) -> None:
        self._total.area(name).hold(held.value, until_ns - held.since_ns)
        for window in self._windows:
            for index, ns in split(held.since_ns, until_ns, window.pane_ns, window.oldest):
                pane = window.at_index(index)
                if pane is not None:
                    pane.area(name).hold(held.value, ns)

    def add(self, t: int, **increments: float) -> None:
        """Increments of time, tokens, work and traffic, each by its name."""
        for name, value in increments.items():
            if name not in INCREMENTS:
                raise ValueError(f"an increment must be one of {', '.join(INCREMENTS)}, got {name!r}")
            if name in WHOLE_INCREMENTS:
                operator.index(value)  # type: ignore[arg-type]
        if not self._admits(t):
            return
        if not all(value >= 0 and math.isfinite(value) and round(value) < RANGE for value in increments.values()):
            self._rejected["invalid"] += 1
            return
        self._clock.accept(t)
        for scope in self._event(t):
            scope.sums.update({name: round(value) for name, value in increments.items()})
            scope.times.update(increments.keys())

    def count(self, t: int, name: str, n: int = 1, cls: int = 0) -> None:
        """Counts something by name: events of memory and of the semantic cache, or tokens of no request's events."""
        if name not in EVENTS + TOKEN_COUNTS:
            raise ValueError(f"name must be one of {', '.join(EVENTS + TOKEN_COUNTS)}, got {name!r}")
        self._check_class(cls)
        if not self._admits(t):
            return
        if not 0 <= n <= MAX_COUNT:
            self._rejected["invalid"] += 1
            return
        self._clock.accept(t)
        scopes = self._event(t)
        for scope in scopes if n else ():  # nothing counted lists no class
            tally = scope.tally(cls)
            if name == "prompt_tokens":
                tally.block.prompt_tokens += n
            elif name == "output_tokens":
                tally.block.emit(n)
            elif name == "cached_tokens":
                tally.cached_tokens += n
            else:
                tally.counts[name] += n

    def ready(self, t: int) -> None:
        """The process is ready to serve. Only the first counts."""
        if not self._admits(t):
            return
        if self._ready_ns is not None:
            self._rejected["duplicate"] += 1
            return
        self._clock.accept(t)
        self._ready_ns = t
        self._event(t)

    # Reading

    def snapshot(self, t: int | None = None) -> dict[str, Any]:
        """Everything, as it stands at a time; by default at the newest."""
        now_ns = self._clock.newest_ns if t is None else check_time(t)
        windows = [window.read(now_ns) for window in self._windows]
        return {
            "t_ns": now_ns,
            "newest_ns": self._clock.newest_ns,
            "first_event_ns": self._clock.first_event_ns,
            "first_arrival_ns": self._first_arrival_ns,
            "first_emission_ns": self._first_emission_ns,
            "last_emission_ns": self._last_emission_ns,
            "ready_ns": self._ready_ns,
            "scale": self.scale,
            "itl_rule": self.itl_rule,
            "rejected": {reason: self._rejected[reason] for reason in REASONS if self._rejected[reason]},
            "refused_values": dict(self._refused_values),
            "clamped": self._clamped,
            "over": self._over,
            "windows": self._clock.reading(self._windows, now_ns),
            "classes": [self._class_reading(cls, windows, now_ns) for cls in sorted(self._total.classes)],
            "all": {
                "open": self._open(self._flights.values(), now_ns),
                "total": self._total.all_as_dict(),
                "windows": [window.all_as_dict() for window in windows],
            },
            "gauges": {
                "total": {name: self._gauge_total(name, now_ns) for name in GAUGES},
                "windows": [
                    {name: self._gauge_figure(name, window, scope, now_ns) for name in GAUGES}
                    for window, scope in zip(self._windows, windows, strict=True)
                ],
            },
            "added": {
                "total": self._total.added_as_dict(),
                "windows": [window.added_as_dict() for window in windows],
            },
            "batch_sizes": {
                "total": dict(self._total.batch_sizes),
                "windows": [dict(window.batch_sizes) for window in windows],
            },
            "burn": self._burn_reading(now_ns),
            "kv": None if self.kv is None else self.kv.snapshot(t),
        }

    def _class_reading(self, cls: int, windows: Sequence[Scope], now_ns: int | None) -> dict[str, Any]:
        own = [flight for flight in self._flights.values() if flight.cls == cls]
        return {
            "key": dict(self._keys[cls]),
            "other": cls == self._other,
            "open": self._open(own, now_ns),
            "total": self._total.class_as_dict(cls),
            "windows": [window.class_as_dict(cls) for window in windows],
        }

    def _open(self, flights: Iterable[Flight], now_ns: int | None) -> dict[str, Any]:
        """How long requests in flight have been silent: since their last emission; without one, since they arrived."""
        now_ns = now_ns or 0  # without a time there is no request
        gaps: dict[str, list[int]] = {"streams": [], "waits": []}
        for flight in flights:
            state = flight.state
            if state.last_ns is None:
                gaps["waits"].append(max(0, now_ns - state.arrive_ns))
            else:
                gaps["streams"].append(max(0, now_ns - state.last_ns))
        return {
            name: {
                "n": len(found),
                "oldest_ns": max(found, default=None),
                "over": [sum(gap > limit_ns for gap in found) for limit_ns in SILENCES_NS],
            }
            for name, found in gaps.items()
        }

    def _gauge_total(self, name: str, now_ns: int | None) -> dict[str, Any] | None:
        if name not in self._held or now_ns is None:
            return None
        held, area = self._held[name], Area()
        area.merge(self._total.area(name))
        area.hold(held.value, now_ns - held.since_ns)
        return area.figure(held.value)

    def _gauge_figure(self, name: str, window: Panes[Scope], scope: Scope, now_ns: int | None) -> dict[str, Any] | None:
        """A gauge over a window that was read into a scope.

        Absent if it was not set for longer than that, or if the window has nothing of it: it was set later.
        """
        if name not in self._held or now_ns is None:
            return None
        held = self._held[name]
        if now_ns - held.since_ns > window.width_ns:
            return None
        oldest = max(window.oldest, window.covered(now_ns).start)
        for _, ns in split(held.since_ns, now_ns, window.pane_ns, oldest):
            scope.area(name).hold(held.value, ns)
        return scope.area(name).figure(held.value) if name in scope.gauges else None

    def _burn_reading(self, now_ns: int | None) -> list[dict[str, Any]] | None:
        if self._burn is None:
            return None
        return [
            {
                "width_ns": ring.width_ns,
                "true_width_ns": ring.true_width_ns(now_ns, self._clock.first_event_ns),
                **ring.read(now_ns).as_dict(),
            }
            for ring in self._burn
        ]


def as_list(handles: Handles) -> list[int]:
    """One handle, or several, as several."""
    return [operator.index(each) for each in handles] if isinstance(handles, Iterable) else [operator.index(handles)]
