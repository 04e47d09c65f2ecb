"""`tokenpulse simulate` as a process."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from command import misuse, run

SHORT = ("simulate", "--duration", "4s", "--rate", "10", "--seed", "3")


def test_it_prints_what_the_run_adds_up_to_and_writes_a_log(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    done = run(*SHORT, "-o", path)
    assert done.returncode == 0, done.stderr
    table = done.stdout.decode()
    for word in ("requests", "in flight", "prefix hit rate", "ttft", "tpot"):
        assert word in table
    log = gzip.decompress(path.read_bytes())
    first = json.loads(log.splitlines()[0])
    assert (first["ev"], first["seed"], first["rate"]) == ("ready", 3, 10)
    assert run("report", "--strict", path).returncode == 0
    assert run("kv", "--strict", path).returncode == 0


def test_the_log_can_be_standard_output() -> None:
    piped = run(*SHORT, "-o", "-", "--json")
    assert json.loads(piped.stderr)["arrived"] == sum(b'"ev":"arrive"' in line for line in piped.stdout.splitlines())
    assert run("report", "-", "--strict", stdin=piped.stdout).returncode == 0


def test_json_has_the_result_and_the_latencies() -> None:
    told = json.loads(run(*SHORT, "--json", "--speculate", "2", "--policy", "prefill-first").stdout)
    assert told["arrived"] == sum(told["ended"].values()) + told["in_flight"]
    assert told["rejected_drafts"] > 0
    assert told["latency"]["ttft"]["count"] > 0
    empty = json.loads(run("simulate", "--duration", "1ms", "--json").stdout)
    assert empty["latency"]["ttft"] is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--duration", "2"), "--duration: a duration must be"),
        (("--timeout", "soon"), "--timeout: a duration must be"),
        (("--fault", "gremlins"), "a fault must be one of large-batch"),
        (("--prompt", "long"), "prompt must be lognormal:MEAN"),
        (("--output", "0"), "output must be 1 or more"),
        (("--block-tokens", "0"), "block_tokens must be 1 or more, got 0"),
        (("--burstiness", "2"), "--burstiness is of --arrivals bursty; arrivals are poisson"),
        (("--in-flight", "2", "--arrivals", "bursty"), "--in-flight is of --arrivals closed; arrivals are bursty"),
        (("--rate", "2", "--arrivals", "closed"), "--rate is of an open loop"),
        (("--prefill-quota", "64", "--policy", "prefill-first"), "--prefill-quota is of --policy chunked"),
        (("--chunk", "64", "--policy", "decode-first"), "--chunk is of the policies chunked and prefill-first"),
        (
            ("--fault", "prefill-squeezed", "--policy", "decode-first", "--duration", "3s"),
            "fault prefill-squeezed: only the policy chunked has parts of steps to squeeze, got decode-first",
        ),
        (("--patience", "2s"), "--patience needs --abort-rate"),
        (("--acceptance", "0.5", "--speculate", "0"), "--acceptance needs --speculate"),
        (("--fault-from", "20s"), "--fault-from needs --fault"),
        (("--fault", "overload", "--fault-from", "200s"), "fault_from must be before the end, 120 s, got 200s"),
        (("--fault", "overload:0.5", "--arrivals", "closed", "--duration", "3s"), "fault overload:0.5: only Poisson"),
        (("--sweep", "acceptance=0.5,0.7", "--slo", "ttft=1s,tpot=50ms"), "--acceptance needs --speculate"),
        (("--model", "gpt"), "model must be one of llama-3.1-8b"),
        (("--slo", "ttft=1s,tpot=50ms"), "--slo, --gpu-hour, --target, --cost-limit and --plot are of a --sweep"),
        (("--sweep", "rate=5,10", "--slo", "ttft=1s,tpot=50ms", "-o", "-"), "-o of a sweep must be a directory"),
        (("--sweep", "rate=5,10"), "--sweep needs --slo"),
        (("--arrivals", "nowhere.csv"), "nowhere.csv: No such file or directory"),
    ],
)
def test_misuse_is_one_line(wrong: tuple[str, ...], message: str) -> None:
    assert misuse(run("simulate", *wrong)).startswith(message)


def test_a_sweep_names_its_runs_by_their_values_and_keeps_them_as_logs(tmp_path: Path) -> None:
    swept = (*SHORT[1:5], "--slo", "ttft=1s,tpot=50ms", "--json", "--sweep")
    told = json.loads(run("simulate", *swept, "seed=3,4").stdout)
    assert [one["name"] for one in told["runs"]] == ["seed=3", "seed=4"]
    kept = tmp_path / "kept"
    told = json.loads(run("simulate", *swept, "seed=3,4", "-o", kept).stdout)
    assert [one["path"] for one in told["runs"]] == [str(kept / "seed=3.jsonl"), str(kept / "seed=4.jsonl")]
    assert run("report", "--strict", kept / "seed=4.jsonl").returncode == 0
    (tmp_path / "file").write_text("")
    assert "a sweep needs a directory" in misuse(run("simulate", *swept, "seed=3,4", "-o", tmp_path / "file"))
