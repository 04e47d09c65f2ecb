"""`tokenpulse.diagnose`: what is wrong with a run, held against an earlier part of it or against another run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenpulse import engine
from tokenpulse.analysis.diagnosis import Finding, NotJudged, judge
from tokenpulse.analysis.stretch import LATENCIES, NOTHING, Stretch, Totals, strata_of
from tokenpulse.grammar import Path, once_only, since_ns, slo_sets
from tokenpulse.model import SLO
from tokenpulse.run import Run
from tokenpulse.snapshot import Snapshot
from tokenpulse.view import View

SCHEMA = "tokenpulse.diagnosis/1"

MACHINE = ("peak_flops", "bandwidth_bytes_per_second")
"""What is asked of a machine: FLOP/s and bytes per second, of all its GPUs together."""

Side = Path | Run | Stretch | Snapshot | View


@dataclass(frozen=True)
class Diagnosis:
    """What was found, strongest first and causes before effects, and what could not be judged."""

    findings: tuple[Finding, ...]
    not_judged: tuple[NotJudged, ...]
    current: Mapping[str, Any]
    """What was looked at: `name`, `from_seconds` and `to_seconds` of its run, `seconds`, `arrivals`, `ended`."""
    baseline: Mapping[str, Any]
    notices: tuple[Mapping[str, Any], ...] = ()
    """What could not be read of the logs."""

    def to_dict(self) -> dict[str, Any]:
        """All of it as one object that JSON can hold."""
        return {
            "schema": SCHEMA,
            "current": dict(self.current),
            "baseline": dict(self.baseline),
            "findings": [one.to_dict() for one in self.findings],
            "not_judged": [one.to_dict() for one in self.not_judged],
            "notices": [dict(one) for one in self.notices],
        }


def diagnose(
    current: Side,
    baseline: Side | None = None,
    *,
    from_: str | float | None = None,
    to: str | float | None = None,
    slo: SLO | str | Iterable[SLO | str] | None = None,
    machine: Mapping[str, float] | None = None,
    progress: engine.Progress | None = None,
) -> Diagnosis:
    """Hold a run against a baseline and say what is wrong with it; a healthy run has no findings.

    Each side is a log, a `Run`, a `Stretch` of one, a `Snapshot` (all of it) or a `View` (a window). Without a
    baseline the first third of the run stands against its last third, so `current` must be a log or a `Run`.
    `from_`, `to`: look at this part of that run only, as durations since it began; without a baseline it stands
    against all that came before it.

    `slo`: a TPOT limit is a sign of trouble by itself where the GPU idles. `machine`: what a log does not tell, of
    all GPUs together: `peak_flops` (FLOP/s) and `bandwidth_bytes_per_second`.

    Raises OSError for a file that cannot be read, FormatError for one that is no log, and ValueError for settings that
    do not fit.

    >>> from tokenpulse import Meter
    >>> meter, run = Meter(), Run()
    >>> for second in range(6):
    ...     run.take(meter.snapshot(second * 10**9))
    >>> diagnosis = diagnose(run)
    >>> diagnosis.findings, diagnosis.not_judged[0].row
    ((), 'tpot-batch')
    """
    known = _machine(machine or {})
    sets = slo_sets(slo)
    if isinstance(current, (str, os.PathLike)):
        once_only([current, baseline])
        current = Run.of(current, progress=progress)
    if isinstance(baseline, (str, os.PathLike)):
        baseline = Run.of(baseline, progress=progress)
    runs = [side for side in (current, baseline) if isinstance(side, Run)]
    part = _part(current, from_, to)
    if baseline is None:
        if not isinstance(current, Run):
            raise ValueError(
                f"without a baseline, current must be a log or a Run to take it from; got a {type(current).__name__}"
            )
        if part is None:
            base, now = current.first_third, current.last_third
        elif part[0] == 0:
            raise ValueError("what is looked at from the beginning on needs a baseline: nothing came before it")
        else:
            base, now = current.stretch(0, part[0]), current.stretch(*part)
        baseline = current
    else:
        base, now = (
            _stretch(baseline),
            current.stretch(*part) if part and isinstance(current, Run) else _stretch(current),
        )
    if isinstance(current, Run):
        known = {name: value for name, value in current.machine.items() if name in MACHINE} | known
    if not sets and isinstance(current, (Run, Snapshot)):
        sets = current.slos
    findings, not_judged = judge(base, now, machine=known, tpot_limit=min((one.tpot for one in sets), default=None))
    return Diagnosis(
        tuple(findings),
        tuple(not_judged),
        current=_described(current, now),
        baseline=_described(baseline, base),
        notices=tuple(notice for run in dict.fromkeys(runs) for notice in run.notices),
    )


def _machine(given: Mapping[str, float]) -> dict[str, float]:
    for name, value in given.items():
        if name not in MACHINE:
            raise ValueError(f"machine must have {' and '.join(MACHINE)}, got {name!r}")
        if not 0 < value < float("inf"):
            raise ValueError(f"machine: {name} must be above 0 and finite, got {value!r}")
    return dict(given)


def _part(current: Side, from_: str | float | None, to: str | float | None) -> tuple[float, float] | None:
    """s: from when to when a run is looked at; None for all of it."""
    if from_ is None and to is None:
        return None
    if not isinstance(current, Run):
        raise ValueError(f"from_ and to are of a log or a Run, got a {type(current).__name__}")
    begin = 0.0 if from_ is None else since_ns(from_) / 1e9
    end = current.seconds if to is None else since_ns(to) / 1e9
    if not begin < min(end, current.seconds):
        raise ValueError(
            f"from_ must lie before to and before the end of {current.name}, which lasts {current.seconds:g} s; got"
            f" {begin:g} s to {end:g} s"
        )
    return begin, end


def _stretch(side: Run | Stretch | Snapshot | View | Path) -> Stretch:
    if isinstance(side, Run):
        return side.whole
    if isinstance(side, Snapshot):
        reading = side.reading()
        if reading["t_ns"] is None or reading["first_event_ns"] is None:
            raise ValueError("nothing happened yet in this snapshot")
        return Stretch.between(NOTHING, Totals.of(reading), reading["first_event_ns"])
    if isinstance(side, View):
        return _of_view(side)
    if isinstance(side, Stretch):
        return side
    raise TypeError(f"expected a path, a Run, a Stretch, a Snapshot or a View, got {side!r}")


def _of_view(view: View) -> Stretch:
    """A window of a snapshot. The window's KV events and seconds are not in it."""
    counts = view.counts
    return Stretch(
        seconds=view.true_width,
        strata=strata_of((one.key, one.latency) for one in view.classes),
        pooled={name: view.latency[name] for name in (*LATENCIES, "itl")},
        arrivals=counts["attempted"],
        by_status=view.by_status,
        output_tokens=counts["output_tokens"],
        prompt_tokens=counts["prompt_tokens"],
        cached_tokens=counts["cached_tokens"],
        waiting=view.level("waiting"),
        running=view.level("running"),
        kv_used=view.level("kv_used"),
        kv_total=view.level("kv_total"),
        batch_max=view.level("batch_max"),
        added=view.added,
    )


def _described(side: object, stretch: Stretch) -> dict[str, Any]:
    return {
        "name": side.name if isinstance(side, Run) else type(side).__name__.lower(),
        "from_seconds": stretch.from_seconds,
        "to_seconds": stretch.to_seconds,
        "seconds": stretch.seconds,
        "arrivals": stretch.arrivals,
        "ended": stretch.ended,
    }
