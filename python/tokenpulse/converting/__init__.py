"""Runs of any reader as our own lines or as Parquet, with each request's verdicts and cost where they are asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tokenpulse import compressed, engine
from tokenpulse.analysis.cost import COST_BY, Price
from tokenpulse.converting import parquet
from tokenpulse.converting.lines import Writer
from tokenpulse.converting.rows import Rows
from tokenpulse.converting.verdicts import GOOD, costs, verdicts
from tokenpulse.grammar import Path, duration_ns, slo_sets
from tokenpulse.intake import Intake
from tokenpulse.intake.inputs import Part, trace_columns
from tokenpulse.model import DAY_NS, ITL_RULES, SLO
from tokenpulse.readers import own, table_rows
from tokenpulse.readers.table import Table
from tokenpulse.records import Records, Summary, Workload

__all__ = ["COST_BY", "Converted", "convert"]

STDOUT = "-"


@dataclass(frozen=True, kw_only=True)
class Converted:
    """What was written, and what the file cannot say."""

    output: str
    requests: int
    """Rows that were written."""
    good: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each SLO set: good requests, and judged ones."""
    cost: float | None = None
    """Of the whole run, in the currency of the price; None where it was not asked for or there is no time."""
    cost_by: str | None = None
    notes: list[str] = field(default_factory=list)
    """Where the file says less, or something else, than what it was made from."""
    inputs: list[dict[str, Any]] = field(default_factory=list)
    notices: list[dict[str, Any]] = field(default_factory=list)

    @property
    def unusable(self) -> int:
        """How many lines and rows were skipped, and events refused."""
        return sum(sum(one["skipped"].values()) + sum(one["rejected"].values()) for one in self.inputs)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `tokenpulse convert --json` prints."""
        return {
            "schema": "tokenpulse.convert/1",
            "output": self.output,
            "requests": self.requests,
            "good": {name: {"good": good, "judged": judged} for name, (good, judged) in self.good.items()},
            "cost": self.cost,
            "cost_by": self.cost_by,
            "notes": self.notes,
            "inputs": self.inputs,
        }


def convert(
    paths: Path | Iterable[Path],
    output: Path,
    *,
    slo: SLO | str | Iterable[SLO | str] | None = None,
    itl: str = "token",
    gpu_hour: float | None = None,
    gpus: float | None = None,
    cost_by: str | None = None,
    ttl: str | float = "1h",
    progress: engine.Progress | None = None,
) -> Converted:
    """Write logs, files of other tools or tables as our own lines, or as Parquet where `output` ends in `.parquet`.

    Lines are compressed where the name ends in `.gz` or `.zst`; `"-"` is standard output. Several inputs become one
    file, one after the other. `slo`: each request bears the verdict of each set, as `verdict.NAME`: `good`, the limits
    it missed, or its status; judged under the rule `itl`.
    `gpu_hour`: the price of a GPU for an hour; each request bears its part of what `gpus` of them, by default one, cost
    from the first arrival to the last token, as `cost.output`, `cost.total` or `cost.busy`: by output tokens (the
    default), all tokens, or busy time, as `cost_by` says; the rule is that of a report's `cost`.
    `ttl`: the silence after which a request that did not end is lost.

    Raises as `report` does, and ValueError for what has no requests, or more than fit into memory (200 million tokens).
    """
    target = os.fspath(output)
    sets = slo_sets(slo)
    if itl not in ITL_RULES:
        raise ValueError(f"itl must be one of {', '.join(ITL_RULES)}, got {itl!r}")
    price = Price.of(gpu_hour, gpus, cost_by)
    _check(target)
    whole = isinstance(paths, (str, os.PathLike)) or not isinstance(paths, Iterable)
    several: list[Any] = [paths] if whole else list(paths)  # type: ignore[arg-type]
    compressed.check_output(target, [os.fspath(one) for one in several if isinstance(one, (str, os.PathLike))])
    ttl_ns = duration_ns(ttl)
    with ExitStack() as stack:
        intake = Intake.of(several, stack, progress)
        rule = intake.itl_rule(itl)
        read = [_rows(part, intake, ttl_ns, progress) for part in intake.parts]
        unjudged = [_unjudged(part) for part in intake.parts]
    every = [rows for rows, _ in read]
    extra: list[dict[str, Sequence[Any]]] = [{} for _ in every]
    good = {slo.name: _judge(every, extra, slo, rule, unjudged) for slo in sets}
    cost = None if price is None else _cost(every, extra, price)
    notes = [*_clocks(intake), *_notes(every, parquet.is_parquet(target)), *_pooled(intake.parts)]
    if sets:
        notes += [f"{rows.path}: no verdicts: {why}" for rows, why in zip(every, unjudged, strict=True) if why]
    if price is not None and cost is None:
        notes.append("no cost: there is no time from the first arrival to the last token, or nothing to share it by")
    _write(target, every, extra)
    return Converted(
        output=target,
        requests=sum(len(rows) for rows in every),
        good=good,
        cost=cost,
        cost_by=None if price is None else price.by,
        notes=notes,
        inputs=[told for _, told in read],
        notices=[dict(notice) for _, told in read for notice in told.pop("notices")],
    )


def _check(target: str) -> None:
    if parquet.is_parquet(target):
        parquet.check()
    elif not target.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")) and target != STDOUT:
        raise ValueError(f"a file to write must end in .jsonl, .jsonl.gz, .jsonl.zst or .parquet, got {target!r}")
    compressed.check(target)


def _rows(part: Part, intake: Intake, ttl_ns: int, progress: engine.Progress | None) -> tuple[Rows, dict[str, Any]]:
    """The rows of one input, and what is to be said of it."""
    content = part.content
    if isinstance(content, Summary):
        raise ValueError(f"{part.path}: the file has the tool's figures only, no requests to convert")
    if content is None:
        heads = {part.source: intake.heads[part.source]} if part.source in intake.heads else None
        found = engine.read_rows([part.source], ttl_ns, max_tokens=own.MAX_TOKENS, progress=progress, heads=heads)
        (one,) = found["inputs"]
        notices = [{**notice, "path": part.path} for notice in found["notices"]]
        told = {"path": part.path, "format": one["format"], "skipped": one["skipped"], "rejected": found["rejected"]}
        return Rows.of(part.path, found), {**told, "notices": notices}
    told = {"path": part.path, "format": content.format, "rejected": {}}
    if isinstance(content, Table):
        found = table_rows.rows(content)
        (one,) = found["inputs"]
        told |= {"skipped": one["skipped"], "rejected": found["rejected"], "notices": found["notices"]}
        return Rows.of(part.path, found), told
    columns = content.columns() if isinstance(content, Records) else trace_columns(content)
    rows = Rows.of(part.path, columns, trace=isinstance(content, Workload)).in_order()
    skipped = dict(content.skipped)
    if rows.left_out:
        skipped["missing_field"] = skipped.get("missing_field", 0) + rows.left_out
    return rows, {**told, "skipped": skipped, "notices": content.notices}


def _unjudged(part: Part) -> str | None:
    """Why the requests of an input cannot be judged; None where they can."""
    return part.content.absent.get("goodput") if isinstance(part.content, Records) else None


def _judge(
    every: Sequence[Rows],
    extra: Sequence[dict[str, Sequence[Any]]],
    slo: SLO,
    itl: str,
    unjudged: Sequence[str | None],
) -> tuple[int, int]:
    """Add the verdicts of a set, and count the good and the judged."""
    good = judged = 0
    for rows, own_extra, why in zip(every, extra, unjudged, strict=True):
        found: list[str | None] = [None] * len(rows) if why else verdicts(rows, slo, itl)
        own_extra[f"verdict.{slo.name}"] = found
        good += found.count(GOOD)
        judged += len(found) - found.count(None)
    return good, judged


def _cost(every: Sequence[Rows], extra: Sequence[dict[str, Sequence[Any]]], price: Price) -> float | None:
    """Add each request's part of the cost, and return the whole."""
    found = costs(price, every)
    if found is None:
        return None
    whole, parts = found
    for own_extra, part in zip(extra, parts, strict=True):
        own_extra[f"cost.{price.by}"] = part.tolist()
    return whole


