"""Rows that have durations only: neither when a request was sent nor when its tokens came."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from tokenpulse.readers.rows import (
    NAN,
    SERVER_SIDE,
    STATUS,
    Faults,
    OwnColumns,
    UnreadableError,
    failed_status,
    floats,
    integer,
    ints,
    scalars,
    seconds,
    statuses,
    whole,
)
from tokenpulse.records import ABSENT, Records

NO_CLOCK = "the file does not say when a request was sent"
NO_TOKENS = "the file has no token times"


class DurationRows:
    """Requests of one run, each an object with its durations under the given keys.

    A request failed if it has an error code other than 0 or an error message; its zeros are no figures then.
    """

    def __init__(
        self,
        faults: Faults,
        *,
        ttft: str,
        e2e: str,
        prompt: str,
        output: str,
        reasoning: str | None = None,
        error_code: str,
        error_message: str,
    ) -> None:
        self.faults = faults
        self.keys = {"ttft": ttft, "e2e": e2e}
        self.counted = {"prompt": prompt, "output": output} | ({"reasoning": reasoning} if reasoning else {})
        self.error_code, self.error_message = error_code, error_message
        self.durations = {name: array("d") for name in self.keys}
        self.counts = {name: array("q") for name in self.counted}
        self.status = bytearray()
        self.errors: list[str | None] = []
        self.own = OwnColumns()

    def add(self, place: int, row: Any) -> None:
        """One request; a row at fault is skipped and counted."""
        try:
            self._add(whole(row, f"request {place}"))
        except UnreadableError as error:
            self.faults.skip(place, error.reason, f"request {place}: {error}")

    def _add(self, row: dict[str, Any]) -> None:
        durations = {name: seconds(row.get(key), key) for name, key in self.keys.items()}
        counts = {name: integer(row.get(key), key) for name, key in self.counted.items()}
        code, message = row.get(self.error_code), row.get(self.error_message)
        failed = bool(message) or (code not in (None, "", 0) and code == code)  # a bare NaN is no code
        if failed:
            durations = dict.fromkeys(durations, NAN) if not durations["ttft"] else durations
            durations["e2e"] = NAN
            counts["output"] = ABSENT
        elif durations["ttft"] == 0:
            durations["ttft"] = NAN
        for name, value in durations.items():
            self.durations[name].append(value)
        for name, count in counts.items():
            self.counts[name].append(count)
        self.status.append(failed_status(code) if failed else STATUS["stop"])
        self.errors.append(": ".join(str(part) for part in (code, message) if part) if failed else None)
        self.own.append(scalars(row))

    def records(self, *, divisor: float = 1.0, **about: Any) -> Records:
        """All requests that were taken; `divisor` is how many of the file's units a second has."""
        e2e = floats(self.durations["e2e"]) / divisor
        reasoning = ints(self.counts["reasoning"]) if "reasoning" in self.counts else np.empty(0, np.int64)
        absent = SERVER_SIDE | dict.fromkeys(("rates", "timeline", "flow", "span_seconds"), NO_CLOCK)
        return Records(
            ttft=floats(self.durations["ttft"]) / divisor,
            e2e=e2e,
            latency=e2e,
            prompt_tokens=ints(self.counts["prompt"]),
            output_tokens=ints(self.counts["output"]),
            reasoning_tokens=reasoning if (reasoning != ABSENT).any() else None,
            status=statuses(self.status),
            errors=self.errors,
            own=self.own.finish(),
            absent=absent | {"latency.itl": NO_TOKENS},
            **self.faults.taken(),
            **about,
        )
