"""genai-perf's `profile_export.json`, as perf_analyzer writes it: one document, with every response's time in ns.

A response without text (the role, usage, `[DONE]`) is no token to a user, and none to genai-perf: it is told by the
response's own text. The file counts no tokens, unless the server gave its usage.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np

from tokenpulse.readers.documents import FORGET, Forget, Source, elements
from tokenpulse.readers.rows import (
    MAX_TIME,
    NAN,
    SERVER_SIDE,
    STATUS,
    Faults,
    RaggedColumn,
    UnreadableError,
    brief,
    floats,
    integer,
    ints,
    obj,
    optional,
    statuses,
    whole,
)
from tokenpulse.readers.summaries import figure
from tokenpulse.records import ABSENT, Ragged, Records

FORMAT = "genai-perf-requests"

_EPOCH_NS = 10**18  # in 2001: a clock that counts from 1970 is beyond it, one that counts from a start is not
_TEXTS = ("content", "reasoning_content", "reasoning", "text", "text_output", "tool_calls", "generated_text")
_NOT_COUNTED = "the file has the answers' text, which no tokeniser is at hand for, and no usage of the server"

DEFINITIONS = {
    "ttft": "sending to the first response that is not empty",
    "itl": "inter token latency: (latency - TTFT) / (N - 1), rounded to ns; here: the gaps between responses with text",
    "tpot": "as its inter token latency",
    "e2e": "request latency: sending to the last response that is not empty",
    "output_tokens": "the text tokenised again; here: the server's usage, where the answer has it",
    "rates": "over first send to last response",
}


def recognises(keys: Set[str]) -> str | None:
    """Whether these keys are of perf_analyzer's export."""
    if keys & {"experiments[].requests[].response_timestamps", "experiments[].requests", "experiments[].experiment"}:
        return FORMAT
    return FORMAT if {"experiments", "service_kind"} <= keys else None


def read(source: Source) -> Iterator[Records | Forget]:
    """One run for each experiment."""
    faults = Faults(source.name)
    rows, place = _Rows(faults), 0
    for path, _, value in elements(source, faults, ["experiments[*]", "experiments[*].requests[*]"]):
        if value is FORGET:
            rows, place = _Rows(faults), 0
            if path == "experiments":
                yield FORGET
            continue
        if path == "experiments[*]":
            yield rows.records(obj(value, "an experiment"))
            rows, place = _Rows(faults), 0
            continue
        place += 1
        try:
            rows.add(whole(value, "a request"))
        except UnreadableError as error:
            faults.skip(place, error.reason, f"request {place} of the experiment: {error}")
    if place:
        yield rows.records({})
    else:
        faults.end()


