"""A diagnosis from a log against the same figures added up here from its lines, with nothing but JSON and sketches."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenpulse import diagnose, reference, simulate
from tokenpulse.reference import diagnosis
from tokenpulse.reference.strata import length_bin

SECOND_NS = 1_000_000_000
GAUGES = ("running", "waiting", "kv_used", "kv_total", "batch_max")


class Requests:
    """The requests of a log, and what each of its lines observes."""

    def __init__(self) -> None:
        self.arrived: dict[int, dict[str, Any]] = {}
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.tokens: Counter[int] = Counter()
        self.evicted: set[int] = set()

    def observed(self, event: dict[str, Any]) -> Iterator[tuple[str, int, int, int]]:
        """Metric, request, value in ns and how often it is observed."""
        kind, number, t_ns = event["ev"], event.get("id", 0), event["t_ns"]
        if kind == "arrive":
            self.arrived[number] = event
        elif kind == "tokens":
            k = event.get("k", 1)
            if number not in self.first:
                self.first[number] = t_ns
                yield "ttft", number, t_ns - self.arrived[number]["t_ns"], 1
            else:
                yield "itl", number, (t_ns - self.last[number]) // k, k
            self.last[number] = t_ns
            self.tokens[number] += k
        elif kind == "end" and event["status"] == "stop" and self.tokens[number] > 1:
            yield "tpot", number, (self.last[number] - self.first[number]) // (self.tokens[number] - 1), 1


class Sum:
    """All that a stretch of a log, or one second of it, adds up to."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.areas: Counter[str] = Counter()
        self.pooled: dict[str, Any] = defaultdict(reference.Sketch)
        self.strata: dict[str, dict[str, Any]] = {name: defaultdict(reference.Sketch) for name in ("ttft", "tpot")}


def added_up(log: Path, spans: Iterable[tuple[int, int]]) -> list[Sum]:
    """What happened from one time up to, and without, another one, for each of the spans."""
    asked = list(spans)
    sums = [Sum() for _ in asked]
    requests, held, until = Requests(), dict.fromkeys(GAUGES, 0), 0

    def hold(t_ns: int) -> None:
        for (begin, end), one in zip(asked, sums, strict=True):
            ns = min(end, t_ns) - max(begin, until)
            if ns > 0:
                one.areas.update({name: value * ns for name, value in held.items()})

    for line in log.read_text().splitlines():
        event = json.loads(line)
        t_ns = event["t_ns"]
        observed = list(requests.observed(event))
        counted = counts_of(event, requests)
        for (begin, end), one in zip(asked, sums, strict=True):
            if not begin <= t_ns < end:
                continue
            one.counts.update(counted)
            for metric, number, ns, times in observed:
                one.pooled[metric].add(ns, times, ns * times)
                if metric in one.strata:
                    one.strata[metric][length_bin(requests.arrived[number]["prompt_tokens"])].record_ns(ns)
        if event["ev"] == "gauge":
            hold(t_ns)
            until = t_ns
            held |= {name: event[name] for name in GAUGES if name in event}
    hold(max(end for _, end in asked))
    return sums


def counts_of(event: dict[str, Any], requests: Requests) -> dict[str, int]:
    kind = event["ev"]
    if kind == "arrive":
        return {"arrivals": 1}
    if kind == "end":
        return {"ended": 1}
    if kind == "tokens":
        return {"output_tokens": event.get("k", 1)}
    if kind == "add":
        return {name: value for name, value in event.items() if name not in ("t_ns", "ev")}
    if kind == "kv_lookup" and not event.get("preempted"):
        return {"queried": event["queried"], "hit": event["hit"]}
    if kind == "kv_evict":
        requests.evicted |= set(event["hashes"])
        return {"evicted": len(event["hashes"])}
    if kind == "kv_store":
        back = requests.evicted & set(event["hashes"])
        requests.evicted -= back
        return {"refilled": len(back)}
    return {}


