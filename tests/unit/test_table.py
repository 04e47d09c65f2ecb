"""Tables are read as the lines that say the same: whatever their types, and wherever their memory is."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from tokenpulse import engine
from tokenpulse.engine import ColumnReducer, FormatError, Sketch
from tokenpulse.model import SLO, STATUSES
from tokenpulse.readers import own, table, table_rows
from tokenpulse.readers.documents import Source
from tokenpulse.records import ABSENT, Ragged

START = 1_700_000_000_000_000_000
SLOS = [SLO(ttft=0.03, tpot=0.012)]
BY = ["tenant", "batch"]


def requests(n: int = 400) -> list[dict[str, Any]]:
    """Requests with all that a line may say, as it would say it."""
    random = np.random.default_rng(5)
    rows = []
    for number in range(n):
        arrive = START + 3_000_000 * number
        tokens = (arrive + np.cumsum(random.integers(1, 40_000_000, random.integers(0, 9)))).tolist()
        row: dict[str, Any] = {"id": f"r{number}é", "arrive_ns": arrive, "token_ns": tokens}
        row["schedule_ns"] = arrive + 5 if number % 3 else None
        row["prefill_ns"] = arrive + 9 if number % 5 == 0 else None
        row["n"] = random.integers(1, 4, len(tokens)).tolist() if number % 4 else None
        row["end_ns"] = (tokens or [arrive])[-1] + 77 if number % 2 else None
        row["status"] = [None, "stop", "length", "error", "abort"][number % 5]
        row["degraded"] = [None, True, False][number % 3]
        row["prompt_tokens"] = int(random.integers(0, 9000)) if number % 6 else None
        row["preempt_ns"] = [tokens[0]] if len(tokens) > 2 and number % 7 == 0 else []
        row["resume_ns"] = [tokens[1]] if row["preempt_ns"] else []
        row["labels"] = {"tenant": f"t{number % 3}", "batch": number % 2 == 0} if number % 11 else None
        if number % 13 == 0:
            row |= {"token_ns": None, "n": None, "preempt_ns": [], "resume_ns": []}
            row |= {"output_tokens": 9, "first_token_ns": arrive + 50, "last_token_ns": arrive + 450, "end_ns": None}
        rows.append(row)
    return rows


ROWS = requests()
LISTS = pa.list_(pa.int64())
SCHEMA = pa.schema(
    {name: pa.int64() for name in ("arrive_ns", "schedule_ns", "prefill_ns", "end_ns", "prompt_tokens")}
    | {name: pa.int64() for name in ("output_tokens", "first_token_ns", "last_token_ns")}
    | dict.fromkeys(("token_ns", "n", "preempt_ns", "resume_ns"), LISTS)
    | {"id": pa.string(), "status": pa.string(), "degraded": pa.bool_()}
    | {"labels": pa.struct({"tenant": pa.string(), "batch": pa.bool_()})}
)
WHOLE = pa.Table.from_pylist(ROWS, SCHEMA)


def figures(reduction: Any) -> Any:
    """A reduction without what its inputs are called, sketches as bytes."""

    def plain(value: Any) -> Any:
        if isinstance(value, Sketch):
            return value.to_bytes()
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(inner) for inner in value]
        return value

    return plain({key: value for key, value in reduction.items() if key not in ("inputs", "notices")})


def of_lines(rows: list[dict[str, Any]]) -> Any:
    text = "\n".join(map(json.dumps, rows)).encode()
    return engine.reduce_bytes([("table", text)], SLOS, "token", BY, 10**9)


def of_table(read: table.Table) -> Any:
    reducer = ColumnReducer(SLOS, "token", BY, 10**9)
    read.reduce_into(reducer)
    return reducer.finish()


def replaced(name: str, column: Any, whole: Any = WHOLE) -> Any:
    return whole.set_column(whole.schema.get_field_index(name), name, column)


def since_arrival(kind: Any) -> Any:
    offsets = [None if row["token_ns"] is None else [t - row["arrive_ns"] for t in row["token_ns"]] for row in ROWS]
    whole = WHOLE.drop_columns(["token_ns"])
    return whole.append_column("dt_ns", pa.array(offsets, pa.list_(kind) if isinstance(kind, pa.DataType) else kind[0]))


def junk_under_nulls() -> Any:
    """Lists whose nulls have something in the place where nobody looks."""
    offsets, values, valid = [0], [], []
    for row in ROWS:
        values += [1, 2, 3] if row["token_ns"] is None else row["token_ns"]
        offsets.append(len(values))
        valid.append(row["token_ns"] is not None)
    mask = pa.array([not known for known in valid])
    column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values, pa.int64()), mask=mask)
    return replaced("token_ns", column)


def some_of_both() -> Any:
    """Every other row has its times since its arrival, and the other column is null there."""
    offsets = [
        [t - row["arrive_ns"] for t in row["token_ns"] or []] if number % 2 and row["token_ns"] is not None else None
        for number, row in enumerate(ROWS)
    ]
    times = [None if offset is not None else row["token_ns"] for offset, row in zip(offsets, ROWS, strict=True)]
    return replaced("token_ns", pa.array(times, LISTS)).append_column("dt_ns", pa.array(offsets, LISTS))


def mapped_labels() -> Any:
    kind = pa.map_(pa.string(), pa.string())
    rows = [
        None
        if row["labels"] is None
        else [("tenant", row["labels"]["tenant"]), ("batch", str(row["labels"]["batch"]).lower())]
        for row in ROWS
    ]
    return replaced("labels", pa.array(rows, kind))


def dotted_labels() -> Any:
    tenants = pa.array([(row["labels"] or {}).get("tenant") for row in ROWS]).dictionary_encode()
    batches = pa.array([(row["labels"] or {}).get("batch") for row in ROWS])
    whole = WHOLE.drop_columns(["labels"]).append_column("labels.tenant", tenants)
    return whole.append_column("labels.batch", batches)


def in_slices() -> Any:
    """Batches that begin somewhere in the middle of their memory."""
    batch = WHOLE.combine_chunks().to_batches()[0]
    return pa.Table.from_batches([batch.slice(start, 37) for start in range(0, len(ROWS), 37)])


def of_nanoseconds(kind: Any, name: str = "arrive_ns") -> Any:
    return replaced(name, WHOLE[name].cast(kind))


TABLES: dict[str, Callable[[], Any]] = {
    "as it is": lambda: WHOLE,
    "chunks": lambda: pa.Table.from_batches(WHOLE.to_batches(max_chunksize=29)),
    "slices": in_slices,
    "a record batch": lambda: WHOLE.combine_chunks().to_batches()[0],
    "a stream": lambda: WHOLE.to_reader(max_chunksize=50),
    "large lists": lambda: replaced("token_ns", WHOLE["token_ns"].cast(pa.large_list(pa.int64()))),
    "large strings": lambda: replaced("id", WHOLE["id"].cast(pa.large_string())),
    "string views": lambda: replaced("id", WHOLE["id"].cast(pa.string_view())),
    "dictionaries": lambda: replaced(
        "status", WHOLE["status"].dictionary_encode(), replaced("id", WHOLE["id"].dictionary_encode())
    ),
    "n of 32 bits": lambda: replaced("n", WHOLE["n"].cast(pa.list_(pa.uint32()))),
    "n of 8 bits": lambda: replaced("n", WHOLE["n"].cast(pa.list_(pa.int8()))),
    "floats": lambda: of_nanoseconds(pa.float64(), "prompt_tokens"),
    "decimals": lambda: of_nanoseconds(pa.decimal128(20, 0)),
    "unsigned": lambda: of_nanoseconds(pa.uint64()),
    "timestamps": lambda: of_nanoseconds(pa.timestamp("ns", "UTC")),
    "run ends": lambda: replaced(
        "prompt_tokens", pa.chunked_array([pa.compute.run_end_encode(WHOLE["prompt_tokens"].combine_chunks())])
    ),
    "offsets of 64 bits": lambda: since_arrival(pa.int64()),
    "offsets of 32 bits": lambda: since_arrival(pa.int32()),
    "offsets of 32 bits without sign": lambda: since_arrival(pa.uint32()),
    "offsets as durations": lambda: since_arrival(pa.duration("ns")),
    "offsets as list views": lambda: since_arrival((pa.list_view(pa.int64()),)),
    "junk under nulls": junk_under_nulls,
    "some of both": some_of_both,
    "labels as a map": mapped_labels,
    "labels as columns": dotted_labels,
    "aliases": lambda: WHOLE.rename_columns({"arrive_ns": "arrival_mono_ns", "prompt_tokens": "ctx"}),
    "other columns": lambda: WHOLE.append_column("verdict", pa.array([{"x": [1.5]}] * len(ROWS))),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_in_memory_is_read_as_lines(name: str) -> None:
    reduction = of_table(table.of(TABLES[name]()))
    assert figures(reduction) == figures(of_lines(ROWS))
    (one,) = reduction["inputs"]
    assert (one["path"], one["format"], one["lines"], one["skipped"]) == ("table", "table", len(ROWS), {})


def test_int64_is_not_copied() -> None:
    values = np.arange(START, START + 3000, dtype=np.int64)
    lists = pa.LargeListArray.from_arrays(pa.array(np.arange(0, 3001, 10)), pa.array(values))
    ids = pa.array([f"r{number}" for number in range(300)])
    whole = pa.table({"arrive_ns": values[::10].copy(), "token_ns": lists, "id": ids})
    ((kind, columns),) = table.of(whole).columns()
    assert kind == "requests"
    buffers = {buffer.address for column in whole.columns for buffer in column.chunk(0).buffers() if buffer is not None}
    for found in (columns["arrive_ns"], columns["token_ns"], columns["token_offsets"], *columns["ids"]):
        assert found.__array_interface__["data"][0] in buffers


def write_parquet(path: Path) -> None:
    pq.write_table(WHOLE, path, row_group_size=150)


def write_arrow(path: Path) -> None:
    with pa.ipc.new_file(path, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(WHOLE, max_chunksize=90)


def write_stream(path: Path) -> None:
    with pa.ipc.new_stream(path, SCHEMA) as writer:
        writer.write_table(WHOLE, max_chunksize=90)


FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "parquet": ("parquet", write_parquet),
    "file": ("arrow", write_arrow),
    "stream": ("arrow", write_stream),
}


@pytest.mark.parametrize("which", FILES)
def test_a_file_is_read_as_lines(which: str, tmp_path: Path) -> None:
    kind, write = FILES[which]
    path = tmp_path / "run"
    write(path)
    for source in (str(path), path.read_bytes()):
        read = table.read(source, name="run", format=kind)
        for _ in range(2):
            reduction = of_table(read)
            assert figures(reduction) == figures(of_lines(ROWS))
            assert [(one["path"], one["format"]) for one in reduction["inputs"]] == [("run", kind)]


@pytest.mark.parametrize("which", FILES)
def test_a_damaged_file_is_named(which: str, tmp_path: Path) -> None:
    kind, write = FILES[which]
    path = tmp_path / "run"
    write(path)
    whole = path.read_bytes()
    for cut in (whole[: len(whole) // 2], whole[:9]):
        with pytest.raises(FormatError, match=r"^run: expected (Parquet|Arrow) that can be read: "):
            of_table(table.read(cut, name="run", format=kind))
    with pytest.raises(FileNotFoundError):
        table.read(str(tmp_path / "none"), format=kind)


FLAT = [
    {"id": f"r{n}", "arrive_ns": START + n, "output_tokens": n % 5 or None, "first_token_ns": START + n + 100}
    | {
        "last_token_ns": START + n + 900 * (n % 5),
        "prompt_tokens": n,
        "status": "length",
        "labels": {"tenant": f"t{n % 2}"},
    }
    for n in range(1, 3000)
]


def csv_of(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    flat = [{**row, "labels.tenant": row["labels"]["tenant"], "labels": None} for row in rows]
    whole = pa.Table.from_pylist(flat).drop_columns(["labels"])
    sink = pa.BufferOutputStream()
    arrow_csv.write_csv(whole, sink, arrow_csv.WriteOptions(delimiter=delimiter))
    return bytes(sink.getvalue())


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_of_requests(delimiter: str) -> None:
    text = csv_of(FLAT, delimiter)
    expected = figures(of_lines(FLAT))
    for source in (
        text,
        gzip.compress(text),
        b"\xef\xbb\xbf" + text.replace(b'"', b"").replace(b"\n", b"\r\n").rstrip(),
    ):
        reduction = of_table(table.read(source, name="run.csv", format="csv"))
        assert figures(reduction) == expected


def test_csv_of_events() -> None:
    names = ("t_ns", "id", "ev", "k", "prompt_tokens", "status", "degraded")
    events: list[dict[str, Any]] = [
        {"t_ns": 10, "id": "a", "ev": "arrive", "prompt_tokens": 7},
        {"t_ns": 12, "id": "a", "ev": "schedule"},
        {"t_ns": 15, "id": "a", "ev": "tokens"},
        {"t_ns": 16, "id": None, "ev": "gauge"},
        {"t_ns": 19, "id": "a", "ev": "tokens", "k": 3},
        {"t_ns": 20, "id": "a", "ev": "end", "status": "stop", "degraded": True},
    ]
    lines = [names, *([event.get(name) or "" for name in names] for event in events)]
    text = "\n".join(",".join(map(str, line)) for line in lines).encode()
    assert figures(of_table(table.read(text, format="csv"))) == figures(of_lines(events))
    assert figures(of_table(table.of(pa.Table.from_pylist([dict.fromkeys(names), *events]).slice(1)))) == figures(
        of_lines(events)
    )


def test_cells_and_rows_that_cannot_be_read() -> None:
    text = b"arrive_ns,end_ns,status\n1,x,stop\n2,3,stop\n4\n5.5,,\n6e0,7.0,\n,8,stop\n9,10,nonsense\n11,12"
    read = table.read(text, name="run.csv", format="csv")
    reduction = of_table(read)
    (one,) = reduction["inputs"]
    assert one["skipped"] == {"bad_value": 3, "missing_field": 1}
    assert one["requests"] == 2
    assert read.skipped == {"length_mismatch": 2}
    assert read.notices[0] == {
        "path": "run.csv",
        "line": 4,
        "reason": "length_mismatch",
        "message": "expected 3 cells, got 1",
    }


def test_a_header_alone_is_a_table_without_rows() -> None:
    for text in (b"arrive_ns,id", b"arrive_ns,id\n"):
        assert list(table.read(text, format="csv").columns()) == []
    empty = WHOLE.slice(0, 0)
    assert of_table(table.of(empty))["total"]["output_tokens"] == 0


def nulls(kind: Any) -> Any:
    return pa.array([None, None], kind)


ARRIVE = pa.array([5, 6])
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"a": ARRIVE}, r"expected a column arrive_ns, or t_ns and ev; got a$"),
    "both": ({"arrive_ns": ARRIVE, "t_ns": ARRIVE, "ev": pa.array(["end", "end"])}, "got both"),
    "seconds": (
        {"arrive_ns": pa.array([5.25, 6.5])},
        r"column arrive_ns: expected whole numbers \(times in ns\), got 5.25 in row 1$",
    ),
    "text": ({"arrive_ns": pa.array(["5", "6"])}, "column arrive_ns: expected integers, got string"),
    "no list": ({"arrive_ns": ARRIVE, "token_ns": ARRIVE}, "column token_ns: expected lists of integers, got int64"),
    "list of text": (
        {"arrive_ns": ARRIVE, "token_ns": pa.array([["a"], []])},
        "column token_ns: expected integers, got string",
    ),
    "list of seconds": (
        {"arrive_ns": ARRIVE, "dt_ns": pa.array([[], [0.5]])},
        r"column dt_ns: expected whole numbers \(times in ns\), got 0.5 in row 2",
    ),
    "status": ({"arrive_ns": ARRIVE, "status": pa.array([1, 2])}, "column status: expected strings, got int64"),
    "degraded": ({"arrive_ns": ARRIVE, "degraded": pa.array([1, 0])}, "column degraded: expected booleans, got int64"),
    "id": ({"arrive_ns": ARRIVE, "id": pa.array([1.5, 2.5])}, "column id: expected strings or integers, got double"),
    "labels": (
        {"arrive_ns": ARRIVE, "labels": pa.array(["a", "b"])},
        "column labels: expected a struct, a map, or columns",
    ),
    "label": (
        {"arrive_ns": ARRIVE, "labels.x": pa.array([1.5, 2.5])},
        "column labels.x: expected strings, integers or booleans",
    ),
    "booleans": ({"arrive_ns": pa.array([True, False])}, "column arrive_ns: expected integers, got bool"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_column_of_the_wrong_type_is_named(name: str) -> None:
    columns, message = WRONG[name]
    with pytest.raises(FormatError, match=f"^run: {message}" if name != "both" else message):
        of_table(table.of(pa.table(columns), "run"))


def test_a_column_that_stands_twice_is_named() -> None:
    twice = pa.Table.from_arrays([ARRIVE, ARRIVE], ["arrive_ns", "arrive_ns"])
    with pytest.raises(FormatError, match="column arrive_ns: expected it once, got it 2 times"):
        of_table(table.of(twice))
    with pytest.raises(FormatError, match="column end_ns: expected it once, got it 2 times"):
        of_table(table.read(b"end_ns,arrive_ns,end_ns\n1,2,3\n", format="csv"))


def test_rows_at_fault_are_counted() -> None:
    whole = pa.table(
        {
            "arrive_ns": pa.array([5, None, -4, 2**63, 30, 40, 50, 60], pa.decimal128(20)),
            "token_ns": pa.array([[6], [7], [8], [9], [31, None], [41, 42], [51], []], LISTS),
            "n": pa.array([None, None, None, None, [1, 1], [1], [0], [1]], LISTS),
            "status": ["stop", None, None, None, "stop", "stop", "stop", "stop"],
        }
    )
    reduction = of_table(table.of(whole))
    (one,) = reduction["inputs"]
    assert (one["requests"], one["skipped"]) == (1, {"bad_value": 6, "missing_field": 1})
    assert reduction["total"]["output_tokens"] == 1


def test_an_n_of_another_length_needs_no_status() -> None:
    whole = pa.table({"arrive_ns": [1, 2], "token_ns": [[3], [4]], "n": [[1, 1], [2]]})
    reduction = of_table(table.of(whole))
    assert (reduction["inputs"][0]["skipped"], reduction["total"]["output_tokens"]) == ({"bad_value": 1}, 2)


def test_absent_columns_and_types_of_nothing() -> None:
    whole = pa.table(
        {"arrive_ns": ARRIVE}
        | {
            name: nulls(pa.null())
            for name in ("id", "end_ns", "token_ns", "n", "status", "degraded", "labels", "labels.x")
        }
    )
    reduction = of_table(table.of(whole))
    assert (reduction["total"]["by_status"]["stop"], reduction["inputs"][0]["skipped"]) == (2, {})


def test_only_the_labels_asked_for() -> None:
    for whole in (WHOLE, mapped_labels(), dotted_labels()):
        for _, columns in table.of(whole).columns(labels={"tenant"}):
            assert set(columns["labels"]) == {"tenant"}
        for _, columns in table.of(whole).columns(labels=()):
            assert "labels" not in columns


def test_ids_of_other_kinds() -> None:
    whole = pa.table({"arrive_ns": [1, 2, 3], "id": pa.array([7, None, 9], pa.uint16())})
    ((_, columns),) = table.of(whole).columns()
    text, offsets = columns["ids"]
    assert (bytes(text), offsets.tolist()) == (b"719", [0, 1, 2, 3])


def test_a_stream_is_read_once() -> None:
    read = table.of(WHOLE.to_reader(), "stream")
    assert read.once
    of_table(read)
    with pytest.raises(ValueError, match="stream can be read only once"):
        of_table(read)
    assert not table.of(WHOLE).once


def test_what_is_no_table() -> None:
    with pytest.raises(TypeError, match="must have __arrow_c_stream__"):
        table.of([1, 2])  # type: ignore[arg-type]


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tokenpulse.readers.arrow_")]:
        monkeypatch.delitem(sys.modules, name)
    package = importlib.import_module("tokenpulse.readers")
    for name in ("arrow_files", "arrow_columns"):
        monkeypatch.delattr(package, name, raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (lambda: table.of(WHOLE), lambda: table.read(b"PAR1", format="parquet")):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'tokenpulse\[arrow\]'"):
            call()


@pytest.mark.parametrize("library", ["polars", "pandas", "duckdb"])
def test_tables_of_other_libraries(library: str) -> None:
    module = pytest.importorskip(library)
    if library == "polars":
        given = module.from_arrow(WHOLE)
    elif library == "pandas":
        given = WHOLE.drop_columns(["n", "prompt_tokens"]).to_pandas(types_mapper=module.ArrowDtype)
    else:
        whole = WHOLE  # noqa: F841 (found by name)
        given = module.sql("select * from whole")
    expected = [{**row, "n": None, "prompt_tokens": None} for row in ROWS] if library == "pandas" else ROWS
    assert figures(of_table(table.of(given))) == figures(of_lines(expected))


def equal(found: Any, expected: Any) -> None:
    """Records are the same, whatever they are called."""
    for part in fields(found):
        if part.name in ("tool", "format", "notices"):
            continue
        one, other = getattr(found, part.name), getattr(expected, part.name)
        if isinstance(one, Ragged):
            one, other = (one.values.tolist(), one.offsets.tolist()), (other.values.tolist(), other.offsets.tolist())
        if part.name == "labels":
            one, other = (
                {name: [(*texts, None)[code] for code in codes] for name, (codes, texts) in labels.items()}
                for labels in (one, other)
            )
        np.testing.assert_equal(one, other, err_msg=part.name)


@pytest.mark.parametrize("name", ["as it is", "slices", "offsets of 32 bits", "labels as columns", "junk under nulls"])
def test_records_are_those_of_the_lines(name: str) -> None:
    text = "\n".join(map(json.dumps, ROWS)).encode()
    (expected,) = own.read(Source(text, "table", None))
    found = table.of(TABLES[name]()).records()
    assert (found.tool, found.format, len(found)) == ("table", "table", len(ROWS))
    equal(found, expected)


def test_records_of_events() -> None:
    lines = (Path(__file__).parents[1] / "fixtures" / "demo_events.jsonl").read_bytes()
    events = [json.loads(line) for line in lines.splitlines()]
    (expected,) = own.read(Source(lines, "table", None))
    keys = list(dict.fromkeys(key for event in events for key in event))
    whole = pa.table({key: pa.array([event.get(key) for event in events]) for key in keys if key != "hashes"})
    equal(table.of(whole).records(), expected)


def test_records_that_no_line_says() -> None:
    whole = pa.table(
        {
            "arrive_ns": [10, None, 30, 40, -1],
            "token_ns": [[11, 13], [], [31, 37], [], []],
            "output_tokens": [None, None, 5, 3, None],
            "last_token_ns": [None, None, None, 49, None],
            "cached_tokens": [4, 5, None, 7, 8],
            "status": ["in_flight", "stop", "stop", "lost", "stop"],
            "id": ["a", "b", "c", "d", "e"],
            "labels.tenant": ["x", "y", "z", None, "x"],
        }
    )
    found = table.of(pa.Table.from_batches(whole.to_batches(max_chunksize=2))).records()
    assert found.ids == ["a", "c", "d"]
    assert found.status.tolist() == [255, 0, STATUSES.index("lost")]
    assert found.output_tokens is not None
    assert found.output_tokens.tolist() == [2, 5, 3]
    assert found.chunk_tokens is None
    assert found.cached_tokens is not None
    assert found.cached_tokens.tolist() == [4, ABSENT, 7]
    assert found.end_ns is not None
    assert found.end_ns.tolist() == [ABSENT, 37, 49]
    codes, texts = found.labels["tenant"]
    assert [(*texts, None)[code] for code in codes] == ["x", "z", None]
    assert found.skipped == {"missing_field": 1, "bad_value": 1}
    assert [(one["line"], one["reason"]) for one in found.notices] == [(5, "bad_value")]

    rows = table_rows.rows(table.of(whole))
    assert rows["inputs"][0]["lines"] == 5
    assert (rows["ids"], rows["output_tokens"].tolist()) == (["a", "c", "d"], [ABSENT, 5, 3])
    again = ColumnReducer()
    again.requests("table", "table", rows)
    direct = ColumnReducer()
    table.of(whole).reduce_into(direct)
    assert figures(again.finish()) == figures(direct.finish())

    empty = table.of(whole.slice(0, 0)).records()
    assert len(empty) == 0


@pytest.mark.parametrize("seed", range(40))
def test_exact_rows_are_what_is_counted(seed: int) -> None:
    """Whatever a table says, and however wrong: its exact rows come to the same as itself."""
    random = np.random.default_rng(seed)
    n, end = int(random.integers(1, 8)), int(random.integers(5, 60))

    def numbers(lowest: int, absent: float) -> Any:
        drawn = [None if random.random() < absent else int(random.integers(lowest, end)) for _ in range(n)]
        return pa.array(drawn, pa.int64())

    def lists(lowest: int, highest: int) -> Any:
        drawn = [sorted(random.integers(lowest, highest, random.integers(0, 4)).tolist()) for _ in range(n)]
        return pa.array([None if random.random() < 0.2 else values for values in drawn], LISTS)

    columns = {"arrive_ns": numbers(-2, 0.1)}
    columns |= {name: lists(0, end) for name in ("token_ns", "preempt_ns", "resume_ns") if random.random() < 0.6}
    columns |= {"dt_ns": lists(0, 20)} if random.random() < 0.3 else {}
    columns |= {"n": lists(1, 4)} if random.random() < 0.5 else {}
    for name in ("schedule_ns", "prefill_ns", "end_ns", "output_tokens", "prompt_tokens"):
        columns |= {name: numbers(-2, 0.5)} if random.random() < 0.5 else {}
    for name in ("first_token_ns", "last_token_ns"):
        columns |= {name: numbers(0, 0.5)} if random.random() < 0.5 else {}
    statuses = [None, "in_flight", *STATUSES]
    columns["status"] = pa.array([statuses[random.integers(len(statuses))] for _ in range(n)])
    given = table.of(pa.table(columns))
    reduction, rows = of_table(given), table_rows.rows(given)
    assert rows["inputs"][0]["skipped"] == reduction["inputs"][0]["skipped"]
    again = ColumnReducer(SLOS, "token", BY, 10**9)
    again.requests("rows", "rows", rows)
    # What was refused of an accepted request is not among its rows.
    parts = ("total", "by", "timeline", "grid", "slowest", "first_arrival_ns", "last_emission_ns")
    found, expected = figures(again.finish()), figures(reduction)
    assert {part: found[part] for part in parts} == {part: expected[part] for part in parts}
