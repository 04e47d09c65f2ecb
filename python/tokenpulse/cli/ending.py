"""How a command ends: its result on standard output, on standard error what could not be used, and its status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Protocol, TypeVar

import click

from tokenpulse.cli import OK, UNUSABLE
from tokenpulse.grammar import parse_duration

MAX_NOTICES = 10


class Made(Protocol):
    """What every report can say of itself."""

    @property
    def unusable(self) -> int: ...
    @property
    def notices(self) -> Sequence[Mapping[str, Any]]: ...
    def to_dict(self) -> dict[str, Any]: ...


_Made = TypeVar("_Made", bound=Made)


def check_duration(option: str, text: str | None, parse: Callable[[str], int] = parse_duration) -> None:
    """ValueError that names the option, unless its text is a duration or not given."""
    if text is not None:
        try:
            parse(text)
        except ValueError as wrong:
            raise ValueError(f"{option}: {wrong}") from None


def check_file(option: str, path: str | None) -> None:
    """ValueError that names the option where its file is `-`: what goes to standard output is the report."""
    if path == "-":
        raise ValueError(f"{option}: standard output has the report; give the name of a file")


@contextmanager
def extras() -> Iterator[None]:
    """Where a library that is an extra is missing, its message is all there is to say."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if "pip install" not in str(missing):
            raise
        raise click.ClickException(str(missing)) from None


def conclude(context: click.Context, made: _Made, write: Callable[[_Made, IO[str]], None] | None, strict: bool) -> None:
    """Print the report, as tables by `write` or without it as JSON; warn; and exit."""
    if write is None:
        from tokenpulse.reporting.json import dumps

        sys.stdout.write(dumps(made) + "\n")
    else:
        write(made, sys.stdout)
    sys.stdout.flush()
    warn(made.unusable, made.notices)
    context.exit(UNUSABLE if strict and made.unusable else OK)


def warn(unusable: int, notices: Sequence[Mapping[str, Any]]) -> None:
    """Name the first lines and events that could not be used; nothing where all could."""
    if not unusable:
        return
    from tokenpulse.reporting.text import printable

    shown = notices[:MAX_NOTICES]
    what = "line or event" if unusable == 1 else "lines or events"
    print(f"tokenpulse: warning: {unusable:,} {what} could not be used", file=sys.stderr)
    for one in shown:
        line = "" if one["line"] is None else f":{one['line']}"
        place = f"{printable(one['path'])}{line}"
        print(f"  {place}: {one['reason']}: {printable(one['message'])}", file=sys.stderr)
    if unusable > len(shown):
        print(f"  ... and {unusable - len(shown):,} more", file=sys.stderr)
