"""The reference's meter, step by step: what each call changes, and what it leaves. Whole cases are in the vectors."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tokenpulse.model import DAY_NS, SLO
from tokenpulse.reference import Meter
from tokenpulse.reference.gauges import split
from tokenpulse.reference.scopes import MAX_BATCH

SECOND = 10**9


def total(meter: Meter) -> dict[str, Any]:
    found: dict[str, Any] = meter.snapshot()["all"]["total"]
    return found


def late(meter: Meter) -> list[int]:
    return [window["late"] for window in meter.snapshot()["windows"]]


def figures(sketch: Any) -> list[int | None]:
    return [sketch.count, sketch.sum_ns, sketch.min_ns, sketch.max_ns]


# Settings and misuse


@pytest.mark.parametrize(
    "settings",
    [
        {"windows_ns": [90]},
        {"windows_ns": [120, 180]},
        {"windows_ns": [120, 60]},
        {"itl": "gap"},
        {"scale": 9},
        {"max_requests": 0},
        {"max_classes": 1},
        {"max_classes": 4097},
        {"ttl_ns": 0},
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|multiple"):
        Meter(**settings)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("arrive", {"t": -1}),
        ("arrive", {"t": 2**63}),
        ("arrive", {"t": 5, "cls": 1}),
        ("arrive", {"t": 5, "cls": -1}),
        ("step", {"t": 5, "handles": [0, 0], "counts": [1]}),
        ("end", {"t": 5, "handles": 0, "status": "lost"}),
        ("end", {"t": 5, "handles": 0, "status": "finished"}),
        ("observe", {"metric": "latency", "values": [1]}),
        ("observe", {"metric": "ttft", "values": [1], "unit": "ms"}),
        ("observe", {"metric": "ttft", "values": [1], "t": 5, "cls": 7}),
        ("add", {"t": 5, "watts": 3}),
        ("count", {"t": 5, "name": "kv_hit"}),
        ("count", {"t": 5, "name": "oom_event", "cls": 7}),
        ("ready", {"t": -1}),
        ("classify", {f"label{i}": "x" for i in range(9)}),
        ("classify", {"prompt_tokens": -1}),
        ("classify", {"prompt_tokens": 1, "prompt_length": "0-128"}),
        ("snapshot", {"t": -1}),
    ],
)
def test_misuse_raises_and_changes_nothing(method: str, arguments: dict[str, Any]) -> None:
    meter = Meter()
    with pytest.raises(ValueError, match=r"must|at most"):
        getattr(meter, method)(**arguments)
    assert repr(meter.snapshot()) == repr(Meter().snapshot())


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("add", {"t": 5, "comm_ns": 1.5}),
        ("step", {"t": 5, "handles": 1.0}),
        ("arrive", {"t": 5.0}),
        ("classify", {"tenant": 7}),
        ("observe", {"metric": "ttft", "values": ["fast"], "t": 5}),
    ],
)
def test_what_is_no_number_of_that_kind(method: str, arguments: dict[str, Any]) -> None:
    meter = Meter()
    with pytest.raises(TypeError):
        getattr(meter, method)(**arguments)
    assert repr(meter.snapshot()) == repr(Meter().snapshot())


# Time


def test_one_call_is_one_reading_of_the_clock() -> None:
    meter = Meter(windows_ns=[600])
    a = meter.arrive(100)
    assert meter.arrive(DAY_NS + 101) == -1
    meter.step(101, a)  # a good time between: the doubt begins anew
    meter.end(DAY_NS + 102, [a, a, a], "stop")
    assert meter.snapshot()["rejected"] == {"future": 4}
    assert meter.snapshot()["newest_ns"] == 101
    meter.step(DAY_NS + 103, -1)  # believed, though its event is unknown
    reading = meter.snapshot()
    assert (reading["newest_ns"], reading["rejected"]) == (DAY_NS + 103, {"unknown": 1, "future": 4})
    assert total(meter)["by_status"] == {"lost": 1}
    assert meter.arrive(2 * DAY_NS + 104) == -1  # doubted again


def test_an_empty_call_reads_the_clock_too() -> None:
    meter = Meter()
    meter.step(7, [])
    assert meter.snapshot()["newest_ns"] == 7
    meter.step(9, [])  # nothing accepted
    reading = meter.snapshot()
    assert (reading["newest_ns"], reading["rejected"], reading["batch_sizes"]["total"]) == (7, {}, {})


def test_late_is_counted_by_accepted_events_alone() -> None:
    meter = Meter(windows_ns=[60, 600])
    a, b = meter.arrive(10), meter.arrive(20)
    meter.arrive(1000)
    assert late(meter) == [0, 0]  # they were in time when they came
    meter.step(939, [a, b, a, -1])  # panes 939 of 940 to 1000, 93 of 40 to 100
    assert late(meter) == [3, 0]
    meter.step(400, [a, a])  # refused: before its last event
    assert late(meter) == [3, 0]
    meter.end(400, a, "stop")  # counted at its last event, 939
    assert late(meter) == [4, 0]
    meter.ready(399)
    meter.add(399, flops=1)
    meter.count(399, "oom_event")
    meter.observe("e2e", [1, 2, -1], t=399)
    assert late(meter) == [9, 5]
    meter.gauge(399, running=1)  # never late
    assert late(meter) == [9, 5]
    assert meter.snapshot()["added"] == {"total": {"flops": {"sum": 1, "times": 1}}, "windows": [{}, {}]}


def test_a_loss_found_by_an_event_of_the_past_is_counted_there() -> None:
    meter = Meter(windows_ns=[60_000], ttl_ns=5)
    a = meter.arrive(10)
    meter.arrive(999)  # the same pane: no sweep
    meter.step(20, a)
    reading = meter.snapshot()
    assert (reading["newest_ns"], reading["rejected"]) == (999, {"unknown": 1})
    assert total(meter)["by_status"] == {"lost": 1}


def test_lost_detection_moves_the_newest_time() -> None:
    meter = Meter(windows_ns=[60_000], ttl_ns=50)
    a = meter.arrive(100)
    meter.step(151, a)
    assert meter.snapshot()["newest_ns"] == 151
    meter.step(160, a)  # merely unknown
    assert meter.snapshot()["newest_ns"] == 151
    assert meter.snapshot()["rejected"] == {"unknown": 2}


def test_a_sweep_is_by_panes_of_the_longest_window() -> None:
    meter = Meter(windows_ns=[60, 6000], ttl_ns=10)
    meter.arrive(100)
    meter.arrive(199)
    assert total(meter)["by_status"] == {}
    meter.ready(200)
    assert total(meter)["by_status"] == {"lost": 1}  # 199 + 10 is not before 200
    meter.gauge(299)
    assert total(meter)["by_status"] == {"lost": 1}
    meter.gauge(300)
    assert total(meter)["by_status"] == {"lost": 2}


def test_a_full_table_is_swept_once_a_pane() -> None:
    meter = Meter(windows_ns=[600], max_requests=2, ttl_ns=3)
    a, b = meter.arrive(100), meter.arrive(101)
    assert meter.arrive(102) == -1  # looked through the table: nothing is silent
    assert meter.arrive(109) == -1  # and does not look again in this pane
    assert meter.snapshot()["newest_ns"] == 101
    assert meter.arrive(110) >= 0
    assert meter.snapshot()["rejected"] == {"full": 2}
    assert total(meter)["by_status"] == {"lost": 2}
    meter.step(111, [a, b])
    assert meter.snapshot()["rejected"] == {"full": 2, "unknown": 2}


def test_a_handle_is_not_reused_for_another_request() -> None:
    meter = Meter(max_requests=1)
    a = meter.arrive(1)
    meter.end(2, a, "stop")
    b = meter.arrive(3)
    meter.step(4, a)
    meter.step(5, b)
    assert (total(meter)["output_tokens"], meter.snapshot()["rejected"]) == (1, {"unknown": 1})


# Requests


def test_events_of_one_time_are_taken_as_they_are_called() -> None:
    """A log would sort these: tokens, then a schedule of the same time. A meter has no such patience."""
    meter = Meter()
    a = meter.arrive(10)
    meter.step(20, a)
    meter.schedule(20, a)
    latency = total(meter)["latency"]
    assert (latency["ttft"].sum_ns, latency["queue"].sum_ns, latency["prefill"].count) == (10, 10, 0)


@pytest.mark.parametrize(
    ("rule", "itl", "good"),
    [("token", [4, 10, 2, 2], 1), ("chunk", [1, 10, 10, 10], 0), ("stamp", [4, 10, 0, 10], 0)],
)
def test_several_tokens_at_once_in_window_and_verdict(rule: str, itl: list[int], good: int) -> None:
    """A gap of 10 before 4 tokens: under the token rule 10 // 4 = 2 is below the limit of 10, under the others not."""
    meter = Meter([SLO(ttft=1, tpot=1, itl=1e-8)], windows_ns=[600], itl=rule)
    a = meter.arrive(0)
    meter.step(10, [a], [3])
    meter.step(20, [a], [4])
    meter.end(25, a, "stop")
    for block in (total(meter), meter.snapshot()["all"]["windows"][0]):
        assert figures(block["latency"]["itl"]) == itl
        assert figures(block["latency"]["tpot"]) == [1, 1, 1, 1]  # 10 // 6
        assert block["slos"][0]["good"] == good
    assert meter.snapshot()["all"]["total"]["latency"]["itl"].itl_rule == rule


