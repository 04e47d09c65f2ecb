"""Exact rows of our own logs: accepted events alone, and enough of them to be counted again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenpulse.engine import ColumnReducer, read_rows, read_rows_bytes, reduce_bytes, reduce_paths

ABSENT = -(2**63)
FIXTURES = Path(__file__).parent.parent / "fixtures"
LOGS = [str(FIXTURES / f"demo_{kind}.jsonl") for kind in ("events", "requests")]


def rows_of(*lines: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return read_rows_bytes([("log", "\n".join(map(json.dumps, lines)).encode())], **settings)


def test_events_that_were_refused_are_not_in_a_row() -> None:
    rows = rows_of(
        {"t_ns": 5, "id": "a", "ev": "arrive", "prompt_tokens": 7, "labels": {"tenant": "x", "gone": None}},
        {"t_ns": 6, "id": "a", "ev": "schedule"},
        {"t_ns": 7, "id": "a", "ev": "schedule"},
        {"t_ns": 9, "id": "a", "ev": "tokens", "k": 3},
        {"t_ns": 8, "id": "a", "ev": "tokens"},
        {"t_ns": 12, "id": "a", "ev": "tokens"},
        {"t_ns": 10, "id": "b", "ev": "arrive"},
        {"t_ns": 11, "id": "a", "ev": "end", "status": "length", "degraded": True},
    )
    assert (rows["ids"], rows["status"].tolist(), rows["degraded"].tolist()) == (["a", "b"], [1, 255], [True, False])
    assert (rows["schedule_ns"].tolist(), rows["prefill_ns"].tolist()) == ([6, ABSENT], [ABSENT, ABSENT])
    assert (rows["token_ns"].tolist(), rows["token_offsets"].tolist(), rows["n"].tolist()) == (
        [9, 12],
        [0, 2, 2],
        [3, 1],
    )
    assert rows["end_ns"].tolist() == [12, ABSENT]  # not before the last event
    assert (rows["clamped"], rows["rejected"], rows["newest_ns"]) == (1, {"negative": 1, "duplicate": 1}, 12)
    assert [(name, codes.tolist(), values) for name, (codes, values) in rows["labels"].items()] == [
        ("tenant", [0, -1], ["x"])
    ]


def test_untimed_tokens() -> None:
    rows = rows_of(
        {"id": "a", "arrive_ns": 1, "output_tokens": 4, "first_token_ns": 3},
        {"id": "b", "arrive_ns": 2},
        {"id": "c", "arrive_ns": 3, "token_ns": []},
    )
    assert rows["output_tokens"].tolist() == [4, 0, ABSENT]
    assert (rows["first_token_ns"].tolist(), rows["last_token_ns"].tolist()) == ([3, ABSENT, ABSENT], [ABSENT] * 3)


def test_labels_are_numbered_in_the_order_of_their_rows() -> None:
    lines = [
        {"id": str(i), "arrive_ns": i, "labels": {"even": i % 2 == 0, **({"tenant": "zyx"[i % 3]} if i else {})}}
        for i in range(5)
    ]
    first, second = (b"\n".join(json.dumps(line).encode() for line in part) for part in (lines[:3], lines[3:]))
    rows = read_rows_bytes([("first", first), ("second", second)])
    labels = {name: (codes.tolist(), values) for name, (codes, values) in rows["labels"].items()}
    assert labels == {
        "even": ([0, 1, 0, 1, 0], ["true", "false"]),
        "tenant": ([-1, 0, 1, 2, 0], ["y", "x", "z"]),
    }


@pytest.mark.parametrize("path", LOGS)
def test_rows_are_counted_as_their_log_is(path: str) -> None:
    rows = read_rows([path], threads=1)
    reducer = ColumnReducer(by=["tenant"])
    reducer.requests(path, "rows", rows)
    found, expected = reducer.finish(), reduce_paths([path], by=["tenant"])
    assert expected["total"]["attempted"] == len(rows["ids"]) > 0
    assert found["total"] == expected["total"]
    assert found["grid"] == expected["grid"]
    assert found["flow"]["bins"] == expected["flow"]["bins"]
    assert {name: rows[name] for name in ("inputs", "notices", "rejected")} == {
        name: expected[name] for name in ("inputs", "notices", "rejected")
    }


def test_a_lost_request_ends_at_its_last_event() -> None:
    hour = 3_600_000_000_000
    lines: list[dict[str, Any]] = [
        {"t_ns": 5, "id": "a", "ev": "arrive"},
        {"t_ns": 8, "id": "a", "ev": "tokens"},
        {"t_ns": 9 + hour, "ev": "ready"},
    ]
    lost = rows_of(*lines)
    assert (lost["status"].tolist(), lost["end_ns"].tolist()) == ([7], [8])
    in_flight = rows_of(*lines, ttl_ns=2 * hour)
    assert (in_flight["status"].tolist(), in_flight["end_ns"].tolist()) == ([255], [ABSENT])


def test_more_emissions_than_allowed() -> None:
    line = {"id": "a", "arrive_ns": 0, "token_ns": [1, 2, 3]}
    assert rows_of(line, {**line, "id": "b"}, max_tokens=6)["token_ns"].size == 6
    with pytest.raises(ValueError, match="emissions must be at most 5, got more"):
        rows_of(line, {**line, "id": "b"}, max_tokens=5)
    text = json.dumps(line).encode()
    with pytest.raises(ValueError, match="emissions must be at most 5, got more"):
        read_rows_bytes([("first", text), ("second", text)], max_tokens=5)


def test_nothing_read() -> None:
    rows = read_rows_bytes([])
    assert (rows["ids"], rows["arrive_ns"].size, rows["token_offsets"].tolist()) == ([], 0, [0])
    assert rows["labels"] == {}
    assert rows["newest_ns"] is None
    assert {column.dtype for name, column in rows.items() if name.endswith("_ns") and name != "newest_ns"} == {
        np.dtype(np.int64)
    }


def test_threads_give_the_same_rows() -> None:
    lines = b"\n".join(
        json.dumps(
            {"id": str(i), "arrive_ns": 1000 * i, "token_ns": [1000 * i + 7], "labels": {"of": str(i % 7)}}
        ).encode()
        for i in range(5_000)
    )
    one, two = (read_rows_bytes([("log", lines * 4)], threads=threads) for threads in (1, 2))
    assert one["ids"] == two["ids"]
    assert one["rejected"] == two["rejected"]
    assert all(np.array_equal(one[name], two[name]) for name in ("arrive_ns", "token_ns", "token_offsets", "status"))
    assert one["labels"]["of"][1] == two["labels"]["of"][1] == [str(i) for i in range(7)]
    assert reduce_bytes([("log", lines * 4)])["total"]["attempted"] == len(one["ids"])
