"""vLLM's `bench serve` results: one JSON object a run, with an array for each column where they were saved.

`--append-result` writes one object after the other, without a newline behind the last. Arrays stay arrays: no Python
object is made for a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpulse.readers.documents import FAULTS, Source, reason_of
from tokenpulse.readers.rows import (
    MAX_SECONDS,
    MAX_TOKENS,
    SERVER_SIDE,
    STATUS,
    Faults,
    UnreadableError,
    brief,
    optional,
    parse,
)
from tokenpulse.readers.summaries import figure, normalised, rate
from tokenpulse.records import ABSENT, Floats, Ints, Ragged, Records, Summary, duration_ns, time_ns

DETAILED = "vllm-bench-detailed"
SUMMARY = "vllm-bench-summary"

_DURATIONS = ("ttfts", "latencies", "start_times", "queue_times")
_COUNTS = ("input_lens", "output_lens")
_NEEDED = ("ttfts", "output_lens")

_SETTINGS = ("date", "backend", "endpoint_type", "label", "model_id", "tokenizer_id", "num_prompts", "burstiness")

DEFINITIONS = {
    "ttft": "sending to the first chunk that has a choice, even one without text",
    "itl": "one gap a chunk, pooled; a chunk may have several tokens",
    "tpot": "(latency - TTFT) / (N - 1), left out for N <= 1",
    "output_tokens": "the server's usage, else the text tokenised again",
    "goodput": "limits count with <=, N <= 1 counts as TPOT 0, over the client's wall time",
    "rates": "over the client's wall time, from the start to the last answer",
}
_SUMMARY_ONLY = "the file holds the tool's summary only: run it with --save-detailed"


def recognises(keys: Set[str]) -> str | None:
    """Which of vLLM's files these keys are of, if any."""
    ours = (
        {"model_id", "num_prompts", "request_rate"} <= keys
        or {"ttfts", "itls"} <= keys
        or bool(keys & {"endpoint_type", "burstiness"} and keys & {"model_id", "duration", "completed", "errors"})
    )
    if not ours:
        return None
    return DETAILED if "input_lens" in keys or "ttfts" in keys else SUMMARY


def read(source: Source) -> Iterator[Records | Summary]:
    """Every run of the file."""
    document = source.document(
        select=["$", "errors"],
        columns=[*_DURATIONS, "itls[*]"],
        integers=list(_COUNTS),
        skip=["generated_texts"],
    )
    parts: dict[str, Any] = {}
    runs = 0
    try:
        for where, _, value in source.parts(document):
            if where != "$":
                parts[where] = value
                continue
            runs += 1
            yield run(parts, optional(parse(value), "a run"), source.name, runs)
            parts = {}
    except FAULTS as error:
        if not all(part in parts for part in _NEEDED):
            raise
        reason = reason_of(error)
        last = run(parts, {}, source.name, runs + 1)
        last.notices.append(
            {"path": source.name, "line": getattr(error, "line", None), "reason": reason, "message": str(error)}
        )
        last.skipped[reason] = last.skipped.get(reason, 0) + 1
        yield last


def run(parts: dict[str, Any], rest: dict[str, Any], path: str, place: int) -> Records | Summary:
    """One run: its columns, and everything else that stands beside them."""
    about = _about(rest)
    label = f"{place}" if about.get("requested_rate") is None else f"{place}: {about['requested_rate']:g}/s"
    columns = {key: value for key, value in parts.items() if not isinstance(value, bytes)}
    if not all(part in columns for part in _NEEDED):
        why = dict.fromkeys(("requests", "latency", "timeline", "flow"), _SUMMARY_ONLY)
        return Summary(
            tool="vllm",
            format=SUMMARY,
            name=label,
            figures=rest,
            normalised=normalised(rest),
            run=about,
            absent=why,
            definitions=dict(DEFINITIONS),
        )
    faults = Faults(path)
    errors = errors_of(parts.get("errors"))
    return records(
        columns,
        errors,
        faults,
        tool="vllm",
        format=DETAILED,
        name=label,
        run=about,
        summary=rest,
        definitions=DEFINITIONS,
    )