def test_windows_see_what_was_observed_when_it_was() -> None:
    meter = Meter(windows_ns=[60])
    a = meter.arrive(0)
    meter.step(50, a)
    meter.step(110, a)
    meter.end(150, a, "length")
    found = meter.snapshot(171)["all"]["windows"][0]  # panes 111 to 171
    assert (found["attempted"], found["output_tokens"], found["by_status"]) == (0, 0, {"length": 1})
    assert {metric for metric, sketch in found["latency"].items() if sketch.count} == {"tpot", "e2e"}
    found = meter.snapshot(170)["all"]["windows"][0]
    assert (found["output_tokens"], found["latency"]["itl"].sum_ns) == (1, 60)


def test_batches_beyond_the_largest_count_together() -> None:
    meter = Meter()
    a = meter.arrive(0)
    for size in (MAX_BATCH - 1, MAX_BATCH, MAX_BATCH + 1):
        meter.step(1, [a] + [-1] * (size - 1))
    assert meter.snapshot()["batch_sizes"]["total"] == {8191: 1, 8192: 2}


def test_every_sketch_has_the_scale() -> None:
    reading = Meter([SLO(ttft=1, tpot=1)], scale=3).snapshot()
    assert reading["scale"] == 3
    for block in (reading["all"]["total"], *reading["all"]["windows"]):
        assert {sketch.scale for sketch in block["latency"].values()} == {3}
        assert block["slos"][0]["fluidity"].scale == 3


