"""What a file of another tool holds, once its units and habits are taken off: requests, summaries or a workload.

A reader returns one `Records` for each run with requests in it, a `Summary` where a file has figures only, and a
`Workload` for a trace. Durations are float64 seconds as the tool recorded them (so that its own arithmetic can be
repeated to the last bit), and what a file does not say is NaN, `ABSENT` or None, never 0; `absent` names it.
`Records.columns` turns the same rows into the whole nanoseconds that the core counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokenpulse.model import STATUSES

__all__ = [
    "ABSENT",
    "Floats",
    "Ints",
    "Labels",
    "Ragged",
    "Records",
    "Series",
    "Summary",
    "Workload",
    "duration_ns",
    "time_ns",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Labels: TypeAlias = dict[str, tuple[NDArray[np.int32], list[str]]]
"""Of each label its codes, one a row (-1 where a row has none), and the text of each code."""

ABSENT = -(2**63)
"""In a column of integers: not known. (-2**63 is no time and no count.)"""

SECOND = 1_000_000_000
_LIMIT = 9.2e9  # seconds: beyond it nanoseconds do not fit 64 bits

_STOP, _LENGTH = STATUSES.index("stop"), STATUSES.index("length")


def duration_ns(seconds: Floats) -> Ints:
    """Durations in seconds as whole nanoseconds: the float64 product with 1e9, rounded half to even.

    What is no number, or does not fit, is `ABSENT`.

    >>> duration_ns(np.array([0.0300000005, float("nan")])).tolist()
    [30000000, -9223372036854775808]
    """
    seconds = np.asarray(seconds, np.float64)
    known = np.isfinite(seconds) & (np.abs(seconds) < _LIMIT)
    return np.where(known, np.rint(np.where(known, seconds, 0.0) * 1e9), ABSENT).astype(np.int64)


def time_ns(seconds: Floats) -> Ints:
    """Points in time in seconds as whole nanoseconds: the seconds exactly, their fraction rounded half to even.

    A time since 1970 in seconds has a resolution of 0.24 us as a float64: the product with 1e9 would not fit its
    mantissa, and round a second time. What is no number, or does not fit, is `ABSENT`.

    >>> time_ns(np.array([1795962137.1209857, 2.5])).tolist()
    [1795962137120985746, 2500000000]
    """
    seconds = np.asarray(seconds, np.float64)
    known = np.isfinite(seconds) & (np.abs(seconds) < _LIMIT)
    whole = np.floor(np.where(known, seconds, 0.0))
    fraction = np.rint((np.where(known, seconds, 0.0) - whole) * 1e9).astype(np.int64)
    return np.where(known, whole.astype(np.int64) * SECOND + fraction, ABSENT)


@dataclass(frozen=True, kw_only=True)
class Ragged:
    """Rows of different length in one column: row `i` is `values[offsets[i]:offsets[i + 1]]`.

    >>> rows = Ragged.of([[1.0, 2.0], [], [3.0]])
    >>> rows.lengths.tolist(), rows[0].tolist(), len(rows)
    ([2, 0, 1], [1.0, 2.0], 3)
    """

    values: NDArray[Any]
    offsets: Ints

    @classmethod
    def of(cls, rows: Sequence[Sequence[float] | NDArray[Any]], dtype: Any = np.float64) -> Ragged:
        """From one sequence a row."""
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:]) if rows else None
        values = np.concatenate([np.asarray(row, dtype) for row in rows]) if rows else np.empty(0, dtype)
        return cls(values=np.ascontiguousarray(values, dtype), offsets=offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> Ints:
        """How many values each row has."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> Ints:
        """Of each value the number of its row."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    def take(self, rows: Ints) -> Ragged:
        """The rows with these numbers, in that order."""
        lengths = self.lengths[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(values=self.values[places], offsets=offsets)

    def select(self, keep: Bools) -> Ragged:
        """The rows where `keep` is true."""
        return self.take(np.flatnonzero(keep))


@dataclass(frozen=True, kw_only=True)
class Series:
    """A gauge over time: `values[i]` was set at `t_ns[i]` by engine `engine[i]`."""

    t_ns: Ints
    values: Floats
    engine: Ints


@dataclass(kw_only=True)
class Records:
    """The requests of one run as columns, one row a request, in the order of the file.

    Times in seconds are float64 exactly as the file had them, durations are converted to seconds and nothing more.
    A row's `status` is the place of its name in `model.STATUSES`.
    """

    tool: str
    """Who wrote the file: `vllm`, `sglang`, `aiperf`, `genai-perf`, `guidellm`, `inference-perf`, `genai-bench`,
    `llmperf`, `vllm-stat-logger`, `tokenpulse`, `table`."""
    format: str
    """Which of its files, such as `vllm-bench-detailed`."""
    name: str = ""
    """The run, where a file has several: the line of an appended file, the strategy of a benchmark."""
    ids: list[str] | None = None

    clock: Literal["epoch", "monotonic"] | None = None
    """What the times count from; None where the file has durations only: then there are no rates over time."""
    arrive_ns: Ints | None = None
    """When the request was sent, `ABSENT` where unknown."""
    start: Floats | None = None
    """The same in seconds as the file has it, where it has seconds."""
    intended_ns: Ints | None = None
    """When the client meant to send it."""
    first: Floats | None = None
    """Time of the first token in seconds on the clock of `start`, where the file has points in time."""
    last: Floats | None = None
    """Time of the last token, likewise."""
    end: Floats | None = None
    """Time of the request's end, likewise."""

    ttft: Floats
    """s: sending to first token, as the tool recorded it. NaN where there was none, or it is not known."""
    e2e: Floats
    """s: sending to last token."""
    latency: Floats
    """s: sending to the end as the tool has it; `e2e` where it has no other."""
    gaps: Ragged | None = None
    """s: between emissions, in order, gaps of 0 included; a row that has none is empty."""
    emissions: Ragged | None = None
    """s: the emissions' times on the clock of `start`, where the file has points in time; then `gaps` are theirs."""
    chunk_tokens: Ragged | None = None
    """Tokens of each emission, where the file says; as many as there are `emissions`, or one more than `gaps`."""

    prompt_tokens: Ints | None = None
    cached_tokens: Ints | None = None
    output_tokens: Ints | None = None
    """N as the tool counted it, reasoning included where the tool includes it."""
    reasoning_tokens: Ints | None = None
    status: NDArray[np.uint8]
    warmup: Bools | None = None
    """Requests that the tool leaves out of its figures: read, counted and left out of ours."""
    errors: list[str | None] | None = None
    labels: Labels = field(default_factory=dict)

    schedule_ns: Ints | None = None
    """When the server first scheduled it, on the clock of `arrive_ns`, where the file says."""
    prefill_ns: Ints | None = None
    queue: Floats | None = None
    """s: how long the client itself held the request back before it sent it."""

    own: dict[str, Floats] = field(default_factory=dict)
    """The tool's own figures of each request, in its own keys and units, NaN where it has none."""
    own_units: dict[str, str] = field(default_factory=dict)
    """The unit of each of `own`, where the file names one."""
    own_ragged: dict[str, Ragged] = field(default_factory=dict)
    """The tool's own lists of each request."""
    end_ns: Ints | None = None
    """The end of the request in whole nanoseconds, where the file has them."""
    pooled: dict[str, Floats] = field(default_factory=dict)
    """s: observations of a metric that belong to no row, where a file does not say to which request."""
    gauges: dict[str, Series] = field(default_factory=dict)

    run: dict[str, Any] = field(default_factory=dict)
    """Of the whole run, where known: `duration` (s, by the tool's own clock), `requested_rate` (1/s, inf: at once),
    `concurrency`, `goodput` (the limits it used, metric to seconds), `settings`."""
    summary: dict[str, Any] = field(default_factory=dict)
    """The tool's own figures, in its own keys and units."""
    absent: dict[str, str] = field(default_factory=dict)
    """Figure of the report that this file cannot give, to why."""
    definitions: dict[str, str] = field(default_factory=dict)
    """Metric to the tool's definition, where it is another than ours."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Rows that could not be read, by reason."""
    notices: list[dict[str, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.status)

    @property
    def counted(self) -> Bools:
        """The rows that figures are made of: all but warm-up."""
        return np.ones(len(self), np.bool_) if self.warmup is None else ~self.warmup

    @property
    def succeeded(self) -> Bools:
        """The rows that ended well, warm-up included."""
        return np.isin(self.status, (_STOP, _LENGTH))

    @property
    def timed_tokens(self) -> bool:
        """Whether the file has times between emissions."""
        return self.gaps is not None or self.emissions is not None

    @property
    def chunks_only(self) -> bool:
        """Whether emissions are chunks of unknown size: then the ITL rule can only be `chunk`."""
        if len(self.pooled.get("itl", ())):
            return True
        if not self.timed_tokens or self.chunk_tokens is not None:
            return False
        if self.output_tokens is None:
            return True
        chunks = self._emission_lengths()
        some = self.succeeded & (chunks > 0)
        return bool(np.any(chunks[some] != self.output_tokens[some]))

    def select(self, keep: Bools) -> Records:
        """The same run with the rows where `keep` is true; what belongs to no row stays."""
        return self.take(np.flatnonzero(keep))

    def take(self, rows: Ints) -> Records:
        """The same run with the rows with these numbers, in that order; what belongs to no row stays."""
        changed: dict[str, Any] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, Ragged):
                changed[part.name] = value.take(rows)
            elif isinstance(value, np.ndarray):
                changed[part.name] = value[rows]
            elif part.name in ("ids", "errors") and value is not None:
                changed[part.name] = [value[row] for row in rows]
        changed["own"] = {name: column[rows] for name, column in self.own.items()}
        changed["own_ragged"] = {name: column.take(rows) for name, column in self.own_ragged.items()}
        changed["labels"] = {name: (codes[rows], values) for name, (codes, values) in self.labels.items()}
        return replace(self, **changed)

    def columns(self) -> dict[str, Any]:
        """The rows without warm-up as the columns that `engine.ColumnReducer.requests` takes.

        Where the file has no times at all every request arrives at 0: its durations are right, and whatever needs a
        clock is named in `absent`. A row whose arrival alone is unknown bears `ABSENT`, which the core counts as a
        missing field. A row with emissions has `token_ns`; one without has `first_token_ns`, `last_token_ns` and
        `output_tokens`, where they are known; where only their times are, one token stands for them.
        """
        if self.warmup is not None and bool(self.warmup.any()):
            return replace(self.select(~self.warmup), warmup=None).columns()
        n = len(self)
        arrive = np.zeros(n, np.int64) if self.arrive_ns is None else self.arrive_ns
        known = arrive != ABSENT
        base = np.where(known, arrive, 0)
        lengths = self._emission_lengths()
        token_ns, offsets = self._token_ns(base, lengths)
        emits = np.diff(offsets) > 0
        columns: dict[str, Any] = {"arrive_ns": arrive, "status": self.status, "ids": self.ids}
        if self.timed_tokens:
            columns |= {"token_ns": token_ns, "token_offsets": offsets}
            if self.chunk_tokens is not None:
                columns["n"] = self.chunk_tokens.select(emits).values
        first = self._point(self.first, base, self.ttft)
        last = self._point(self.last, base, self.e2e)
        last = np.where((last == ABSENT) & (self._tokens() == 1), first, last)
        columns["first_token_ns"] = np.where(emits, ABSENT, first)
        columns["last_token_ns"] = np.where(emits, ABSENT, last)
        # A request whose first token was seen has one at least; without it the core would know of no token.
        uncounted = (self._tokens() == ABSENT) & ~emits & (first != ABSENT)
        columns["output_tokens"] = np.where(uncounted, 1, self._tokens())
        end = self._point(self.end, base, self.latency)
        if self.end_ns is not None:
            end = np.where(self.end_ns == ABSENT, end, self.end_ns)
        newest = np.where(last == ABSENT, first, last)
        newest[emits] = token_ns[offsets[1:][emits] - 1]
        # The sum of rounded gaps may pass the rounded latency by as many nanoseconds as there are gaps.
        rounding = (end != ABSENT) & (end < newest) & (newest - end <= np.diff(offsets) + 1)
        columns["end_ns"] = np.where(rounding, newest, end)
        for name in ("schedule_ns", "prefill_ns", "prompt_tokens", "cached_tokens"):
            if (column := getattr(self, name)) is not None:
                columns[name] = column
        if self.labels:
            columns["labels"] = self.labels
        return {name: _contiguous(column) for name, column in columns.items()}

    def _tokens(self) -> Ints:
        return np.full(len(self), ABSENT, np.int64) if self.output_tokens is None else self.output_tokens

    def _point(self, absolute: Floats | None, base: Ints, relative: Floats) -> Ints:
        """A point in time in ns: the file's own where it has one, else the arrival and a duration."""
        duration = duration_ns(relative)
        point = np.where(duration == ABSENT, ABSENT, base + np.where(duration == ABSENT, 0, duration))
        if absolute is None:
            return point
        own = time_ns(absolute)
        return np.where(own == ABSENT, point, own)

    def _emission_lengths(self) -> Ints:
        """How many emissions each row has: none where it is not known when they were."""
        if self.emissions is not None:
            return self.emissions.lengths
        if self.gaps is None:
            return np.zeros(len(self), np.int64)
        # A row without gaps whose last token came later than its first has emissions that nobody timed.
        gaps = self.gaps.lengths
        untimed = (gaps == 0) & (duration_ns(self.e2e) > duration_ns(self.ttft)) & (self._tokens() != 1)
        return np.where(np.isnan(self.ttft) | untimed, 0, gaps + 1)

    def _token_ns(self, base: Ints, lengths: Ints) -> tuple[Ints, Ints]:
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if self.emissions is not None:
            return time_ns(self.emissions.values), offsets
        if self.gaps is None:
            return np.empty(0, np.int64), offsets
        emits = lengths > 0
        steps = np.zeros(int(offsets[-1]), np.int64)
        opening = np.zeros(len(steps), np.bool_)
        opening[offsets[:-1][emits]] = True
        steps[~opening] = duration_ns(self.gaps.select(emits).values)
        # One running sum over all rows: each row's opening step takes it from where the row before ended to its own.
        running = np.cumsum(steps)
        starts = (base + duration_ns(np.where(emits, self.ttft, 0.0)))[emits]
        return running + np.repeat(starts - running[opening], lengths[emits]), offsets