class _Rows:
    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.arrive, self.end = array("q"), array("q")
        self.times = RaggedColumn("q")
        self.prompt, self.output = array("q"), array("q")
        self.status = bytearray()
        self.errors: list[str | None] = []

    def add(self, row: dict[str, Any]) -> None:
        """One request; nothing of it is kept if any of it is at fault."""
        arrive = integer(row.get("timestamp"), "timestamp", MAX_TIME)
        if arrive == ABSENT:
            raise UnreadableError("missing_field", "timestamp: expected a time in ns, got nothing")
        stamps = row.get("response_timestamps")
        if stamps is None:
            stamps = []
        if not isinstance(stamps, list):
            raise UnreadableError("wrong_type", f"response_timestamps: expected an array, got {brief(stamps)}")
        times = [integer(stamp, f"response_timestamps[{place}]", MAX_TIME) for place, stamp in enumerate(stamps)]
        if ABSENT in times:
            raise UnreadableError("wrong_type", "response_timestamps: expected times in ns, got null")
        outputs = row.get("response_outputs")
        answer = _Answer(outputs if isinstance(outputs, list) else [])
        if answer.has_text and len(answer.has_text) != len(times):
            raise UnreadableError(
                "length_mismatch", f"response_outputs: expected {len(times)} as the times, got {len(answer.has_text)}"
            )
        # Without the answers every response counts.
        with_text = [t for t, text in zip(times, answer.has_text, strict=True) if text] if answer.has_text else times
        error = answer.error if times else "no response"
        self.arrive.append(arrive)
        self.end.append(times[-1] if times else ABSENT)
        self.times.append(with_text)
        self.prompt.append(answer.prompt_tokens)
        self.output.append(ABSENT if error else answer.output_tokens)
        self.status.append(STATUS["stop"] if error is None else STATUS["error"])
        self.errors.append(error)

    def records(self, experiment: dict[str, Any]) -> Records:
        """All requests that were taken of one experiment."""
        about = optional(experiment.get("experiment"), "experiment")
        mode, value = str(about.get("mode", "")), about.get("value")
        arrive, times = ints(self.arrive), self.times.finish()
        lengths, some = times.lengths, times.lengths > 0
        first, last = np.full(len(arrive), NAN), np.full(len(arrive), NAN)
        first[some] = (times.values[times.offsets[:-1][some]] - arrive[some]) / 1e9
        last[some] = (times.values[times.offsets[1:][some] - 1] - arrive[some]) / 1e9
        same = times.rows[1:] == times.rows[:-1]
        gaps = Ragged(
            values=np.diff(times.values)[same] / 1e9,
            offsets=np.concatenate(([0], np.cumsum(np.maximum(lengths - 1, 0)))),
        )
        prompt, output = ints(self.prompt), ints(self.output)
        absent = dict(SERVER_SIDE)
        if not (output != ABSENT).any():
            absent |= dict.fromkeys(("tokens.output", "latency.tpot"), _NOT_COUNTED)
        if not (prompt != ABSENT).any():
            absent["tokens.prompt"] = _NOT_COUNTED
        return Records(
            tool="genai-perf",
            format=FORMAT,
            name=f"{mode} {value}" if mode else "",
            clock="epoch" if len(arrive) and arrive.max() > _EPOCH_NS else "monotonic",
            arrive_ns=arrive,
            end_ns=ints(self.end),
            ttft=first,
            e2e=last,
            latency=last,
            gaps=gaps,
            prompt_tokens=prompt,
            output_tokens=output,
            status=statuses(self.status),
            errors=self.errors,
            own={"timestamp": floats(self.arrive)},
            own_units={"timestamp": "ns"},
            own_ragged={"response_timestamps": times},
            run={
                "requested_rate": figure(value) if mode == "request_rate" else None,
                "concurrency": figure(value) if mode == "concurrency" else None,
                "settings": about,
            },
            absent=absent,
            definitions=dict(DEFINITIONS),
            **self.faults.taken(),
        )


class _Answer:
    """What the responses of one request say: which of them have text, an error, the server's usage."""

    def __init__(self, outputs: list[Any]) -> None:
        self.has_text: list[bool] = []
        self.error: str | None = None
        self.prompt_tokens = self.output_tokens = ABSENT
        for output in outputs:
            # An output of Triton is its text itself: genai-perf counts every one.
            whole = not (isinstance(output, dict) and "response" in output)
            self.has_text.append(whole or self._response(output["response"]))

    def _response(self, text: Any) -> bool:
        """Whether a response has text; several events may have come in one, and one may have come in pieces."""
        if not isinstance(text, str):
            return text is not None
        found = False
        for event in text.split("\n\n"):
            body = "\n".join(
                line.removeprefix("data:").strip() for line in event.split("\n") if not line.startswith((":", "event:"))
            ).strip()
            if event.startswith("event: error"):
                self.error = self.error or body or "error"
            if not body or body == "[DONE]":
                continue
            try:
                value = json.loads(body)
            except ValueError:
                # The beginning of an event that came in pieces has its text; the pieces after it are part of it.
                found = found or event.lstrip().startswith("data:")
                continue
            if isinstance(value, dict):
                self._note(value)
                found = found or _has_text(value)
        return found

    def _note(self, value: Mapping[str, Any]) -> None:
        if value.get("error"):
            self.error = self.error or brief(value["error"])
        usage = value.get("usage")
        if isinstance(usage, dict):
            for key, name in (("prompt_tokens", "prompt_tokens"), ("completion_tokens", "output_tokens")):
                try:
                    count = integer(usage.get(key), f"usage.{key}")
                except UnreadableError:
                    continue
                if count != ABSENT:
                    setattr(self, name, count)


def _has_text(value: Mapping[str, Any]) -> bool:
    if any(value.get(key) for key in _TEXTS):
        return True
    choices = value.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            for part in (choice, choice.get("delta"), choice.get("message")):
                if isinstance(part, dict) and any(part.get(key) for key in _TEXTS):
                    return True
    return False
