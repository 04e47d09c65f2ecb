"""How readers get at a file: JSON by line, by element or whole where it is small, and text by line.

A fault of the text ends the reading of a document, or of a line; it is counted, and what came before is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tokenpulse.engine import DecodeError, FormatError, JsonDocument, PlainBytes, Progress
from tokenpulse.readers.rows import Faults, UnreadableError, obj, parse, whole

FAULTS = (FormatError, DecodeError)
"""What the core raises for a text that is no JSON, or a compressed one that is damaged."""

_BETWEEN_PROGRESS = 256
"""Parts of a document between two calls of a source's `progress`."""
_LONGEST_LINE = 64 << 20

Shape: TypeAlias = Literal["usual", "array", "rows", "values"]
"""How the values of a file stand in it: as its tool writes them; as the elements of one array instead of one after the
other; one after the other instead of as the elements of an array; or one after the other on many lines each."""


def shape_of(head: bytes, *, in_array: bool) -> Shape:
    """How the values of a file stand in it that begins so, where its tool writes them `in_array` or one after another.

    >>> shape_of(b'[{"a": 1}]', in_array=True), shape_of(b'[{"a": 1}]', in_array=False)
    ('usual', 'array')
    >>> shape_of(b'{"a": 1}', in_array=True), shape_of(b'{"a":\\n 1}', in_array=False)
    ('rows', 'values')
    """
    text = head.decode("utf-8-sig", errors="replace").lstrip()
    if in_array:
        return "rows" if text.startswith("{") else "usual"
    if text.startswith("["):
        return "array"
    line, newline, _ = text.partition("\n")
    if not newline:
        return "usual"
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return "values" if line.strip() == "{" else "usual"
    return "values" if end > len(line) else "usual"


@dataclass(frozen=True)
class Source:
    """What is read: a path or bytes, the name under which faults are reported, and how its values stand in it.

    Whatever the shape, a reader asks for parts, and gets them, by the paths of a file as its tool writes it.
    """

    where: str | bytes
    name: str
    progress: Progress | None = None
    shape: Shape = "usual"

    def document(
        self,
        *,
        select: Sequence[str] = (),
        columns: Sequence[str] = (),
        integers: Sequence[str] = (),
        skip: Sequence[str] = (),
        lines: bool = False,
    ) -> JsonDocument:
        """The source as a stream of JSON parts."""
        select, columns, integers, skip = (
            [self._there(path) for path in paths] for paths in (select, columns, integers, skip)
        )
        return JsonDocument(
            self.where,
            name=self.name,
            select=select,
            columns=columns,
            integers=integers,
            skip=skip,
            lines=lines and self.shape == "usual",
        )

    def parts(self, document: JsonDocument) -> Iterator[tuple[str, tuple[int, ...], Any]]:
        """The document's parts, telling how far it is."""
        for place, (path, at, value) in enumerate(document):
            if place % _BETWEEN_PROGRESS == 0:
                self.tell(document)
            yield self._here(path), at, value

    def _there(self, path: str) -> str:
        """A reader's path as it is in the file."""
        if self.shape == "array":
            return "[*]" if path == "$" else f"[*].{path}"
        if self.shape == "rows":
            return "$" if path == "[*]" else path.removeprefix("[*].")
        return path

    def _here(self, path: str) -> str:
        """A path in the file as the reader knows it."""
        if self.shape == "array":
            return "$" if path == "[*]" else path.removeprefix("[*].")
        if self.shape == "rows":
            return "[*]" if path == "$" else f"[*].{path}"
        return path

    def tell(self, reading: JsonDocument | PlainBytes) -> None:
        """Calls `progress`, if there is one."""
        if self.progress is not None:
            self.progress(reading.bytes_read, reading.size or 0)

    def text_lines(self, faults: Faults) -> Iterator[str]:
        """The source's lines as text, each with its newline; what is not UTF-8 stands as replacement characters."""
        reading, rest = PlainBytes(self.where, name=self.name), b""
        try:
            for block in reading:
                self.tell(reading)
                *lines, rest = (rest + block).split(b"\n")
                if len(rest) > _LONGEST_LINE:
                    raise UnreadableError("too_long", f"expected lines of at most {_LONGEST_LINE} bytes")
                for line in lines:
                    yield line.decode("utf-8-sig", errors="replace") + "\n"
        except FAULTS as error:
            faults.skip(None, reason_of(error), str(error))
            return
        if rest:
            yield rest.decode("utf-8-sig", errors="replace")


