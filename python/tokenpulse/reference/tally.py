"""What is added up: the same block for a whole run, for a class, and for a bin of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tokenpulse.model import METRICS
from tokenpulse.reference.request import Ended, Observation
from tokenpulse.reference.sketch import Sketch
from tokenpulse.reference.slo import Verdict

SLOWEST = 5


class Judged:
    """The verdicts of one SLO set."""

    def __init__(self, scale: int = 6) -> None:
        self.good = 0
        self.output_tokens = 0
        self.missed: Counter[str] = Counter()
        self.met = 0
        self.deadlines = 0
        self.fluidity = Sketch(scale)

    def add(self, verdict: Verdict, output_tokens: int) -> None:
        if verdict.missed is None:
            self.good += 1
            self.output_tokens += output_tokens
        else:
            self.missed[verdict.missed] += 1
        self.met += verdict.met
        self.deadlines += verdict.deadlines
        if verdict.fluidity_ns is not None:
            self.fluidity.record_ns(verdict.fluidity_ns)

    def merge(self, other: Judged) -> None:
        self.good += other.good
        self.output_tokens += other.output_tokens
        self.missed += other.missed
        self.met += other.met
        self.deadlines += other.deadlines
        self.fluidity.merge(other.fluidity)

    def as_dict(self) -> dict[str, Any]:
        return {
            "good": self.good,
            "output_tokens": self.output_tokens,
            "missed": dict(self.missed),
            "met": self.met,
            "deadlines": self.deadlines,
            "fluidity": self.fluidity,
        }


class Block:
    """Counts, latencies and verdicts. Adding to it is commutative: blocks merge in any order."""

    def __init__(self, itl_rule: str, slos: int, scale: int = 6) -> None:
        self.attempted = 0
        self.by_status: Counter[str] = Counter()
        self.degraded = 0
        self.preempted = 0
        self.preemptions = 0
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.missing: Counter[str] = Counter()
        self.latency = {metric: Sketch(scale, itl_rule=itl_rule if metric == "itl" else None) for metric in METRICS}
        self.slos = [Judged(scale) for _ in range(slos)]

    def arrive(self, prompt_tokens: int) -> None:
        self.attempted += 1
        self.prompt_tokens += prompt_tokens

    def emit(self, output_tokens: int) -> None:
        self.output_tokens += output_tokens

    def preempt(self, times: int = 1) -> None:
        self.preemptions += times

    def observe(self, observation: Observation) -> None:
        self.latency[observation.metric].add(observation.value_ns, observation.times, observation.total_ns)

    def end(self, ended: Ended, verdicts: Sequence[Verdict | None]) -> None:
        self.by_status[ended.status] += 1
        self.degraded += ended.degraded
        self.preempted += ended.preemptions > 0
        self.missing.update(ended.missing)
        for observation in ended.observed():
            self.observe(observation)
        for judged, verdict in zip(self.slos, verdicts, strict=True):
            if verdict is not None:
                judged.add(verdict, ended.output_tokens)

    def merge(self, other: Block) -> None:
        self.attempted += other.attempted
        self.by_status += other.by_status
        self.degraded += other.degraded
        self.preempted += other.preempted
        self.preemptions += other.preemptions
        self.prompt_tokens += other.prompt_tokens
        self.output_tokens += other.output_tokens
        self.missing += other.missing
        for metric in METRICS:
            self.latency[metric].merge(other.latency[metric])
        for mine, theirs in zip(self.slos, other.slos, strict=True):
            mine.merge(theirs)

    def as_dict(self) -> dict[str, Any]:
        return {
            "attempted": self.attempted,
            "by_status": dict(self.by_status),
            "degraded": self.degraded,
            "preempted": self.preempted,
            "preemptions": self.preemptions,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "missing": dict(self.missing),
            "latency": self.latency,
            "slos": [judged.as_dict() for judged in self.slos],
        }


class Slowest:
    """The five largest observations of each metric, of distinct requests.

    A request keeps its largest. Among equals the one observed first stands first and is not displaced.
    """

    def __init__(self) -> None:
        self._lists: dict[str, list[tuple[int, int, str]]] = {metric: [] for metric in METRICS}

    def offer(self, metric: str, value_ns: int, serial: int, request_id: str) -> None:
        """`serial` tells requests apart: an id may come again after its request has ended."""
        ranking = self._lists[metric]
        if any(value >= value_ns for value, known, _ in ranking if known == serial):
            return
        others = [entry for entry in ranking if entry[1] != serial]
        place = sum(value >= value_ns for value, _, _ in others)
        others.insert(place, (value_ns, serial, request_id))
        self._lists[metric] = others[:SLOWEST]

    def merge(self, other: Slowest) -> None:
        """Adds the ranking of the next input: among equals its own stand last."""
        for metric in METRICS:
            both = self._lists[metric] + other._lists[metric]
            self._lists[metric] = sorted(both, key=lambda entry: -entry[0])[:SLOWEST]

    def as_dict(self) -> dict[str, list[tuple[int, str]]]:
        return {metric: [(value, name) for value, _, name in ranking] for metric, ranking in self._lists.items()}
