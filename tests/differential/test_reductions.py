"""Streams of lines, the ill-behaved ones above all: the core and the reference reduce them to the same, bit for bit."""

from __future__ import annotations

import gzip
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenpulse import FormatError, engine, reference
from tokenpulse.model import DAY_NS, SLO, TTL_NS

FORMAT_ERRORS = (FormatError, reference.FormatError)
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


def comparable(value: Any) -> Any:
    """The reduction with sketches as their bytes, and notices without their wording."""
    if hasattr(value, "to_bytes") and not isinstance(value, int):
        return value.to_bytes().hex()
    if isinstance(value, dict):
        return {key: comparable(each) for key, each in value.items() if key != "message"}
    if isinstance(value, (list, tuple)):
        return [comparable(each) for each in value]
    return value


def differences(core: Any, oracle: Any, path: str = "") -> list[str]:
    """Where two comparable values differ, one line a place: what the core says, then what the reference says."""
    if isinstance(core, dict) and isinstance(oracle, dict):
        keys = [*core, *(key for key in oracle if key not in core)]
        pairs = [(f"{path}.{key}", core.get(key), oracle.get(key)) for key in keys]
    elif isinstance(core, list) and isinstance(oracle, list) and len(core) == len(oracle):
        pairs = [(f"{path}[{i}]", *pair) for i, pair in enumerate(zip(core, oracle, strict=True))]
    else:
        return [] if core == oracle else [f"{path}: {core!r} is not {oracle!r}"]
    return [line for name, left, right in pairs for line in differences(left, right, name)]


def assert_same(*arguments: Any) -> None:
    assert differences(outcome(engine.reduce_bytes, *arguments), outcome(reference.reduce_lines, *arguments)) == []


def outcome(reduce: Any, *arguments: Any) -> Any:
    try:
        return comparable(reduce(*arguments))
    except FORMAT_ERRORS:
        return "unknown format"


@settings(deadline=None, max_examples=600, suppress_health_check=list(HealthCheck))
@given(
    contents=st.lists(inputs(), min_size=1, max_size=3),
    limits=st.lists(slos, max_size=2),
    rule=st.sampled_from(("token", "chunk", "stamp")),
    by=keys,
    timeline_ns=st.none() | st.sampled_from((1, 7, 1000, SECOND, 3600 * SECOND)),
    ttl_ns=st.sampled_from((TTL_NS, TTL_NS, 1, 5, 10 * DAY_NS)),
)
def test_any_stream(
    contents: list[bytes], limits: list[SLO], rule: str, by: list[str], timeline_ns: int | None, ttl_ns: int
) -> None:
    named = [(f"input {i}", content) for i, content in enumerate(contents)]
    assert_same(named, limits, rule, by, timeline_ns, ttl_ns)


@settings(deadline=None, max_examples=5, suppress_health_check=list(HealthCheck))
@given(seed=st.randoms(use_true_random=False), by=st.sampled_from((["tenant"], ["tenant", "output_length"])))
def test_more_classes_than_there_is_room_for(seed: Any, by: list[str]) -> None:
    named = []
    for name in ("first", "second"):
        labels = [seed.randrange(400) for _ in range(500)]
        lines = [
            json.dumps({"id": i, "arrive_ns": i, "token_ns": [i + 5], "labels": {"tenant": label}})
            for i, label in enumerate(labels)
        ]
        named.append((name, "\n".join(lines).encode()))
    assert_same(named, [SLO(ttft=1, tpot=1)], "token", by)


json_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from((2**32 - 1, 2**32, 2**40, 2**40 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**40)),
    st.sampled_from((1e3, 1.0, -0.0, 1.5, 1e19, 1e300, 0.1)),
    st.sampled_from(("", "a", "stop", "lost", "STOP", "5", "\u00e9\u0000")),
)
json_values = st.one_of(
    json_scalars,
    st.lists(json_scalars, max_size=3),
    st.dictionaries(st.sampled_from(("tenant", "x")), json_scalars, max_size=2),
)
FIELDS = (
    *("ev", "t_ns", "id", "k", "status", "degraded", "prompt_tokens", "labels", "arrive_ns", "arrival_mono_ns"),
    *("schedule_ns", "prefill_ns", "token_ns", "dt_ns", "n", "output_tokens", "first_token_ns", "last_token_ns"),
    *("preempt_ns", "resume_ns", "end_ns", "ctx"),
)
EVENTS = ("arrive", "tokens", "end", "schedule", "gauge", "kv_clear")


@settings(deadline=None, max_examples=600, suppress_health_check=list(HealthCheck))
@given(
    base=st.one_of(
        st.builds(lambda ev: {"ev": ev, "t_ns": 5, "id": "a", "status": "stop"}, st.sampled_from(EVENTS)),
        st.just({"id": "a", "arrive_ns": 5}),
        st.just({"id": "a", "arrive_ns": 5, "token_ns": [6, 7], "n": [1, 2], "status": "length"}),
        st.just({"id": "a", "arrival_mono_ns": 5, "dt_ns": [6]}),
    ),
    changed=st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=3),
)
def test_any_fields(base: dict[str, Any], changed: dict[str, Any]) -> None:
    """What a line holds is judged alike: the same lines are skipped, for the same reasons."""
    content = b'{"ev": "ready", "t_ns": 1}\n' + json.dumps(base | changed).encode()
    assert_same([("input", content)], [SLO(ttft=1, tpot=1)], "token", ["tenant"])


@settings(deadline=None, max_examples=400, suppress_health_check=list(HealthCheck))
@given(
    line=st.sampled_from(
        (
            b'{"ev": "tokens", "t_ns": 5, "id": "a\\u0041\\n", "k": 2, "x": [1.5e3, true, null, {"y": "\xc3\xa9"}]}',
            b'{"id": 7, "arrive_ns": 5, "dt_ns": [1, 2e0], "n": [1, 3], "labels": {"tenant": "x", "tier": false}}',
        )
    ),
    cuts=st.lists(
        st.tuples(st.integers(0, 110), st.integers(0, 3), st.sampled_from(list(b'{}[]",:\\ \t0x19-.eEtn\xff'))),
        max_size=3,
    ),
)
def test_any_damage(line: bytes, cuts: list[tuple[int, int, int]]) -> None:
    """Bytes put into a good line, or taken out of it."""
    for at, removed, inserted in cuts:
        line = line[:at] + bytes([inserted]) + line[at + removed :]
    content = b'{"ev": "arrive", "t_ns": 1, "id": "aA\\n"}\n' + line
    assert_same([("input", content)], [], "token", ["tenant", "tier"])