def _contiguous(column: Any) -> Any:
    return np.ascontiguousarray(column) if isinstance(column, np.ndarray) else column


@dataclass(kw_only=True)
class Summary:
    """A file that has figures only: nothing can be counted again, so they are shown as the tool's own."""

    tool: str
    format: str
    name: str = ""
    figures: dict[str, Any]
    """In the tool's own keys and units."""
    normalised: dict[str, Any] = field(default_factory=dict)
    """The same by our names and in our units: `ttft`, `tpot`, `itl`, `e2e` {`mean`, `p50`, ... in s}, `rates` (1/s),
    `requests`, `tokens`, `duration` (s)."""
    run: dict[str, Any] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    notices: list[dict[str, Any]] = field(default_factory=list)


@dataclass(kw_only=True)
class Workload:
    """A trace: when requests arrived and how long they were. It has no latency, and none is made up."""

    tool: str
    format: str
    name: str = ""
    clock: Literal["epoch", "relative"]
    """`epoch`, or since the trace's own beginning."""
    arrive_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    failed: Bools | None = None
    """Requests that the trace marks as failed (an answer of no token)."""
    labels: Labels = field(default_factory=dict)
    block_hashes: Ragged | None = None
    """Hashes of each prompt's blocks as uint64, in order."""
    block_tokens: int | None = None
    """Tokens a block stands for."""
    absent: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    notices: list[dict[str, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.arrive_ns)
