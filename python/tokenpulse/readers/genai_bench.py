"""genai-bench: one document a run, with `individual_request_metrics` and `_time_unit`, the unit of its durations."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from tokenpulse.readers.documents import FORGET, Source, elements
from tokenpulse.readers.durations import DurationRows
from tokenpulse.readers.rows import Faults, UnreadableError, brief, obj, optional
from tokenpulse.readers.summaries import figure
from tokenpulse.records import Records, Summary

FORMAT = "genai-bench-requests"
SUMMARY = "genai-bench-summary"

_UNITS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e3, "milliseconds": 1e3, "us": 1e6, "ns": 1e9}

DEFINITIONS = {
    "tpot": "(end-to-end latency - TTFT) / (N - 1)",
    "e2e": "sending to the end of the answer",
    "output_tokens": "the server's usage, else the text tokenised",
    "rates": "over the run's duration by the client's clock",
}


def recognises(keys: Set[str]) -> str | None:
    """Whether these keys are of genai-bench's document."""
    ours = {"aggregated_metrics", "individual_request_metrics"} & keys or "aggregated_metrics.scenario" in keys
    return FORMAT if ours else None


def read(source: Source) -> Iterator[Records | Summary]:
    """Every run of the file; there is one."""
    faults = Faults(source.name)
    table, place = _table(faults), 0
    for path, _, value in elements(source, faults, ["$", "individual_request_metrics[*]"]):
        if value is FORGET:
            table, place = _table(faults), 0
        elif path != "$":
            place += 1
            table.add(place, value)
        else:
            yield _run(obj(value, "the document"), table)
            table, place = _table(faults), 0
    if place:
        raise UnreadableError("truncated", "the document ends before its _time_unit")


def _table(faults: Faults) -> DurationRows:
    return DurationRows(
        faults,
        ttft="ttft",
        e2e="e2e_latency",
        prompt="num_input_tokens",
        output="num_output_tokens",
        reasoning="num_reasoning_tokens",
        error_code="error_code",
        error_message="error_message",
    )


def _run(document: dict[str, Any], table: DurationRows) -> Records | Summary:
    unit = document.get("_time_unit", "s")
    if not isinstance(unit, str) or unit not in _UNITS:
        raise UnreadableError("bad_value", f"_time_unit: expected s or ms, got {brief(unit)}")
    figures = optional(document.get("aggregated_metrics"), "aggregated_metrics")
    about = {
        # It is in seconds whatever the unit of the durations.
        "duration": figure(figures.get("run_duration")),
        "requested_rate": None,
        "concurrency": figure(figures.get("num_concurrency")),
        "settings": {"_time_unit": unit}
        | {key: figures[key] for key in ("scenario", "batch_size", "iteration_type") if key in figures},
    }
    name = str(figures.get("scenario") or "")
    if not len(table.status) and not table.faults.skipped:
        return Summary(
            tool="genai-bench",
            format=SUMMARY,
            name=name,
            figures=figures,
            run=about,
            absent=dict.fromkeys(("requests", "latency", "timeline", "flow"), "the file holds no single request"),
            definitions=dict(DEFINITIONS),
        )
    units = {key: unit for key in ("ttft", "tpot", "e2e_latency", "output_latency") if key in table.own.columns}
    return table.records(
        divisor=_UNITS[unit],
        tool="genai-bench",
        format=FORMAT,
        name=name,
        run=about,
        summary=figures,
        own_units=units,
        definitions=dict(DEFINITIONS),
    )
