"""The inputs of one report: told apart by what is in them, read where they are of other tools, and reduced together.

Our own lines go to the core as they are, in bounded memory. Rows of other tools and tables become columns for it. What
has figures only, or no latency at all, is kept beside. An input is read once, but for one of our own lines that is
reduced twice.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokenpulse import engine, readers, sketches
from tokenpulse.grammar import path_names
from tokenpulse.intake import unknown
from tokenpulse.model import LENGTH_KEYS, MAX_TIMELINE_BINS, SLO, TTL_NS, Reduction
from tokenpulse.readers import table
from tokenpulse.readers.table import Streamable, Table
from tokenpulse.records import Records, Summary, Workload

STDIN = "-"
IN_FLIGHT = 255
"""The status of a row of columns that does not end."""
NEVER_LOST = 2**63 - 1
EPOCH_NS = 10**18
"""A time from here on counts from 1970: on another clock it would be 31 years."""
COPIED = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How inputs are reduced."""

    slos: Sequence[SLO] = ()
    itl: str = "token"
    by: Sequence[str] = ()
    timeline_ns: int | None = None
    timeline_bins: int = MAX_TIMELINE_BINS
    ttl_ns: int = TTL_NS
    threads: int = 0
    progress: engine.Progress | None = None

    @property
    def labels(self) -> set[str]:
        """The labels that decide anything: those of groups and of SLO sets."""
        return {key for key in self.by if key not in LENGTH_KEYS}.union(*(slo.where for slo in self.slos))


@dataclass(kw_only=True)
class Part:
    """One input, or one run of an input that has several."""

    path: str
    """As the report names it."""
    content: Records | Summary | Workload | Table | None = None
    """None for our own lines, which are not read here."""
    source: str = ""
    """What the core opens, where `content` is None."""
    begins: bytes | None = None
    """What it begins with, where that is of no known format: the core says whether a later line is ours."""


