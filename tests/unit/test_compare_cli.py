"""`tokenpulse compare` from end to end: logs, files of sketches, conditions and exit statuses, narrow terminals."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command import FIXTURES, misuse, run
from random_logs import request_lines

import tokenpulse
from tokenpulse.analysis.compare import Comparison

BEFORE, AFTER = FIXTURES / "run.jsonl.gz", FIXTURES / "run_async.jsonl.gz"
SLO = ("--slo", "chat:ttft=200ms,tpot=6ms")


def as_json(*args: object) -> dict[str, Any]:
    done = run("compare", "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both runs as files of sketches."""
    folder = tmp_path_factory.mktemp("sketches")
    paths = folder / "before.json.gz", folder / "after.json"
    for log, path in zip((BEFORE, AFTER), paths, strict=True):
        done = run("report", log, *SLO, "--by", "tenant", "--sketches", path)
        assert done.returncode == 0, done.stderr
    return paths


def without_paths(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "before": {**found["before"], "paths": []}, "after": {**found["after"], "paths": []}}


def test_logs_and_their_sketches_compare_alike(saved: tuple[Path, Path]) -> None:
    logs = as_json(BEFORE, AFTER, *SLO, "--by", "tenant")
    for pair in (saved, (saved[0], AFTER), (BEFORE, saved[1])):
        assert without_paths(as_json(*pair)) == without_paths(logs)
    assert without_paths(as_json(saved[0], AFTER, *SLO, "--by", "tenant")) == without_paths(logs)
    assert logs["rules"]["stretches"] == [12, 12]
    assert [one["key"]["tenant"] for one in logs["by"]] == ["conv", "code"]


def test_python_says_the_same_as_the_command(saved: tuple[Path, Path]) -> None:
    made = tokenpulse.compare(BEFORE, AFTER, slo=SLO[1], by="tenant")
    assert isinstance(made, Comparison)
    assert without_paths(json.loads(json.dumps(made.to_dict()))) == without_paths(as_json(*saved))
    before = tokenpulse.report(BEFORE, slo=SLO[1], by="tenant", timeline="auto")
    assert without_paths(tokenpulse.compare(before, str(saved[1])).to_dict()) == without_paths(made.to_dict())


def test_tables_fit_80_columns_and_say_what_matters() -> None:
    done = run("compare", "run.jsonl.gz", "run_async.jsonl.gz", *SLO, "--by", "tenant", "--fail-if", "p50(tpot) > +1ms")
    text = done.stdout.decode()
    assert done.returncode == 0
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    for told in ("Runs", "Latency, ms", "Distributions", "Change by tenant", "Conditions", "Verdict: better", "P99.9"):
        assert told in text
    assert re.search(r"tpot +mean +5\.72 +3\.62 +-36\.6 % ", text)


def test_no_figure_is_cut_on_a_narrow_terminal() -> None:
    def words(columns: str) -> Counter[str]:
        args = (
            "compare",
            "run.jsonl.gz",
            "run_async.jsonl.gz",
            *SLO,
            "--by",
            "tenant",
            "--fail-if",
            "p50(tpot) > +1ms",
        )
        text = run(*args, COLUMNS=columns).stdout.decode()
        return Counter(word for word in text.split() if not re.fullmatch("[\u2500-]{2,}", word))

    wide = words("300")
    assert sum(any(c.isdigit() for c in word) for word in wide) > 200
    for columns in ("40", "60", "80"):
        assert words(columns) == wide


