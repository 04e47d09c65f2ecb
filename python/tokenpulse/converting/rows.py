"""The exact rows of one input: its requests as columns, one row each, and the figures that follow from a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpulse.model import STATUSES
from tokenpulse.records import ABSENT, Bools, Ints, Labels

IN_FLIGHT = 255
LOST = STATUSES.index("lost")
STOP, LENGTH = STATUSES.index("stop"), STATUSES.index("length")

NUMBERS = ("schedule_ns", "prefill_ns", "end_ns", "first_token_ns", "last_token_ns", "output_tokens")


@dataclass(kw_only=True)
class Rows:
    """Requests with their accepted events. Integers are `ABSENT` where something is not known."""

    path: str
    ids: list[str]
    arrive_ns: Ints
    schedule_ns: Ints
    prefill_ns: Ints
    end_ns: Ints
    first_token_ns: Ints
    last_token_ns: Ints
    """Of tokens whose times are not known one by one."""
    output_tokens: Ints
    """Their number, or N where it is another than that of the emissions."""
    prompt_tokens: Ints
    cached_tokens: Ints
    token_ns: Ints
    token_offsets: Ints
    counts: Ints
    """Tokens of each emission."""
    preempt_ns: Ints
    preempt_offsets: Ints
    resume_ns: Ints
    resume_offsets: Ints
    status: NDArray[np.uint8]
    """The place in `STATUSES`; 255 for a request that has not ended."""
    degraded: Bools
    labels: Labels
    trace: bool = False
    """Of a trace: requests that arrived, and nothing more."""
    left_out: int = 0
    """Rows without a time of arrival, which are not here."""

    @classmethod
    def of(cls, path: str, columns: Mapping[str, Any], trace: bool = False) -> Rows:
        """From the columns that `engine.ColumnReducer.requests` takes; rows that never arrived are left out."""
        arrive = np.asarray(columns["arrive_ns"], np.int64)
        n = len(arrive)

        def numbers(name: str, default: int = ABSENT) -> Ints:
            column = columns.get(name)
            found = np.full(n, default, np.int64) if column is None else np.asarray(column, np.int64)
            return np.where(found == ABSENT, default, found)

        def lists(name: str, offsets: str) -> tuple[Ints, Ints]:
            if columns.get(name) is None:
                return np.empty(0, np.int64), np.zeros(n + 1, np.int64)
            return np.asarray(columns[name], np.int64), np.asarray(columns[offsets], np.int64)

        token_ns, token_offsets = lists("token_ns", "token_offsets")
        counts = columns.get("n")
        preempt_ns, preempt_offsets = lists("preempt_ns", "preempt_offsets")
        resume_ns, resume_offsets = lists("resume_ns", "resume_offsets")
        ids, status, degraded = columns.get("ids"), columns.get("status"), columns.get("degraded")
        rows = cls(
            path=path,
            ids=[str(row) for row in range(n)] if ids is None else list(ids),
            arrive_ns=arrive,
            schedule_ns=numbers("schedule_ns"),
            prefill_ns=numbers("prefill_ns"),
            end_ns=numbers("end_ns"),
            first_token_ns=numbers("first_token_ns"),
            last_token_ns=numbers("last_token_ns"),
            output_tokens=numbers("output_tokens"),
            prompt_tokens=numbers("prompt_tokens", 0),
            cached_tokens=numbers("cached_tokens", 0),
            token_ns=token_ns,
            token_offsets=token_offsets,
            counts=np.ones(len(token_ns), np.int64) if counts is None else np.asarray(counts, np.int64),
            preempt_ns=preempt_ns,
            preempt_offsets=preempt_offsets,
            resume_ns=resume_ns,
            resume_offsets=resume_offsets,
            status=np.full(n, STOP, np.uint8) if status is None else np.asarray(status, np.uint8),
            degraded=np.zeros(n, np.bool_) if degraded is None else np.asarray(degraded, np.bool_),
            labels=dict(columns.get("labels") or {}),
            trace=trace,
        )
        arrived = arrive >= 0
        return rows if bool(arrived.all()) else rows.select(arrived)

    def __len__(self) -> int:
        return len(self.arrive_ns)

    def select(self, keep: Bools) -> Rows:
        """The rows where `keep` is true."""
        lists = {}
        for name in ("token", "preempt", "resume"):
            offsets: Ints = getattr(self, f"{name}_offsets")
            lengths = np.diff(offsets)
            inside = np.repeat(keep, lengths)
            lists[f"{name}_ns"] = getattr(self, f"{name}_ns")[offsets[0] : offsets[-1]][inside]
            lists[f"{name}_offsets"] = np.concatenate([[0], np.cumsum(lengths[keep])]).astype(np.int64)
            if name == "token":
                lists["counts"] = self.counts[offsets[0] : offsets[-1]][inside]
        plain = ("arrive_ns", *NUMBERS, "prompt_tokens", "cached_tokens", "status", "degraded")
        return Rows(
            path=self.path,
            ids=[name for name, kept in zip(self.ids, keep.tolist(), strict=True) if kept],
            labels={name: (codes[keep], texts) for name, (codes, texts) in self.labels.items()},
            trace=self.trace,
            left_out=self.left_out + int((~keep).sum()),
            **{name: getattr(self, name)[keep] for name in plain},
            **lists,
        )

    # What follows from a row

    @cached_property
    def emissions(self) -> Ints:
        """How many each row has."""
        return np.diff(self.token_offsets)

    @cached_property
    def emitted(self) -> Ints:
        """Tokens of each row's emissions, added up."""
        total = np.concatenate([[0], np.cumsum(self.counts)])
        return np.asarray(total[self.token_offsets[1:]] - total[self.token_offsets[:-1]], np.int64)

    @cached_property
    def uneven(self) -> Bools:
        """Rows whose number of tokens is given beside emissions, and is another."""
        given = (self.emissions > 0) & (self.output_tokens != ABSENT)
        return np.asarray(given & (self.output_tokens != self.emitted), np.bool_)

    @cached_property
    def tokens(self) -> Ints:
        """N of each row."""
        given = np.where(self.output_tokens == ABSENT, 0, self.output_tokens)
        return np.where((self.emissions > 0) & ~self.uneven, self.emitted, given)

    @cached_property
    def first(self) -> Ints:
        """ns: when the first token came, `ABSENT` where there was none or it is not known."""
        found = np.where(self.tokens > 0, self.first_token_ns, ABSENT)
        timed = self.emissions > 0
        found[timed] = self.token_ns[self.token_offsets[:-1][timed]]
        return np.where(found < self.arrive_ns, ABSENT, found)

    @cached_property
    def last(self) -> Ints:
        """ns: when the last token came, likewise."""
        found = np.where(self.tokens > 0, self.last_token_ns, ABSENT)
        timed = self.emissions > 0
        found[timed] = self.token_ns[self.token_offsets[1:][timed] - 1]
        return np.where(found < np.maximum(self.arrive_ns, self.first), ABSENT, found)

    @cached_property
    def last_event(self) -> Ints:
        """ns: the latest time that is known of each row."""
        latest: Ints = np.maximum.reduce([self.arrive_ns, self.schedule_ns, self.prefill_ns, self.last, self.end_ns])
        for times, offsets in ((self.preempt_ns, self.preempt_offsets), (self.resume_ns, self.resume_offsets)):
            for row in np.flatnonzero(np.diff(offsets)).tolist():
                latest[row] = max(int(latest[row]), int(times[offsets[row + 1] - 1]))
        return latest

    def in_order(self) -> Rows:
        """The same without emissions that lie before the one before them, or before the arrival: none counts them."""
        starts = np.repeat(self.arrive_ns, self.emissions)
        before = np.concatenate([[0], self.token_ns[:-1]])
        opening = self.token_offsets[:-1][self.emissions > 0]
        before[opening] = starts[opening]
        wrong = np.repeat(np.arange(len(self)), self.emissions)[self.token_ns < before]
        if not len(wrong):
            return self
        keep = np.ones(len(self.token_ns), np.bool_)
        for row in np.unique(wrong).tolist():
            latest = int(self.arrive_ns[row])
            for at in range(int(self.token_offsets[row]), int(self.token_offsets[row + 1])):
                keep[at] = int(self.token_ns[at]) >= latest
                latest = max(latest, int(self.token_ns[at]))
        kept = np.concatenate([[0], np.cumsum(keep)]).astype(np.int64)
        changed = {
            "token_ns": self.token_ns[keep],
            "counts": self.counts[keep],
            "token_offsets": kept[self.token_offsets],
        }
        return Rows(**{**{name: getattr(self, name) for name in self.__dataclass_fields__}, **changed})
