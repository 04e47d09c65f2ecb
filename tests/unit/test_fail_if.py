"""Conditions under which a comparison fails: how they are written, and when they hold."""

from __future__ import annotations

import math
from typing import Any

import pytest
from random_logs import request_lines

from tokenpulse import Report, engine
from tokenpulse.analysis.compare import Comparison, compare_runs
from tokenpulse.analysis.fail_if import Limit, judge, parse
from tokenpulse.model import SLO

SLOS = (SLO("chat", ttft=0.06, tpot=0.03), SLO("batch", ttft=1.0, tpot=0.1))

WRITTEN: dict[str, tuple[str, str | None, str, Limit]] = {
    "p99(ttft) > +10%": ("p99", "ttft", ">", Limit("relative", 0.1)),
    "p50(itl) > +2ms": ("p50", "itl", ">", Limit("change", 0.002)),
    "mean(e2e) > 1.5s": ("mean", "e2e", ">", Limit("value", 1.5)),
    "p99.9(tpot)>=250us": ("p99.9", "tpot", ">=", Limit("value", 0.00025)),
    "p999( queue ) < -1ms": ("p999", "queue", "<", Limit("change", -0.001)),
    "max(itl) > +0ms": ("max", "itl", ">", Limit("change", 0.0)),
    "min(preemption_stall) <= -0.5%": ("min", "preemption_stall", "<=", Limit("relative", -0.005)),
    "goodput < -5%": ("goodput", None, "<", Limit("relative", -0.05)),
    "goodput(chat) < 3": ("goodput", "chat", "<", Limit("value", 3.0)),
    "token_goodput < -20/s": ("token_goodput", None, "<", Limit("change", -20.0)),
    "attainment < 0.99": ("attainment", None, "<", Limit("value", 0.99)),
    "attainment(batch) < 99.5%": ("attainment", "batch", "<", Limit("value", 0.995)),
    "attainment(my set) < -1pp": ("attainment", "my set", "<", Limit("change", -0.01)),
    "throughput < -3%": ("throughput", None, "<", Limit("relative", -0.03)),
    "request_throughput < 12.5 /s": ("request_throughput", None, "<", Limit("value", 12.5)),
    "error_rate > 0.1%": ("error_rate", None, ">", Limit("value", 0.001)),
    "  error_rate  >  + 0.1 pp  ": ("error_rate", None, ">", Limit("change", 0.001)),
    "error_rate >= 100%": ("error_rate", None, ">=", Limit("value", 1.0)),
    "availability < 1": ("availability", None, "<", Limit("value", 1.0)),
    "degraded > +250%": ("degraded", None, ">", Limit("relative", 2.5)),
    "availability < 0.999": ("availability", None, "<", Limit("value", 0.999)),
    "degraded > +10%": ("degraded", None, ">", Limit("relative", 0.1)),
    "fluidity(chat) < 0.95": ("fluidity", "chat", "<", Limit("value", 0.95)),
    "ks(ttft) > 0.1": ("ks", "ttft", ">", Limit("value", 0.1)),
    "wasserstein(ttft) > 5ms": ("wasserstein", "ttft", ">", Limit("value", 0.005)),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_a_condition_is_read_as_it_is_written(text: str) -> None:
    found = parse(text)
    assert (found.figure, found.of, found.operator, found.limit) == WRITTEN[text]
    assert found.text == text


WRONG = {
    "": "FIGURE > LIMIT",
    "p99(ttft)": "FIGURE > LIMIT",
    "p99(ttft) = 1s": "FIGURE > LIMIT",
    "p99(ttft) > > 1s": "FIGURE > LIMIT",
    "p99 > 1s": "p99(METRIC) with a metric of ttft, queue",
    "p99(latency) > 1s": "got 'latency'",
    "p(ttft) > 1s": "a figure: p50(METRIC)",
    "p0(ttft) > 1s": "a percentile from p0.000001",
    "p100(ttft) > 1s": "a figure: p50(METRIC)",
    "median(ttft) > 1s": "got 'median'",
    "throughput(chat) < -3%": "throughput of the whole run, without (chat)",
    "p99(ttft) > 10": "a limit such as +10%, +2ms or 1.5s; got '10'",
    "p99(ttft) > 10%": "a limit such as +10%, +2ms or 1.5s; got '10%'",
    "p99(ttft) > +10 percent": "a number with one of the units",
    "p99(ttft) > -1pp": "a limit such as +10%",
    "p99(ttft) > 0.1ns": "a whole number of nanoseconds",
    "p99(ttft) > nan": "a limit such as",
    "p99(ttft) > 1e3ms": "a limit such as +10%",
    "goodput < 5ms": "a limit such as -5%, -20 or 300; got '5ms'",
    "attainment < 99ms": "0.99, 99%, -1pp",
    "attainment < 1pp": "0.99, 99%, -1pp",
    "ks(ttft) > +0.1": "without a sign",
    "ks(ttft) > +10%": "without a sign",
    "attainment < 99": "a share from 0 to 1",
    "error_rate > 5": "a share from 0 to 1",
    "availability < 100.1%": "a share from 0 to 1",
    "degraded > +2": "a share from 0 to 1",
    "attainment < -101pp": "a share from 0 to 1",
    "ks(ttft) > 1.5": "a share from 0 to 1",
    "worse(latency)": "worse of ttft",
    "better": "or worse",
}


@pytest.mark.parametrize("text", WRONG)
def test_an_error_names_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="--fail-if") as raised:
        parse(text)
    assert WRONG[text] in str(raised.value)
    assert repr(text) in str(raised.value)


