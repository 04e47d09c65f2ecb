"""Where time went: figures of runs worked out by hand, by rows and by the core's bins, and their edge cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import Request, closed_loop, curves, lines, reduction, rows

import tokenpulse
from tokenpulse import engine
from tokenpulse.analysis import flow

FIXTURES = Path(__file__).parents[1] / "fixtures"
BOTH = pytest.mark.parametrize("by", ["rows", "bins"])


def figures(requests: list[Request], by: str) -> dict[str, Any]:
    found = flow.of_reduction(reduction(requests), rows(requests) if by == "rows" else None)
    assert found is not None
    assert found["exact"] is (by == "rows" and found["seconds"] is not None)
    return found


@BOTH
def test_concurrency_over_time(by: str) -> None:
    """Two requests of 600 ms that overlap for 200 ms in a run of 1 s."""
    found = figures([(0, 100, 600), (400, 500, 1000)], by)
    inside = found["concurrency"]
    assert found["seconds"] == 1.0
    assert inside["mean"] == pytest.approx(1.2)
    assert inside["peak"] == {"at_least": 2, "at_most": 2}
    assert inside["plateau"] == pytest.approx(2, rel=1e-3)
    starts, means = zip(*inside["bins"], strict=True)
    widths = np.diff([*starts, 1.0])
    assert np.dot(widths, means) == pytest.approx(1.2)
    assert starts[0] == 0
    assert len(starts) <= flow.MOST_BINS
    middle = [mean for start, mean in inside["bins"] if 0.41 < start < 0.59]
    assert middle == pytest.approx([2.0] * len(middle))
    # Arrivals and ends a second, over the same bins.
    assert [one[0] for one in found["rates"]] == list(starts)
    for column, total in ((1, 2), (2, 2)):
        assert np.dot(widths, [one[column] for one in found["rates"]]) == pytest.approx(total)


@BOTH
def test_rates_of_arrivals_and_ends(by: str) -> None:
    """100 requests a second; served one by one at 50 a second."""
    requests: list[Request] = [(10 * n, 20 * n + 10, 20 * n + 20) for n in range(400)]
    found = figures(requests, by)
    assert found["arrivals"] == {"count": 400, "rate": pytest.approx(100)}
    assert found["ends"] == {"count": 400, "rate": pytest.approx(50)}
    assert found["arrival_rate"] == pytest.approx(100, rel=0.002)
    assert found["service_rate"] == pytest.approx(50, rel=0.002)
    assert found["utilisation"] == pytest.approx(2, rel=0.004)


@BOTH
def test_one_straggler_does_not_make_a_server_slow(by: str) -> None:
    requests: list[Request] = [(10 * n, 10 * n + 5, 10 * n + 50) for n in range(200)]
    requests[100] = (1000, 1005, 9000)
    found = figures(requests, by)
    assert found["ends"]["rate"] == pytest.approx(199 / 8.95)
    assert found["service_rate"] == pytest.approx(100, rel=0.02)
    assert found["utilisation"] == pytest.approx(1, rel=0.03)


@BOTH
def test_the_first_wave_waits_longer(by: str) -> None:
    """32 users begin at once: their first requests wait 500 ms, all later ones 50 ms."""
    first: list[Request] = [(0, 500, 1000 + n) for n in range(32)]
    later: list[Request] = [(1002 + n, 1052 + n, 1500 + n) for n in range(32)]
    wave = figures(first + later, by)["first_wave"]
    assert wave == {
        "requests": 32,
        "ttft_mean": pytest.approx(0.5),
        "others_ttft_mean": pytest.approx(0.05),
        "ratio": pytest.approx(10),
    }


def test_where_bins_cannot_tell_the_first_wave() -> None:
    """The first end lies in the bin of the first arrival, 1 ms wide."""
    requests: list[Request] = [(0, 0.1, 0.5), (0.6, 0.7, 0.8), (3, 4, 5)]
    assert figures(requests, "bins")["first_wave"] is None
    assert figures(requests, "rows")["first_wave"]["requests"] == 1


@BOTH
def test_nobody_came_after_the_first_wave(by: str) -> None:
    wave = figures([(0, 10, 100), (0, 20, 100)], by)["first_wave"]
    assert wave == {"requests": 2, "ttft_mean": pytest.approx(0.015), "others_ttft_mean": None, "ratio": None}


@BOTH
def test_littles_law_holds_in_a_closed_loop(by: str) -> None:
    law = figures(closed_loop(16, 30, 250), by)["littles_law"]
    assert law["over"] == "steady"
    assert law["needs"] is None
    assert law["mean_in_system"] == pytest.approx(16, rel=0.01)
    assert law["relative_difference"] < 0.02
    assert law["warning"] is False


@BOTH
def test_littles_law_finds_ends_that_are_missing(by: str) -> None:
    """A tenth of the ends were not logged: their requests stay in the system for ever, and throughput lacks them."""
    requests = sorted(closed_loop(50, 30, 250))
    broken = [(a, f, None if n % 10 == 3 else e) for n, (a, f, e) in enumerate(requests)]
    law = figures(broken, by)["littles_law"]
    assert law["relative_difference"] > flow.LITTLE_WARNING
    # They pile up, so that there is no long plateau; where there is one, it is a warning.
    assert law["warning"] in (True, None)


@BOTH
def test_littles_law_warns_of_requests_that_never_left(by: str) -> None:
    """10 requests hang from the start of a closed loop of 50: a fifth of what is in the system is never served."""
    hung: list[Request] = [(0, 1, None)] * 10
    law = figures(hung + closed_loop(50, 30, 250), by)["littles_law"]
    assert law["over"] == "steady"
    assert law["mean_in_system"] == pytest.approx(60, rel=0.02)
    assert law["throughput_times_mean_time"] == pytest.approx(50, rel=0.02)
    assert law["warning"] is True


@BOTH
def test_littles_law_is_not_judged_where_it_cannot_be(by: str) -> None:
    """Three requests of which each is a third of the run."""
    law = figures([(0, 100, 1000), (500, 600, 1500), (2000, 2100, 3000)], by)["littles_law"]
    assert (law["over"], law["warning"]) == ("run", None)
    assert "10 mean times" in law["needs"]
    # Over a whole run in which all ended it holds by itself.
    assert law["relative_difference"] == pytest.approx(0, abs=1e-9)


def test_bins_know_no_mean_time_of_a_part() -> None:
    """A run in two halves, the second busier: from bins the law cannot be judged there, from rows it can."""
    quiet: list[Request] = [(10 * n, 10 * n + 1, 10 * n + 10) for n in range(3000)]
    busy: list[Request] = [(30_000 + 10 * n, 30_000 + 10 * n + 1, 30_000 + 10 * n + 100) for n in range(1500)]
    by_bins, by_rows = (figures(quiet + busy, by)["littles_law"] for by in ("bins", "rows"))
    assert (by_bins["over"], by_bins["warning"]) == ("run", None)
    assert (by_rows["over"], by_rows["warning"]) == ("steady", False)


def test_coalesced_emissions_and_gaps_of_nothing() -> None:
    log = b'{"id":"a","arrive_ns":0,"token_ns":[1000000,2000000,2000000,2000000,9000000],"n":[1,3,1,1,1]}\n'
    made = engine.reduce_bytes([("log", log)], itl_rule="chunk")
    found = flow.of_reduction(made)
    assert found is not None
    assert found["coalesced"] == {"emissions": 5, "coalesced": 1, "share": 0.2, "zero_gap_share": 0.5}
    stamped = flow.of_reduction(engine.reduce_bytes([("log", log)], itl_rule="stamp"))
    assert stamped is not None
    assert stamped["coalesced"]["zero_gap_share"] is None


class TestEdges:
    @BOTH
    def test_one_request(self, by: str) -> None:
        found = figures([(0, 10, 100)], by)
        assert found["concurrency"]["peak"] == {"at_least": 1, "at_most": 1}
        assert found["concurrency"]["mean"] == found["concurrency"]["plateau"] == 1
        assert found["steady"]["share"] == 1
        assert found["arrivals"] == {"count": 1, "rate": None}
        assert found["arrival_rate"] is found["service_rate"] is found["utilisation"] is None

    @BOTH
    def test_no_time_passes(self, by: str) -> None:
        found = figures([(5, 5, 5), (5, 5, 5)], by)
        assert found["seconds"] is found["concurrency"] is found["rates"] is found["steady"] is None
        assert found["littles_law"] is None
        assert found["arrivals"] == {"count": 2, "rate": None}

    @BOTH
    def test_all_at_once(self, by: str) -> None:
        found = figures([(0, 10, 100 + n) for n in range(8)], by)
        assert found["arrival_rate"] is None
        assert found["service_rate"] == pytest.approx(1000)
        assert found["concurrency"]["peak"]["at_least"] == 8

    @BOTH
    def test_none_has_ended(self, by: str) -> None:
        found = figures([(0, 10, None), (100, 400, None)], by)
        assert found["seconds"] == 0.4
        assert found["concurrency"]["mean"] == pytest.approx(1.75)
        assert found["ends"] == {"count": 0, "rate": None}
        assert found["littles_law"] is None
        assert found["first_wave"]["requests"] == 2

    def test_no_request(self) -> None:
        assert flow.of_reduction(engine.reduce_bytes([("log", b"")])) is None

    def test_a_long_run_is_in_wider_bins(self) -> None:
        """Past 10 s the core's bins are wider than 1 ms; means stay exact at their edges."""
        requests: list[Request] = [(1000.5 * n, 1000.5 * n + 10, 1000.5 * n + 333.25) for n in range(100)]
        by_rows, by_bins = (figures(requests, by)["concurrency"] for by in ("rows", "bins"))
        assert by_bins["mean"] == pytest.approx(by_rows["mean"], rel=1e-9)
        assert by_bins["plateau"] == pytest.approx(by_rows["plateau"], rel=0.02)
        assert by_rows["peak"] == {"at_least": 1, "at_most": 1}
        assert by_bins["peak"]["at_least"] <= 1 <= by_bins["peak"]["at_most"]


def test_rows_and_bins_agree_at_random() -> None:
    made = np.random.default_rng(7)
    for _ in range(20):
        arrive = np.sort(made.uniform(0, made.choice([50, 3000, 40_000]), made.integers(1, 300)))
        took = made.exponential(made.choice([1, 100, 2000]), len(arrive))
        requests: list[Request] = [(a, a + t / 2, a + t) for a, t in zip(arrive.tolist(), took.tolist(), strict=True)]
        found = curves(requests)
        exact, binned = found["rows"], found["bins"]
        assert exact is not None
        assert binned is not None
        assert binned.run == exact.run
        # The area is exact at every edge of a bin.
        assert np.interp(binned.times, exact.times, exact.area) == pytest.approx(binned.area, rel=1e-9, abs=1)
        assert binned.least_peak <= exact.most <= binned.most


def test_a_report_has_it(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(lines(closed_loop(8, 5, 100)))
    report = tokenpulse.report(log)
    assert report.flow is not None
    assert report.flow["first_arrival_seconds"] == 0
    assert report.flow["concurrency"]["plateau"] == pytest.approx(8, rel=0.01)
    assert report.to_dict()["flow"] is report.flow
    assert report.flow["saturation"]["verdict"] == "not judged"