@dataclass(kw_only=True)
class Intake:
    """The inputs of one report, in the order in which they were given."""

    parts: list[Part] = field(default_factory=list)
    heads: dict[str, bytes] = field(default_factory=dict)
    """Of sources that cannot be read again: what was read of them to tell their format."""

    @classmethod
    def of(cls, given: Any, stack: ExitStack, progress: engine.Progress | None = None, again: bool = False) -> Intake:
        """Tell the inputs apart, and read those that are not of our own lines.

        `stack` closes what must stay open as long as the intake is used; `again` says that it will be reduced more
        than once. Raises OSError for what cannot be read, FormatError for what has nothing that could be, ValueError
        for what must be read again and cannot.
        """
        intake = cls()
        for one in _inputs(given):
            if isinstance(one, str):
                intake._open(one, stack, progress)
            else:
                content = table.of(one)
                intake.parts.append(Part(path=content.name, content=content))
        if again and (once := intake._once()):
            raise ValueError(f"{once} can be read only once; from, to, steady and profile read it again")
        intake._refuse_mixtures()
        return intake

    def _open(self, path: str, stack: ExitStack, progress: engine.Progress | None) -> None:
        source, plain = path, b""
        if path == STDIN or _is_pipe(path):
            source, head = _head_of_stream(path, stack)
            plain = readers.head(head)
            if readers.detect(plain) in (None, readers.OWN):
                self.heads[source] = head
            else:
                source = _spooled(source, head, stack)
        elif not Path(path).is_dir():
            plain = readers.head(path)
        if sketches.is_sketches(plain):
            raise engine.FormatError(f"{path}: a file of sketches: tokenpulse merge and tokenpulse compare read it")
        found = readers.detect(plain)
        if found in (None, readers.OWN):
            self.parts.append(Part(path=path, source=source, begins=plain if found is None else None))
        elif found in (table.PARQUET, table.ARROW, table.CSV):
            self.parts.append(Part(path=path, content=table.read(source, name=path, format=found)))
        else:
            runs = readers.read(source, name=path, format=found, progress=progress)
            for run in runs:
                several = len(runs) > 1 and run.name
                self.parts.append(Part(path=f"{path} ({run.name})" if several else path, content=run))

    def _once(self) -> str | None:
        """What of it cannot be read a second time."""
        if STDIN in self.heads:
            return "standard input"
        for part in self.parts:
            if part.source in self.heads or (isinstance(part.content, Table) and part.content.once):
                return part.path
        return None

    def _refuse_mixtures(self) -> None:
        if self.workloads and len(self.workloads) < len(self.parts):
            trace = next(part for part in self.parts if isinstance(part.content, Workload))
            raise ValueError(f"{trace.path}: a trace has no latency and is reported on apart from logs")

    # What there is

    @property
    def own(self) -> list[Part]:
        """The inputs of our own lines."""
        return [part for part in self.parts if part.content is None]

    @property
    def records(self) -> list[Records]:
        return [part.content for part in self.parts if isinstance(part.content, Records)]

    @property
    def tables(self) -> list[Table]:
        return [part.content for part in self.parts if isinstance(part.content, Table)]

    @property
    def ours(self) -> bool:
        """Whether something of it has the fields of our log: it can tell whatever one can, and is on its clock."""
        return bool(self.own or self.tables)

    @property
    def summaries(self) -> list[Summary]:
        return [part.content for part in self.parts if isinstance(part.content, Summary)]

    @property
    def workloads(self) -> list[Workload]:
        return [part.content for part in self.parts if isinstance(part.content, Workload)]

    def itl_rule(self, asked: str) -> str:
        """The rule that all inputs can follow: where one has chunks of unknown size, a chunk is what can be counted."""
        return "chunk" if any(records.chunks_only for records in self.records) else asked

    # Reducing

    def reduce(self, settings: Settings, from_ns: int | None = None, to_ns: int | None = None) -> Reduction:
        """All inputs as one reduction; its inputs stand in the order given, each under its path."""
        reductions = []
        if self.own or not self.parts:
            reductions.append(self._reduce_own(settings, from_ns, to_ns))
        if len(self.own) < len(self.parts):
            reductions.append(self._reduce_columns(settings, from_ns, to_ns))
        reduction = reductions[0] if len(reductions) == 1 else _merged(reductions, settings)
        self._name_inputs(reduction)
        for records in self.records:
            for metric, values in records.pooled.items():
                # Values of requests that nobody named: the requests themselves do not lack them.
                reduction["total"]["latency"][metric].record_many(values)
                reduction["total"]["missing"].pop(metric, None)
        return reduction

    def _reduce_own(self, settings: Settings, from_ns: int | None, to_ns: int | None) -> Reduction:
        try:
            return engine.reduce_paths(
                [part.source for part in self.own],
                settings.slos,
                settings.itl,
                settings.by,
                settings.timeline_ns,
                settings.ttl_ns,
                settings.progress,
                from_ns=from_ns,
                to_ns=to_ns,
                timeline_bins=settings.timeline_bins,
                threads=settings.threads,
                heads=self.heads or None,
            )
        except engine.FormatError as wrong:
            for part in self.own:
                if part.begins is not None and str(wrong).startswith(f"{part.source}: "):
                    found = unknown.found(part.begins)
                    raise engine.FormatError(f"{part.path}: {unknown.EXPECTED}; found {found}") from None
            raise

    def _reduce_columns(self, settings: Settings, from_ns: int | None, to_ns: int | None) -> Reduction:
        # No request of a trace ends, and none is lost for it.
        ttl_ns = NEVER_LOST if self.workloads else settings.ttl_ns
        reducer = engine.ColumnReducer(
            settings.slos,
            settings.itl,
            settings.by,
            settings.timeline_ns,
            ttl_ns,
            from_ns=from_ns,
            to_ns=to_ns,
            timeline_bins=settings.timeline_bins,
        )
        for number, part in enumerate(self.parts):
            name, content = _column_name(number), part.content
            if isinstance(content, Table):
                content.reduce_into(reducer, name, settings.labels)
            elif isinstance(content, (Records, Workload)):
                columns = content.columns() if isinstance(content, Records) else trace_columns(content)
                reducer.requests(name, content.format, columns)
        return reducer.finish()

    def _name_inputs(self, reduction: Reduction) -> None:
        """Inputs in the order given, under the paths of their parts, with what their readers left out."""
        numbers = {_column_name(number): part for number, part in enumerate(self.parts) if part.content is not None}
        columns = {one["path"]: one for one in reduction["inputs"] if one["path"] in numbers}
        own = iter([one for one in reduction["inputs"] if one["path"] not in numbers])
        names = {part.source: part.path for part in self.own} | {name: part.path for name, part in numbers.items()}
        notices = [{**one, "path": names[one["path"]]} for one in reduction["notices"]]
        inputs = []
        for number, part in enumerate(self.parts):
            if part.content is None:
                inputs.append({**next(own), "path": part.path})
            else:
                inputs.append(_input_of(part, columns.get(_column_name(number))))
                notices += [dict(notice) for notice in part.content.notices]
        reduction["inputs"], reduction["notices"] = inputs, notices


