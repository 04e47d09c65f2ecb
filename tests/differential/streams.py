"""Streams of calls of a meter, the ill-behaved ones above all, as hypothesis draws them.

Requests are named by how many arrivals were tried before theirs, so that the two engines' handles are never compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from meters import Call

from tokenpulse.model import DAY_NS, METRICS, SLO, TTL_NS

SECOND = 10**9
STATUSES = ("stop", "stop", "stop", "stop", "length", "length", "abort", "error", "timeout", "oom", "reject")

NARROW = ([60], [60, 600], [600, 6000], [60, 120, 6000], [6000], [])
"""Windows in which a step of a few ns enters a new pane."""

SMALL = (*range(13), *range(13), 0, 0, 1, 2, 10, 20, 59, 60, 61)
LARGE = (100, 599, 601, 6000, 7000, SECOND, 20 * SECOND, TTL_NS, TTL_NS + 1)
BACK = (-1, -2, -5, -60, -700, -7000, -3 * SECOND, -2 * TTL_NS)
FAR = (DAY_NS, DAY_NS + 1, DAY_NS + 1, 3 * DAY_NS, 40 * DAY_NS)
steps = st.sampled_from(SMALL * 12 + LARGE * 2 + BACK * 2 + FAR)
counts = st.sampled_from((1, 1, 1, 2, 3, 4, 5, 9) * 3 + (2**32 - 1, 0, -1, 2**32))
lengths = st.sampled_from((0, 1, 5, 127, 128, 200, 300, 512, 40_000, 2**40) * 4 + (2**40 + 1, -1))
gauged = st.sampled_from((None, 0, 1, 2, 3, 4, 5) * 3 + (2**40, -1))
whole = st.sampled_from((0, 1, 7, 10**12, -1))
work = st.one_of(whole, st.sampled_from((0.5, 1.5, 2.5, 1e15, -0.0, -0.5, math.nan, math.inf, -math.inf)))
values = st.one_of(
    st.integers(0, 9),
    st.sampled_from((1e-9, 2e-6, 0.5, 1e300, -1.0, -1e-12, -0.0, math.nan, math.inf, -math.inf, 5000)),
)
labels = st.dictionaries(st.sampled_from(("tenant", "tier")), st.sampled_from(("x", "y")), max_size=2)
names = st.sampled_from(
    ("oom_event", "semantic_lookup", "semantic_hit", "prompt_tokens", "cached_tokens", "output_tokens")
)

# A call as it is drawn: its step in time, its method, its arguments. Requests and classes are named by how many
# arrivals and classifications ago they were, so that a stream from which some calls are taken out is as good as any.
RECENT = (0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 7)
FORGED = (-1, -7, 2**62)
handles = st.lists(st.sampled_from(RECENT * 4 + FORGED), min_size=1, max_size=3)
classes = st.sampled_from((None, 0, 0, 0, 1, 2))


def method(called: str, /, optional: Mapping[str, Any] | None = None, **arguments: Any) -> st.SearchStrategy[Any]:
    return st.tuples(steps, st.just(called), st.fixed_dictionaries(arguments, optional=dict(optional or {})))


METHODS = {
    "arrive": method("arrive", prompt_tokens=lengths, cached_tokens=lengths, cls=classes),
    "step": method("step", handles=handles),
    "uneven step": method("step", pairs=st.lists(st.tuples(st.sampled_from(RECENT), counts), min_size=1, max_size=3)),
    "end": method("end", handles=handles, status=st.sampled_from(STATUSES), degraded=st.booleans()),
    "schedule": method("schedule", handles=handles),
    "prefill": method("prefill", handles=handles),
    "preempt": method("preempt", handles=handles),
    "resume": method("resume", handles=handles),
    "empty": method("step", handles=st.just([])),
    "classify": method("classify", {"prompt_tokens": st.sampled_from((5, 200))}, labels=labels),
    "observe": method(
        "observe",
        metric=st.sampled_from(METRICS),
        values=st.lists(values, max_size=4),
        unit=st.sampled_from(("s", "ns")),
        cls=classes,
        timeless=st.booleans(),
    ),
    "gauge": method("gauge", running=gauged, waiting=gauged, batch_max=gauged),
    "add": method("add", {"comm_ns": whole, "flops": work, "bytes_moved": work}),
    "count": method("count", name=names, n=st.sampled_from((1, 5, 0, 2**40, 2**40 + 1, -1)), cls=classes),
    "ready": method("ready"),
}
TIMES_OF = {
    "arrive": 6,
    "step": 9,
    "uneven step": 4,
    "end": 5,
    "classify": 2,
    "schedule": 2,
    "preempt": 2,
    "resume": 2,
    "gauge": 3,
}
calls_drawn = st.sampled_from([name for name in METHODS for _ in range(TIMES_OF.get(name, 1))]).flatmap(METHODS.get)

PARTS = st.tuples(*[st.lists(calls_drawn, max_size=16)] * 6)
"""Several lists, each of which shrinks to nothing: one alone would mostly be short."""


def calls_of(start_ns: int, drawn: Iterable[tuple[int, str, dict[str, Any]]]) -> list[Call]:
    """Calls at absolute times and with names, out of calls as they are drawn."""
    calls: list[Call] = []
    arrivals = classified = 0
    t = start_ns
    for step, name, arguments in drawn:
        meant = dict(arguments)
        at = max(0, t + step)
        if step != DAY_NS + 1:  # such a clock is back for the next call; others that are a day ahead stay there
            t = at
        meant["t"] = -1 - step % 9 if meant.pop("is_before_zero", False) else at
        if "pairs" in meant:
            pairs = meant.pop("pairs")
            meant["handles"] = [back for back, _ in pairs]
            meant["counts"] = [k for _, k in pairs]
        if "handles" in meant:
            meant["handles"] = [handle_of(arrivals, back) for back in meant["handles"]]
        if "cls" in meant:
            back = meant["cls"]
            meant["cls"] = f"class {classified - 1 - back}" if back is not None and back < classified else 0
        if meant.pop("timeless", False):
            del meant["t"]
        if name == "arrive":
            calls.append((name, meant, f"handle {arrivals}"))
            arrivals += 1
        elif name == "classify":
            del meant["t"]
            calls.append((name, meant | meant.pop("labels"), f"class {classified}"))
            classified += 1
        else:
            calls.append((name, meant))
    return calls


def handle_of(arrivals: int, back: int) -> str | int:
    """The handle that came so many arrivals before the latest; a forged one stands for itself."""
    if back in FORGED:
        return back
    return f"handle {arrivals - 1 - back}" if back < arrivals else -1


streams = st.builds(
    lambda start_ns, parts: calls_of(start_ns, itertools.chain.from_iterable(parts)),
    st.sampled_from((0, 5, 1000, 5 * SECOND, DAY_NS)),
    PARTS,
)


limits = st.sampled_from((1.0, 1e-9, 5e-9, 2e-8, 1e-7, 1e-6, 4000.0))
slos = st.builds(
    SLO,
    ttft=limits,
    tpot=limits,
    e2e=st.none() | limits,
    itl=st.none() | limits,
    where=st.sampled_from(({}, {}, {"tenant": "x"}, {"tenant": "x", "tier": "y"}, {"prompt_length": "128-512"})),
)
sets = st.lists(slos, max_size=2).map(lambda found: [replace(slo, name=f"set {i}") for i, slo in enumerate(found)])
settings_of_meters = st.fixed_dictionaries(
    {
        "windows_ns": st.sampled_from(NARROW),
        "max_requests": st.integers(3, 8) | st.integers(1, 2),
        "max_classes": st.integers(2, 4),
        "ttl_ns": st.sampled_from((TTL_NS, TTL_NS, TTL_NS, 5, 50, 700, 10 * DAY_NS)),
        "slos": sets,
    },
    optional={
        "scale": st.integers(0, 8),
        "itl": st.sampled_from(("token", "chunk", "stamp")),
        "burn": st.booleans(),
    },
)
defaults = st.fixed_dictionaries({}, optional={"slos": sets})

LATER = (0, 1, 9, 60, 700, 7000, 3 * SECOND, 16 * SECOND, TTL_NS, DAY_NS, -1, -9, -60, -700, -3 * SECOND)


def reading_times(newest_ns: int | None, later_by: Iterable[int] = LATER) -> Iterator[int | None]:
    yield None
    for later in later_by:
        if 0 <= (newest_ns or 0) + later < 2**63:
            yield (newest_ns or 0) + later
