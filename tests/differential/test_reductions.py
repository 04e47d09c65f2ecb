"""Streams of lines, the ill-behaved ones above all: the core and the reference reduce them to the same, bit for bit."""

from __future__ import annotations

import json
from typing import Any

from agreement import assert_same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logs import arrivals_in, inputs, keys, options, rules, slos, ttls, widths

from tokenpulse.model import SLO


@settings(deadline=None, max_examples=600, suppress_health_check=list(HealthCheck))
@given(
    contents=st.lists(inputs(), min_size=1, max_size=3),
    limits=st.lists(slos, max_size=2),
    rule=rules,
    by=keys,
    timeline_ns=widths,
    ttl_ns=ttls,
    data=st.data(),
)
def test_any_stream(
    contents: list[bytes],
    limits: list[SLO],
    rule: str,
    by: list[str],
    timeline_ns: int | None,
    ttl_ns: int,
    data: st.DataObject,
) -> None:
    named = [(f"input {i}", content) for i, content in enumerate(contents)]
    asked = data.draw(options(arrivals_in(contents)))
    assert_same(named, limits, rule, by, timeline_ns, ttl_ns, **asked)


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
