"""What inputs tell beside their counts: their clocks, their tools' figures and definitions, and what they lack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tokenpulse import readers
from tokenpulse.analysis.flow import Rows
from tokenpulse.analysis.saturation import Client
from tokenpulse.analysis.workload import Requests, figures
from tokenpulse.intake.inputs import IN_FLIGHT, Intake
from tokenpulse.model import Reduction
from tokenpulse.readers.table import Table
from tokenpulse.records import ABSENT, Floats, Records, Summary, Workload

EPOCH_NS = 10**18
"""A time from here on counts from 1970: from the start of a machine it would be 31 years."""

OWN_TOOLS = frozenset({"tokenpulse", "table"})
"""Whose rows are on the one clock that all inputs of our own share."""

ONE_CLOCK = ("span_seconds", "rates", "timeline", "flow")
"""What needs every request's time on one clock."""

DEFINITIONS = {
    "ttft": "arrival to the first emission of tokens",
    "queue": "arrival to the first schedule",
    "scheduling": "first schedule to the prompt's computation",
    "prefill": "the prompt's computation (or the first schedule) to the first token",
    "itl": "the gaps between emissions, each token counted once (rule token), or each gap (rule chunk)",
    "tpot": "(last token - first token) / (N - 1), absent for N = 1",
    "e2e": "arrival to the last token",
    "output_tokens": "N, every token that was generated, reasoning included",
    "rates": "over the time from the first arrival to the last token",
    "goodput": "every limit kept with <, of the requests that ended and were not aborted",
    "preemption_stall": "the time a request spent preempted",
    "percentiles": "nearest rank, from a sketch",
}
"""Our definitions, in one line each; docs/definitions.md has them in full."""

_SEVERAL_CLOCKS = "the inputs count time from different moments"
_TRACE = "a trace has arrivals and lengths only"
_FIGURES_ONLY = "the file has the tool's figures only, no requests"

_TRACE_LACKS = dict.fromkeys(("flow", "span_seconds", "latency", "availability", "attainment_grid"), _TRACE)
_LACKS = {
    "degraded": "the file does not say which requests a fallback path served",
    "tokens.prompt": "the file does not have the prompts' lengths",
    "tokens.output": "the file does not have the outputs' lengths",
    "preemptions": "the file does not have preemptions",
    "coalesced": "the file does not have the sizes of chunks",
}


def absent(intake: Intake, reduction: Reduction) -> dict[str, str]:
    """What none of the inputs can give, by the names of the report's figures, and why."""
    if intake.workloads:
        found = dict(_TRACE_LACKS) | _common([one.absent for one in intake.workloads])
        for name, column in (("tokens.prompt", "prompt_tokens"), ("tokens.output", "output_tokens")):
            if all(bool((getattr(one, column) == ABSENT).all()) and len(one) for one in intake.workloads):
                found.setdefault(name, _LACKS[name])
        return found
    found = {}
    if not intake.ours:
        if not intake.records:
            return (
                _common([one.absent for one in intake.summaries])
                | {"requests": _FIGURES_ONLY}
                | dict.fromkeys(
                    ("tokens.prompt", "tokens.output", "preemptions", "degraded", "flow", "span_seconds"), _FIGURES_ONLY
                )
            )
        found |= _lacking(intake.records)
    found |= _uncounted(intake.records)
    why = _clocks(intake, reduction)
    return found | (dict.fromkeys(ONE_CLOCK, why) if why else {})


def _common(each: list[dict[str, str]]) -> dict[str, str]:
    """What every input says that it lacks."""
    names = set(each[0]).intersection(*each[1:]) if each else set()
    return {_NAMES.get(name, name): why for name, why in each[0].items() if name in names} if each else {}


_NAMES = {"span": "span_seconds", "saturation.schedule_delay": "flow.saturation.schedule_delay"}


def _uncounted(inputs: list[Records]) -> dict[str, str]:
    """What even one input without any count of its tokens takes from all: the rest of them is no total.

    The core takes a chunk for a token where nobody counted them, so such rows would have a TPOT, too.
    """
    lacking = [one.absent for one in inputs if "tokens.output" in one.absent]
    names = ("tokens.output", "rates.output_tokens_per_second", "latency.tpot")
    return {name: why["tokens.output"] for why in lacking for name in names if name != "latency.tpot" or name in why}