def test_conditions_decide_the_exit_status() -> None:
    holds, not_held, unknown = "p50(tpot) < -1ms", "p99(ttft) > +100%", "p99(scheduling) > 1s"
    for conditions, status in (
        ((not_held,), 0),
        ((holds,), 1),
        ((not_held, holds), 1),
        ((unknown,), 2),
        ((unknown, holds), 1),
        ((unknown, not_held), 2),
        (("worse(tpot)",), 0),
    ):
        options = [part for one in conditions for part in ("--fail-if", one)]
        done = run("compare", BEFORE, AFTER, *options, "--json")
        assert done.returncode == status, conditions
        judged = json.loads(done.stdout)["fail_if"]
        assert [one["condition"] for one in judged] == list(conditions)
        said = done.stderr.decode().splitlines()
        assert len(said) == sum(one in (holds, unknown) for one in conditions)
    assert run("compare", BEFORE, AFTER, "--fail-if", holds).stderr.startswith(
        b"tokenpulse: failed: p50(tpot) < -1ms (0.0053"
    )
    assert b"cannot be judged: p99(scheduling) > 1s: " in run("compare", BEFORE, AFTER, "--fail-if", unknown).stderr


def test_what_could_not_be_read_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(gzip.decompress(BEFORE.read_bytes()) + b"no line\n")
    for after, said in ((broken, "1 line or event"), (tmp_path / "twice.jsonl", "2 lines or events")):
        if after != broken:
            after.write_bytes(broken.read_bytes() + b"nor this\n")
        lacks = f"{said} could not be used: a report of it says which"
        assert f"after: {lacks}" in as_json(BEFORE, after)["warnings"]
        told = json.loads(run("capacity", after, "--slo", "ttft=1s,tpot=1s", "--json").stdout)
        assert f"{after.name}: {lacks}" in told["warnings"]


def test_misuse_is_one_line_and_status_2(tmp_path: Path, saved: tuple[Path, Path]) -> None:
    def fails(*args: object) -> str:
        return misuse(run("compare", *args))

    assert "expected FIGURE > LIMIT" in fails(BEFORE, AFTER, "--fail-if", "ttft")
    assert "give --slo" in fails(BEFORE, AFTER, "--fail-if", "goodput < -5%")
    assert "absent.jsonl" in fails(tmp_path / "absent.jsonl", AFTER)
    assert "B" in fails(BEFORE)
    assert "can be read only once" in fails("-", "-")
    assert "--slo: saved sketches keep" in fails(saved[0], AFTER, "--slo", "ttft=1s,tpot=1s")
    assert "--itl: saved sketches keep" in fails(saved[0], AFTER, "--itl", "chunk")
    assert "--by: saved sketches keep" in fails(saved[0], AFTER, "--by", "model")
    assert "cannot be cut" in fails(saved[0], AFTER, "--steady")
    assert "--from: a duration must be" in fails(BEFORE, AFTER, "--from", "5")
    cut = tmp_path / "cut.json"
    cut.write_bytes(saved[1].read_bytes()[:-1000])
    assert f"{cut}: expected JSON" in fails(cut, AFTER)


def test_a_part_of_either_run_can_be_compared() -> None:
    whole = as_json(BEFORE, AFTER)
    part = as_json(BEFORE, AFTER, "--from", "1s", "--to", "5s")
    assert part["before"]["attempted"] < whole["before"]["attempted"]
    assert as_json(BEFORE, AFTER, "--steady")["before"]["attempted"] < whole["before"]["attempted"]


def test_a_log_with_chunks_of_unknown_size_has_the_other_read_by_chunks(tmp_path: Path) -> None:
    """A file of vLLM knows the gaps of its chunks only; the log beside it is read by the same rule."""
    n = 30
    bench = {
        "input_lens": [10] * n,
        "output_lens": [8] * n,
        "ttfts": [0.1 + i / 1000 for i in range(n)],
        "itls": [[0.02, 0.03]] * n,
        "latencies": [0.15 + i / 1000 for i in range(n)],
        "start_times": [float(i) for i in range(n)],
        "generated_texts": [""] * n,
        "errors": [""] * n,
        "duration": float(n),
        "completed": n,
    }
    path, log = tmp_path / "bench.json", tmp_path / "log.jsonl"
    path.write_text(json.dumps(bench))
    log.write_bytes(request_lines(1, 40))
    for pair in ((path, log), (log, path)):
        assert as_json(*pair)["rules"]["itl"] == "chunk"
    assert "different ITL rules" in misuse(run("compare", path, log, "--itl", "token"))
