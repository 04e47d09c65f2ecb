"""Whole recorded runs as lists of calls."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meters import Call

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = ("run.jsonl.gz", "run_async.jsonl.gz")


def events(name: str) -> Iterator[dict[str, Any]]:
    """The lines of a recorded run."""
    lines = gzip.decompress((FIXTURES / name).read_bytes()).splitlines()
    assert lines
    return map(json.loads, lines)


def recorded_calls(name: str) -> Iterator[Call]:
    """A recorded run as calls, line by line; ids are handles' names."""
    for event in events(name):
        kind, t = event["ev"], event["t_ns"]
        match kind:
            case "arrive":
                tokens = event["prompt_tokens"]
                cls = f"class of {event['id']}"
                yield "classify", {"prompt_tokens": tokens, **event["labels"]}, cls
                yield "arrive", {"t": t, "prompt_tokens": tokens, "cls": cls}, event["id"]
            case "tokens":
                yield "step", {"t": t, "handles": [event["id"]], "counts": [event.get("k", 1)]}
            case "schedule" | "prefill" | "preempt" | "resume":
                yield kind, {"t": t, "handles": event["id"]}
            case "end":
                degraded = event.get("degraded", False)
                yield kind, {"t": t, "handles": event["id"], "status": event["status"], "degraded": degraded}
            case "gauge":
                yield kind, {key: value for key, value in event.items() if key not in ("ev", "t_ns")} | {"t": t}
            case "kv_lookup" if not event["preempted"]:  # once per request, at its admission
                yield "count", {"t": t, "name": "cached_tokens", "n": event["hit"]}
            case "ready":
                yield kind, {"t": t}


def kv_calls(name: str) -> Iterator[Call]:
    """What a recorded run tells of its KV cache, as calls of a tracker in a meter."""
    for event in events(name):
        kind, t = event["ev"], event["t_ns"]
        match kind:
            case "kv_store" | "kv_evict":
                where = {"tier": event.get("tier", "gpu"), "group": event.get("group", 0)}
                yield kind.replace("_", "."), {"t": t, "hashes": event["hashes"], **where}
            case "kv_lookup":
                asked = {"queried_tokens": event["queried"], "hit_tokens": event["hit"]}
                yield "kv.lookup", {"t": t, **asked, "preempted": event["preempted"]}
