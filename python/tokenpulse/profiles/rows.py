"""`Rows`: the requests of a run as every profile starts from them, whichever reader they came from.

Warm-up is left out. Values are the exact ones of the file: float64 seconds as the tool recorded them, counts as float64
with NaN where a file does not say. Nothing is judged here; every tool says for itself what counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpulse.model import SLO, STATUSES
from tokenpulse.profiles.choices import Choices
from tokenpulse.records import ABSENT, Floats, Ints, Ragged, Records

Bools = NDArray[np.bool_]
Figures = dict[str, Any]

LIMITS = ("ttft", "tpot", "e2e", "itl")
"""The metrics that a limit may be set for, by our names; in seconds."""

IN_FLIGHT = 255
"""The status of a request that had not ended."""

_ABORT = STATUSES.index("abort")


class Rows:
    """The counted requests of a run, their exact values, and the figures that could not be had, with the reason.

    >>> import numpy as np
    >>> from tokenpulse.records import Records
    >>> one = Records(tool="table", format="table", ttft=np.array([0.1]), e2e=np.array([0.5]),
    ...               latency=np.array([0.6]), output_tokens=np.array([5]), status=np.array([0], np.uint8))
    >>> rows = Rows(one)
    >>> rows.tpot("latency - ttft", "N - 1").tolist(), rows.duration is None
    ([0.125], True)
    """

    def __init__(self, records: Records) -> None:
        self.all = records
        counted = records.counted
        self.records = records if bool(counted.all()) else records.select(counted)
        self.absent: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def ok(self) -> Bools:
        """Ended well."""
        return self.records.succeeded

    @cached_property
    def ended(self) -> Bools:
        """Ended at all."""
        return np.asarray(self.records.status != IN_FLIGHT)

    @cached_property
    def aborted(self) -> Bools:
        """Given up by the client."""
        return np.asarray(self.records.status == _ABORT)

    @property
    def failed(self) -> Bools:
        """Ended otherwise than well, aborts included: tools that know no abort count one as a failure."""
        return self.ended & ~self.ok

    @cached_property
    def ttft(self) -> Floats:
        """s."""
        return self.records.ttft

    @cached_property
    def latency(self) -> Floats:
        """s: sending to the end."""
        return np.where(np.isnan(self.records.latency), self.records.e2e, self.records.latency)

    @cached_property
    def e2e(self) -> Floats:
        """s: sending to the last token; to the end where the file has no last token."""
        return np.where(np.isnan(self.records.e2e), self.records.latency, self.records.e2e)

    @cached_property
    def output_tokens(self) -> Floats:
        """N; where a file does not count, one a chunk of known number."""
        counted = number(self.records.output_tokens, len(self))
        chunks = self.records.chunk_tokens
        if chunks is None:
            return counted
        sums = np.add.reduceat(np.append(chunks.values, 0), chunks.offsets[:-1]) if len(self) else np.zeros(0)
        sums = np.where(chunks.lengths > 0, sums, 0)
        return np.where(np.isnan(counted), sums, counted)

    @cached_property
    def prompt_tokens(self) -> Floats:
        return number(self.records.prompt_tokens, len(self))

    @cached_property
    def gaps(self) -> Ragged | None:
        """s: between emissions; None where the file has no times between them."""
        records = self.records
        if records.gaps is not None:
            return records.gaps
        if records.emissions is None:
            return None
        steps = np.diff(records.emissions.values, prepend=0.0)
        inner = np.ones(steps.size, np.bool_)
        starts = records.emissions.offsets[:-1][records.emissions.lengths > 0]
        inner[starts] = False
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(np.maximum(records.emissions.lengths - 1, 0), out=offsets[1:])
        return Ragged(values=steps[inner], offsets=offsets)

    def pooled_gaps(self, keep: Bools) -> Floats:
        """s: all gaps of the requests to keep, in order."""
        return np.zeros(0) if self.gaps is None else np.asarray(self.gaps.select(keep).values, np.float64)

    @cached_property
    def start(self) -> Floats | None:
        """s on the file's clock, as the file has it; from whole nanoseconds counted from the first arrival else."""
        records = self.records
        if records.start is not None:
            return records.start
        if records.clock is None or records.arrive_ns is None:
            return None
        known = records.arrive_ns != ABSENT
        if not known.any():
            return None
        first = records.arrive_ns[known].min()
        return np.where(known, (np.where(known, records.arrive_ns, first) - first) / 1e9, np.nan)

    @cached_property
    def end(self) -> Floats | None:
        """s on the clock of `start`: the file's own, or start and latency together."""
        if self.start is None:
            return None
        reckoned = self.start + self.latency
        own = self.records.end
        return reckoned if own is None or self.records.start is None else np.where(np.isnan(own), reckoned, own)

    @cached_property
    def duration(self) -> float | None:
        """s: the run by the tool's own clock where the file says, else first sending to last end."""
        own = self.records.run.get("duration")
        if own is not None:
            return float(own)
        return self.wall(self.ended)

    def wall(self, keep: Bools) -> float | None:
        """s: first sending to last end of the requests to keep; None without times or where nothing lies between."""
        if self.start is None or self.end is None:
            return None
        starts, ends = self.start[keep], self.end[keep]
        starts, ends = starts[~np.isnan(starts)], ends[~np.isnan(ends)]
        if not starts.size or not ends.size or not ends.max() > starts.min():
            return None
        return float(ends.max() - starts.min())

    def tpot(self, span: str | None, divisor: str | None) -> Floats:
        """s: time per output token after a choice of span and divisor; NaN where there is none (N too small)."""
        n = self.output_tokens
        until = self.latency if span == "latency - ttft" else self.e2e
        whole = until if span == "last - start" else until - self.ttft
        tokens = n if divisor == "N" else n - (self._first_tokens() if divisor == "N - k_first" else 1)
        fit = tokens > 0
        return np.where(fit, whole / np.where(fit, tokens, 1), np.nan)

    def _first_tokens(self) -> Floats:
        chunks = self.records.chunk_tokens
        if chunks is None:
            return np.ones(len(self))
        known = chunks.lengths > 0
        first = np.ones(len(self))
        first[known] = chunks.values[chunks.offsets[:-1][known]]
        return first

    def longest_gap(self) -> Floats:
        """s: the largest gap of each request, NaN where it has none."""
        longest = np.full(len(self), np.nan)
        if self.gaps is not None:
            some = self.gaps.lengths > 0
            if some.any():
                longest[some] = np.maximum.reduceat(self.gaps.values, self.gaps.offsets[:-1][some])
        return longest

    def own_summary(self, tool: str) -> Figures:
        """The figures that the tool itself wrote of these requests; empty where another tool wrote the file."""
        return self.records.summary if self.records.tool == tool else {}

    def missing(self, figure: str, why: str) -> None:
        """Name a figure that these records cannot give; the answer is None."""
        self.absent.setdefault(figure, why)

    def total(self, column: Floats, keep: Bools, figure: str) -> float | None:
        """The sum of counts; None, and the figure named, where a file has none of them."""
        counts = column[keep]
        if counts.size and bool(np.isnan(counts).all()):
            self.missing(figure, "the file does not count these tokens")
            return None
        return float(np.nansum(counts))

    def limits(self, goodput: Mapping[str, float] | SLO | None) -> dict[str, float]:
        """The limits to judge by, metric to seconds: those that were asked for, else those that the run itself used.

        None at all where no success has one of the metrics, because the file does not say: nothing can be judged then.
        Raises ValueError for a limit that is no positive number.
        """
        if isinstance(goodput, SLO):
            goodput = {name: value for name in LIMITS if (value := getattr(goodput, name)) is not None}
        told = self.records.run.get("goodput") or {} if goodput is None else goodput
        limits = {str(name): checked_limit(name, value) for name, value in told.items()}
        for name in limits:
            if self.ok.any() and not self._has(name):
                self.missing("goodput", f"no request that succeeded has what the limit {name} needs")
                return {}
        return limits

    def _has(self, limit: str) -> bool:
        # The longest gap is a limit of tokenpulse alone, to which a request without gaps has missed it.
        needed = {"ttft": (self.ttft,), "tpot": (self.ttft, self.output_tokens), "e2e": (self.latency,)}
        return all(bool((~np.isnan(values[self.ok])).any()) for values in needed.get(limit, ()))


