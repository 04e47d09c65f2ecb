"""Our own request and event lines as `Records`, for whoever needs every value and not only counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from tokenpulse.readers.documents import Source
from tokenpulse.records import Records

FORMAT = "tokenpulse"


def recognises(keys: Set[str]) -> str | None:
    """Whether these keys are of a line of ours."""
    return FORMAT if keys & {"ev", "arrive_ns", "arrival_mono_ns"} else None


def read(source: Source) -> Iterator[Records]:
    """A file of our lines as one run."""
    raise NotImplementedError


def records(paths: Sequence[str]) -> Records:
    """Several files of our lines as one run."""
    raise NotImplementedError
