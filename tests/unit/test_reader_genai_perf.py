"""genai-perf's export: responses with text and without, pieces, usage, errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from tool_files import counted, dumped, means, only, statuses

from tokenpulse import readers
from tokenpulse.records import ABSENT


def chat(text: str | None = None, **more: Any) -> str:
    """One streamed event of a chat completion."""
    delta = {"role": "assistant"} if text is None else {"content": text}
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]} | more) + "\n\n"


def request(start: int = 1_000, times: list[int] | None = None, outputs: list[Any] | None = None) -> dict[str, Any]:
    ms = 1_000_000
    times = [start + t * ms for t in (100, 200, 300, 500, 510)] if times is None else times
    outputs = [chat(), chat("a"), chat("b"), chat("c"), "data: [DONE]\n\n"] if outputs is None else outputs
    responses = [{"response": one} if isinstance(one, str) else one for one in outputs]
    return {
        "timestamp": start,
        "request_inputs": {"payload": "{}"},
        "response_timestamps": times,
        "response_outputs": responses,
    }


def export(*experiments: list[Any], mode: str = "concurrency", value: float = 4) -> bytes:
    made = [
        {"experiment": {"mode": mode, "value": value}, "requests": one, "window_boundaries": []} for one in experiments
    ]
    return dumped({"experiments": made, "version": "2.5", "service_kind": "openai", "endpoint": "v1/chat/completions"})


def test_responses_without_text_are_no_emissions() -> None:
    records = only(export([request()]))
    assert (records.format, records.name, records.clock) == ("genai-perf-requests", "concurrency 4", "monotonic")
    assert (records.ttft[0], records.e2e[0], records.latency[0]) == (0.2, 0.5, 0.5)
    assert records.gaps.values.tolist() == [0.1, 0.2]
    assert records.own_ragged["response_timestamps"].values.tolist() == [200_001_000, 300_001_000, 500_001_000]
    assert records.end_ns[0] == 510_001_000
    assert means(counted(records))["ttft"] == (1, 0.2)
    assert means(counted(records))["e2e"] == (1, 0.5)


def test_tokens_are_not_counted_without_usage() -> None:
    records = only(export([request()]))
    assert records.output_tokens.tolist() == [ABSENT]
    assert {"tokens.output", "latency.tpot", "tokens.prompt"} <= set(records.absent)


def test_usage_counts_them() -> None:
    usage = chat(usage={"prompt_tokens": 7, "completion_tokens": 11}, choices=[])
    records = only(export([request(outputs=[chat(), chat("a"), chat("b"), chat("c"), usage])]))
    assert (records.prompt_tokens.tolist(), records.output_tokens.tolist()) == ([7], [11])
    assert "tokens.output" not in records.absent
    assert means(counted(records))["tpot"] == (1, 0.03)
    assert records.chunks_only


def test_other_shapes_of_text() -> None:
    shapes = [
        "data: " + json.dumps({"choices": [{"text": "x"}]}),
        "data: " + json.dumps({"choices": [{"delta": {"reasoning_content": "x"}}]}),
        json.dumps({"choices": [{"message": {"content": "x"}}]}),
        json.dumps({"text_output": "x"}),
        "data:" + json.dumps({"choices": [{"delta": {"content": "x"}}]}),
        ": comment\n\n" + chat("x"),
        chat("") + chat("x"),
    ]
    for shape in shapes:
        assert only(export([request(times=[2_000], outputs=[shape])])).ttft[0] == 1e-6, shape
    empty = ["", "\n", "data: [DONE]", chat(""), chat(), ": ping\n\n", json.dumps({"choices": []}), json.dumps([])]
    for shape in empty:
        assert np.isnan(only(export([request(times=[2_000], outputs=[shape])])).ttft[0]), shape


def test_an_event_that_came_in_pieces_is_one() -> None:
    whole = chat("ab")
    records = only(export([request(times=[2_000, 3_000, 4_000], outputs=[whole[:20], whole[20:], chat("c")])]))
    assert records.own_ragged["response_timestamps"].values.tolist() == [2_000, 4_000]


def test_outputs_of_triton_count_as_they_come() -> None:
    outputs = [{"text_output": "a"}, {"text_output": ""}, {"text_output": "b"}]
    records = only(export([request(times=[2_000, 3_000, 4_000], outputs=outputs)]))
    assert records.gaps.values.tolist() == [1e-6, 1e-6]


def test_a_file_without_the_answers_counts_every_response() -> None:
    made = request()
    del made["response_outputs"]
    assert only(export([made])).gaps.lengths.tolist() == [4]


def test_errors_and_requests_without_an_answer() -> None:
    error = "data: " + json.dumps({"error": {"message": "overloaded"}}) + "\n\n"
    event = "event: error\ndata: broken\n\n"
    rows = [
        request(),
        request(2_000, times=[3_000], outputs=[error]),
        request(3_000, times=[3_500, 4_000], outputs=[chat("a"), event]),
        request(4_000, times=[], outputs=[]),
        request(5_000, times=[6_000], outputs=[chat("")]),
    ]
    records = only(export(rows))
    assert statuses(records) == ["stop", "error", "error", "error", "stop"]
    assert records.errors[1:4] == ['{"message": "overloaded"}', "broken", "no response"]
    assert np.isnan(records.ttft).tolist() == [False, True, False, True, True]
    assert counted(records)["inputs"][0]["requests"] == 5


def test_an_experiment_is_a_run() -> None:
    runs = readers.read(export([request()], [request(), request(2_000)], mode="request_rate", value=2.5))
    assert [len(run) for run in runs] == [1, 2]
    assert [run.run["requested_rate"] for run in runs] == [2.5, 2.5]


def test_times_since_1970_keep_their_nanoseconds() -> None:
    start = 1795962057083898245
    records = only(export([request(start)]))
    assert (records.clock, records.arrive_ns[0]) == ("epoch", start)
    columns = records.columns()
    assert (columns["token_ns"] - start).tolist() == [200_000_000, 300_000_000, 500_000_000]


def test_rows_at_fault() -> None:
    rows = [
        request(times=[1, 2]),
        {"response_timestamps": []},
        request() | {"timestamp": -1},
        request() | {"response_timestamps": "soon"},
        request() | {"response_timestamps": [2_000, None]},
        request() | {"timestamp": "1000", "response_timestamps": ["2000"], "response_outputs": []},
    ]
    records = only(export(rows))
    assert len(records) == 1
    assert records.skipped == {"length_mismatch": 1, "missing_field": 1, "bad_value": 1, "wrong_type": 2}
    assert records.ttft.tolist() == [1e-6]
