"""Traces: arrivals and lengths, exact to the digit, and nothing that was not measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tool_files import content, jsonl, only, path

from tokenpulse import readers
from tokenpulse.engine import FormatError
from tokenpulse.records import ABSENT, Workload

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def azure(*rows: str) -> Workload:
    got = only((AZURE + "\r\n".join(rows)).encode())
    assert isinstance(got, Workload)
    return got


def test_the_recorded_azure_trace() -> None:
    trace = only(path("azure_code.csv"))
    text = content("azure_code.csv").decode()
    assert "\r\n" in text
    assert not text.endswith("\n")
    assert (len(trace), trace.tool, trace.clock) == (199, "azure", "epoch")
    second = np.datetime64("2023-11-16T18:17:03", "s").astype(np.int64) * 10**9
    assert trace.arrive_ns[:2].tolist() == [second + 979_960_000, second + 10**9 + 31_960_000]
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (4808, 10)
    last = text.splitlines()[-1].split(",")
    assert (trace.prompt_tokens[-1], trace.output_tokens[-1]) == (int(last[1]), int(last[2]))
    assert trace.skipped == {}
    assert "latency" in trace.absent


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01 00:00:00", 0),
        ("1970-01-01 00:00:01.0000001", 1_000_000_100),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01 00:00:01.123456789", 1_123_456_789),
        ("1970-01-01 00:00:01.1234567891", 1_123_456_789),
        ("1970-01-01 01:00:00.25+01:00", 250_000_000),
        ("1970-01-01 00:00:00-0030", 1_800_000_000_000),
        ("2024-05-10 00:00:00.009930+00:00", 1_715_299_200_009_930_000),
    ],
)
def test_times_are_exact(text: str, ns: int) -> None:
    assert azure(f"{text},1,2").arrive_ns.tolist() == [ns]


def test_azures_rows_at_fault() -> None:
    trace = azure(
        "2023-11-16 18:17:03,5,6",
        "2023-13-16 18:17:03,5,6",
        "2023-11-16 25:17:03,5,6",
        "yesterday,5,6",
        "2023-11-16 18:17:03,5",
        "2023-11-16 18:17:03,,6",
        "2023-11-16 18:17:03,-5,6",
        "2023-11-16 18:17:03,many,6",
        "",
        "2023-11-16 18:17:04,7.0,8",
    )
    assert trace.prompt_tokens.tolist() == [5, 7]
    assert trace.skipped == {"bad_value": 4, "missing_field": 2, "wrong_type": 1}
    assert [notice["line"] for notice in trace.notices] == [3, 4, 5, 6, 7]


def test_columns_in_another_order_with_others_and_a_byte_order_mark() -> None:
    text = "\ufeffGeneratedTokens,Extra,TIMESTAMP,ContextTokens\n6,x,1970-01-01 00:00:01,5\n"
    trace = only(text.encode())
    assert (trace.arrive_ns.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([10**9], [5], [6])


def test_burstgpt() -> None:
    rows = "5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,1087,0,1087,API log\n1e3,GPT-4,3,4,7,\n"
    trace = only((BURST + rows).encode())
    assert (trace.format, trace.clock) == ("burstgpt-trace", "relative")
    assert trace.arrive_ns.tolist() == [5 * 10**9, 45_500_000_000, 10**12]
    # An answer of 0 tokens is a failure, not a length.
    assert trace.output_tokens.tolist() == [18, ABSENT, 4]
    assert trace.failed.tolist() == [False, True, False]
    assert trace.labels["model"][1] == ["ChatGPT", "GPT-4"]
    assert trace.labels["log_type"][0].tolist() == [0, 1, -1]


def test_burstgpts_rows_at_fault() -> None:
    rows = "5,m,1,1,2,x\n-5,m,1,1,2,x\n,m,1,1,2,x\nsoon,m,1,1,2,x\n1e300,m,1,1,2,x\n6,m,1,x,2,x\n7,m\n"
    trace = only((BURST + rows).encode())
    assert len(trace) == 1
    assert sum(trace.skipped.values()) == 6


def row(**changed: Any) -> dict[str, Any]:
    return {"timestamp": 27482, "input_length": 1025, "output_length": 52, "hash_ids": [46, 47, 2**64 - 1]} | changed


def test_mooncake() -> None:
    trace = only(jsonl([row(), row(timestamp=30000.5, hash_ids=[46], input_length=512)]))
    assert (trace.tool, trace.clock, trace.block_tokens) == ("mooncake", "relative", 512)
    assert trace.arrive_ns.tolist() == [27_482_000_000, 30_000_500_000]
    assert trace.block_hashes.values.dtype == np.uint64
    assert [one.tolist() for one in trace.block_hashes] == [[46, 47, 2**64 - 1], [46]]


def test_hashes_as_text_and_signed() -> None:
    trace = only(jsonl([row(hash_ids=["18446744073709551615", -1, "7"])]))
    assert trace.block_hashes.values.tolist() == [2**64 - 1, 2**64 - 1, 7]


def test_the_size_of_a_block_is_the_one_that_fits_all_rows() -> None:
    assert only(jsonl([row(input_length=40, hash_ids=[1, 2, 3])])).block_tokens == 16
    assert only(jsonl([row(input_length=10, hash_ids=[1, 2, 3, 4, 5, 6, 7])])).block_tokens is None
    without = only(jsonl([{key: value for key, value in row().items() if key != "hash_ids"}]))
    assert (without.block_hashes, without.block_tokens) == (None, None)


def test_mooncakes_rows_at_fault() -> None:
    rows = [
        row(),
        row(timestamp=-1),
        row(timestamp=None),
        row(hash_ids=[2**64]),
        row(hash_ids=[1.5]),
        row(hash_ids="x"),
        row(input_length="many"),
        [],
    ]
    trace = only(jsonl(rows))
    assert len(trace) == 1
    assert trace.skipped == {"bad_value": 3, "wrong_type": 3, "not_object": 1}


def test_an_empty_trace_and_none() -> None:
    assert len(only(AZURE.encode())) == 0
    with pytest.raises(FormatError, match="unknown format"):
        readers.read(b"a,b,c\n1,2,3\n")
