"""What runs at several rates say together: rates, limits, costs, batches and what must be known of the runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rated_runs import SLO, every, write

import tokenpulse
from tokenpulse import sketches
from tokenpulse.analysis.batch import Gauges, batch_figures

APPENDED = "tests/fixtures/tools/vllm_bench_append.jsonl.gz"


def keeps(found: tokenpulse.Capacity, target: float) -> dict[str, Any]:
    return next(one for one in found.slos[0]["keeps"] if one["target"] == target)


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """400 requests at 10, 20 and 40 a second, of which all, 95 % and half are good; TPOT is missed before TTFT."""
    return [
        write(tmp_path / "10.jsonl", 10, 400),
        write(tmp_path / "20.jsonl", 20, 400, every(20, "tpot")),
        write(tmp_path / "40.jsonl", 40, 400, lambda n: ("good", "tpot", "good", "ttft+tpot")[n % 4]),
    ]


def test_the_highest_rate_lies_between_the_runs(runs: list[Path]) -> None:
    found = tokenpulse.capacity(runs[::-1], slo=SLO)
    assert [row["name"] for row in found.runs] == ["10.jsonl", "20.jsonl", "40.jsonl"]
    assert [row["offered_per_second"] for row in found.runs] == pytest.approx([10, 20, 40])
    assert [one["attainment"] for one in found.slos[0]["runs"]] == [1.0, 0.95, 0.5]
    assert 20 < keeps(found, 0.9)["rate"] < 30
    assert 10 < keeps(found, 0.99)["rate"] < 20
    assert keeps(found, 0.9)["goodput_per_second"] == pytest.approx(0.9 * keeps(found, 0.9)["rate"])
    assert keeps(found, 0.9)["interval"] == pytest.approx([20, 40])
    assert found.warnings == []


def test_each_limit_alone(runs: list[Path]) -> None:
    found = tokenpulse.capacity(runs, slo=SLO)
    missed = [one["missed"] for one in found.slos[0]["runs"]]
    assert missed[2] == {"ttft": 0.25, "tpot": 0.5, "failed": 0.0}
    at = keeps(found, 0.9)
    assert at["binds"] == "tpot"
    assert at["alone"]["tpot"]["rate"] == pytest.approx(at["rate"])
    assert at["rate"] < at["alone"]["ttft"]["rate"] < 40
    assert at["alone"]["failed"] == {"how": "at least", "rate": pytest.approx(40)}


def test_failures_can_be_what_binds(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a", 5, 200), write(tmp_path / "b", 10, 200, every(4, "error"))]
    found = tokenpulse.capacity(paths, slo=SLO)
    assert keeps(found, 0.9)["binds"] == "failed"
    assert found.slos[0]["runs"][1]["missed"] == {"ttft": 0.0, "tpot": 0.0, "failed": 0.25}


def test_aborted_requests_have_no_verdict(tmp_path: Path) -> None:
    found = tokenpulse.capacity(write(tmp_path / "a", 10, 400, every(4, "abort")), slo=SLO)
    assert keeps(found, 0.9)["how"] == "at least"
    assert found.slos[0]["runs"][0]["judged"] == 300
    assert keeps(found, 0.9)["goodput_per_second"] == pytest.approx(7.5, rel=0.01)


def test_above_and_below_all_runs(runs: list[Path]) -> None:
    above = tokenpulse.capacity(runs[:1], slo=SLO)
    assert [one["how"] for one in above.slos[0]["keeps"]] == ["at least", "at least"]
    assert [one["rate"] for one in above.slos[0]["keeps"]] == pytest.approx([10, 10])
    assert above.slos[0]["keeps"][0]["interval"][1] is None
    below = tokenpulse.capacity(runs[2:], slo=SLO, gpu_hour=1)
    assert keeps(below, 0.9)["how"] == "under"
    assert keeps(below, 0.9)["cost_per_good"] is None
    assert keeps(below, 0.9)["binds"] == "tpot"


def test_misses_that_come_together_say_less(tmp_path: Path) -> None:
    """The same 40 of 400: spread evenly, and in one stretch of time."""
    spread = write(tmp_path / "spread", 20, 400, every(10, "ttft"))
    bunched = write(tmp_path / "bunched", 20, 400, lambda n: "ttft" if 200 <= n < 240 else "good")
    each = [tokenpulse.capacity(path, slo=SLO).slos[0]["runs"][0] for path in (spread, bunched)]
    assert [one["attainment"] for one in each] == [0.9, 0.9]
    (low, high), (lower, higher) = (one["interval"] for one in each)
    assert lower < low < 0.9 < high < higher
    assert each[1]["independent"] < each[0]["independent"] / 3


def test_a_run_without_a_miss_that_came_close_in_one_stretch_says_less(tmp_path: Path) -> None:
    spread = write(tmp_path / "spread", 20, 400, every(10, "late"))
    bunched = write(tmp_path / "bunched", 20, 400, lambda n: "late" if 200 <= n < 240 else "good")
    each = [tokenpulse.capacity(path, slo=SLO).slos[0]["runs"][0] for path in (spread, bunched)]
    assert [one["attainment"] for one in each] == [1.0, 1.0]
    assert each[1]["interval"][0] < each[0]["interval"][0]
    assert each[1]["independent"] < each[0]["independent"] / 3
    # Far from its limit a latency may go up and down as it likes.
    far = [tokenpulse.capacity(path, slo="ttft=1s,tpot=1s").slos[0]["runs"][0] for path in (spread, bunched)]
    assert far[0]["independent"] == far[1]["independent"] == each[0]["independent"]


def test_requests_that_came_at_once_have_no_rate() -> None:
    found = tokenpulse.capacity(APPENDED, slo=SLO)
    assert [row["at_once"] for row in found.runs] == [False, False, True]
    assert [row["offered_per_second"] for row in found.runs[:2]] == pytest.approx([3.95, 11.85], abs=0.01)
    assert found.runs[2]["offered_per_second"] is None
    assert keeps(found, 0.99)["how"] == "at least"
    assert keeps(found, 0.99)["rate"] == found.runs[1]["offered_per_second"]
    # What binds is known from the run without a rate alone.
    assert keeps(found, 0.99)["binds"] == "ttft"
    assert any("no rate" in text for text in found.warnings)


def test_cost(runs: list[Path]) -> None:
    found = tokenpulse.capacity(runs, slo=SLO, gpu_hour=3.6, gpus=10, cost_limit=0.0006)
    good = [one["goodput_per_second"] for one in found.slos[0]["runs"]]
    assert [one["cost_per_good"] for one in found.slos[0]["runs"]] == pytest.approx([0.01 / one for one in good])
    at = keeps(found, 0.9)
    assert at["cost_per_good"] == pytest.approx(0.01 / at["goodput_per_second"])
    assert at["cost_interval"] == pytest.approx([0.01 / (40 * 0.9), 0.01 / (20 * 0.9)])
    # 19.8 good requests a second at 40 offered, 18.9 at 20: the run of 40 gives the most for the money.
    best = found.slos[0]["best"]
    assert best["run"] == good.index(max(good))
    assert best["good_per_cost"] == pytest.approx(max(good) / 0.01)
    # 0.01 a second at 0.0006 each are 16.7 good requests a second, of which there are 9.99 at 10 and 18.9 at 20.
    low, high = found.slos[0]["pays"]
    assert low == pytest.approx(10 + 10 * (0.01 / 0.0006 - good[0]) / (good[1] - good[0]))
    assert high == pytest.approx(40)


def test_a_limit_of_the_hour_is_of_all_gpus(runs: list[Path]) -> None:
    within = tokenpulse.capacity(runs, slo=SLO, gpu_hour=3, gpus=4, cost_limit="12/h")
    assert within.slos[0]["best"] is not None
    assert within.slos[0]["pays"] is None
    beyond = tokenpulse.capacity(runs, slo=SLO, gpu_hour=3, gpus=4, cost_limit="11.99/h")
    assert beyond.slos[0]["best"] is None


def test_saved_sketches_and_reports_are_runs(runs: list[Path], tmp_path: Path) -> None:
    reports = [tokenpulse.report(path, slo=SLO, timeline="auto") for path in runs]
    saved = str(tmp_path / "20.json.gz")
    kept = sketches.Saved(reduction=reports[1].reduction, slos=reports[1].slos, **reports[1].made_with)
    sketches.save(saved, kept)
    by_paths = tokenpulse.capacity(runs, slo=SLO)
    mixed = tokenpulse.capacity([runs[0], saved, reports[2]])
    assert mixed.slos[0]["runs"] == by_paths.slos[0]["runs"]
    assert [{**one, "alone": None} for one in mixed.slos[0]["keeps"]] == [
        {**one, "alone": None} for one in by_paths.slos[0]["keeps"]
    ]
    with pytest.raises(ValueError, match="leave --slo out"):
        tokenpulse.capacity([runs[0], saved], slo="ttft=1s,tpot=1s")
    with pytest.raises(ValueError, match="cannot be cut"):
        tokenpulse.capacity([saved], steady=True)


def test_a_cut_has_the_rate_of_its_part(tmp_path: Path) -> None:
    whole = write(tmp_path / "slow", 2, 40).read_text().splitlines()
    late = [json.loads(line) for line in write(tmp_path / "fast", 20, 400).read_text().splitlines()]
    shift = 20 * 10**9
    for one in late:
        one |= {"id": f"b{one['id']}", "arrive_ns": one["arrive_ns"] + shift}
        one["token_ns"] = [t + shift for t in one["token_ns"]]
    both = tmp_path / "both"
    both.write_text("\n".join([*whole, *map(json.dumps, late)]) + "\n")
    assert tokenpulse.capacity(both, slo=SLO).runs[0]["offered_per_second"] == pytest.approx(11, rel=0.01)
    cut = tokenpulse.capacity(both, slo=SLO, from_="20s")
    assert cut.runs[0]["offered_per_second"] == pytest.approx(20, rel=0.01)
    assert cut.runs[0]["arrivals"] == 400


def test_a_setting_that_was_varied(runs: list[Path]) -> None:
    found = tokenpulse.capacity(runs, slo=SLO, varied=("batch_max", [64, 32, 128]))
    assert found.axis == "batch_max"
    assert [row["setting"] for row in found.runs] == [64, 32, 128]
    assert found.slos[0]["keeps"] == []
    with pytest.raises(ValueError, match="got 2 for 3 runs"):
        tokenpulse.capacity(runs, slo=SLO, varied=("batch_max", [64, 32]))


def test_runs_that_are_unlike_are_named(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a", 10, 200, prompt_tokens=100),
        write(tmp_path / "b", 20, 50, prompt_tokens=150),
        write(tmp_path / "c", 30, 200, every(2, "ttft")),
        write(tmp_path / "d", 40, 200, prompt_tokens=120),
    ]
    text = " ".join(tokenpulse.capacity(paths, slo=SLO).warnings)
    assert "prompts are up to 1.50 times as long" in text
    assert "fewer than 100 requests were judged in b" in text
    assert "attainment under default does not fall as the rate rises" in text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "capacity needs limits"),
        ({"slo": SLO, "gpus": 2}, "gpus needs gpu_hour"),
        ({"slo": SLO, "cost_limit": 1}, "cost_limit needs gpu_hour"),
        ({"slo": SLO, "gpu_hour": 1, "cost_limit": "cheap"}, "a cost limit must be a number"),
        ({"slo": SLO, "gpu_hour": 1, "cost_limit": 0}, "a cost limit must be above 0"),
        ({"slo": SLO, "gpu_hour": -1}, "gpu_hour must be a number above 0"),
        ({"slo": SLO, "targets": [1.0]}, "a target must be a share between 0 and 1"),
        ({"slo": SLO, "kv_tokens": 0}, "kv_tokens must be above 0"),
    ],
)
def test_what_does_not_fit(runs: list[Path], options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        tokenpulse.capacity(runs, **options)


def test_what_has_no_requests_to_judge() -> None:
    with pytest.raises(ValueError, match=r"azure_code.csv: no request can be judged: a trace"):
        tokenpulse.capacity("tests/fixtures/tools/azure_code.csv", slo=SLO)
    with pytest.raises(ValueError, match=r"inferencex_agg.json: no request can be judged"):
        tokenpulse.capacity("tests/fixtures/tools/inferencex_agg.json", slo=SLO)
    with pytest.raises(ValueError, match="at least one run"):
        tokenpulse.capacity([], slo=SLO)


# Batches


def test_the_largest_batch_for_the_cache() -> None:
    """8,192 blocks of 16 tokens; 24 running requests that hold 1,200 of them, which are 800 tokens each."""
    gauges = Gauges(running_mean=24, running_max=40, kv_used_mean=1200, kv_total=8192, block_tokens=16, batch_limit=128)
    found = batch_figures(gauges, {}, None)
    assert (found["kv_tokens"], found["tokens_held"], found["tokens_held_by"]) == (131_072, 800, "gauges")
    assert found["kv_allows"] == pytest.approx(163.84)
    assert (found["mean"], found["largest"], found["limit"], found["observed_by"]) == (24, 40, 128, "gauges")


def test_without_gauges_lengths_and_the_requests_in_the_system_stand_in(runs: list[Path]) -> None:
    batch = tokenpulse.capacity(runs[0], slo=SLO, kv_tokens=10_250).runs[0]["batch"]
    # Prompts of 100 tokens and outputs of 5; each is in the system for 90 ms, 10 a second.
    assert (batch["tokens_held"], batch["tokens_held_by"]) == (102.5, "lengths")
    assert batch["kv_allows"] == pytest.approx(100)
    assert batch["observed_by"] == "requests in the system"
    assert batch["mean"] == pytest.approx(0.9, rel=0.02)
    given = tokenpulse.capacity(runs[0], slo=SLO, kv_tokens=10_250, tokens_held=50).runs[0]["batch"]
    assert (given["kv_allows"], given["tokens_held_by"]) == (205, "given")


def test_gauges_of_a_log(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"t_ns": 0, "ev": "ready", "kv_block_tokens": 16, "gpus": 2},
        {"t_ns": 0, "ev": "gauge", "running": 0, "waiting": 0, "kv_used": 0, "kv_total": 100, "batch_max": 8},
    ]
    for second in range(1, 5):
        t = second * 10**9
        lines += [
            {"t_ns": t, "id": str(second), "ev": "arrive", "prompt_tokens": 40},
            {"t_ns": t, "ev": "gauge", "running": 1, "kv_used": 3},
            {"t_ns": t + 10**8, "id": str(second), "ev": "tokens"},
            {"t_ns": t + 5 * 10**8, "id": str(second), "ev": "tokens"},
            {"t_ns": t + 5 * 10**8, "id": str(second), "ev": "end", "status": "stop"},
            {"t_ns": t + 5 * 10**8, "ev": "gauge", "running": 0, "kv_used": 0},
        ]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = tokenpulse.capacity(path, slo="ttft=1s,tpot=1s", gpu_hour=3.6)
    batch = found.runs[0]["batch"]
    assert (batch["kv_tokens"], batch["tokens_held"], batch["largest"], batch["limit"]) == (1600, 48, 1, 8)
    assert batch["kv_allows"] == pytest.approx(1600 / 48)
    assert batch["mean"] == pytest.approx(2 / 4.5)
    # Two GPUs, by the log's first line.
    assert found.runs[0]["gpus"] == 2
    assert found.slos[0]["runs"][0]["cost_per_good"] == pytest.approx(0.002 * 3.5 / 4)
