"""A log's lines put through a meter one by one, in Python: what reading a log through a meter must come to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tokenpulse import IdMap, Meter

SECOND_NS = 10**9
GAUGES = ("running", "waiting", "kv_used", "kv_total", "batch_max")


def drive(lines: Iterable[str], meter: Meter, evaluate: Callable[[int], None], by: tuple[str, ...] = ()) -> None:
    """Each event line in order; `evaluate` before the first one at or past each second, and at the newest time."""
    ids, due, newest = IdMap(meter), None, 0
    for line in lines:
        event = json.loads(line)
        t = event["t_ns"]
        newest = max(newest, t)
        if due is None:
            due = t // SECOND_NS * SECOND_NS + SECOND_NS if t % SECOND_NS else t
        while due <= t:
            evaluate(due)
            due += SECOND_NS
        _apply(event, meter, ids, by)
    if due is not None and newest > due - SECOND_NS:
        evaluate(newest)


def _apply(event: dict[str, Any], meter: Meter, ids: IdMap, by: tuple[str, ...]) -> None:
    t, kind, name = event["t_ns"], event["ev"], event.get("id")
    if kind == "arrive":
        labels = {key: event["labels"][key] for key in by if key in event.get("labels", {})}
        cls = meter.classify(**labels) if by else 0
        ids.arrive(t, name, event.get("prompt_tokens", 0), event.get("cached_tokens", 0), cls)
    elif kind == "tokens":
        ids.step(t, [name], [event.get("k", 1)])
    elif kind == "end":
        ids.end(t, [name], event["status"], event.get("degraded", False))
    elif kind in ("schedule", "prefill", "preempt", "resume"):
        getattr(ids, kind)(t, [name])
    elif kind == "gauge":
        meter.gauge(t, **{gauge: event[gauge] for gauge in GAUGES if gauge in event})
    elif kind == "ready":
        meter.ready(t)
    elif meter.kv is not None:
        _apply_kv(event, meter.kv)


def _apply_kv(event: dict[str, Any], tracker: Any) -> None:
    t, kind = event["t_ns"], event["ev"]
    if kind in ("kv_store", "kv_evict"):
        call = tracker.store if kind == "kv_store" else tracker.evict
        call(t, event["hashes"], event.get("tier", "gpu"), event.get("group", 0))
    elif kind == "kv_lookup":
        tracker.lookup(t, event["queried"], event["hit"], event.get("preempted", False))


def lines_of(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Events as lines."""
    for event in events:
        yield json.dumps(event)
