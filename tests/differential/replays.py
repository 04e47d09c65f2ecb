"""Logs of an engine, the ill-behaved ones above all, put through a meter by the core and by the reference."""

from __future__ import annotations

import gzip
import json
from random import Random
from typing import Any

from agreement import FORMAT_ERRORS, comparable
from logs import MALFORMED

from tokenpulse import _core
from tokenpulse.model import DAY_NS, SLO, TTL_NS
from tokenpulse.reference import replay as oracle

SECOND = 10**9
STEPS = (0, 0, 0, 1, 7, 10**6, 30 * 10**6, SECOND, SECOND, 60 * SECOND, TTL_NS - 1, TTL_NS + 1, 3 * TTL_NS)
JUMPS = (-1, -5, -(10**6), -2 * TTL_NS, DAY_NS, DAY_NS + 1, 3 * DAY_NS)
STARTS = (0, 1, SECOND - 3, 5 * SECOND, 7 * DAY_NS + 1)
IDS = ("a", "b", "c", "\u00e9" * 9, 7)
STATUSES = ("stop", "stop", "length", "abort", "error", "timeout", "oom", "reject")
LENGTHS = (0, 1, 127, 128, 600, 40_000, 2**40)
ODD = (-1, 0, 1.0, 1.5, "1", True, [1], {}, 2**62, 2**63 - 1, 2**63, 2**64, 2**70, -(2**63), -(2**70), 1e300, 1e18)
ODD_TEXTS = ("NaN", "Infinity", "-Infinity", "null", "-0", "-0.0", "1e400", "1" * 5000, "0.5", "9223372036854775807.0")
HASHES = (1, 2, 3, 4, 2**63 + 1, -1, 2**64 - 1, "5", "-6")
ODD_HASHES = (2**64, -(2**63) - 1, "x", "", "-", 1.0, None, True, "1" * 50, [1])

SLOS = (SLO("tight", ttft=1e-3, tpot=1e-5, itl=5e-3, where={"tenant": "x"}), SLO("wide", ttft=1.0, tpot=0.02))


class Odd:
    """A number that JSON writers would not write, as text."""

    def __init__(self, text: str) -> None:
        self.text = text


def rendered(fields: dict[str, Any]) -> bytes:
    parts = (f"{json.dumps(k)}:{v.text if isinstance(v, Odd) else json.dumps(v)}" for k, v in fields.items())
    return ("{" + ",".join(parts) + "}").encode()


def log_of(rng: Random) -> bytes:
    """One log: mostly event lines, or mostly request lines, or both."""
    t, lines = rng.choice(STARTS), []
    of_requests, mischief = rng.choice((0.0, 0.0, 0.1, 0.7, 1.0)), rng.choice((0.0, 0.05, 0.3))
    for _ in range(rng.randint(1, 60)):
        t = max(0, t + rng.choice(STEPS if rng.random() < 0.93 else JUMPS))
        if rng.random() < of_requests:
            line = request(rng, t)
        else:
            line = rng.choice((of_engine, of_request, of_request, of_request))(rng, t)
        if rng.random() < mischief:
            line[rng.choice(list(line))] = rng.choice((*ODD, *map(Odd, ODD_TEXTS)))
        if rng.random() < 0.2:
            order = list(line)
            rng.shuffle(order)
            line = {name: line[name] for name in order}
        lines.append(rng.choice(MALFORMED) if rng.random() < mischief / 4 else rendered(line))
    content = b"\n".join(lines) + rng.choice((b"", b"\n"))
    if rng.random() < 0.05:
        content = gzip.compress(content)
        content = content[: len(content) - rng.choice((0, 0, 9))]
    return content


def of_request(rng: Random, t: int) -> dict[str, Any]:
    kinds = ("arrive", "arrive", "schedule", "prefill", *["tokens"] * 5, "preempt", "resume", "end")
    line: dict[str, Any] = {"t_ns": t, "id": rng.choice(IDS), "ev": rng.choice(kinds)}
    match line["ev"]:
        case "arrive":
            line |= bearing(rng)
        case "tokens" if rng.random() < 0.4:
            line["k"] = rng.choice((1, 2, 5, 300, 2**32 - 1))
        case "end":
            line |= {"status": rng.choice(STATUSES), "degraded": rng.random() < 0.5}
    return line


def bearing(rng: Random) -> dict[str, Any]:
    given = {"prompt_tokens": rng.choice(LENGTHS), "cached_tokens": rng.choice(LENGTHS)}
    labels = {name: rng.choice(("x", "y", 1, True)) for name in ("tenant", "tier") if rng.random() < 0.6}
    return {name: value for name, value in given.items() if rng.random() < 0.7} | {"labels": labels}


