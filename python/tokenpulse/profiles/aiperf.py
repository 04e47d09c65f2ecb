"""The summary of AIPerf (`profile_export_aiperf.json`), by its tags and in its units.

As AIPerf 0.13 reckons: every figure of a request is a distribution of its own (linear percentiles, ddof 0) over the
requests that have it; failed and cancelled requests are errors, and have none; a figure that no request has is absent,
not 0. Where the file has more figures of each request than tokenpulse reads (HTTP phases, usage), they are summed up
the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from tokenpulse.profiles import aiperf_sweeps
from tokenpulse.profiles.choices import Choices
from tokenpulse.profiles.rows import Figures, Rows, known, number, over
from tokenpulse.records import ABSENT, Floats

CHOICES = Choices(
    first="the first content that is not empty, reasoning included",
    itl="(last content - first) / (N - 1) of each request; gaps between chunks are inter_chunk_latency",
    tpot_span="last - first",
    tpot_divisor="N - 1",
    counts="output and reasoning tokens, tokenised again unless the server's count was asked for",
    few_tokens="absent",
    percentile="linear",
    empty="absent",
    time="the phase from its start to the end of its requests; first sending to last content where that is not known",
    good="<=",
    good_of="seconds; the fraction: successes and errors",
)

POINTS = (1, 5, 10, 25, 50, 75, 90, 95, 99)
"""The percentiles of every distribution."""

HEADLINE = {
    **{
        f"{metric}.{figure}": ((tag, key), 1e-3)
        for metric, tag in (("ttft", "time_to_first_token"), ("itl", "inter_token_latency"), ("e2e", "request_latency"))
        for figure, key in (("mean", "avg"), ("p50", "p50"), ("p99", "p99"), ("std", "std"))
    },
    "requests.succeeded": (("request_count", "avg"), 1),
    "requests.failed": (("error_request_count", "avg"), 1),
    "requests_per_second": (("request_throughput", "avg"), 1),
    "output_tokens_per_second": (("output_token_throughput", "avg"), 1),
    "goodput": (("goodput", "avg"), 1),
    "attainment": (("good_request_fraction", "avg"), 1),
}

LIMITED = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}
"""Our limits as AIPerf's metrics."""

UNITS = {
    "request_latency": "ms",
    "time_to_first_token": "ms",
    "time_to_second_token": "ms",
    "time_to_first_output_token": "ms",
    "inter_token_latency": "ms",
    "inter_chunk_latency": "ms",
    "decode_duration": "ms",
    "output_token_throughput_per_user": "tokens/sec/user",
    "e2e_output_token_throughput": "tokens/sec/user",
    "prefill_throughput_per_user": "tokens/sec/user",
    "output_sequence_length": "tokens",
    "input_sequence_length": "tokens",
    "output_token_count": "tokens",
    "reasoning_token_count": "tokens",
}

WITH_ERRORS = ("request_latency", "time_to_first_token", "decode_duration", "inter_token_latency")
"""What also has a distribution in which every error took for ever."""

OVERFLOW = re.compile(r"context length|maximum context|context_length_exceeded|prompt is too long", re.IGNORECASE)
"""How AIPerf tells that a prompt was longer than the server takes, by the words of the error."""

USAGE_LIMIT = 10.0
"""Percent by which the server's count may differ from the client's."""
LENGTH_LIMIT, LENGTH_TOKENS = 5.0, 50
"""Percent, and at most tokens, by which an answer's length may differ from the length asked for."""


def figures(rows: Rows, limits: dict[str, float]) -> Figures:
    """The summary that AIPerf would have written: of the profiling phase, and of the warm-up if there was one."""
    phase = window(rows)
    summary = _phase(rows, limits, phase[1] - phase[0] if phase else _length(rows.own_summary("aiperf")))
    summary |= aiperf_sweeps.figures(rows, phase)
    warmup = rows.all.warmup
    if warmup is not None and warmup.any():
        before = Rows(replace(rows.all.select(warmup), warmup=None))
        summary["warmup_metrics"] = _phase(
            before, limits, _length(rows.own_summary("aiperf").get("warmup_metrics") or {})
        )
        rows.missing("warmup_metrics: effective_* and active_* curves", "when the warm-up began is in no file")
    return summary


