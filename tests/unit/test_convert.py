"""Conversion: what is written reads back to the same report, and bears the verdicts that the report counts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import FIXTURES, misuse, run
from random_logs import SECOND, event_lines, request_lines

import tokenpulse
from tokenpulse import engine
from tokenpulse.converting.lines import counts_of
from tokenpulse.converting.rows import Rows
from tokenpulse.converting.verdicts import verdicts
from tokenpulse.model import SLO
from tokenpulse.records import ABSENT

pytest.importorskip("pyarrow")

SLOS = (
    SLO("chat", ttft=0.06, tpot=0.02),
    SLO("strict", ttft=0.05, tpot=0.015, e2e=0.4, itl=0.03, where={"tenant": "t1"}),
)
SAME = (
    "total",
    "by",
    "by_interned_over",
    "slowest",
    "grid",
    "first_arrival_ns",
    "last_emission_ns",
    "newest_ns",
    "flow",
)
"""What a converted file must come to again; its lines and what was refused of them are others."""

KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet")


def reduced(*paths: Path, itl: str = "token", **settings: Any) -> dict[str, Any]:
    made = tokenpulse.report(paths, slo=SLOS, itl=itl, **settings)
    return {name: made.reduction[name] for name in (*SAME, "timeline")}


def written(folder: Path, **contents: bytes) -> list[Path]:
    paths = []
    for name, content in contents.items():
        paths.append(folder / f"{name}.jsonl")
        paths[-1].write_bytes(content)
    return paths


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("itl", ["token", "chunk", "stamp"])
def test_what_is_written_reads_back_to_the_same_report(tmp_path: Path, kind: str, itl: str) -> None:
    paths = written(
        tmp_path, a=request_lines(1, 300), b=event_lines(2, 150, start_ns=5 * SECOND), c=request_lines(3, 50)
    )
    output = tmp_path / f"out.{kind}"
    made = tokenpulse.convert(paths, output, slo=SLOS, gpu_hour=2.5)
    assert made.requests == 500
    assert made.notes == []
    settings = {"by": ["tenant", "prompt_length"], "timeline": "500ms", "itl": itl}
    assert reduced(output, **settings) == reduced(*paths, **settings)


@pytest.mark.parametrize("kind", KINDS)
def test_requests_that_did_not_end_are_kept(tmp_path: Path, kind: str) -> None:
    """In flight, and lost for their silence; in one file, whatever ids others have."""
    paths = written(
        tmp_path,
        a=event_lines(1, 60, left_open=True),
        b=event_lines(1, 60, left_open=True, start_ns=3 * 3600 * SECOND),
        c=request_lines(2, 10, start_ns=3 * 3600 * SECOND),
    )
    output = tmp_path / f"out.{kind}"
    tokenpulse.convert(paths, output)
    before, after = reduced(*paths, by=["tenant"]), reduced(output, by=["tenant"])
    slowest = [one.pop("slowest") for one in (before, after)]
    assert after == before
    assert before["total"]["by_status"]["lost"] > 5
    assert before["total"]["attempted"] > sum(before["total"]["by_status"].values())
    # An id that was there twice is told apart.
    assert [[ns for ns, _ in slowest[0][metric]] for metric in slowest[0]] == [
        [ns for ns, _ in slowest[1][metric]] for metric in slowest[1]
    ]


def test_days_between_requests_are_bridged_in_lines_and_told_of_tables(tmp_path: Path) -> None:
    """A log's own jump of days is refused once; lines that are written of it are not."""
    day = 86_400 * SECOND
    paths = written(tmp_path, a=request_lines(1, 20), b=request_lines(2, 20, start_ns=10 * day + 1))
    lines, table = tmp_path / "out.jsonl", tmp_path / "out.parquet"
    assert tokenpulse.convert(paths, lines).notes == []
    assert reduced(lines) == reduced(*paths)
    assert sum(json.loads(line).get("ev") == "ready" for line in lines.read_text().splitlines()) == 9
    told = tokenpulse.convert(lines, table).notes
    assert len(told) == 1
    assert "more than a day after all before them (1)" in told[0]


