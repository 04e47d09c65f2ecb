"""The summary of inference-perf (`summary_lifecycle_metrics.json` and a stage's), by its keys; all times in seconds.

As inference-perf 0.7 reckons: percentiles are linear and a distribution without values is null; every token of a chunk
bears the chunk's time, so that a gap within a chunk is 0; TTFT and TPOT are those of requests with more than one token
time; N is the client's count. Goodput is a share of the requests that succeeded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np

from tokenpulse.profiles.choices import Choices
from tokenpulse.profiles.rows import Bools, Figures, Rows, known
from tokenpulse.records import ABSENT, Floats

CHOICES = Choices(
    first="the time of the first output token",
    itl="each gap between token times; gaps within a chunk are 0",
    tpot_span="last - first",
    tpot_divisor="N - 1",
    counts="the text tokenised again",
    few_tokens="left out",
    percentile="linear",
    ddof=None,
    empty="null",
    time="first start to last end of all requests, failed ones included",
    good="<=",
    good_of="requests that succeeded",
    failed="apart, with their latency",
)

HEADLINE = {
    **{
        f"{metric}.{figure}": (("successes", "latency", tag, key), 1)
        for metric, tag in (
            ("ttft", "time_to_first_token"),
            ("tpot", "time_per_output_token"),
            ("itl", "inter_token_latency"),
            ("e2e", "request_latency"),
        )
        for figure, key in (("mean", "mean"), ("p50", "median"), ("p99", "p99"))
    },
    "requests.succeeded": (("successes", "count"), 1),
    "requests.failed": (("failures", "count"), 1),
    "requests_per_second": (("successes", "throughput", "requests_per_sec"), 1),
    "output_tokens_per_second": (("successes", "throughput", "output_tokens_per_sec"), 1),
    "goodput": (("successes", "goodput_metrics", "request_goodput"), 1),
    "attainment": (("successes", "goodput_metrics", "goodput_percentage"), 0.01),
}

PERCENTILES = (0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)

LIMITED = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "request_latency", "ntpot": "ntpot"}
"""Our limits as inference-perf's; its `itl` is the mean gap of a request."""


def figures(rows: Rows, limits: dict[str, float]) -> Figures:
    """The summary that inference-perf would have written."""
    points = _selected(rows.own_summary("inference-perf"))
    ok, failed, ended = rows.ok, rows.failed, rows.ended
    seconds = rows.wall(ended)
    if seconds is None:
        rows.missing("benchmark_time_seconds and rates", "the file has no times of the requests")
    requests = Requests(rows)
    successes: Figures = {
        "count": int(ok.sum()),
        "latency": {name: summarize(known(values), points) for name, values in requests.latencies(ok).items()},
        "throughput": _throughput(rows, requests, seconds),
        "request_size_bytes": summarize(known(requests.sizes[ok]), points),
        **_media(int(ok.sum()), points),
        "prompt_tokens": _prompts(requests, ok, points),
        "output_len": summarize(known(requests.output[ok]), points),
        "output_tokens": _outputs(requests, ok, points),
        "token_count_mismatches": requests.mismatches(ok),
        "client_fallback_requests": {
            "prompt": int(np.isnan(requests.served_prompt[ok]).sum()),
            "output": int(np.isnan(requests.served_output[ok]).sum()),
        },
    }
    if limits:
        successes["goodput_metrics"] = _goodput(rows, requests, limits)
    else:
        rows.missing("successes.goodput_metrics", "no limits were given")
    return {
        "benchmark_time_seconds": seconds,
        "load_summary": _load(rows, points),
        "successes": successes,
        "failures": {
            "count": int(failed.sum()),
            "request_latency": summarize(known(requests.latency[failed]), points),
            "prompt_tokens": _prompts(requests, failed, points),
            "by_label": _labels(rows, failed),
        },
    }