def report(seed: int, n: int = 300) -> Report:
    reduction = engine.reduce_bytes([("log", request_lines(seed, n))], SLOS, timeline_ns=1_000_000, timeline_bins=240)
    return Report.of(reduction, SLOS)


@pytest.fixture(scope="module")
def pair() -> tuple[Report, Report, Comparison]:
    before, after = report(1), report(2)
    return before, after, compare_runs(before, after)


def test_values_are_those_of_the_reports(pair: tuple[Report, Report, Comparison]) -> None:
    before, after, _ = pair
    known: dict[str, Any] = {
        "p99(ttft) > 1s": lambda run: run.latency["ttft"]["p99"],
        "p999(itl) > 1s": lambda run: run.latency["itl"]["p999"],
        "mean(e2e) > 1s": lambda run: run.latency["e2e"]["mean"],
        "max(queue) > 1s": lambda run: run.latency["queue"]["max"],
        "p37.5(tpot) > 1s": lambda run: run.sketches["tpot"].quantile(0.375),
        "throughput > 1": lambda run: run.rates["output_tokens_per_second"],
        "request_throughput > 1": lambda run: run.rates["requests_per_second"],
        "goodput(batch) > 1": lambda run: run.goodput[1]["requests_per_second"],
        "token_goodput(chat) > 1": lambda run: run.goodput[0]["tokens_per_second"],
        "attainment(chat) > 1": lambda run: run.goodput[0]["attainment"],
        "fluidity(batch) > 1": lambda run: run.fluidity["batch"]["index"],
        "availability > 1": lambda run: run.availability,
        "error_rate > 1": lambda run: pytest.approx(1 - run.availability),
        "degraded > 1": lambda run: run.degraded,
    }
    for text, value in known.items():
        found = judge(parse(text), *pair)
        assert found["before"] == value(before), text
        assert found["after"] == value(after), text
        assert found["change"] == found["after"] - found["before"]
        assert found["holds"] in (True, False)


