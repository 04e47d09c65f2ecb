"""The same requests in another shape are the same report: arrays for lines, lines for arrays, many lines a value,
numbers in quotes, keys given twice, and a long text before every key that tells the format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tool_files import content

import tokenpulse
from tokenpulse import readers
from tokenpulse.readers.documents import shape_of
from tokenpulse.records import Summary

PROFILES = {
    "vllm_bench_append.jsonl.gz": "vllm",
    "vllm_bench_detailed.json.gz": "vllm",
    "aiperf_cancel.jsonl.gz": "aiperf",
    "guidellm_errors.json.gz": "guidellm",
    "inference_perf_requests.json.gz": "inference-perf",
    "genai_bench.json.gz": "genai-bench",
    "stat_logger.jsonl.gz": None,
}
LINES = ["vllm_bench_append.jsonl.gz", "aiperf_cancel.jsonl.gz", "stat_logger.jsonl.gz"]
ROWS = 200


def values(name: str) -> list[Any]:
    """The JSON values that stand one after the other in a recorded file."""
    text = content(name).decode()
    return [json.loads(line) for line in text.splitlines()[:ROWS]] if ".jsonl" in name else [json.loads(text)]


def figures(text: str, name: str, folder: Path) -> dict[str, Any]:
    """What a report says of a file, but for how it was laid out, and the tool's own words."""
    path = folder / "data"
    path.write_text(text, encoding="utf-8")
    report = tokenpulse.report(path, slo="ttft=200ms,tpot=30ms", profile=PROFILES[name]).to_dict()
    report["inputs"] = [{"format": one["format"], "skipped": one["skipped"]} for one in report["inputs"]]
    del report["reported"]
    return report


def quoted(value: Any) -> Any:
    """The same JSON with its integers in quotes."""
    if isinstance(value, dict):
        return {key: quoted(one) for key, one in value.items()}
    if isinstance(value, list):
        return [quoted(one) for one in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def twice(value: Any) -> str:
    """The same JSON with each key given twice; the first stands for something else."""
    if isinstance(value, list):
        return f"[{','.join(map(twice, value))}]"
    if not isinstance(value, dict):
        return json.dumps(value)
    other = {list: "[]", dict: "{}", str: '"x"', int: "12345", float: "0.125"}
    keys = ((json.dumps(key), other.get(type(one), "null"), twice(one)) for key, one in value.items())
    return f"{{{','.join(f'{key}:{first},{key}:{last}' for key, first, last in keys)}}}"


def lines(found: list[Any], write: Callable[[Any], str] = json.dumps) -> str:
    return "\n".join(map(write, found))


@pytest.mark.parametrize("name", PROFILES)
def test_numbers_in_quotes_and_keys_given_twice(name: str, tmp_path: Path) -> None:
    known = values(name)
    expected = figures(lines(known), name, tmp_path)
    assert expected["requests"]["attempted"] > 0
    assert figures(lines(quoted(known)), name, tmp_path) == expected
    assert figures(lines(known, twice), name, tmp_path) == expected


@pytest.mark.parametrize("name", LINES)
def test_an_array_in_place_of_lines_and_values_of_many_lines(name: str, tmp_path: Path) -> None:
    known = values(name)
    expected = figures(lines(known), name, tmp_path)
    assert expected["requests"]["attempted"] > 0
    assert figures(json.dumps(known), name, tmp_path) == expected
    assert figures(json.dumps(known, indent=1), name, tmp_path) == expected
    assert figures(lines(known, lambda one: json.dumps(one, indent=2)), name, tmp_path) == expected


@pytest.mark.parametrize("name", ["guidellm_errors.json.gz", "genai_bench.json.gz", "vllm_bench_detailed.json.gz"])
def test_an_array_of_documents(name: str, tmp_path: Path) -> None:
    known = values(name)
    expected = figures(lines(known), name, tmp_path)
    assert figures(json.dumps(known), name, tmp_path) == expected
    twice_as_many = figures(json.dumps(known * 2), name, tmp_path)
    assert twice_as_many["requests"]["attempted"] == 2 * expected["requests"]["attempted"]
    assert figures(lines(known * 2), name, tmp_path) == twice_as_many


@pytest.mark.parametrize(
    "name", ["aiperf_summary.json.gz", "inference_perf_stage.json.gz", "inference_perf_summary.json.gz"]
)
def test_no_summary_of_several_is_passed_over(name: str) -> None:
    (known,) = values(name)
    for text in (lines([known, known]), json.dumps([known, known])):
        assert [run.figures for run in readers.read(text.encode()) if isinstance(run, Summary)] == [known, known]


def test_lines_in_place_of_an_array(tmp_path: Path) -> None:
    name = "inference_perf_requests.json.gz"
    (known,) = values(name)
    assert figures(lines(known), name, tmp_path) == figures(json.dumps(known), name, tmp_path)


def test_a_fault_inside_an_array_keeps_what_came_before(tmp_path: Path) -> None:
    name = "aiperf_cancel.jsonl.gz"
    rows = values(name)
    broken = json.dumps([*rows[:5], "no row"])[:-1] + ', {"metadata": nonsense}, 7]'
    report = figures(broken, name, tmp_path)
    assert report["inputs"] == [{"format": "aiperf-requests", "skipped": {"not_object": 1, "not_json": 1}}]


def late(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"a_text": "\u00fc" * 200_000, **found}
    yield {"notes": [{"text": "x" * 500}] * 400, **found}


@pytest.mark.parametrize("name", ["vllm_bench_detailed.json.gz", "guidellm_errors.json.gz", "aiperf_cancel.jsonl.gz"])
def test_a_long_value_before_the_keys_that_tell_the_format(name: str, tmp_path: Path) -> None:
    known = values(name)
    expected = figures(lines(known), name, tmp_path)
    for first in late(known[0]):
        assert figures(lines([first, *known[1:]]), name, tmp_path) == expected


def test_a_beginning_of_json_that_tells_nothing_is_looked_at_no_further_than_it_must() -> None:
    text = json.dumps({"a": ["x" * 50] * 200_000}).encode()
    assert len(readers.head(text)) == 4 << 20
    assert len(readers.head(b"junk " * 200_000)) == readers.HEAD
    assert readers.detect(readers.head(text)) is None


def test_how_values_stand_in_a_file() -> None:
    assert shape_of(b'\xef\xbb\xbf \n[{"a": 1},\n{"a": 2}]', in_array=False) == "array"
    assert shape_of(b'{"a": 1}\n{"a": 2}\n', in_array=False) == "usual"
    assert shape_of(b'{\n "a": 1\n}\n', in_array=False) == "values"
    assert shape_of(b'{\n "a": "' + b"x" * readers.HEAD, in_array=False) == "values"
    assert shape_of(b'{"a": "cut off\n{"a": 2}\n', in_array=False) == "usual"  # a line at fault, not many lines
    assert shape_of(b'{"a": 1}', in_array=False) == "usual"
    assert shape_of(b"", in_array=True) == shape_of(b"[]", in_array=True) == "usual"
    assert shape_of(b'{"a": 1}\n{"a": 2}', in_array=True) == "rows"
