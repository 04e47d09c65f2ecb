"""Holds the capacity of single simulated sweeps against the simulator's own: the figures of docs/capacity.md.

    python benches/judging/capacity.py                   # a quarter of an hour
    BENCH_SMOKE=1 python benches/judging/capacity.py     # one seed each of short runs, to see that it works

What the simulator itself can take is found by bisection: the rate at which the requests of many runs, of other seeds
than the sweeps', together meet the target just so. Each sweep is one run a rate, as somebody would make it.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import tokenpulse
from tokenpulse import simulate
from tokenpulse.simulate.sweep import sweep

SLO = "ttft=300ms,tpot=25ms"
TARGETS = (0.9, 0.99)
GRIDS = ("20:80:20", "20:80:10", "44:72:4")
LOW, HIGH, STEPS = 40.0, 80.0, 7


class Truth:
    """Attainment at a rate, of the requests of several runs together."""

    def __init__(self, duration: str, seeds: range, folder: Path) -> None:
        self.duration, self.seeds, self.path = duration, seeds, folder / "truth.jsonl"
        self.found: dict[float, float] = {}

    def attainment(self, rate: float) -> float:
        """Simulated once for each rate."""
        if rate not in self.found:
            good = judged = 0
            for seed in self.seeds:
                simulate.run(rate=rate, duration=self.duration, seed=seed, out=self.path)
                figures = tokenpulse.report(self.path, slo=SLO).goodput[0]
                good, judged = good + figures["good"], judged + figures["judged"]
            self.found[rate] = good / judged
        return self.found[rate]

    def rate(self, target: float) -> float:
        """By bisection, within (HIGH - LOW) / 2^(STEPS + 1)."""
        low, high = LOW, HIGH
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.attainment(middle) >= target else (low, middle)
        return (low + high) / 2


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--duration", default="120s")
    options.add_argument("--truth", type=int, default=8, metavar="N", help="seeds of the bisection, from 500 on")
    options.add_argument("--sweeps", type=int, default=12, metavar="N", help="seeds of the sweeps, from 600 on")
    asked = options.parse_args()
    smoke = bool(os.environ.get("BENCH_SMOKE"))
    duration, truths, sweeps = ("5s", 1, 1) if smoke else (asked.duration, asked.truth, asked.sweeps)
    with TemporaryDirectory() as folder:
        truth = Truth(duration, range(500, 500 + truths), Path(folder))
        rates = {target: truth.rate(target) for target in TARGETS}
    for target, rate in rates.items():
        print(f"{target:.0%} of {truths} runs of {duration}: {rate:.1f} req/s", flush=True)
    for grid in GRIDS if not smoke else GRIDS[:1]:
        errors: dict[float, list[float]] = {target: [] for target in TARGETS}
        widths: dict[float, list[float]] = {target: [] for target in TARGETS}
        held = dict.fromkeys(TARGETS, 0)
        for seed in range(600, 600 + sweeps):
            found = sweep(f"rate={grid}", slo=SLO, duration=duration, seed=seed)
            for keeps in found.slos[0]["keeps"]:
                target = keeps["target"]
                low, high = keeps["interval"]
                errors[target].append(keeps["rate"] - rates[target])
                held[target] += (low or 0.0) <= rates[target] <= (math.inf if high is None else high)
                if low is not None and high is not None:
                    widths[target].append(high - low)
        for target in TARGETS:
            off = math.sqrt(sum(error**2 for error in errors[target]) / sweeps)
            mean = sum(errors[target]) / sweeps
            width = sum(widths[target]) / len(widths[target]) if widths[target] else math.nan
            print(
                f"rate={grid} {target:.0%}: estimate off by {off:.1f} (rms; mean {mean:+.1f}); interval holds it in "
                f"{held[target]} of {sweeps}, closed in {len(widths[target])}, then {width:.1f} wide",
                flush=True,
            )


if __name__ == "__main__":
    main()
