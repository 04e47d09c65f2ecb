"""Columns, the ill-behaved ones above all: the core reduces them as the reference does, and as lines that say the same.

So do the exact rows of logs, which are columns too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import comparable, differences, outcome
from batches import ABSENT, Batch, as_lists, core, text_column
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logs import SECOND, STATUSES, inputs, keys, lengths, options, rules, sizes, slos, steps, ttls, widths

from tokenpulse import engine, reference
from tokenpulse.model import DAY_NS, SLO
from tokenpulse.model import STATUSES as ALL_STATUSES

FIXTURES = Path(__file__).parents[1] / "fixtures"
KINDS = ("arrive", "schedule", "prefill", "tokens", "preempt", "resume", "end")
TIMES = ("arrive_ns", "schedule_ns", "prefill_ns", "first_token_ns", "last_token_ns", "end_ns")
NEEDED = {"arrive_ns", "t_ns", "ev", "token_offsets", "preempt_offsets", "resume_offsets"}
OFFSETS = {"token_ns": "token_offsets", "dt_ns": "token_offsets", "n": "token_offsets"} | {
    f"{name}_ns": f"{name}_offsets" for name in ("preempt", "resume")
}

# What is drawn is rows, each a dictionary of what it knows; columns are made of them.

Row = dict[str, Any]

wrong_times = st.sampled_from((-1, -5, 2**63 - 1, ABSENT + 1))
texts = st.sampled_from(("x", "y", "1", "true", "\u00e9", ""))
labels = st.dictionaries(st.sampled_from(("tenant", "tier")), texts, max_size=2)
ids = st.sampled_from(("a", "b", "c", "7", "\u00fc", ""))


@st.composite
def request_rows(draw: st.DrawFn, t: int) -> Row:
    """A request of any shape, its times mostly in order."""
    row: Row = {"id": draw(ids), "arrive_ns": t, "prompt_tokens": draw(lengths), "labels": draw(labels)}
    at, times = t, []
    for gap in draw(st.lists(st.sampled_from((0, 0, 1, 3, 50, 10**6, -2, DAY_NS + 1)), max_size=6)):
        at = max(0, at + gap)
        times.append(at)
    row["token_ns"], row["n"] = times, [draw(sizes) for _ in times]
    believed = draw(st.sampled_from(("sum", "sum", "less", "other", "untimed", "nothing", "nothing")))
    if believed == "untimed":
        row["token_ns"], row["n"] = [], []
        row |= dict(zip(draw(st.permutations(("first_token_ns", "last_token_ns"))), times, strict=False))
    if believed != "nothing":
        other = draw(st.sampled_from((0, 1, 2, 5, 7, 128, 2**40)))
        row["output_tokens"] = {"sum": sum(row["n"]), "less": len(times)}.get(believed, other)
    moments = st.one_of(st.sampled_from(times or [t]), st.integers(max(0, t - 3), t + 100))
    for name in ("schedule_ns", "prefill_ns", "end_ns"):
        if draw(st.booleans()):
            row[name] = draw(moments)
    for name in ("preempt_ns", "resume_ns"):
        row[name] = draw(st.lists(moments, max_size=3))
    row |= {"status": ALL_STATUSES.index(draw(st.sampled_from(STATUSES))), "degraded": draw(st.booleans())}
    return row


@st.composite
def event_rows(draw: st.DrawFn, t: int) -> Row:
    kind = draw(st.sampled_from((*range(8), 0, 0, 3, 3, 3, 6)))
    status = ALL_STATUSES.index(draw(st.sampled_from(STATUSES)))
    row: Row = {"id": draw(ids), "t_ns": t, "ev": kind, "k": draw(sizes), "status": status}
    return row | {"degraded": draw(st.booleans()), "prompt_tokens": draw(lengths), "labels": draw(labels)}


def damaged(draw: st.DrawFn, row: Row) -> Row:
    """A row with something in it that can be no value; what a row of another kind would have is not read."""
    times = ["t_ns"] if "ev" in row else list(TIMES)
    lists = [name for name in OFFSETS if row.get(name)]
    where = draw(st.sampled_from(("time", "time", "list", "absent", "status", "tokens", "in flight", "lost")))
    if where == "time" or (where == "list" and not lists):
        row[draw(st.sampled_from(times))] = draw(wrong_times)
    elif where == "list":
        name = draw(st.sampled_from(lists))
        row[name][draw(st.integers(0, len(row[name]) - 1))] = draw(st.sampled_from((-1, 0, ABSENT, 2**32)))
    elif where == "absent":
        row[draw(st.sampled_from([*times, "prompt_tokens", "k"]))] = ABSENT
    elif where == "tokens":
        row[draw(st.sampled_from(("prompt_tokens", "output_tokens", "k")))] = draw(st.sampled_from((-1, 2**40 + 1)))
    else:
        row["status"] = {"in flight": 255, "lost": 7}.get(where, draw(st.sampled_from((8, 254))))
    if "ev" in row and draw(st.integers(0, 9)) == 0:
        row["ev"] = draw(st.sampled_from((8, 255)))
    return row


@st.composite
def rows_in_order(draw: st.DrawFn, kind: str, damage: bool) -> list[Row]:
    t = draw(st.sampled_from((0, 0, 10, 5 * SECOND, DAY_NS)))
    rows = []
    for step in draw(st.lists(steps, max_size=12)):
        t = max(0, t + step)
        row = draw(request_rows(t) if kind == "requests" else event_rows(t))
        rows.append(damaged(draw, row) if damage and draw(st.integers(0, 3)) == 0 else row)
    return rows


def columns_of(draw: st.DrawFn, kind: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Rows as columns, in one of the forms in which they may be handed over."""
    columns: dict[str, Any] = {}
    if kind == "requests":
        names = [*TIMES, "prompt_tokens", "output_tokens"]
    else:
        names = ["t_ns", "k", "prompt_tokens"]
        columns["ev"] = np.array([row["ev"] for row in rows], np.uint8)
    for name in names:
        columns[name] = np.array([row.get(name, ABSENT) for row in rows], np.int64)
    columns["status"] = np.array([row["status"] for row in rows], np.uint8)
    columns["degraded"] = np.array([row["degraded"] for row in rows], np.bool_)
    columns["labels"] = dict(labels_of(draw, rows))
    form = draw(st.sampled_from(("list", "bytes", "bytes", "numbers")))
    if form != "numbers":
        ids = [row["id"] for row in rows]
        columns["ids"] = ids if form == "list" else text_column(ids)
    if kind == "requests":
        columns |= lists_of(draw, rows)
    return columns


