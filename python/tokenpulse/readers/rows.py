"""What the readers share: values out of JSON with their type checked, columns that grow row by row, faults by reason.

A row at fault is left out whole and counted; the first few are kept as notices that say what was expected and what
came. Memory is eight bytes a number; no object a row is kept.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpulse.model import STATUSES
from tokenpulse.records import ABSENT, Floats, Ints, Labels, Ragged, Records

NAN = float("nan")
NOTICES = 5
"""Notices an input keeps."""
MAX_TOKENS = 2**40
MAX_TIME = 2**63 - 1
MAX_SECONDS = 9.2e9
"""What has more has no 64 bits of nanoseconds; 292 years."""
STATUS = {name: place for place, name in enumerate(STATUSES)}

_NUMBER = re.compile(r"-?[0-9]{1,300}(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?")

UNTRACED = "the tool records nothing of what the server does inside"
"""Why a client's file has no queue, scheduling and prefill time."""
SERVER_SIDE = {f"latency.{metric}": UNTRACED for metric in ("queue", "scheduling", "prefill", "preemption_stall")}


class UnreadableError(Exception):
    """A value that cannot be read: the reason it is counted under, and what was expected and what came."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Faults:
    """The rows of an input that were left out, by reason, and the first of each run in words."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.skipped: dict[str, int] = {}
        self.notices: list[dict[str, Any]] = []

    def skip(self, place: int | None, reason: str, message: str) -> None:
        """A row is left out. `place` is its line, or its number from 1 in a document."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1
        self.note(place, reason, message)

    def note(self, place: int | None, reason: str, message: str) -> None:
        """Something to be known about a row, which is not left out for it."""
        if len(self.notices) < NOTICES:
            self.notices.append({"path": self.path, "line": place, "reason": reason, "message": message})

    def taken(self) -> dict[str, Any]:
        """What was left out since the last call, as `skipped` and `notices` of the run that it belongs to."""
        given = {"skipped": self.skipped, "notices": self.notices}
        self.skipped, self.notices = {}, []
        return given

    def end(self) -> None:
        """Nothing came after the last run: a fault there is no run of its own, but the end of the reading."""
        if self.skipped:
            raise UnreadableError(next(iter(self.skipped)), self.notices[0]["message"])


def brief(value: Any) -> str:
    """A value as it stands in a message: JSON, cut short."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def clean(text: str) -> str:
    """Text that can be written again: half of a surrogate pair, which JSON can hold, becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def parse(text: bytes) -> Any:
    """A JSON value; bare NaN and Infinity pass, of a key given twice the last counts.

    Raises UnreadableError with the reasons `not_utf8`, `not_json` and `too_deep`.
    """
    try:
        return json.loads(text)
    except UnicodeDecodeError as error:
        raise UnreadableError("not_utf8", f"expected UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise UnreadableError("too_deep", "nested too deep to be read") from None
    except ValueError as error:
        raise UnreadableError("not_json", f"expected JSON: {error}") from None


def obj(value: Any, name: str) -> dict[str, Any]:
    """An object. Raises UnreadableError for anything else."""
    if isinstance(value, dict):
        return value
    if value is None:
        raise UnreadableError("missing_field", f"{name}: expected an object, got nothing")
    raise UnreadableError("wrong_type", f"{name}: expected an object, got {brief(value)}")


def whole(value: Any, name: str) -> dict[str, Any]:
    """A row that is an object; one that is none is counted as `not_object`, as a line of ours would be."""
    if not isinstance(value, dict):
        raise UnreadableError("not_object", f"{name}: expected an object, got {brief(value)}")
    return value


def optional(value: Any, name: str) -> dict[str, Any]:
    """An object, empty where there is none."""
    return {} if value is None else obj(value, name)


def number(value: Any, name: str) -> float:
    """A number, also one in quotes; NaN where there is none. Raises for an infinite one: no duration or time is."""
    if value is None:
        return NAN
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise UnreadableError("wrong_type", f"{name}: expected a number, got {brief(value)}") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnreadableError("wrong_type", f"{name}: expected a number, got {brief(value)}")
    try:
        known = float(value)
    except OverflowError:
        raise UnreadableError("bad_value", f"{name}: expected a number that fits 64 bits, got {brief(value)}") from None
    if math.isinf(known):
        raise UnreadableError("bad_value", f"{name}: expected a finite number, got {known}")
    return known


def seconds(value: Any, name: str) -> float:
    """A duration of 0 or more whose nanoseconds fit 64 bits, or NaN."""
    known = number(value, name)
    if known < 0 or known >= MAX_SECONDS:
        raise UnreadableError("bad_value", f"{name}: expected a duration of 0 or more, got {known!r}")
    return known


def point(value: Any, name: str) -> float:
    """A point in time in seconds on any clock, whose nanoseconds fit 64 bits; NaN where there is none."""
    known = number(value, name)
    if not math.isnan(known) and not 0 <= known < MAX_SECONDS:
        raise UnreadableError("bad_value", f"{name}: expected a time in seconds, got {known!r}")
    return known


def integer(value: Any, name: str, limit: int = MAX_TOKENS) -> int:
    """A whole number from 0 to `limit`, also in quotes or as an integral float; `ABSENT` where there is none."""
    if value is None:
        return ABSENT
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            value = number(value, name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnreadableError("wrong_type", f"{name}: expected a whole number, got {brief(value)}")
    if isinstance(value, float):
        if math.isnan(value):
            return ABSENT
        if not value.is_integer():  # Infinity neither
            raise UnreadableError("bad_value", f"{name}: expected a whole number, got {value!r}")
    whole = int(value)
    if not 0 <= whole <= limit:
        raise UnreadableError("bad_value", f"{name}: expected a whole number from 0 to {limit}, got {whole}")
    return whole


def numbers(value: Any, name: str) -> array[float]:
    """An array of finite numbers; null is no member of it, and refused."""
    if not isinstance(value, list):
        raise UnreadableError("wrong_type", f"{name}: expected an array of numbers, got {brief(value)}")
    try:
        column = array("d", value)
    except TypeError:
        column = array("d", [number(member, f"{name}[{place}]") for place, member in enumerate(value)])
    except OverflowError:
        raise UnreadableError("bad_value", f"{name}: expected numbers that fit 64 bits") from None
    if len(column) and not np.isfinite(np.frombuffer(column)).all():
        raise UnreadableError("bad_value", f"{name}: expected finite numbers, got {brief(value)}")
    return column


def gaps(value: Any, name: str) -> array[float]:
    """An array of durations of 0 or more."""
    column = numbers(value, name)
    if len(column) and min(column) < 0:
        raise UnreadableError("bad_value", f"{name}: expected durations of 0 or more, got {min(column)!r}")
    return column


class RaggedColumn:
    """A column of lists that grows row by row."""

    def __init__(self, code: str = "d") -> None:
        self.code = code
        self.values: array[Any] = array(code)
        self.ends = array("q", [0])

    def append(self, row: Iterable[Any]) -> None:
        self.values.extend(row)
        self.ends.append(len(self.values))

    def finish(self) -> Ragged:
        return Ragged(values=np.array(self.values), offsets=np.array(self.ends, np.int64))


class OwnColumns:
    """The tool's own figures by key: a key may appear in any row, and is NaN in the others."""

    def __init__(self) -> None:
        self.columns: dict[str, array[float]] = {}
        self.rows = 0

    def append(self, figures: Mapping[str, float]) -> None:
        """One row's figures."""
        for name, figure in figures.items():
            column = self.columns.setdefault(name, array("d"))
            column.extend([NAN] * (self.rows - len(column)))
            column.append(figure)
        self.rows += 1

    def finish(self) -> dict[str, Floats]:
        for column in self.columns.values():
            column.extend([NAN] * (self.rows - len(column)))
        return {name: np.array(column) for name, column in self.columns.items()}


