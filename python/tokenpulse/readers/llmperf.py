"""llmperf: `*_individual_responses.json`, an array with one object a request, and its `*_summary.json`."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from tokenpulse.readers.documents import Source, documents, elements
from tokenpulse.readers.durations import DurationRows
from tokenpulse.readers.rows import Faults
from tokenpulse.readers.summaries import figure
from tokenpulse.records import Records, Summary

REQUESTS = "llmperf-requests"
SUMMARY = "llmperf-summary"

DEFINITIONS = {
    "ttft": "sending to the first chunk",
    "itl": "inter_token_latency_s: one mean a request, the time to the first token in it: E2E / N",
    "e2e": "end_to_end_latency_s: sending to the end of the answer",
    "output_tokens": "the text tokenised again with a Llama tokeniser, its begin-of-text token in it",
    "std": "ddof 1",
    "rates": "over the client's wall time, failed requests left out",
}


def recognises(keys: Set[str]) -> str | None:
    """Which of llmperf's files these keys are of, if any."""
    if "[].end_to_end_latency_s" in keys or {"[].ttft_s", "[].number_output_tokens"} & keys:
        return REQUESTS
    return SUMMARY if keys & {"results_ttft_s_mean", "results_end_to_end_latency_s_mean"} else None


def read(source: Source) -> Iterator[Records]:
    """The file is one run."""
    faults = Faults(source.name)
    table = DurationRows(
        faults,
        ttft="ttft_s",
        e2e="end_to_end_latency_s",
        prompt="number_input_tokens",
        output="number_output_tokens",
        error_code="error_code",
        error_message="error_msg",
    )
    for place, (_, _, row) in enumerate(elements(source, faults, ["[*]"]), 1):
        table.add(place, row)
    yield table.records(tool="llmperf", format=REQUESTS, definitions=dict(DEFINITIONS))


def read_summary(source: Source) -> Iterator[Summary]:
    """llmperf's own figures; its keys are paths joined by underscores, its durations in seconds."""
    for place, figures in enumerate(documents(source), 1):
        yield _summary(figures, str(place))


def _summary(figures: dict[str, Any], name: str) -> Summary:
    normalised: dict[str, Any] = {}
    for key, ours in (("ttft_s", "ttft"), ("end_to_end_latency_s", "e2e")):
        named = {"mean": "mean", "min": "min", "max": "max", "stddev": "std"} | {
            f"quantiles_p{p}": f"p{p}" for p in (25, 50, 75, 90, 95, 99)
        }
        known = {
            statistic: value
            for name, statistic in named.items()
            if (value := figure(figures.get(f"results_{key}_{name}"))) is not None
        }
        if known:
            normalised[ours] = known
    return Summary(
        tool="llmperf",
        format=SUMMARY,
        name=str(figures.get("name", name)),
        figures=figures,
        normalised=normalised,
        run={"concurrency": figure(figures.get("num_concurrent_requests"))},
        absent=dict.fromkeys(
            ("requests", "latency", "timeline", "flow"),
            "this is a summary of llmperf: read its individual_responses.json",
        ),
        definitions=dict(DEFINITIONS),
    )