def records(
    columns: dict[str, Any],
    errors: list[str | None] | None,
    faults: Faults,
    *,
    summary: dict[str, Any],
    definitions: dict[str, str],
    **about: Any,
) -> Records:
    """Parallel arrays as requests; vLLM and SGLang write the same ones."""
    n = _common_length(columns, errors, faults)
    ttft, output = columns["ttfts"][:n], columns["output_lens"][:n]
    gaps = columns.get("itls[*]")
    itls = None if gaps is None else Ragged(values=gaps[0][: gaps[1][n]], offsets=gaps[1][: n + 1])
    own: dict[str, Floats] = {"ttfts": ttft}
    failed = _failed(ttft, output, None if errors is None else errors[:n], figure(summary.get("completed")), faults)
    errors = None if errors is None else errors[:n]
    absent = dict(SERVER_SIDE)
    definitions = dict(definitions)
    first = np.where(ttft == 0, np.nan, ttft)
    latency = columns.get("latencies")
    if latency is not None:
        own["latencies"] = latency = latency[:n]
        e2e = np.where((latency == 0) | np.isnan(first), np.nan, latency)
    elif itls is not None:
        e2e = first + _row_sums(itls)
        definitions["e2e"] = "not in the file: TTFT and the gaps added up"
    else:
        e2e = np.full(n, np.nan)
        absent["latency.e2e"] = absent["latency.tpot"] = "neither latencies nor gaps are in the file"
    e2e = np.where(failed, np.nan, e2e)
    start = columns.get("start_times")
    start = None if start is None else np.where(start[:n] == 0, np.nan, start[:n])
    arrive = None if start is None else time_ns(start)
    if start is None:
        for name in ("rates", "timeline", "flow", "span_seconds"):
            absent[name] = "the file has no start times"
    queue = columns.get("queue_times")
    intended: Ints | None = None
    if queue is not None:
        own["queue_times"] = queue = queue[:n]
        if arrive is not None:
            waited = duration_ns(queue)
            known = (arrive != ABSENT) & (waited != ABSENT)
            intended = np.where(known, arrive - np.where(known, waited, 0), ABSENT)
    else:
        absent["flow.saturation.schedule_delay"] = "the file does not say how long the client held requests back"
    if itls is None:
        absent["latency.itl"] = "the file has no gaps"
    made = Records(
        clock=None if start is None else "monotonic",
        arrive_ns=arrive,
        start=start,
        intended_ns=intended,
        ttft=first,
        e2e=e2e,
        latency=e2e,
        gaps=itls,
        prompt_tokens=columns["input_lens"][:n] if "input_lens" in columns else None,
        # A failed row's 0 is no count: what it had received when it broke is in its gaps.
        output_tokens=np.where(failed, ABSENT, output),
        status=np.where(failed, STATUS["error"], STATUS["stop"]).astype(np.uint8),
        errors=errors,
        queue=queue,
        own=own,
        summary=summary,
        absent=absent,
        definitions=definitions,
        **about,
    )
    sound = _sound(columns, n, faults)
    return replace(made if sound.all() else made.select(sound), **faults.taken())


def _sound(columns: dict[str, Any], n: int, faults: Faults) -> NDArray[np.bool_]:
    """Which rows have only durations, times and counts that are ones; the others are skipped and counted."""
    sound = np.ones(n, np.bool_)
    for key, column in columns.items():
        if isinstance(column, tuple):
            values, offsets = column
            odd = np.zeros(n, np.bool_)
            rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            inside = ~(np.isnan(values) | ((values >= 0) & (values < MAX_SECONDS))) & (rows < n)
            odd[rows[inside]] = True
        elif column.dtype.kind == "f":
            odd = ~(np.isnan(column[:n]) | ((column[:n] >= 0) & (column[:n] < MAX_SECONDS)))
        else:
            odd = (column[:n] != ABSENT) & ((column[:n] < 0) | (column[:n] > MAX_TOKENS))
        for row in np.flatnonzero(odd & sound):
            faults.skip(
                int(row) + 1, "bad_value", f"{key.removesuffix('[*]')}: row {row + 1} has {_cell(column, int(row))}"
            )
        sound &= ~odd
    return sound


def _cell(column: Any, row: int) -> str:
    value = column[0][column[1][row] : column[1][row + 1]] if isinstance(column, tuple) else column[row]
    return f"{brief(value.tolist())}, expected 0 or more that fit 64 bits in ns"


def _failed(
    ttft: Floats, output: Ints, errors: list[str | None] | None, completed: float | None, faults: Faults
) -> NDArray[np.bool_]:
    """Which requests failed: those with an error, and, where the tool counted fewer successes, rows of zeros.

    A server that gives no reason leaves an empty error; a request may also end well without any token.
    """
    named = np.array([error is not None for error in errors or [None] * len(ttft)], np.bool_)
    nothing: NDArray[np.bool_] = ~named & (ttft == 0) & (output == 0)
    if not nothing.any():
        return named
    if errors is not None and (completed is None or len(ttft) - named.sum() - nothing.sum() != completed):
        return named
    faults.note(
        int(np.argmax(nothing)) + 1,
        "missing_field",
        f"errors: {int(nothing.sum())} rows of zeros without an error are taken as failed",
    )
    named |= nothing
    return named


def _common_length(columns: dict[str, Any], errors: list[str | None] | None, faults: Faults) -> int:
    """How many rows all arrays have; those that some lack are skipped."""
    lengths = {key: len(value[1]) - 1 if isinstance(value, tuple) else len(value) for key, value in columns.items()}
    if errors is not None:
        lengths["errors"] = len(errors)
    n, longest = min(lengths.values()), max(lengths.values())
    if n < longest:
        short = [key for key, length in lengths.items() if length == n]
        faults.skip(n + 1, "length_mismatch", f"{short[0]}: expected {longest} elements as in others, got {n}")
        faults.skipped["length_mismatch"] = longest - n
    return n


def _row_sums(rows: Ragged) -> Floats:
    sums = np.zeros(len(rows))
    np.add.at(sums, rows.rows, rows.values)
    return sums


def errors_of(text: bytes | None) -> list[str | None] | None:
    """Each request's error, None for one that had none; None if the file does not say."""
    if text is None:
        return None
    errors = parse(text)
    if errors is None:
        return None
    if not isinstance(errors, list):
        raise UnreadableError("wrong_type", "errors: expected an array of strings")
    return [str(error) if error else None for error in errors]


def _about(rest: dict[str, Any]) -> dict[str, Any]:
    about: dict[str, Any] = {
        "duration": figure(rest.get("duration")),
        "requested_rate": rate(rest.get("request_rate")),
        "concurrency": figure(rest.get("max_concurrency")),
    }
    about["settings"] = {
        key: rest[key]
        for key in (
            "date",
            "backend",
            "endpoint_type",
            "label",
            "model_id",
            "tokenizer_id",
            "num_prompts",
            "burstiness",
        )
        if key in rest
    }
    return about
