"""How often the rule of a growing queue fires where none does: queues with random arrivals and service, by load.

    python benches/judging/queue_growth.py [--runs 20] [--minutes 30]

A batch of up to B requests is served at a rate in proportion to its size, the rest waits: an M/M/B queue. For each
load, how many of the runs had an alert, and for how many of their minutes the Mann-Kendall test alone would say so.
"""

from __future__ import annotations

import argparse
import random

from tokenpulse.alerts import Rules, mann_kendall
from tokenpulse.analysis.alerts.evaluation import Evaluation
from tokenpulse.analysis.alerts.figures import Area, Figures

SECOND_NS = 10**9
Z = 2.33


def queue(load: float, batch_max: int, per_second: float, seconds: int, seed: int) -> list[tuple[float, int, int]]:
    """Of each second the mean of the waiting requests, the arrivals and the departures."""
    rng = random.Random(seed)
    found, n, now = [], 0, 0.0
    for second in range(seconds):
        waited, arrived, ended = 0.0, 0, 0
        while now < second + 1:
            leaving = per_second * min(n, batch_max) / batch_max
            rate = load * per_second + leaving
            then = now + rng.expovariate(rate)
            waited += max(0, n - batch_max) * (min(then, second + 1) - now)
            now = min(then, second + 1)
            if then >= second + 1:
                break  # what follows does not depend on what was before: drawn anew
            if rng.random() * rate < leaving:
                n, ended = n - 1, ended + 1
            else:
                n, arrived = n + 1, arrived + 1
        found.append((waited, arrived, ended))
    return found


def judge(seconds: list[tuple[float, int, int]], batch_max: int) -> tuple[bool, float]:
    """Whether the rule fired, and the share of minutes in which the test alone would have."""
    evaluation, integral, fired, trends = Evaluation(Rules(batch_max=batch_max)), 0, False, []
    for second in range(len(seconds)):
        minute = seconds[max(0, second - 59) : second + 1]
        means, arrived, ended = zip(*minute, strict=True)
        integral += round(seconds[second][0] * SECOND_NS)
        depth, t_ns = sum(means) / len(means), (second + 1) * SECOND_NS
        figures = Figures(
            t_ns=t_ns,
            growth_waiting=depth,
            waiting_area=Area(integral, t_ns),
            growth_arrived=sum(arrived),
            growth_ended=sum(ended),
        )
        fired |= any(event.alert.rule == "queue_growth" for event in evaluation.update(figures))
        if len(minute) == 60 and second % 60 == 59:
            z = mann_kendall(means)
            trends.append(z is not None and z > Z)
    return fired, sum(trends) / len(trends)


def main() -> None:
    """Print a row for each batch and load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--minutes", type=int, default=30)
    asked = parser.parse_args()
    print("batch  load  runs with an alert  minutes in which the test alone says so")
    for batch_max, per_second in ((16, 10.0), (64, 30.0)):
        for load in (0.8, 0.9, 0.95, 1.2):
            runs = [
                judge(queue(load, batch_max, per_second, 60 * asked.minutes, seed), batch_max)
                for seed in range(asked.runs)
            ]
            alerts, alone = sum(fired for fired, _ in runs), sum(share for _, share in runs) / len(runs)
            print(f"{batch_max:5}  {load:4}  {alerts:9} of {len(runs):3}  {alone:12.0%}", flush=True)


if __name__ == "__main__":
    main()
