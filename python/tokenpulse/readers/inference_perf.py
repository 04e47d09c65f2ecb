"""inference-perf: `per_request_lifecycle_metrics.json`, one array of requests, and its stage and summary files.

Times are monotonic seconds. All tokens of a chunk bear the chunk's time, so an emission is a run of equal times and its
size is known.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Set
from typing import Any

import numpy as np

from tokenpulse.readers.documents import Source, documents, elements
from tokenpulse.readers.rows import (
    NAN,
    SERVER_SIDE,
    STATUS,
    Faults,
    LabelColumns,
    OwnColumns,
    RaggedColumn,
    UnreadableError,
    failed_status,
    floats,
    integer,
    ints,
    numbers,
    optional,
    point,
    scalars,
    statuses,
    whole,
)
from tokenpulse.readers.summaries import figure
from tokenpulse.records import ABSENT, Floats, Ragged, Records, Summary, time_ns

REQUESTS = "inference-perf-requests"
STAGE = "inference-perf-stage"
SUMMARY = "inference-perf-summary"

DEFINITIONS = {
    "ttft": "start to the time of the first output token",
    "itl": "gaps between token times, those of 0 inside a chunk included",
    "tpot": "(last - first token) / (N - 1); beside it NTPOT, request latency / N",
    "e2e": "request_latency: start to end, after the last token",
    "output_tokens": "the text tokenised again; the server's usage stands beside it",
    "goodput": "over requests that succeeded",
}


def recognises(keys: Set[str]) -> str | None:
    """Which of inference-perf's files these keys are of, if any."""
    if {"[].start_time", "[].end_time"} <= keys and keys & {"[].info", "[].request"}:
        return REQUESTS
    if keys & {"[].info.response_metrics", "[].info.output_token_times"}:
        return REQUESTS
    if "load_summary" in keys and keys & {"successes", "failures", "load_summary.count"}:
        return STAGE if keys & {"load_summary.requested_rate", "load_summary.send_duration"} else SUMMARY
    return None


def read(source: Source) -> Iterator[Records]:
    """The file is one run."""
    faults = Faults(source.name)
    rows = _Rows(faults)
    skip = ["[*].response", "[*].info.response_metrics.response_chunks"]
    for place, (_, _, value) in enumerate(elements(source, faults, ["[*]"], skip=skip), 1):
        try:
            rows.add(whole(value, "a request"))
        except UnreadableError as fault:
            faults.skip(place, fault.reason, f"request {place}: {fault}")
    yield rows.records()


class _Rows:
    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.errors: list[str | None] = []
        self.start, self.end = array("d"), array("d")
        self.token_times, self.chunk_times = RaggedColumn(), RaggedColumn()
        self.prompt, self.output = array("q"), array("q")
        self.status = bytearray()
        self.labels, self.own = LabelColumns(), OwnColumns()

    def add(self, row: dict[str, Any]) -> None:
        """One request; nothing of it is kept if any of it is at fault."""
        start, end = point(row.get("start_time"), "start_time"), point(row.get("end_time"), "end_time")
        if np.isnan(start):
            raise UnreadableError("missing_field", "start_time: expected a time in s, got nothing")
        about = optional(row.get("info"), "info")
        answer = optional(about.get("response_metrics"), "info.response_metrics")
        asked = optional(about.get("request_metrics"), "info.request_metrics")
        text = optional(asked.get("text"), "info.request_metrics.text")
        tokens = _times(answer.get("output_token_times", about.get("output_token_times")), "output_token_times")
        chunks = _times(answer.get("chunk_times"), "chunk_times")
        prompt = integer(_first(about.get("input_tokens"), text.get("input_tokens")), "input_tokens")
        output = integer(_first(answer.get("output_tokens"), about.get("output_tokens")), "output_tokens")
        error = row.get("error")
        own = {"start_time": start, "end_time": end, "input_tokens": NAN if prompt == ABSENT else float(prompt)}
        own |= scalars(answer, "response.")
        usage = answer.get("server_usage", about.get("server_usage"))
        if isinstance(usage, dict):
            own |= scalars(usage, "server_usage.")
            details = usage.get("prompt_tokens_details")
            if isinstance(details, dict):
                own |= scalars(details, "server_usage.prompt_tokens_details.")
        if isinstance(row.get("request"), str):
            own["request_bytes"] = float(len(row["request"].encode("utf-8", "surrogatepass")))
        details = error if isinstance(error, dict) else {}
        kind = details.get("error_type", details.get("type"))
        labels = {"error_type": kind} if kind else {}
        if isinstance(about.get("labels"), dict):
            labels |= about["labels"]
        self.start.append(start)
        self.end.append(end)
        self.token_times.append(tokens)
        self.chunk_times.append(chunks)
        self.prompt.append(prompt)
        # The count of a request that failed is no count: it is 0 whatever had come before.
        self.output.append(ABSENT if error and not output else output)
        self.status.append(failed_status(details.get("code")) if error else STATUS["stop"])
        self.errors.append(_words(error, details) if error else None)
        self.labels.append(labels)
        self.own.append(own)

    def records(self) -> Records:
        """All requests that were taken."""
        start, end = floats(self.start), floats(self.end)
        tokens, chunks = self.token_times.finish(), self.chunk_times.finish()
        sizes: Ragged | None
        if len(tokens.values):
            emissions, sizes = _emissions(tokens)
        else:  # a version without the tokens' times: the chunks' are the emissions, of unknown size
            emissions, sizes = chunks, None
        first, last = _ends(emissions)
        absent = dict(SERVER_SIDE)
        if not len(emissions.values):
            absent["latency.itl"] = absent["latency.tpot"] = "no request has token times: the answers were not streamed"
        return Records(
            tool="inference-perf",
            format=REQUESTS,
            clock="monotonic",
            arrive_ns=time_ns(start),
            start=start,
            first=first,
            last=last,
            end=end,
            ttft=first - start,
            e2e=last - start,
            latency=end - start,
            gaps=_gaps(emissions),
            emissions=emissions,
            chunk_tokens=sizes,
            prompt_tokens=ints(self.prompt),
            output_tokens=ints(self.output),
            status=statuses(self.status),
            errors=self.errors,
            labels=self.labels.finish(),
            own=self.own.finish(),
            own_ragged={"output_token_times": tokens, "chunk_times": chunks},
            absent=absent,
            definitions=dict(DEFINITIONS),
            **self.faults.taken(),
        )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _times(value: Any, name: str) -> array[float]:
    return array("d") if value is None else numbers(value, name)


