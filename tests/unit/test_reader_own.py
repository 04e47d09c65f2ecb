"""Our own lines as records: every value, exactly, and the same counts as without them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tool_files import means, only

from tokenpulse.engine import ColumnReducer, reduce_paths
from tokenpulse.readers import own
from tokenpulse.records import ABSENT

FIXTURES = Path(__file__).parents[1] / "fixtures"
LINES = [
    {"id": "a", "arrive_ns": 100, "schedule_ns": 150, "token_ns": [900, 920, 941], "n": [1, 1, 2], "end_ns": 950},
    {"id": "b", "arrive_ns": 200, "output_tokens": 5, "first_token_ns": 300, "last_token_ns": 700, "status": "length"},
    {"id": "c", "arrive_ns": 300, "status": "abort", "end_ns": 400, "labels": {"tenant": "p"}, "prompt_tokens": 7},
    {"t_ns": 500, "id": "d", "ev": "arrive"},
    {"t_ns": 600, "id": "d", "ev": "tokens"},
]
TEXT = "\n".join(json.dumps(line) for line in LINES).encode()


def test_the_columns() -> None:
    records = only(TEXT)
    assert (records.tool, records.format, records.clock) == ("tokenpulse", "tokenpulse", "monotonic")
    assert records.ids == ["a", "b", "c", "d"]
    assert records.status.tolist() == [0, 1, 2, 255]
    assert own.in_flight(records) == 1
    assert records.ttft[[0, 1, 3]].tolist() == [800e-9, 100e-9, 100e-9]
    assert records.e2e[:2].tolist() == [841e-9, 500e-9]
    assert np.isnan(records.ttft[2])
    assert np.isnan(records.latency[3])
    assert [row.tolist() for row in records.gaps] == [[20e-9, 21e-9], [], [], []]
    assert records.chunk_tokens[0].tolist() == [1, 1, 2]
    assert records.output_tokens.tolist() == [4, 5, 0, 1]
    assert records.schedule_ns.tolist() == [150, ABSENT, ABSENT, ABSENT]
    assert records.labels["tenant"] == (records.labels["tenant"][0], ["p"])
    assert not records.chunks_only


def test_they_count_as_the_lines_do() -> None:
    for name in ("demo_requests.jsonl", "demo_events.jsonl", "run.jsonl.gz", "run_async.jsonl.gz"):
        path = str(FIXTURES / name)
        straight = reduce_paths([path])
        records = own.records([path])
        reducer = ColumnReducer()
        reducer.requests(path, "tokenpulse", records.columns())
        again = reducer.finish()
        for metric in ("ttft", "tpot", "e2e", "itl"):
            one, other = straight["total"]["latency"][metric], again["total"]["latency"][metric]
            assert (one.count, one.sum_ns, one.to_bytes()) == (other.count, other.sum_ns, other.to_bytes()), (
                name,
                metric,
            )
        assert straight["flow"] == again["flow"], name


def test_what_could_not_be_read_is_told() -> None:
    records = only(TEXT + b'\n{"id": "e", "arrive_ns": -1}\nbroken')
    assert records.skipped == {"bad_value": 1, "not_json": 1}
    assert len(records.notices) == 2


def test_a_log_of_nothing_but_refused_lines_has_no_request() -> None:
    records = only(b'{"id": "e", "arrive_ns": -1}')
    assert (len(records), records.ids) == (0, [])
    reducer = ColumnReducer()
    reducer.requests("x", "tokenpulse", records.columns())
    assert means(reducer.finish()) == {}
