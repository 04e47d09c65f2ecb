"""`tokenpulse.report`: composes what reads, what counts and what reports; computes nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tokenpulse import engine, profiles
from tokenpulse.analysis import flow as where_time_went
from tokenpulse.analysis.cost import Price
from tokenpulse.grammar import AUTO, Path, duration_ns, request_rate_of, slo_sets
from tokenpulse.intake import Cut, Intake, Settings, told
from tokenpulse.model import ITL_RULES, LENGTH_KEYS, MAX_LABEL_KEYS, MAX_TIMELINE_BINS, SLO, Reduction
from tokenpulse.readers.table import Streamable
from tokenpulse.reporting import Report

AUTO_TIMELINE_NS, AUTO_TIMELINE_BINS = 1_000_000, 240
"""A timeline as a picture needs it: bins of 1 ms, whose width doubles until no more than these remain."""


def report(
    paths: Path | Streamable | Iterable[Path | Streamable] | Intake,
    *,
    slo: SLO | str | Iterable[SLO | str] | None = None,
    itl: str = "token",
    by: str | Iterable[str] | None = None,
    timeline: str | float | None = None,
    ttl: str | float = "1h",
    progress: engine.Progress | None = None,
    threads: int | None = None,
    from_: str | float | None = None,
    to: str | float | None = None,
    steady: bool = False,
    profile: str | Iterable[str] | None = None,
    request_rate: float | None = None,
    gpu_hour: float | None = None,
    gpus: float | None = None,
    cost_by: str | None = None,
) -> Report:
    """Read one or more logs, files of other tools or tables and report on them together.

    `paths`: one or several, `"-"` is standard input; a table is anything with `__arrow_c_stream__`, such as one of
    pyarrow, polars, pandas or duckdb, with the fields of a log as its columns.

    `slo`: one set or several, as `SLO` or as text such as `"chat:ttft=200ms,tpot=30ms"`.
    `itl`: what an emission of several tokens gives: `token`, `chunk` or `stamp`.
    `by`: labels, `prompt_length` or `output_length`; the report has a block for each combination that occurs.
    `timeline`: the width of its bins, as `"10s"` or seconds, or `"auto"` for at most 240.
    `ttl`: the silence after which a request is lost.
    `threads`: how many read; all of the machine's by default. The result is the same with any number.
    `from_`, `to`: count only requests that arrive at least this long, and less than that, after the first one.
    `steady`: count only those that arrive in the span in which the system is as full as it gets. For any of the three
    the inputs are read twice.
    `profile`: also the figures as these tools would have computed them, or `"all"`.
    `request_rate`: what the load generator was asked for, in requests a second, where the files do not say.
    `gpu_hour`: the price of a GPU for an hour, which gives `cost`; `gpus`: how many served, by default 1; `cost_by`: by
    what it is shared out among the groups of `by`: `output` tokens (the default), `total` tokens, or `busy` time.

    Lines that cannot be read are counted, not raised. Raises OSError for a file that cannot be read, FormatError
    for one of unknown format, and ValueError or TypeError for a setting that does not fit.
    """
    auto = timeline == AUTO
    settings = Settings(
        slos=slo_sets(slo),
        itl=_rule(itl),
        by=_keys(by),
        timeline_ns=AUTO_TIMELINE_NS if auto else None if timeline is None else duration_ns(timeline),
        timeline_bins=AUTO_TIMELINE_BINS if auto else MAX_TIMELINE_BINS,
        ttl_ns=duration_ns(ttl),
        threads=_threads(threads),
        progress=progress,
    )
    rate = None if request_rate is None else request_rate_of(request_rate)
    price = Price.of(gpu_hour, gpus, cost_by)
    cut, named = Cut.of(from_, to, steady), _profile_names(profile)
    if cut and named:
        raise ValueError("a profile is of the whole run: it must not be given together with from, to or steady")
    with ExitStack() as stack:
        intake = paths if isinstance(paths, Intake) else Intake.of(paths, stack, progress, again=bool(cut or named))
        settings = replace(settings, itl=intake.itl_rule(settings.itl))
        begin, end = cut.found(intake, settings) if cut else (None, None)
        reduction = intake.reduce(settings, begin, end)
        found = _told(intake, reduction, itl, rate)
        if named:
            found["profiles"] = _profiles(intake, named, settings.slos)
    made = Report.of(
        reduction, settings.slos, settings.itl, how=cut.how, price=price, **found, made_with=_made_with(settings)
    )
    return replace(made, timeline_asked_seconds=made.timeline_width_seconds) if auto else made


def each_run(path: Path, *, again: bool = False, **settings: Any) -> list[tuple[str, Report]]:
    """A report of each run by itself, under its path: of a file that holds several runs there are several.

    `again`: the settings are such that it is read twice. Settings and errors are those of `report`.
    """
    with ExitStack() as stack:
        intake = Intake.of(path, stack, settings.get("progress"), again=again)
        alone = [Intake(parts=[part], heads=intake.heads) for part in intake.parts]
        return [(one.parts[0].path, report(one, **settings)) for one in alone]


def _made_with(settings: Settings) -> dict[str, Any]:
    """What a report does not tell of how it was made, and whoever merges it must know."""
    return {
        "by": tuple(settings.by),
        "timeline_ns": settings.timeline_ns,
        "timeline_bins": settings.timeline_bins,
        "ttl_ns": settings.ttl_ns,
    }


def _told(intake: Intake, reduction: Reduction, itl: str, rate: float | None) -> dict[str, Any]:
    """What the inputs tell beside their counts, by the names of the report's keys."""
    absent = told.absent(intake, reduction)
    found: dict[str, Any] = {
        "absent": absent,
        "definitions": told.definitions(intake, itl),
        "reported": told.reported(intake),
        "workload": told.workload(intake, reduction["cut"]),
    }
    if "flow" not in absent:
        rows, client = told.rows(intake, reduction), told.client(intake, rate)
        found["flow"] = where_time_went.of_reduction(reduction, rows, client)
    return found


