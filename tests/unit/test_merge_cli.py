"""`tokenpulse merge` from end to end: files of sketches from several hosts to one report."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from command import FIXTURES, misuse, run
from random_logs import event_lines, request_lines

import tokenpulse
from tokenpulse import sketches
from tokenpulse.comparing import merge, report_of

SLO = ("--slo", "chat:ttft=60ms,tpot=30ms", "--by", "tenant")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Path]]:
    """The logs of three hosts, and what each of them saved."""
    folder = tmp_path_factory.mktemp("hosts")
    logs = [folder / f"{name}.jsonl" for name in "abc"]
    contents = (request_lines(1, 300), event_lines(2, 100), request_lines(3, 50) + b"nonsense\n")
    saved = []
    for log, content, ending in zip(logs, contents, ("json", "json.gz", "json"), strict=True):
        log.write_bytes(content)
        saved.append(folder / f"{log.stem}.sketches.{ending}")
        done = run("report", log, *SLO, "--sketches", saved[-1])
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(b"\nInputs")
    return logs, saved


def as_json(*args: object) -> dict[str, Any]:
    done = run(*args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_merged_is_what_all_logs_together_would_have_given(hosts: tuple[list[Path], list[Path]]) -> None:
    logs, saved = hosts
    merged, together = as_json("merge", *saved), as_json("report", *logs, *SLO)
    # The report of logs may know more of how requests came and went than their bins do; and the merged one its origin.
    assert {k: v for k, v in merged.items() if k != "flow"} == {k: v for k, v in together.items() if k != "flow"}
    assert merged["requests"]["attempted"] == 450
    assert [one["path"] for one in merged["inputs"]] == [str(log) for log in logs]
    assert merged["timeline"] == []


def test_what_is_merged_can_be_merged_again_and_compared(hosts: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    _, saved = hosts
    two, three = tmp_path / "two.json.gz", tmp_path / "three.json"
    first = run("merge", *saved[:2], "-o", two)
    assert first.returncode == 0
    assert b"Requests" in first.stdout
    again = as_json("merge", two, saved[2], "-o", three)
    assert again == as_json("merge", *saved)
    found = as_json("compare", three, saved[0])
    assert found["before"]["attempted"] == 450
    assert report_of(merge([two, saved[2]])).to_dict()["requests"] == again["requests"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes")
def test_a_file_may_come_through_a_pipe(hosts: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    _, saved = hosts
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in saved[:2]:  # plain and gzip
        writer = threading.Thread(target=pipe.write_bytes, args=(path.read_bytes(),))
        writer.start()
        assert sketches.load(str(pipe)) == sketches.load(str(path))
        writer.join()


def test_a_timeline_that_was_asked_for_is_merged_and_shown(
    hosts: tuple[list[Path], list[Path]], tmp_path: Path
) -> None:
    logs, _ = hosts
    saved = [tmp_path / f"{n}.json" for n in range(2)]
    for log, path in zip(logs, saved, strict=False):
        assert run("report", log, "--timeline", "500ms", "--sketches", path).returncode == 0
    merged = as_json("merge", *saved)
    assert merged["timeline"] == as_json("report", *logs[:2], "--timeline", "500ms")["timeline"]
    assert b"Timeline, bins of 0.5 s" in run("merge", *saved).stdout


def test_lines_that_could_not_be_used_are_still_told(hosts: tuple[list[Path], list[Path]]) -> None:
    logs, saved = hosts
    done = run("merge", *saved)
    assert done.stderr == run("report", *logs, *SLO).stderr
    assert f"{logs[2]}:51: not_json".encode() in done.stderr
    assert run("merge", *saved, "--strict").returncode == 1


def test_misuse_is_one_line_and_status_2(hosts: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    logs, saved = hosts
    other = tmp_path / "other.json"
    assert run("report", logs[0], "--itl", "chunk", "--sketches", other).returncode == 0
    said = misuse(run("merge", saved[0], other))
    assert said.startswith(f"{other}: made with --itl chunk, but {saved[0]} with token; ")
    assert "expected a file of sketches" in misuse(run("merge", logs[0]))
    assert "absent.json" in misuse(run("merge", tmp_path / "absent.json"))
    assert str(tmp_path) in misuse(run("merge", tmp_path))
    assert "FILE" in misuse(run("merge"))
    assert "merge and tokenpulse compare" in misuse(run("report", saved[0]))
    assert str(tmp_path / "no") in misuse(run("merge", saved[0], "-o", tmp_path / "no" / "x.json"))


def test_epoch_and_monotonic_clocks_are_not_taken_for_one(tmp_path: Path) -> None:
    saved = []
    for name, start in (("since_1970", 1_795_000_000_000_000_000), ("since_boot", 10**12)):
        log, path = tmp_path / f"{name}.jsonl", tmp_path / f"{name}.json"
        log.write_bytes(request_lines(1, 20, start_ns=start))
        assert run("report", log, "--sketches", path).returncode == 0
        saved.append(path)
    merged = as_json("merge", *saved)
    assert merged["span_seconds"] is merged["rates"]["requests_per_second"] is merged["flow"] is None
    assert "different moments" in merged["absent"]["span_seconds"]
    assert merged["latency"]["ttft"]["count"] > 10


def test_files_of_tools_on_clocks_of_their_own_are_not_taken_for_one(tmp_path: Path) -> None:
    runs, saved = [FIXTURES / "tools" / f"vllm_bench_{name}.json.gz" for name in ("detailed", "errors")], []
    for path in runs:
        saved.append(tmp_path / f"{path.name}.sketches.json")
        assert run("report", path, "--sketches", saved[-1]).returncode == 0
    merged, at_once = as_json("merge", *saved), as_json("report", *runs)
    for name in ("requests", "latency", "rates", "span_seconds", "flow", "tokens"):
        assert merged[name] == at_once[name], name
    assert merged["flow"] is merged["span_seconds"] is None
    assert "different moments" in merged["absent"]["span_seconds"]
    (alone,) = (as_json("merge", saved[0]),)
    assert alone["span_seconds"] == as_json("report", runs[0])["span_seconds"] is not None


def test_files_of_tools_are_saved_and_loaded(tmp_path: Path) -> None:
    found = sorted((FIXTURES / "tools").glob("*")) if (FIXTURES / "tools").exists() else []
    assert found
    done = 0
    for path in found:
        try:
            made = tokenpulse.report(path, slo="ttft=200ms,tpot=30ms", by="prompt_length", timeline="auto")
        except ValueError:
            continue  # of no format of its own: a table of figures that stands beside a file
        told = {"absent": made.absent, "definitions": made.definitions, "reported": made.reported}
        saved = sketches.Saved(
            reduction=made.reduction, slos=made.slos, itl=made.rules["itl"], **told, **made.made_with
        )
        place = str(tmp_path / "saved.json")
        sketches.save(place, saved)
        assert sketches.load(place) == saved
        again, whole = report_of(saved).to_dict(), made.to_dict()
        for name in ("requests", "latency", "rates", "slowest", "attainment_grid", "by", "inputs", "rules"):
            assert again[name] == whole[name], (path, name)
        done += 1
    assert done > 10
