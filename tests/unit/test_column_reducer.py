"""Columns to a reduction: what each column may be, what is refused, and that a row is what the same line is."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tokenpulse import SLO
from tokenpulse.engine import ColumnReducer, reduce_bytes
from tokenpulse.model import STATUSES

ABSENT = -(2**63)


def reduced(columns: dict[str, Any], **settings: Any) -> dict[str, Any]:
    reducer = ColumnReducer(**settings)
    reducer.requests("run", "arrays", columns)
    return reducer.finish()


def without_names(reduction: dict[str, Any]) -> dict[str, Any]:
    """All but what says how the input is called and what it is made of."""
    inputs = [{**each, "format": None} for each in reduction["inputs"]]
    return {**reduction, "inputs": inputs}


def many(seed: int, rows: int = 300) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The same requests as columns and as lines."""
    rng = np.random.default_rng(seed)
    arrive = np.cumsum(rng.integers(0, 50_000_000, rows)) + 10**15
    lengths = rng.integers(0, 80, rows)
    lengths[rows // 2] = 3_000  # more than one column at once
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    gaps = rng.integers(0, 40_000_000, offsets[-1])
    # Now and then a time lies before the one before it.
    gaps[rng.random(len(gaps)) < 0.01] *= -1
    times = np.concatenate([np.cumsum(gaps[a:b]) + t for a, b, t in zip(offsets, offsets[1:], arrive, strict=False)])
    n = np.where(rng.random(len(times)) < 0.8, 1, rng.integers(1, 5, len(times)))
    schedule = np.where(rng.random(rows) < 0.7, arrive + rng.integers(0, 10_000_000, rows), ABSENT)
    status = rng.integers(0, 7, rows).astype(np.uint8)
    preempt = arrive + 400_000_000
    tenants = [None, "a", "b"]
    codes = rng.integers(-1, 2, rows).astype(np.int32)
    prompts = rng.integers(0, 9_000, rows)
    columns: dict[str, Any] = {
        "arrive_ns": arrive,
        "token_ns": times,
        "token_offsets": offsets,
        "n": n,
        "schedule_ns": schedule,
        "status": status,
        "prompt_tokens": prompts,
        "preempt_ns": preempt,
        "preempt_offsets": np.arange(rows + 1),
        "ids": [f"request {i}" for i in range(rows)],
        "labels": {"tenant": (codes, ["a", "b"])},
    }
    lines = []
    for i in range(rows):
        line: dict[str, Any] = {
            "id": f"request {i}",
            "arrive_ns": int(arrive[i]),
            "token_ns": times[offsets[i] : offsets[i + 1]].tolist(),
            "n": n[offsets[i] : offsets[i + 1]].tolist(),
            "status": STATUSES[status[i]],
            "prompt_tokens": int(prompts[i]),
            "preempt_ns": [int(preempt[i])],
        }
        if schedule[i] != ABSENT:
            line["schedule_ns"] = int(schedule[i])
        if codes[i] >= 0:
            line["labels"] = {"tenant": tenants[codes[i] + 1]}
        lines.append(line)
    return columns, lines


SETTINGS: list[dict[str, Any]] = [
    {},
    {"slos": [SLO(ttft=0.05, tpot=0.02), SLO("b", ttft=1, tpot=1, itl=0.5, where={"tenant": "b"})], "by": ["tenant"]},
    {"timeline_ns": 10_000_000, "timeline_bins": 50, "itl_rule": "stamp", "by": ["output_length", "prompt_length"]},
    {"from_ns": 10**15 + 3 * 10**9, "to_ns": 10**15 + 5 * 10**9, "timeline_ns": 100_000_000},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=["plain", "limits", "timeline", "cut"])
def test_rows_are_what_the_same_lines_are(settings: dict[str, Any]) -> None:
    for seed in range(3):
        columns, lines = many(seed)
        text = "\n".join(map(json.dumps, lines)).encode()
        expected = reduce_bytes([("run", text)], **settings)
        assert expected["rejected"]["negative"] > 0
        found = reduced(columns, **settings)
        assert found["inputs"][0]["format"] == "arrays"
        assert without_names(found) == without_names(expected)


def test_single_tokens_with_and_without_their_counts_are_the_same() -> None:
    columns, _ = many(4)
    alone = {name: column for name, column in columns.items() if name != "n"}
    expected = reduced(alone)
    for dtype in (np.int64, np.int32, np.uint32):
        assert reduced({**alone, "n": np.ones(len(columns["n"]), dtype)}) == expected
    narrow = {"token_offsets": columns["token_offsets"].astype(np.int32)}
    assert reduced({**alone, **narrow}) == expected


def test_offsets_from_the_arrival_are_times() -> None:
    columns, _ = many(5)
    arrivals = np.repeat(columns["arrive_ns"], np.diff(columns["token_offsets"]))
    relative = {**columns, "token_ns": None, "dt_ns": columns["token_ns"] - arrivals}
    assert reduced(relative) == reduced(columns)


def test_batches_go_on_where_the_input_ended() -> None:
    columns, _ = many(6)
    at = 120
    split = columns["token_offsets"][at]
    plain = {"arrive_ns", "schedule_ns", "status", "prompt_tokens"}

    def part(rows: slice, emissions: slice, first: int) -> dict[str, Any]:
        return {
            **{name: columns[name][rows] for name in plain},
            "token_ns": columns["token_ns"][emissions],
            "token_offsets": np.append(columns["token_offsets"][rows], columns["token_offsets"][rows.stop]) - first,
        }

    reducer = ColumnReducer()
    reducer.requests("run", "arrays", part(slice(0, at), slice(0, split), 0))
    reducer.requests("run", "arrays", part(slice(at, 300), slice(split, None), split))
    whole = {name: columns[name] for name in (*plain, "token_ns", "token_offsets")}
    found = reducer.finish()
    assert found == reduced(whole)
    # Without ids, a row's number in its input is its id.
    assert any(int(name) > at for _, name in found["slowest"]["itl"])


def test_ids_as_texts_or_bytes() -> None:
    ids = ["ä", "", "b" * 40, "c"]
    packed = "".join(ids).encode()
    offsets = np.cumsum([0, *(len(each.encode()) for each in ids)])
    columns = {"arrive_ns": np.arange(4), "token_ns": np.arange(4) * 10 + 5, "token_offsets": np.arange(5)}
    as_texts = reduced({**columns, "ids": ids})
    assert [name for _, name in as_texts["slowest"]["ttft"]] == ["c", "b" * 40, "", "ä"]
    for dtype in (np.int64, np.int32):
        as_bytes = reduced({**columns, "ids": (np.frombuffer(packed, np.uint8), offsets.astype(dtype))})
        assert as_bytes == as_texts


def test_events() -> None:
    ev = {name: code for code, name in enumerate(("arrive", "schedule", "prefill", "tokens", "preempt", "resume"))}
    rows = [
        ("a", "arrive", 5, 1),
        ("a", "schedule", 6, 1),
        ("b", "arrive", 6, 1),
        ("a", "tokens", 9, 2),
        ("a", "tokens", 13, 4),
    ]
    reducer = ColumnReducer()
    columns = {
        "t_ns": np.array([t for _, _, t, _ in rows] + [20, 21]),
        "ev": np.array([ev[name] for _, name, _, _ in rows] + [6, 7], np.uint8),
        "k": np.array([k for *_, k in rows] + [ABSENT, ABSENT]),
        "ids": [name for name, *_ in rows] + ["a", ""],
        "status": np.array([0] * 5 + [1, 0], np.uint8),
        "degraded": np.array([False] * 5 + [True, False]),
    }
    reducer.events("run", "arrays", columns)
    total = (found := reducer.finish())["total"]
    assert (total["attempted"], total["by_status"], total["output_tokens"]) == (2, {"length": 1}, 6)
    assert (total["degraded"], found["newest_ns"], total["latency"]["itl"].count) == (1, 21, 4)
    assert found["flow"]["emissions"] == found["flow"]["coalesced"] == 2


def test_tokens_counted_beside_chunks() -> None:
    columns = {
        "arrive_ns": np.array([0, 100]),
        "token_ns": np.array([10, 20, 40, 110]),
        "token_offsets": np.array([0, 3, 4]),
        "output_tokens": np.array([7, ABSENT]),
    }
    total = reduced(columns, slos=[SLO(ttft=1, tpot=1)])["total"]
    assert (total["output_tokens"], total["latency"]["tpot"].sum_ns, total["latency"]["itl"].sum_ns) == (8, 5, 30)
    assert "itl" not in total["missing"]
    assert total["slos"][0]["deadlines"] == 1  # of the second alone
    bins = reduced({**columns, "token_ns": np.array([10, 1_000_000, 2_000_000, 110])}, timeline_ns=1_000_000)
    assert [each["block"]["output_tokens"] for each in bins["timeline"]["bins"]] == [2 + 1, 2, 3]


def test_rows_that_have_not_ended_or_were_lost() -> None:
    columns = {"arrive_ns": np.array([0, 1, 2]), "status": np.array([255, 7, 0], np.uint8), "ids": ["a", "b", "a"]}
    found = reduced(columns)
    assert found["rejected"] == {"duplicate": 1}
    assert (found["total"]["attempted"], found["total"]["by_status"]) == (2, {"lost": 1})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("arrive_ns", -1, "bad_value"),
        ("arrive_ns", ABSENT, "missing_field"),
        ("schedule_ns", -2, "bad_value"),
        ("output_tokens", 2**40 + 1, "bad_value"),
        ("prompt_tokens", -1, "bad_value"),
        ("end_ns", -1, "bad_value"),
        ("status", 8, "bad_value"),
    ],
)
def test_a_row_with_a_bad_value_is_skipped(name: str, value: int, reason: str) -> None:
    columns: dict[str, Any] = {"arrive_ns": np.array([1, 2, 3]), "status": np.zeros(3, np.uint8)}
    column = columns.setdefault(name, np.full(3, ABSENT))
    column[1] = value
    found = reduced(columns)
    assert found["inputs"] == [
        {"path": "run", "format": "arrays", "lines": 3, "requests": 2, "skipped": {reason: 1}},
    ]
    (notice,) = found["notices"]
    assert (notice["path"], notice["line"], notice["reason"]) == ("run", 2, reason)
    assert name in notice["message"]


