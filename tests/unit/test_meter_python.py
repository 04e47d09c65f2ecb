"""`tokenpulse.Meter` as an engine calls it: what it takes, what it refuses, and what a snapshot says."""

from __future__ import annotations

import copy
import doctest
import json
import math
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from columns import FORMS

import tokenpulse
from tokenpulse import SLO, DecodeError, IdMap, Meter, Snapshot
from tokenpulse.model import METRICS

MS = 1_000_000
S = 1_000_000_000


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("n", [0, 1, 3, 200])
def test_counts_come_in_every_form(form: Callable[[list[int]], Any], n: int) -> None:
    meter = Meter()
    handles = meter.arrive(0, np.ones(n, dtype=np.int64))
    counts = [1 + i % 5 for i in range(n)]
    meter.step(MS, handles, form(counts))
    total = meter.snapshot(MS).total
    assert total.counts["output_tokens"] == sum(counts)
    assert total.latency["ttft"].count == n


@pytest.mark.parametrize("form", [name for name in FORMS if name not in ("uint8", "int32", "uint32")])
@pytest.mark.parametrize("n", [1, 3, 600])
def test_handles_come_in_every_form(form: str, n: int) -> None:
    meter = Meter()
    handles = meter.arrive(0, [7] * n).tolist()
    for call in (meter.schedule, meter.prefill, meter.step, meter.preempt, meter.resume):
        call(MS, FORMS[form](handles))
    meter.end(2 * MS, FORMS[form](handles), "stop")
    counts = meter.snapshot().total.counts
    assert (counts["succeeded"], counts["output_tokens"], counts["preemptions"]) == (n, n, n)
    assert meter.snapshot().rejected == {}


@pytest.mark.parametrize("one", [int, np.int64, np.asarray], ids=["int", "numpy", "0-d"])
def test_a_single_handle(one: Callable[[int], Any]) -> None:
    meter = Meter()
    handle = meter.arrive(0, 5)
    assert isinstance(handle, int)
    meter.step(MS, one(handle))
    meter.step(2 * MS, one(handle), one(4))
    meter.end(2 * MS, one(handle), "length")
    assert meter.snapshot().total.counts["output_tokens"] == 5


def test_numbers_beyond_64_bits_are_refused_and_counted() -> None:
    meter = Meter()
    handle = meter.arrive(0)
    meter.step(1, [2**70, -(2**70), -1])
    meter.step(1, np.array([2**64 - 1], dtype=np.uint64))
    meter.step(1, [handle], [2**70])
    meter.arrive(1, 2**70)
    meter.gauge(1, running=2**70)
    meter.add(1, flops=2**70)
    assert meter.snapshot().rejected["unknown"] == 4
    assert meter.snapshot().rejected["invalid"] >= 3
    assert meter.snapshot().total.counts["output_tokens"] == 0


COLUMN = "must be an int, a list or a tuple of ints, or a 1-D buffer of integers, got"

