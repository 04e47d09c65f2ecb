"""Files of other tools through `tokenpulse.report` and the command: what they cannot give is null and named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from command import misuse, run

import tokenpulse
from tokenpulse import Report, readers
from tokenpulse.model import METRICS
from tokenpulse.records import ABSENT, Records, Summary, Workload
from tokenpulse.reporting.json import dumps

FIXTURES = Path(__file__).parents[1] / "fixtures"
TOOLS = sorted(path for path in (FIXTURES / "tools").iterdir() if path.suffix != ".md")
LOGS = [path for path in TOOLS if isinstance(readers.read(str(path))[0], Records)]
SUMMARIES = [path for path in TOOLS if isinstance(readers.read(str(path))[0], Summary)]
TRACES = [path for path in TOOLS if isinstance(readers.read(str(path))[0], Workload)]
OWN = FIXTURES / "demo_events.jsonl"

each = pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.name)


def plain(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def nulls(figures: Any, name: str = "") -> list[str]:
    """The names of the figures that are null."""
    if figures is None:
        return [name]
    if not isinstance(figures, dict):
        return []
    return [found for key, value in figures.items() for found in nulls(value, f"{name}.{key}".lstrip("."))]


def named(report: Report, name: str) -> bool:
    """Whether a name, or one that it is part of, has a reason."""
    parts = name.split(".")
    return any(".".join(parts[: n + 1]) in report.absent for n in range(len(parts)))


FIGURES = (
    *("span_seconds", "requests", "tokens", "preemptions", "latency", "rates", "availability", "degraded"),
    *("flow", "attainment_grid", "workload"),
)


def test_there_is_one_of_each() -> None:
    assert len(LOGS) > 5
    assert len(SUMMARIES) > 3
    assert TRACES


@each
def test_what_a_file_cannot_give_is_null_and_named(path: Path) -> None:
    report = tokenpulse.report(path)
    json.loads(dumps(report), parse_constant=pytest.fail)
    for key in FIGURES:
        for name in nulls(report.to_dict()[key], key):
            if name in ("requests.in_flight", "flow.littles_law.warning", "flow.littles_law.needs"):
                continue
            assert named(report, name), f"{name} is null, and nobody says why"
    for name, reason in report.absent.items():
        assert reason, name
        assert name == reason or not reason.endswith("."), "a reason is part of a sentence"


@each
def test_the_command_says_the_same(path: Path) -> None:
    done = run("report", path, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    printed = json.loads(done.stdout)
    assert printed == json.loads(dumps(tokenpulse.report(path)))
    table = run("report", path.relative_to(FIXTURES))
    assert (table.returncode, table.stderr) == (0, b"")
    assert max(map(len, table.stdout.decode().splitlines())) <= 85


@each
def test_no_tool_is_credited_with_what_it_does_not_record(path: Path) -> None:
    """Counts that are 0 by default are null here: degraded answers, preemptions, sizes of chunks."""
    report = tokenpulse.report(path)
    assert report.degraded is None
    assert report.preemptions == {"requests": None, "events": None} or path in TRACES
    if report.rules["itl"] == "chunk" and report.flow is not None:
        assert report.flow["coalesced"]["share"] is None


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_rows_are_counted_as_the_file_has_them(path: Path) -> None:
    runs = [one for one in readers.read(str(path)) if isinstance(one, Records)]
    report = tokenpulse.report(path)
    assert report.requests["attempted"] == sum(int(one.counted.sum()) for one in runs)
    assert report.requests["succeeded"] == sum(int((one.counted & one.succeeded).sum()) for one in runs)
    assert [one["format"] for one in report.inputs] == [one.format for one in runs]
    ttft = sum(int((one.counted & (one.ttft >= 0)).sum()) for one in runs)
    pooled = sum(len(one.pooled.get("ttft", ())) for one in runs)
    assert (report.latency["ttft"] or {"count": 0})["count"] == ttft + pooled
    if all(one.prompt_tokens is not None for one in runs):
        told = sum(int(n) for one in runs for n in one.prompt_tokens[one.counted] if n != ABSENT)  # type: ignore[index]
        assert report.tokens["prompt"] == told


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_the_flow_of_rows_is_a_sweep(path: Path) -> None:
    report = tokenpulse.report(path)
    if report.flow is None:
        assert "flow" in report.absent
        return
    assert report.flow["exact"] is True
    assert report.flow["concurrency"]["peak"]["at_least"] == report.flow["concurrency"]["peak"]["at_most"]
    # All requests of these files ended: over the whole run the law holds to the last digit.
    law = report.flow["littles_law"]
    if law["over"] == "run":
        assert law["relative_difference"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("path", SUMMARIES, ids=lambda path: path.name)
def test_a_summary_is_the_tools_own_and_counts_nothing(path: Path) -> None:
    report = tokenpulse.report(path, slo="ttft=1s,tpot=1s")
    assert set(report.requests.values()) - {None} == set()
    assert set(report.latency.values()) == {None}
    assert report.goodput[0]["attainment"] is None
    assert report.reported
    for one in report.reported:
        assert one["figures"]
        assert one["path"] == str(path)
    assert "Figures of" in run("report", path).stdout.decode()


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_a_trace_is_a_workload_and_has_no_latency(path: Path) -> None:
    report = tokenpulse.report(path, slo="ttft=1s,tpot=1s")
    trace = readers.read(str(path))[0]
    assert isinstance(trace, Workload)
    assert report.requests["attempted"] == len(trace)
    assert report.requests["succeeded"] == report.requests["failed"] == 0
    assert set(report.latency.values()) == {None}
    assert report.availability is report.flow is report.goodput[0]["attainment"] is None
    assert report.tokens == {"prompt": int(trace.prompt_tokens.sum()), "output": int(trace.output_tokens.sum())}
    assert report.workload is not None
    arrivals = sorted(trace.arrive_ns.tolist())
    assert report.workload["arrivals"]["rate"] == pytest.approx(
        (len(arrivals) - 1) / ((arrivals[-1] - arrivals[0]) / 1e9)
    )
    assert report.workload["prompt_tokens"]["p50"] == sorted(trace.prompt_tokens.tolist())[(len(trace) + 1) // 2 - 1]
    text = run("report", path).stdout.decode()
    assert "Workload" in text
    assert "Latency" not in text


def test_reuse_of_a_trace_with_hashes() -> None:
    """Counted by hand from the lines."""
    path = FIXTURES / "mooncake_conversation.jsonl.gz"
    rows = [json.loads(line) for line in plain(path).splitlines()]
    hashes = [number for row in rows for number in row["hash_ids"]]
    seen: set[int] = set()
    begun = 0
    for row in rows:
        begun += bool(row["hash_ids"]) and row["hash_ids"][0] in seen
        seen.update(row["hash_ids"])
    workload = tokenpulse.report(path).workload
    assert workload is not None
    assert workload["reuse"] == {
        "block_references": len(hashes),
        "distinct_blocks": len(seen),
        "reused_share": pytest.approx(1 - len(seen) / len(hashes)),
        "block_tokens": 512,
        "requests_with_reuse": begun,
    }


def test_standard_input_may_be_any_format() -> None:
    for path in (*LOGS[:2], SUMMARIES[0], TRACES[0]):
        straight, piped = run("report", path, "--json"), run("report", "-", "--json", stdin=path.read_bytes())
        assert piped.returncode == 0, piped.stderr
        one, other = json.loads(straight.stdout), json.loads(piped.stdout)
        assert other["inputs"][0]["path"] == "-"
        for report in (one, other):
            del report["inputs"]
            for reported in report["reported"]:
                del reported["path"]
        assert one == other


def test_plain_and_packed_are_the_same(tmp_path: Path) -> None:
    for path in LOGS:
        unpacked = tmp_path / "unpacked"
        unpacked.write_bytes(plain(path))
        one, other = tokenpulse.report(path).to_dict(), tokenpulse.report(unpacked).to_dict()
        assert {key: one[key] for key in FIGURES} == {key: other[key] for key in FIGURES}


def test_logs_of_several_kinds_together() -> None:
    """Counts add up, inputs stand in the order given; times of different clocks are held against nothing."""
    paths = [LOGS[0], OWN, LOGS[-1]]
    together, apart = tokenpulse.report(paths), [tokenpulse.report(path) for path in paths]
    assert together.requests["attempted"] == sum(one.requests["attempted"] for one in apart)
    order = list(dict.fromkeys(one["path"].split(" ")[0] for one in together.inputs))
    assert order == [str(path) for path in paths]
    assert together.latency["ttft"]["count"] == sum(one.latency["ttft"]["count"] for one in apart)
    assert together.span_seconds is together.flow is None
    assert "different moments" in together.absent["span_seconds"]
    # Degraded answers and preemptions are known of our own lines.
    assert together.degraded is not None


def test_tools_on_the_clock_of_the_world_can_be_held_together() -> None:
    paths = [path for path in LOGS if "aiperf" in path.name]
    report = tokenpulse.report(paths)
    assert report.flow is not None
    assert report.flow["exact"] is True
    assert report.span_seconds > max(tokenpulse.report(path).span_seconds for path in paths)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'{"hello": 1, "world": [2]}\n', "JSON with the keys hello, world"),
        (b"hello\nworld\n", "text that begins with 'hello'"),
        (bytes(range(256)), "bytes that are no text"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "text that begins with 'a,b'"),
    ],
)
def test_an_unknown_format_says_what_was_expected_and_found(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "strange"
    path.write_bytes(content)
    for said in (misuse(run("report", OWN, path)), misuse(run("report", "-", stdin=content))):
        assert "expected tokenpulse request or event lines, a table of them, a file of vLLM" in said
        assert said.endswith(f"; found {found}")
    with pytest.raises(tokenpulse.FormatError, match="strange: expected"):
        tokenpulse.report(path)


def test_a_trace_is_not_mixed_with_logs() -> None:
    with pytest.raises(ValueError, match="apart from logs"):
        tokenpulse.report([TRACES[0], OWN])


def test_chunks_of_unknown_size_are_counted_as_chunks() -> None:
    path = FIXTURES / "tools" / "aiperf.jsonl.gz"
    for asked in ("token", "stamp"):
        report = tokenpulse.report(path, itl=asked)
        assert report.rules["itl"] == "chunk"
        assert asked in report.definitions["itl"]["tokenpulse"]
    assert "itl" not in tokenpulse.report(OWN).definitions


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_definitions_name_ours_and_the_tools(path: Path) -> None:
    report = tokenpulse.report(path)
    tool = readers.read(str(path))[0].tool
    assert report.definitions
    assert any(tool in texts for texts in report.definitions.values())
    for metric in set(report.definitions) & set(METRICS):
        assert "tokenpulse" in report.definitions[metric], metric


class TestTables:
    def columns(self) -> dict[str, list[Any]]:
        rows = [json.loads(line) for line in (FIXTURES / "demo_requests.jsonl").read_text().splitlines()]
        arrive = [row["arrival_mono_ns"] for row in rows]
        return {
            "id": [row["id"] for row in rows],
            "arrive_ns": arrive,
            "token_ns": [[a + dt for dt in row["dt_ns"]] for a, row in zip(arrive, rows, strict=True)],
            "n": [row["n"] for row in rows],
            "prompt_tokens": [row["ctx"] for row in rows],
        }

    def test_a_table_says_what_its_rows_said_as_lines(self, tmp_path: Path) -> None:
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        table = pa.table(self.columns())
        path = tmp_path / "log.parquet"
        parquet.write_table(table, path)
        settings: Any = {"slo": "ttft=200ms,tpot=30ms", "timeline": "500ms"}
        lines = tokenpulse.report(FIXTURES / "demo_requests.jsonl", **settings).to_dict()
        for given, kind in ((table, "table"), (path, "parquet"), ([path], "parquet")):
            report = tokenpulse.report(given, **settings)
            assert [one["format"] for one in report.inputs] == [kind]
            assert {key: report.to_dict()[key] for key in FIGURES} == {key: lines[key] for key in FIGURES}
            assert report.goodput == lines["goodput"]
            assert report.timeline == lines["timeline"]
        assert tokenpulse.report(table, steady=True).cut == tokenpulse.report(path, steady=True).cut

    def test_a_stream_is_read_once(self) -> None:
        pa = pytest.importorskip("pyarrow")
        table = pa.table(self.columns())
        assert tokenpulse.report(table.to_reader()).requests["attempted"] == 60
        with pytest.raises(ValueError, match="only once"):
            tokenpulse.report(table.to_reader(), steady=True)

    def test_tables_and_lines_share_a_clock(self) -> None:
        pa = pytest.importorskip("pyarrow")
        report = tokenpulse.report([pa.table(self.columns()), FIXTURES / "demo_requests.jsonl"])
        assert report.requests["attempted"] == 120
        assert report.span_seconds == tokenpulse.report(FIXTURES / "demo_requests.jsonl").span_seconds
        assert [one["format"] for one in report.inputs] == ["table", "tokenpulse-requests"]


class TestCuts:
    def test_from_and_to(self) -> None:
        path = FIXTURES / "tools" / "vllm_bench_detailed.json.gz"
        records = readers.read(str(path))[0]
        assert isinstance(records, Records)
        since = (records.arrive_ns - records.arrive_ns.min()) / 1e9  # type: ignore[union-attr, operator]
        inside = (since >= 2) & (since < 5.5)
        report = tokenpulse.report(path, from_="2s", to=5.5)
        assert report.cut == {"from_seconds": 2.0, "to_seconds": 5.5, "outside": int((~inside).sum()), "how": "from/to"}
        assert report.requests["attempted"] == int(inside.sum())
        assert report.span_seconds == pytest.approx(3.5)
        assert report.workload["requests"] == int(inside.sum())
        # Where time went is of the whole run.
        assert report.flow["arrivals"]["count"] == len(records)
        done = run("report", path, "--from", "2s", "--to", "5.5s", "--json")
        assert json.loads(done.stdout) == json.loads(dumps(report))
        told = " ".join(run("report", path, "--from", "2s").stdout.decode().split())
        assert f"{int((since < 2).sum())} requests left out" in told

    @pytest.mark.parametrize("path", [OWN, FIXTURES / "tools" / "aiperf.jsonl.gz"], ids=lambda path: path.name)
    def test_steady_is_what_flow_says(self, path: Path) -> None:
        whole, steady = tokenpulse.report(path), tokenpulse.report(path, steady=True)
        span = whole.flow["steady"]
        assert (steady.cut["from_seconds"], steady.cut["to_seconds"]) == (span["from_seconds"], span["to_seconds"])
        assert steady.cut["how"] == "steady"
        assert steady.requests["attempted"] + steady.cut["outside"] == whole.requests["attempted"]
        by_hand = tokenpulse.report(path, from_=span["from_seconds"], to=span["to_seconds"])
        assert by_hand.requests == steady.requests
        # Where time went is of the whole run; but gaps of nothing are of those that are counted.
        for flow in (steady.flow, whole.flow):
            del flow["coalesced"]["zero_gap_share"]
        assert steady.flow == whole.flow

    def test_from_the_beginning(self) -> None:
        whole = tokenpulse.report(OWN)
        for given in (0, 0.0, "0s"):
            part = tokenpulse.report(OWN, from_=given)
            assert part.requests == whole.requests
            assert part.cut == {"from_seconds": 0.0, "to_seconds": None, "outside": 0, "how": "from/to"}
        assert run("report", OWN, "--from", "0ms", "--to", "1s").returncode == 0
        with pytest.raises(ValueError, match="before to"):
            tokenpulse.report(OWN, to=0, from_=0)

    def test_what_cannot_be_cut(self) -> None:
        events = OWN.read_bytes()
        for options in (("--steady",), ("--from", "1s"), ("--to", "1s")):
            assert "only once" in misuse(run("report", "-", *options, stdin=events))
        assert "lengths only" in misuse(run("report", TRACES[0], "--steady"))
        assert "--from" in misuse(run("report", OWN, "--from", "10"))
        assert "before to" in misuse(run("report", OWN, "--from", "3s", "--to", "2s"))
        assert "together" in misuse(run("report", OWN, "--steady", "--to", "2s"))
        assert "figures only" in misuse(run("report", SUMMARIES[0], "--steady"))

    def test_a_trace_may_be_cut(self) -> None:
        whole, part = tokenpulse.report(TRACES[0]), tokenpulse.report(TRACES[0], to="10s")
        assert 0 < part.workload["requests"] == part.requests["attempted"] < whole.workload["requests"]

    def test_an_empty_log_has_nothing_to_cut(self, tmp_path: Path) -> None:
        empty = tmp_path / "empty.jsonl"
        empty.write_bytes(b"")
        report = tokenpulse.report(empty, steady=True)
        assert report.cut is None
        assert report.flow is None
        assert report.absent["flow"] == "no request arrived"


class TestSettings:
    def test_what_does_not_fit_is_refused(self) -> None:
        for wrong in ({"threads": 0}, {"threads": 2000}, {"request_rate": 0}, {"request_rate": "x"}, {"profile": "x"}):
            with pytest.raises(ValueError):  # noqa: PT011
                tokenpulse.report(OWN, **wrong)
        with pytest.raises(TypeError):
            tokenpulse.report(OWN, threads=True)
        with pytest.raises(ValueError, match="together"):
            tokenpulse.report(OWN, profile="vllm", steady=True)

    def test_the_rate_that_was_asked_for(self) -> None:
        report = tokenpulse.report(OWN, request_rate=1000)
        assert report.flow["saturation"]["verdict"] == "client saturated"
        assert report.flow["saturation"]["requested_rate"] == 1000
        done = run("report", OWN, "--request-rate", "10", "--json")
        assert json.loads(done.stdout)["flow"]["saturation"]["verdict"] == "not saturated"
        assert "rate" in misuse(run("report", OWN, "--request-rate", "fast"))

    def test_threads_do_not_change_the_answer(self) -> None:
        assert dumps(tokenpulse.report(OWN, threads=1)) == dumps(tokenpulse.report(OWN, threads=3))
        assert run("report", OWN, "--threads", "2").returncode == 0

    def test_a_page_and_a_file_of_sketches(self, tmp_path: Path) -> None:
        """Both are made with a timeline that is shown nowhere else."""
        pytest.importorskip("matplotlib")
        page, kept = tmp_path / "page.html", tmp_path / "kept.json.gz"
        done = run("report", OWN, "--html", page, "--sketches", kept, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == json.loads(run("report", OWN, "--json").stdout)
        assert page.read_text().lower().startswith("<!doctype html>")
        merged = json.loads(run("merge", kept, kept, "--json").stdout)
        assert merged["requests"]["attempted"] == 120
        assert "merge" in misuse(run("report", kept))
        absent = tmp_path / "no" / "page.html"
        assert str(absent) in misuse(run("report", OWN, "--html", absent))

    def test_an_automatic_timeline(self) -> None:
        report = tokenpulse.report(OWN, timeline="auto")
        assert 100 < len(report.timeline) <= 240
        assert report.timeline_asked_seconds == report.timeline_width_seconds
        assert "asked for" not in run("report", OWN, "--timeline", "auto").stdout.decode()


def test_an_input_that_counts_no_tokens_takes_their_total_from_all(tmp_path: Path) -> None:
    """Its chunks are no tokens, so neither a total nor a TPOT may have them in it."""
    rows = [json.loads(line) for line in plain(FIXTURES / "tools" / "aiperf.jsonl.gz").splitlines()]
    for row in rows:
        del row["metrics"]["output_sequence_length"]
    uncounted = tmp_path / "uncounted.jsonl"
    uncounted.write_text("\n".join(map(json.dumps, rows)))
    for other in (OWN, FIXTURES / "tools" / "guidellm.json.gz"):
        alone = tokenpulse.report(other)
        assert alone.latency["tpot"] is not None
        assert alone.tokens["output"] is not None
        both = tokenpulse.report([other, uncounted], slo="ttft=200ms,tpot=30ms", by="prompt_length")
        why = "the file does not have the outputs' lengths"
        assert both.latency["tpot"] is both.tokens["output"] is both.goodput[0]["good"] is None
        assert {both.absent[name] for name in ("tokens.output", "latency.tpot", "rates.output_tokens_per_second")} == {
            why
        }
        assert all(group["latency"]["tpot"] is None for group in both.by)
        assert both.latency["ttft"]["count"] == alone.latency["ttft"]["count"] + len(rows)