def _words(error: Any, details: dict[str, Any]) -> str:
    parts = (details.get("error_type", details.get("type")), details.get("error_msg", details.get("message")))
    return ": ".join(str(part) for part in parts if part) or str(error)


def _emissions(tokens: Ragged) -> tuple[Ragged, Ragged]:
    """Token times as emissions: of each run of equal times in a row one, and its length."""
    opens = np.ones(len(tokens.values), np.bool_)
    opens[1:] = tokens.values[1:] != tokens.values[:-1]
    # A row's first token opens an emission whatever the row before ended with.
    opens[tokens.offsets[:-1][tokens.lengths > 0]] = True
    before = np.concatenate(([0], np.cumsum(opens)))
    offsets = before[tokens.offsets]
    places = np.flatnonzero(opens)
    sizes = np.diff(np.append(places, len(tokens.values)))
    return (
        Ragged(values=tokens.values[opens], offsets=offsets),
        Ragged(values=sizes.astype(np.int64), offsets=offsets),
    )


def _gaps(emissions: Ragged) -> Ragged:
    """The differences inside each row."""
    inner = np.diff(emissions.values)
    same = emissions.rows[1:] == emissions.rows[:-1]
    lengths = np.maximum(emissions.lengths - 1, 0)
    return Ragged(values=inner[same], offsets=np.concatenate(([0], np.cumsum(lengths))))


def _ends(tokens: Ragged) -> tuple[Floats, Floats]:
    first, last = np.full(len(tokens), np.nan), np.full(len(tokens), np.nan)
    some = tokens.lengths > 0
    first[some], last[some] = tokens.values[tokens.offsets[:-1][some]], tokens.values[tokens.offsets[1:][some] - 1]
    return first, last


def read_summary(source: Source) -> Iterator[Summary]:
    """inference-perf's own figures, of a stage or of the whole run; all latencies in seconds."""
    for place, figures in enumerate(documents(source), 1):
        yield _summary(figures, str(place))


def _summary(figures: dict[str, Any], name: str) -> Summary:
    load, good = (optional(figures.get(key), key) for key in ("load_summary", "successes"))
    stage = "requested_rate" in load
    latency = optional(good.get("latency"), "successes.latency")
    normalised: dict[str, Any] = {}
    for key, ours in (
        ("time_to_first_token", "ttft"),
        ("time_per_output_token", "tpot"),
        ("inter_token_latency", "itl"),
        ("request_latency", "e2e"),
    ):
        if isinstance(latency.get(key), dict):
            normalised[ours] = {
                {"median": "p50"}.get(statistic, statistic): one
                for statistic, value in latency[key].items()
                if (one := figure(value)) is not None
            }
    throughput = good.get("throughput")
    if isinstance(throughput, dict):
        normalised["rates"] = {
            ours: figure(throughput[key])
            for key, ours in (
                ("requests_per_sec", "requests"),
                ("input_tokens_per_sec", "prompt_tokens"),
                ("output_tokens_per_sec", "output_tokens"),
                ("total_tokens_per_sec", "total_tokens"),
            )
            if figure(throughput.get(key)) is not None
        }
    failures = optional(figures.get("failures"), "failures")
    counts = {"attempted": load.get("count"), "succeeded": good.get("count"), "failed": failures.get("count")}
    known = {key: figure(value) for key, value in counts.items()}
    normalised["requests"] = {key: int(value) for key, value in known.items() if value is not None}
    return Summary(
        tool="inference-perf",
        format=STAGE if stage else SUMMARY,
        name=name,
        figures=figures,
        normalised=normalised,
        run={
            "duration": figure(figures.get("benchmark_time_seconds")),
            "requested_rate": figure(load.get("requested_rate")),
            "achieved_rate": figure(load.get("achieved_rate")),
        },
        absent=dict.fromkeys(
            ("requests", "latency", "timeline", "flow"),
            "this is a summary of inference-perf: read its per_request_lifecycle_metrics.json",
        ),
        definitions=dict(DEFINITIONS),
    )
