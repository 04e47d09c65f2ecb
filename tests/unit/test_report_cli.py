"""The command from end to end, in a process of its own: output, messages and exit status."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import FIXTURES, misuse, run

REQUESTS = FIXTURES / "demo_requests.jsonl"
EVENTS = FIXTURES / "demo_events.jsonl"
GOOD = b'{"id":"ok","arrive_ns":0,"token_ns":[1000000,2000000]}\n'


def as_json(*args: object, stdin: bytes = b"") -> dict[str, object]:
    done = run("report", "--json", *args, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fails(*args: object) -> str:
    """The one line that a misuse ends in."""
    return misuse(run(*args))


def log(folder: Path, *lines: bytes) -> Path:
    path = folder / "log.jsonl"
    path.write_bytes(b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines))
    return path


def test_tables_fit_80_columns_and_say_what_matters() -> None:
    done = run(
        *("report", EVENTS, "--slo", "chat:ttft=100ms,tpot=6ms", "--slo-where", "chat=tenant:conv"),
        *("--by", "tenant", "--timeline", "500ms"),
    )
    assert done.returncode == 0
    text = done.stdout.decode()
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    for told in ("Latency, ms", "ttft", "P99.9", "attempted", "Goodput", "where tenant=conv", "Timeline"):
        assert told in text
    assert "* too few values for this percentile (" in text
    assert "P99.9 needs 1,000" in text
    assert done.stderr == b""


def test_no_colour_and_no_unicode_is_needed() -> None:
    done = run("report", REQUESTS, PYTHONIOENCODING="ascii", TERM="dumb", NO_COLOR="1")
    assert done.returncode == 0
    assert "attempted" in done.stdout.decode("ascii")


def test_a_long_timeline_is_cut_and_says_so() -> None:
    text = run("report", EVENTS, "--timeline", "10ms").stdout.decode()
    assert "more bins: --json has them all." in text
    assert len(text.splitlines()) < 140


def test_json_has_the_keys_of_the_schema() -> None:
    report = as_json(REQUESTS, EVENTS, "--slo", "ttft=200ms,tpot=30ms", "--by", "prompt_length")
    assert report["schema"] == "tokenpulse.report/1"
    assert [one["path"] for one in report["inputs"]] == [str(REQUESTS), str(EVENTS)]
    assert report["requests"]["attempted"] == 120


def test_standard_input_and_compression(tmp_path: Path) -> None:
    plain = as_json(EVENTS)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(EVENTS.read_bytes()))
    for report in (as_json("-", stdin=EVENTS.read_bytes()), as_json(packed)):
        assert {k: v for k, v in report.items() if k != "inputs"} == {k: v for k, v in plain.items() if k != "inputs"}


def test_itl_rules_differ() -> None:
    counts = {rule: as_json(REQUESTS, "--itl", rule)["latency"]["itl"] for rule in ("token", "chunk", "stamp")}
    assert counts["token"]["count"] == counts["stamp"]["count"] > counts["chunk"]["count"]
    assert len({one["sum_ns"] for one in counts.values()}) == 1


def test_version_and_help() -> None:
    assert run("--version").stdout.startswith(b"tokenpulse")
    assert b"report" in run("--help").stdout
    assert run("report", "--help").returncode == 0


def test_misuse_is_one_line_and_status_2(tmp_path: Path) -> None:
    strange = tmp_path / "strange.csv"
    strange.write_text("a,b\n1,2\n")
    assert "absent.jsonl" in fails("report", tmp_path / "absent.jsonl")
    assert "strange.csv" in fails("report", strange)
    assert str(tmp_path) in fails("report", tmp_path)
    assert "PATH" in fails("report")
    assert "tpot is missing" in fails("report", REQUESTS, "--slo", "ttft=200ms")
    assert "such as 200ms" in fails("report", REQUESTS, "--slo", "ttft=200,tpot=30")
    assert "no slo set is named" in fails("report", REQUESTS, "--slo-where", "a=b:c")
    assert "two slo sets" in fails("report", REQUESTS, *["--slo", "a:ttft=1s,tpot=1s"] * 2)
    assert "--timeline" in fails("report", REQUESTS, "--timeline", "10")
    assert "--itl" in fails("report", REQUESTS, "--itl", "words")
    assert "only once" in fails("report", "-", "-")
    assert "--nope" in fails("report", "--nope")
    assert "frob" in fails("frob")


BAD_LINES = {
    "not_utf8": b'{"id":"\xff\xfe","arrive_ns":1}',
    "not_json": b'{"id":"a","arrive_ns":',
    "not_object": b"[1,2]",
    "unknown_kind": b'{"hello":1}',
    "missing_field": b'{"arrive_ns":1}',
    "wrong_type": b'{"id":"a","arrive_ns":"1"}',
    "bad_value": b'{"id":"a","arrive_ns":-1}',
    "length_mismatch": b'{"id":"a","arrive_ns":1,"token_ns":[2,3],"n":[1]}',
    "too_deep": b'{"id":"a","arrive_ns":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("reason", BAD_LINES)
def test_a_bad_line_is_counted_and_named_and_the_rest_read(tmp_path: Path, reason: str) -> None:
    path = log(tmp_path, GOOD, BAD_LINES[reason], GOOD.replace(b"ok", b"ok2"))
    done = run("report", "--json", path)
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["inputs"][0]["skipped"] == {reason: 1}
    assert report["requests"]["succeeded"] == 2
    warning = done.stderr.decode()
    assert "warning: 1 line or event could not be used" in warning
    assert f"{path}:2: {reason}: " in warning
    assert run("report", "--strict", path).returncode == 1
    table = run("report", path).stdout.decode()
    assert "Not counted, and why" in table
    assert reason in table


def test_a_line_of_100_mb(tmp_path: Path) -> None:
    path = log(tmp_path, GOOD, b'{"id":"' + b"x" * 100_000_000 + b'","arrive_ns":1}', GOOD)
    report = as_json(path)
    assert report["inputs"][0]["skipped"] == {"too_long": 1}
    assert report["requests"]["attempted"] == 2


def test_truncated_gzip(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    whole = gzip.compress(EVENTS.read_bytes())
    path.write_bytes(whole[: len(whole) // 2])
    report = as_json(path)
    assert report["inputs"][0]["skipped"]["truncated"] == 1
    assert report["requests"]["attempted"] > 10


def test_many_bad_lines_are_not_all_named(tmp_path: Path) -> None:
    path = log(tmp_path, GOOD, *[b"nonsense"] * 1000)
    done = run("report", path)
    lines = done.stderr.decode().splitlines()
    assert 3 <= len(lines) <= 12
    assert lines[-1].startswith("  ... and 99")


def test_a_second_end_is_refused_and_told(tmp_path: Path) -> None:
    end = b'{"t_ns":2,"id":"a","ev":"end","status":"stop"}'
    path = log(tmp_path, b'{"t_ns":1,"id":"a","ev":"arrive"}', end, end)
    done = run("report", path, "--strict")
    assert done.returncode == 1
    assert f"{path}:3: unknown: ".encode() in done.stderr
    assert b"request never arrived" in b" ".join(done.stdout.split())


def test_names_from_a_log_cannot_drive_the_terminal(tmp_path: Path) -> None:
    path = log(tmp_path, b'{"id":"a","arrive_ns":1,"token_ns":[2],"labels":{"t":"\\u001b[31m[bold]x"}}')
    done = run("report", path, "--by", "t")
    assert b"\x1b" not in done.stdout
    assert b"[bold]x" in done.stdout


def test_an_empty_log(tmp_path: Path) -> None:
    path = log(tmp_path)
    done = run("report", path, "--slo", "ttft=1s,tpot=1s", "--by", "t", "--timeline", "1s")
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenpulse", "report", EVENTS, "--json", "--timeline", "1ms"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 141
    assert said == b""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_ends_quietly() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenpulse", "report", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a suite in the background ignores it
    )
    assert process.stdin is not None
    process.stdin.write(GOOD)
    process.stdin.flush()
    time.sleep(2)  # by now it waits for more
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    said, warned = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (said, warned) == (b"", b"")


@pytest.mark.parametrize("option", ["--html", "--sketches"])
def test_an_input_is_not_overwritten(tmp_path: Path, option: str) -> None:
    path = log(tmp_path, GOOD)
    assert "log.jsonl: is an input" in fails("report", EVENTS, path, option, path)
    assert path.read_bytes() == GOOD


def test_page_and_sketches_are_two_files(tmp_path: Path) -> None:
    both = str(tmp_path / "both")
    said = fails("report", EVENTS, "--html", both, "--sketches", both)
    assert "two files" in said
    assert not Path(both).exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("option", ["--html", "--sketches"])
def test_a_full_disk_is_told_with_the_name_of_the_file(option: str) -> None:
    said = fails("report", EVENTS, option, "/dev/full")
    assert "/dev/full: No space left" in said


def test_groups_of_lengths_stand_in_their_order(tmp_path: Path) -> None:
    lines = [
        b'{"id":"%d","arrive_ns":0,"token_ns":[1000000],"prompt_tokens":%d,"labels":{"tenant":"%s"}}' % (i, *one)
        for i, one in enumerate([(600, b"b"), (200000, b"b"), (5, b"a"), (130, b"b"), (600, b"a")])
    ]
    path = log(tmp_path, *lines)
    text = run("report", path, "--by", "prompt_length").stdout.decode()
    places = [text.index(f"\n{name} ") for name in ("0-128", "128-512", "512-2048", "131072+")]
    assert places == sorted(places)
    text = run("report", path, "--by", "tenant", "--by", "prompt_length").stdout.decode()
    names = ("b, 128-512", "b, 512-2048", "b, 131072+", "a, 0-128", "a, 512-2048")
    places = [text.index(f"\n{name} ") for name in names]
    assert places == sorted(places)


def test_only_event_lines_learn_the_output_length_late() -> None:
    def told(name: str) -> bool:
        text = run("report", FIXTURES / name, "--by", "output_length").stdout.decode()
        return "Event lines tell the output length" in text

    assert told("demo_events.jsonl")
    assert not told("demo_requests.jsonl")
    assert not told("tools/vllm_bench_detailed.json.gz")


@pytest.mark.parametrize(
    "args", [("report", EVENTS, "--html"), ("report", EVENTS, "--sketches"), ("merge", EVENTS, "-o")]
)
def test_standard_output_is_no_file(args: tuple[object, ...]) -> None:
    assert "standard output has the report" in fails(*args, "-")
    assert not (FIXTURES / "-").exists()
