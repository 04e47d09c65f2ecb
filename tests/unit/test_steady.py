"""The steady span of runs whose answer is known, by rows and by bins, and of real recordings against brute force."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from runs import MS, Request, closed_loop, curves, trapezoid

import tokenpulse
from tokenpulse.analysis.curve import Curve
from tokenpulse.analysis.steady import plateau, steady_span

FIXTURES = Path(__file__).parents[1] / "fixtures"

ms = pytest.approx


def span_ms(requests: list[Request], by: str) -> tuple[float, float]:
    curve = curves(requests)[by]
    assert curve is not None
    found = steady_span(curve)
    assert found is not None
    return found.from_ns / MS, found.to_ns / MS


@pytest.mark.parametrize("by", ["rows", "bins"])
class TestKnownAnswers:
    def test_a_ramp_up_a_plateau_and_a_ramp_down(self, by: str) -> None:
        """100 requests within 1 s, 3 s of them all, 1 s in which they end: 90 % from 0.9 s to 4.1 s."""
        requests = trapezoid(100, 1000, 3000, 1000)
        curve = curves(requests)[by]
        assert curve is not None
        assert plateau(curve) == ms(100, rel=1e-6)
        assert span_ms(requests, by) == (ms(900, abs=12), ms(4100, abs=12))

    def test_a_ramp_that_is_steep_at_one_end(self, by: str) -> None:
        requests = trapezoid(50, 10, 2000, 500)
        begin, end = span_ms(requests, by)
        # 90 % of the smoothed curve: within its stretch, a hundredth of the run, of where the curve itself is.
        assert begin == ms(9, abs=26)
        assert end == ms(2010 + 50, abs=26)

    def test_a_closed_loop_is_steady_from_its_first_moment(self, by: str) -> None:
        requests = closed_loop(32, 10, 400)
        begin, end = span_ms(requests, by)
        assert begin == 0
        assert end == ms(10_000, abs=420)

    def test_an_overload_is_steady_only_at_its_end(self, by: str) -> None:
        """Arrivals twice as fast as ends: concurrency grows to the last arrival and then falls."""
        requests = [(10 * n, 20.0 * n + 15, 20.0 * n + 20) for n in range(500)]
        begin, end = span_ms(requests, by)
        peak = 5000
        assert begin < peak < end
        # Up at 1 request in 20 ms and down as fast: 90 % of the peak's mean over a twentieth of the run.
        assert end - begin == ms(2 * 0.1 * peak, rel=0.35)

    def test_one_request_is_steady_throughout(self, by: str) -> None:
        assert span_ms([(5, 6, 1005)], by) == (0, 1000)

    def test_all_at_once(self, by: str) -> None:
        assert span_ms([(0, 10, 100)] * 20, by) == (0, 100)

    def test_of_two_equal_plateaus_the_longer_and_then_the_earlier(self, by: str) -> None:
        short, long = [(0, 1, 500)] * 10, [(600, 601, 2000)] * 10
        assert span_ms(short + long, by) == (ms(600, abs=20), ms(2000, abs=20))
        assert span_ms([(0, 1, 500)] * 10 + [(1000, 1001, 1500)] * 10, by)[0] == 0

    def test_a_spike_is_no_plateau(self, by: str) -> None:
        """1,000 requests at once for a thousandth of the run: smoothed, they are fewer than the plateau of 100."""
        spike = [(500, 500.5, 501)] * 1000
        requests = [(0.0, 1.0, 10_000.0)] * 100 + spike
        begin, end = span_ms(requests, by)
        assert (begin, end) == (0, 10_000)

    def test_one_still_in_flight_counts_to_the_end(self, by: str) -> None:
        requests: list[Request] = [(0, 10, None), (0, 1000, 1000)]
        curve = curves(requests)[by]
        assert curve is not None
        assert curve.mean(0, curve.run) == 2
        assert span_ms(requests, by) == (0, 1000)


def test_no_time_no_span() -> None:
    for requests in ([(7, 7, 7)], [(7, None, 7), (7, None, 7)], [(7, None, None)]):
        assert set(curves(requests).values()) == {None}
    assert Curve.of_rows(np.empty(0, np.int64), np.empty(0, np.int64), 5) is None


def test_requests_that_take_no_time_leave_the_system_empty() -> None:
    for curve in curves([(0, None, 0), (100, None, 100)]).values():
        assert curve is not None
        assert plateau(curve) == 0
        assert steady_span(curve) is None


def recorded(name: str) -> list[tuple[int, int]]:
    """Arrival and end of each request of a recording, read by hand."""
    begun, ended = {}, {}
    for line in (FIXTURES / name).read_text().splitlines():
        one = json.loads(line)
        if one.get("ev") == "arrive":
            begun[one["id"]] = one["t_ns"]
        elif one.get("ev") == "end":
            ended[one["id"]] = one["t_ns"]
        elif "ev" not in one:
            begin = one.get("arrive_ns", one.get("arrival_mono_ns"))
            times = one.get("token_ns") or [begin + dt for dt in one.get("dt_ns", [])]
            begun[one["id"]] = begin
            ended[one["id"]] = max([begin, *times, one.get("end_ns") or 0])
    return [(begun[name], ended[name]) for name in begun]


@pytest.mark.parametrize("name", ["demo_events.jsonl", "demo_requests.jsonl"])
def test_recordings_against_brute_force(name: str) -> None:
    """Concurrency counted moment by moment: the plateau, and that the span is at 90 % of it and no longer one is."""
    pairs = recorded(name)
    start, stop = min(a for a, _ in pairs), max(e for _, e in pairs)
    step = (stop - start) // 20_000
    moments = np.arange(start, stop, step)
    inside = sum(((a <= moments) & (moments < e)).astype(np.int64) for a, e in pairs)
    area = np.concatenate([[0], np.cumsum(inside)])
    top = max((area[1000:] - area[:-1000]) / 1000)
    smooth = (area[200:] - area[:-200]) / 200
    above = smooth >= 0.9 * top
    edges = np.flatnonzero(np.diff(np.concatenate([[0], above.astype(int), [0]])))
    longest = max(edges[1::2] - edges[::2]) * step / 1e9

    flow = tokenpulse.report(FIXTURES / name).flow
    assert flow is not None
    assert flow["concurrency"]["plateau"] == pytest.approx(top, rel=0.02)
    assert flow["concurrency"]["mean"] == pytest.approx(inside.mean(), rel=0.01)
    assert flow["concurrency"]["peak"]["at_least"] <= inside.max() <= flow["concurrency"]["peak"]["at_most"]
    assert flow["steady"]["seconds"] == pytest.approx(longest, rel=0.15, abs=0.02)