def _phase(rows: Rows, limits: dict[str, float], length: int | None) -> Figures:
    ok = rows.ok
    values = {tag: found for tag, column in per_request(rows).items() if (found := known(column[ok])).size}
    if (chunks := rows.pooled_gaps(ok) * 1e3).size:
        values["inter_chunk_latency"] = chunks
    units = UNITS | {tag: unit for tag, unit in rows.records.own_units.items() if tag not in UNITS}
    summary: Figures = {tag: distribution(column, units.get(tag, "")) for tag, column in values.items()}
    errors = int(rows.failed.sum())
    if errors:
        for tag in WITH_ERRORS:
            if tag in values:
                summary[f"adj_{tag}"] = with_errors(values[tag], errors, units[tag])
    summary |= _counts(rows, limits, errors)
    summary |= _totals(values)
    return summary | _rates(rows, summary, _duration(rows), length) | _scheduling(rows)


def per_request(rows: Rows) -> dict[str, Floats]:
    """The value of each request by AIPerf's tag, in its unit; NaN where it has none.

    Those that follow from times and counts are reckoned; all else is taken as the file has it.
    """
    ttft, latency, n = rows.ttft * 1e3, rows.e2e * 1e3, rows.output_tokens
    itl = rows.tpot(CHOICES.tpot_span, CHOICES.tpot_divisor) * 1e3
    reckoned = {
        "request_latency": latency,
        "time_to_first_token": ttft,
        "time_to_second_token": _second(rows) * 1e3,
        "inter_token_latency": itl,
        "decode_duration": latency - ttft,
        "output_token_throughput_per_user": _inverse(itl / 1e3),
        "e2e_output_token_throughput": n * _inverse(latency / 1e3),
        "prefill_throughput_per_user": rows.prompt_tokens * _inverse(ttft / 1e3),
        "output_sequence_length": n,
        "input_sequence_length": rows.prompt_tokens,
        "reasoning_token_count": number(rows.records.reasoning_tokens, len(rows)),
    }
    own = {tag: column for tag, column in rows.records.own.items() if tag not in _NOT_SUMMED}
    if rows.records.tool != "aiperf":
        own = {}
        for tag in ("output_token_count", "time_to_first_output_token"):
            rows.missing(tag, "only AIPerf tells reasoning from the rest of an answer")
    streamed = rows.gaps is not None or bool(known(rows.ttft[rows.ok]).size)
    if not streamed:
        rows.missing("time_to_first_token", "the file has no time of a first token")
    return {**own, **{tag: column for tag, column in reckoned.items() if known(column).size}}


_NOT_SUMMED = frozenset({"good_request_count", "credit_issued_ns", "request_ack_ns", "cancellation_time_ns"})


def _second(rows: Rows) -> Floats:
    seconds = np.full(len(rows), np.nan)
    if rows.gaps is not None:
        some = rows.gaps.lengths > 0
        seconds[some] = rows.gaps.values[rows.gaps.offsets[:-1][some]]
    return seconds


def _inverse(seconds: Floats) -> Floats:
    fit = seconds > 0
    return np.where(fit, 1 / np.where(fit, seconds, 1), np.nan)


def distribution(values: Floats, unit: str) -> Figures:
    """Average, percentiles, extremes, deviation, count and sum of at least one value."""
    points = CHOICES.percentiles(values, [p / 100 for p in POINTS])
    total = float(values.sum())
    return {
        "unit": unit,
        "avg": total / values.size,
        **{f"p{p}": float(point) for p, point in zip(POINTS, points, strict=True)},
        "min": float(values.min()),
        "max": float(values.max()),
        "std": float(np.std(values)),
        "count": int(values.size),
        "sum": total,
    }


