"""AIPerf: `profile_export.jsonl`, one request a line, and `profile_export_aiperf.json`, its own summary.

Every figure carries its unit, and none is read without it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Set
from dataclasses import replace
from typing import Any

import numpy as np

from tokenpulse.readers.documents import Source, documents, each_line
from tokenpulse.readers.rows import (
    MAX_TIME,
    NAN,
    SERVER_SIDE,
    STATUS,
    Faults,
    LabelColumns,
    OwnColumns,
    RaggedColumn,
    UnreadableError,
    brief,
    failed_status,
    floats,
    gaps,
    integer,
    ints,
    number,
    obj,
    optional,
    seconds,
    statuses,
    uncounted,
    unique,
    unsummed,
)
from tokenpulse.readers.summaries import figure
from tokenpulse.records import ABSENT, Records, Summary

REQUESTS = "aiperf-requests"
SUMMARY = "aiperf-summary"

DEFINITIONS = {
    "ttft": "sending to the first content that is not empty, reasoning included",
    "itl": "inter_chunk_latency: one gap a chunk with content, pooled; a chunk may have several tokens",
    "tpot": "inter_token_latency: (request_latency - TTFT) / (N - 1)",
    "e2e": "request_latency: sending to the last content",
    "output_tokens": "output_sequence_length, reasoning included: the text tokenised again, or the server's usage"
    " where it was told to take that",
    "goodput": "any metric's limit, a metric that is missing fails; good / (last content - first send)",
    "rates": "over last content minus first send",
}

_SECONDS = {"ns": 1e9, "us": 1e6, "µs": 1e6, "ms": 1e3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
_METRICS = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "itl",
    "request_latency": "e2e",
}
_RATES = {
    "request_throughput": "requests",
    "goodput": "good_requests",
    "output_token_throughput": "output_tokens",
    "total_token_throughput": "total_tokens",
}


def recognises(keys: Set[str]) -> str | None:
    """Which of AIPerf's files these keys are of, if any."""
    if "metadata.request_start_ns" in keys and "metrics" in keys:
        return REQUESTS
    if "aiperf_version" in keys or {"input_config", "request_latency.unit"} <= keys:
        return SUMMARY
    return None


def read(source: Source) -> Iterator[Records]:
    """The file is one run."""
    rows = _Rows(source.name)
    each_line(source, rows.faults, rows.add)
    yield rows.records()


class _Rows:
    def __init__(self, path: str) -> None:
        self.faults = Faults(path)
        self.ids: list[str | None] = []
        self.errors: list[str | None] = []
        self.times = {name: array("q") for name in ("request_start_ns", "request_end_ns", "credit_issued_ns")}
        self.ttft, self.e2e = array("d"), array("d")
        self.gaps = RaggedColumn()
        self.counts = {
            name: array("q") for name in ("input_sequence_length", "output_sequence_length", "reasoning_token_count")
        }
        self.status, self.warmup = bytearray(), bytearray()
        self.labels, self.own, self.units = LabelColumns(), OwnColumns(), dict[str, str]()

    def add(self, row: dict[str, Any]) -> None:
        """One request; nothing of it is kept if any of it is at fault."""
        about, metrics = obj(row.get("metadata"), "metadata"), optional(row.get("metrics"), "metrics")
        times = {name: integer(about.get(name), f"metadata.{name}", MAX_TIME) for name in self.times}
        if times["request_start_ns"] == ABSENT:
            raise UnreadableError("missing_field", "metadata.request_start_ns: expected a time in ns, got nothing")
        counts = {name: integer(_value(metrics, name), f"metrics.{name}") for name in self.counts}
        ttft, e2e = (_duration(metrics, name) for name in ("time_to_first_token", "request_latency"))
        chunks = _chunk_gaps(metrics)
        own = _scalars(metrics)
        status, error = _ending(row.get("error"), about.get("was_cancelled"))
        phase = about.get("benchmark_phase")
        for name, time in times.items():
            self.times[name].append(time)
        for name, count in counts.items():
            self.counts[name].append(count)
        self.ttft.append(ttft)
        self.e2e.append(e2e)
        self.gaps.append(chunks)
        self.own.append({key: value for key, (value, _) in own.items()})
        self.units.update({key: unit for key, (_, unit) in own.items()})
        self.status.append(status)
        self.errors.append(error)
        self.warmup.append("warmup" in (phase, about.get("phase_kind")))
        self.labels.append({"phase": about.get("phase_name", phase)})
        self.ids.append(about.get("x_request_id") if isinstance(about.get("x_request_id"), str) else None)

    def records(self) -> Records:
        """All requests that were taken."""
        start, end = ints(self.times["request_start_ns"]), ints(self.times["request_end_ns"])
        chunks = self.gaps.finish()
        absent = dict(SERVER_SIDE)
        if not len(chunks.values):
            absent["latency.itl"] = "no request has inter_chunk_latency: the answers were not streamed"
        reasoning = ints(self.counts["reasoning_token_count"])
        absent |= uncounted(ints(self.counts["output_sequence_length"]), statuses(self.status))
        records = Records(
            tool="aiperf",
            format=REQUESTS,
            ids=unique(self.ids),
            clock="epoch",
            arrive_ns=start,
            intended_ns=ints(self.times["credit_issued_ns"]),
            end_ns=end,
            ttft=floats(self.ttft),
            e2e=floats(self.e2e),
            latency=np.where(end == ABSENT, NAN, (end - start) / 1e9),
            gaps=chunks if len(chunks.values) else None,
            prompt_tokens=ints(self.counts["input_sequence_length"]),
            output_tokens=ints(self.counts["output_sequence_length"]),
            reasoning_tokens=reasoning if (reasoning != ABSENT).any() else None,
            status=statuses(self.status),
            warmup=np.array(self.warmup, np.bool_) if any(self.warmup) else None,
            errors=self.errors,
            labels=self.labels.finish(),
            own=self.own.finish(),
            own_units=self.units,
            absent=absent,
            definitions=dict(DEFINITIONS),
        )
        unsummed(records, self.faults)
        return replace(records, **self.faults.taken())