class Requests:
    """What inference-perf has of each request; NaN where it has none."""

    def __init__(self, rows: Rows) -> None:
        own, nothing = rows.records.own, np.full(len(rows), np.nan)
        self.rows = rows
        self.latency = rows.latency
        self.output, self.prompt = rows.output_tokens, rows.prompt_tokens
        self.served_output = own.get("server_usage.completion_tokens", own.get("server_usage.output_tokens", nothing))
        self.served_prompt = own.get("server_usage.prompt_tokens", own.get("server_usage.input_tokens", nothing))
        self.cached = own.get("server_usage.prompt_tokens_details.cached_tokens", nothing)
        self.sizes = own.get("request_bytes", nothing)
        if rows.records.tool != "inference-perf":
            self.served_output, self.served_prompt = self.output, self.prompt
            rows.missing("successes.request_size_bytes", "only inference-perf's own file has the requests' text")
        self.times = _token_times(rows)
        self.streamed = self.times > 1

    @property
    def gaps(self) -> tuple[Floats, Floats]:
        """s: how many gaps of 0 each request has within its chunks, and the sum of its gaps."""
        return self.times - 1 - _lengths(self.rows), np.where(self.streamed, self.rows.e2e - self.rows.ttft, np.nan)

    def latencies(self, keep: Bools) -> dict[str, Floats]:
        """s: the values of each distribution."""
        rows = self.rows
        some = self.output > 0
        ntpot = np.where(some, self.latency / np.where(some, self.output, 1), np.where(self.output == 0, 0.0, np.nan))
        return {
            "request_latency": self.latency[keep],
            "normalized_time_per_output_token": ntpot[keep],
            "time_per_output_token": self.tpot[keep],
            "time_to_first_token": np.where(self.streamed, rows.ttft, np.nan)[keep],
            "inter_token_latency": self._pooled(keep),
        }

    @property
    def tpot(self) -> Floats:
        """s."""
        return np.where(self.streamed, self.rows.tpot(CHOICES.tpot_span, CHOICES.tpot_divisor), np.nan)

    def _pooled(self, keep: Bools) -> Floats:
        if self.rows.gaps is None:
            return np.zeros(0)
        within = np.maximum(self.gaps[0], 0)[keep & self.streamed]
        return np.concatenate((self.rows.pooled_gaps(keep & self.streamed), np.zeros(int(np.nansum(within)))))

    def mismatches(self, keep: Bools) -> int:
        """Requests whose token times are not as many as the server counted."""
        told = keep & ~np.isnan(self.served_output) & (self.times > 0)
        return int((self.times[told] != self.served_output[told]).sum())


def _lengths(rows: Rows) -> Floats:
    return np.zeros(len(rows)) if rows.gaps is None else rows.gaps.lengths.astype(np.float64)


def _token_times(rows: Rows) -> Floats:
    """How many token times each request has: one a token of every chunk, where the chunks' sizes are known."""
    if rows.gaps is None:
        rows.missing("successes.latency.inter_token_latency", "the file has no times between tokens")
        return np.where(np.isnan(rows.ttft), 0.0, np.maximum(np.nan_to_num(rows.output_tokens), 1.0))
    chunks = np.where(np.isnan(rows.ttft), 0.0, _lengths(rows) + 1)
    sizes = rows.records.chunk_tokens
    if sizes is None:
        return chunks
    sums = np.zeros(len(rows))
    np.add.at(sums, sizes.rows, sizes.values)
    return sums


def _selected(summary: Figures) -> Sequence[float]:
    """The percentiles that a run's own summary has, else the usual ones."""
    found = summary.get("successes", {}).get("latency", {}).get("request_latency") or {}
    named = [50.0 if key == "median" else float(key[1:]) for key in found if key == "median" or key[:1] == "p"]
    return named or PERCENTILES


