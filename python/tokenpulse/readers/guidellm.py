"""GuideLLM's `benchmarks.json`: one document with every benchmark of a run, and in each its requests by how they ended.

Times are seconds since 1970 as float64, so nothing in it is finer than 0.24 us. Where the names of the milestones
changed between versions, each is looked for under all of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np

from tokenpulse.readers.documents import FORGET, Forget, Source, elements
from tokenpulse.readers.rows import (
    NAN,
    SERVER_SIDE,
    STATUS,
    Faults,
    OwnColumns,
    UnreadableError,
    floats,
    integer,
    ints,
    number,
    obj,
    optional,
    point,
    scalars,
    statuses,
    uncounted,
    unique,
    whole,
)
from tokenpulse.readers.summaries import figure
from tokenpulse.records import ABSENT, Records, Summary, time_ns

FORMAT = "guidellm-benchmarks"
SUMMARY = "guidellm-summary"

_ENDINGS = {"successful": "stop", "completed": "stop", "errored": "error", "incomplete": "abort"}
_ORDER = {STATUS["stop"]: 0, STATUS["error"]: 1, STATUS["abort"]: 2}
_REQUESTS = {f"benchmarks[*].requests.{ending}[*]": status for ending, status in _ENDINGS.items()}
_TEXTS = ("output", "prompt", "request_args", "reasoning_output", "tool_calls")

DEFINITIONS = {
    "ttft": "request start to the first iteration with a token",
    "itl": "(last - first token) / (N - 1) of each request, weighted by N - 1: gaps are not in the file",
    "tpot": "(last token - request start) / N: the time to the first token is in it",
    "e2e": "request_latency: request start to request end, after the last token",
    "output_tokens": "the server's usage, where it gives one",
    "rates": "over the time that GuideLLM measured, warm-up and cool-down left out",
    "goodput": "errored requests are bad, cancelled ones and those that cannot be judged are left out",
    "quantile": "inverted CDF, weighted",
}
_MILESTONES = {
    "start": ("request_start", "start_time", "request_start_time"),
    "first": ("first_token_iteration", "first_iteration", "first_token_time"),
    "last": ("last_token_iteration", "last_iteration", "last_token_time"),
    "end": ("request_end", "resolve_end", "end_time", "request_end_time"),
    "intended": ("targeted_start", "targeted_start_time"),
}


def recognises(keys: Set[str]) -> str | None:
    """Whether these keys are of GuideLLM's report."""
    if keys & {"metadata.guidellm_version", "benchmarks[].type_", "benchmarks[].requests.successful"}:
        return FORMAT
    return FORMAT if "benchmarks[]" in keys and keys & {"args", "benchmarks[].run_id", "benchmarks[].config"} else None


def read(source: Source) -> Iterator[Records | Summary | Forget]:
    """One run for each benchmark."""
    faults = Faults(source.name)
    rows = _Rows(faults)
    skip = [f"{path}.{text}" for path in _REQUESTS for text in _TEXTS] + ["benchmarks[*].requests.total"]
    place = 0
    for path, _, value in elements(source, faults, ["benchmarks[*]", *_REQUESTS], skip=skip):
        if value is FORGET:
            rows.forget(_REQUESTS.get(f"{path}[*]"))
            if path == "benchmarks":
                yield FORGET
        elif path in _REQUESTS:
            place += 1
            try:
                rows.add(whole(value, "a request"), _REQUESTS[path])
            except UnreadableError as error:
                rows.faults.skip(place, error.reason, f"request {place} of the benchmark: {error}")
        else:
            yield rows.run(obj(value, "a benchmark"))
            rows, place = _Rows(faults), 0
    if len(rows.status):
        yield rows.run({})
    else:
        faults.end()