def with_errors(values: Floats, errors: int, unit: str) -> Figures:
    """The distribution with as many endless values as there were errors: what is endless then is left out.

    Percentiles are the value whose place is nearest to `q (n - 1)`.

    >>> with_errors(np.array([1.0, 2.0, 3.0]), 1, "ms")["p50"], "p99" in with_errors(np.array([1.0]), 1, "ms")
    (3.0, False)
    """
    inflated = np.concatenate((np.sort(values), np.full(errors, np.inf)))
    places = np.rint(np.array(POINTS) / 100 * (inflated.size - 1)).astype(np.int64)
    points = {f"p{p}": float(inflated[place]) for p, place in zip(POINTS, places, strict=True)}
    finite = {name: point for name, point in points.items() if np.isfinite(point)}
    return {"unit": unit, **finite, "min": float(inflated[0]), "count": int(inflated.size)}


def single(value: float | None, unit: str) -> Figures:
    """A figure that is one number."""
    return {"unit": unit, "avg": None if value is None else float(value)}


def _counts(rows: Rows, limits: dict[str, float], errors: int) -> Figures:
    """Requests by how they ended, and those that met the limits."""
    own, ok, valid = rows.records.own, rows.ok, int(rows.ok.sum())
    counts: Figures = {"completed_request_count": single(valid + errors, "requests")}
    if valid:
        counts["request_count"] = single(valid, "requests")
    if errors:
        counts["error_request_count"] = single(errors, "requests")
        messages = rows.records.errors or []
        overflowed = sum(
            1 for message, lost in zip(messages, rows.failed, strict=False) if lost and OVERFLOW.search(message or "")
        )
        counts["context_overflow_count"] = single(overflowed, "requests")
    if valid + errors:
        counts["request_error_rate"] = single(100.0 * errors / (valid + errors), "%")
    met = good(rows, limits)
    if met is None:
        for tag in ("good_request_count", "good_request_fraction", "goodput"):
            rows.missing(tag, "no limits were given")
    else:
        counts["good_request_count"] = single(met, "requests")
        counts["good_request_fraction"] = single(met / (valid + errors) if valid + errors else 0.0, "ratio")
    differences = [own[tag][ok] for tag in own if tag.startswith("usage_") and tag.endswith("_diff_pct")]
    if differences and valid:
        differing = np.any([column > USAGE_LIMIT for column in differences], axis=0)
        counts["usage_discrepancy_count"] = single(int(differing.sum()), "requests")
    if "osl_mismatch_diff_pct" in own and valid:
        off, actual = own["osl_mismatch_diff_pct"][ok], rows.output_tokens[ok]
        asked = np.rint(actual / (1 + off / 100))
        allowed = np.minimum(asked * (LENGTH_LIMIT / 100), LENGTH_TOKENS)
        counts["osl_mismatch_count"] = single(int((np.abs(actual - asked) > allowed).sum()), "requests")
    return counts


def good(rows: Rows, limits: dict[str, float]) -> int | None:
    """How many successes meet every limit; a success without the metric does not. None without limits.

    Without limits of the caller's, AIPerf's own verdict on each request counts.
    """
    ok = rows.ok
    if not limits:
        own = None if "goodput" in rows.absent else rows.records.own.get("good_request_count")
        return None if own is None else int(np.nansum(own[ok]))
    values = per_request(rows)
    within = np.ones(int(ok.sum()), np.bool_)
    for name, seconds in limits.items():
        tag = LIMITED.get(name, name)
        if tag in values:
            limit = seconds * 1e3 if UNITS.get(tag) == "ms" else seconds
            compare: Callable[[Floats, float], Floats] = np.greater_equal if "throughput" in tag else np.less_equal
            within &= np.asarray(compare(values[tag][ok], limit), np.bool_)
        elif name == "itl":
            rows.missing("goodput limit itl", "AIPerf has no limit for the longest gap; it was passed over")
        else:
            within[:] = False
    return int(within.sum())


