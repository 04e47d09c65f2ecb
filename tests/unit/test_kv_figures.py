"""The figures of a KV cache from plain counts: intervals, views, reports and tables, without an engine."""

from __future__ import annotations

import io
import json
import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tokenpulse import Sketch, formulas
from tokenpulse.kv.snapshot import KVSnapshot
from tokenpulse.reporting.json import dumps
from tokenpulse.reporting.kv import Curve, KVReport, grid
from tokenpulse.reporting.kv_table import write

S = 1_000_000_000


def sketch(*seconds: float) -> Sketch:
    made = Sketch()
    made.record_many(list(seconds))
    return made


def block(**counts: Any) -> dict[str, Any]:
    names = ("stored", "repeated", "evicted", "released", "refilled", "forgotten", "onloaded", "offloaded")
    none = {"n": 0, "queried": 0, "hit": 0}
    spans = {name: Sketch() for name in ("lifetime", "idle", "gap")}
    return {
        **dict.fromkeys((*names, "touched", "cleared"), 0),
        "lookups": none,
        "relookups": none,
        **spans,
        "replicates": None,
        **counts,
    }


SETTINGS = {"remember": 10, "ttl_ns": 9 * S, "report": "copies", "mode": "exact", "rate": 1.0, "max_blocks": 100}


def reading(total: dict[str, Any], windows: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "settings": SETTINGS,
        "t_ns": 11 * S,
        "newest_ns": 11 * S,
        "first_event_ns": S,
        "resident": {"gpu": 3, "cpu": 1, "disk": 0, "remote": 0},
        "blocks": 4,
        "remembered": 2,
        "rejected": {},
        "clamped": 0,
        "total": total,
        "windows": windows or [],
        **more,
    }


class Raw:
    """A reading as the engine gives it."""

    def __init__(self, kv: dict[str, Any] | None) -> None:
        self._kv = kv

    def kv(self) -> dict[str, Any] | None:
        return self._kv

    def merge(self, other: Raw, /) -> Raw:
        raise NotImplementedError

    def to_bytes(self) -> bytes:
        return b""


def test_the_ends_of_the_refill_rate() -> None:
    assert formulas.refill_rate_ends(0, 0, 0) == (None, None)
    assert formulas.refill_rate_ends(3, 0, 1) == (None, None)
    assert formulas.refill_rate_ends(1, 4) == (0.25, 0.25)
    assert formulas.refill_rate_ends(5, 4, 2) == (1.25, 1.75)
    with pytest.raises(ValueError, match="0 or more"):
        formulas.refill_rate_ends(-1, 4)


def test_the_jackknife_is_that_of_fractions() -> None:
    rng = random.Random(4)
    wholes = [rng.randrange(20, 60) for _ in range(32)]
    parts = [sum(rng.random() < 0.25 for _ in range(whole)) for whole in wholes]
    without = [Fraction(sum(parts) - p, sum(wholes) - w) for p, w in zip(parts, wholes, strict=True)]
    mean = sum(without) / 32
    variance = Fraction(31, 32) * sum((one - mean) ** 2 for one in without)
    error = formulas.jackknife_error(parts, wholes, 0.25)
    assert error == pytest.approx(math.sqrt(variance * Fraction(3, 4)), rel=1e-12)
    assert formulas.jackknife_error(parts, wholes, 1.0) == 0.0
    # Of independent blocks, it is about the error of a share of n.
    assert error == pytest.approx(math.sqrt(0.75 * 0.25 / sum(wholes) * 0.75), rel=0.6)