def _lacking(inputs: list[Records]) -> dict[str, str]:
    """What the rows of other tools' files say nothing of."""
    found = _common([one.absent for one in inputs])
    ours = [one for one in inputs if one.tool in OWN_TOOLS]
    if not ours:
        found.setdefault("degraded", _LACKS["degraded"])
        found.setdefault("preemptions", found.get("latency.preemption_stall", _LACKS["preemptions"]))
    for name, column in (("tokens.prompt", "prompt_tokens"), ("tokens.output", "output_tokens")):
        columns = [getattr(one, column) for one in inputs]
        if all(values is None or (len(values) and bool((values == ABSENT).all())) for values in columns):
            timed = name == "tokens.output" and any(one.chunk_tokens is not None for one in inputs)
            if not timed:
                found.setdefault(name, _LACKS[name])
    if all(bool(np.isnan(one.ttft).all()) and len(one) for one in inputs):
        found.setdefault("goodput", "no request has a time to its first token")
    if "tokens.output" in found:
        found.setdefault("rates.output_tokens_per_second", found["tokens.output"])
    if not any(one.timed_tokens for one in inputs):
        found |= dict.fromkeys(
            ("flow.coalesced.emissions", "flow.coalesced.coalesced"), "token times are not in the file"
        )
    elif any(one.chunks_only for one in inputs):
        found |= dict.fromkeys(("flow.coalesced.coalesced", "flow.coalesced.share"), _LACKS["coalesced"])
    return found


def _clocks(intake: Intake, reduction: Reduction) -> str | None:
    """Why times of different inputs cannot be held against each other; None where they can."""
    clocks: set[object] = set()
    for number, one in enumerate(intake.records):
        if one.tool in OWN_TOOLS:
            clocks.add("ours")
        elif one.clock is None:
            return one.absent.get("span_seconds") or one.absent.get("span") or "the file has no points in time"
        else:
            clocks.add("epoch" if one.clock == "epoch" else number)
    first = reduction["first_arrival_ns"]
    if intake.ours and first is not None:
        # Neither our own lines nor a table say what they count from: the earliest arrival of all is theirs or earlier.
        clocks.add("epoch" if first >= EPOCH_NS else "ours")
    return _SEVERAL_CLOCKS if len(clocks) > 1 else None


def definitions(intake: Intake, asked: str) -> dict[str, dict[str, str]]:
    """Of each metric that a tool defines in another way: our definition and the tools'."""
    found: dict[str, dict[str, str]] = {}
    contents: list[Records | Summary] = [*intake.records, *intake.summaries]
    for one in contents:
        for metric, text in one.definitions.items():
            ours = DEFINITIONS.get(metric)
            found.setdefault(metric, {"tokenpulse": ours} if ours else {})[one.tool] = text
    if intake.itl_rule(asked) != asked:
        sizes = f"one gap an emission (rule chunk, not {asked}): the sizes of chunks are not known"
        found.setdefault("itl", {})["tokenpulse"] = sizes
    return found


def reported(intake: Intake) -> list[dict[str, Any]]:
    """The tools' own figures, as their files have them."""
    found = []
    for part in intake.parts:
        content = part.content
        if isinstance(content, Summary):
            figures_of, normalised = content.figures, content.normalised
        elif isinstance(content, Records) and content.summary:
            figures_of, normalised = content.summary, {}
        else:
            continue
        found.append(
            {
                "path": part.path,
                "tool": content.tool,
                "format": content.format,
                "figures": strict(figures_of),
                "normalised": strict(normalised),
            }
        )
    return found


def strict(figure: Any) -> Any:
    """A tool's figures as strict JSON can hold them: what is not finite is text, as the tool printed it."""
    if isinstance(figure, Mapping):
        return {str(key): strict(value) for key, value in figure.items()}
    if isinstance(figure, (list, tuple)):
        return [strict(value) for value in figure]
    if isinstance(figure, (np.integer, np.floating)):
        figure = figure.item()
    if isinstance(figure, float) and not np.isfinite(figure):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(figure), "NaN")
    return figure