def labels_of(draw: st.DrawFn, rows: Sequence[Row]) -> Any:
    """Codes and the texts they stand for: with texts that no row bears, and one that stands twice."""
    for name in ("tenant", "tier"):
        values = draw(st.permutations(("x", "y", "1", "true", "\u00e9", "", "unused", "x")))
        codes = [values.index(row["labels"][name]) if name in row["labels"] else -1 for row in rows]
        yield name, (np.array(codes, np.int32), list(values))


def lists_of(draw: st.DrawFn, rows: Sequence[Row]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    before = draw(st.integers(0, 2))  # values before the first row's, as a slice has them
    for name in ("token_ns", "n", "preempt_ns", "resume_ns"):
        values = [99] * before + [value for row in rows for value in row[name]]
        columns[name] = np.array(values, np.int64)
        ends = np.cumsum([before, *(len(row[name]) for row in rows)])
        columns[OFFSETS[name]] = ends.astype(draw(st.sampled_from((np.int32, np.int64))))
    if all(0 <= k < 2**31 for k in columns["n"]):
        columns["n"] = columns["n"].astype(draw(st.sampled_from((np.int64, np.int32, np.uint32))))
    if draw(st.booleans()):
        times = columns.pop("token_ns")
        arrivals = [0] * before + [row["arrive_ns"] for row in rows for _ in row["token_ns"]]
        columns["dt_ns"] = np.array([offset(int(t), a) for t, a in zip(times, arrivals, strict=True)], np.int64)
    return columns


def offset(t_ns: int, arrive_ns: int) -> int:
    return t_ns if t_ns == ABSENT or arrive_ns == ABSENT else max(ABSENT, min(2**63 - 1, t_ns - arrive_ns))


@st.composite
def batch_lists(draw: st.DrawFn) -> list[Batch]:
    """A few batches, of which some go on where another ended."""
    batches: list[Batch] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("requests", "requests", "events")))
        columns = columns_of(draw, kind, draw(rows_in_order(kind, damage=True)))
        for name in draw(st.lists(st.sampled_from(sorted({*columns} - NEEDED)), max_size=5)):
            for dropped in (name, "n") if name in ("token_ns", "dt_ns") else (name,):  # sizes need times
                columns.pop(dropped, None)
        batches.append((kind, draw(st.sampled_from(("p", "q"))), "table", columns))
    return batches


def arrivals_of(batches: Sequence[Batch]) -> list[int]:
    columns = (batch[3].get("arrive_ns", batch[3].get("t_ns")) for batch in batches)
    return [int(t) for times in columns for t in times]


asked_for = st.fixed_dictionaries(
    {"slos": st.lists(slos, max_size=2), "itl_rule": rules, "by": keys, "timeline_ns": widths, "ttl_ns": ttls}
)


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(batches=batch_lists(), asked=asked_for, data=st.data())
def test_any_columns(batches: list[Batch], asked: dict[str, Any], data: st.DataObject) -> None:
    more = data.draw(options(arrivals_of(batches)))
    found = outcome(core, batches, **asked, **more)
    assert differences(found, outcome(reference.reduce_columns, batches, **asked, **more)) == []