def reason_of(error: Exception) -> str:
    """The reason a fault of the text is counted under."""
    return str(getattr(error, "reason", "not_json"))


def _lines(source: Source, faults: Faults, document: JsonDocument) -> Iterator[tuple[str, Any]]:
    """The parts of a document of lines; a line that is no JSON is skipped, and ends with an item of no path."""
    while True:
        try:
            for path, _, value in source.parts(document):
                yield path, value
            return
        except FAULTS as error:
            faults.skip(getattr(error, "line", None), reason_of(error), str(error))
            if source.shape != "usual" or isinstance(error, DecodeError):
                return
            document.skip_line()
            yield "", None


def each_line(source: Source, faults: Faults, take: Callable[[dict[str, Any]], None]) -> None:
    """Give `take` each line's object; one that is none, or that it cannot read, is skipped and counted."""
    for line, value in json_lines(source, faults):
        try:
            take(whole(value, "a line"))
        except UnreadableError as fault:
            faults.skip(line, fault.reason, str(fault))


def json_lines(source: Source, faults: Faults) -> Iterator[tuple[int, Any]]:
    """Each line's value with the line's number; a line that is no JSON is skipped and counted."""
    document = source.document(select=["$"], lines=True)
    for path, text in _lines(source, faults, document):
        if not path:
            continue
        try:
            value = parse(text)
        except UnreadableError as error:
            faults.skip(document.line, error.reason, str(error))
            continue
        yield document.line, value


def lines_in_parts(
    source: Source,
    faults: Faults,
    *,
    select: Sequence[str] = (),
    columns: Sequence[str] = (),
    integers: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """Each line's parts by path, `$` what is left of it; a line that is no JSON is skipped and counted."""
    document = source.document(select=["$", *select], columns=columns, integers=integers, skip=skip, lines=True)
    parts: dict[str, Any] = {}
    for path, value in _lines(source, faults, document):
        parts[path] = value
        if path in ("$", ""):
            if path:
                yield parts
            parts = {}


def elements(
    source: Source,
    faults: Faults,
    select: Sequence[str],
    *,
    skip: Sequence[str] = (),
) -> Iterator[tuple[str, tuple[int, ...], Any]]:
    """What is selected, parsed; a fault of the document ends it, is counted, and what came before is kept.

    Of a key given twice the last counts: what was selected under the first is followed by an item whose value is
    `FORGET`.
    """
    document = source.document(select=select, skip=skip)
    given = False
    try:
        for path, at, value in source.parts(document):
            given = True
            if value is None:
                if any(f"{wanted}.".startswith((f"{path}.", f"{path}[")) for wanted in select):
                    yield path, at, FORGET
                continue
            try:
                known = parse(value) if isinstance(value, bytes) else value
            except UnreadableError as error:
                faults.skip(document.line, error.reason, str(error))
                continue
            yield path, at, known
    except FAULTS as error:
        if not given:
            raise
        faults.skip(getattr(error, "line", None), reason_of(error), str(error))


class Forget:
    """The value of an item that takes back what came before under its path."""


FORGET = Forget()


def documents(source: Source) -> Iterator[dict[str, Any]]:
    """Each document, where they are objects and small enough to be held. Raises UnreadableError and FormatError."""
    for path, _, text in source.parts(source.document(select=["$"])):
        if path == "$":
            yield obj(parse(text), "the document")
