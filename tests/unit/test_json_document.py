"""JSON documents in parts: what comes is what `json.loads` makes of the whole, however it is stored."""

from __future__ import annotations

import doctest
import gzip
import json
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tokenpulse.engine import DecodeError, FormatError, JsonDocument, PlainBytes

ABSENT = -(2**63)
Part = tuple[str, tuple[int, ...], Any]


def in_tiny_members(text: bytes) -> bytes:
    """Compressed so that reading gives a few bytes at a time: every place of the text is the end of some reading."""
    return b"".join(gzip.compress(text[at : at + 1 + at % 3]) for at in _starts(len(text)))


def _starts(length: int) -> Iterator[int]:
    at = 0
    while at < length:
        yield at
        at += 1 + at % 3


def plain(part: Part) -> Part:
    """A part whose arrays are lists and whose text is read, so that parts can be compared."""
    path, at, value = part
    if isinstance(value, bytes):
        value = json.loads(value)
    elif isinstance(value, tuple):
        numbers, offsets = value
        value = [numbers[start:end].tolist() for start, end in pairwise(offsets)]
    elif isinstance(value, np.ndarray):
        value = value.tolist()
    return path, at, value


def parts(text: bytes, **asked: Any) -> list[Part]:
    return [plain(part) for part in JsonDocument(text, **asked)]


def before_fault(parts: Iterable[Any], kind: type[ValueError]) -> tuple[list[Any], Any]:
    """What is given before an error, and the error."""
    found = []
    try:
        for part in parts:
            found.append(part)  # noqa: PERF402 (those before the error)
    except kind as error:
        return found, error
    raise AssertionError(f"no {kind.__name__}")


def test_the_docstrings_hold() -> None:
    for described in (JsonDocument, PlainBytes):
        tests = doctest.DocTestFinder().find(described, described.__name__)
        assert sum(len(test.examples) for test in tests) >= 3
        for test in tests:
            assert doctest.DocTestRunner().run(test).failed == 0


RUN = {
    "date": "today",
    "ttfts": [0.25, None, 3, 1e-3],
    "itls": [[0.5, 0.0], [], None, [None]],
    "input_lens": [12, 1763946000123456789, None, -1],
    "generated_texts": ['a "quoted" \\ text', "\ud83d\ude00 é", {"nested": [1, {"deep": []}]}],
    "errors": ["", "Traceback:\n  line"],
    "mean_ttft_ms": 1.5,
    "inner": {"ttfts": [1]},
}
ASKED = {
    "select": ["$", "errors"],
    "columns": ["ttfts", "itls[*]"],
    "integers": ["input_lens"],
    "skip": ["generated_texts"],
}


def check_run(found: list[Part], number: int) -> None:
    names = [path for path, _, _ in found]
    assert names == ["ttfts", "itls[*]", "input_lens", "errors", "$"]
    assert {at for _, at, _ in found} == {(number,)}
    values = {path: value for path, _, value in found}
    np.testing.assert_array_equal(values["ttfts"], [0.25, math.nan, 3.0, 1e-3])
    assert values["itls[*]"][:3] == [[0.5, 0.0], [], []]
    assert np.isnan(values["itls[*]"][3]).all()
    assert values["input_lens"] == [12, 1763946000123456789, ABSENT, -1]
    assert values["errors"] == RUN["errors"]
    assert values["$"] == {key: RUN[key] for key in ("date", "mean_ttft_ms", "inner")}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("stored", [bytes, gzip.compress, in_tiny_members])
def test_a_run_in_parts(indent: int | None, ascii_only: bool, stored: Callable[[bytes], bytes]) -> None:
    run = {**RUN, "generated_texts": ["é", "\U0001f600"]} if not ascii_only else RUN
    text = json.dumps(run, indent=indent, ensure_ascii=ascii_only).encode()
    check_run(parts(stored(text), **ASKED), 0)
    # Appended, with a line's end or without.
    found = parts(stored(text + b"\n" + text), **ASKED)
    check_run(found[:5], 0)
    check_run(found[5:], 1)