class _Rows:
    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.ids: list[str | None] = []
        self.errors: list[str | None] = []
        self.times = {name: array("d") for name in _MILESTONES}
        self.prompt, self.output, self.reasoning, self.cached = array("q"), array("q"), array("q"), array("q")
        self.status = bytearray()
        self.taken_back = bytearray()
        self.own = OwnColumns()

    def add(self, row: dict[str, Any], status: str) -> None:
        """One request; nothing of it is kept if any of it is at fault."""
        about = optional(row.get("info", row.get("scheduler_info")), "info")
        timings = _timings(row, about)
        times = {name: _first_number(timings, keys) for name, keys in _MILESTONES.items()}
        given, got = (
            optional(row.get("input_metrics"), "input_metrics"),
            optional(row.get("output_metrics"), "output_metrics"),
        )
        prompt = _first_count(row, ("prompt_tokens",), given, ("total_tokens", "text_tokens"))
        output = _first_count(row, ("output_tokens",), got, ("total_tokens", "text_tokens"))
        reasoning = _first_count(row, ("reasoning_tokens",), got, ("reasoning_tokens",))
        cached = _first_count(row, ("cached_tokens",), given, ("cached_tokens",))
        error = row.get("error", about.get("error"))
        for name, time in times.items():
            self.times[name].append(time)
        self.prompt.append(prompt)
        self.output.append(output)
        self.reasoning.append(reasoning)
        self.cached.append(cached)
        self.status.append(STATUS[status])
        self.taken_back.append(False)
        self.errors.append(None if status == "stop" or not error else str(error))
        self.ids.append(row.get("request_id") if isinstance(row.get("request_id"), str) else None)
        self.own.append(
            scalars(row)
            | {f"timings.{key}": value for key, value in scalars(timings).items()}
            | scalars(given, "input_metrics.")
            | scalars(got, "output_metrics.")
            | scalars(about)
        )

    def forget(self, status: str | None) -> None:
        """What came of one ending, or of all, does not count: its key comes again."""
        for row, known in enumerate(self.status):
            self.taken_back[row] |= status is None or known == STATUS[status]

    def run(self, benchmark: dict[str, Any]) -> Records | Summary:
        """The benchmark with the requests that were read of it."""
        figures = dict(optional(benchmark.get("metrics"), "metrics"))
        if isinstance(benchmark.get("scheduler_metrics"), dict):
            figures["scheduler_metrics"] = benchmark["scheduler_metrics"]
        about = _about(benchmark)
        label = _name(benchmark)
        kept, total = len(self.status) + sum(self.faults.skipped.values()), _total(figures)
        if not len(self.status) and total != 0 and figures:
            return Summary(
                tool="guidellm",
                format=SUMMARY,
                name=label,
                figures=figures,
                run=about,
                absent=dict.fromkeys(("requests", "latency", "timeline", "flow"), "the file holds no single request"),
                definitions=dict(DEFINITIONS),
                **self.faults.taken(),
            )
        if total is not None and kept < total:
            self.faults.note(None, "missing_field", f"the file holds {kept} of {total} requests: a sample")
        times = {name: floats(column) for name, column in self.times.items()}
        start, first, last, end = (times[name] for name in ("start", "first", "last", "end"))
        ok = np.frombuffer(bytes(self.status), np.uint8) == STATUS["stop"]
        reasoning, cached = ints(self.reasoning), ints(self.cached)
        # In the order in which the tool itself goes through them, whatever the order of the document.
        order = np.lexsort([[_ORDER[status] for status in self.status]])
        rows = order[~np.array(self.taken_back, np.bool_)[order]]
        return Records(
            tool="guidellm",
            format=FORMAT,
            name=label,
            ids=unique(self.ids),
            clock="epoch",
            arrive_ns=time_ns(start),
            start=start,
            intended_ns=time_ns(times["intended"]),
            first=first,
            last=last,
            end=end,
            ttft=first - start,
            e2e=last - start,
            latency=np.where(ok, end - start, NAN),
            prompt_tokens=ints(self.prompt),
            cached_tokens=cached if (cached != ABSENT).any() else None,
            output_tokens=ints(self.output),
            reasoning_tokens=reasoning if (reasoning != ABSENT).any() else None,
            status=statuses(self.status),
            errors=self.errors,
            own=self.own.finish(),
            run=about,
            summary=figures,
            absent=SERVER_SIDE
            | {"latency.itl": "the file has the first and the last token's time of each request only"}
            | uncounted(ints(self.output), statuses(self.status)),
            definitions=dict(DEFINITIONS),
            **self.faults.taken(),
        ).take(rows)


def _timings(row: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """A request's points in time, wherever its version of GuideLLM keeps them."""
    found: dict[str, Any] = {}
    for source in (row, about, about.get("scheduler_timings"), about.get("request_timings"), about.get("timings")):
        if isinstance(source, dict):
            names = {name for keys in _MILESTONES.values() for name in keys}
            inner = source in (about.get("timings"), about.get("request_timings"), about.get("scheduler_timings"))
            found |= {key: value for key, value in source.items() if value is not None and (inner or key in names)}
    return found


def _first_number(timings: Mapping[str, Any], keys: tuple[str, ...]) -> float:
    for key in keys:
        if timings.get(key) is not None:
            value = number(timings[key], f"timings.{key}")
            return NAN if value <= 0 else point(value, f"timings.{key}")  # -1 and 0 stand for "never" in some versions
    return NAN


def _first_count(row: dict[str, Any], keys: tuple[str, ...], metrics: dict[str, Any], others: tuple[str, ...]) -> int:
    for source, names in ((row, keys), (metrics, others)):
        for key in names:
            if source.get(key) is not None:
                return integer(source[key], key)
    return ABSENT


def _total(figures: dict[str, Any]) -> int | None:
    totals = figures.get("request_totals")
    total = figure(totals.get("total")) if isinstance(totals, dict) else None
    return None if total is None else int(total)


def _strategy(benchmark: dict[str, Any]) -> dict[str, Any]:
    """The load that was asked for, wherever the version keeps it."""
    for place in ("config", "args", "scheduler"):
        inner = benchmark.get(place)
        if isinstance(inner, dict) and isinstance(inner.get("strategy"), dict):
            return dict(inner["strategy"])
    return {}


def _name(benchmark: dict[str, Any]) -> str:
    strategy = _strategy(benchmark)
    rate = figure(strategy.get("rate"))
    parts = [str(strategy.get("type_", "benchmark"))]
    if rate is not None:
        parts.append(f"{rate:g}/s")
    elif figure(strategy.get("streams")) is not None:
        parts.append(f"{strategy['streams']} streams")
    return " ".join(parts)


def _about(benchmark: dict[str, Any]) -> dict[str, Any]:
    strategy = _strategy(benchmark)
    return {
        "duration": figure(benchmark.get("duration")),
        "requested_rate": figure(strategy.get("rate")),
        "concurrency": figure(strategy.get("streams")) or figure(strategy.get("max_concurrency")),
        "goodput": _limits(benchmark),
        "settings": {key: value for key, value in benchmark.items() if key not in ("metrics", "requests")},
    }


def _limits(benchmark: dict[str, Any]) -> dict[str, float]:
    """The limits that goodput was judged by, in s (the file has ms); none were set where they are null."""
    config = benchmark.get("config")
    told = config.get("slo") if isinstance(config, dict) else None
    names = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2e": "e2el_ms"}
    given = {name: figure(told.get(key)) for name, key in names.items()} if isinstance(told, dict) else {}
    return {name: limit / 1e3 for name, limit in given.items() if limit is not None}
