"""Reductions that are saved, loaded and merged: nothing is lost, and nothing in a file is trusted."""

from __future__ import annotations

import base64
import copy
import functools
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from random_logs import SECOND, event_lines, request_lines

from tokenpulse import DecodeError, Report, Sketch, compressed, engine, sketches
from tokenpulse.model import SLO
from tokenpulse.reference.report import reduce_lines
from tokenpulse.sketches import Saved
from tokenpulse.sketches.fields import FieldError, read_saved

SLOS = (
    SLO("chat", ttft=0.05, tpot=0.02),
    SLO("strict", ttft=0.04, tpot=0.01, e2e=0.5, itl=0.04, objective=0.9, where={"tenant": "t1"}),
)


def reduce(*named: tuple[str, bytes], **settings: Any) -> dict[str, Any]:
    return engine.reduce_bytes(named, SLOS, **settings)


def inputs() -> list[tuple[str, bytes]]:
    """Five inputs: of different spans, so that their timelines and flows get different widths; one is empty."""
    return [
        ("a", request_lines(1, 200)),
        ("b", event_lines(2, 100, start_ns=3 * SECOND)),
        ("c", request_lines(3, 150, start_ns=70 * SECOND, tenants=2, span_ns=900 * SECOND)),
        ("d", b""),
        ("e", event_lines(5, 50, start_ns=5000 * SECOND) + b'{"hello":1}\nnonsense\n'),
    ]


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "classes and time": {"by": ["tenant", "prompt_length"], "timeline_ns": 1_000_000},
    "output length, chunks": {"by": ["output_length"], "itl_rule": "chunk", "timeline_ns": 7_000_000_000},
    "few bins": {"timeline_ns": 1_000_000, "timeline_bins": 24, "itl_rule": "stamp"},
    "a cut": {"from_ns": 4 * SECOND, "to_ns": 500 * SECOND, "by": ["tenant"], "timeline_ns": SECOND},
}
GROUPINGS = ([1, 1, 1, 1, 1], [2, 3], [4, 1], [1, 3, 1])


@pytest.mark.parametrize("grouping", GROUPINGS, ids=str)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_merged_equals_read_together(settings: dict[str, Any], grouping: list[int]) -> None:
    named = inputs()
    together = reduce(*named, **settings)
    parts, at = [], 0
    for size in grouping:
        parts.append(reduce(*named[at : at + size], **settings))
        at += size
    widths = {part["flow"]["width_ns"] for part in parts}
    assert len(widths) > 1
    before = copy.deepcopy(parts)
    merged = sketches.merge_reductions(parts, settings.get("timeline_bins", 10_000))
    assert merged == together
    assert parts == before
    pairwise = parts[0]
    for part in parts[1:]:
        pairwise = sketches.merge_reductions([pairwise, part], settings.get("timeline_bins", 10_000))
    assert pairwise == together
    assert Report.of(merged, SLOS, settings.get("itl_rule", "token")).requests["attempted"] > 300


def test_timelines_of_different_widths_come_to_the_wider_one() -> None:
    settings = {"timeline_ns": 1_000_000}
    parts = [reduce(one, **settings) for one in inputs()]
    assert len({part["timeline"]["width_ns"] for part in parts}) > 2
    merged = sketches.merge_reductions(parts)
    assert merged["timeline"]["width_ns"] > max(part["timeline"]["width_ns"] for part in parts)
    assert sum(one["block"]["attempted"] for one in merged["timeline"]["bins"]) == 500


def test_past_256_classes_merging_does_as_reading_does() -> None:
    named = [(str(n), request_lines(n, 150, tenants=100_000)) for n in range(4)]
    together = reduce(*named, by=["tenant"])
    merged = sketches.merge_reductions([reduce(one, by=["tenant"]) for one in named])
    assert merged == together
    assert len(merged["by"]) == 256
    assert merged["by"][-1]["other"]
    assert merged["by_interned_over"] > 100