def line_of(row: Row) -> bytes:
    """The line that says the same as a row."""
    line = {key: value for key, value in row.items() if value != ABSENT}
    line["status"] = ALL_STATUSES[row["status"]]
    if "ev" in row:
        line["ev"] = (*KINDS, "gauge")[row["ev"]]
    elif not row["token_ns"]:
        del line["token_ns"], line["n"]
    return json.dumps(line).encode()


def is_a_line(row: Row) -> bool:
    """Whether a line can say the same: not that a number of tokens stands beside emissions of another number."""
    return "ev" in row or not row["token_ns"] or row.get("output_tokens", sum(row["n"])) == sum(row["n"])


@st.composite
def columns_and_lines(draw: st.DrawFn) -> tuple[list[Batch], bytes]:
    """The same input in both forms."""
    batches: list[Batch] = []
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("requests", "events")))
        rows = [row for row in draw(rows_in_order(kind, damage=False)) if is_a_line(row)]
        columns = columns_of(draw, kind, rows)
        columns["ids"] = [row["id"] for row in rows]
        batches.append((kind, "input", "of lines", columns))
        lines += map(line_of, rows)
    return batches, b"\n".join(lines)


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(both=columns_and_lines(), asked=asked_for, data=st.data())
def test_columns_are_what_their_lines_are(
    both: tuple[list[Batch], bytes], asked: dict[str, Any], data: st.DataObject
) -> None:
    batches, lines = both
    more = data.draw(options(arrivals_of(batches)))
    found = outcome(core, batches, **asked, **more)
    wanted = outcome(reference.reduce_lines, [("input", lines)], **asked, **more)
    wanted["inputs"][0]["format"] = "of lines"
    assert differences(found, wanted) == []


def rows_without_wording(rows: Mapping[str, Any]) -> Any:
    return comparable(as_lists(rows))


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(contents=st.lists(inputs(), min_size=1, max_size=3), ttl_ns=ttls)
def test_any_rows(contents: list[bytes], ttl_ns: int) -> None:
    named = [(f"input {i}", content) for i, content in enumerate(contents)]
    found = outcome(lambda: rows_without_wording(engine.read_rows_bytes(named, ttl_ns)))
    assert differences(found, outcome(lambda: rows_without_wording(reference.rows_of(named, ttl_ns)))) == []


RECORDINGS = ("demo_events.jsonl", "demo_requests.jsonl", "run.jsonl.gz", "run_async.jsonl.gz")


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_rows_of_a_recording_are_the_recording(name: str) -> None:
    """Its exact rows, taken as columns, come to what its lines come to."""
    path = FIXTURES / name
    named = [(name, path.read_bytes())]
    rows = engine.read_rows_bytes(named)
    assert differences(rows_without_wording(rows), rows_without_wording(reference.rows_of(named))) == []
    assert len(rows["ids"]) > 50
    asked: dict[str, Any] = {"slos": [SLO(ttft=0.2, tpot=0.03, itl=0.1)], "by": ["tenant"], "timeline_ns": SECOND}
    lines = comparable(reference.reduce_lines(named, **asked))
    columns = comparable(core([("requests", name, lines["inputs"][0]["format"], rows)], **asked))
    for found in (lines, columns):
        found["slowest"] = {metric: [value for value, _ in each] for metric, each in found["slowest"].items()}
        del found["inputs"]  # more lines than rows
    assert differences(columns, lines) == []


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize(("from_s", "to_s"), [(None, None), (1, None), (None, 2), (0.5, 1.5)])
def test_recordings_with_a_cut(name: str, from_s: float | None, to_s: float | None) -> None:
    path = str(FIXTURES / name)
    first_ns = engine.reduce_paths([path])["first_arrival_ns"]
    cut = {
        key: first_ns + int(seconds * SECOND)
        for key, seconds in (("from_ns", from_s), ("to_ns", to_s))
        if seconds is not None
    }
    asked: dict[str, Any] = {"slos": [SLO(ttft=0.2, tpot=0.03)], "by": ["tenant", "output_length"]}
    asked |= {"timeline_ns": 10**6, "timeline_bins": 240, **cut}
    found = comparable(engine.reduce_paths([path], **asked))
    assert differences(found, comparable(reference.reduce([path], **asked))) == []
    outside = 0 if found["cut"] is None else found["cut"]["outside"]
    assert found["total"]["attempted"] + outside == found["inputs"][0]["requests"]
    assert (outside > 0) == bool(cut)