def of_engine(rng: Random, t: int) -> dict[str, Any]:
    kind = rng.choice(
        ("gauge", "gauge", "add", "count", "kv_store", "kv_store", "kv_evict", "kv_lookup", "kv_clear", "ready")
    )
    line: dict[str, Any] = {"t_ns": t, "ev": kind}
    some: dict[str, Any] = {}
    match kind:
        case "gauge":
            some = {name: rng.randint(0, 9) for name in ("running", "waiting", "kv_used", "kv_total", "batch_max")}
        case "add":
            names = ("gpu_active_ns", "comm_ns", "dequant_ns", "prefill_tokens", "decode_tokens")
            some = {name: rng.choice((0, 5, 10**9)) for name in names}
            some |= {name: rng.choice((3, 0.5, 1.5, 2e12)) for name in ("flops", "bytes_moved")}
        case "count":
            names = (
                "oom_event",
                "semantic_lookup",
                "semantic_hit",
                "prompt_tokens",
                "cached_tokens",
                "output_tokens",
                "no",
            )
            line["name"] = rng.choice(names)
            some = {"n": rng.choice((0, 1, 7, 2**40))}
        case "kv_store" | "kv_evict":
            line["hashes"] = [rng.choice(HASHES) for _ in range(rng.randint(0, 4))]
            if rng.random() < 0.05:
                line["hashes"].insert(rng.randint(0, len(line["hashes"])), rng.choice(ODD_HASHES))
            some = {"tier": rng.choice(("gpu", "gpu", "cpu", "tape")), "group": rng.choice((0, 0, 1, 4095, 4096, -1))}
        case "kv_lookup":
            line |= {"queried": rng.choice((0, 5, 9)), "hit": rng.choice((0, 5, 7))}
            some = {"preempted": rng.random() < 0.3}
        case "ready":
            some = {name: rng.choice((1, 16, 1.5e15, 0)) for name in ("peak_flops", "bandwidth_bytes_per_second")}
            some |= {name: rng.choice((8, 16, 0)) for name in ("kv_block_tokens", "gpus")}
    return line | {name: value for name, value in some.items() if rng.random() < 0.6}


def request(rng: Random, t: int) -> dict[str, Any]:
    """A finished request in one of its shapes, its times mostly in order."""
    line: dict[str, Any] = {"id": rng.choice(IDS), "arrive_ns": t, **bearing(rng)}
    at, times = t, []
    for _ in range(rng.randint(0, 7)):
        at = max(0, at + rng.choice((0, 1, 50, 10**6, 10**9, -1, 10**6)))
        times.append(at)
    shape = rng.choice(("token_ns", "token_ns", "dt_ns", "output_tokens"))
    if shape == "output_tokens":
        line[shape] = rng.choice((0, 1, 2, 5, 2**40))
        names = [name for name in ("first_token_ns", "last_token_ns") if rng.random() < 0.7]
        line |= dict(zip(names, times, strict=False))
    else:
        line[shape] = times if shape == "token_ns" else [each - t for each in times]
        if rng.random() < 0.3:
            line["n"] = [rng.choice((1, 2, 9, 300)) for _ in times]
    moments = (*times, t, t + 3, at + 10**6)
    for name in ("schedule_ns", "prefill_ns", "end_ns"):
        if rng.random() < 0.5:
            line[name] = rng.choice(moments)
    for name in ("preempt_ns", "resume_ns"):
        if rng.random() < 0.3:
            line[name] = [rng.choice(moments) for _ in range(rng.randint(0, 2))]
    if rng.random() < 0.6:
        line |= {"status": rng.choice(STATUSES), "degraded": rng.random() < 0.5}
    return line


class Seen:
    """The moments that were told of, and what the meter held at some of them."""

    def __init__(self, driven: Any, readings: int = 6) -> None:
        self.driven = driven
        self.readings = readings
        self.moments: list[int] = []
        self.held: list[Any] = []

    def __call__(self, t: int) -> None:
        self.moments.append(t)
        # The first few, and then ever fewer.
        if len(self.held) < self.readings and len(self.moments) & (len(self.moments) - 1) == 0:
            self.held.append(comparable(self.driven.reading(t)))

    def outcome(self, result: Any) -> Any:
        return comparable([result, self.moments, self.held, self.driven.reading()])


def by_core(driven: Any, content: bytes, asked: dict[str, Any], way: dict[str, Any]) -> Any:
    seen = Seen(driven)
    try:
        return seen.outcome(_core.replay_bytes(driven.meter, "log", content, **asked, on_pane=seen, **way))
    except FORMAT_ERRORS:
        return "unknown format"


def by_reference(driven: Any, content: bytes, asked: dict[str, Any]) -> Any:
    seen = Seen(driven)
    try:
        return seen.outcome(oracle.replay_lines(driven.meter, "log", content, **asked, on_pane=seen))
    except FORMAT_ERRORS:
        return "unknown format"
