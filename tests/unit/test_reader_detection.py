"""Formats are told by what is in a file: its name, its order of keys and its compression tell nothing."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tool_files import TOOLS, content

from tokenpulse import readers
from tokenpulse.engine import FormatError
from tokenpulse.readers.keys import keys_of

FORMATS = {
    "aiperf.jsonl.gz": "aiperf-requests",
    "aiperf_cancel.jsonl.gz": "aiperf-requests",
    "aiperf_cancel_summary.json.gz": "aiperf-summary",
    "aiperf_summary.json.gz": "aiperf-summary",
    "azure_code.csv": "azure-trace",
    "genai_bench.json.gz": "genai-bench-requests",
    "guidellm.json.gz": "guidellm-benchmarks",
    "guidellm_errors.json.gz": "guidellm-benchmarks",
    "inference_perf_requests.json.gz": "inference-perf-requests",
    "inference_perf_stage.json.gz": "inference-perf-stage",
    "inference_perf_summary.json.gz": "inference-perf-summary",
    "inferencex_agg.json": "inferencex-summary",
    "inferencex_glm5.json": "inferencex-summary",
    "inferencex_minimax-m2.5.json": "vllm-bench-summary",
    "stat_logger.jsonl.gz": "vllm-stat-logger",
    "stat_logger_defaults_left_out.jsonl.gz": "vllm-stat-logger",
    "vllm_bench_append.jsonl.gz": "vllm-bench-detailed",
    "vllm_bench_detailed.json.gz": "vllm-bench-detailed",
    "vllm_bench_errors.json.gz": "vllm-bench-detailed",
}


def test_every_recorded_file_is_known() -> None:
    assert {file.name for file in TOOLS.iterdir()} - {"README.md"} == set(FORMATS)


@pytest.mark.parametrize(("name", "form"), FORMATS.items())
def test_the_format_of_a_recorded_file(name: str, form: str, tmp_path: Path) -> None:
    assert readers.detect(readers.head(str(TOOLS / name))) == form
    plain = tmp_path / "data.bin"
    plain.write_bytes(content(name))
    assert readers.detect(readers.head(str(plain))) == form
    assert readers.read(str(plain))[0].tool == readers.read(str(TOOLS / name))[0].tool


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same JSON with the keys of its objects in another order."""
    if isinstance(value, list):
        return [shuffled(one, chance) for one in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    chance.shuffle(keys)
    return {key: shuffled(value[key], chance) for key in keys}


@pytest.mark.parametrize("name", [name for name in FORMATS if "json" in name])
def test_the_order_of_keys_does_not_matter(name: str) -> None:
    chance = random.Random(7)
    text = content(name)
    values = text.splitlines() if ".jsonl" in name else [text]
    for _ in range(3):
        again = "\n".join(json.dumps(shuffled(json.loads(one), chance)) for one in values).encode()
        assert readers.detect(again) == FORMATS[name]


@pytest.mark.parametrize("name", [name for name in FORMATS if ".json." in name])
def test_the_beginning_of_a_sorted_document_is_enough(name: str) -> None:
    text = json.dumps(json.loads(content(name)), sort_keys=True).encode()
    found = readers.detect(text[: readers.HEAD])
    # That there are arrays may stand further behind; the reader is the same.
    assert found is not None
    assert found.rsplit("-", 1)[0] == FORMATS[name].rsplit("-", 1)[0]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (b'{"t_ns":1,"ev":"gauge","running":1}', "tokenpulse"),
        (b'{"id":"a","arrive_ns":1}', "tokenpulse"),
        (b'{"id":"a","arrival_mono_ns":1,"ctx":3}', "tokenpulse"),
        (b'broken\n{"id":"a","arrive_ns":1}', None),
        (b'{"no":"body"}\n\n{"id":"a","arrive_ns":1}', "tokenpulse"),
        (b'\xef\xbb\xbf \n{"id":"a","arrive_ns":1}', "tokenpulse"),
        (b"PAR1\x15\x04", "parquet"),
        (b"ARROW1\x00\x00", "arrow"),
        (b"\xff\xff\xff\xff\x78\x02", "arrow"),
        (b"id,arrive_ns,output_tokens\n", "csv"),
        (b"t_ns,ev,id\n", "csv"),
        (b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n", "burstgpt-trace"),
        (b'{"timestamp":0,"input_length":1,"output_length":2,"hash_ids":[]}', "mooncake-trace"),
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b'{"a":1}', None),
        (b"\x00\x01\x02", None),
        (b"a,b\n", None),
    ],
)
def test_what_is_told(text: bytes, form: str | None) -> None:
    assert readers.detect(text) == form


def test_a_head_that_is_cut_anywhere_never_fails() -> None:
    for name in ("aiperf.jsonl.gz", "guidellm.json.gz", "inference_perf_requests.json.gz"):
        text = content(name)[:2_000]
        for end in range(0, len(text), 7):
            assert readers.detect(text[:end]) in (None, FORMATS[name])


def test_keys_of_odd_texts() -> None:
    assert list(keys_of('{"a\\"b": 1, "c": "}{"} ] {"d": [[{"e": 1}]]}')) == [{'a\\"b', "c"}]
    assert list(keys_of("[[[[[[[[1]]]]]]]]")) == [{"[]", "[][]", "[][][]", "[][][][]", "[][][][][]"}]
    assert list(keys_of('{"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}')) == [
        {"a", "a.b", "a.b.c", "a.b.c.d", "a.b.c.d.e"}
    ]


def test_heads_of_compressed_files_and_of_their_beginnings(tmp_path: Path) -> None:
    text = b'{"id":"a","arrive_ns":1}\n' * 10_000
    packed = gzip.compress(text)
    assert readers.head(packed) == text[: readers.HEAD]
    assert readers.detect(readers.head(packed[: len(packed) // 2])) == "tokenpulse"
    assert readers.head(packed[:5]) == b""
    file = tmp_path / "x"
    file.write_bytes(packed)
    assert readers.head(str(file)) == text[: readers.HEAD]
    with pytest.raises(OSError, match="nowhere"):
        readers.head(str(tmp_path / "nowhere"))


def test_what_is_not_known_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"a": 1}')
    with pytest.raises(FormatError, match=r"x\.json: unknown format"):
        readers.read(str(file))


def test_progress_is_told_and_may_end_the_reading() -> None:
    told: list[tuple[int, int]] = []
    readers.read(str(TOOLS / "aiperf.jsonl.gz"), progress=lambda done, size: told.append((done, size)))
    assert told
    assert all(0 <= done <= size for done, size in told)

    def enough(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        readers.read(str(TOOLS / "aiperf.jsonl.gz"), progress=enough)


@pytest.mark.parametrize("name", ["vllm_bench_append.jsonl.gz", "aiperf_cancel.jsonl.gz", "guidellm.json.gz"])
def test_a_damaged_compressed_file_keeps_what_could_be_read(name: str) -> None:
    packed = (TOOLS / name).read_bytes()
    whole = readers.read(packed)
    try:
        part = readers.read(packed[: len(packed) // 2])
    except FormatError:
        assert name == "guidellm.json.gz"
        return
    assert part[-1].skipped
    assert 0 < sum(len(run) for run in part) < sum(len(run) for run in whole)  # type: ignore[arg-type]
