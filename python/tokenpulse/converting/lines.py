"""Rows as our own lines: a request that ended is a request line, any other one its events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tokenpulse.converting.rows import IN_FLIGHT, LOST, Rows
from tokenpulse.model import DAY_NS, STATUSES
from tokenpulse.records import ABSENT, Ints

_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

_RANK = {"schedule": 0, "resume": 1, "prefill": 2, "tokens": 3, "preempt": 4}
"""The order of events that bear the same time."""

Extra = Mapping[str, Sequence[Any]]
"""Further keys of each request's line; None where it has none."""


class Writer:
    """Writes rows one after the other as lines that one input can hold."""

    def __init__(self, every: Sequence[Rows]) -> None:
        self._newest: int | None = None
        # A request that does not end keeps its id: nobody else of the file may have it.
        self._taken = _counted(name for rows in every for name in rows.ids)

    def lines(self, rows: Rows, extra: Extra) -> Iterator[str]:
        """The lines of one input's rows."""
        labels = _labels(rows)
        dt = Lists(rows.token_ns - np.repeat(rows.arrive_ns, rows.emissions), rows.token_offsets)
        sizes = counts_of(rows)
        counts, sized = Lists(sizes, rows.token_offsets), _sums(sizes, rows.token_offsets) != rows.emissions
        stalls = {
            "preempt_ns": Lists(rows.preempt_ns, rows.preempt_offsets),
            "resume_ns": Lists(rows.resume_ns, rows.resume_offsets),
        }
        columns = {
            name: getattr(rows, name).tolist()
            for name in ("schedule_ns", "prefill_ns", "end_ns", "first_token_ns", "last_token_ns", "output_tokens")
        }
        latest = rows.last_event.tolist()
        plain = zip(
            rows.ids,
            rows.arrive_ns.tolist(),
            rows.status.tolist(),
            rows.prompt_tokens.tolist(),
            rows.cached_tokens.tolist(),
            rows.degraded.tolist(),
            strict=True,
        )
        for row, (name, arrive, status, prompt, cached, degraded) in enumerate(plain):
            yield from self._bridge(arrive)
            told = {key: values[row] for key, values in extra.items() if values[row] is not None}
            line: dict[str, Any] = {"id": name, "arrive_ns": arrive, "prompt_tokens": prompt}
            if cached:
                line["cached_tokens"] = cached
            if labels[row]:
                line["labels"] = labels[row]
            if status in (LOST, IN_FLIGHT):
                times = [arrive + offset for offset in dt[row]]
                output = columns["output_tokens"][row]
                yield from self._events(
                    line | told | ({"output_tokens": output} if output != ABSENT else {}),
                    {key: columns[key][row] for key in ("schedule_ns", "prefill_ns")},
                    list(zip(times, counts[row], strict=True)),
                    {key: values[row] for key, values in stalls.items()},
                )
            else:
                line |= {key: columns[key][row] for key in ("schedule_ns", "prefill_ns") if columns[key][row] != ABSENT}
                if offsets := dt[row]:
                    line["dt_ns"] = offsets
                    if sized[row]:
                        line["n"] = counts[row]
                else:
                    points = ("output_tokens", "first_token_ns", "last_token_ns")
                    line |= {key: columns[key][row] for key in points if columns[key][row] != ABSENT}
                line |= {key: times for key, values in stalls.items() if (times := values[row])}
                if columns["end_ns"][row] != ABSENT:
                    line["end_ns"] = columns["end_ns"][row]
                line["status"] = STATUSES[status]
                if degraded:
                    line["degraded"] = True
                yield _text(line | told)
            self._newest = max(self._newest or 0, latest[row])

    def _bridge(self, arrive: int) -> Iterator[str]:
        """What takes the input's newest time along, where a request comes more than a day after all before it: a jump
        of more than a day is taken for an error of the clock."""
        while self._newest is not None and arrive > self._newest + DAY_NS:
            self._newest += DAY_NS
            yield _text({"t_ns": self._newest, "ev": "ready"})

    def _events(
        self,
        line: dict[str, Any],
        points: Mapping[str, int],
        emissions: Sequence[tuple[int, int]],
        stalls: Mapping[str, Sequence[int]],
    ) -> Iterator[str]:
        """A request without its end: its events, in the order of their times."""
        name = self._own(line.pop("id"))
        yield _text({"t_ns": line.pop("arrive_ns"), "id": name, "ev": "arrive", **line})
        events = [(t, kind[: -len("_ns")], 1) for kind, t in points.items() if t != ABSENT]
        events += [(t, "tokens", k) for t, k in emissions]
        events += [(t, kind[: -len("_ns")], 1) for kind, times in stalls.items() for t in times]
        events.sort(key=lambda event: (event[0], _RANK[event[1]]))
        for t, kind, k in events:
            yield _text({"t_ns": t, "id": name, "ev": kind, **({"k": k} if k != 1 else {})})

    def _own(self, name: str) -> str:
        """The name, or one like it that no other request bears."""
        if self._taken[name] == 1:
            return name
        number = 2
        while f"{name}~{number}" in self._taken:
            number += 1
        self._taken[f"{name}~{number}"] = 1
        return f"{name}~{number}"


class Lists:
    """Rows of different length, each as a list when it is asked for.

    >>> rows = Lists(np.array([1, 2, 3]), np.array([0, 2, 2, 3]))
    >>> rows[0], rows[1], rows[2]
    ([1, 2], [], [3])
    """

    def __init__(self, values: Ints, offsets: Ints) -> None:
        self._values, self._offsets = values, offsets.tolist()

    def __getitem__(self, row: int) -> list[int]:
        found: list[int] = self._values[self._offsets[row] : self._offsets[row + 1]].tolist()
        return found


def _sums(values: Ints, offsets: Ints) -> Ints:
    total = np.concatenate([[0], np.cumsum(values)])
    return np.asarray(total[offsets[1:]] - total[offsets[:-1]], np.int64)


def counts_of(rows: Rows) -> Ints:
    """Tokens of each emission. Where only their sum is known, they are spread evenly, one each at least."""
    counts = rows.counts.copy()
    for row in np.flatnonzero(rows.uneven).tolist():
        begin, end = int(rows.token_offsets[row]), int(rows.token_offsets[row + 1])
        m, n = end - begin, max(int(rows.tokens[row]), end - begin)
        counts[begin:end] = np.diff(np.arange(m + 1) * n // m)
    return counts


def _counted(names: Iterator[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found


def _labels(rows: Rows) -> list[dict[str, str]]:
    """The labels of each row."""
    found: list[dict[str, str]] = [{} for _ in range(len(rows))]
    for name, (codes, texts) in rows.labels.items():
        for row, code in enumerate(codes.tolist()):
            if code >= 0:
                found[row][name] = texts[code]
    return found


def _text(line: Mapping[str, Any]) -> str:
    return _ENCODE(line)