def _value(metrics: dict[str, Any], name: str) -> Any:
    metric = metrics.get(name)
    return metric.get("value") if isinstance(metric, dict) else metric


def _divisor(metric: dict[str, Any], name: str) -> float:
    unit = metric.get("unit")
    divisor = _SECONDS.get(unit) if isinstance(unit, str) else None
    if divisor is None:
        raise UnreadableError("bad_value", f"metrics.{name}.unit: expected ns, us, ms or s, got {brief(unit)}")
    return divisor


def _duration(metrics: dict[str, Any], name: str) -> float:
    """A metric in seconds, NaN where the request has none."""
    if metrics.get(name) is None:
        return NAN
    metric = obj(metrics[name], f"metrics.{name}")
    return seconds(metric.get("value"), f"metrics.{name}.value") / _divisor(metric, name)


def _chunk_gaps(metrics: dict[str, Any]) -> Any:
    if metrics.get("inter_chunk_latency") is None:
        return ()
    metric = obj(metrics["inter_chunk_latency"], "metrics.inter_chunk_latency")
    values = metric.get("value")
    if values is None:
        return ()
    divisor = _divisor(metric, "inter_chunk_latency")
    return np.frombuffer(gaps(values, "metrics.inter_chunk_latency.value")) / divisor


def _scalars(metrics: dict[str, Any]) -> dict[str, tuple[float, str]]:
    """Every metric that is one number, with its unit, as the tool has it."""
    found = {}
    for key, metric in metrics.items():
        value = metric.get("value") if isinstance(metric, dict) else None
        if value is not None and not isinstance(value, (list, dict, bool)):
            found[key] = (number(value, f"metrics.{key}.value"), str(metric.get("unit", "")))
    return found


def _ending(error: Any, cancelled: Any) -> tuple[int, str | None]:
    """How a request ended, and its error in words."""
    if not error and not cancelled:
        return STATUS["stop"], None
    details = error if isinstance(error, dict) else {"message": str(error)} if error else {}
    text = ": ".join(str(part) for part in (details.get("type"), details.get("message")) if part) or "cancelled"
    if cancelled or details.get("type") == "RequestCancellationError":
        return STATUS["abort"], text
    return failed_status(details.get("code")), text


def read_summary(source: Source) -> Iterator[Summary]:
    """AIPerf's own figures."""
    for place, figures in enumerate(documents(source), 1):
        yield _summary(figures, str(place))


def _summary(figures: dict[str, Any], name: str) -> Summary:
    normalised: dict[str, Any] = {}
    for key, ours in _METRICS.items():
        metric = figures.get(key)
        if isinstance(metric, dict) and str(metric.get("unit")) in _SECONDS:
            divisor = _SECONDS[str(metric["unit"])]
            normalised[ours] = {
                {"avg": "mean"}.get(statistic, statistic): known / divisor
                for statistic, value in metric.items()
                if statistic not in ("unit", "count", "sum") and (known := figure(value)) is not None
            }
    rates = {ours: _average(figures, key) for key, ours in _RATES.items() if _average(figures, key) is not None}
    if rates:
        normalised["rates"] = rates
    requests = {
        ours: int(count)
        for key, ours in (("request_count", "succeeded"), ("error_request_count", "failed"))
        if (count := _average(figures, key)) is not None
    }
    if requests:
        normalised["requests"] = requests
    duration = _average(figures, "benchmark_duration")
    if duration is not None:
        normalised["duration"] = duration
    return Summary(
        tool="aiperf",
        format=SUMMARY,
        name=name,
        figures=figures,
        normalised=normalised,
        run={"duration": duration, "settings": figures.get("input_config")},
        absent=dict.fromkeys(
            ("requests", "latency", "timeline", "flow"), "this is AIPerf's own summary: read its profile_export.jsonl"
        ),
        definitions=dict(DEFINITIONS),
    )


def _average(figures: dict[str, Any], key: str) -> float | None:
    metric = figures.get(key)
    return figure(metric.get("avg")) if isinstance(metric, dict) else None
