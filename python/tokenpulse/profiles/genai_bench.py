"""The `aggregated_metrics` of genai-bench, by its keys; times in seconds unless its file is in milliseconds."""

from __future__ import annotations

import numpy as np

from tokenpulse.profiles.choices import Choices
from tokenpulse.profiles.rows import Figures, Rows, known, over
from tokenpulse.records import Floats

CHOICES = Choices(
    first="the first chunk with content",
    itl="none of its own: TPOT",
    tpot_span="latency - ttft",
    tpot_divisor="N - 1",
    counts="the server's usage, else the text tokenised again",
    few_tokens="left out",
    percentile="linear",
    empty="null",
    time="the client's clock around the run",
    good=None,
    good_of=None,
)

POINTS = (25, 50, 75, 90, 95, 99)

METRICS = (
    "ttft",
    "tpot",
    "e2e_latency",
    "output_latency",
    "output_inference_speed",
    "num_input_tokens",
    "num_output_tokens",
    "num_reasoning_tokens",
    "total_tokens",
    "input_throughput",
    "output_throughput",
    "audio_throughput",
)

HEADLINE = {
    **{
        f"{metric}.{figure}": (("stats", tag, key), 1)
        for metric, tag in (("ttft", "ttft"), ("tpot", "tpot"), ("e2e", "e2e_latency"))
        for figure, key in (("mean", "mean"), ("p50", "p50"), ("p99", "p99"), ("std", "stddev"))
    },
    "requests.succeeded": (("num_completed_requests",), 1),
    "requests.failed": (("num_error_requests",), 1),
    "requests_per_second": (("requests_per_second",), 1),
    "output_tokens_per_second": (("mean_output_throughput_tokens_per_s",), 1),
}


def figures(rows: Rows, limits: dict[str, float]) -> Figures:
    """The figures that genai-bench would have written."""
    ok = rows.ok
    if limits:
        rows.missing("goodput", "genai-bench has none")
    stats = {tag: distribution(known(column[ok])) for tag, column in _columns(rows).items()}
    duration = rows.duration
    if duration is None:
        rows.missing("run_duration and rates", "the file has no duration of the run")
    completed, errors = int(ok.sum()), int(rows.failed.sum())
    rates = {
        f"mean_{kind}_throughput_tokens_per_s": _rate(rows, stats[tag]["sum"], duration)
        for kind, tag in (
            ("output", "num_output_tokens"),
            ("input", "num_input_tokens"),
            ("total_tokens", "total_tokens"),
        )
    }
    codes = rows.records.own.get("error_code")
    frequency: dict[str, int] = {}
    for code in [] if codes is None else known(codes[rows.failed]).tolist():
        frequency[str(int(code))] = frequency.get(str(int(code)), 0) + 1
    return {
        "run_duration": duration,
        **rates,
        "requests_per_second": over(completed, duration),
        "error_codes_frequency": frequency,
        "error_rate": errors / (completed + errors) if completed + errors else 0,
        "num_error_requests": errors,
        "num_completed_requests": completed,
        "num_requests": completed + errors,
        "stats": stats,
    }


def _rate(rows: Rows, tokens: float | None, duration: float | None) -> float | None:
    if tokens is None and rows.ok.any():
        rows.missing("mean_*_throughput_tokens_per_s", "the file does not count these tokens")
        return None
    return over(tokens or 0, duration)


def _columns(rows: Rows) -> dict[str, Floats]:
    """The values of each request: genai-bench's own where the file has them, else from times and counts."""
    n, prompt, ttft = rows.output_tokens, rows.prompt_tokens, rows.ttft
    written = rows.latency - ttft
    some = (n > 1) & (written > 0)
    speed = np.where(some, (n - 1) / np.where(some, written, 1), np.nan)
    reckoned = {
        "ttft": ttft,
        "tpot": rows.tpot(CHOICES.tpot_span, CHOICES.tpot_divisor),
        "e2e_latency": rows.latency,
        "output_latency": written,
        "output_inference_speed": speed,
        "num_input_tokens": prompt,
        "num_output_tokens": n,
        "total_tokens": prompt + n,
        "input_throughput": np.where(ttft == 0, 0.0, prompt / np.where(ttft == 0, 1, ttft)),
        "output_throughput": speed,
    }
    own = rows.records.own if rows.records.tool == "genai-bench" else {}
    nothing = np.full(len(rows), np.nan)
    return {tag: own.get(tag, reckoned.get(tag, nothing)) for tag in METRICS}


def distribution(values: Floats) -> Figures:
    """Extremes, mean, deviation, sum and percentiles; all None without values."""
    names = ("min", "max", "mean", "stddev", "sum", *(f"p{p}" for p in POINTS))
    if not values.size:
        return dict.fromkeys(names)
    points = CHOICES.percentiles(values, [p / 100 for p in POINTS])
    whole = (values.min(), values.max(), values.mean(), values.std(), values.sum(), *points)
    return {name: float(figure) for name, figure in zip(names, whole, strict=True)}
