"""What changed between two runs: values, intervals, distances, verdicts."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from random_logs import request_lines

from tokenpulse import Report, Sketch, engine
from tokenpulse.analysis import intervals
from tokenpulse.analysis.compare import Comparison, compare_runs
from tokenpulse.analysis.dependence import Dependence, Stretches, in_part
from tokenpulse.analysis.intervals import Spread
from tokenpulse.model import SLO

SLOS = (SLO("chat", ttft=0.2, tpot=0.03),)


def sketch(values: Any) -> Sketch:
    made = Sketch()
    made.record_many(np.asarray(values, np.float64))
    return made


def spread(values: Any) -> Spread:
    return Spread.of(sketch(values))


def run_of(
    seed: int, n: int = 2000, *, ttft: float = 1.0, gap: float = 1.0, failed: float = 0.0, **settings: Any
) -> Report:
    """Requests that arrive at random and do not know of one another; latencies may be stretched."""
    rng = np.random.default_rng(seed)
    arrive = np.cumsum(rng.exponential(0.1, n) * 1e9).astype(np.int64)
    lines = []
    for i in range(n):
        first = arrive[i] + int(1e9 * ttft * 0.1 * math.exp(rng.normal(0, 0.4)))
        steps = (1e9 * gap * 0.02 * np.exp(rng.normal(0, 0.2, 20))).astype(np.int64)
        times = [int(first), *(first + np.cumsum(steps)).tolist()]
        status = "error" if rng.random() < failed else "stop"
        label = {"tenant": "ab"[i % 2]}
        line = {"id": str(i), "arrive_ns": int(arrive[i]), "token_ns": times, "status": status, "labels": label}
        lines.append(json.dumps(line | {"prompt_tokens": 100}).encode())
    settings = {"timeline_ns": 1_000_000, "timeline_bins": 240} | settings
    return Report.of(engine.reduce_bytes([("log", b"\n".join(lines))], SLOS, **settings), SLOS)


@pytest.fixture(scope="module")
def base() -> Report:
    return run_of(1)


# Intervals


def test_edges_are_those_of_the_buckets() -> None:
    values = np.concatenate([[0.0, 1e-9, 5000.0], np.logspace(-6, 3.6, 999)])
    found = spread(values)
    assert found.count == len(values)
    assert np.all(found.low <= found.points)
    assert np.all(found.points <= found.high)
    made = sketch(values)
    for q in (0.0005, 0.1, 0.5, 0.99, 0.9995):
        low, high = found.at_share(np.array([q]))
        exact = np.sort(values)[max(1, math.ceil(q * len(values))) - 1]
        assert low[0] <= exact * (1 + 1e-12)
        assert exact <= high[0] * (1 + 1e-12)
        assert low[0] <= made.quantile(q) <= high[0]


def test_students_t_is_as_in_the_tables() -> None:
    for confidence, freedom, known in (
        *((0.95, 1, 12.7062), (0.95, 2, 4.30265), (0.95, 3, 3.18245), (0.95, 4, 2.77645), (0.95, 11, 2.20099)),
        *((0.99, 5, 4.03214), (0.9, 30, 1.69726), (0.999, 7, 5.40788), (0.95, 1e6, 1.95997)),
    ):
        assert intervals.t_quantile(confidence, freedom) == pytest.approx(known, rel=1e-4)
    with pytest.raises(ValueError, match="at least 1"):
        intervals.t_quantile(0.95, 0.5)


@pytest.mark.parametrize(("n", "q"), [(1, 0.5), (10, 0.9), (100, 0.99), (1000, 0.5), (5000, 0.999)])
def test_ranks_are_binomial(n: int, q: float) -> None:
    """Held against the sum of the exact probabilities."""
    shares = intervals._grid()[1]
    at_most = np.cumsum(
        [math.comb(n, k) * q**k * (1 - q) ** (n - k) if n <= 1000 else _log_binomial(n, k, q) for k in range(n + 1)]
    )
    expected = [int(np.searchsorted(at_most, share)) for share in shares]
    found = intervals._below(float(n), q)
    inside = (shares > 1e-9) & (shares < 1 - 1e-9)
    assert np.max(np.abs(found - np.minimum(expected, n))[inside]) <= 1


def _log_binomial(n: int, k: int, q: float) -> float:
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(log + k * math.log(q) + (n - k) * math.log(1 - q))


def test_ranks_of_very_many_are_those_of_fewer_at_the_seam() -> None:
    n, q = 3.9e6, 0.5  # just below the variance from which they are expanded
    exact = intervals._below(n, q)
    z = intervals._grid()[0]
    expanded = np.rint(n * q + math.sqrt(n * q * (1 - q)) * z)
    assert np.max(np.abs(exact - expanded)) <= 1


def test_the_interval_of_a_percentile_is_that_of_the_order_statistics() -> None:
    """Against a run of one value, which has no error of its own, it is the interval of the median's rank."""
    values = np.arange(1, 101) / 100
    one = spread(np.full(10**6, 0.001))
    change = intervals.percentile_change(one, spread(values), 0.5, (1e6, 100), 0.95)
    assert change.absolute is not None
    # The ranks 40 and 61 hold the median of 100 values in 95 of 100 cases.
    low, high = (round(end + 0.001, 2) for end in change.absolute)
    assert 0.39 <= low <= 0.41
    assert 0.60 <= high <= 0.62


