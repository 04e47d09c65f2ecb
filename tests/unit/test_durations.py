"""Durations and SLO sets as people write them."""

from __future__ import annotations

import pytest

from tokenpulse import SLO
from tokenpulse.grammar import duration_ns, parse_duration, parse_slo, slo_sets


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("10ns", 10),
        ("250us", 250_000),
        ("200ms", 200_000_000),
        ("0.1ms", 100_000),
        ("1.5s", 1_500_000_000),
        ("0.000000001s", 1),
        ("10s", 10_000_000_000),
        ("5m", 300_000_000_000),
        ("1h", 3_600_000_000_000),
        (" 1h ", 3_600_000_000_000),
        ("9223372036854775807ns", 2**63 - 1),
    ],
)
def test_durations_are_exact(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "s",
        "5 s",
        "-1s",
        "+1s",
        "1e3s",
        "1.s",
        ".5s",
        "1d",
        "nan",
        "1S",
        "٣s",
        "1_000s",
        "9" * 5000 + "s",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 200ms"):
        parse_duration(text)


def test_fractions_of_a_nanosecond_are_refused() -> None:
    with pytest.raises(ValueError, match="whole number of nanoseconds"):
        parse_duration("1.5ns")


@pytest.mark.parametrize("text", ["0s", "0.0ms", "9223372036854775808ns", "2562048h"])
def test_durations_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="between 1ns and 2562047h"):
        parse_duration(text)


def test_durations_as_numbers_are_seconds() -> None:
    assert duration_ns(10) == duration_ns(10.0) == duration_ns("10s")
    for wrong in (0, -1.0, float("nan"), float("inf"), 1e300):
        with pytest.raises(ValueError, match="seconds"):
            duration_ns(wrong)
    with pytest.raises(TypeError, match="got True"):
        duration_ns(True)


def test_an_slo_in_one_line() -> None:
    assert parse_slo("chat:ttft=200ms,tpot=30ms,e2e=2s,itl=0.1s,objective=0.9") == SLO(
        "chat", ttft=0.2, tpot=0.03, e2e=2.0, itl=0.1, objective=0.9
    )
    assert parse_slo("tpot=30ms, ttft=1.5s").ttft_ns == 1_500_000_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected ttft="),
        ("ttft", "expected ttft="),
        ("ttft=200ms", "tpot is missing"),
        ("tpot=200ms", "ttft is missing"),
        ("ttft=200ms,tpot=30", "tpot: a duration"),
        ("ttft=200ms,tpot=30ms,", "got ''"),
        ("ttft=200ms,tpot=30ms,p99=1s", "got 'p99=1s'"),
        ("ttft=200ms,tpot=30ms,ttft=1s", "ttft is given twice"),
        ("ttft=200ms,tpot=30ms,objective=1", "objective: must be a number between 0 and 1"),
        ("ttft=200ms,tpot=30ms,objective=nan", "objective: must be"),
        (":ttft=200ms,tpot=30ms", "name before ':' is empty"),
    ],
)
def test_an_slo_that_does_not_parse_says_why(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):
        parse_slo(text)


def test_sets_are_named_apart() -> None:
    named = slo_sets(["ttft=1s,tpot=1s", "chat:ttft=1s,tpot=1s", "ttft=2s,tpot=1s", SLO("x", ttft=1, tpot=1)])
    assert [slo.name for slo in named] == ["default", "chat", "slo2", "x"]
    assert slo_sets(None) == ()
    assert slo_sets("ttft=1s,tpot=1s") == (SLO(ttft=1, tpot=1),)
    with pytest.raises(ValueError, match="two slo sets are named 'a'"):
        slo_sets(["a:ttft=1s,tpot=1s", "a:ttft=2s,tpot=1s"])
    with pytest.raises(TypeError, match="got 5"):
        slo_sets([5])


def test_restrictions() -> None:
    (slo,) = slo_sets(["a:ttft=1s,tpot=1s"], ["a=tenant:x:y", "a=model:m"])
    assert slo.where == {"tenant": "x:y", "model": "m"}
    for wrong, says in [
        ("tenant:x", "NAME=LABEL:VALUE"),
        ("a=tenant", "NAME=LABEL:VALUE"),
        ("b=tenant:x", "no slo set is named 'b'"),
    ]:
        with pytest.raises(ValueError, match=says):
            slo_sets(["a:ttft=1s,tpot=1s"], [wrong])
    with pytest.raises(ValueError, match="another value"):
        slo_sets(["a:ttft=1s,tpot=1s"], ["a=tenant:x", "a=tenant:y"])