GOOD: dict[str, Any] = {
    "arrive_ns": np.array([1, 2]),
    "token_ns": np.array([3, 4]),
    "token_offsets": np.array([0, 1, 2]),
}


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"arrive_ns": None}, ValueError, "arrive_ns"),
        ({"arrive_ns": np.array([1.0, 2.0])}, TypeError, "arrive_ns must be .* int64, got 1 dimensions of float64"),
        ({"arrive_ns": [1, 2]}, TypeError, "arrive_ns must be .* got list"),
        ({"arrive_ns": np.array([[1, 2]])}, TypeError, "arrive_ns"),
        ({"arrive_ns": np.array([1, 9, 2, 9])[::2]}, ValueError, "arrive_ns must be contiguous"),
        ({"arrive_ns": np.array([1, 2], ">i8")}, TypeError, "arrive_ns"),
        ({"token_offsets": None}, ValueError, "token_offsets"),
        ({"token_offsets": np.array([0, 1])}, ValueError, "token_offsets must be of length 3, got 2"),
        ({"token_offsets": np.array([0, 2, 1])}, ValueError, "token_offsets must be ascending"),
        ({"token_offsets": np.array([0, 1, 3])}, ValueError, "token_offsets .* at most 2, got 3"),
        ({"token_offsets": np.array([-1, 1, 2])}, ValueError, "token_offsets"),
        ({"dt_ns": np.array([3, 4])}, ValueError, "token_ns or dt_ns"),
        ({"n": np.array([1])}, ValueError, "n must be of length 2"),
        ({"n": np.array([1.0, 1.0])}, TypeError, "n must be"),
        ({"status": np.zeros(2, np.int64)}, TypeError, "status must be .* uint8"),
        ({"degraded": np.zeros(2, np.uint8)}, TypeError, "degraded must be .* bool"),
        ({"end_ns": np.array([1])}, ValueError, "end_ns must be of length 2"),
        ({"ids": ["a"]}, ValueError, "ids must be of length 2"),
        ({"ids": ["a", 1]}, TypeError, "ids"),
        ({"ids": (np.array([195, 164], np.uint8), np.array([0, 1, 2]))}, ValueError, "ids must be UTF-8"),
        ({"labels": {"tenant": (np.array([0, 1], np.int32), ["a"])}}, ValueError, "label tenant"),
        ({"labels": {"tenant": (np.array([0, -2], np.int32), ["a"])}}, ValueError, "label tenant"),
        ({"labels": {"tenant": (np.array([0, 0]), ["a"])}}, TypeError, "label tenant"),
        ({"labels": [1]}, TypeError, "labels"),
    ],
)
def test_columns_that_are_wrong_are_named(changed: dict[str, Any], error: type[Exception], said: str) -> None:
    reduced(GOOD)
    reducer = ColumnReducer()
    with pytest.raises(error, match=said):
        reducer.requests("run", "arrays", {**GOOD, **changed})
    # Nothing of it was taken.
    assert reducer.finish()["total"]["attempted"] == 0


