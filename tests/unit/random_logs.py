"""Random logs of our own lines, small and full of odd cases, the same for the same seed."""

from __future__ import annotations

import json
import random
from typing import Any

SECOND = 1_000_000_000


def request_lines(seed: int, n: int, *, start_ns: int = 0, tenants: int = 5, span_ns: int = 20 * SECOND) -> bytes:
    """Finished requests: all statuses, several tokens an emission, preemptions, no tokens, untimed tokens."""
    rng = random.Random(seed)
    lines = [_request(rng, f"{seed}-{i}", start_ns, tenants, span_ns) for i in range(n)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _request(rng: random.Random, name: str, start_ns: int, tenants: int, span_ns: int) -> dict[str, Any]:
    arrive = start_ns + rng.randrange(span_ns)
    line: dict[str, Any] = {"id": name, "arrive_ns": arrive, "prompt_tokens": rng.choice([0, 10, 300, 5000])}
    line["labels"] = {"tenant": f"t{rng.randrange(tenants)}"} if rng.random() < 0.9 else {}
    line["status"] = rng.choices(
        ("stop", "length", "abort", "error", "timeout", "oom", "reject"), (9, 3, 1, 1, 1, 1, 1)
    )[0]
    t = arrive + rng.randrange(1, SECOND // 10)
    if rng.random() < 0.8:
        line["schedule_ns"] = t
    if rng.random() < 0.1:
        line |= {
            "output_tokens": rng.randrange(4),
            "first_token_ns": t + 10,
            "last_token_ns": t + 10 + rng.randrange(SECOND),
        }
        return line
    times, counts = [], []
    for _ in range(rng.choice([0, 1, 2, 5, 40])):
        t += rng.choice([0, rng.randrange(1_000, 2_000_000), rng.randrange(1_000_000, 60_000_000)])
        times.append(t)
        counts.append(rng.choice([1, 1, 1, 4]))
    line |= {"token_ns": times, "n": counts, "end_ns": t + rng.randrange(1000), "degraded": rng.random() < 0.1}
    if len(times) > 2 and rng.random() < 0.3:
        line |= {"preempt_ns": [times[1]], "resume_ns": [times[2]]}
    return line


def event_lines(seed: int, n: int, *, start_ns: int = 0, tenants: int = 5, left_open: bool = False) -> bytes:
    """The same as events, all of them in the order of time; without `left_open` every request ends."""
    rng = random.Random(seed)
    events: list[dict[str, Any]] = []
    for i in range(n):
        line = _request(rng, f"e{seed}-{i}", start_ns, tenants, 20 * SECOND)
        t = line["arrive_ns"]
        name = line["id"]
        events.append(
            {"t_ns": t, "id": name, "ev": "arrive", "prompt_tokens": line["prompt_tokens"], "labels": line["labels"]}
        )
        if "schedule_ns" in line:
            events.append({"t_ns": line["schedule_ns"], "id": name, "ev": "schedule"})
        for at, k in zip(line.get("token_ns", ()), line.get("n", ()), strict=True):
            t = at
            events.append({"t_ns": at, "id": name, "ev": "tokens", "k": k})
        if not left_open or rng.random() < 0.5:
            events.append(
                {"t_ns": max(t, line.get("schedule_ns", t)), "id": name, "ev": "end", "status": line["status"]}
            )
    events.sort(key=lambda event: event["t_ns"])
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)
