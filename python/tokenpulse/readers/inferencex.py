"""InferenceX results: one object of summary figures a run, in several shapes over its history.

Its aggregated files name hardware and framework and have their latencies in seconds under bare names (`mean_ttft`);
files as the serving benchmark left them have vLLM's keys in milliseconds (`mean_ttft_ms`) and are read as vLLM's.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from tokenpulse.readers.documents import Source, elements
from tokenpulse.readers.rows import Faults, brief
from tokenpulse.readers.summaries import figure, normalised, rate
from tokenpulse.records import Summary

FORMAT = "inferencex-summary"

DEFINITIONS = {
    "itl": "one gap a chunk: with speculative decoding a chunk has several tokens, and ITL is not TPOT",
    "tpot": "(latency - TTFT) / (N - 1)",
    "rates": "tokens a second and a GPU where the key says so (tput_per_gpu)",
}
_SETTINGS = (
    "hw", "image", "model", "model_id", "framework", "precision", "spec_decoding", "isl", "osl", "tp", "ep", "dp",
    "num_prompts", "burstiness", "date",
)  # fmt: skip


def recognises(keys: Set[str]) -> str | None:
    """Whether these keys are of InferenceX: what it adds, or latencies without a unit in their names."""
    if keys & {"tput_per_gpu", "output_tput_per_gpu"} or {"hw", "framework", "conc"} <= keys:
        return FORMAT
    if keys & {"median_ttft", "mean_ttft", "p99_ttft"} and keys & {"duration", "num_prompts", "model", "model_id"}:
        return FORMAT
    return FORMAT if {"[].hw", "[].framework"} <= keys or "[].tput_per_gpu" in keys else None


def read(source: Source) -> Iterator[Summary]:
    """Every result of the file: an object, several, or an array of them."""
    faults = Faults(source.name)
    for place, (_, _, figures) in enumerate(elements(source, faults, ["[*]", "$"]), 1):
        if isinstance(figures, list):
            continue  # what is left of an array whose elements were given
        if not isinstance(figures, dict):
            faults.skip(place, "not_object", f"expected an object, got {brief(figures)}")
            continue
        name = " ".join(str(figures[key]) for key in ("hw", "model", "model_id") if figures.get(key))
        concurrency = figure(figures.get("conc", figures.get("max_concurrency")))
        found = normalised(figures)
        for key, ours in (("tput_per_gpu", "total_tokens_per_gpu"), ("output_tput_per_gpu", "output_tokens_per_gpu")):
            if (known := figure(figures.get(key))) is not None:
                found.setdefault("rates", {})[ours] = known
        yield Summary(
            tool="inferencex",
            format=FORMAT,
            name=name if concurrency is None else f"{name} conc {concurrency:g}",
            figures=figures,
            normalised=found,
            run={
                "duration": figure(figures.get("duration")),
                "requested_rate": rate(figures.get("request_rate")),
                "concurrency": concurrency,
                "settings": {key: figures[key] for key in _SETTINGS if key in figures},
            },
            absent=dict.fromkeys(("requests", "latency", "timeline", "flow"), "InferenceX publishes summaries only"),
            definitions=dict(DEFINITIONS),
        )
    faults.end()
