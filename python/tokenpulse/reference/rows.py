"""The exact rows of logs in our lines: one for each accepted arrival, as columns, with its accepted events alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from tokenpulse.model import STATUSES, TTL_NS
from tokenpulse.reference.accounts import Settings
from tokenpulse.reference.columns import ABSENT, IN_FLIGHT
from tokenpulse.reference.inputs import Flight, Input
from tokenpulse.reference.report import end_all


def rows_of(inputs: Sequence[tuple[str, bytes]], ttl_ns: int = TTL_NS, max_tokens: int | None = None) -> dict[str, Any]:
    """The rows of inputs given as (name, bytes of lines, plain or gzip), columns as lists.

    Raises ValueError where there are more than `max_tokens` emissions.
    """
    parts = [Input(path, Settings((), "token", (), None, ttl_ns)) for path, _ in inputs]
    for part, (_, content) in zip(parts, inputs, strict=True):
        part.read(content)
    newest_ns = end_all(parts)
    flights = [flight for part in parts for flight in part.requests]
    emissions = [times_of(flight, "tokens") for flight in flights]
    if max_tokens is not None and sum(map(len, emissions)) > max_tokens:
        raise ValueError(f"at most {max_tokens} emissions, got more")
    preempts = [times_of(flight, "preempt") for flight in flights]
    resumes = [times_of(flight, "resume") for flight in flights]
    untimed = [flight if flight.state.given_tokens is not None else None for flight in flights]
    return {
        "ids": [flight.id for flight in flights],
        "arrive_ns": [flight.state.arrive_ns for flight in flights],
        "schedule_ns": [or_absent(flight.state.schedule_ns) for flight in flights],
        "prefill_ns": [or_absent(flight.state.prefill_ns) for flight in flights],
        "token_ns": flat(emissions),
        "token_offsets": offsets_of(emissions),
        "n": [event.k for flight in flights for event in flight.accepted if event.kind == "tokens"],
        "output_tokens": [ABSENT if flight is None else flight.state.output_tokens for flight in untimed],
        "first_token_ns": [ABSENT if flight is None else or_absent(flight.state.first_ns) for flight in untimed],
        "last_token_ns": [ABSENT if flight is None else or_absent(flight.state.last_ns) for flight in untimed],
        "preempt_ns": flat(preempts),
        "preempt_offsets": offsets_of(preempts),
        "resume_ns": flat(resumes),
        "resume_offsets": offsets_of(resumes),
        "end_ns": [or_absent(flight.end_ns) for flight in flights],
        "status": [IN_FLIGHT if flight.ended is None else STATUSES.index(flight.ended.status) for flight in flights],
        "degraded": [flight.ended is not None and flight.ended.degraded for flight in flights],
        "prompt_tokens": [flight.prompt_tokens for flight in flights],
        "labels": labels_of(flights),
        "inputs": [part.as_dict() for part in parts],
        "notices": [notice for part in parts for notice in part.notices_as_dicts()],
        "rejected": dict(sum((part.accounts.rejected for part in parts), start=Counter())),
        "clamped": sum(part.accounts.clamped for part in parts),
        "newest_ns": newest_ns,
    }


def times_of(flight: Flight, kind: str) -> list[int]:
    return [event.t_ns for event in flight.accepted if event.kind == kind]


def or_absent(known: int | None) -> int:
    return ABSENT if known is None else known


def flat(lists: Iterable[Sequence[int]]) -> list[int]:
    return [value for each in lists for value in each]


def offsets_of(lists: Iterable[Sequence[int]]) -> list[int]:
    """Where each list begins among all values, and where the last one ends."""
    return list(accumulate(map(len, lists), initial=0))


def labels_of(flights: Sequence[Flight]) -> dict[str, tuple[list[int], list[str]]]:
    """Of each label a number for every row, -1 where it is absent, and the texts that the numbers stand for."""
    columns: dict[str, tuple[list[int], list[str]]] = {}
    for name in dict.fromkeys(name for flight in flights for name in flight.labels):
        places: dict[str, int] = {}
        codes = [
            places.setdefault(flight.labels[name], len(places)) if name in flight.labels else -1 for flight in flights
        ]
        columns[name] = codes, list(places)
    return columns
