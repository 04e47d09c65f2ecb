"""The summary of llmperf (`*_summary.json`), by its flattened keys; times in seconds.

As pandas has it: percentiles are linear, the deviation has n - 1. Its inter-token latency is a mean of each request
that includes the time to the first token; there is no TPOT. Where no request succeeded llmperf itself ends in an error.
"""

from __future__ import annotations

import numpy as np

from tokenpulse.profiles.choices import Choices
from tokenpulse.profiles.rows import Figures, Rows, known, over, spread
from tokenpulse.records import Floats

CHOICES = Choices(
    first="the first chunk with content",
    itl="end-to-end latency / N of each request: the time to the first token is in it",
    tpot_span=None,
    tpot_divisor=None,
    counts="the text tokenised again, with the token that begins a text",
    few_tokens="0 for N = 0",
    percentile="linear",
    ddof=1,
    empty="an error",
    time="the client's clock from the start of the run to its end",
    good=None,
    good_of=None,
)

QUANTILES = (25, 50, 75, 90, 95, 99)

METRICS = (
    "inter_token_latency_s",
    "ttft_s",
    "end_to_end_latency_s",
    "request_output_throughput_token_per_s",
    "number_input_tokens",
    "number_output_tokens",
)

HEADLINE = {
    **{
        f"{metric}.{figure}": ((f"results_{tag}_{key}",), 1)
        for metric, tag in (("ttft", METRICS[1]), ("itl", METRICS[0]), ("e2e", METRICS[2]))
        for figure, key in (("mean", "mean"), ("p50", "quantiles_p50"), ("p99", "quantiles_p99"), ("std", "stddev"))
    },
    "requests.succeeded": (("results_num_completed_requests",), 1),
    "requests.failed": (("results_number_errors",), 1),
    "requests_per_second": (("results_num_completed_requests_per_min",), 1 / 60),
    "output_tokens_per_second": (("results_mean_output_throughput_token_per_s",), 1),
}


def figures(rows: Rows, limits: dict[str, float]) -> Figures:
    """The summary that llmperf would have written."""
    ok, ended = rows.ok, rows.ended
    if limits:
        rows.missing("goodput", "llmperf has none")
    summary: Figures = {}
    for tag, column in _columns(rows).items():
        summary |= distribution(f"results_{tag}", known(column[ok]))
    if not ok.any():
        rows.missing("every distribution", "no request succeeded: llmperf itself ends in an error")
    started, errors = int(ended.sum()), int(rows.failed.sum())
    duration = rows.duration
    if duration is None:
        rows.missing("rates", "the file does not say how long the run was")
    tokens = rows.total(rows.output_tokens, ok, "results_mean_output_throughput_token_per_s")
    completed = over(int(ok.sum()), duration)
    return summary | {
        "results_num_requests_started": started,
        "results_error_rate": errors / started if started else 0,
        "results_number_errors": errors,
        "results_error_code_frequency": _codes(rows),
        "results_mean_output_throughput_token_per_s": None if tokens is None else over(tokens, duration),
        "results_num_completed_requests": int(ok.sum()),
        "results_num_completed_requests_per_min": None if completed is None else completed * 60,
    }


def _columns(rows: Rows) -> dict[str, Floats]:
    """The values of each request: llmperf's own where the file has them, else from times and counts."""
    n, latency = rows.output_tokens, rows.latency
    some = n > 0
    reckoned = {
        "inter_token_latency_s": np.where(some, latency / np.where(some, n, 1), np.where(n == 0, 0.0, np.nan)),
        "ttft_s": rows.ttft,
        "end_to_end_latency_s": latency,
        "request_output_throughput_token_per_s": np.where(latency == 0, 0.0, n / np.where(latency == 0, 1, latency)),
        "number_input_tokens": rows.prompt_tokens,
        "number_output_tokens": n,
    }
    own = rows.records.own if rows.records.tool == "llmperf" else {}
    return {tag: own.get(tag, reckoned[tag]) for tag in METRICS}


def distribution(prefix: str, values: Floats) -> Figures:
    """Quantiles, mean, extremes and deviation; None without values, and no deviation of a single one."""
    names = [f"{prefix}_quantiles_p{q}" for q in QUANTILES]
    if not values.size:
        return dict.fromkeys([*names, *(f"{prefix}_{figure}" for figure in ("mean", "min", "max", "stddev"))])
    points = CHOICES.percentiles(values, [q / 100 for q in QUANTILES])
    return {
        **{name: float(point) for name, point in zip(names, points, strict=True)},
        f"{prefix}_mean": float(values.mean()),
        f"{prefix}_min": float(values.min()),
        f"{prefix}_max": float(values.max()),
        f"{prefix}_stddev": spread(CHOICES, values),
    }


def _codes(rows: Rows) -> str:
    """How often each error code occurred, as Python writes a dict: the most frequent first."""
    codes = rows.records.own.get("error_code")
    counts: dict[int, int] = {}
    for code in [] if codes is None else known(codes[rows.failed]).tolist():
        counts[int(code)] = counts.get(int(code), 0) + 1
    return str(dict(sorted(counts.items(), key=lambda item: -item[1])))