def _totals(values: dict[str, Floats]) -> Figures:
    """Sums over all requests of what is counted in tokens."""
    sums = {
        "total_isl": "input_sequence_length",
        "total_osl": "output_sequence_length",
        "total_output_tokens": "output_token_count" if "output_token_count" in values else "output_sequence_length",
        "total_reasoning_tokens": "reasoning_token_count",
    }
    sums |= {f"total_{tag}": tag for tag in values if tag.startswith("usage_") and tag.endswith("_tokens")}
    return {name: single(float(values[tag].sum()), "tokens") for name, tag in sums.items() if tag in values}


def _duration(rows: Rows) -> float | None:
    """s: first sending to last content of the successes, on float64 nanoseconds as AIPerf has them."""
    starts, ends = aiperf_sweeps.sent(rows)[rows.ok], aiperf_sweeps.answered(rows)[rows.ok]
    starts, ends = known(starts), known(ends)
    if not starts.size or not ends.size or not ends.max() > starts.min():
        return None
    return float((ends.max() - starts.min()) / 1e9)


def window(rows: Rows) -> tuple[int, int] | None:
    """ns: the phase from its start to the end of its requests, which rates and curves are taken over.

    AIPerf knows it and its records do not. Its summary has the start to the microsecond, and the length in every rate.
    """
    if (given := rows.records.run.get("window_ns")) is not None:
        return int(given[0]), int(given[1])
    summary = rows.own_summary("aiperf")
    length = _length(summary)
    if length is None or not isinstance(summary.get("start_time"), str):
        return None
    began = datetime.fromisoformat(summary["start_time"])
    began = began if began.tzinfo else began.replace(tzinfo=UTC)
    since = began - datetime(1970, 1, 1, tzinfo=UTC)
    start = (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
    return start, start + length


def _length(summary: Figures) -> int | None:
    """ns: how long a phase was by the rates of its summary."""
    for total, rate in _RATES.values():
        if rate in summary and summary[rate]["avg"] and total in summary:
            return round(float(summary[total]["avg"]) / float(summary[rate]["avg"]) * 1e9)
    return None


_RATES = {
    "requests": ("request_count", "request_throughput"),
    "good": ("good_request_count", "goodput"),
    "output": ("total_osl", "output_token_throughput"),
    "input": ("total_isl", "input_token_throughput"),
}


def _rates(rows: Rows, summary: Figures, duration: float | None, length: int | None) -> Figures:
    """What there was a second, and the second it is divided by."""
    rates: Figures = {}
    if duration is None:
        rows.missing("benchmark_duration and rates", "the file has no times of the requests")
    else:
        rates["benchmark_duration"] = single(duration, "sec")
    seconds = duration if length is None else length / 1e9
    if seconds is None:
        return rates
    if length is None:
        rows.missing(
            "rates by AIPerf's phase",
            "its records do not say how long the phase was (its summary does); here by benchmark_duration",
        )
    for total, rate in _RATES.values():
        if total in summary:
            unit = "requests/sec" if "request" in total else "tokens/sec"
            rates[rate] = single(over(summary[total]["avg"], seconds), unit)
    if "total_isl" in summary and "total_osl" in summary:
        both = summary["total_isl"]["avg"] + summary["total_osl"]["avg"]
        rates["total_token_throughput"] = single(over(both, seconds), "tokens/sec")
    return rates


def _scheduling(rows: Rows) -> Figures:
    """What a request waited in the client, and its latency with that wait: of errors too, as AIPerf has it."""
    issued = rows.records.intended_ns
    if issued is None or not (issued != ABSENT).any():
        for tag in ("credit_to_start_latency", "effective_latency"):
            rows.missing(tag, "the file does not say when the client meant to send a request")
        return {}
    meant = np.where(issued == ABSENT, np.nan, issued.astype(np.float64))
    waits = {"credit_to_start_latency": aiperf_sweeps.sent(rows), "effective_latency": aiperf_sweeps.ended(rows)}
    found: Figures = {}
    for tag, until in waits.items():
        values = np.maximum(known(until - meant), 0.0) / 1e6
        if values.size:
            found[tag] = distribution(values, "ms")
    return found