def test_too_few_values_leave_the_interval_open() -> None:
    few, many = spread(np.linspace(0.1, 1, 20)), spread(np.linspace(0.1, 1, 2000))
    up = intervals.percentile_change(many, few, 0.99, (2000, 20), 0.95).absolute
    down = intervals.percentile_change(few, many, 0.99, (20, 2000), 0.95).absolute
    assert up is not None
    assert down is not None
    assert math.isfinite(up[0])
    assert up[1] == math.inf
    assert down[0] == -math.inf
    assert math.isfinite(down[1])
    assert intervals.percentile_change(few, many, 0.5, (0.5, 2000), 0.95).absolute is None


def test_no_interval_is_narrower_than_the_buckets() -> None:
    """However many values there are, the sketch does not tell where in a bucket they lie."""
    before, after = spread([0.1, *[0.2000] * 10**5, 0.3]), spread([0.1, *[0.2001] * 10**5, 0.3])
    change = intervals.percentile_change(before, after, 0.5, (1e5, 1e5), 0.95)
    assert change.direction == 0
    assert change.relative is not None
    assert change.relative[1] - change.relative[0] > 0.02


def test_a_single_value_has_a_change_but_no_interval_of_its_mean() -> None:
    assert intervals.mean_change(spread([1.0]), spread([2.0]), (1, 1), 0.95).absolute is None
    change = intervals.mean_change(spread([1.0] * 5), spread([2.0] * 5), (5, 5), 0.95)
    assert change.absolute == (1.0, 1.0)
    assert change.direction == 1


def test_shares_have_newcombes_interval() -> None:
    """Newcombe, Statistics in Medicine 17 (1998), table II, example (a): 56/70 against 48/80."""
    change = intervals.share_change((48, 80), (56, 70), (80, 70), 0.95)
    assert change.absolute is not None
    assert [round(end, 4) for end in change.absolute] == [0.0524, 0.3339]
    assert intervals.share_change((0, 0), (1, 2), (0, 2), 0.95).absolute is None


def test_distances_are_those_of_the_values() -> None:
    rng = np.random.default_rng(1)
    a, b = np.exp(rng.normal(0, 0.5, 3000)), np.exp(rng.normal(0.3, 0.7, 2000))
    at = np.sort(np.concatenate([a, b]))
    shares = [np.searchsorted(np.sort(v), at, side="right") / len(v) for v in (a, b)]
    exact_ks = np.max(np.abs(shares[0] - shares[1]))
    exact_w = np.sum(np.abs(shares[0] - shares[1])[:-1] * np.diff(at))
    assert intervals.ks_distance(spread(a), spread(b)) == pytest.approx(exact_ks, abs=0.01)
    assert intervals.wasserstein_seconds(spread(a), spread(b)) == pytest.approx(
        exact_w, abs=0.0055 * (a.mean() + b.mean())
    )
    assert intervals.ks_distance(spread(a), spread(a)) == 0
    assert intervals.wasserstein_seconds(spread([1.0, 1.0]), spread([3.0, 3.0])) == pytest.approx(2.0, rel=0.02)
    assert intervals.ks_distance(spread([0.0]), spread([5000.0])) == 1


COVERAGE = 400