def test_verdicts_are_those_that_the_report_counts(tmp_path: Path) -> None:
    paths = written(tmp_path, a=request_lines(1, 800), b=event_lines(2, 300, left_open=True))
    output = tmp_path / "out.jsonl"
    for itl in ("token", "chunk", "stamp"):
        made = tokenpulse.convert(paths, output, slo=SLOS, itl=itl)
        lines = [json.loads(line) for line in output.read_text().splitlines()]
        report = tokenpulse.report(paths, slo=SLOS, itl=itl)
        for slo, figures in zip(SLOS, report.goodput, strict=True):
            found = Counter(line[f"verdict.{slo.name}"] for line in lines if f"verdict.{slo.name}" in line)
            assert found.pop("good") == figures["good"] == made.good[slo.name][0]
            assert found == figures["missed"]
            assert len(found) > 5
            assert made.good[slo.name][1] == figures["judged"]


def columns(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Requests as the columns of a table: numbers of tokens beside emissions, times that are not known, lost ones."""
    lengths = rng.integers(0, 5, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    arrive = np.sort(rng.integers(0, 10 * SECOND, n))
    steps = rng.integers(0, 60_000_000, int(offsets[-1]))
    token_ns = np.concatenate([arrive[i] + np.cumsum(steps[offsets[i] : offsets[i + 1]]) for i in range(n)]).astype(
        np.int64
    )
    first = np.where(rng.random(n) < 0.7, arrive + rng.integers(0, 90_000_000, n), ABSENT)
    last = np.where(rng.random(n) < 0.7, np.maximum(first, arrive) + rng.integers(0, 90_000_000, n), ABSENT)
    return {
        "arrive_ns": arrive,
        "token_ns": token_ns,
        "token_offsets": offsets,
        "n": rng.integers(1, 4, len(token_ns)),
        "output_tokens": np.where(rng.random(n) < 0.6, rng.integers(0, 9, n), ABSENT),
        "first_token_ns": first,
        "last_token_ns": last,
        "prompt_tokens": rng.integers(0, 100, n),
        "status": rng.choice([0, 0, 0, 1, 2, 3, 6, 7, 255], n).astype(np.uint8),
        "labels": {"tenant": (rng.integers(-1, 3, n).astype(np.int32), ["t0", "t1", "t2"])},
    }


@pytest.mark.parametrize("itl", ["token", "chunk", "stamp"])
def test_verdicts_of_columns_are_the_cores(itl: str) -> None:
    for seed in range(20):
        found = columns(np.random.default_rng(seed), 300)
        reducer = engine.ColumnReducer(SLOS, itl)
        reducer.requests("a", "b", found)
        counted = reducer.finish()["total"]["slos"]
        for slo, one in zip(SLOS, counted, strict=True):
            mine = Counter(verdict for verdict in verdicts(Rows.of("a", found), slo, itl) if verdict is not None)
            assert mine.pop("good", 0) == one["good"]
            assert mine == one["missed"]


def test_a_table_of_columns_reads_back_to_the_same_report(tmp_path: Path) -> None:
    import pyarrow as pa

    found = columns(np.random.default_rng(1), 300)
    lists = pa.ListArray.from_arrays(pa.array(found["token_offsets"], pa.int32()), pa.array(found["token_ns"]))
    sizes = pa.ListArray.from_arrays(pa.array(found["token_offsets"], pa.int32()), pa.array(found["n"]))
    points = ("output_tokens", "first_token_ns", "last_token_ns")
    numbers = {name: pa.array(found[name], mask=found[name] == ABSENT) for name in points}
    table = pa.table({"arrive_ns": found["arrive_ns"], "token_ns": lists, "n": sizes, **numbers})
    output = tmp_path / "out.parquet"
    tokenpulse.convert(table, output)
    for itl in ("token", "chunk"):
        one, other = (tokenpulse.report(given, slo=SLOS, itl=itl).reduction for given in (table, output))
        assert {name: one[name] for name in SAME} == {name: other[name] for name in SAME}


@pytest.mark.parametrize("by", ["output", "total", "busy"])
def test_costs_add_up_to_the_whole(tmp_path: Path, by: str) -> None:
    paths = written(tmp_path, a=request_lines(1, 100), b=event_lines(2, 40))
    output = tmp_path / "out.parquet"
    made = tokenpulse.convert(paths, output, gpu_hour=3.6, gpus=4, cost_by=by)
    import pyarrow.parquet as pq

    costs = pq.read_table(output)[f"cost.{by}"].to_pylist()
    span = tokenpulse.report(paths).span_seconds
    assert span is not None
    assert made.cost == pytest.approx(0.004 * span, rel=1e-12)
    assert sum(costs) == pytest.approx(made.cost, rel=1e-9)
    assert min(costs) >= 0
    rows = pq.read_table(output).to_pylist()
    if by == "output":
        tokens = [sum(row["n"] or [row["output_tokens"] or 0]) for row in rows]
        assert costs == pytest.approx([made.cost * n / sum(tokens) for n in tokens])


def test_there_is_no_cost_where_there_is_no_time(tmp_path: Path) -> None:
    (path,) = written(tmp_path, a=b'{"id":"a","arrive_ns":5}\n')
    made = tokenpulse.convert(path, tmp_path / "out.jsonl", gpu_hour=1.0)
    assert made.cost is None
    assert "no cost" in made.notes[0]
    assert "cost" not in (tmp_path / "out.jsonl").read_text()


TOOLS = sorted((FIXTURES / "tools").glob("*.gz")) + sorted((FIXTURES / "tools").glob("*.csv"))


@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.name)
def test_files_of_tools_read_back_to_the_same_counts(tmp_path: Path, path: Path) -> None:
    before = tokenpulse.report(path, slo=SLOS, itl="chunk")
    if "requests" in before.absent:
        with pytest.raises(ValueError, match="no requests to convert"):
            tokenpulse.convert(path, tmp_path / "out.jsonl")
        return
    pooled = "stat_logger" in path.name  # its values belong to no request
    table = tmp_path / "out.parquet"
    tokenpulse.convert(path, table)
    after = tokenpulse.report(table, slo=SLOS, itl="chunk").reduction
    for name in ("total", "slowest", "grid", "first_arrival_ns", "last_emission_ns", "flow"):
        if not (pooled and name == "total"):
            assert after[name] == before.reduction[name], name
    lines = tmp_path / "out.jsonl"
    notes = tokenpulse.convert(path, lines).notes
    again = tokenpulse.report(lines, slo=SLOS, itl="chunk").reduction
    if any("fewer tokens than chunks" in note for note in notes) or pooled or before.workload is None:
        return
    if "arrivals and lengths only" not in " ".join(notes):
        latency = before.reduction["total"]["latency"]
        assert {m: again["total"]["latency"][m] == latency[m] for m in latency} == dict.fromkeys(latency, True)
        assert again["total"]["output_tokens"] == before.reduction["total"]["output_tokens"]
        assert again["grid"] == before.reduction["grid"]


def test_runs_on_clocks_of_their_own_are_pointed_out(tmp_path: Path) -> None:
    appended = FIXTURES / "tools" / "vllm_bench_append.jsonl.gz"
    assert "different moments" in tokenpulse.convert(appended, tmp_path / "out.parquet").notes[0]
    one = tokenpulse.convert(FIXTURES / "tools" / "vllm_bench_detailed.json.gz", tmp_path / "out.parquet")
    assert one.notes == []


def test_tokens_are_spread_over_chunks_evenly() -> None:
    found = {
        "arrive_ns": np.zeros(3, np.int64),
        "token_ns": np.arange(7, dtype=np.int64),
        "token_offsets": np.array([0, 3, 5, 7]),
        "output_tokens": np.array([10, ABSENT, 1]),
    }
    assert counts_of(Rows.of("a", found)).tolist() == [3, 3, 4, 1, 1, 1, 1]


def test_emissions_out_of_order_count_as_little_as_in_the_core() -> None:
    found = {
        "arrive_ns": np.array([10, 20]),
        "token_ns": np.array([5, 12, 11, 15, 30, 40]),
        "token_offsets": np.array([0, 4, 6]),
    }
    rows = Rows.of("a", found).in_order()
    assert rows.token_ns.tolist() == [12, 15, 30, 40]
    assert rows.tokens.tolist() == [2, 2]
    assert rows.first.tolist() == [12, 30]


# The command


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    slo = ("--slo", "chat:ttft=100ms,tpot=6ms", "--slo-where", "chat=tenant:conv")
    done = run(
        "convert", "demo_events.jsonl", "-o", output, *slo, "--gpu-hour", "3.6", "--gpus", "2", "--cost-by", "busy"
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert text.startswith(f"60 requests written to {output}\nchat: ")
    assert "shared out by busy" in text
    found = json.loads(run("convert", "demo_events.jsonl", "-o", output, *slo, "--json").stdout)
    assert found["schema"] == "tokenpulse.convert/1"
    assert (found["requests"], found["cost"]) == (60, None)
    report = json.loads(run("report", "demo_events.jsonl", *slo, "--json").stdout)
    assert found["good"]["chat"] == {"good": report["goodput"][0]["good"], "judged": report["goodput"][0]["judged"]}


def test_standard_input_to_standard_output() -> None:
    content = request_lines(1, 30)
    done = run("convert", "-", "-o", "-", stdin=content)
    assert done.returncode == 0
    assert done.stderr.startswith(b"30 requests written to -")
    assert len(done.stdout.splitlines()) == 30
    report, again = (json.loads(run("report", "-", "--json", stdin=text).stdout) for text in (content, done.stdout))
    assert again["latency"] == report["latency"]


def test_what_could_not_be_used_is_told(tmp_path: Path) -> None:
    (path,) = written(tmp_path, a=request_lines(1, 3, tenants=1) + b"nonsense\n")
    done = run("convert", path, "-o", tmp_path / "out.jsonl", "--strict")
    assert done.returncode == 1
    assert f"{path}:4: not_json".encode() in done.stderr


def test_misuse_is_one_line_and_status_2(tmp_path: Path) -> None:
    (path,) = written(tmp_path, a=request_lines(1, 3))

    def fails(*args: object) -> str:
        return misuse(run("convert", *args))

    assert "--output" in fails(path)
    assert "must end in .jsonl" in fails(path, "-o", tmp_path / "out.csv")
    assert "--cost-by needs --gpu-hour" in fails(path, "-o", "-", "--cost-by", "busy")
    assert "gpu_hour must be a number above 0" in fails(path, "-o", "-", "--gpu-hour", "-1")
    assert "absent" in fails(tmp_path / "absent", "-o", "-")
    assert "--ttl" in fails(path, "-o", "-", "--ttl", "5")
    assert "no" in fails(path, "-o", tmp_path / "no" / "out.jsonl")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.jsonl"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_values_without_a_request_give_no_verdict(tmp_path: Path, kind: str) -> None:
    source, target = FIXTURES / "tools/stat_logger.jsonl.gz", tmp_path / f"run.{kind}"
    assert tokenpulse.report(source, slo="ttft=200ms,tpot=30ms").goodput[0]["good"] is None
    made = tokenpulse.convert(source, target, slo="ttft=200ms,tpot=30ms")
    assert made.requests > 0
    assert made.good == {"default": (0, 0)}
    assert any("no verdicts: times to first token come without" in note for note in made.notes)
    assert any("ttft, itl" in note and "left out" in note for note in made.notes)
    if kind == "jsonl":
        assert "verdict.default" not in target.read_text()
    without = tokenpulse.convert(source, target)
    assert not any("no verdicts" in note for note in without.notes)


def test_an_input_is_not_overwritten(tmp_path: Path) -> None:
    log, link = tmp_path / "run.jsonl", tmp_path / "link.jsonl"
    log.write_text('{"id":"a","arrive_ns":1,"token_ns":[5],"mine":7}\n')
    before = log.read_bytes()
    link.symlink_to(log)
    for given in ([log], [FIXTURES / "demo_events.jsonl", link], str(log)):
        with pytest.raises(ValueError, match=r"run\.jsonl: is an input"):
            tokenpulse.convert(given, log)
    assert log.read_bytes() == before
    assert "is an input" in misuse(run("convert", log, "-o", link))
    assert tokenpulse.convert(iter([log]), tmp_path / "other.jsonl").requests == 1