class LabelColumns:
    """Labels by key, as codes into the values in order of first appearance."""

    def __init__(self) -> None:
        self.codes: dict[str, array[int]] = {}
        self.values: dict[str, dict[str, int]] = {}
        self.rows = 0

    def append(self, labels: Mapping[str, Any]) -> None:
        """One row's labels; what is neither text nor an integer or boolean is no label."""
        for key, value in labels.items():
            name = clean(key)
            if isinstance(value, bool):
                value = "true" if value else "false"
            if not isinstance(value, (str, int)):
                continue
            codes = self.codes.setdefault(name, array("i"))
            known = self.values.setdefault(name, {})
            codes.extend([-1] * (self.rows - len(codes)))
            codes.append(known.setdefault(clean(str(value)), len(known)))
        self.rows += 1

    def finish(self) -> Labels:
        for codes in self.codes.values():
            codes.extend([-1] * (self.rows - len(codes)))
        return {name: (np.array(codes, np.int32), list(self.values[name])) for name, codes in self.codes.items()}


def floats(column: Sequence[float] | array[float]) -> Floats:
    """A column of numbers, NaN where absent."""
    return np.array(column, np.float64)


def ints(column: Sequence[int] | array[int]) -> Ints:
    """A column of whole numbers, `ABSENT` where absent."""
    return np.array(column, np.int64)


