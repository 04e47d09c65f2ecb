"""The figures of `vllm bench serve`, by its keys and in its units (times in ms, rates per second).

As vLLM 0.32 reckons: failed requests are counted and give no latency; gaps are pooled over all requests, one a chunk;
percentiles are linear; a distribution without values is 0. The duration is the client's own clock around the whole run
where the file has it, and the time from the first sending to the last answer where it has not.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tokenpulse.profiles.choices import Choices
from tokenpulse.profiles.rows import Figures, Rows, known, over
from tokenpulse.records import Floats

CHOICES = Choices(
    first="the first chunk with choices, even of empty text",
    itl="each gap between chunks, pooled over all requests",
    tpot_span="latency - ttft",
    tpot_divisor="N - 1",
    counts="the server's usage, else the text tokenised again",
    few_tokens="left out; 0 in goodput",
    percentile="linear",
    empty="0",
    time="the client's clock from the start of the run to the last answer, drain included",
    good="<=",
    good_of="seconds",
)

HEADLINE = {
    **{
        f"{metric}.{figure}": ((f"{key}_{tag}_ms",), 1e-3)
        for metric, tag in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2e", "e2el"))
        for figure, key in (("mean", "mean"), ("p50", "median"), ("p99", "p99"), ("std", "std"))
    },
    "requests.succeeded": (("completed",), 1),
    "requests.failed": (("failed",), 1),
    "requests_per_second": (("request_throughput",), 1),
    "output_tokens_per_second": (("output_throughput",), 1),
    "goodput": (("request_goodput",), 1),
}
"""Where the figures that all tools have stand here, and what makes seconds of them."""

PERCENTILES = (50.0, 90.0, 95.0, 99.0)
"""Given where the file names none: vLLM itself gives what it is told to, 99 unless told."""

NAMED = re.compile(r"p(\d+(?:\.\d+)?)_(?:ttft|tpot|itl|e2el|client_queue_time|e2el_including_client_queue)_ms")


def figures(rows: Rows, limits: dict[str, float]) -> Figures:
    """The summary that vLLM would have written."""
    ok, duration = rows.ok, rows.duration
    values = latencies(rows)
    prompt, output = tokens(rows)
    completed = int(ok.sum())
    if duration is None:
        for name in ("duration", "request_throughput", "output_throughput", "total_token_throughput"):
            rows.missing(name, "the file has no times of the requests and no duration of the run")
    summary: Figures = {
        "duration": duration,
        "completed": completed,
        "failed": int(rows.failed.sum()),
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "request_throughput": over(completed, duration),
        "request_goodput": over(good(rows, limits), duration) if limits else None,
        "output_throughput": None if output is None else over(output, duration),
        "total_token_throughput": None if output is None or prompt is None else over(prompt + output, duration),
        "max_output_tokens_per_s": busiest_second(rows),
        "max_concurrent_requests": most_at_once(rows),
        "rtfx": _audio(rows),
    }
    if not limits:
        rows.missing("request_goodput", "no limits were given")
    asked = selected(rows.own_summary("vllm"))
    for name, seconds in values.items():
        summary |= distribution(name, seconds, asked)
    return summary


def latencies(rows: Rows) -> dict[str, Floats]:
    """s: the values of each distribution, of the requests that succeeded."""
    ok = rows.ok
    tpot = rows.tpot(CHOICES.tpot_span, CHOICES.tpot_divisor)[ok]
    # Where an answer was not streamed vLLM has a TTFT of 0, and counts it.
    ttft = rows.records.own.get("ttfts", rows.ttft)
    values = {
        "ttft": _known(rows, "ttft", ttft[ok]),
        "tpot": known(tpot),
        "itl": rows.pooled_gaps(ok),
        "e2el": _known(rows, "e2el", rows.latency[ok]),
    }
    some = bool(ok.any())
    absent = {
        "ttft": some and not values["ttft"].size and "the file has no times of first tokens",
        "itl": rows.gaps is None and "the file has no times between tokens",
        "tpot": some
        and not known(rows.output_tokens[ok]).size
        and "the file does not say how many tokens an answer had",
        "e2el": some and not values["e2el"].size and "the file has no times of the ends of answers",
    }
    for name, why in absent.items():
        if why:
            rows.missing(f"*_{name}_ms", why)
            del values[name]
    held = rows.records.queue
    if held is not None and rows.records.run.get("concurrency") is not None:
        values["client_queue_time"] = held[ok]
        if math.isfinite(rows.records.run.get("requested_rate") or math.inf):
            values["e2el_including_client_queue"] = rows.latency[ok] + held[ok]
    return values


def _known(rows: Rows, name: str, seconds: Floats) -> Floats:
    held = known(seconds)
    if 0 < held.size < seconds.size:
        rows.missing(f"{name} of some requests", f"{seconds.size - held.size} of {seconds.size} have none")
    return held


def distribution(name: str, seconds: Floats, percentiles: Sequence[float]) -> Figures:
    """Mean, median, deviation and percentiles of seconds, in ms; 0 where there is no value."""
    held = seconds if seconds.size else np.zeros(1)
    points = CHOICES.percentiles(held, [p / 100 for p in percentiles])
    return {
        f"mean_{name}_ms": float(np.mean(held) * 1000),
        f"median_{name}_ms": float(np.median(held) * 1000),
        f"std_{name}_ms": float(np.std(held) * 1000),
        **{f"p{p:g}_{name}_ms": float(point * 1000) for p, point in zip(percentiles, points, strict=True)},
    }


def selected(summary: Figures) -> list[float]:
    """The percentiles that a run's own summary has, else the usual ones.

    >>> selected({"p99.9_ttft_ms": 1.0, "p50_itl_ms": 1.0})
    [50.0, 99.9]
    """
    named = {float(found[1]) for key in summary if (found := NAMED.fullmatch(key))}
    return sorted(named) or list(PERCENTILES)


def good(rows: Rows, limits: dict[str, float]) -> int:
    """How many successes are at or under every limit; one of a single token has a TPOT of 0."""
    ok = rows.ok
    tpot = rows.tpot(CHOICES.tpot_span, CHOICES.tpot_divisor)[ok]
    ttft = rows.records.own.get("ttfts", rows.ttft)
    values = {"ttft": ttft[ok], "tpot": np.where(np.isnan(tpot), 0.0, tpot), "e2e": rows.latency[ok]}
    within = np.ones(int(ok.sum()), np.bool_)
    for name, limit in limits.items():
        if name in values:
            within &= values[name] <= limit
        else:
            rows.missing(f"goodput limit {name}", "vLLM knows no such limit; it was passed over")
    return int(within.sum())


def busiest_second(rows: Rows) -> float | None:
    """The most chunks in any whole second since the first sending; each chunk counts as one token."""
    ok = rows.ok
    if rows.start is None or rows.gaps is None:
        rows.missing("max_output_tokens_per_s", "the file has no times of tokens on a common clock")
        return None
    if not ok.any():
        return 0.0
    starts, firsts, gaps = rows.start[ok], rows.ttft[ok], rows.gaps.select(ok)
    origin = np.nanmin(starts)
    seconds = math.ceil(float(np.nanmax(starts + rows.latency[ok]) - origin)) + 1
    counts = Counter[int]()  # as many as there are chunks, however long the run
    for start, first, steps in zip(starts, firsts, gaps, strict=True):
        # One after the other, as vLLM adds them up: the last bit decides into which second a chunk falls.
        times = np.cumsum(np.concatenate(([start + first], steps)))
        places = (times[~np.isnan(times)] - origin).astype(np.int64)
        counts.update(places[(places >= 0) & (places < seconds)].tolist())
    return float(max(counts.values(), default=0))


def most_at_once(rows: Rows) -> int | None:
    """The most successes that were in flight at any time of one whole second since the first sending.

    So two requests count as concurrent that never met, as long as one ended in the second in which the other began.
    """
    if rows.start is None:
        rows.missing("max_concurrent_requests", "the file has no times of the requests")
        return None
    starts = rows.start[rows.ok]
    ends = starts + rows.latency[rows.ok]
    timed = ~np.isnan(ends)
    if not timed.any():
        return 0
    origin = np.nanmin(starts)
    began, ended = (starts[timed] - origin).astype(np.int64), (ends[timed] - origin).astype(np.int64)
    # Only at seconds in which one begins or is over does the number change, however long the run.
    _, place = np.unique(np.concatenate((began, ended + 1)), return_inverse=True)
    steps = np.zeros(len(place), np.int64)
    np.add.at(steps, place[: len(began)], 1)
    np.add.at(steps, place[len(began) :], -1)
    return int(np.cumsum(steps).max())


def tokens(rows: Rows) -> tuple[int | None, int | None]:
    """Tokens of the prompts and of the answers of all successes; None where a file does not count them."""
    prompt = rows.total(rows.prompt_tokens, rows.ok, "total_input_tokens")
    output = rows.total(rows.output_tokens, rows.ok, "total_output_tokens")
    return None if prompt is None else int(prompt), None if output is None else int(output)


def _audio(rows: Rows) -> float | None:
    """Audio seconds over the run's; without audio 0. How long the audio was is in no file."""
    if rows.own_summary("vllm").get("rtfx"):
        rows.missing("rtfx", "the file does not say how long the audio was")
        return None
    return 0.0