def summarize(values: Floats, percentiles: Sequence[float] = PERCENTILES) -> Figures | None:
    """Mean, extremes and percentiles; None without values.

    >>> summarize(np.array([1.0, 2.0]), [50, 99.9])
    {'mean': 1.5, 'min': 1.0, 'max': 2.0, 'median': 1.5, 'p99.9': 1.999}
    """
    if not values.size:
        return None
    points = CHOICES.percentiles(values, [p / 100 for p in percentiles])
    named = {"median" if p == 50 else f"p{p:g}": float(point) for p, point in zip(percentiles, points, strict=True)}
    return {"mean": float(np.mean(values)), "min": float(values.min()), "max": float(values.max()), **named}


def _load(rows: Rows, points: Sequence[float]) -> Figures:
    ended = rows.ended
    count = int(ended.sum())
    load: Figures = {"count": count, "schedule_delay": None}
    meant, sent = rows.records.intended_ns, rows.records.arrive_ns
    if meant is None or sent is None:
        rows.missing("load_summary.schedule_delay", "the file does not say when a request was due")
    else:
        told = ended & (meant != ABSENT) & (sent != ABSENT)
        load["schedule_delay"] = summarize((sent[told] - meant[told]) / 1e9, points)
    starts = np.zeros(0) if rows.start is None else known(rows.start[ended])
    if starts.size:
        span = float(starts.max() - starts.min())
        load["send_duration"] = span
        asked = rows.records.run.get("requested_rate")
        load["requested_rate"] = asked if asked is not None and np.isfinite(asked) else None
        load["achieved_rate"] = count / span if span > 0 else 0.0
        if load["requested_rate"] is None:
            rows.missing("load_summary.requested_rate", "the file names no rate that was asked for")
    return load


def _throughput(rows: Rows, requests: Requests, seconds: float | None) -> Figures:
    ok = rows.ok
    prompt = rows.total(requests.prompt, ok, "successes.throughput.input_tokens_per_sec")
    output = rows.total(requests.output, ok, "successes.throughput.output_tokens_per_sec")
    amounts = {
        "input_tokens_per_sec": prompt,
        "output_tokens_per_sec": output,
        "total_tokens_per_sec": None if prompt is None or output is None else prompt + output,
        "requests_per_sec": int(ok.sum()),
        **dict.fromkeys(("images_per_sec", "videos_per_sec", "audios_per_sec"), 0.0),
    }
    return {
        name: None if seconds is None or amount is None else float(amount / seconds) for name, amount in amounts.items()
    }


def _media(count: int, points: Sequence[float]) -> Figures:
    """Pictures, films and sounds in the requests: the records have none."""
    none = summarize(np.zeros(count), points)
    seen = dict.fromkeys(("pixels", "bytes", "aspect_ratio"))
    return {
        "image": {"count": none, **seen},
        "video": {"count": none, "frames": None, **seen},
        "audio": {"count": none, "seconds": None, "bytes": None},
    }


def _prompts(requests: Requests, keep: Bools, points: Sequence[float]) -> Figures:
    if requests.rows.total(requests.prompt, keep, "prompt_tokens") is None:
        return dict.fromkeys(("total", "cached", "uncached"))
    values = np.nan_to_num(requests.prompt[keep])
    total, cached = float(values.sum()), float(np.nansum(requests.cached[keep]))
    counts = {"total": total, "cached": cached, "uncached": max(total - cached, 0.0)}
    return counts | (summarize(values, points) or {})


def _outputs(requests: Requests, keep: Bools, points: Sequence[float]) -> Figures:
    served = np.where(np.isnan(requests.served_output), requests.output, requests.served_output)
    total = requests.rows.total(served, keep, "output_tokens")
    return {"total": total} if total is None else {"total": total} | (summarize(known(served[keep]), points) or {})


