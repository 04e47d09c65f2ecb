"""The summary of genai-perf (`profile_export_genai_perf.json`), by its tags and in its units.

Every time is a whole number of nanoseconds until it is written as milliseconds; inter-token latency is rounded to one.
The run lasts from the first request to the last response.
"""

from __future__ import annotations

import numpy as np

from tokenpulse.profiles.choices import Choices
from tokenpulse.profiles.rows import Bools, Figures, Rows, known, over
from tokenpulse.records import Floats

CHOICES = Choices(
    first="the first response that is not empty",
    itl="(latency - ttft) / (N - 1) of each request, rounded to ns",
    tpot_span="last - first",
    tpot_divisor="N - 1",
    counts="the text tokenised again",
    few_tokens="left out",
    percentile="linear",
    empty="absent",
    time="first request to last response",
    good="<=",
    good_of="seconds",
    failed="end the reading in an error; here left out",
)

POINTS = (1, 5, 10, 25, 50, 75, 90, 95, 99)

LIMITED = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}

UNITS = {
    "request_latency": "ms",
    "time_to_first_token": "ms",
    "time_to_second_token": "ms",
    "inter_token_latency": "ms",
    "output_token_throughput_per_user": "tokens/sec/user",
    "output_sequence_length": "tokens",
    "input_sequence_length": "tokens",
}

HEADLINE = {
    **{
        f"{metric}.{figure}": ((tag, key), 1e-3)
        for metric, tag in (("ttft", "time_to_first_token"), ("itl", "inter_token_latency"), ("e2e", "request_latency"))
        for figure, key in (("mean", "avg"), ("p50", "p50"), ("p99", "p99"), ("std", "std"))
    },
    "requests.succeeded": (("request_count", "avg"), 1),
    "requests_per_second": (("request_throughput", "avg"), 1),
    "output_tokens_per_second": (("output_token_throughput", "avg"), 1),
    "goodput": (("request_goodput", "avg"), 1),
}


def figures(rows: Rows, limits: dict[str, float]) -> Figures:
    """The summary that genai-perf would have written."""
    ok = rows.ok & ~np.isnan(rows.e2e)
    columns = per_request(rows)
    summary: Figures = {}
    for tag, column in columns.items():
        if (values := known(column[ok])).size and not (tag == "inter_token_latency" and not values.any()):
            summary[tag] = distribution(values, UNITS[tag], 1e6 if UNITS[tag] == "ms" else 1.0)
    counted = int(rows.ok.sum())
    seconds = None if rows.start is None else _span(rows, ok)
    if seconds is None:
        rows.missing("request_throughput and other rates", "the file has no times of the requests")
    summary["request_count"] = {"unit": "count", "avg": float(counted)}
    summary["request_throughput"] = {"unit": "requests/sec", "avg": over(counted, seconds)}
    tokens = rows.total(rows.output_tokens, ok, "output_token_throughput")
    summary["output_token_throughput"] = {
        "unit": "tokens/sec",
        "avg": None if tokens is None else over(tokens, seconds),
    }
    if limits:
        good = over(_good(rows, columns, limits), seconds)
        summary["request_goodput"] = {"unit": "requests/sec", "avg": good}
    else:
        rows.missing("request_goodput", "no limits were given")
    return summary


def per_request(rows: Rows) -> dict[str, Floats]:
    """Of each request: ns for times, NaN where it has none."""
    latency, ttft, n = _whole(rows.e2e), _whole(rows.ttft), rows.output_tokens
    gaps = np.zeros(len(rows)) if rows.gaps is None else rows.gaps.lengths
    second = np.full(len(rows), np.nan)
    if rows.gaps is not None:
        some = gaps > 0
        second[some] = _whole(rows.gaps.values[rows.gaps.offsets[:-1][some]])
    later = (n > 1) & ((gaps > 0) | (rows.gaps is None))
    itl = np.where(later, np.rint((latency - ttft) / np.where(later, n - 1, 1)), np.nan)
    moving = itl > 0
    return {
        "request_latency": latency,
        "time_to_first_token": ttft,
        "time_to_second_token": second,
        "inter_token_latency": itl,
        "output_token_throughput_per_user": np.where(moving, 1e9 / np.where(moving, itl, 1), np.nan),
        "output_sequence_length": n,
        "input_sequence_length": rows.prompt_tokens,
    }


def _whole(seconds: Floats) -> Floats:
    return np.rint(seconds * 1e9)


def _span(rows: Rows, ok: Bools) -> float | None:
    """s: first request to last response of the requests that have one."""
    if rows.start is None:
        return None
    starts = rows.start[ok]
    ends = known(starts + rows.e2e[ok])
    if not ends.size or not ends.max() > np.nanmin(starts):
        return None
    return float(ends.max() - np.nanmin(starts))


def distribution(values: Floats, unit: str, divisor: float) -> Figures:
    """Average, percentiles, extremes and deviation, divided as the unit asks for."""
    points = CHOICES.percentiles(values, [p / 100 for p in POINTS])
    return {
        "unit": unit,
        "avg": float(values.mean() / divisor),
        **{f"p{p}": float(point / divisor) for p, point in zip(POINTS, points, strict=True)},
        "min": float(values.min() / divisor),
        "max": float(values.max() / divisor),
        "std": float(values.std() / divisor),
    }


def _good(rows: Rows, columns: dict[str, Floats], limits: dict[str, float]) -> int:
    good = rows.ok.copy()
    for name, limit in limits.items():
        if name in LIMITED:
            good &= columns[LIMITED[name]] <= limit * 1e9
        else:
            rows.missing(f"goodput limit {name}", "genai-perf has no limit for the longest gap; it was passed over")
    return int(good.sum())