def test_the_references_reductions_merge_alike() -> None:
    named = [("a", request_lines(1, 30)), ("b", event_lines(2, 20, start_ns=3 * SECOND))]
    settings: dict[str, Any] = {"by": ["tenant"], "timeline_ns": SECOND}
    merged = sketches.merge_reductions([reduce_lines([one], SLOS, **settings) for one in named])
    assert merged == reduce_lines(named, SLOS, **settings)


def test_equal_slowest_requests_keep_the_order_of_the_inputs() -> None:
    named = [(name, b'{"id":"%s","arrive_ns":0,"token_ns":[5000000]}\n' % name.encode()) for name in "abcdefg"]
    merged = sketches.merge_reductions([reduce(*named[4:]), reduce(*named[:4])])
    assert [name for _, name in merged["slowest"]["ttft"]] == ["e", "f", "g", "a", "b"]


def test_only_requests_in_flight_are_judged_by_their_own_input() -> None:
    """The exception that is documented: alone the request is in flight, beside a later input it is lost."""
    named = [
        ("early", b'{"t_ns":0,"id":"a","ev":"arrive"}\n'),
        ("late", request_lines(1, 1, start_ns=2 * 3600 * SECOND)),
    ]
    together = reduce(*named)
    merged = sketches.merge_reductions([reduce(one) for one in named])
    assert together["total"]["by_status"]["lost"] == 1
    assert "lost" not in merged["total"]["by_status"]
    assert merged["total"]["attempted"] == together["total"]["attempted"]


def test_reductions_of_different_settings_are_not_merged() -> None:
    one = inputs()[0]
    plain = reduce(one)
    for settings, told in (
        ({"timeline_ns": SECOND}, "timelines"),
        ({"from_ns": 1}, "cut"),
        ({"itl_rule": "chunk"}, "ITL rule"),
    ):
        with pytest.raises(ValueError, match=told):
            sketches.merge_reductions([plain, reduce(one, **settings)])
    with pytest.raises(ValueError, match="same keys"):
        sketches.merge_reductions([reduce(one, by=["tenant"]), reduce(one, by=["model"])])
    with pytest.raises(ValueError, match="SLO sets"):
        sketches.merge_reductions([plain, engine.reduce_bytes([one])])
    with pytest.raises(ValueError, match="at least one"):
        sketches.merge_reductions([])


# Files