MISUSE: list[tuple[str, Callable[[Meter], Any], type[Exception], str]] = [
    ("float handle", lambda m: m.step(1, 1.5), TypeError, f"handles {COLUMN} float"),
    ("text handle", lambda m: m.step(1, "abc"), TypeError, f"handles {COLUMN} str"),
    ("bytes handle", lambda m: m.step(1, b"abc"), TypeError, f"handles {COLUMN} bytes"),
    ("no handle", lambda m: m.step(1, None), TypeError, f"handles {COLUMN} NoneType"),
    ("floats", lambda m: m.step(1, np.ones(2)), TypeError, f'handles {COLUMN} elements of type "d"'),
    ("swapped", lambda m: m.step(1, np.ones(2, ">i8")), TypeError, f'handles {COLUMN} elements of type ">q"'),
    ("list", lambda m: m.step(1, [0, "a"]), TypeError, "handles must be ints, got str at position 1"),
    ("tuple", lambda m: m.step(1, (1.5,)), TypeError, "handles must be ints, got float at position 0"),
    ("2-D", lambda m: m.step(1, np.ones((2, 2), int)), ValueError, "handles must be one-dimensional, got 2 dimensions"),
    ("counts", lambda m: m.step(1, [0, 1], [1]), ValueError, "counts must be as many as the others, 2, got 1"),
    ("float counts", lambda m: m.step(1, [0], [1.0]), TypeError, "counts must be ints, got float at position 0"),
    ("text t", lambda m: m.step("x", 0), TypeError, "t must be an int of nanoseconds, got str"),
    ("float t", lambda m: m.step(1.0, 0), TypeError, "t must be an int of nanoseconds, got float"),
    ("negative t", lambda m: m.step(-1, 0), ValueError, f"time in ns must be between 0 and {2**63 - 1}, got -1"),
    ("huge t", lambda m: m.ready(2**63), ValueError, f"time in ns must be between 0 and {2**63 - 1}, got {2**63}"),
    ("lost", lambda m: m.end(1, 0, "lost"), ValueError, 'timeout, oom or reject, got "lost"'),
    ("class", lambda m: m.arrive(1, cls=3), ValueError, "class must be between 0 and 0, or 255, got 3"),
    ("classes", lambda m: m.arrive(1, cls=[0, 3]), ValueError, "class must be between 0 and 0, or 255, got 3"),
    ("arrivals", lambda m: m.arrive(1, [1, 2], [1]), ValueError, "cached_tokens must be as many as the others, 2, got"),
    ("metric", lambda m: m.observe("latency", 1), ValueError, "preemption_stall, got"),
    ("unit", lambda m: m.observe("ttft", 1, "ms"), ValueError, "unit must be 's' or 'ns'"),
    ("values", lambda m: m.observe("ttft", "1"), TypeError, "values must be"),
    ("name", lambda m: m.count(1, "hits"), ValueError, "name must be one of oom_event,"),
    ("gauge", lambda m: m.gauge(1, running=0.5), TypeError, "running must be an int, got float"),
    ("add", lambda m: m.add(1, comm_ns=0.5), TypeError, "comm_ns must be an int, got float"),
    ("flops", lambda m: m.add(1, flops="1"), TypeError, "flops must be a number, got str"),
    ("label", lambda m: m.classify(tenant=1), TypeError, "label tenant must be str"),
    ("labels", lambda m: m.classify(**{f"l{i}": "x" for i in range(9)}), ValueError, "at most 8, got 9"),
    ("length", lambda m: m.classify(-1), ValueError, "tokens of a request must be between"),
]