def test_the_jackknife_where_there_is_nothing_to_divide_by() -> None:
    assert formulas.jackknife_error([0, 0], [0, 0], 0.5) is None
    assert formulas.jackknife_error([1, 0], [3, 0], 0.5) is None
    for parts, wholes in (([1], [1]), ([1, 2], [3]), ([], [])):
        with pytest.raises(ValueError, match="two groups or more"):
            formulas.jackknife_error(parts, wholes, 0.5)
    for sampled in (0.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            formulas.jackknife_error([1, 2], [3, 4], sampled)


def test_a_view_of_the_whole_run() -> None:
    total = block(
        stored=40,
        evicted=20,
        refilled=5,
        forgotten=5,
        onloaded=2,
        lookups={"n": 3, "queried": 100, "hit": 30},
        relookups={"n": 1, "queried": 10, "hit": 1},
        gap=sketch(1.5, 2.5),
    )
    kv = KVSnapshot(Raw(reading(total)))
    assert (kv.evicted, kv.refilled, kv.forgotten, kv.onloaded, kv.blocks, kv.remembered) == (20, 5, 5, 2, 4, 2)
    assert (kv.refill_rate, kv.confidence, kv.sample_rate, kv.hit_rate) == ((0.25, 0.5), None, None, 0.3)
    view = kv.total
    assert (view.eviction_rate, view.refills_per_second, view.rehit_rate, view.true_width) == (2.0, 0.5, 0.1, 10.0)
    assert view.estimated["stored"] == 40.0
    assert (view.spike, view.panes, kv.windows) == (None, (), {})
    assert kv.gap.max == 2.5
    assert "20 evicted, 5 refilled (0.25 to 0.5), no windows" in repr(kv)
    assert json.loads(json.dumps(kv.to_dict(), allow_nan=False))["total"]["gap"]["count"] == 2
    with pytest.raises(ValueError, match=r"that the tracker keeps \(none\), got '1m'"):
        kv.window("1m")


def test_nothing_is_absent_not_zero() -> None:
    kv = KVSnapshot(Raw(reading(block(), t_ns=None, newest_ns=None, first_event_ns=None)))
    view = kv.total
    assert (kv.refill_rate, kv.hit_rate, view.rehit_rate, view.eviction_rate) == ((None, None), None, None, None)
    assert (kv.t_ns, view.true_width, view.spike) == (None, 0.0, None)
    assert view.to_dict()["gap"] is None
    assert repr(kv) == "<tokenpulse.KVSnapshot unused: 0 evicted, 0 refilled, no windows>"


def window(panes: list[list[int]], true_width_ns: int, **counts: Any) -> dict[str, Any]:
    evicted, refilled = (sum(pane[place] for pane in panes) for place in (1, 2))
    counted = block(evicted=evicted, refilled=refilled, **counts)
    return {"width_ns": 60 * S, "true_width_ns": true_width_ns, "late": 7, "block": counted, "panes": panes}


def test_a_window_and_its_spike() -> None:
    panes = [[3 * S, 2, 0], [5 * S, 10, 1], [9 * S, 10, 30], [11 * S, 0, 2]]
    kv = KVSnapshot(Raw(reading(block(), [window(panes, 10 * S)])))
    view = kv.window(60)
    assert view is kv.windows["1m"]
    assert (view.width_ns, view.true_width, view.late, len(view.panes)) == (60 * S, 10.0, 7, 4)
    assert view.refill_rate == (1.5, 1.5)
    assert view.spike is not None
    # Eleven panes, from the one that holds 1 s to the one that holds 11 s, and 22 evictions: two a pane.
    assert view.spike._asdict() == {"start_ns": 5 * S, "evicted": 10, "per_second": 10.0, "ratio": 5.0}
    assert view.to_dict()["spike"]["ratio"] == 5.0
    assert view.to_dict()["panes"][2] == {"start_ns": 9 * S, "evicted": 10, "refilled": 30}
    only_refills = KVSnapshot(Raw(reading(block(), [window([[3 * S, 0, 2]], 10 * S)])))
    assert only_refills.window("1m").spike is None


def test_a_sample_is_scaled_and_has_a_confidence() -> None:
    replicates = [[4, 1 + i % 2, i % 2] for i in range(32)]
    evicted, refilled, forgotten = (sum(column) for column in zip(*replicates, strict=True))
    total = block(evicted=evicted, refilled=refilled, forgotten=forgotten, replicates=replicates)
    panes = [[11 * S, 8, 0]]
    settings = SETTINGS | {"mode": "sampled", "rate": 0.1}
    kv = KVSnapshot(Raw(reading(total, [window(panes, 10 * S, replicates=replicates)], settings=settings)))
    assert kv.sample_rate == 0.1
    assert kv.total.estimated["evicted"] == pytest.approx(1280)
    assert kv.total.eviction_rate == pytest.approx(128)
    assert kv.confidence is not None
    low, high = kv.confidence
    assert low is not None
    assert high is not None
    assert 0.2 < low < kv.refill_rate[0] < kv.refill_rate[1] < high <= 1.0
    known, unseen = [1 + i % 2 for i in range(32)], [1 + 2 * (i % 2) for i in range(32)]
    assert (low, high) == formulas.ratio_interval(known, unseen, [4] * 32, 0.1, 1.0)
    spike = kv.window("1m").spike
    assert spike is not None
    assert (spike.evicted, spike.per_second) == (8, pytest.approx(80))
    empty = KVSnapshot(Raw(reading(block(replicates=[[0, 0, 0]] * 32), settings=settings)))
    assert empty.confidence == (None, None)


def test_only_a_trackers_snapshot_will_do() -> None:
    with pytest.raises(ValueError, match="one of a KV tracker"):
        KVSnapshot(Raw(None))
    with pytest.raises(ValueError, match="at least one snapshot"):
        KVSnapshot.merge([])


def test_snapshots_are_equal_when_their_readings_are() -> None:
    one, same, other = (KVSnapshot(Raw(reading(block(evicted=n)))) for n in (1, 1, 2))
    assert one == same
    assert one != other
    assert one != "text"
    with pytest.raises(TypeError):
        hash(one)


def test_the_sizes_of_a_curve() -> None:
    assert grid(0) == []
    assert grid(7) == [7]
    assert grid(10) == [10]
    assert grid(13) == [10, 12, 13]
    assert grid(1000) == [
        10,
        12,
        15,
        20,
        25,
        30,
        40,
        50,
        60,
        80,
        100,
        120,
        150,
        200,
        250,
        300,
        400,
        500,
        600,
        800,
        1000,
    ]


def test_a_curve_of_counts() -> None:
    mark = {"blocks": 3, "hits": 6, "evicted": 2, "refilled": 1}
    raw = {
        "references": 10,
        "distinct": 4,
        "sampled_references": 10,
        "sampled_distinct": 4,
        "hits": np.array([2, 6]),
        "evicted": np.array([6, 0]),
        "refilled": np.array([3, 0]),
        "knee": mark,
        "refill_under": {"0.05": None, "0.15": mark},
    }
    curve = Curve.of(raw, [2, 4], [2], rate=None, seed=0, block_tokens=16)
    assert curve.points[0] == {
        "blocks": 2,
        "tokens": 32,
        "hits": 2,
        "hit_rate": 0.2,
        "evicted": 6,
        "refilled": 3,
        "refill_rate": 0.5,
    }
    assert curve.points[1]["refill_rate"] is None
    assert curve.knee is not None
    assert curve.knee["refill_rate"] == 0.5
    assert curve.refill_under["0.05"] is None
    assert (curve.mode, curve.rate, curve.sizes) == ("exact", 1.0, [2])
    assert json.loads(json.dumps(curve.to_dict()))["knee"]["tokens"] == 48


def events(**more: Any) -> dict[str, Any]:
    return {
        "totals": block(stored=9, evicted=4, refilled=2, forgotten=1, gap=sketch(90.0, 100.0)),
        "resident": {"gpu": 5, "cpu": 0, "disk": 0, "remote": 0},
        "blocks": 5,
        "remembered": 1,
        "rejected": {"unknown": 2, "full": 1},
        "clamped": 0,
        "streams": 1,
        "first_event_ns": S,
        "newest_ns": 3 * S,
        "settings": SETTINGS,
        "loss": {"gaps": 1, "batches": 5, "restarts": 2},
        **more,
    }


def inputs(**skipped: int) -> list[dict[str, Any]]:
    notice = {"line": 3, "reason": "not_json", "message": "x"}
    return [{"path": "a", "lines": 9, "events": 8, "requests": 0, "passed": 1, "skipped": skipped, "notices": [notice]}]


def test_a_report_of_events() -> None:
    report = KVReport.of_events(events(), inputs(wrong_type=1, not_json=2))
    assert (report.kind, report.unit, report.lookups, report.hit_rate) == ("events", "tokens", None, None)
    assert (report.relookups, report.tokens, report.curve, report.confidence) == (None, None, None, None)
    assert report.refill_rate == [0.5, 0.75]
    assert report.evicted_per_second == 2.0
    assert report.gap is not None
    assert report.gap["max"] == 100.0
    assert list(report.rejected) == ["full", "unknown"]
    assert list(report.inputs[0]["skipped"]) == ["not_json", "wrong_type"]
    assert report.notices == [{"path": "a", "line": 3, "reason": "not_json", "message": "x"}]
    assert report.unusable == 3 + 3 + 5
    told = json.loads(dumps(report))
    assert told["schema"] == "tokenpulse.kv/1"
    assert "notices" not in told["inputs"][0]
    assert "sketches" not in told


def test_a_report_with_look_ups() -> None:
    totals = block(lookups={"n": 2, "queried": 40, "hit": 10}, relookups={"n": 1, "queried": 8, "hit": 2})
    report = KVReport.of_events(events(totals=totals), inputs())
    assert (report.requests, report.lookups, report.hits, report.hit_rate) == (2, 40, 10, 0.25)
    assert report.relookups == {"n": 1, "queried": 8, "hit": 2, "hit_rate": 0.25}
    assert report.refill_rate == [None, None]


def printed(report: KVReport) -> str:
    stream = io.StringIO()
    write(report, stream)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    return text


def test_the_table_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(KVReport.of_events(events(), inputs(not_json=2)))
    assert "50.00 % to 75.00 %" in text
    assert "the log has no look-ups" in text
    assert "the higher end counts forgotten blocks" in text
    assert "docs/kv.md says what helps" in text
    assert "evicted, but not known to be there" in text
    assert "batch lost" in text
    assert [line.split()[:3] for line in text.splitlines() if line.startswith("gap ")] == [["gap", "s", "2"]]
    calm = printed(KVReport.of_events(events(totals=block(evicted=100), rejected={}, loss={}), []))
    assert "docs/kv.md" not in calm
    assert "Not counted" not in calm
    assert "Nothing was evicted" in printed(KVReport.of_events(events(totals=block()), []))


def test_the_table_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    totals = block(evicted=128, refilled=48, replicates=[[4, 1 + i % 2, 0] for i in range(32)])
    settings = SETTINGS | {"mode": "sampled", "rate": 0.1}
    report = KVReport.of_events(events(totals=totals, settings=settings), inputs())
    assert report.confidence is not None
    text = printed(report)
    assert "with 95 % confidence" in text
    assert "10 % of the blocks is followed" in text
    assert "128 in the sample, about 1,280 in all" in text
    assert report.evicted_per_second == pytest.approx(640)
