"""Any input through a meter of its own, moment after moment: logs as they stand, other tools' files by their requests.

What a live engine's meter would have said a log's meter says, so whatever judges the one judges the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from tokenpulse import engine
from tokenpulse.grammar import Path, path_names
from tokenpulse.intake import Intake, unknown
from tokenpulse.meter import Meter
from tokenpulse.readers.table import Table
from tokenpulse.records import Records

SECOND_NS = 1_000_000_000


def replay(
    path: Path,
    make: Callable[[str | None], Meter],
    on_pane: Callable[[Meter, int], None],
    *,
    every_ns: int = SECOND_NS,
    by: Iterable[str] = (),
    progress: engine.Progress | None = None,
) -> dict[str, Any]:
    """Put one input through a meter and call `on_pane(meter, t_ns)` at every multiple of `every_ns` and at the end.

    At a multiple it is called before what happens then; where that is the end, once more after it.

    `make` makes the meter, once it is known what the input is: it is given the ITL rule that the input forces (`chunk`,
    where its chunks are of unknown size), or None. A log of event lines is read in bounded memory; request lines, and
    requests of other tools and of tables, are held. Returns what `engine.replay` does: `inputs`, `notices`, `first_ns`,
    `newest_ns`, `machine`.

    Raises OSError for a file that cannot be read, FormatError for one of unknown format, and ValueError for one that
    does not tell when each request came and what became of it, such as summaries and traces, and for one that holds
    several runs.
    """
    (name,) = path_names(path)
    with ExitStack() as stack:
        intake = Intake.of(name, stack, progress)
        if len(intake.parts) != 1:
            raise ValueError(f"{name}: expected one run, found {len(intake.parts)}")
        (part,) = intake.parts
        content = part.content.records() if isinstance(part.content, Table) else part.content
        if content is not None and not isinstance(content, Records):
            kind = "a trace, which has no latency" if intake.workloads else "figures only"
            raise ValueError(f"{name}: expected what became of each request, found {kind}")
        if content is not None and content.arrive_ns is None:
            raise ValueError(f"{name}: expected when each request arrived, which this file does not say")
        meter = make("chunk" if content is not None and content.chunks_only else None)

        def pane(t_ns: int) -> None:
            on_pane(meter, t_ns)

        if content is None:
            head = intake.heads.get(part.source)
            try:
                told = engine.replay(
                    meter, part.source, every_ns=every_ns, by=tuple(by), on_pane=pane, progress=progress, head=head
                )
            except engine.FormatError:
                if part.begins is None:
                    raise
                found = unknown.found(part.begins)
                raise engine.FormatError(f"{part.path}: {unknown.EXPECTED}; found {found}") from None
        else:
            told = engine.replay_columns(meter, content.columns(), every_ns=every_ns, by=tuple(by), on_pane=pane)
        newest_ns = told["newest_ns"]
        if newest_ns is not None and newest_ns % every_ns == 0:
            on_pane(meter, newest_ns)  # that moment was told of before what happened at it
        return told | _named(told, part.path, content)


def _named(told: dict[str, Any], path: str, content: Records | None) -> dict[str, Any]:
    """Inputs and notices under the input's own name, with what its reader left out."""
    inputs = [{**one, "path": path} for one in told["inputs"]]
    notices = [{**one, "path": path} for one in told["notices"]]
    if content is not None:
        for one in inputs:
            one["format"] = content.format
            one["skipped"] = _added(content.skipped, one["skipped"])
        notices += [dict(one) for one in content.notices]
    return {"inputs": inputs, "notices": notices}


def _added(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}