@pytest.mark.parametrize(("call", "error", "text"), [case[1:] for case in MISUSE], ids=[case[0] for case in MISUSE])
def test_misuse_is_raised_and_changes_nothing(call: Callable[[Meter], Any], error: type[Exception], text: str) -> None:
    meter = Meter()
    with pytest.raises(error) as raised:
        call(meter)
    assert text in str(raised.value)
    assert meter.snapshot().reading() == Meter().snapshot().reading()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"windows": ("1m", "15s")}, "a multiple of the one before it"),
        ({"windows": ("7ns",)}, "window width"),
        ({"scale": 9}, "scale must be between 0 and 8, got 9"),
        ({"itl": "word"}, "ITL rule must be token, chunk or stamp"),
        ({"max_classes": 1}, "max_classes must be between 2 and 4096, got 1"),
        ({"max_requests": 0}, "max_requests must be between 1"),
        ({"shards": 0}, "shards must be between 1"),
        ({"ttl": "0s"}, "a duration must be"),
        ({"slos": "ttft=1s"}, "tpot is missing"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Meter(**settings)


def test_settings_are_told() -> None:
    meter = Meter([SLO("chat", ttft=0.2, tpot=0.03)], ("1m", 3600), scale=4, itl="chunk", ttl=60, max_classes=9)
    assert (meter.slos, meter.windows_ns, meter.ttl_ns) == (["chat"], [60 * S, 3600 * S], 60 * S)
    assert (meter.scale, meter.itl_rule, meter.max_classes, meter.burn, meter.path) == (4, "chunk", 9, True, None)
    assert meter.snapshot().slos == (SLO("chat", ttft=0.2, tpot=0.03),)
    with pytest.raises(AttributeError):
        meter.anything = 1  # type: ignore[attr-defined]


def test_columns_of_arrivals() -> None:
    meter = Meter()
    tenant = meter.classify(tenant="a")
    handles = meter.arrive(0, np.array([10, 20, 30], dtype=np.int32), 5, (tenant, 0, tenant))
    assert handles.dtype == np.int64
    assert len(set(handles.tolist())) == 3
    assert meter.arrive(1, [7]).shape == (1,)
    assert meter.arrive(1, []).shape == (0,)
    assert meter.arrive(1, 2, cls=np.array([tenant])).shape == (1,)
    total = meter.snapshot().total
    assert (total.counts["prompt_tokens"], total.counts["cached_tokens"]) == (69, 15)
    assert total.where(tenant="a").counts["prompt_tokens"] == 42


def test_values_by_the_column() -> None:
    meter = Meter()
    meter.observe("ttft", 0.25)
    meter.observe("ttft", [0.5, math.nan, -1])
    meter.observe("ttft", np.array([MS, 2 * MS]), "ns", t=5)
    meter.observe("itl", 3 * MS, unit="ns", cls=meter.classify(tenant="a"), t=S)
    snapshot = meter.snapshot()
    assert (snapshot.total.latency["ttft"].count, snapshot.total.latency["ttft"].max) == (4, 0.5)
    assert snapshot.refused_values == {"nan": 1, "negative": 1}
    assert snapshot.window("15s").latency["ttft"].count == 2
    assert snapshot.total.where(tenant="a").latency["itl"].sum_ns == 3 * MS


def served(meter: Meter, t: int = 0) -> list[int]:
    """Three requests: one quick, one slow, one out of memory; and one that still waits."""
    classes = [meter.classify(tenant=tenant) for tenant in ("a", "b", "a")]
    quick, slow, dead = meter.arrive(t, [100, 200, 300], [50, 0, 0], classes).tolist()
    meter.schedule(t + 10 * MS, [quick, slow, dead])
    meter.gauge(t + 10 * MS, running=3, waiting=1, kv_used=30, kv_total=60, batch_max=4)
    meter.step(t + 100 * MS, [quick, slow])
    meter.preempt(t + 100 * MS, slow)
    meter.step(t + 120 * MS, quick, 2)
    meter.resume(t + 900 * MS, slow)
    meter.step(t + 1000 * MS, slow)
    meter.end(t + 120 * MS, quick, "stop")
    meter.end(t + 1000 * MS, slow, "length", degraded=True)
    meter.end(t + 1000 * MS, dead, "oom")
    meter.add(t + 1000 * MS, gpu_active_ns=500 * MS, prefill_tokens=600, decode_tokens=200, flops=1e12, bytes_moved=5e9)
    meter.count(t + 1000 * MS, "semantic_lookup", 4)
    meter.count(t + 1000 * MS, "semantic_hit")
    waiting: int = meter.arrive(t + 1500 * MS, 10)
    return [quick, slow, dead, waiting]


def test_figures_of_a_snapshot() -> None:
    meter = Meter("chat:ttft=200ms,tpot=30ms")
    served(meter)
    snapshot = meter.snapshot(2 * S)
    total, minute = snapshot.total, snapshot.window("1m")
    assert snapshot.t_ns == 2 * S
    assert total.counts == {
        "attempted": 4,
        "succeeded": 2,
        "failed": 1,
        "aborted": 0,
        "rejected": 0,
        "lost": 0,
        "in_flight": 1,
        "degraded": 1,
        "preempted": 1,
        "preemptions": 1,
        "prompt_tokens": 610,
        "cached_tokens": 50,
        "output_tokens": 5,
        "oom_event": 0,
        "semantic_lookup": 4,
        "semantic_hit": 1,
    }
    assert total.by_status == {"stop": 1, "length": 1, "oom": 1}
    assert total.rates["output_tokens_per_second"] == 5.0  # first arrival to last token: 1 s
    assert minute.rates["output_tokens_per_second"] == 2.5  # 2 s since the first event
    assert minute.rates["arrivals_per_second"] == 2.0
    assert (total.true_width, minute.true_width, minute.width_ns, minute.late) == (2.0, 2.0, 60 * S, 0)
    assert minute.goodput[0]["missed"] == {"tpot": 1, "oom": 1}
    assert minute.goodput[0]["attainment"] == 1 / 3
    assert minute.fluidity["chat"]["count"] == 2
    assert minute.availability == 1 - 1 / 3
    assert (minute.degraded_rate, minute.oom_rate, minute.preemption_rate) == (1 / 3, 1 / 3, 1 / 3)
    assert (minute.prefix_hit_rate, minute.semantic_hit_rate) == (50 / 610, 0.25)
    assert (minute.kv_utilization, minute.batch_utilization, minute.gpu_utilization) == (0.5, 0.75, 0.25)
    assert (minute.decode_share, minute.arithmetic_intensity, minute.comm_share) == (0.25, 200.0, None)
    assert minute.gauges["waiting"] is not None
    assert (minute.gauges["waiting"].last, minute.gauges["waiting"].mean) == (1, 1.0)
    assert minute.batch_sizes == {2: 1, 1: 2}
    assert snapshot.open["waits"] == {"n": 1, "oldest": 0.5, "over": {"1s": 0, "5s": 0, "15s": 0, "60s": 0}}
    assert snapshot.burn is not None
    assert snapshot.burn["chat"]["5m"] == pytest.approx(100 * 2 / 3)
    assert snapshot.budget_left == {"chat": pytest.approx(1 - 100 * 2 / 3)}
    assert total.latency["preemption_stall"].max == 0.8


def test_classes_and_their_union() -> None:
    meter = Meter("chat:ttft=200ms,tpot=30ms")
    served(meter)
    total = meter.snapshot().total
    assert [view.key for view in total.classes] == [{}, {"tenant": "a"}, {"tenant": "b"}]
    assert total.where(tenant="a").counts["attempted"] == 2
    assert sum(view.counts["attempted"] for view in total.classes) == 4
    assert total.where().counts == total.counts
    long = meter.classify(prompt_tokens=1000, tenant="a")
    meter.arrive(2 * S, 1000, cls=long)
    both = meter.snapshot().total.where(tenant="a")
    assert (both.counts["prompt_tokens"], both.key, both.other) == (1400, {}, False)
    assert both.latency["ttft"] == total.where(tenant="a").latency["ttft"]
    assert [view.key["tenant"] for view in both.classes] == ["a", "a"]
    assert both.where(prompt_length="512-2048").counts["attempted"] == 1
    assert (both.gauges, both.kv_utilization, both.batch_sizes) == ({}, None, {})
    with pytest.raises(ValueError, match=r"no class bears tenant='z' \(labels known: prompt_length, tenant\)"):
        meter.snapshot().total.where(tenant="z")


def test_a_class_too_many_is_other() -> None:
    meter = Meter(max_classes=2)
    other = meter.classify(tenant="a")
    meter.arrive(0, 5, cls=other)
    snapshot = meter.snapshot()
    assert [(view.key, view.other) for view in snapshot.total.classes] == [({}, True)]
    assert snapshot.over == 1
    with pytest.raises(ValueError, match="no class bears"):
        snapshot.total.where(tenant="a")


def test_windows_by_width() -> None:
    snapshot = Meter(windows=("15s", "1m", "90m")).snapshot()
    assert list(snapshot.windows) == ["15s", "1m", "90m"]
    assert snapshot.window("5400s") is snapshot.windows["90m"]
    assert snapshot.window(60) is snapshot.window("1m")
    with pytest.raises(ValueError, match=r"\(15s, 1m, 90m\), got '2m'"):
        snapshot.window("2m")


def test_an_unused_meter_has_no_figures() -> None:
    snapshot = Meter("ttft=1s,tpot=1s", windows="1m").snapshot()
    assert snapshot.t_ns is None
    assert set(snapshot.window("1m").rates.values()) == {None}
    assert snapshot.total.availability is None
    assert snapshot.total.kv_utilization is None
    assert snapshot.cold_start is None
    json.dumps(snapshot.to_dict(), allow_nan=False)
    assert Meter(burn=False).snapshot().burn is None
    assert Meter(burn=False).snapshot().to_dict()["burn"] is None


def finite(figure: object) -> None:
    if isinstance(figure, dict):
        assert all(isinstance(name, str) for name in figure)
        for one in figure.values():
            finite(one)
    elif isinstance(figure, list):
        for one in figure:
            finite(one)
    else:
        assert figure is None or isinstance(figure, (str, int)) or math.isfinite(figure)  # type: ignore[arg-type]


def test_to_dict_is_json() -> None:
    meter = Meter("chat:ttft=200ms,tpot=30ms")
    served(meter)
    figures = meter.snapshot().to_dict()
    finite(figures)
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    assert figures["windows"]["1m"]["rates"] == meter.snapshot().window("1m").rates
    assert [one["key"] for one in figures["classes"]] == [{}, {"tenant": "a"}, {"tenant": "b"}]


def test_a_snapshot_outlives_its_process() -> None:
    meter = Meter("chat:ttft=200ms,tpot=30ms")
    served(meter)
    snapshot = meter.snapshot(3 * S)
    for again in (
        pickle.loads(pickle.dumps(snapshot)),
        copy.deepcopy(snapshot),
        Snapshot.from_bytes(snapshot.to_bytes()),
    ):
        assert again == snapshot
        assert again.reading() == snapshot.reading()
        assert again.to_dict() == snapshot.to_dict()
    assert meter.snapshot(3 * S).to_bytes() == snapshot.to_bytes()
    meter.arrive(3 * S)
    assert meter.snapshot(3 * S) != snapshot
    assert snapshot.total.counts["attempted"] == 4
    for wrong in (b"", b"x", snapshot.to_bytes()[:-1], b"\xff" * 100):
        with pytest.raises(DecodeError):
            Snapshot.from_bytes(wrong)


def test_merged_snapshots_add_up() -> None:
    meters = [Meter("chat:ttft=200ms,tpot=30ms") for _ in range(3)]
    for position, meter in enumerate(meters):
        served(meter, position * S)
    parts = [meter.snapshot(5 * S) for meter in meters]
    merged = Snapshot.merge(parts)
    assert merged == parts[0] + parts[1] + parts[2] == parts[0] + (parts[1] + parts[2])
    assert merged.total.counts["output_tokens"] == 15
    assert merged.total.where(tenant="b").counts["attempted"] == 3
    assert merged.window("1m").latency["itl"].count == sum(part.window("1m").latency["itl"].count for part in parts)
    with pytest.raises(ValueError, match="at least one snapshot"):
        Snapshot.merge([])
    with pytest.raises(ValueError, match="the same in both snapshots"):
        parts[0] + Meter().snapshot()
    with pytest.raises(TypeError):
        parts[0] + 1  # type: ignore[operator]


def test_quantiles_in_bulk() -> None:
    meter = Meter("chat:ttft=200ms,tpot=30ms")
    served(meter)
    snapshot = meter.snapshot()
    found = snapshot.quantiles([0.5, 0.99])
    assert (found.shape, found.dtype) == ((5, 4, 8, 2), np.float64)
    scopes = [snapshot.total, *snapshot.windows.values()]
    for scope, view in enumerate(scopes):
        for position, one in enumerate([view, *view.classes]):
            for metric, name in enumerate(METRICS):
                expected = [one.latency[name].quantile(q) for q in (0.5, 0.99)]
                np.testing.assert_array_equal(found[scope, position, metric], expected)
    with pytest.raises(ValueError, match="quantile"):
        snapshot.quantiles([1.5])


def test_an_id_map_stands_for_handles() -> None:
    meter = Meter()
    ids = IdMap(meter)
    assert ids.arrive(0, "a", 10) == ids.handle("a")
    ids.arrive(0, "b", prompt_tokens=20, cached_tokens=5)
    ids.arrive(0, 7)
    assert ids.arrive(MS, "a") == -1
    ids.schedule(MS, ("a", "b", 7))
    ids.prefill(MS, "a")
    ids.step(2 * MS, ["a", "b", 7, "stranger"], [1, 2, 3, 4])
    ids.preempt(2 * MS, "b")
    ids.resume(3 * MS, "b")
    assert (len(ids), "a" in ids, "stranger" in ids, ids.handle("stranger")) == (3, True, False, -1)
    ids.end(4 * MS, ["a", "b", "b"], "stop")
    assert (len(ids), "a" in ids) == (1, False)
    assert ids.arrive(5 * MS, "a") >= 0
    snapshot = ids.meter.snapshot()
    assert snapshot.rejected == {"duplicate": 1, "unknown": 2}
    assert snapshot.total.counts["output_tokens"] == 6
    assert snapshot.total.counts["in_flight"] == 2
    with pytest.raises(TypeError, match="id must not be a tuple"):
        ids.arrive(0, ("a", 1))
    with pytest.raises(TypeError, match="unhashable"):
        ids.step(0, {})
    with pytest.raises(ValueError, match="counts must be as many"):
        ids.step(0, "a", [1, 2])


def test_an_id_map_keeps_an_end_that_is_refused() -> None:
    ids = IdMap(Meter())
    ids.arrive(0, "a")
    ids.end(10**6 * S, "a", "stop")
    assert ids.meter.snapshot().rejected == {"future": 1}
    assert "a" in ids
    ids.end(S, "a", "stop")
    assert len(ids) == 0


def test_an_id_map_stays_bounded() -> None:
    meter = Meter(windows="1m", max_requests=4, ttl="1s")
    ids = IdMap(meter)
    for position in range(200):
        assert ids.arrive(position * 2 * S, f"request {position}") >= 0
        assert len(ids) <= 8
    assert meter.snapshot().total.counts["lost"] >= 192


def test_documented_examples_run() -> None:
    ran = [
        doctest.DocTestRunner().run(test)
        for one in (tokenpulse.Meter, tokenpulse.IdMap, tokenpulse.MeterReader)
        for test in doctest.DocTestFinder(recurse=False).find(one, one.__name__, module=False, globs={})
    ]
    assert sum(result.attempted for result in ran) > 10
    assert sum(result.failed for result in ran) == 0


def test_reading_while_another_thread_writes() -> None:
    meter = Meter("chat:ttft=1s,tpot=1s", windows=("15s", "1m"))
    done = threading.Event()
    batch = np.asarray(meter.arrive(0, [1] * 64))

    def write() -> None:
        t = 0
        while not done.is_set():
            t += 10 * MS
            meter.step(t, batch)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = 0
        for _ in range(200):
            snapshot = meter.snapshot()
            counts = snapshot.total.counts
            assert counts["output_tokens"] >= seen
            seen = counts["output_tokens"]
            assert snapshot.window("15s").counts["output_tokens"] <= seen
    finally:
        done.set()
        writer.join()
    last = meter.snapshot().total
    assert last.counts["output_tokens"] == last.latency["itl"].count + 64 == 64 * sum(last.batch_sizes.values())
