"""`tokenpulse.compare` and `tokenpulse.merge`: runs from logs, files of other tools or saved sketches, put together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tokenpulse import api, compressed, engine, sketches
from tokenpulse.analysis import fail_if as conditions
from tokenpulse.analysis.compare import Comparison, compare_runs
from tokenpulse.analysis.cost import Price
from tokenpulse.grammar import AUTO, Path, once_only, path_names, slo_sets
from tokenpulse.model import MAX_TIMELINE_BINS, SLO
from tokenpulse.reporting import Report
from tokenpulse.sketches import Saved

Source = Path | Report | Saved
"""A log, a file of another tool or of sketches; or what was made of one already."""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """How logs are to be read; None where nothing was said."""

    slo: tuple[SLO, ...] | None
    itl: str | None
    by: tuple[str, ...] | None
    cut: dict[str, Any]
    rest: dict[str, Any]


def compare(
    before: Source,
    after: Source,
    *,
    slo: SLO | str | Iterable[SLO | str] | None = None,
    itl: str | None = None,
    by: str | Iterable[str] | None = None,
    from_: str | float | None = None,
    to: str | float | None = None,
    steady: bool = False,
    fail_if: str | Iterable[str] = (),
    threads: int | None = None,
    progress: engine.Progress | None = None,
) -> Comparison:
    """What changed from one run to another: each a log, a file of another tool, a file of sketches, or a `Report`.

    Logs are read as by `report`, whose settings have the same names. What is not given is taken from the other run
    where that is a file of sketches: its SLO sets, its ITL rule and its groups are fixed.
    `fail_if`: conditions such as `"p99(ttft) > +10%"`; the comparison's `fail_if` says which of them hold.

    Raises as `report` does, DecodeError for a file of sketches that is not whole, and ValueError for settings that do
    not fit together and for a condition that cannot be read.
    """
    parsed = [conditions.parse(text) for text in ([fail_if] if isinstance(fail_if, str) else fail_if)]
    once_only([before, after])
    known = [known_report(source) for source in (before, after)]
    asked = _Asked(
        slo=None if slo is None else slo_sets(slo),
        itl=itl,
        by=None if by is None else (by,) if isinstance(by, str) else tuple(by),
        cut={"from_": from_, "to": to, "steady": steady},
        rest={"threads": threads, "progress": progress},
    )
    asked = _settled(asked, [one for one in known if one is not None])
    for one in known:
        conditions.check(parsed, [slo.name for slo in (asked.slo or () if one is None else one.slos)])
    runs = [_run(source, one, asked) for source, one in zip((before, after), known, strict=True)]
    rules = {run.rules["itl"] for run in runs}
    if len(rules) > 1 and itl is None:
        # A file of chunks of unknown size has one rule only: the other run is read again by that.
        asked = replace(asked, itl="chunk")
        runs = [
            run if run.rules["itl"] == "chunk" or one is not None or source == "-" else _run(source, None, asked)
            for run, source, one in zip(runs, (before, after), known, strict=True)
        ]
    comparison = compare_runs(*runs)
    judged = [conditions.judge(one, runs[0], runs[1], comparison) for one in parsed]
    return replace(comparison, fail_if=judged)


def merge(paths: Path | Iterable[Path]) -> Saved:
    """Files of sketches as one, as if their runs had been read together; `report_of` makes the report of it.

    Raises OSError where one cannot be read, DecodeError for one that is no whole file of sketches, and ValueError
    unless all were made with the same settings.
    """
    names = path_names(paths)
    return sketches.merge([sketches.load(name) for name in names], names)


def report_of(
    saved: Saved, *, gpu_hour: float | None = None, gpus: float | None = None, cost_by: str | None = None
) -> Report:
    """The report of saved sketches; with the price of a GPU for an hour, with its cost, as `tokenpulse.report` has it.

    ValueError for a price that is none.
    """
    return Report.of(
        saved.reduction,
        saved.slos,
        saved.itl,
        absent=saved.absent,
        price=Price.of(gpu_hour, gpus, cost_by),
        definitions=saved.definitions,
        reported=saved.reported,
        made_with={
            "by": saved.by,
            "timeline_ns": saved.timeline_ns,
            "timeline_bins": saved.timeline_bins,
            "ttl_ns": saved.ttl_ns,
        },
    )


def is_automatic(saved: Saved) -> bool:
    """Whether the timeline is one that nobody asked for, made only so that runs can be compared."""
    return saved.timeline_bins < MAX_TIMELINE_BINS


def known_report(source: Source) -> Report | None:
    """The report of what has been counted already; None for a log."""
    if isinstance(source, Report):
        return source
    if isinstance(source, Saved):
        return report_of(source)
    name = os.fspath(source)
    if sketches.is_sketches(compressed.head(name)):
        return report_of(sketches.load(name))
    return None


def _settled(asked: _Asked, known: list[Report]) -> _Asked:
    """What was not asked for is as in the run that is known; what was must fit it."""
    if known and any(asked.cut.values()):
        raise ValueError("--from, --to and --steady: saved sketches cannot be cut; cut the run when it is saved")
    for run in known:
        made: dict[str, Any] = {"slo": run.slos, "itl": run.rules["itl"], "by": tuple(run.made_with.get("by", ()))}
        for option, setting in made.items():
            wanted = getattr(asked, option)
            if wanted is not None and wanted != setting:
                raise ValueError(
                    f"--{option}: saved sketches keep what they were made with, which is another; leave --{option} out"
                )
        if len(known) == 1:
            asked = replace(asked, **made)
    return asked


def _run(source: Source, known: Report | None, asked: _Asked) -> Report:
    """The report of one side. Its timeline shows how far its requests depend on one another."""
    if known is not None:
        return known
    if isinstance(source, (Report, Saved)):
        raise TypeError(f"a run must be known or a path, got {source!r}")
    return api.report(
        source,
        slo=asked.slo,
        itl=asked.itl or "token",
        by=asked.by,
        timeline=AUTO,
        **asked.cut,
        **asked.rest,
    )
