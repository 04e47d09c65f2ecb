"""Injects every fault into simulated runs and counts what the diagnosis finds first: the confusion matrix of the docs.

    python benches/judging/diagnosis.py                      # the judging seeds: some minutes
    python benches/judging/diagnosis.py --seeds 1000-1009    # tuning seeds, to look at while something changes
    BENCH_SMOKE=1 python benches/judging/diagnosis.py        # one tuning seed at one intensity, to see that it works

Seeds that were looked at while faults or the table of what explains what were changed (1000 to 1099) are no judges:
21 to 40 judge faults, 201 to 260 healthy runs. A healthy run is judged twice: by its own first third, and against
another healthy run of the same rate, of the same mix of lengths or of another one. 261 to 266 are healthy runs of six
rates, each of which is held against each other one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import tokenpulse
from tokenpulse import KVTracker, Meter, Run, simulate
from tokenpulse.simulate.faults import FAULTS

EXPECTED = {name: fault.row for name, fault in FAULTS.items()}
"""The row that each fault should be found by, first."""

INTENSITIES = (0.3, 0.6, 1.0)
RATES = (6.0, 10.0, 16.0, 24.0, 32.0)
HEALTHY_RATES = (4.0, 6.0, 8.0, 12.0, 16.0, 20.0, 25.0, 30.0, 35.0)
PAIRED_RATES = (4.0, 8.0, 12.0, 20.0, 28.0, 35.0)
MIXES: tuple[dict[str, str], ...] = (
    {},
    {"prompt": "lognormal:300", "output": "lognormal:200"},
    {"prompt": "lognormal:900", "output": "lognormal:100"},
    {"prompt": "uniform:100-1200", "output": "uniform:50-250"},
    {"prompt": "fixed:512", "output": "geometric:150"},
)
NONE = "none"
COLUMNS = (*dict.fromkeys(EXPECTED.values()), NONE)


@dataclass
class Judged:
    """What one run was and what was found."""

    fault: str
    intensity: float
    seed: int
    rate: float
    first: str
    found: dict[str, float]
    not_judged: list[str]
    how: str = "first third"
    seconds: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)


def drive(seed: int, rate: float, duration: str, fault: str | None = None, **settings: Any) -> Run:
    """One simulated run, told to a meter and not written."""
    meter = Meter(windows=(), burn=False, kv=KVTracker())
    run = Run(f"seed {seed}", whole=True)
    machine = simulate.known_machine("llama-3.1-70b-fp8", "h100-sxm", 8)
    simulate.run(
        machine=machine,
        seed=seed,
        rate=rate,
        duration=duration,
        fault=fault,
        meter=meter,
        on_pane=lambda t_ns: run.take(meter.snapshot(t_ns)),
        **settings,
    )
    run.machine = {"peak_flops": machine.peak_flops, "bandwidth_bytes_per_second": machine.bandwidth}
    return run


def _judged(diagnosis: tokenpulse.Diagnosis, **known: Any) -> Judged:
    found = {one.row: one.strength for one in diagnosis.findings}
    return Judged(
        first=next(iter(found), NONE),
        found=found,
        not_judged=[one.row for one in diagnosis.not_judged],
        **known,
    )


def faulty(seeds: Sequence[int], intensities: Sequence[float], asked: Asked) -> Iterator[Judged]:
    """Every fault at every intensity with every seed; rates take turns."""
    for fault in asked.faults:
        for intensity in intensities:
            for n, seed in enumerate(seeds):
                rate = asked.rates[n % len(asked.rates)]
                begun = time.perf_counter()
                run = drive(seed, rate, asked.duration, f"{fault}:{intensity}")
                yield _judged(
                    tokenpulse.diagnose(run),
                    fault=fault,
                    intensity=intensity,
                    seed=seed,
                    rate=rate,
                    seconds=time.perf_counter() - begun,
                )


def healthy(seeds: Sequence[int], asked: Asked) -> Iterator[Judged]:
    """Healthy runs in threes of one rate, the third of another mix of lengths; each is held against its first third,
    and against the next of the three."""
    for first in range(0, len(seeds), 3):
        group = list(range(first, min(first + 3, len(seeds))))
        rate = HEALTHY_RATES[first // 3 % len(HEALTHY_RATES)]
        mixes = [MIXES[(first // 3 + (n - first) // 2) % len(MIXES)] for n in group]
        runs = [drive(seeds[n], rate, asked.duration, **mix) for n, mix in zip(group, mixes, strict=True)]
        for n, run in enumerate(runs):
            other = (n + 1) % len(runs)
            against = "another run" if mixes[n] == mixes[other] else "another mix"
            for how, baseline in (("first third", None), (against, runs[other])):
                yield _judged(
                    tokenpulse.diagnose(run, baseline),
                    fault="healthy",
                    intensity=0.0,
                    seed=seeds[group[n]],
                    rate=rate,
                    how=how,
                    extra={"mix": mixes[n], "baseline mix": mixes[other] if baseline else mixes[n]},
                )


def of_other_rates(seeds: Sequence[int], asked: Asked) -> Iterator[Judged]:
    """Healthy runs of one mix of lengths at different rates, each held against each of the others."""
    rates = PAIRED_RATES[: len(seeds)]
    runs = [drive(seed, rate, asked.duration) for seed, rate in zip(seeds, rates, strict=True)]
    for run, seed, rate in zip(runs, seeds, rates, strict=True):
        for baseline, of in zip(runs, rates, strict=True):
            if baseline is not run:
                yield _judged(
                    tokenpulse.diagnose(run, baseline),
                    fault="healthy",
                    intensity=0.0,
                    seed=seed,
                    rate=rate,
                    how="another rate",
                    extra={"baseline rate": of},
                )


def matrix(judged: Sequence[Judged]) -> str:
    """The confusion matrix as a Markdown table: what was injected, and what was found first."""
    rows: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    for one in judged:
        rows[one.fault, one.how if one.fault == "healthy" else f"{one.intensity:g}"].append(one)
    lines = [
        f"| injected | | runs | {' | '.join(f'`{name}`' if name != NONE else name for name in COLUMNS)} | first |",
        f"|---|---|{'---:|' * (len(COLUMNS) + 2)}",
    ]
    for (fault, of), group in rows.items():
        first = Counter(one.first for one in group)
        wanted = EXPECTED.get(fault, NONE)
        right = 100 * first[wanted] / len(group)
        cells = [f"**{first[name]}**" if name == wanted else f"{first[name] or ''}" for name in COLUMNS]
        lines.append(f"| {fault} | {of} | {len(group)} | {' | '.join(cells)} | {right:.1f} % |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Asked:
    """What the command line asked for."""

    duration: str
    rates: tuple[float, ...]
    faults: tuple[str, ...]


def span(text: str) -> list[int]:
    """Seeds, as `1-20` or `7`."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> int:
    """Judge, print the matrix and return 1 if it falls short of what the documents promise."""
    smoke = bool(os.environ.get("BENCH_SMOKE"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=span, default=span("1000" if smoke else "21-40"))
    parser.add_argument("--healthy", type=span, default=span("1040-1042" if smoke else "201-260"))
    parser.add_argument("--paired", type=span, default=span("1030-1031" if smoke else "261-266"))
    parser.add_argument("--no-healthy", action="store_true")
    parser.add_argument("--faults", default=",".join(EXPECTED))
    parser.add_argument("--intensities", default="0.6" if smoke else ",".join(map(str, INTENSITIES)))
    parser.add_argument("--rates", default="24" if smoke else ",".join(map(str, RATES)))
    parser.add_argument("--duration", default="60s" if smoke else "120s")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every run that was judged wrongly")
    parser.add_argument("-o", "--output", type=Path, help="every run as a line of JSON")
    options = parser.parse_args()
    intensities, rates = ([float(n) for n in text.split(",")] for text in (options.intensities, options.rates))
    asked = Asked(options.duration, tuple(rates), tuple(name for name in options.faults.split(",") if name))
    judged: list[Judged] = []
    runs = [faulty(options.seeds, intensities, asked)]
    if not options.no_healthy:
        runs += [healthy(options.healthy, asked), of_other_rates(options.paired, asked)]
    with open(options.output or os.devnull, "w") as lines:
        for some in runs:
            for one in some:
                judged.append(one)
                print(json.dumps(asdict(one)), file=lines, flush=True)
                if options.verbose and one.first != EXPECTED.get(one.fault, NONE):
                    print(one, file=sys.stderr, flush=True)
    print(f"{date.today()}, runs of {options.duration}, rates {options.rates}, seeds {options.seeds[0]} to", end=" ")
    print(f"{options.seeds[-1]}, healthy {options.healthy[0]} to {options.healthy[-1]}\n")
    print(matrix(judged))
    return int(falls_short(judged))


def falls_short(judged: Sequence[Judged]) -> bool:
    """Whether a fault at the higher intensities is found first in less than 90 % of runs, or 5 % of all judgements of
    healthy runs or more have findings."""
    right: dict[str, list[bool]] = defaultdict(list)
    for one in judged:
        if one.fault == "healthy" or one.intensity >= 0.6:
            right[one.fault].append(one.first == EXPECTED.get(one.fault, NONE))
    short = False
    for name, found in right.items():
        share = sum(found) / len(found)
        enough = share > 0.95 if name == "healthy" else share >= 0.9
        short |= not enough
        if not enough:
            print(f"falls short: {name}: {100 * share:.1f} %", file=sys.stderr)
    return short


if __name__ == "__main__":
    sys.exit(main())