def _clocks(intake: Intake) -> Iterable[str]:
    """Where runs of one file count time from different moments."""
    clocks = {
        "epoch" if one.clock == "epoch" else number
        for number, one in enumerate(intake.records)
        if one.clock is not None
    }
    if len(clocks) > 1:
        yield "the runs count time from different moments: rates of all together mean nothing"


def _pooled(parts: Sequence[Part]) -> Iterable[str]:
    """Where a file has values that belong to no request."""
    for part in parts:
        if isinstance(part.content, Records) and (
            names := [name for name, of in part.content.pooled.items() if len(of)]
        ):
            yield (
                f"{part.path}: {', '.join(names)} come without the request's id and are left out; read back, each "
                "request misses a limit on them"
            )


def _notes(every: Sequence[Rows], as_table: bool) -> Iterable[str]:
    for rows in every:
        if rows.trace:
            yield f"{rows.path}: a trace has arrivals and lengths only: its requests arrive and do not end"
        elif len(rows) and not rows.arrive_ns.any():
            yield f"{rows.path}: has no times of arrival: all requests arrive at 0, and rates mean nothing"
        uneven = int(rows.uneven.sum())
        if uneven and not as_table:
            yield (
                f"{rows.path}: of its requests {uneven:,} have another number of tokens than of chunks: lines spread "
                "them evenly; read them with --itl chunk, or write Parquet, which keeps both"
            )
            fewer = int((rows.uneven & (rows.tokens < rows.emissions)).sum())
            if fewer:
                yield f"{rows.path}: {fewer:,} of these have fewer tokens than chunks: lines give each chunk one"
        jumps = int((np.diff(np.maximum.accumulate(rows.last_event)) > DAY_NS).sum()) if len(rows) else 0
        if jumps and as_table:
            yield (
                f"{rows.path}: requests that come more than a day after all before them ({jumps:,}) will be refused "
                "when the table is read; write lines, which bridge the time"
            )


def _write(target: str, every: Sequence[Rows], extra: Sequence[Mapping[str, Sequence[Any]]]) -> None:
    if parquet.is_parquet(target):
        with compressed.writing(target) as stream:
            parquet.write(stream, every, extra)
        return
    writer = Writer(every)
    with ExitStack() as stack:
        stream = sys.stdout.buffer if target == STDOUT else stack.enter_context(compressed.writing(target))
        block: list[str] = []
        for rows, own_extra in zip(every, extra, strict=True):
            for line in writer.lines(rows, own_extra):
                block.append(line)
                if len(block) >= 1000:
                    stream.write(("\n".join(block) + "\n").encode())
                    block.clear()
        if block:
            stream.write(("\n".join(block) + "\n").encode())