def test_a_condition_holds_on_one_side_of_its_limit(pair: tuple[Report, Report, Comparison]) -> None:
    at = judge(parse("p99(ttft) > 1s"), *pair)
    milli = 1e3 * at["after"]
    up, down = math.ceil(milli * 100) / 100, math.floor(milli * 100) / 100
    assert not judge(parse(f"p99(ttft) > {up}ms"), *pair)["holds"]
    assert judge(parse(f"p99(ttft) > {down}ms"), *pair)["holds"]
    assert judge(parse(f"p99(ttft) < {up}ms"), *pair)["holds"]
    change = at["relative_change"]
    more, less = (f"{100 * (change + by):+.6f}" for by in (0.01, -0.01))
    assert not judge(parse(f"p99(ttft) > {more}%"), *pair)["holds"]
    assert judge(parse(f"p99(ttft) > {less}%"), *pair)["holds"]
    assert judge(parse("p99(ttft) >= +0%"), pair[0], pair[0], pair[2])["holds"]
    assert not judge(parse("p99(ttft) > +0%"), pair[0], pair[0], pair[2])["holds"]


def test_what_is_absent_can_not_be_judged(pair: tuple[Report, Report, Comparison]) -> None:
    _, after, comparison = pair
    found = judge(parse("p99(scheduling) > +10%"), *pair)
    assert (found["holds"], found["why"]) == (None, "the second run has no such figure")
    nothing = Report.of(engine.reduce_bytes([("a", b"")], SLOS), SLOS)
    found = judge(parse("p99(ttft) > +10%"), nothing, after, comparison)
    assert (found["holds"], found["why"]) == (None, "the first run has no such figure")
    assert judge(parse("p99(ttft) > 1us"), nothing, after, comparison)["holds"]
    assert judge(parse("ks(scheduling) > 0.1"), *pair)["holds"] is None
    assert judge(parse("worse(scheduling)"), *pair)["holds"] is None


def test_more_than_nothing_is_beyond_every_percentage() -> None:
    good = b'{"id":"a","arrive_ns":0,"token_ns":[5,6]}\n'
    before = Report.of(engine.reduce_bytes([("a", good)]))
    after = Report.of(engine.reduce_bytes([("a", good + b'{"id":"b","arrive_ns":0,"status":"error"}')]))
    comparison = compare_runs(before, after)
    found = judge(parse("error_rate > +1000%"), before, after, comparison)
    assert (found["holds"], found["relative_change"]) == (True, None)
    assert not judge(parse("error_rate > +1000%"), before, before, comparison)["holds"]


def test_an_slo_set_must_be_named_where_there_are_several(pair: tuple[Report, Report, Comparison]) -> None:
    with pytest.raises(ValueError, match=r"goodput\(NAME\) with the name of an SLO set: chat, batch"):
        judge(parse("goodput < 1"), *pair)
    with pytest.raises(ValueError, match="the name of an SLO set: chat, batch; got 'x'"):
        judge(parse("goodput(x) < 1"), *pair)
    bare = Report.of(engine.reduce_bytes([("a", request_lines(1, 10))]))
    with pytest.raises(ValueError, match="give --slo"):
        judge(parse("goodput < 1"), bare, bare, compare_runs(bare, bare))


def test_verdicts_can_be_asked_for(pair: tuple[Report, Report, Comparison]) -> None:
    before = pair[0]
    slow = request_lines(1, 300).replace(b'"arrive_ns": ', b'"arrive_ns": -')  # refused: no request at all
    assert judge(parse("worse"), *pair)["holds"] is bool([one for one in pair[2].because if one["verdict"] == "worse"])
    assert judge(parse("worse(throughput)"), *pair)["holds"] in (True, False)
    assert judge(parse("worse(attainment)"), *pair)["holds"] in (True, False)
    assert judge(parse("worse(error_rate)"), *pair)["holds"] in (True, False)
    bare = Report.of(engine.reduce_bytes([("a", slow)]))
    found = judge(parse("worse(attainment)"), before, bare, compare_runs(before, bare))
    assert (found["holds"], found["why"]) == (None, "there is no SLO set: give --slo")