def _column_name(number: int) -> str:
    """What the core knows a part's columns by; no path has a NUL."""
    return f"\0{number}"


def _input_of(part: Part, counted: Mapping[str, Any] | None) -> dict[str, Any]:
    """A part that was read here, as the report's `inputs` tell it."""
    content = part.content
    assert content is not None
    skipped = dict(content.skipped)
    for reason, times in (counted["skipped"] if counted else {}).items():
        skipped[reason] = skipped.get(reason, 0) + times
    none = None if isinstance(content, Summary) else 0
    told = {
        "path": part.path,
        "format": content.format,
        "lines": counted["lines"] if counted else none,
        "requests": counted["requests"] if counted else none,
        "skipped": skipped,
    }
    if isinstance(content, Records):
        told["warmup"] = None if content.warmup is None else int(content.warmup.sum())
    return told


def trace_columns(trace: Workload) -> dict[str, Any]:
    """A trace's requests as columns for the core: none of them ends, for the trace does not say when or how."""
    return {
        "arrive_ns": np.ascontiguousarray(trace.arrive_ns),
        "prompt_tokens": np.ascontiguousarray(trace.prompt_tokens),
        "output_tokens": np.ascontiguousarray(trace.output_tokens),
        "status": np.full(len(trace), IN_FLIGHT, np.uint8),
        **({"labels": trace.labels} if trace.labels else {}),
    }


def _merged(reductions: Sequence[Reduction], settings: Settings) -> Reduction:
    return sketches.merge_reductions(reductions, timeline_bins=settings.timeline_bins)


def _inputs(given: Any) -> Iterator[str | Streamable]:
    """Names and tables, from one of them or several."""
    several: Any = [given] if isinstance(given, (str, os.PathLike, bytes, Streamable)) else given
    if not isinstance(several, Iterable):
        path_names(several)
    several = list(several)
    paths = [one for one in several if not isinstance(one, Streamable)]
    names = iter(path_names(paths) if paths or not several else ())
    for one in several:
        yield one if isinstance(one, Streamable) else next(names)


def _is_pipe(path: str) -> bool:
    """Whether reading a path's beginning takes it away."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False  # whoever opens it says why
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISBLK(mode))


def _head_of_stream(path: str, stack: ExitStack) -> tuple[str, bytes]:
    """What a stream begins with, as far as it takes to tell its format, and the name under which the rest is read."""
    if path == STDIN:
        descriptor, source = 0, STDIN
    else:
        descriptor = os.open(path, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        source = f"/dev/fd/{descriptor}"
    head, asked = b"", readers.HEAD
    while readers.detect(readers.head(head)) is None:
        if len(head) >= asked:
            if not readers.needs_more(readers.head(head)):
                break
            asked = 4 * len(head)
        # As it comes where a line may tell it; past that in ever larger pieces, each of which is looked through.
        block = os.read(descriptor, readers.HEAD)
        while asked > readers.HEAD and len(head) + len(block) < asked and (more := os.read(descriptor, readers.HEAD)):
            block += more
        if not block:
            break
        head += block
    return source, head


def _spooled(source: str, head: bytes, stack: ExitStack) -> str:
    """A file with what was read of a stream and the rest of it."""
    spool = tempfile.NamedTemporaryFile(prefix="tokenpulse-")  # noqa: SIM115 (the stack closes it)
    stack.callback(spool.close)
    spool.write(head)
    descriptor = 0 if source == STDIN else int(source.rpartition("/")[2])
    while block := os.read(descriptor, COPIED):
        spool.write(block)
    spool.flush()
    return spool.name