@pytest.mark.parametrize(("q", "before", "after"), [(0.5, 200, 200), (0.9, 200, 500), (0.99, 1000, 1000)])
def test_intervals_hold_the_true_change(q: float, before: int, after: int) -> None:
    """In 95 of 100 cases, at least; the true quantile of exp(normal) is known."""
    rng = np.random.default_rng(7)
    z = intervals.NormalDist().inv_cdf(q)
    truth = 0.11 * math.exp(0.5 * z) - 0.1 * math.exp(0.5 * z)
    held = 0
    for _ in range(COVERAGE):
        a = spread(0.1 * np.exp(rng.normal(0, 0.5, before)))
        b = spread(0.11 * np.exp(rng.normal(0, 0.5, after)))
        change = intervals.percentile_change(a, b, q, (before, after), 0.95).absolute
        assert change is not None
        held += change[0] <= truth <= change[1]
    assert held >= 0.95 * COVERAGE - 2 * math.sqrt(COVERAGE * 0.95 * 0.05)


# How requests depend on one another


def timeline(values: list[Any]) -> dict[str, Any]:
    blocks = [{"latency": {"ttft": sketch(one)}, "good": len(one) // 2, "judged": len(one)} for one in values]
    return {
        "width_ns": 10,
        "bins": [{"start_ns": 10 * n, "block": block} for n, block in enumerate(blocks) if values[n]],
    }


def test_independent_values_amount_to_themselves() -> None:
    rng = np.random.default_rng(3)
    values = [list(np.exp(rng.normal(0, 0.5, 100))) for _ in range(12)]
    depends = Dependence.of(timeline(values))
    whole = spread(np.concatenate(values))
    assert depends.mean("ttft", whole) < 2.5
    assert depends.percentile("ttft", whole, 0.5) < 2.5
    assert 300 < depends.independent(1200, 1.0, 0.95) < 1200


def test_values_that_are_alike_in_a_stretch_count_once() -> None:
    values = [[0.1 + 0.01 * n] * 100 for n in range(12)]
    depends = Dependence.of(timeline(values))
    whole = spread(np.concatenate(values))
    assert depends.mean("ttft", whole) > 80
    assert depends.percentile("ttft", whole, 0.5) > 80
    assert depends.independent(1200, depends.mean("ttft", whole), 0.95) < 15


def test_a_timeline_is_cut_into_about_a_dozen_stretches() -> None:
    for bins, stretches in ((240, 12), (121, 11), (12, 12), (9, 9)):
        found = Stretches.of(timeline([[1.0]] * bins))
        assert found is not None
        assert len(found) == stretches
    assert Stretches.of(timeline([[1.0]] * 7)) is None
    assert Stretches.of(None) is None
    gaps = Stretches.of(timeline([[1.0] if n % 5 == 0 else [] for n in range(101)]))
    assert gaps is not None
    assert gaps.sums(lambda block: block["judged"]).sum() == 21


def test_without_a_timeline_requests_are_taken_as_independent() -> None:
    depends = Dependence.of(None)
    assert depends.mean("ttft", spread([1.0, 2.0])) == 1
    assert depends.independent(500, 1.0, 0.95) == 500
    assert depends.total(lambda _: 1) is None
    assert in_part(5.0, 0, 100) == 1


# Whole runs


def test_runs_without_a_change_show_none(base: Report) -> None:
    for seed in (2, 3, 4):
        found = compare_runs(base, run_of(seed))
        assert found.verdict == "no clear change", found.because
        assert found.because == []
        assert found.warnings == []


def test_a_run_is_no_change_from_itself(base: Report) -> None:
    found = compare_runs(base, base)
    for latency in found.latency.values():
        if latency is not None:
            assert (latency["ks"], latency["wasserstein_seconds"]) == (0, 0)
            for name in ("mean", "p50", "p99"):
                assert latency[name]["change"] == latency[name]["relative_change"] == 0
                low, high = latency[name]["interval"]
                assert low <= 0 <= high
    assert {latency is None for metric, latency in found.latency.items() if metric in ("queue", "scheduling")} == {True}


def test_a_slower_run_is_worse_and_the_other_way_round_better(base: Report) -> None:
    slower = run_of(2, ttft=1.8, gap=1.1, failed=0.05)
    worse, better = compare_runs(base, slower), compare_runs(slower, base)
    assert (worse.verdict, better.verdict) == ("worse", "better")
    told = {one["figure"] for one in worse.because}
    assert {"ttft P50", "ttft P99", "itl P50", "tpot P50", "error rate", "attainment of chat"} <= told
    ttft = worse.latency["ttft"]
    assert ttft is not None
    assert ttft["verdict"] == "worse"
    low, high = ttft["p50"]["relative_interval"]
    assert low < 0.8 < high
    assert low > 0.6
    assert worse.shares["error_rate"]["after"] == pytest.approx(0.05, abs=0.02)
    assert worse.goodput[0]["attainment"]["verdict"] == "worse"
    assert worse.goodput[0]["requests_per_second"]["relative_change"] < 0


def test_better_in_one_and_worse_in_another_is_mixed(base: Report) -> None:
    found = compare_runs(base, run_of(2, ttft=1.3, gap=0.8))
    assert found.verdict == "mixed"
    assert {one["verdict"] for one in found.because} == {"better", "worse"}


def test_changes_are_those_of_the_reports(base: Report) -> None:
    other = run_of(2, ttft=1.1)
    found = compare_runs(base, other).latency["ttft"]
    assert found is not None
    before, after = base.latency["ttft"], other.latency["ttft"]
    assert before is not None
    assert after is not None
    for name in ("mean", "p50", "p90", "p95", "p99", "p999"):
        assert (found[name]["before"], found[name]["after"]) == (before[name], after[name])
        assert found[name]["change"] == after[name] - before[name]


def test_strata_are_compared_each_by_itself() -> None:
    before, after = (run_of(seed, by=["tenant"]) for seed in (1, 2))
    found = compare_runs(before, after)
    assert [one["key"] for one in found.by] == [{"tenant": "a"}, {"tenant": "b"}]
    assert found.by_only == {"before": [], "after": []}
    for one in found.by:
        assert one["verdict"] == "no clear change"
        assert one["latency"]["ttft"]["count"] == {"before": 1000, "after": 1000}
    assert compare_runs(before, run_of(2)).by == []


def test_gaps_are_not_taken_for_more_than_their_requests(base: Report) -> None:
    found = compare_runs(base, run_of(2)).latency["itl"]
    assert found is not None
    assert found["count"]["before"] == 40_000
    assert max(found["p50"]["independent"]) <= 2000


def test_what_keeps_runs_from_being_held_against_each_other_is_said(base: Report) -> None:
    plain = run_of(2, timeline_ns=None)
    found = compare_runs(base, plain)
    assert ["after: no timeline" in one for one in found.warnings] == [True]
    assert found.rates["requests_per_second"]["interval"] is None
    assert found.rates["requests_per_second"]["verdict"] == "not judged"
    other = Report.of(engine.reduce_bytes([("a", request_lines(1, 100))], timeline_ns=1_000_000))
    said = " ".join(compare_runs(base, other).warnings)
    assert "prompts are" in said
    assert "--by prompt_length" in said
    assert "same SLO sets" in said
    cut = run_of(2, from_ns=10**9)
    assert "only one of the runs is cut" in " ".join(compare_runs(base, cut).warnings)
    with pytest.raises(ValueError, match="different ITL rules, token and chunk"):
        compare_runs(base, Report.of(engine.reduce_bytes([("a", b"")], itl_rule="chunk"), itl="chunk"))


def test_nothing_against_something() -> None:
    nothing = Report.of(engine.reduce_bytes([("a", b"")], SLOS, timeline_ns=1_000_000), SLOS)
    for found in (
        compare_runs(nothing, nothing),
        compare_runs(nothing, run_of(1, 50)),
        compare_runs(run_of(1, 1), run_of(2, 1)),
    ):
        assert isinstance(found, Comparison)
        assert found.verdict in ("not judged", "no clear change")
        json.dumps(found.to_dict(), allow_nan=False)


def test_json_is_strict_and_says_its_schema(base: Report) -> None:
    text = json.dumps(compare_runs(base, run_of(2, 50, failed=0.5)).to_dict(), allow_nan=False)
    found = json.loads(text)
    assert found["schema"] == "tokenpulse.compare/1"
    assert found["rules"]["confidence"] == 0.95
    assert 0.95 < found["rules"]["joint_confidence"] < 1
