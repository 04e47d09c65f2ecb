"""`tokenpulse capacity`: its tables, its JSON, its picture and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import misuse, run
from rated_runs import SLO, every, write

APPENDED = "tools/vllm_bench_append.jsonl.gz"


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [
        write(tmp_path / "slow.jsonl", 10, 300),
        write(tmp_path / "middle.jsonl", 20, 300, every(20, "ttft")),
        write(tmp_path / "fast.jsonl", 40, 300, every(2, "ttft")),
    ]


def test_the_tables(runs: list[Path]) -> None:
    done = run("capacity", *runs, "--slo", SLO, "--gpu-hour", "3.6", "--gpus", "10", "--cost-limit", "0.0006")
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    for told in (
        "Attainment of default: TTFT < 200 ms, TPOT < 30 ms",
        "Highest rate that keeps default",
        "slow.jsonl",
        "95.00 %",
        "Best of those at 0.0006 or less per good request: ",
        "A good request costs no more than 0.0006 from ",
        "--kv-tokens",
    ):
        assert told in flat, told
    (ninety,) = [line for line in text.splitlines() if line.startswith("90 %")]
    assert "20.0 to 40.0" in ninety
    assert "≥ 40.0" in ninety


def test_one_json_object(runs: list[Path]) -> None:
    done = run("capacity", *runs, "--slo", f"chat:{SLO}", "--target", "0.5", "--json")
    found = json.loads(done.stdout)
    assert found["schema"] == "tokenpulse.capacity/1"
    assert [one["name"] for one in found["slos"]] == ["chat"]
    (keeps,) = found["slos"][0]["keeps"]
    assert (keeps["target"], keeps["how"], keeps["rate"]) == (0.5, "at least", pytest.approx(40))


def test_a_file_of_three_runs() -> None:
    text = run("capacity", APPENDED, "--slo", SLO).stdout.decode()
    assert "at once" in text
    assert "at least 11.8" in text
    assert "no rate" in text


def test_a_picture(runs: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "capacity.png"
    done = run("capacity", *runs, "--slo", SLO, "--plot", picture)
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "must end in .svg or .png" in misuse(run("capacity", *runs, "--slo", SLO, "--plot", tmp_path / "a.pdf"))


def test_a_setting_that_was_varied(runs: list[Path]) -> None:
    done = run("capacity", *runs, "--slo", SLO, "--varied", "policy=chunked,prefill-first,decode-first")
    text = done.stdout.decode()
    assert "prefill-first" in text
    assert "Highest rate" not in text
    assert "a value for each run" in misuse(run("capacity", *runs, "--slo", SLO, "--varied", "policy"))


def test_misuse(runs: list[Path]) -> None:
    assert "needs limits" in misuse(run("capacity", runs[0]))
    assert "gpus needs gpu_hour" in misuse(run("capacity", runs[0], "--slo", SLO, "--gpus", "2"))
    assert "No such file" in misuse(run("capacity", "nowhere.jsonl", "--slo", SLO))
    assert "Missing argument" in misuse(run("capacity", "--slo", SLO))
    assert "can be read only once" in misuse(run("capacity", "-", "-", "--slo", SLO, stdin=runs[0].read_bytes()))
