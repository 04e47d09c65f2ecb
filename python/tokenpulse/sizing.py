"""`tokenpulse.capacity`: runs from logs, files of other tools or saved sketches, put together into what a system can
take.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, cast

from tokenpulse import api, engine, readers
from tokenpulse.analysis.batch import Gauges
from tokenpulse.analysis.capacity import PER_GOOD, PER_HOUR, TARGETS, Budget, Capacity, Placed, capacity_of
from tokenpulse.analysis.cost import unpriced
from tokenpulse.comparing import Source, known_report
from tokenpulse.grammar import AUTO, Path, once_only, slo_sets
from tokenpulse.meter import Meter
from tokenpulse.model import SLO
from tokenpulse.reporting import Report
from tokenpulse.sketches import Saved

__all__ = ["Capacity", "budget_of", "capacity", "engine_of", "short_names"]

NEVER_NS = 2**62


def capacity(
    runs: Source | Iterable[Source],
    *,
    slo: SLO | str | Iterable[SLO | str] | None = None,
    gpu_hour: float | None = None,
    gpus: float | None = None,
    cost_limit: float | str | None = None,
    targets: Sequence[float] = TARGETS,
    kv_tokens: float | None = None,
    block_tokens: int | None = None,
    tokens_held: float | None = None,
    varied: tuple[str, Sequence[float | str]] | None = None,
    itl: str | None = None,
    from_: str | float | None = None,
    to: str | float | None = None,
    steady: bool = False,
    threads: int | None = None,
    progress: engine.Progress | None = None,
) -> Capacity:
    """What a system can take, from runs at several rates: each a log, a file of another tool (of several runs, each by
    itself), a file of sketches, or a `Report`.

    `slo`: the limits that make a request good; saved sketches and reports keep theirs.
    `targets`: the attainments whose highest rates are looked for.
    `gpu_hour`: the price of a GPU for an hour, in any currency; `gpus`: how many served, by default as a log's `ready`
    line says, else 1. `cost_limit`: the most that a good request may cost, or with `"/h"` at its end the hour.
    `kv_tokens`: tokens that the KV cache has room for, `block_tokens`: tokens of one of its blocks, `tokens_held`:
    tokens in the cache of a running request on average; each where the log's gauges and `ready` line do not tell.
    `varied`: where the runs differ in a setting of the system and not in their rate, its name and its value in each.
    `from_`, `to`, `steady`, `itl`, `threads`: as for `report`.

    Raises as `report` and `compare` do; ValueError where a run has no requests to judge.
    """
    budget = budget_of(gpu_hour, gpus, cost_limit)
    for name, value in (("kv_tokens", kv_tokens), ("block_tokens", block_tokens), ("tokens_held", tokens_held)):
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be above 0, got {value!r}")
    sources: list[Source] = [runs] if isinstance(runs, (str, os.PathLike, Report, Saved)) else list(runs)
    once_only(sources)
    known = [known_report(source) for source in sources]
    slos = _limits(slo, [one for one in known if one is not None], len(sources))
    cut: dict[str, Any] = {"from_": from_, "to": to, "steady": steady}
    if any(cut.values()) and any(known):
        raise ValueError("--from, --to and --steady: saved sketches cannot be cut; cut the run when it is saved")
    settings = {"slo": slos, "itl": itl or "token", "timeline": AUTO, "threads": threads, "progress": progress, **cut}
    given = Gauges(kv_tokens=kv_tokens, block_tokens=block_tokens, tokens_held=tokens_held)
    placed = []
    for source, one in zip(sources, known, strict=True):
        gauges, machine = Gauges(), dict[str, float]()
        if one is not None:
            found = [(_name_of(source, one), one)]
        else:
            path = os.fspath(cast(Path, source))
            found = api.each_run(path, again=any(cut.values()), **settings)
            gauges, machine = engine_of(path)
        gauges = gauges.with_given(given, machine.get("kv_block_tokens"))
        for name, report in found:
            _check(name, report)
            count = machine.get("gpus") if gpus is None else gpus
            placed.append(Placed(name=name, path=name, run=report, gpus=count, gauges=gauges))
    placed = [
        replace(one, name=name) for one, name in zip(placed, short_names([one.path for one in placed]), strict=True)
    ]
    if varied is None:
        return capacity_of(placed, targets=targets, budget=budget)
    axis, values = varied
    if len(values) != len(placed):
        raise ValueError(f"{axis} must have a value for each run: got {len(values)} for {len(placed)} runs")
    placed = [replace(one, setting=value) for one, value in zip(placed, values, strict=True)]
    return capacity_of(placed, targets=targets, budget=budget, axis=axis)


def _check(name: str, report: Report) -> None:
    """Raise ValueError for a run without requests that could be judged."""
    for figure in ("requests", "latency", "goodput"):
        if figure in report.absent:
            raise ValueError(f"{name}: no request can be judged: {report.absent[figure]}")


def short_names(paths: Sequence[str]) -> list[str]:
    """The last parts of paths, as many as it takes to tell them apart; with a number where nothing does.

    >>> short_names(["a/4.jsonl", "a/8.jsonl"]), short_names(["a/run", "b/run", "b/run"])
    (['4.jsonl', '8.jsonl'], ['a/run', 'b/run (2)', 'b/run (3)'])
    """
    several = [path.split("/") for path in paths]
    most = max(map(len, several), default=1)
    for many in range(1, most + 1):
        names = ["/".join(parts[-many:]) for parts in several]
        if len(set(names)) == len(set(paths)):
            break
    return [f"{name} ({n + 1})" if names.count(name) > 1 else name for n, name in enumerate(names)]


def engine_of(path: str) -> tuple[Gauges, dict[str, float]]:
    """What a log of event lines tells of its engine: its gauges over the whole run, and its machine. Nothing of any
    other file, nor of one that can be read only once."""
    if not FilePath(path).is_file() or b'"ev"' not in (head := readers.head(path)):
        return Gauges(), {}
    if readers.detect(head) not in (None, readers.OWN):
        return Gauges(), {}
    meter = Meter(windows=(), burn=False)
    told = engine.replay(meter, path, every_ns=NEVER_NS, on_pane=lambda _: None)
    found = meter.snapshot().total.gauges
    running, limit, used, room = (found[name] for name in ("running", "batch_max", "kv_used", "kv_total"))
    gauges = Gauges(
        running_mean=None if running is None else running.mean,
        running_max=None if running is None else running.max,
        batch_limit=None if limit is None or not limit.last else limit.last,
        kv_used_mean=None if used is None else used.mean,
        kv_total=None if room is None or not room.last else room.last,
    )
    return gauges, dict(told["machine"])


def budget_of(
    gpu_hour: float | None = None, gpus: float | None = None, cost_limit: float | str | None = None
) -> Budget | None:
    """The price and the limit that were asked for; None without a price. ValueError for what does not fit."""
    if gpu_hour is None:
        unpriced(gpus=gpus, cost_limit=cost_limit)
        return None
    if cost_limit is None:
        return Budget(gpu_hour=gpu_hour)
    text, per = str(cost_limit).strip(), PER_GOOD
    if text.endswith("/h"):
        text, per = text.removesuffix("/h"), PER_HOUR
    try:
        limit = float(text)
    except ValueError:
        raise ValueError(f"a cost limit must be a number, of a good request, or as 40/h; got {cost_limit!r}") from None
    return Budget(gpu_hour=gpu_hour, limit=limit, per=per)


def _limits(asked: Any, known: Sequence[Report], sources: int) -> tuple[SLO, ...]:
    """The SLO sets of all runs: those that are asked for, or those of the runs that are known."""
    slos = slo_sets(asked)
    for one in known:
        if slos and one.slos != slos:
            raise ValueError("--slo: saved sketches keep what they were made with, which is another; leave --slo out")
    if slos or (known and len(known) == sources):
        return slos
    if not known:
        raise ValueError("capacity needs limits to judge requests by: --slo ttft=..,tpot=..")
    return known[0].slos


def _name_of(source: Source, report: Report) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    return ", ".join(str(one["path"]) for one in report.inputs) or "run"
