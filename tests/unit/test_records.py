"""Records: columns with what is unknown told apart from 0, and the whole nanoseconds that the core is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tool_files import counted, means

from tokenpulse.records import ABSENT, Ragged, Records, duration_ns, time_ns

STOP, ABORT, ERROR = 0, 2, 3


def made(n: int, **columns: Any) -> Records:
    """A run of n requests that were sent a second apart and have nothing but what is given."""
    unknown = np.full(n, np.nan)
    about: dict[str, Any] = {
        "tool": "table",
        "format": "made",
        "clock": "monotonic",
        "arrive_ns": np.arange(n, dtype=np.int64) * 10**9,
        "ttft": unknown,
        "e2e": unknown,
        "latency": unknown,
        "status": np.zeros(n, np.uint8),
    }
    return Records(**(about | columns))


def test_a_point_in_time_keeps_its_fraction() -> None:
    # 1795962137.1209857 has no double: the nearest one lies 46 ns further.
    assert time_ns(np.array([1795962137.1209857])).tolist() == [1795962137120985746]
    assert time_ns(np.array([-0.5, 9.2e9, float("inf")])).tolist() == [-500_000_000, ABSENT, ABSENT]


def test_durations_are_rounded_half_to_even() -> None:
    assert duration_ns(np.array([0.5e-9, 1.5e-9, 2.5e-9, float("nan")])).tolist() == [0, 2, 2, ABSENT]


def test_ragged_rows_are_taken_in_any_order() -> None:
    rows = Ragged.of([[1.0], [], [2.0, 3.0]])
    taken = rows.take(np.array([2, 1, 0]))
    assert [row.tolist() for row in taken] == [[2.0, 3.0], [], [1.0]]
    assert [row.tolist() for row in rows.select(np.array([False, True, True]))] == [[], [2.0, 3.0]]
    assert Ragged.of([]).offsets.tolist() == [0]


def test_gaps_become_emissions_one_behind_the_other() -> None:
    records = made(
        3,
        ttft=np.array([0.1, np.nan, 0.2]),
        e2e=np.array([0.4, np.nan, 0.2]),
        latency=np.array([0.4, np.nan, 0.2]),
        gaps=Ragged.of([[0.1, 0.2], [], []]),
        output_tokens=np.array([3, ABSENT, 1]),
        status=np.array([STOP, ERROR, STOP], np.uint8),
    )
    columns = records.columns()
    assert columns["token_ns"].tolist() == [100_000_000, 200_000_000, 400_000_000, 2_200_000_000]
    assert columns["token_offsets"].tolist() == [0, 3, 3, 4]
    assert columns["end_ns"].tolist() == [400_000_000, ABSENT, 2_200_000_000]
    reduction = counted(records)
    assert means(reduction) == {"ttft": (2, 0.15), "tpot": (1, 0.15), "e2e": (2, 0.3), "itl": (2, 0.15)}


def test_a_row_whose_gaps_are_unknown_has_no_gap_and_still_a_last_token() -> None:
    records = made(
        2,
        ttft=np.array([0.1, 0.1]),
        e2e=np.array([0.5, 0.3]),
        latency=np.array([0.5, 0.3]),
        gaps=Ragged.of([[], [0.2]]),
        output_tokens=np.array([5, 2]),
    )
    columns = records.columns()
    assert columns["token_offsets"].tolist() == [0, 0, 2]
    assert (columns["first_token_ns"].tolist(), columns["last_token_ns"].tolist()) == (
        [100_000_000, ABSENT],
        [500_000_000, ABSENT],
    )
    assert means(counted(records))["itl"] == (1, 0.2)
    assert means(counted(records))["tpot"] == (2, 0.15)


def test_rounded_gaps_do_not_pass_the_end() -> None:
    gap = 0.0000000016  # each is rounded up to 2 ns
    records = made(
        1,
        ttft=np.array([0.1]),
        e2e=np.array([0.1 + 100 * gap]),
        latency=np.array([0.1 + 100 * gap]),
        gaps=Ragged.of([[gap] * 100]),
    )
    columns = records.columns()
    assert columns["end_ns"][0] == columns["token_ns"][-1] == 100_000_200
    assert counted(records)["clamped"] == 0


def test_an_end_that_lies_before_the_last_token_is_left_for_the_core_to_count() -> None:
    records = made(1, ttft=np.array([0.1]), e2e=np.array([0.3]), latency=np.array([0.2]), gaps=Ragged.of([[0.2]]))
    assert counted(records)["clamped"] == 1


def test_warm_up_is_left_out() -> None:
    records = made(3, ttft=np.array([0.1, 0.2, 0.3]), warmup=np.array([True, False, False]), ids=["a", "b", "c"])
    columns = records.columns()
    assert (len(records), columns["ids"], columns["arrive_ns"].tolist()) == (3, ["b", "c"], [10**9, 2 * 10**9])
    assert records.counted.tolist() == [False, True, True]


def test_without_a_clock_durations_are_kept_and_every_arrival_is_0() -> None:
    records = made(2, arrive_ns=None, clock=None, ttft=np.array([0.1, 0.3]), e2e=np.array([0.2, 0.5]))
    assert records.columns()["arrive_ns"].tolist() == [0, 0]
    assert means(counted(records))["ttft"] == (2, 0.2)


def test_a_row_of_unknown_arrival_is_counted_as_such() -> None:
    records = made(2, arrive_ns=np.array([ABSENT, 5]), ttft=np.array([0.1, 0.1]))
    assert counted(records)["inputs"][0]["skipped"] == {"missing_field": 1}


def test_points_in_time_win_over_durations() -> None:
    records = made(
        1,
        start=np.array([1e9]),
        arrive_ns=np.array([10**18]),
        first=np.array([1e9 + 0.25]),
        last=np.array([1e9 + 0.75]),
        end=np.array([1e9 + 1.0]),
        ttft=np.array([0.2]),
        e2e=np.array([0.7]),
        output_tokens=np.array([3]),
    )
    columns = records.columns()
    names = ("first_token_ns", "last_token_ns", "end_ns")
    assert [int(columns[name][0]) - 10**18 for name in names] == [250_000_000, 750_000_000, 10**9]


@pytest.mark.parametrize(
    ("columns", "only"),
    [
        ({}, False),
        ({"gaps": Ragged.of([[0.1]]), "output_tokens": np.array([2])}, False),
        ({"gaps": Ragged.of([[0.1]]), "output_tokens": np.array([7])}, True),
        ({"gaps": Ragged.of([[0.1]])}, True),
        ({"gaps": Ragged.of([[0.1]]), "output_tokens": np.array([ABSENT])}, True),
        ({"gaps": Ragged.of([[0.1]]), "chunk_tokens": Ragged.of([[1, 6]], np.int64)}, False),
    ],
)
def test_chunks_of_unknown_size_are_known_as_such(columns: dict[str, Any], only: bool) -> None:
    assert made(1, ttft=np.array([0.1]), e2e=np.array([0.2]), **columns).chunks_only is only


def test_select_takes_every_column_along() -> None:
    records = made(
        3,
        ids=["a", "b", "c"],
        errors=[None, "x", None],
        gaps=Ragged.of([[1.0], [2.0, 3.0], []]),
        labels={"tenant": (np.array([0, -1, 1], np.int32), ["p", "q"])},
        own={"figure": np.array([1.0, 2.0, 3.0])},
        own_ragged={"list": Ragged.of([[1], [2], [3]], np.int64)},
        pooled={"ttft": np.array([9.0])},
    )
    kept = records.select(np.array([False, True, True]))
    assert (kept.ids, kept.errors, kept.own["figure"].tolist()) == (["b", "c"], ["x", None], [2.0, 3.0])
    assert (kept.labels["tenant"][0].tolist(), kept.labels["tenant"][1]) == ([-1, 1], ["p", "q"])
    assert kept.gaps is not None
    assert [row.tolist() for row in kept.gaps] == [[2.0, 3.0], []]
    assert kept.own_ragged["list"].values.tolist() == [2, 3]
    assert kept.pooled["ttft"].tolist() == [9.0]