# Classes


def test_classes_are_the_same_whatever_the_order_of_their_labels() -> None:
    meter = Meter()
    assert meter.classify() == 0
    assert meter.classify(tenant="a", tier="b") == meter.classify(tier="b", tenant="a") == 1
    assert meter.classify(tenant="a=tier", tier="b") == 2
    assert meter.classify(5) == meter.classify(127) == 3
    assert meter.classify(128) == 4


def test_the_class_other_is_the_last() -> None:
    meter = Meter(max_classes=3)
    assert [meter.classify(tenant=name) for name in "abcab"] == [1, 2, 2, 1, 2]
    assert meter.snapshot()["over"] == 3
    meter.arrive(1, cls=2)
    meter.arrive(1, prompt_tokens=7, cls=1)
    classes = meter.snapshot()["classes"]
    assert [(each["key"], each["other"]) for each in classes] == [({"tenant": "a"}, False), ({}, True)]
    assert [each["total"]["prompt_tokens"] for each in classes] == [7, 0]
    assert total(meter)["prompt_tokens"] == 7


def test_a_class_is_listed_for_what_it_counted() -> None:
    meter = Meter()
    a, b, c = (meter.classify(tenant=name) for name in "abc")
    meter.observe("ttft", [math.nan], cls=a, t=1)
    meter.observe("ttft", [1], cls=b, t=1)
    meter.count(1, "oom_event", cls=c)
    assert [each["key"] for each in meter.snapshot()["classes"]] == [{"tenant": "b"}, {"tenant": "c"}]


# Gauges, burn windows, open gaps


def test_a_hold_is_split_at_the_borders_of_panes() -> None:
    assert list(split(10, 10, 10, -50)) == []
    assert list(split(9, 11, 10, -50)) == [(0, 1), (1, 1)]
    assert list(split(0, 10**18, 10**16, 98)) == [(98, 10**16), (99, 10**16)]


