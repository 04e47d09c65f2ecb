"""The metrics of a GuideLLM benchmark (`benchmarks[].metrics`), by its keys: latency in s, the rest of times in ms.

As GuideLLM 0.8.1 reckons: each metric is four distributions, of the successful, the incomplete (cancelled), the errored
and all requests within the time measured; TPOT is weighted by the tokens of a request, inter-token latency by its
tokens after the first; a request without a value is left out. Tokens are spread evenly over the iterations between
the first and the last token, so that rates over time need no more than those two times.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from tokenpulse.profiles.choices import Choices
from tokenpulse.profiles.guidellm_distributions import concurrency, rates, summary
from tokenpulse.profiles.rows import Bools, Figures, Rows, known
from tokenpulse.records import Floats, Ints

CHOICES = Choices(
    first="the first iteration with a token",
    itl="(last - first) / (N - 1) of each request, weighted by N - 1",
    tpot_span="last - start",
    tpot_divisor="N",
    counts="the server's usage, else one a token iteration",
    few_tokens="left out of inter-token latency; N = 1 has a TPOT",
    percentile="weighted",
    empty="0",
    time="each rate is a distribution over time; goodput: the time measured",
    good="<=",
    good_of="seconds; attainment: errors and the successes of which every limit can be told",
    failed="distributions of their own",
)

HEADLINE = {
    **{
        f"{metric}.{figure}": ((tag, "successful", *key), scale)
        for metric, tag, scale in (
            ("ttft", "time_to_first_token_ms", 1e-3),
            ("tpot", "time_per_output_token_ms", 1e-3),
            ("itl", "inter_token_latency_ms", 1e-3),
            ("e2e", "request_latency", 1.0),
        )
        for figure, key in (
            ("mean", ("mean",)),
            ("p50", ("median",)),
            ("p99", ("percentiles", "p99")),
            ("std", ("std_dev",)),
        )
    },
    "requests.succeeded": (("request_totals", "successful"), 1),
    "requests.failed": (("request_totals", "errored"), 1),
    "requests_per_second": (("requests_per_second", "successful", "mean"), 1),
    "output_tokens_per_second": (("output_tokens_per_second", "successful", "mean"), 1),
    "goodput": (("request_goodput", "successful", "mean"), 1),
    "attainment": (("slo_attainment",), 1),
}


class Requests:
    """The requests of a benchmark by the names that GuideLLM has for their times and counts (s on one clock)."""

    def __init__(self, rows: Rows) -> None:
        self.rows, own = rows, rows.records.own
        n = len(rows)
        base = np.full(n, np.nan) if rows.start is None else rows.start
        end = np.full(n, np.nan) if rows.end is None else rows.end

        def timing(name: str, otherwise: Floats) -> Floats:
            return own.get(f"timings.{name}", otherwise)

        self.native = "timings.request_start" in own
        self.request_start = timing("request_start", base)
        self.request_end = timing("request_end", np.where(rows.ok, end, np.nan))
        self.resolve_end = timing("resolve_end", end)
        self.first = timing("first_token_iteration", base + rows.ttft)
        self.first_output = timing("first_output_token_iteration", self.first)
        self.last = timing("last_token_iteration", base + rows.e2e)
        self.targeted = timing("targeted_start", np.full(n, np.nan))
        chunks = np.zeros(n) if rows.gaps is None else np.where(np.isnan(rows.ttft), 0.0, rows.gaps.lengths + 1.0)
        self.iterations = np.nan_to_num(timing("token_iterations", chunks))
        self.request_iterations = np.nan_to_num(timing("request_iterations", chunks))
        self.start = np.where(np.isnan(self.request_start), timing("resolve_start", base), self.request_start)
        self.end = np.where(np.isnan(self.request_end), self.resolve_end, self.request_end)
        self.prompt = own.get("input_metrics.total_tokens", rows.prompt_tokens)
        counted = own.get("output_metrics.total_tokens", rows.output_tokens)
        self.output = np.where(np.isnan(counted), np.where(self.iterations > 0, self.iterations, np.nan), counted)
        both = np.nan_to_num(self.prompt) + np.nan_to_num(self.output)
        self.total = np.where(np.isnan(self.prompt) & np.isnan(self.output), np.nan, both)

    @property
    def ttft(self) -> Floats:
        """ms."""
        return 1000 * (self.first - self.request_start)

    @property
    def latency(self) -> Floats:
        """s."""
        return self.request_end - self.request_start

    @property
    def tpot(self) -> Floats:
        """ms: of all tokens, the first included."""
        until = np.where(np.isnan(self.last), self.end, self.last)
        some = self.output > 0
        return np.where(some, 1000 * (until - self.request_start) / np.where(some, self.output, 1), np.nan)

    @property
    def itl(self) -> Floats:
        """ms: of the tokens after the first."""
        some = self.output > 1
        return np.where(some, 1000 * (self.last - self.first) / np.where(some, self.output - 1, 1), np.nan)

    @cached_property
    def tokens_over_time(self) -> tuple[Floats, Floats, Ints, Bools]:
        """Of all requests when output tokens came, how many, the request, and whether these are its first.

        Of a stream the first token by itself, the others in equal parts, evenly from the first iteration to the last;
        of an answer in one piece all tokens at its end.
        """
        streamed = (self.iterations > 1) & ~np.isnan(self.first) & ~np.isnan(self.last)
        opening = np.where(streamed, self.first, np.where(np.isnan(self.last), self.end, self.last))
        amounts = np.where(streamed, np.where(self.output > 0, 1.0, 0.0), np.nan_to_num(self.output))
        steps = np.where(streamed & (self.output > 1), self.iterations - 1, 0).astype(np.int64)
        row = np.repeat(np.arange(steps.size), steps)
        place = np.arange(row.size) - np.repeat(np.cumsum(steps) - steps, steps) + 1
        step = (self.last - self.first) / np.maximum(steps, 1)
        times = np.where(place == steps[row], self.last[row], place * step[row] + self.first[row])
        each = (np.nan_to_num(self.output) - 1.0) / np.maximum(self.iterations - 1.0, 1.0)
        return (
            np.concatenate((opening, times)),
            np.concatenate((amounts, each[row])),
            np.concatenate((np.arange(steps.size), row)),
            np.concatenate((np.ones(steps.size, np.bool_), np.zeros(row.size, np.bool_))),
        )

    def timeline(self, keep: Bools, *, first: bool) -> tuple[Floats, Floats]:
        """When the output tokens of the requests to keep came, and how many; without the first of each on demand."""
        times, amounts, row, opening = self.tokens_over_time
        chosen = keep[row] & (first | ~opening)
        return times[chosen], amounts[chosen]


def figures(rows: Rows, limits: dict[str, float]) -> Figures:
    """The metrics that GuideLLM would have written of a benchmark."""
    requests = Requests(rows)
    window = _measured(rows, requests)
    inside = np.ones(len(rows), np.bool_)
    if window is not None and requests.native:
        with np.errstate(invalid="ignore"):
            begun = np.where(np.isnan(requests.start), requests.end, requests.start)
            inside = (requests.end >= window[0]) & (begun <= window[1])
    groups = {
        "successful": inside & rows.ok,
        "errored": inside & rows.failed & ~rows.aborted,
        "incomplete": inside & rows.aborted,
    }
    groups["total"] = inside & rows.ended
    metrics: Figures = {"request_totals": {name: int(keep.sum()) for name, keep in groups.items()}}
    metrics |= _over_time(rows, requests, groups, window)
    metrics |= _values(rows, requests, groups)
    for kind, names in _KINDS.items():
        metrics[kind] = {name: _kind(rows, requests, groups, key) for name, key in names.items()}
    metrics["turns"] = None
    if not requests.native:
        _uncounted(rows, metrics)
    metrics |= _attainment(rows, requests, groups, limits, window)
    if requests.native:
        metrics["scheduler_metrics"] = _scheduler(rows, window)
    return metrics


_STEPS = {
    "queued_time_avg": ("queued", "dequeued"),
    "resolve_start_delay_avg": ("scheduled_at", "resolve_start"),
    "resolve_targeted_start_delay_avg": ("targeted_start", "resolve_start"),
    "request_start_delay_avg": ("resolve_start", "request_start"),
    "request_targeted_start_delay_avg": ("targeted_start", "request_start"),
    "request_time_avg": ("request_start", "request_end"),
    "resolve_end_delay_avg": ("request_end", "resolve_end"),
    "resolve_time_avg": ("resolve_start", "resolve_end"),
    "finalized_delay_avg": ("resolve_end", "finalized"),
}


def _scheduler(rows: Rows, window: tuple[float, float] | None) -> Figures:
    """s: the mean time from one step of a request's life in GuideLLM's scheduler to another; -1 where none had both."""
    own, nothing = rows.records.own, np.full(len(rows), np.nan)
    means: Figures = {} if window is None else {"measure_start_time": window[0], "measure_end_time": window[1]}
    for name, (begin, until) in _STEPS.items():
        spans = known(own.get(f"timings.{until}", nothing) - own.get(f"timings.{begin}", nothing))
        means[name] = float(spans.mean()) if spans.size else -1.0
    for name in ("requests_made", "generation_delay", "processed_delay_avg"):
        rows.missing(f"scheduler_metrics.{name}", "it is not among what the file has of each request")
    return means


_KINDS = {
    "text": {"tokens": "text_tokens", "words": "text_words", "characters": "text_characters"},
    "image": {"tokens": "image_tokens", "images": "image_count", "pixels": "image_pixels", "bytes": "image_bytes"},
    "video": {"tokens": "video_tokens", "frames": "video_frames", "seconds": "video_seconds", "bytes": "video_bytes"},
    "audio": {"tokens": "audio_tokens", "samples": "audio_samples", "seconds": "audio_seconds", "bytes": "audio_bytes"},
    "tool_call": {
        "tokens": "tool_call_tokens",
        "mixed_tokens": "mixed_content_tool_tokens",
        "count": "tool_call_count",
    },
}


_BY_COUNTS = {
    "prompt": ("prompt_token_count", "prompt_tokens_per_second"),
    "output": (
        "output_token_count",
        "output_tokens_per_second",
        "time_per_output_token_ms",
        "inter_token_latency_ms",
        "output_tokens_per_iteration",
        "iter_tokens_per_iteration",
    ),
}


def _uncounted(rows: Rows, metrics: Figures) -> None:
    """Null what needs counts that a file does not have: GuideLLM would take each to be 0."""
    for side, column in (("prompt", rows.prompt_tokens), ("output", rows.output_tokens)):
        if rows.ended.any() and np.isnan(column[rows.ended]).all():
            for name in (*_BY_COUNTS[side], "total_token_count", "tokens_per_second"):
                metrics[name] = None
            rows.missing(f"{side} tokens and what is made of them", "the file does not count these tokens")


def _measured(rows: Rows, requests: Requests) -> tuple[float, float] | None:
    """s: the time measured, where the file says; else from the first sending to the last end."""
    settings = rows.records.run.get("settings") or {}
    timed = rows.own_summary("guidellm").get("scheduler_metrics") or settings.get("scheduler_metrics") or {}
    given = timed.get("measure_start_time"), timed.get("measure_end_time")
    if given[0] is not None and given[1] is not None:
        return float(given[0]), float(given[1])
    starts, ends = known(requests.start), known(requests.end)
    return (float(starts.min()), float(ends.max())) if starts.size and ends.size else None


def _by_status(groups: dict[str, Bools], one: Callable[[Bools], Figures | None]) -> Figures:
    made: Figures = {}
    for name, keep in groups.items():
        # Where all requests succeeded the total is theirs.
        same = next((other for other in made if np.array_equal(groups[other], keep)), None)
        made[name] = one(keep) if same is None else made[same]
    return made


def _values(rows: Rows, requests: Requests, groups: dict[str, Bools]) -> Figures:
    """The distributions of one value a request."""

    confidence = _confidence(rows)

    def plain(values: Floats) -> Figures:
        return _by_status(groups, lambda keep: summary(known(values[keep]), confidence=confidence))

    def weighed(values: Floats, weights: Floats) -> Figures:
        held = ~np.isnan(values)
        return _by_status(groups, lambda keep: summary(values[keep & held], weights[keep & held]))

    def listed(*, first: bool) -> Figures:
        return _by_status(groups, lambda keep: summary(requests.timeline(keep, first=first)[1]))

    return {
        "request_latency": plain(np.where(rows.ended, np.nan_to_num(requests.latency), np.nan)),
        **_delays(rows, requests, groups),
        "request_streaming_iterations_count": plain(requests.request_iterations),
        "prompt_token_count": plain(np.nan_to_num(requests.prompt)),
        "output_token_count": plain(np.nan_to_num(requests.output)),
        "total_token_count": plain(np.nan_to_num(requests.total)),
        "time_to_first_token_ms": plain(requests.ttft),
        "time_to_first_output_token_ms": plain(1000 * (requests.first_output - requests.request_start)),
        "time_per_output_token_ms": weighed(requests.tpot, np.nan_to_num(requests.output)),
        "inter_token_latency_ms": weighed(requests.itl, np.nan_to_num(requests.output, nan=1.0) - 1.0),
        "output_tokens_per_iteration": listed(first=True),
        "iter_tokens_per_iteration": listed(first=False),
    }


def _confidence(rows: Rows) -> float:
    config = (rows.records.run.get("settings") or {}).get("config") or {}
    return float(config.get("confidence") or 0.95)


def _delays(rows: Rows, requests: Requests, groups: dict[str, Bools]) -> Figures:
    """How late requests were sent, and their latency from when they were due (s); round trips of websockets (ms)."""
    if not requests.native:
        rows.missing("request_dispatch_delay and other delays", "only GuideLLM's own file says when a request was due")
        return {}
    own, confidence = rows.records.own, _confidence(rows)
    nothing = np.full(len(rows), np.nan)
    dispatch = requests.request_start - requests.targeted
    before = np.maximum(own.get("timings.predecessor_completed", nothing) - requests.targeted, 0.0)
    held = np.where(np.isnan(before), 0.0, before)
    trip = 1000 * (requests.last - own.get("timings.last_request_sent", nothing))
    mean_trip = 1000 * (_mean(own, "token_received", nothing) - _mean(own, "request_sent", nothing))

    def plain(values: Floats, confidence: float | None) -> Figures:
        return _by_status(groups, lambda keep: summary(known(values[keep]), confidence=confidence))

    first_turns = groups["total"] & (own.get("turn_index", np.zeros(len(rows))) == 0)
    return {
        "request_dispatch_delay": plain(dispatch, confidence),
        "request_scheduled_latency": plain(requests.request_end - requests.targeted, confidence),
        "turn_predecessor_delay": plain(np.where(np.isnan(dispatch), np.nan, held), None),
        "turn_scheduling_delay": plain(dispatch - held, None),
        "root_dispatch_delay": summary(known(dispatch[first_turns])),
        "time_to_last_round_trip_ms": plain(np.nan_to_num(trip), confidence),
        "avg_round_trip_time_ms": plain(np.nan_to_num(mean_trip), confidence),
    }


def _mean(own: dict[str, Floats], name: str, nothing: Floats) -> Floats:
    total, count = own.get(f"timings.{name}_sum", nothing), own.get(f"timings.{name}_count", nothing)
    some = count > 0
    return np.where(some, total / np.where(some, count, 1), np.nan)


def _over_time(rows: Rows, requests: Requests, groups: dict[str, Bools], window: tuple[float, float] | None) -> Figures:
    """The distributions of rates and of concurrency."""
    if window is None:
        rows.missing("rates and concurrency", "the file has no times of the requests")
        return {}

    def running(keep: Bools) -> Figures:
        held = keep & ~np.isnan(requests.start) & ~np.isnan(requests.end)
        return concurrency(requests.start[held], requests.end[held], window=window)

    def prompts(keep: Bools) -> tuple[Floats, Floats]:
        times = np.where(np.isnan(requests.first), requests.end, requests.first)[keep]
        return times, np.nan_to_num(requests.prompt[keep])

    def read(keep: Bools) -> Figures:
        return rates(*prompts(keep), window)

    def written(keep: Bools) -> Figures:
        return rates(*requests.timeline(keep, first=True), window)

    def moved(keep: Bools) -> Figures:
        (early, some), (late, more) = prompts(keep), requests.timeline(keep, first=True)
        return rates(np.concatenate((early, late)), np.concatenate((some, more)), window)

    return {
        "requests_per_second": _by_status(groups, lambda keep: _ends(requests, keep, window)),
        "request_concurrency": _by_status(groups, running),
        "prompt_tokens_per_second": _by_status(groups, read),
        "output_tokens_per_second": _by_status(groups, written),
        "tokens_per_second": _by_status(groups, moved),
    }


def _kind(rows: Rows, requests: Requests, groups: dict[str, Bools], key: str) -> Figures:
    """What was read and written of one kind (tokens, words, ...): values, rates, concurrency; each None without any."""
    own, nothing = rows.records.own, np.full(len(rows), np.nan)
    tokens = {"input": rows.prompt_tokens, "output": rows.output_tokens} if key == "text_tokens" else {}
    columns = {
        side: own.get(f"{side}_metrics.{key}", nothing if requests.native else tokens.get(side, nothing))
        for side in ("input", "output")
    }
    taking_part = (requests.start > 0) & ~np.isnan(requests.end)
    taking_part |= ~np.isnan(requests.start) & ~np.isnan(requests.end) & (not requests.native)
    taking_part &= ~np.isnan(columns["input"]) | ~np.isnan(columns["output"])
    found: Figures = {}
    for side, column in columns.items():
        given = bool((taking_part & groups["total"] & ~np.isnan(column)).any())
        found |= _sided(requests, groups, side, [column] if given else [], taking_part)
    both = [columns["input"], columns["output"]] if found["input"] and found["output"] else []
    found |= _sided(requests, groups, "total", both, taking_part)
    return found


def _sided(requests: Requests, groups: dict[str, Bools], side: str, columns: list[Floats], part: Bools) -> Figures:
    names = (side, f"{side}_per_second", f"{side}_concurrency")
    if not columns:
        return dict.fromkeys(names)

    def values(keep: Bools) -> Figures:
        return summary(np.concatenate([known(column[keep & part]) for column in columns]))

    def every(column_of: Floats | None, keep: Bools) -> Floats:
        chosen = [
            np.nan_to_num(column[keep & part]) if column_of is None else column_of[keep & part] for column in columns
        ]
        return np.concatenate(chosen)

    def a_second(keep: Bools) -> Figures:
        return rates(every(requests.end, keep), every(None, keep))

    def at_once(keep: Bools) -> Figures:
        return concurrency(every(requests.start, keep), every(requests.end, keep), every(None, keep))

    made = (_by_status(groups, values), _by_status(groups, a_second), _by_status(groups, at_once))
    return dict(zip(names, made, strict=True))


def _attainment(
    rows: Rows,
    requests: Requests,
    groups: dict[str, Bools],
    limits: dict[str, float],
    window: tuple[float, float] | None,
) -> Figures:
    """How many met every limit, of those of which that can be told; errors are bad, cancelled requests left out."""
    nothing: Figures = {"slo_attainment": None, "slo_determined_requests": 0, "request_goodput": None}
    values = {"ttft": requests.ttft, "tpot": requests.itl, "e2e": requests.latency * 1000}  # ms
    for name in limits.keys() - values.keys():
        rows.missing(f"goodput limit {name}", "GuideLLM knows no such limit; it was passed over")
    held = {name: limit for name, limit in limits.items() if name in values}
    if not held:
        rows.missing("slo_attainment, request_goodput", "no limits were given")
        return nothing
    told = groups["successful"].copy()
    met = told.copy()
    for name, limit in held.items():
        told &= ~np.isnan(values[name])
        with np.errstate(invalid="ignore"):
            met &= values[name] <= limit * 1000
    conforming = met & told
    judged = int(told.sum()) + int(groups["errored"].sum())
    if not judged:
        return nothing
    goodput: Figures | None = None
    if window is not None:
        # A distribution over time as every rate, of which only the successful have any.
        nobody = np.zeros(len(rows), np.bool_)
        chosen = {name: conforming if name in ("successful", "total") else nobody for name in groups}
        goodput = _by_status(chosen, lambda keep: _ends(requests, keep, window))
    return {
        "slo_attainment": int(conforming.sum()) / judged,
        "slo_determined_requests": judged,
        "request_goodput": goodput,
    }


def _ends(requests: Requests, keep: Bools, window: tuple[float, float]) -> Figures:
    """The rate at which requests ended."""
    times = known(requests.end[keep])
    return rates(times, np.ones(times.size), window)
