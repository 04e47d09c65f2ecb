"""Sweeps of simulations: what is swept, that it is always the same, and what the runs say together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import misuse, run

import tokenpulse
from tokenpulse import simulate
from tokenpulse.simulate.sweep import Sweep, sweep

SLO = "ttft=300ms,tpot=25ms"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("rate=2:40:2", tuple(float(rate) for rate in range(2, 41, 2))),
        ("rate=0.1:0.5:0.1", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ("rate=1:2:0.75", (1.0, 1.75)),
        ("rate=8", (8.0,)),
        ("batch-max=32,64", (32, 64)),
        ("chunk=512:1024:256", (512, 768, 1024)),
        ("policy=chunked, prefill-first", ("chunked", "prefill-first")),
        ("prompt=lognormal:550,cv=0.8;fixed:100", ("lognormal:550,cv=0.8", "fixed:100")),
    ],
)
def test_values(text: str, values: tuple[Any, ...]) -> None:
    assert Sweep.parse(text).values == values


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rate", "must be NAME=FIRST:LAST:STEP"),
        ("speed=1,2", "must be NAME=FIRST:LAST:STEP"),
        ("rate=1:2", "must be FIRST:LAST:STEP"),
        ("rate=2:1:1", "must rise from FIRST to LAST"),
        ("rate=1:2:0", "must rise from FIRST to LAST"),
        ("rate=1:1e9:1", "at most 1,000 values"),
        ("rate=1:inf:1", "must rise from FIRST to LAST"),
        ("rate=fast", "must be a number"),
        ("chunk=1.5", "must be a whole number"),
        ("chunk=1:2:0.5", "must be a whole number"),
        ("rate=1,1.0", "must differ"),
        ("policy=chunked,", "none may be empty"),
    ],
)
def test_what_is_no_sweep(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Sweep.parse(text)


def test_processes_change_nothing(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"slo": SLO, "duration": "5s", "seed": 4, "capacity": {"gpu_hour": 2.5}}
    alone = sweep("rate=10,30,90", processes=1, out=tmp_path / "alone", **asked)
    both = sweep("rate=10,30,90", processes=2, out=tmp_path / "both", **asked)
    names = ["rate=10.jsonl", "rate=30.jsonl", "rate=90.jsonl"]
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == names
    for name in names:
        assert (tmp_path / "alone" / name).read_bytes() == (tmp_path / "both" / name).read_bytes()
    assert alone.slos == both.slos
    simulate.run(rate=30.0, duration="5s", seed=4, out=tmp_path / "one.jsonl")
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "both" / "rate=30.jsonl").read_bytes()
    # The runs that are kept say the same as any others; the price counts the GPUs of their first line.
    again = tokenpulse.capacity([tmp_path / "both" / name for name in names], slo=SLO, gpu_hour=2.5)
    assert again.slos == both.slos
    assert [row["gpus"] for row in again.runs] == [8, 8, 8]
    assert not_kept(asked).to_dict() == not_kept(asked).to_dict()


def not_kept(asked: dict[str, Any]) -> tokenpulse.Capacity:
    return sweep("rate=10,30", **asked)


def test_the_batch_that_the_simulated_cache_allows() -> None:
    found = sweep("kv_blocks=200,4000", slo=SLO, rate=20, duration="10s", processes=1, seed=2)
    assert found.axis == "kv_blocks"
    small, large = (row["batch"] for row in found.runs)
    assert (small["kv_tokens"], large["kv_tokens"]) == (3200, 64000)
    assert small["limit"] == large["limit"] == 128
    # A pool of 200 blocks is full all the time, so that as many run as it allows; one of 4,000 is far from it.
    assert small["mean"] == pytest.approx(small["kv_allows"], rel=0.25)
    assert large["mean"] < large["kv_allows"] / 2
    assert found.slos[0]["runs"][0]["attainment"] < found.slos[0]["runs"][1]["attainment"]


def test_what_a_simulation_refuses_is_said() -> None:
    for processes in (1, 2):
        with pytest.raises(ValueError, match="acceptance must be between 0 and 1, got 2"):
            sweep("acceptance=0.5,2", slo=SLO, duration="1s", processes=processes)
    with pytest.raises(ValueError, match="rate is what is swept"):
        sweep("rate=1,2", slo=SLO, rate=3)
    with pytest.raises(ValueError, match="needs limits"):
        sweep("rate=1,2", slo=None, duration="1h")
    with pytest.raises(ValueError, match="cost_limit needs gpu_hour"):
        sweep("rate=1,2", slo=SLO, duration="1h", capacity={"cost_limit": 1})


def test_the_command(tmp_path: Path) -> None:
    kept = tmp_path / "runs"
    asked = ("simulate", "--sweep", "rate=20,100", "--duration", "8s", "--slo", SLO, "--gpu-hour", "2.5")
    done = run(*asked, "-o", kept)
    assert done.returncode == 0, done.stderr
    assert b"Highest rate that keeps default" in done.stdout
    assert {path.name for path in kept.iterdir()} == {"rate=20.jsonl", "rate=100.jsonl"}
    found = json.loads(run(*asked, "--json").stdout)
    assert [row["name"] for row in found["runs"]] == ["rate=20", "rate=100"]
    assert found["slos"][0]["keeps"][0]["how"] == "between"
    told = misuse(run("simulate", "--sweep", "rate=1:2", "--slo", SLO))
    assert "FIRST:LAST:STEP" in told