def test_types_of_columns() -> None:
    document = JsonDocument(
        b'{"a":[1],"b":[1],"c":[[1],[]],"d":[[2,3]],"e":[]}',
        columns=["a", "c[*]", "e"],
        integers=["b", "d[*]"],
    )
    values = {path: value for path, _, value in document}
    assert [values[name].dtype for name in "abe"] == [np.float64, np.int64, np.float64]
    (c, c_offsets), (d, d_offsets) = values["c[*]"], values["d[*]"]
    assert (c.dtype, d.dtype, c_offsets.dtype, d_offsets.dtype) == (np.float64, np.int64, np.int64, np.int64)
    assert (c_offsets.tolist(), d_offsets.tolist()) == ([0, 1, 1], [0, 2])
    assert values["a"].flags.writeable


def test_a_column_that_is_no_array_comes_as_text() -> None:
    for text in ("null", '"x"', "3", "true", '{"a": [1]}'):
        assert list(JsonDocument(f'{{"v": {text}}}'.encode(), columns=["v"])) == [("v", (0,), text.encode())]


def test_numbers_as_tools_write_them() -> None:
    text = b'{"v":["12","-1.5e2","NaN","Infinity",NaN,-Infinity,1e999,-0.0,12345678901234567890,0.1,5e-324]}'
    ((_, _, found),) = JsonDocument(text, columns=["v"])
    as_read = [float(value) for value in json.loads(text)["v"]]
    np.testing.assert_array_equal(found, as_read)
    assert math.copysign(1, found[7]) == -1
    ((_, _, found),) = JsonDocument(b'["9223372036854775807",-9223372036854775808,1e3,2.0]', integers=["$"])
    assert found.tolist() == [2**63 - 1, -(2**63), 1000, 2]


@pytest.mark.parametrize(
    "element", ['"x"', '""', '" 1"', '"1 "', '"0x1"', '"01"', '"+1"', "true", "{}", "[1]", '"1\\u0030"']
)
def test_what_is_no_number_is_named(element: str) -> None:
    document = JsonDocument(f'{{"a":[1],\n"v":[1,{element}]}}'.encode(), name="run.json", columns=["a", "v"])
    assert next(document)[0] == "a"
    with pytest.raises(FormatError, match=r'^run\.json: line 2, byte \d+: expected a number or null in "v"$') as caught:
        next(document)
    error: Any = caught.value
    assert (error.reason, error.line) == ("wrong_type", 2)
    assert list(document) == []


@pytest.mark.parametrize("element", ["1.5", "9223372036854775808", "NaN", "Infinity", '"1.5"', "1e30"])
def test_what_is_no_integer_is_named(element: str) -> None:
    with pytest.raises(FormatError, match="expected an integer of 64 bits or null"):
        list(JsonDocument(f"[[{element}]]".encode(), integers=["[*]"]))


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
documents = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "é", 'q"', ""]), inner, max_size=4)
    ),
    max_leaves=40,
)


def expected_parts(document: Any) -> list[Part]:
    """What `select=["$", "a.b", "[*].a", "a.b[*]"], skip=["[*].b"]` gives."""
    found: list[Part] = []
    if isinstance(document, dict) and isinstance(document.get("a"), dict) and "b" in document["a"]:
        inner = document["a"]["b"]
        if isinstance(inner, list):
            found += [("a.b[*]", (0, index), value) for index, value in enumerate(inner)]
            inner = []
        found.append(("a.b", (0,), inner))
        document = {**document, "a": {key: value for key, value in document["a"].items() if key != "b"}}
    elif isinstance(document, list):
        found += [
            ("[*].a", (0, index), value["a"])
            for index, value in enumerate(document)
            if isinstance(value, dict) and "a" in value
        ]
        document = [
            {key: inner for key, inner in value.items() if key not in ("a", "b")} if isinstance(value, dict) else value
            for value in document
        ]
    return [*found, ("$", (0,), document)]