def checked_limit(name: str, seconds: float) -> float:
    """A limit of goodput in seconds. Raises ValueError unless it is a finite number above 0.

    >>> checked_limit("ttft", 0.2)
    0.2
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise ValueError(f"goodput limit {name} must be a positive number of seconds, got {seconds!r}")
    return float(seconds)


def number(column: Ints | None, rows: int) -> Floats:
    """A column of counts as float64, NaN where it is absent.

    >>> number(np.array([3, ABSENT]), 2).tolist()
    [3.0, nan]
    """
    if column is None:
        return np.full(rows, np.nan)
    return np.where(column == ABSENT, np.nan, column.astype(np.float64))


def known(values: Floats) -> Floats:
    """The values that are numbers.

    >>> known(np.array([1.0, float("nan")])).tolist()
    [1.0]
    """
    return values[~np.isnan(values)]


def spread(choices: Choices, values: Floats) -> float | None:
    """Standard deviation by the tool's ddof; None where it has none or there are too few values."""
    if choices.ddof is None or values.size <= choices.ddof:
        return None
    return float(np.std(values, ddof=choices.ddof))


def over(amount: float, seconds: float | None) -> float | None:
    """An amount per second; None where the time is not known or not positive.

    >>> over(3, 1.5), over(3, None), over(3, 0.0)
    (2.0, None, None)
    """
    return None if seconds is None or not seconds > 0 else float(amount) / seconds