def test_gauges_are_time_weighted() -> None:
    meter = Meter(windows_ns=[60, 600])
    meter.gauge(100, running=3, kv_total=10)
    meter.gauge(110, running=5)
    meter.gauge(115, running=0)
    gauges = meter.snapshot(200)["gauges"]  # 3 x 10 + 5 x 5 + 0 x 85
    assert gauges["total"]["running"] == {"last": 0, "integral": 55, "covered_ns": 100, "max": 5}
    assert gauges["windows"][1]["running"] == {"last": 0, "integral": 55, "covered_ns": 100, "max": 5}
    assert gauges["windows"][0]["running"] is None  # not set for 85
    assert gauges["windows"][0]["kv_total"] is None
    assert gauges["total"]["kv_total"] == {"last": 10, "integral": 1000, "covered_ns": 100, "max": 10}
    assert gauges["total"]["waiting"] is None
    # At 165: panes 105 to 165 of 1 ns; 3 from 105 to 110, 5 to 115, then 0. Set 50 ago.
    figure = meter.snapshot(165)["gauges"]["windows"][0]["running"]
    assert figure == {"last": 0, "integral": 40, "covered_ns": 60, "max": 5}
    assert meter.snapshot()["gauges"]["total"]["running"]["covered_ns"] == 15  # reading at 200 changed nothing


def test_burn_windows_follow_the_newest_time() -> None:
    meter = Meter([SLO(ttft=1, tpot=1), SLO(ttft=1, tpot=1, where={"tenant": "a"})])
    for status in ("stop", "abort", "reject", "oom"):
        handle = meter.arrive(SECOND)
        meter.step(SECOND, handle)
        meter.end(SECOND, handle, status)
    burn = meter.snapshot()["burn"]
    assert [each["width_ns"] // SECOND for each in burn] == [300, 1800, 3600, 21_600, 259_200, 2_592_000]
    for each in burn:
        assert each["slos"] == [{"good": 1, "judged": 3}, {"good": 0, "judged": 0}]
        assert each["availability"] == {"bad": 2, "judged": 3}
    meter.ready(305 * SECOND)  # pane 61 of 5 s; the ring of 5 m no longer has pane 0
    assert [each["availability"]["judged"] for each in meter.snapshot()["burn"]] == [0, 3, 3, 3, 3, 3]
    assert [each["availability"]["judged"] for each in meter.snapshot(2 * SECOND)["burn"]] == [0, 3, 3, 3, 3, 3]


def test_open_gaps_are_strictly_over() -> None:
    meter = Meter()
    a, b = meter.arrive(0), meter.arrive(0)
    meter.step(SECOND, b)
    meter.schedule(2 * SECOND, [a, b])  # an event, but no emission
    open_gaps = meter.snapshot(16 * SECOND)["all"]["open"]
    assert open_gaps["streams"] == {"n": 1, "oldest_ns": 15 * SECOND, "over": [1, 1, 0, 0]}
    assert open_gaps["waits"] == {"n": 1, "oldest_ns": 16 * SECOND, "over": [1, 1, 1, 0]}
    meter.end(16 * SECOND, [a, b], "abort")
    nothing = {"n": 0, "oldest_ns": None, "over": [0, 0, 0, 0]}
    assert meter.snapshot()["all"]["open"] == {"streams": nothing, "waits": nothing}


# Reading


def test_a_snapshot_is_pure() -> None:
    meter = Meter([SLO(ttft=1, tpot=1)], windows_ns=[60, 600], ttl_ns=100)
    a = meter.arrive(100, 5, 3)
    meter.gauge(100, running=1)
    meter.step(130, [a, -1])
    before = repr(meter.snapshot())
    for t in (0, 99, 130, 10**6, 2**63 - 1):
        assert repr(meter.snapshot(t)) == repr(meter.snapshot(t))
    assert repr(meter.snapshot()) == before
    meter.step(131, a)
    assert total(meter)["output_tokens"] == 2


def test_values_without_a_time_are_not_doubted() -> None:
    meter = Meter(windows_ns=[60])
    meter.observe("queue", [2e-9])
    assert meter.snapshot()["first_event_ns"] is None
    meter.step(100, -1)
    meter.observe("queue", [3e-9, 4e-9])
    reading = meter.snapshot()
    assert (reading["newest_ns"], reading["first_event_ns"]) == (100, 100)
    assert figures(reading["all"]["total"]["latency"]["queue"]) == [3, 9, 2, 4]
    assert figures(reading["all"]["windows"][0]["latency"]["queue"]) == [2, 7, 3, 4]


def test_increments_have_limits() -> None:
    meter = Meter()
    for bad in (-1, -0.3, math.nan, math.inf, 2**63, 1e19):
        meter.add(5, flops=bad, comm_ns=1)
    meter.add(5, flops=-0.0, bytes_moved=2.5)
    reading = meter.snapshot()
    assert reading["rejected"] == {"invalid": 6}
    assert reading["added"]["total"] == {"flops": {"sum": 0, "times": 1}, "bytes_moved": {"sum": 2, "times": 1}}
