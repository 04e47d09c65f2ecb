"""`tokenpulse kv` from end to end, in a process of its own: output, messages and exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import command
import pytest
from command import FIXTURES, misuse

VLLM, RUN, MOONCAKE = "kv_events.jsonl", "run.jsonl.gz", "mooncake_conversation.jsonl.gz"

SMALL = "".join(
    json.dumps({"timestamp": 1000 * i, "input_length": 40, "output_length": 1, "hash_ids": [0, i % 7, 100 + i % 30]})
    + "\n"
    for i in range(300)
)


def run(*args: object, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return command.run("kv", *args, stdin=stdin, **environment)


def as_json(*args: object, stdin: bytes = b"") -> dict[str, Any]:
    done = run("--json", *args, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fails(*args: object) -> str:
    """The one line that a misuse ends in."""
    return misuse(run(*args))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.jsonl"
    path.write_text(SMALL)
    return path


EVENT_KEYS = {
    *("schema", "kind", "unit", "lookups", "hits", "hit_rate", "evicted", "refilled", "forgotten", "refill_rate"),
    *("gap", "lifetime", "idle", "stored", "repeated", "released", "onloaded", "offloaded", "cleared", "relookups"),
    *("rejected", "clamped", "loss", "resident", "blocks", "remembered", "confidence", "tokens", "settings", "inputs"),
    "curve",
}


def test_json_of_events() -> None:
    report = as_json(RUN)
    assert set(report) >= EVENT_KEYS
    assert (report["schema"], report["kind"], report["unit"]) == ("tokenpulse.kv/1", "events", "tokens")
    assert (report["evicted"], report["refilled"], report["curve"]) == (2987, 1457, None)
    assert report["refill_rate"] == [1457 / 2987, 1457 / 2987]
    assert 0 < report["gap"]["p50"] < report["gap"]["max"] < 1000
    assert report["settings"]["report"] == "copies"
    vllm = as_json(VLLM)
    assert [vllm[name] for name in ("lookups", "hits", "hit_rate", "relookups")] == [None] * 4
    assert vllm["loss"] == {"gaps": 0, "batches": 0, "restarts": 0}
    assert as_json(VLLM, "--stream", "full")["evicted"] == 43


def test_json_of_a_trace() -> None:
    report = as_json(MOONCAKE, "--blocks", 10_000)
    assert set(report) >= EVENT_KEYS
    assert (report["kind"], report["unit"], report["lookups"], report["hits"]) == ("trace", "blocks", 288_500, 60_921)
    assert (report["evicted"], report["refilled"]) == (217_579, 44_789)
    assert (report["loss"], report["confidence"], report["curve"]) == (None, None, None)
    assert report["tokens"]["hit_rate"] == report["tokens"]["hit"] / report["tokens"]["queried"]
    everything = as_json(MOONCAKE)
    assert (everything["evicted"], everything["refill_rate"], everything["gap"]) == (0, [None, None], None)


def test_json_of_a_curve(small: Path) -> None:
    report = as_json(small, "--blocks", 9, "--curve", "--sizes", "17,5", "--block-tokens", 16)
    curve = report["curve"]
    sizes = [point["blocks"] for point in curve["points"]]
    assert sizes == [5, 9, 10, 12, 15, 17, 20, 25, 30, curve["distinct"]]
    assert set(curve["points"][0]) == {
        *("blocks", "tokens", "hits", "hit_rate", "evicted", "refilled", "refill_rate"),
    }
    assert curve["points"][0]["tokens"] == 80
    assert (curve["mode"], curve["rate"], curve["seed"]) == ("exact", 1.0, 0)
    assert set(curve["refill_under"]) == {"0.05", "0.15"}
    assert set(curve["knee"]) == set(curve["points"][0])
    sampled = as_json(small, "--curve", "--sample", "0.5", "--seed", "3")["curve"]
    assert (sampled["mode"], sampled["rate"], sampled["seed"]) == ("sampled", 0.5, 3)
    at_nine = next(point for point in curve["points"] if point["blocks"] == 9)
    assert [at_nine[name] for name in ("hits", "evicted", "refilled")] == [
        report[name] for name in ("hits", "evicted", "refilled")
    ]


def text_of(*args: object, stdin: bytes = b"") -> str:
    done = run(*args, stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    text = done.stdout.decode()
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    return text


def test_tables_fit_80_columns_and_say_what_matters() -> None:
    text = text_of(RUN)
    for told in (
        "KV cache, events as copies",
        "hit rate",
        "2,987",
        "1,457",
        "48.78 %",
        "docs/kv.md",
        "gap",
        "lifetime",
    ):
        assert told in text, told
    assert "the log has no look-ups" in text_of(VLLM)
    sampled = text_of(RUN, "--sample", "0.5")
    assert "with 95 % confidence" in sampled
    assert re.search(r"^sample +50 % of the blocks is followed", sampled, re.MULTILINE)
    short = text_of(RUN, "--remember", "50")
    assert "forgotten" in short
    assert "the higher end counts forgotten blocks" in short


def test_the_table_of_a_trace_and_its_curve() -> None:
    text = text_of(MOONCAKE, "--blocks", 10_000, "--curve", "--sizes", "34567")
    for told in ("KV cache of 10,000 blocks, LRU", "21.12 %", "20.59 %", "token hit rate", "knee", "refill < 5 %"):
        assert told in text, told
    assert "34,567" in text
    assert "--json has more sizes." in text
    lines = text.splitlines()
    marks = [line.split()[-6:] for line in lines if line.startswith(("knee", "refill <"))]
    assert len(marks) == 3
    every = text_of(MOONCAKE)
    assert "with room for every block" in every
    assert "Nothing was evicted" in every
    assert "S3-FIFO" in text_of(MOONCAKE, "--blocks", "1000", "--policy", "s3fifo")


def test_the_counts_of_a_sample_stand_beside_what_they_come_to() -> None:
    report, rows = as_json(RUN, "--sample", "0.1"), " ".join(text_of(RUN, "--sample", "0.1").split())
    for name in ("stored", "evicted", "refilled", "remembered"):
        told = f"{name} {report[name]:,} in the sample, about {round(10 * report[name]):,} in all"
        assert told in rows, told
    assert f"in all, {report['evicted_per_second']:.1f}/s over" in rows
    assert report["evicted_per_second"] == pytest.approx(10 * report["evicted"] / report["span_seconds"])
    assert "in the sample" not in text_of(RUN)


def test_a_rough_estimate_says_so() -> None:
    rough = text_of("-", "--curve", "--sample", "0.5", stdin=SMALL.encode())
    blocks = as_json("-", "--curve", "--sample", "0.5", stdin=SMALL.encode())["curve"]["sampled_distinct"]
    assert f"A rough estimate: it rests on {blocks} blocks." in rough
    assert "estimated from 50 % of the blocks" in rough
    assert "rough" not in text_of("-", "--curve", stdin=SMALL.encode())
    assert "rough" not in text_of(MOONCAKE, "--curve", "--sample", "0.1")
    none = text_of("-", "--curve", "--sample", "1e-8", stdin=SMALL.encode())
    assert "estimated from 0.000001 % of the blocks" in none
    assert "No block was in the sample" in none
    assert not any(mark in none for mark in ("knee", "refill <"))
    points = [line.split() for line in none.split("evicted  refilled")[1].splitlines() if " - " in line]
    assert len(points) >= 3
    assert all(point[2:] == ["-"] * 4 for point in points)


def test_one_is_not_many(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text('{"timestamp":1,"input_length":5,"output_length":1,"hash_ids":[1]}\nnonsense\n')
    done = run(path, "--blocks", 1, "--curve")
    text = done.stdout.decode()
    for told in ("KV cache of 1 block,", "0 of 1 block that 1 request looked up", "1 reference to 1 block\n"):
        assert told in text, told
    assert not re.search(r"\b1 +(blocks|lines|requests|references|events)\b", text)
    assert "warning: 1 line or event could not be used" in done.stderr.decode()


def test_an_event_that_is_skipped_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    stored = {"type": "BlockStored", "block_hashes": [1], "medium": "GPU"}
    line = {"recv": 1.0, "topic": "kv", "seq": 0, "batch": [1.0, [{"type": "Other"}, stored], None]}
    path.write_text(json.dumps(line) + "\n")
    text = run(path).stdout.decode()
    assert re.search(r"^skipped +unknown_kind +1 ", text, re.MULTILINE)
    assert "line skipped" not in text


def test_no_unicode_is_needed() -> None:
    done = run(VLLM, PYTHONIOENCODING="ascii", TERM="dumb", NO_COLOR="1")
    assert done.returncode == 0
    assert "refill rate" in done.stdout.decode("ascii")


def test_standard_input() -> None:
    told = as_json("-", stdin=(FIXTURES / VLLM).read_bytes())
    assert {k: v for k, v in told.items() if k != "inputs"} == {k: v for k, v in as_json(VLLM).items() if k != "inputs"}


def test_help_names_every_option() -> None:
    text = run("--help").stdout.decode()
    options = "stream remember ttl sample blocks policy block-tokens curve sizes seed plot json strict"
    for option in options.split():
        assert f"--{option}" in text
    assert "implies --curve" in " ".join(text.split())


def test_misuse_is_one_line_and_status_2(small: Path, tmp_path: Path) -> None:
    assert "absent.jsonl" in fails(tmp_path / "absent.jsonl")
    assert "expected KV events or block hashes, found none" in fails("demo_requests.jsonl")
    assert "PATH" in fails()
    assert "blocks does not go with KV cache events" in fails(VLLM, "--blocks", 5)
    assert "policy does not go" in fails(VLLM, "--policy", "fifo")
    assert "a curve needs a trace of block hashes" in fails(VLLM, "--curve")
    assert "block_tokens does not go" in fails(VLLM, "--block-tokens", 16)
    assert "stream does not go with a trace" in fails(small, "--stream", "full")
    assert "belongs to the curve" in fails(small, "--sample", "0.1")
    assert "curve is that of lru" in fails(small, "--curve", "--policy", "lfu")
    assert "belong to the curve" in fails(small, "--sizes", "5")
    assert "sizes must be at least 1, got 0" in fails(small, "--curve", "--sizes", "0")
    assert "seed says from which blocks the curve is estimated: it needs sample" in fails(small, "--curve", "--seed", 3)
    assert "needs curve as well" in fails(small, "--sample", "0.5", "--seed", 3)
    assert "needs curve and sample as well" in fails(small, "--seed", 3)
    assert "--sizes must be whole numbers" in fails(small, "--curve", "--sizes", "5,many")
    assert "--ttl" in fails(VLLM, "--ttl", "10")
    assert "--stream" in fails(VLLM, "--stream", "some")
    assert "--policy" in fails(small, "--policy", "mru")
    assert "sample must be" in fails(VLLM, "--sample", "2")
    assert "blocks" in fails(small, "--blocks", 0)
    assert "block_tokens" in fails(small, "--block-tokens", 0)
    assert "remember" in fails(VLLM, "--remember", -1)
    assert "only once" in fails("-", "-")
    both = fails(VLLM, small)
    assert "small.jsonl" in both
    assert "--seed" in fails(small, "--curve", "--seed", -1)


def gapped(folder: Path) -> Path:
    path = folder / "gapped.jsonl"
    events = [{"type": "BlockStored", "block_hashes": [1], "medium": "GPU"}]
    lines = ({"recv": 1.0, "topic": "kv", "seq": seq, "batch": [1.0 + seq, events, None]} for seq in (0, 1, 4))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_gaps_in_the_sequence_are_told(tmp_path: Path) -> None:
    path = gapped(tmp_path)
    done = run(path)
    assert done.returncode == 0
    assert "warning: 2 lines or events could not be used" in done.stderr.decode()
    assert f"{path}:3: " in done.stderr.decode()
    assert "batch lost" in done.stdout.decode()
    assert as_json(path)["loss"] == {"gaps": 1, "batches": 2, "restarts": 0}
    assert run(path, "--strict").returncode == 1
    assert run(VLLM, "--strict").returncode == 0


def test_a_bad_line_is_counted_and_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"t_ns":1,"ev":"kv_store","hashes":[1]}\n{"t_ns":2,"ev":"kv_store","hashes":[1.5]}\n')
    done = run(path, "--json")
    assert done.returncode == 0
    assert sum(json.loads(done.stdout)["inputs"][0]["skipped"].values()) == 1
    assert f"{path}:2: " in done.stderr.decode()
    assert run(path, "--strict").returncode == 1


def test_a_plot_in_both_formats(small: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg", "c.png"):
        assert run(small, "--blocks", "9", "--plot", tmp_path / name).returncode == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert b"asked for: 9 blocks" in (tmp_path / "a.svg").read_bytes()
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert "must end in .svg or .png" in fails(small, "--plot", tmp_path / "d.pdf")
    assert "a curve needs a trace of block hashes, got KV cache events" in fails(VLLM, "--plot", tmp_path / "d.svg")
    empty = fails(small, "--plot", tmp_path / "d.svg", "--sample", "1e-8")
    assert "no block was in the sample of 0.000001 %" in empty
    assert "d.svg" in fails(small, "--plot", tmp_path / "nowhere" / "d.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "b.svg", "c.png", "small.jsonl"]


def test_a_plot_without_matplotlib_names_the_extra(small: Path, tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('No module named matplotlib')\n")
    done = run(small, "--plot", tmp_path / "a.svg", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"pip install 'tokenpulse[plot]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    events = run(VLLM, "--plot", tmp_path / "a.svg", PYTHONPATH=str(tmp_path))
    assert b"a curve needs a trace of block hashes, got KV cache events" in events.stderr
    assert b"atplotlib" not in events.stderr


def test_without_a_plot_matplotlib_is_not_loaded(small: Path) -> None:
    code = (
        "import sys; from tokenpulse.cli import main; "
        "assert main(['kv', sys.argv[1], '--curve']) == 0; assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(small)], check=True, capture_output=True, timeout=60)