@given(documents, st.booleans(), st.booleans())
def test_random_documents(document: Any, pretty: bool, ascii_only: bool) -> None:
    text = json.dumps(document, indent=1 if pretty else None, ensure_ascii=ascii_only)
    asked: dict[str, Any] = {"select": ["$", "a.b", "[*].a", "a.b[*]"], "skip": ["[*].b"]}
    expected = repr(expected_parts(json.loads(text)))
    for stored in (text.encode(), in_tiny_members(text.encode())):
        assert repr(parts(stored, **asked)) == expected


@given(st.lists(st.floats() | st.integers(-(2**70), 2**70) | st.none() | st.floats().map(repr), max_size=30))
def test_random_columns(values: list[Any]) -> None:
    named = [
        {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(v, v) if isinstance(v, str) else v for v in values
    ]
    text = json.dumps({"v": named}).encode()
    expected = [math.nan if value is None else float(value) for value in values]
    for stored in (text, in_tiny_members(text)):
        ((_, _, found),) = JsonDocument(stored, columns=["v"])
        np.testing.assert_array_equal(found, expected)


@given(st.text(st.sampled_from('{}[],:"\\u019.eE+-ntrfalseN \n\té'), max_size=20), st.binary(max_size=8))
def test_random_texts(text: str, tail: bytes) -> None:
    """Whatever it is: it is taken or refused as `json.loads` does, and what was taken is equal."""
    for raw in (text.encode(), f"[1,{text}]".encode(), text.encode() + tail):
        try:
            expected = [json.loads(raw.decode())]
        except (ValueError, RecursionError):
            expected = []
        document = JsonDocument(raw, select=["$"])
        found: list[Any] = []
        try:
            found.extend(json.loads(value) for _, _, value in document)
        except FormatError:
            assert expected == []
            continue
        if expected:
            assert repr(found) == repr(expected)
        else:
            # Several values, or none.
            assert len(found) != 1


@given(st.integers(0, 400))
def test_what_was_good_before_the_text_ends_is_given(end: int) -> None:
    rows = [{"id": number, "t": [number, 0.5]} for number in range(12)]
    text = json.dumps(rows).encode()
    document = JsonDocument(text[:end], select=["[*]"], columns=["[*].t"])
    found = []
    if end in (0, len(text)) or end > len(text):
        found = [plain(part) for part in document]
    else:
        given_parts, error = before_fault(document, FormatError)
        found = [plain(part) for part in given_parts]
        assert str(error).endswith("but the text ends")
        assert (error.reason, error.byte) == ("truncated", min(end, len(text)))
    assert [value for path, _, value in found if path == "[*]"] == [{"id": n} for n in range(len(found) // 2)]
    whole = text[:end].count(b"]}")
    assert len(found) // 2 == whole


def test_a_key_that_comes_again() -> None:
    text = b'{"runs":[{"n":1}],"t":[1],"runs":[{"n":2}],"t":[2],"k":1,"k":2}'
    found = parts(text, select=["$", "runs[*]"], columns=["t"])
    assert found == [
        ("runs[*]", (0, 0), {"n": 1}),
        ("t", (0,), [1.0]),
        ("runs", (0,), None),
        ("runs[*]", (0, 0), {"n": 2}),
        ("t", (0,), [2.0]),
        ("$", (0,), {"runs": [], "k": 2}),
    ]


def test_deep_nesting() -> None:
    for depth, fits in ((128, True), (129, False), (100_000, False)):
        text = b'{"a":' * (depth // 2) + b"[" * (depth - depth // 2) + b"]" * (depth - depth // 2) + b"}" * (depth // 2)
        for asked in ({"select": ["$"]}, {"select": ["b"]}, {"skip": ["a.a.a"], "select": ["$"]}):
            document = JsonDocument(text, **asked)  # type: ignore[arg-type]
            if fits:
                list(document)
                continue
            with pytest.raises(FormatError, match="nest at most 128 deep") as caught:
                list(document)
            error: Any = caught.value
            assert error.reason == "too_deep"


def test_lines_at_fault_are_passed_over_when_asked() -> None:
    lines = [b'{"a":1}', b'{"a":', b"", b'{"a":2}', b'{"a":\xff}', b"nonsense", b'{"a":3}', b'{"a":4']
    document = JsonDocument(b"\r\n".join(lines), select=["$"], lines=True)
    found, faults = [], []
    while True:
        try:
            for _, _, value in document:
                found.append((document.line, json.loads(value)["a"]))
            break
        except FormatError as error:
            faults.append((error.line, error.reason))  # type: ignore[attr-defined]
            document.skip_line()
    assert found == [(1, 1), (4, 2), (7, 3)]
    assert faults == [(2, "not_json"), (5, "not_utf8"), (6, "not_json"), (8, "not_json")]
    with pytest.raises(ValueError, match="no line at fault"):
        document.skip_line()


def test_only_lines_can_be_passed_over() -> None:
    document = JsonDocument(b"[1,\n2,}\n[3]", select=["[*]"])
    assert [next(document)[2], next(document)[2]] == [b"1", b"2"]
    with pytest.raises(FormatError):
        next(document)
    with pytest.raises(ValueError, match="no line at fault"):
        document.skip_line()
    assert list(document) == []


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(RUN).encode())
    document = JsonDocument(path, **ASKED)
    assert (document.size, document.line) == (path.stat().st_size, 0)
    check_run([plain(part) for part in document], 0)
    assert (document.bytes_read, document.line) == (document.size, 1)
    with pytest.raises(FileNotFoundError) as caught:
        JsonDocument(str(tmp_path / "none.json"), select=["$"])
    assert caught.value.filename == str(tmp_path / "none.json")
    with pytest.raises(IsADirectoryError):
        JsonDocument(tmp_path, select=["$"])


def test_compressed_inputs_that_are_damaged() -> None:
    rows = b"".join(b'{"n":%d}\n' % n for n in range(50_000))
    packed = gzip.compress(rows)
    document = JsonDocument(packed[: len(packed) // 2], name="cut.gz", select=["$"])
    given_parts, error = before_fault(document, DecodeError)
    assert str(error).startswith("cut.gz: expected the compressed input to be whole")
    assert error.reason == "truncated"
    found = [json.loads(value)["n"] for _, _, value in given_parts]
    assert found == list(range(len(found)))
    assert len(found) > 10_000
    assert list(document) == []

    blocks, error = before_fault(PlainBytes(packed[: len(packed) // 2]), DecodeError)
    assert str(error).startswith("bytes: expected the compressed input to be whole")
    assert error.reason == "truncated"
    assert rows.startswith(b"".join(blocks))
    assert len(b"".join(blocks)) > 100_000


def test_plain_bytes(tmp_path: Path) -> None:
    text = bytes(range(256)) * 10_000
    path = tmp_path / "bytes"
    path.write_bytes(text)
    for source in (
        text,
        str(path),
        path,
        gzip.compress(text),
        in_tiny_members(text[:2000]) + gzip.compress(text[2000:]),
    ):
        plain_bytes = PlainBytes(source)
        blocks = list(plain_bytes)
        assert b"".join(blocks) == text
        assert max(map(len, blocks)) <= 1 << 20
        assert plain_bytes.bytes_read == plain_bytes.size
    assert list(PlainBytes(b"")) == []


def test_a_text_may_only_be_so_long() -> None:
    text = json.dumps({"long": "x" * 2000, "column": [1] * 2000})
    with pytest.raises(FormatError, match="a value of at most 1000 bytes") as caught:
        list(JsonDocument(text.encode(), select=["$"], limit=1000))
    error: Any = caught.value
    assert error.reason == "too_long"
    ((_, _, column), rest) = JsonDocument(text.encode(), select=["$"], columns=["column"], skip=["long"], limit=1000)
    values: NDArray[np.float64] = column
    assert (values.sum(), rest[2]) == (2000, b"{}")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"select": ["a..b"]}, "a path must be like"),
        ({"select": ["a"], "columns": ["a"]}, "asked for twice"),
        ({"columns": ["a"], "select": ["a.b"]}, "within"),
        ({"select": [1]}, "select"),
    ],
)
def test_misuse(asked: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        JsonDocument(b"{}", **asked)
    with pytest.raises(TypeError):
        JsonDocument(5)  # type: ignore[arg-type]