def side_of(one: Sum, seconds: float, panes: list[Sum], minute: list[Sum]) -> diagnosis.Side:
    count, area = one.counts, one.areas
    return diagnosis.Side(
        ttft=one.strata["ttft"],
        tpot=one.strata["tpot"],
        batch_utilization=area["running"] / area["batch_max"],
        kv_utilization=area["kv_used"] / area["kv_total"],
        waiting=area["waiting"] / (seconds * SECOND_NS),
        tokens_per_second=count["output_tokens"] / seconds,
        decode_share=count["decode_tokens"] / (count["decode_tokens"] + count["prefill_tokens"]),
        hit_rate=count["hit"] / count["queried"],
        refill_rate=count["refilled"] / count["evicted"] if count["evicted"] else 0.0,
        dequant_share=count["dequant_ns"] / (seconds * SECOND_NS),
        gpu_utilization=count["gpu_active_ns"] / (seconds * SECOND_NS),
        intensity=count["flops"] / count["bytes_moved"],
        batch_max=area["batch_max"] / (seconds * SECOND_NS),
        arrivals_per_end=count["arrivals"] / count["ended"],
        seconds=[second_of(pane) for pane in panes],
        depths=[pane.areas["waiting"] / SECOND_NS for pane in minute],
        arrived=sum(pane.counts["arrivals"] for pane in minute),
        ended=sum(pane.counts["ended"] for pane in minute),
    )


def second_of(pane: Sum) -> diagnosis.Second:
    gaps = pane.pooled["itl"]
    return diagnosis.Second(
        gaps.count, gaps.quantile(0.99) if gaps.count else None, pane.counts["evicted"], pane.counts["comm_ns"]
    )


FAULTS = ("refill-thrash:0.6", "comm-spikes:1", "overload:0.6", None)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_diagnosis_is_what_the_lines_add_up_to(tmp_path: Path, fault: str | None) -> None:
    log = tmp_path / "log.jsonl"
    simulate.run(seed=2, rate=25, duration="45s", output="lognormal:30,cv=0.6", batch_max=32, fault=fault, out=log)
    found = diagnose(log)
    begin, end = (round(found.current[name] * SECOND_NS) for name in ("from_seconds", "to_seconds"))
    base_begin, base_end = (round(found.baseline[name] * SECOND_NS) for name in ("from_seconds", "to_seconds"))
    newest_ns = json.loads(log.read_text().splitlines()[-1])["t_ns"]
    last = newest_ns // SECOND_NS * SECOND_NS

    def span(first_ns: int, last_ns: int) -> tuple[int, int]:
        """What bears the log's newest time belongs to its end."""
        return first_ns, last_ns + (last_ns == newest_ns)

    def seconds(first_ns: int, last_ns: int) -> list[tuple[int, int]]:
        return [span(t_ns, t_ns + SECOND_NS) for t_ns in range(first_ns, last_ns, SECOND_NS)]

    stretches = [span(base_begin, base_end), span(begin, end)]
    panes = [seconds(base_begin, base_end), seconds(begin, min(end, last)), seconds(0, min(end, last))]
    sums = added_up(log, [*stretches, *(pane for each in panes for pane in each)])
    split = [sums[2 : 2 + len(panes[0])], sums[2 + len(panes[0]) :][: len(panes[1])], sums[-len(panes[2]) :]]
    base = side_of(sums[0], (base_end - base_begin) / SECOND_NS, split[0], split[0])
    current = side_of(sums[1], (end - begin) / SECOND_NS, split[1], split[2][-60:])

    about = json.loads(log.read_text().splitlines()[0])
    machine = diagnosis.Machine(ridge=about["peak_flops"] / about["bandwidth_bytes_per_second"])
    verdicts = {row: judge(base, current, machine) for row, judge in diagnosis.ROWS.items()}
    assert [one.row for one in found.not_judged] == [row for row, one in verdicts.items() if one is None]
    assert {one.row for one in found.findings} == {
        row for row, one in verdicts.items() if one is not None and one.holds
    }
    for one in found.findings:
        expected = verdicts[one.row]
        assert expected is not None
        if one.explained_by is None:
            assert one.strength == pytest.approx(expected.strength, rel=1e-9)
    assert found.findings or fault is None