def statuses(column: Sequence[int] | bytes | bytearray) -> NDArray[np.uint8]:
    """A column of places in `model.STATUSES`."""
    return np.array(list(column), np.uint8)


def scalars(value: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of an object by key, as floats, also those in quotes; anything else is left out.

    >>> scalars({"a": 1, "b": "2.5", "c": "2.5 s", "d": True, "e": None}, "x.")
    {'x.a': 1.0, 'x.b': 2.5}
    """
    found: dict[str, float] = {}
    for key, member in value.items():
        if isinstance(member, bool):
            continue
        if isinstance(member, (int, float)) or (isinstance(member, str) and _NUMBER.fullmatch(member)):
            try:
                found[prefix + key] = float(member)
            except OverflowError:
                continue
    return found


def failed_status(code: Any) -> int:
    """The status of a failed request: `timeout` where the code is HTTP's for it (408, 504), else `error`."""
    return STATUS["timeout"] if str(code) in ("408", "504") else STATUS["error"]


def unique(ids: list[str | None]) -> list[str] | None:
    """The ids if every row has one of its own, else None: rows are then known by their numbers."""
    known = [clean(name) for name in ids if name is not None]
    return known if len(known) == len(ids) == len(set(known)) else None


def uncounted(output: Ints, status: NDArray[np.uint8]) -> dict[str, str]:
    """What a file cannot give where no request that succeeded has a count of its tokens, and why."""
    succeeded = np.isin(status, (STATUS["stop"], STATUS["length"]))
    if not succeeded.any() or (output[succeeded] != ABSENT).any():
        return {}
    return dict.fromkeys(("tokens.output", "latency.tpot"), "the file does not have the outputs' lengths")


def unsummed(records: Records, faults: Faults) -> None:
    """Notes rows whose first token and gaps do not add up to their last token: the gaps are then not all."""
    if records.gaps is None or not len(records):
        return
    sums = np.zeros(len(records))
    np.add.at(sums, records.gaps.rows, records.gaps.values)
    off = (records.gaps.lengths > 0) & (np.abs(records.ttft + sums - records.e2e) > 1e-6)
    if off.any():
        row = int(np.argmax(off))
        faults.note(
            row + 1,
            "bad_value",
            f"{int(off.sum())} rows whose TTFT and gaps do not add up to the last token's time; the first has "
            f"{records.ttft[row] + sums[row]:.6f} s of {records.e2e[row]:.6f} s",
        )


def nothing(column: Floats) -> bool:
    """Whether a column has no number at all."""
    return bool(np.isnan(column).all())