def test_misaligned_memory_is_refused() -> None:
    raw = np.zeros(17, np.uint8)
    with pytest.raises(ValueError, match="arrive_ns must be contiguous and aligned"):
        reduced({"arrive_ns": raw[1:].view(np.int64)})


def test_read_only_arrays_and_others_columns_are_fine() -> None:
    arrive = np.array([1, 2])
    arrive.flags.writeable = False
    found = reduced({"arrive_ns": arrive, "mine": object(), "end_ns": None})
    assert found["total"]["by_status"] == {"stop": 2}


def test_an_input_has_one_format_and_a_reducer_one_end() -> None:
    reducer = ColumnReducer()
    reducer.requests("run", "arrays", GOOD)
    with pytest.raises(ValueError, match="format of run must be arrays as before, got other"):
        reducer.requests("run", "other", GOOD)
    reducer.requests("second", "other", GOOD)
    assert [each["path"] for each in reducer.finish()["inputs"]] == ["run", "second"]
    with pytest.raises(ValueError, match="finished"):
        reducer.requests("run", "arrays", GOOD)
    with pytest.raises(ValueError, match="finished"):
        reducer.finish()


@pytest.mark.parametrize(
    "settings",
    [{"timeline_bins": 1}, {"timeline_bins": 10_001}, {"from_ns": 5, "to_ns": 5}, {"from_ns": -1}, {"to_ns": 2**63}],
)
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        ColumnReducer(**settings)