def saved(**settings: Any) -> Saved:
    settings = settings or SETTINGS["classes and time"]
    return Saved(
        reduction=reduce(*inputs(), **settings),
        slos=SLOS,
        itl=settings.get("itl_rule", "token"),
        by=tuple(settings.get("by", ())),
        timeline_ns=settings.get("timeline_ns"),
        timeline_bins=settings.get("timeline_bins", 10_000),
        absent={"latency.queue": "the file does not say"},
        definitions={"tpot": {"tokenpulse": "a", "vllm": "b"}},
        reported=[{"path": "x.json", "tool": "vllm", "figures": {"mean_ttft_ms": 1.5}}],
    )


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("name", ["run.json", "run.json.gz", "run.json.zst"])
def test_what_is_saved_is_loaded(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    pytest.importorskip("zstandard") if name.endswith(".zst") else None
    path = tmp_path / name
    whole = saved(**settings)
    sketches.save(str(path), whole)
    assert sketches.load(str(path)) == whole
    renamed = path.rename(tmp_path / "no_name")
    assert sketches.load(str(renamed)) == whole
    assert [one.name for one in tmp_path.iterdir()] == ["no_name"]


def test_the_same_run_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        sketches.save(str(tmp_path / name), saved())
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_any_otlp_reader_takes_the_sketches(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    whole = saved()
    sketches.save(str(path), whole)
    found = json.loads(path.read_text())
    assert next(iter(found)) == "schema"
    encoded = found["reduction"]["total"]["latency"]["ttft"]
    assert Sketch.from_bytes(base64.b64decode(encoded)) == whole.reduction["total"]["latency"]["ttft"]


def test_saved_runs_merge_if_their_settings_are_the_same() -> None:
    one, other = saved(), saved()
    both = sketches.merge([one, other])
    assert both.reduction == sketches.merge_reductions([one.reduction] * 2)
    assert len(both.reported) == 2
    assert (both.slos, both.by, both.absent) == (one.slos, one.by, one.absent)
    with pytest.raises(ValueError, match=r"^b: made with --itl chunk, but a with token; "):
        sketches.merge([one, saved(itl_rule="chunk")], ["a", "b"])
    with pytest.raises(ValueError, match="number 2: made with --by none, but number 1 with tenant prompt_length"):
        sketches.merge([one, saved(timeline_ns=1_000_000)])
    with pytest.raises(ValueError, match="SLO sets chat:ttft=50ms,tpot=20ms,objective"):
        sketches.merge([one, Saved(**{**vars(one), "slos": SLOS[:1]})])
    with pytest.raises(ValueError, match="at least one"):
        sketches.merge([])


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    path.write_text("before")
    with pytest.raises(TypeError, match="expected a sketch"):
        sketches.save(str(path), Saved(reduction={"x": object()}))
    assert path.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(OSError, match="absent") as raised:
        sketches.save(str(tmp_path / "absent" / "run.json"), saved())
    assert str(tmp_path) in str(raised.value.filename)

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(compressed.importlib, "import_module", missing)
    with pytest.raises(ValueError, match=r"tokenpulse\[zstd\]"):
        sketches.check("run.json.zst")
    sketches.check("run.json.gz")


def test_a_link_and_its_targets_rights_stay(tmp_path: Path) -> None:
    target = tmp_path / "real.json"
    target.write_text("before")
    target.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(target)
    sketches.save(str(link), saved())
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    assert sketches.load(str(target)) == saved()


# Files that others wrote


def small() -> dict[str, Any]:
    """The object of a file with a little of everything."""
    named = [("a", request_lines(1, 6, tenants=1)), ("b", b'{"t_ns":1,"id":"x","ev":"end","status":"stop"}\n')]
    settings: dict[str, Any] = {"by": ["tenant"], "timeline_ns": 10 * SECOND, "from_ns": 1}
    whole = Saved(reduction=reduce(*named, **settings), slos=SLOS, by=("tenant",), timeline_ns=10 * SECOND)
    return json.loads(json.dumps(sketches.file._written(whole), default=sketches.file._encoded))


def refused(found: Any) -> str:
    with pytest.raises(DecodeError) as raised:
        sketches.loads(json.dumps(found).encode())
    assert "\n" not in str(raised.value)
    return str(raised.value)


def leaves(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The places of everything in an object, itself included."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield from leaves(one, *path, key)


def put(found: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The object with another value in one place, `...` for none; the rest of it is not copied."""
    changed = where = copy.copy(found)
    for key in path[:-1]:
        where[key] = copy.copy(where[key])
        where = where[key]
    if value is ...:
        del where[path[-1]]
    else:
        where[path[-1]] = value
    return changed


ODD = (..., None, True, -1, 10**400, "x", [1.5], {"a": 1})


def test_whatever_stands_in_a_field_it_is_refused_or_taken() -> None:
    """No value in any place makes anything but a DecodeError, and what is taken can be reported and merged."""
    found = small()
    places = [path for path in leaves(found) if path and path[0] != "reported"]
    assert len(places) > 300
    decode = functools.cache(sketches.file._decoded)
    taken = 0
    for path in places:
        for odd in ODD:
            try:
                whole = Saved(**read_saved(put(found, path, odd), decode))
            except FieldError:
                continue
            taken += 1
            Report.of(whole.reduction, whole.slos, whole.itl)
            sketches.merge([whole, whole])
    assert 0 < taken < len(places) * len(ODD) / 5


CHANGES: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "another version": (("schema",), "tokenpulse.sketches/2", "schema: expected 'tokenpulse.sketches/1'"),
    "a new key": (("reduction", "total", "x"), 1, "reduction.total: expected no key 'x'"),
    "no key": (("reduction", "grid"), ..., "reduction: expected the key 'grid', it is absent"),
    "a float": (("reduction", "clamped"), 1.0, "reduction.clamped: expected a whole number from 0 to"),
    "no base64": (("reduction", "total", "latency", "ttft"), "?", "reduction.total.latency.ttft: expected base64"),
    "no sketch": (("reduction", "total", "latency", "ttft"), "AAAA", "reduction.total.latency.ttft: "),
    "another rule": (("settings", "itl"), "chunk", "expected a sketch of the ITL rule chunk, got token"),
    "a legal limit": (("settings", "slos", 0, "ttft"), -1, "settings.slos[0]: slo ttft must be between"),
    "a set too few": (("settings", "slos"), [], "reduction.total.slos: expected 0 items, got 2"),
    "too many ends": (("reduction", "total", "attempted"), 1, "expected at most 1 requests to end"),
    "too many met": (("reduction", "total", "slos", 0, "met"), 10**9, "slos[0].met: expected a whole number from 0"),
    "a reason": (("reduction", "total", "slos", 0, "missed", "tpot+ttft"), 1, "expected limits or a status"),
    "no timeline": (("reduction", "timeline"), None, "reduction.timeline: expected one"),
    "a width": (("reduction", "flow", "width_ns"), 3_000_000, "reduction.flow.width_ns: expected 1000000 doubled"),
    "a bin": (("reduction", "flow", "bins", 0, "start_ns"), 1, "bins[0].start_ns: expected a multiple of"),
    "a cell": (("reduction", "grid", "cells", 0), [1, 2], "cells[0]: expected TTFT index"),
    "disorder": (("reduction", "grid", "cells"), [[1, 2, 1], [1, 2, 1]], "expected them in order, each once"),
    "a class": (("reduction", "by", 0, "key"), {}, "reduction.by[0].key: expected the key 'tenant'"),
}


@pytest.mark.parametrize(("path", "value", "told"), CHANGES.values(), ids=CHANGES)
def test_an_error_names_the_place(path: tuple[Any, ...], value: Any, told: str) -> None:
    assert told in refused(put(small(), path, value))


def test_text_that_is_no_such_file(tmp_path: Path) -> None:
    text = json.dumps(small()).encode()
    for size in range(0, len(text), 997):
        with pytest.raises(DecodeError):
            sketches.loads(text[:size])
    with pytest.raises(DecodeError, match="the file ends early"):
        sketches.loads(text[:-10])
    head = b'{"schema":"tokenpulse.sketches/1",'
    for tail, told in (
        (b'"schema":1}', "given twice"),
        (b'"x":NaN}', "NaN is no JSON number"),
        (b'"x":' + b"[" * 100_000, "nested too deep"),
        (b'"x":"\xff"}', "UTF-8"),
        (b'"x":' + b"9" * 5000 + b"}", "JSON"),
    ):
        with pytest.raises(DecodeError, match=told):
            sketches.loads(head + tail)
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"id":"a","arrive_ns":0}\n')
    with pytest.raises(DecodeError, match=r"log.jsonl: expected a file of sketches .*--sketches FILE writes one"):
        sketches.load(str(path))
    path.write_bytes(gzip.compress(text)[:-20])
    with pytest.raises(DecodeError, match="ends early or is damaged"):
        sketches.load(str(path))


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches.file, "MOST_BYTES", 10_000)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b" " * 1_000_000))
    with pytest.raises(DecodeError, match="at most 10,000 bytes"):
        sketches.load(str(path))
