"""Logs in our lines, the ill-behaved ones above all, as hypothesis draws them; and what may be asked of them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from tokenpulse.model import DAY_NS, SLO, TTL_NS

SECOND = 10**9
STATUSES = ("stop", "stop", "length", "abort", "error", "timeout", "oom", "reject")

# Clocks run on, stand still, jump and run back.
STEPS = (0, 0, 0, 1, 2, 7, 1000, 10**6, 30 * 10**6, SECOND, 60 * SECOND, TTL_NS - 1, TTL_NS, TTL_NS + 1, 5 * TTL_NS)
JUMPS = (-1, -5, -(10**6), -2 * TTL_NS, DAY_NS, DAY_NS + 1, 3 * DAY_NS)
steps = st.one_of(st.sampled_from(STEPS), st.sampled_from(STEPS), st.sampled_from(JUMPS), st.integers(0, 200))
gaps = st.one_of(st.sampled_from((0, 0, 1, 3, 50, 10**6)), st.integers(-3, 10**7))
sizes = st.one_of(st.just(1), st.integers(1, 9), st.sampled_from((127, 128, 10**5, 2**32 - 1)))
ids = st.sampled_from(("a", "b", "c", 7, "7"))
lengths = st.sampled_from((0, 1, 127, 128, 511, 512, 40_000, 2**40))
labels = st.dictionaries(st.sampled_from(("tenant", "tier")), st.sampled_from(("x", "y", 1, "1", True)), max_size=2)
MALFORMED = (
    b"",
    b"   \r",
    b"{",
    b"nonsense",
    b"\xff\xfe",
    b"[1, 2]",
    b"3",
    b"{}",
    b'{"ev": "unheard of", "t_ns": 5}',
    b'{"ev": "tokens", "t_ns": 5}',
    b'{"ev": "tokens", "t_ns": "5", "id": "a"}',
    b'{"ev": "tokens", "t_ns": 5, "id": "a", "k": 0}',
    b'{"ev": "end", "t_ns": 5, "id": "a"}',
    b'{"ev": "end", "t_ns": 5, "id": "a", "status": "lost"}',
    b'{"id": "a", "arrive_ns": 5, "token_ns": [6, 7], "n": [1]}',
    b'{"id": "a", "arrive_ns": 5, "dt_ns": [-6]}',
    b'{"id": "a", "arrive_ns": 5, "token_ns": [6, null]}',
    b'{"id": "a", "arrive_ns": 5.5}',
    b'{"id": null, "arrive_ns": 5}',
    b"[" * 129,
)


@st.composite
def event_lines(draw: st.DrawFn, t: int) -> dict[str, Any]:
    """One event; mostly of a request, mostly tokens."""
    kinds = (
        "arrive",
        "arrive",
        "schedule",
        "prefill",
        "tokens",
        "tokens",
        "tokens",
        "preempt",
        "resume",
        "end",
        "gauge",
    )
    kind = draw(st.sampled_from(kinds))
    line: dict[str, Any] = {"t_ns": t, "ev": kind}
    if kind == "gauge":
        return line
    line["id"] = draw(ids)
    if kind == "arrive":
        line |= {"prompt_tokens": draw(lengths), "labels": draw(labels)}
    elif kind == "tokens":
        line["k"] = draw(sizes)
    elif kind == "end":
        line |= {"status": draw(st.sampled_from(STATUSES)), "degraded": draw(st.booleans())}
    return line


@st.composite
def request_lines(draw: st.DrawFn, t: int) -> dict[str, Any]:
    """A finished request in one of its three shapes, its times mostly in order."""
    line: dict[str, Any] = {"id": draw(ids), "arrive_ns": t, "prompt_tokens": draw(lengths), "labels": draw(labels)}
    at, times = t, []
    for gap in draw(st.lists(gaps, max_size=6)):
        at = max(0, at + gap)
        times.append(at)
    shape = draw(st.sampled_from(("token_ns", "dt_ns", "output_tokens")))
    if shape == "output_tokens":
        line["output_tokens"] = draw(st.sampled_from((0, 1, 2, 5, 128, 2**40)))
        line |= dict(zip(draw(st.permutations(("first_token_ns", "last_token_ns"))), times, strict=False))
    else:
        line[shape] = times if shape == "token_ns" else [each - t for each in times]
        if draw(st.booleans()):
            line["n"] = [draw(sizes) for _ in times]
    moments = st.one_of(st.sampled_from(times or [t]), st.integers(max(0, t - 3), t + 100))
    for name in ("schedule_ns", "prefill_ns", "end_ns"):
        if draw(st.booleans()):
            line[name] = draw(moments)
    for name in ("preempt_ns", "resume_ns"):
        line[name] = draw(st.lists(moments, max_size=3))
    if draw(st.booleans()):
        line |= {"status": draw(st.sampled_from(STATUSES)), "degraded": draw(st.booleans())}
    return line


@st.composite
def inputs(draw: st.DrawFn) -> bytes:
    t = draw(st.sampled_from((0, 0, 10, 5 * SECOND, DAY_NS)))
    lines: list[bytes] = []
    for step in draw(st.lists(steps, max_size=25)):
        t = max(0, t + step)
        choice = draw(st.integers(0, 19))
        if choice < 15:
            lines.append(json.dumps(draw(event_lines(t))).encode())
        elif choice < 18:
            lines.append(json.dumps(draw(request_lines(t))).encode())
        else:
            lines.append(draw(st.sampled_from(MALFORMED)))
        if choice == 0:  # the same line again
            lines.append(lines[-1])
    content = b"\n".join(lines) + draw(st.sampled_from((b"", b"\n")))
    return gzip.compress(content) if draw(st.integers(0, 9)) == 9 else content


seconds = st.sampled_from((1e-9, 1e-7, 1e-6, 1e-3, 0.05, 1.0, 4000.0))
slos = st.builds(
    SLO,
    ttft=seconds,
    tpot=seconds,
    e2e=st.none() | seconds,
    itl=st.none() | seconds,
    where=st.sampled_from(({}, {}, {"tenant": "x"}, {"tenant": "x", "tier": "1"})),
)
keys = st.lists(st.sampled_from(("tenant", "tier", "prompt_length", "output_length")), max_size=3, unique=True)
rules = st.sampled_from(("token", "chunk", "stamp"))
widths = st.none() | st.sampled_from((1, 7, 1000, SECOND, 3600 * SECOND))
ttls = st.sampled_from((TTL_NS, TTL_NS, 1, 5, 10 * DAY_NS))


@st.composite
def options(draw: st.DrawFn, times: Iterable[int]) -> dict[str, Any]:
    """A cut, mostly at some of these times, and a bound of the timeline, as arguments by name."""
    there = sorted({t for t in times if 0 <= t < 2**63 - 1} | {0})
    start, end = sorted((draw(st.sampled_from(there)), draw(st.sampled_from(there))))
    end += draw(st.sampled_from((0, 0, 0, 1))) if start < end else 1
    given = draw(st.sampled_from(((), ("from_ns",), ("to_ns",), ("from_ns", "to_ns"), ("from_ns", "to_ns"))))
    cut = {name: t for name, t in (("from_ns", start), ("to_ns", end)) if name in given}
    return {**cut, "timeline_bins": draw(st.sampled_from((2, 2, 3, 5, 240, 9_999, 10_000)))}


def arrivals_in(contents: Iterable[bytes]) -> list[int]:
    """The times in logs that may be arrivals."""
    plain = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content for content in contents)
    return [int(digits) for each in plain for digits in re.findall(rb'"(?:t_ns|arrive_ns)": ?(\d{1,19})\b', each)]
