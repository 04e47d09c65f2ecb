"""SGLang's `bench_serving` results: JSON lines, and a line is a whole run.

`--output-details` adds the arrays that vLLM's results have, but neither start times nor latencies.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from tokenpulse.readers import vllm
from tokenpulse.readers.documents import Source, lines_in_parts
from tokenpulse.readers.rows import Faults, UnreadableError, optional, parse
from tokenpulse.readers.summaries import figure, normalised, rate
from tokenpulse.records import Records, Summary

FORMAT = "sglang-bench"
DETAILED = "sglang-bench-detailed"
SUMMARY = "sglang-bench-summary"

DEFINITIONS = vllm.DEFINITIONS | {
    "itl": "backend sglang (/generate): a chunk of k tokens after a gap g gives k gaps of g/k; others: one gap a chunk",
    "e2e": "not in the file by request: TTFT and the gaps added up; the tool's own runs to the end of the answer",
    "tpot": "(latency - TTFT) / (N - 1), left out for N <= 1",
}
DEFINITIONS.pop("goodput")

_ONLY_HERE = frozenset(
    {"mean_e2e_latency_ms", "total_output_tokens_retokenized", "sharegpt_output_len", "accept_length"}
)
_SETTINGS = (
    "tag",
    "backend",
    "dataset_name",
    "sharegpt_output_len",
    "random_input_len",
    "random_output_len",
    "random_range_ratio",
)


def recognises(keys: Set[str]) -> str | None:
    """Whether these keys are of a run of SGLang's."""
    if keys & _ONLY_HERE or {"backend", "dataset_name", "request_rate", "random_range_ratio"} <= keys:
        return FORMAT
    return None


def read(source: Source) -> Iterator[Records | Summary]:
    """Every run of the file."""
    faults = Faults(source.name)
    place = 0
    for parts in lines_in_parts(
        source,
        faults,
        select=["errors"],
        columns=["ttfts", "latencies", "start_times", "itls[*]"],
        integers=["input_lens", "output_lens"],
        skip=["generated_texts", "output_texts", "server_info"],
    ):
        place += 1
        try:
            run = _run(parts, place, faults)
        except UnreadableError as error:
            faults.skip(place, error.reason, str(error))
            continue
        yield run
    faults.end()


def _run(parts: dict[str, Any], place: int, faults: Faults) -> Records | Summary:
    rest = optional(parse(parts.pop("$")), "a run")
    about = {
        "duration": figure(rest.get("duration")),
        "requested_rate": rate(rest.get("request_rate")),
        "concurrency": figure(rest.get("max_concurrency")),
        "settings": {key: rest[key] for key in _SETTINGS if key in rest},
    }
    name = f"{place}" if about["requested_rate"] is None else f"{place}: {about['requested_rate']:g}/s"
    columns = {key: value for key, value in parts.items() if not isinstance(value, bytes)}
    if "ttfts" not in columns or "output_lens" not in columns:
        why = "the file holds the tool's summary only: run it with --output-details"
        return Summary(
            tool="sglang",
            format=SUMMARY,
            name=name,
            figures=rest,
            normalised=normalised(rest),
            run=about,
            absent=dict.fromkeys(("requests", "latency", "timeline", "flow"), why),
            definitions=dict(DEFINITIONS),
            **faults.taken(),
        )
    return vllm.records(
        columns,
        vllm.errors_of(parts.get("errors")),
        faults,
        tool="sglang",
        format=DETAILED,
        name=name,
        run=about,
        summary=rest,
        definitions=DEFINITIONS,
    )