def workload(intake: Intake, cut: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The requests that were asked for, where all rows are at hand; those inside the cut."""
    contents = [part.content for part in intake.parts if isinstance(part.content, (Records, Workload))]
    if not contents or intake.ours:
        return None
    return figures(
        [Requests.of(one).between(cut["from_ns"], cut["to_ns"]) if cut else Requests.of(one) for one in contents]
    )


def exact_runs(intake: Intake) -> list[tuple[str, Records]]:
    """Every run with all its values, under its path; our own lines are read for it, as one run.

    Raises ValueError where no input has requests.
    """
    runs = [
        (part.path, part.content.records() if isinstance(part.content, Table) else part.content)
        for part in intake.parts
        if isinstance(part.content, (Records, Table))
    ]
    own = [part.source for part in intake.own]
    if own:
        runs.insert(0, (", ".join(own), readers.own.records(own)))
    if not runs:
        raise ValueError(f"{intake.parts[0].path}: a profile needs requests with their latencies; the file has none")
    return runs


def summary_of(records: Records, intake: Intake) -> dict[str, Any] | None:
    """What the tool said of a run in a file of its own: known where one run and one such file are given."""
    runs = [one for one in intake.records if one.tool == records.tool]
    summaries = [one.figures for one in intake.summaries if one.tool == records.tool]
    return summaries[0] if len(runs) == len(summaries) == 1 else None


def client(intake: Intake, requested_rate: float | None = None) -> Client:
    """What is known of the load generator; a rate that is given here goes before a file's own."""
    rates = {one.run.get("requested_rate") for one in intake.records}
    limits = {one.run.get("concurrency") for one in intake.records}
    rate = requested_rate if requested_rate is not None else rates.pop() if len(rates) == 1 else None
    # Our own lines do not say when their requests were meant to be sent.
    late = [found for one in intake.records if (found := _delays(one)) is not None] if not intake.ours else []
    return Client(
        delays=np.concatenate([delays for delays, _ in late]) if late else None,
        ttft=np.concatenate([ttft for _, ttft in late]) if late else None,
        waits_for_room=any(one.queue is not None for one in intake.records),
        requested_rate=rate,
        concurrency=limits.pop() if len(limits) == 1 else None,
    )


def _delays(records: Records) -> tuple[Floats, Floats] | None:
    """How much later than meant each request with a first token was sent, and its TTFT, in s.

    Of a request that was cancelled a tool may have the time at which it gave up as that of its sending.
    """
    timed = records.counted & ~np.isnan(records.ttft)
    intended, arrive = records.intended_ns, records.arrive_ns
    if intended is not None and arrive is not None:
        known = (intended != ABSENT) & (arrive != ABSENT)
        late = np.where(known, np.where(known, arrive, 0) - np.where(known, intended, 0), 0) / 1e9
        return np.where(known, late, np.nan)[timed], records.ttft[timed]
    return None if records.queue is None else (records.queue[timed], records.ttft[timed])


def rows(intake: Intake, reduction: Reduction) -> Rows | None:
    """Every request's arrival, end and first token, where all are at hand and the core has taken them as they are."""
    if intake.ours or not intake.records:
        return None
    each = [_rows_of(one.columns()) for one in intake.records]
    arrive, end, first = (np.concatenate([one[column] for one in each]) for column in range(3))
    found = Rows(arrive_ns=arrive, end_ns=end, first_ns=first)
    flow, ended = reduction["flow"], found.end_ns >= 0
    taken = (
        len(found.arrive_ns) == sum(one["arrivals"] for one in flow["bins"])
        and int(ended.sum()) == flow["residence_count"]
        and int((found.end_ns - found.arrive_ns)[ended].sum()) == flow["residence_sum_ns"]
    )
    return found if taken else None


def _rows_of(columns: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    arrive = columns["arrive_ns"]
    last, first = arrive.copy(), np.full(len(arrive), -1, np.int64)
    for name in ("schedule_ns", "prefill_ns", "first_token_ns", "last_token_ns"):
        if name in columns:
            last = np.maximum(last, columns[name])
    if "first_token_ns" in columns:
        first = np.maximum(first, columns["first_token_ns"])
    if len(columns.get("token_ns", ())):
        offsets, times = columns["token_offsets"], columns["token_ns"]
        emits = np.diff(offsets) > 0
        first[emits], last[emits] = times[offsets[:-1][emits]], np.maximum(last[emits], times[offsets[1:][emits] - 1])
    end = np.maximum(last, columns["end_ns"]) if "end_ns" in columns else last
    return arrive, np.where(columns["status"] == IN_FLIGHT, -1, end), first
