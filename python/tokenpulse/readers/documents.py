"""How readers get at JSON: line by line, element by element, or as a whole where a document is small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenpulse.engine import FormatError, Progress
from tokenpulse.readers._interim import JsonDocument
from tokenpulse.readers.rows import Faults, UnreadableError, obj, parse

_BETWEEN_PROGRESS = 256
"""Parts of a document between two calls of a source's `progress`."""


@dataclass(frozen=True)
class Source:
    """What is read: a path or bytes, and the name under which faults are reported."""

    where: str | bytes
    name: str
    progress: Progress | None = None

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
        return JsonDocument(
            self.where, name=self.name, select=select, columns=columns, integers=integers, skip=skip, lines=lines
        )

    def parts(self, document: JsonDocument) -> Iterator[tuple[str, tuple[int, ...], Any]]:
        """The document's parts, telling how far it is."""
        for place, part in enumerate(document):
            if self.progress is not None and place % _BETWEEN_PROGRESS == 0:
                self.progress(document.bytes_read, document.size or 0)
            yield part


def json_lines(source: Source, faults: Faults) -> Iterator[tuple[int, Any]]:
    """Each line's value with the line's number; a line that is no JSON is skipped and counted."""
    document = source.document(select=["$"], lines=True)
    while True:
        try:
            for _, _, text in source.parts(document):
                try:
                    value = parse(text)
                except UnreadableError as error:
                    faults.skip(document.line, error.reason, str(error))
                    continue
                yield document.line, value
            return
        except FormatError as error:
            reason = str(getattr(error, "reason", "not_json"))
            faults.skip(getattr(error, "line", None), reason, str(error))
            if reason == "truncated" or not document.skip_line():
                return


def elements(
    source: Source,
    faults: Faults,
    select: Sequence[str],
    *,
    columns: Sequence[str] = (),
    integers: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> Iterator[tuple[str, tuple[int, ...], Any]]:
    """What is selected, parsed; a fault of the document ends it, is counted, and what came before is kept."""
    document = source.document(select=select, columns=columns, integers=integers, skip=skip)
    given = False
    try:
        for path, at, value in source.parts(document):
            given = True
            yield path, at, parse(value) if isinstance(value, bytes) else value
    except FormatError as error:
        if not given:
            raise
        faults.skip(getattr(error, "line", None), str(getattr(error, "reason", "not_json")), str(error))


def one_document(source: Source) -> dict[str, Any]:
    """A document that is one object and small enough to be held. Raises UnreadableError and FormatError."""
    for _, _, text in source.document(select=["$"]):
        return obj(parse(text), "the document")
    raise UnreadableError("missing_field", "expected a JSON object, got nothing")
