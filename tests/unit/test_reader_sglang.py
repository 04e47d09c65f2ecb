"""SGLang's `bench_serving` lines: a line is a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tool_files import counted, dumped, jsonl, means, only, statuses

from tokenpulse import readers
from tokenpulse.engine import FormatError
from tokenpulse.records import ABSENT, Records, Summary

RUN: dict[str, Any] = {
    "tag": None,
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": 4.0,
    "max_concurrency": 8,
    "sharegpt_output_len": None,
    "random_input_len": 16,
    "random_output_len": 4,
    "random_range_ratio": 0.5,
    "duration": 2.0,
    "completed": 2,
    "total_input_tokens": 18,
    "total_output_tokens": 5,
    "total_output_tokens_retokenized": 5,
    "request_throughput": 1.0,
    "output_throughput": 2.5,
    "mean_e2e_latency_ms": 300.0,
    "median_e2e_latency_ms": 300.0,
    "p99_e2e_latency_ms": 399.0,
    "mean_ttft_ms": 150.0,
    "mean_tpot_ms": 100.0,
    "mean_itl_ms": 100.0,
    "p95_itl_ms": 100.0,
    "concurrency": 0.3,
    "accept_length": None,
}
DETAILS: dict[str, Any] = {
    "input_lens": [8, 10, 4],
    "output_lens": [4, 1, 0],
    "ttfts": [0.1, 0.2, 0.0],
    # A chunk of two tokens after 0.2 s, then one after 0.1 s.
    "itls": [[0.1, 0.1, 0.1], [], []],
    "generated_texts": ["a", "b", ""],
    "errors": ["", "", "Service Unavailable"],
}


def test_a_line_is_a_run() -> None:
    runs = readers.read(jsonl([RUN, RUN | DETAILS | {"request_rate": float("inf")}, RUN]))
    assert [type(run) for run in runs] == [Summary, Records, Summary]
    assert [run.name for run in runs] == ["1: 4/s", "2: inf/s", "3: 4/s"]
    assert [run.format for run in runs] == ["sglang-bench-summary", "sglang-bench-detailed", "sglang-bench-summary"]


def test_the_columns() -> None:
    records = only(dumped(RUN | DETAILS))
    assert statuses(records) == ["stop", "stop", "error"]
    assert records.e2e[:2] == pytest.approx([0.4, 0.2])
    assert np.isnan([records.e2e[2], records.ttft[2]]).all()
    assert records.output_tokens.tolist() == [4, 1, ABSENT]
    assert (records.clock, records.arrive_ns) == (None, None)
    assert {"rates", "timeline", "flow", "span_seconds"} <= set(records.absent)
    assert (records.run["duration"], records.run["concurrency"]) == (2.0, 8.0)
    assert means(counted(records))["itl"] == (3, pytest.approx(0.1))
    assert not records.chunks_only
    assert "g/k" in records.definitions["itl"]


def test_the_summary_in_seconds() -> None:
    summary = only(dumped(RUN))
    assert summary.normalised["e2e"] == {"mean": 0.3, "p50": 0.3, "p99": 0.399}
    assert summary.normalised["rates"] == {"requests": 1.0, "output_tokens": 2.5}
    assert "--output-details" in summary.absent["latency"]


def test_bare_infinity_and_nan() -> None:
    text = dumped(RUN | {"request_rate": float("inf"), "mean_tpot_ms": float("nan"), "accept_length": float("nan")})
    assert b"Infinity" in text
    summary = only(text)
    assert summary.run["requested_rate"] == float("inf")
    assert "tpot" not in summary.normalised


def test_a_line_at_fault_is_skipped_and_the_others_are_read() -> None:
    runs = readers.read(jsonl([RUN | DETAILS]) + b'\n{"backend": \n' + jsonl([RUN | DETAILS]))
    assert len(runs) == 2
    assert sum(sum(run.skipped.values()) for run in runs) == 1
    assert any("line 2" in notice["message"] or notice["line"] == 2 for run in runs for notice in run.notices)


def test_no_line_that_can_be_read() -> None:
    with pytest.raises(FormatError):
        readers.read(b'{"backend": "sglang", "mean_e2e_latency_ms": 1.0, \n')