def _goodput(rows: Rows, requests: Requests, limits: dict[str, float]) -> Figures | None:
    """Successes at or under every limit; one without the metric is not good."""
    ok, n = rows.ok, int(rows.ok.sum())
    if not n:
        return None
    values = requests.latencies(np.ones(len(rows), np.bool_))
    mean_gap = np.where(requests.streamed, requests.gaps[1] / np.maximum(requests.times - 1, 1), np.nan)
    columns = {
        "ttft": values["time_to_first_token"],
        "tpot": values["time_per_output_token"],
        "itl": mean_gap,
        "ntpot": values["normalized_time_per_output_token"],
        "request_latency": values["request_latency"],
    }
    good = np.ones(n, np.bool_)
    shares: Figures = {}
    for name, limit in limits.items():
        key = LIMITED.get(name, name)
        if key not in columns:
            rows.missing(f"goodput limit {name}", "inference-perf knows no such limit; it was passed over")
            continue
        within = columns[key][ok] <= limit
        good &= within
        shares[f"{key}_attainment_percentage"] = float(within.sum() / n * 100)
    tokens = float((np.nan_to_num(requests.prompt[ok]) + np.nan_to_num(requests.output[ok]))[good].sum())
    # Goodput divides by the time of the successes alone.
    span = rows.wall(ok) or 0.0
    return {
        "goodput_percentage": float(good.sum() / n * 100),
        "request_goodput": float(good.sum() / span) if span else 0.0,
        "token_goodput": tokens / span if span else 0.0,
        "good_requests": int(good.sum()),
        "total_requests": n,
        **shares,
    }


_CODES = {
    "429": "Rate Limit",
    "500": "Internal Server Error",
    "502": "Bad Gateway",
    "503": "Service Unavailable",
    "504": "Gateway Timeout",
}
_WORDS = (
    (
        re.compile(r"context.window|context length|maximum context|max.?tokens|token.?limit", re.IGNORECASE),
        "Context Window",
    ),
    (
        re.compile(r"(invalid|malformed).?json|json.?parse|unexpected.?token|expecting|unterminated", re.IGNORECASE),
        "Invalid JSON",
    ),
    (re.compile(r"timeout|timed.?out", re.IGNORECASE), "Timeout"),
    (re.compile(r"model.?not.?found|no such model", re.IGNORECASE), "Model Not Found"),
)
_TRANSPORT = (
    (re.compile(r"timeout|timed.?out", re.IGNORECASE), "Timeout"),
    (re.compile(r"connect", re.IGNORECASE), "Connection Error"),
)


def _labels(rows: Rows, failed: Bools) -> Figures:
    """Failures by a short label, the most frequent first, each with its messages."""
    if rows.records.tool != "inference-perf":
        return {}
    codes, names = rows.records.labels.get("error_type", (np.full(len(rows), -1, np.int32), []))
    texts = rows.records.errors or [None] * len(rows)
    found: dict[str, dict[str, int]] = {}
    for row in np.flatnonzero(failed):
        kind = names[codes[row]] if codes[row] >= 0 else ""
        message = _message((texts[row] or "").removeprefix(f"{kind}: "))
        messages = found.setdefault(label_of(kind, message), {})
        messages[message] = messages.get(message, 0) + 1
    ordered = sorted(found.items(), key=lambda item: -sum(item[1].values()))
    return {
        label: {"count": sum(messages.values()), "messages": [{"message": text} for text in messages]}
        for label, messages in ordered
    }


def label_of(kind: str, message: str) -> str:
    """What a failure is filed under.

    >>> label_of("HTTP Error 429", ""), label_of("ClientConnectorError", "Cannot connect")
    ('429 - Rate Limit', 'Connection Error')
    """
    if kind.startswith("HTTP Error "):
        code = kind.split()[-1]
        told = _CODES.get(code) or next((label for words, label in _WORDS if words.search(message)), "other")
        return f"{code} - {told}"
    return next((label for words, label in _TRANSPORT if words.search(message)), kind.lower().strip())


def _message(text: str) -> str:
    """The message within an error's JSON body, or the text as it is."""
    try:
        body = json.loads(text)
    except ValueError:
        return text
    inner = body.get("error") or body if isinstance(body, dict) else body
    return str(inner["message"]) if isinstance(inner, dict) and "message" in inner else text