def _profiles(intake: Intake, names: Sequence[str], slos: Sequence[SLO]) -> dict[str, Any]:
    """What each tool would have said: of a single run its figures, of several those of each."""
    goodput, every = slos[0] if slos else None, "all" in names
    each: list[dict[str, Any]] = []
    runs = told.exact_runs(intake)
    for _, records in runs:
        summary = told.summary_of(records, intake)
        figures: dict[str, Any] = {
            name: profiles.profile(name, records, goodput=goodput, summary=summary)
            for name in (profiles.PROFILES if every else names)
        }
        if every:
            figures["all"] = profiles.side_by_side(records, goodput=goodput, profiles=figures)
        each.append(figures)
    if len(runs) == 1:
        return each[0]
    return {
        name: {
            "runs": [
                {"path": path, **({"rows": figures[name]} if name == "all" else figures[name])}
                for (path, _), figures in zip(runs, each, strict=True)
            ]
        }
        for name in each[0]
    }


def _profile_names(profile: str | Iterable[str] | None) -> list[str]:
    names = [] if profile is None else [profile] if isinstance(profile, str) else list(profile)
    if names:
        for name in names:
            if name not in (*profiles.PROFILES, "all"):
                raise ValueError(f"profile must be one of {', '.join(profiles.PROFILES)} or all, got {name!r}")
    return list(dict.fromkeys(names))


def _threads(threads: int | None) -> int:
    """0 stands for as many as the machine has."""
    if threads is None:
        return 0
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise TypeError(f"threads must be a whole number, got {threads!r}")
    if not 1 <= threads <= 1024:
        raise ValueError(f"threads must be between 1 and 1024, got {threads}")
    return threads


def _rule(itl: str) -> str:
    if itl not in ITL_RULES:
        raise ValueError(f"itl must be one of {', '.join(ITL_RULES)}, got {itl!r}")
    return itl


def _keys(by: str | Iterable[str] | None) -> list[str]:
    keys = [] if by is None else [by] if isinstance(by, str) else list(by)
    if len(set(keys)) != len(keys):
        raise ValueError(f"by must not name a key twice, got {', '.join(keys)}")
    if sum(key not in LENGTH_KEYS for key in keys) > MAX_LABEL_KEYS:
        raise ValueError(f"by must name at most {MAX_LABEL_KEYS} labels, got {len(keys)}")
    if "" in keys:
        raise ValueError("by must name a label, prompt_length or output_length, got an empty name")
    return keys
