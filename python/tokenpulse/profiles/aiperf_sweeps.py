"""AIPerf's curves over time: concurrency, tokens a second and tokens held, weighted by how long each value lasted.

A curve is a step function: at each event it changes, and holds until the next. All requests take part, errors with the
time that they took. Points in time are float64 nanoseconds since 1970, which are 256 ns apart, because AIPerf's are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpulse.profiles import percentile
from tokenpulse.profiles.rows import Bools, Figures, Rows
from tokenpulse.records import ABSENT, Floats

POINTS = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Curve:
    """A step function: `values[i]` from `times[i]` to `times[i + 1]`, 0 before the first."""

    times: Floats
    values: Floats

    @classmethod
    def of(cls, times: list[Floats], steps: list[Floats]) -> Curve:
        """From changes; those that lower it come first where several fall together."""
        when, change = np.concatenate(times), np.concatenate(steps)
        order = np.lexsort((change > 0, when))
        values = np.cumsum(change[order])
        largest = float(np.max(np.abs(values))) if values.size else 0.0
        # What remains of rounding after all that was added has been taken away again is 0.
        return cls(when[order], np.where(np.abs(values) < 1e-9 * largest, 0.0, values))

    def at(self, when: Floats) -> Floats:
        """The values that hold at points in time."""
        places = np.searchsorted(self.times, when, side="right") - 1
        return np.where(places >= 0, self.values[np.maximum(places, 0)], 0.0) if self.times.size else 0.0 * when

    def over(self, other: Curve) -> Curve:
        """This one divided by another; 0 where that one is not positive."""
        if not self.times.size or not other.times.size:
            return Curve(np.zeros(0), np.zeros(0))
        when = np.unique(np.concatenate((self.times, other.times)))
        above, below = self.at(when), other.at(when)
        return Curve(when, np.divide(above, below, out=np.zeros_like(above), where=below > 0))

    def figures(self, unit: str, scale: float, window: tuple[float, float], where: Curve | None = None) -> Figures:
        """Average, percentiles, extremes and deviation by time within a window; only where another is positive."""
        if where is None:
            inside = slice(*np.searchsorted(self.times, window, side="right"))
            before = self.values[inside.start - 1] if inside.start else 0.0
            grid = np.concatenate(([window[0]], self.times[inside], [window[1]]))
            values = np.concatenate(([before], self.values[inside]))
        else:
            grid = np.unique(np.concatenate((np.array(window), self.times, where.times)))
            grid = grid[(grid >= window[0]) & (grid <= window[1])]
            values = self.at(grid[:-1])
        lasting = np.diff(grid)
        keep = lasting > 0
        if where is not None:
            keep &= where.at(grid[:-1]) > 0
        lasting, values = lasting[keep], values[keep]
        if not lasting.size or not self.times.size:
            return {"unit": unit, **dict.fromkeys(("avg", *(f"p{p}" for p in POINTS), "min", "max", "std"), 0.0)}
        time = lasting.sum() if where is not None else window[1] - window[0]
        mean = np.sum(values * lasting) / time
        spread = np.sqrt(np.sum(lasting * (values - mean) ** 2) / time)
        points = percentile.weighted(values, lasting, [p / 100 for p in POINTS])
        return {
            "unit": unit,
            "avg": float(mean * scale),
            **{f"p{p}": float(point * scale) for p, point in zip(POINTS, points, strict=True)},
            "min": float(values.min() * scale),
            "max": float(values.max() * scale),
            "std": float(spread * scale),
        }


def sent(rows: Rows) -> Floats:
    """ns: when each request was sent; NaN where that is not known."""
    arrive = rows.records.arrive_ns
    if rows.records.clock is None or arrive is None:
        return np.full(len(rows), np.nan)
    return np.where(arrive == ABSENT, np.nan, arrive.astype(np.float64))


def ended(rows: Rows) -> Floats:
    """ns: when each request ended, by the file's own time where it has one."""
    own = rows.records.end_ns
    reckoned = answered(rows)
    return reckoned if own is None else np.where(own == ABSENT, reckoned, own.astype(np.float64))


def answered(rows: Rows) -> Floats:
    """ns: when the last content came: sending and latency together."""
    return sent(rows) + np.rint(rows.e2e * 1e9)


def figures(rows: Rows, window: tuple[int, int] | None) -> Figures:
    """All curves' figures, over the window or from the first event to the last."""
    start, end, first = sent(rows), ended(rows), _first(rows)
    known = ~np.isnan(start) & ~np.isnan(end)
    if not known.any():
        rows.missing("effective_* and active_* curves", "the file has no times of the requests")
        return {}
    prompt, output = (np.where(rows.ok, column, np.nan) for column in (rows.prompt_tokens, rows.output_tokens))
    span = (float(window[0]), float(window[1])) if window else (float(min(start[known])), float(max(end[known])))
    if window is None:
        rows.missing(
            "effective_* and active_* curves",
            "AIPerf takes them over the time of its phase, which its records do not have; "
            "here from the first sending to the last end",
        )
    running, decoding, filling = (
        _lasting(a, b, np.ones(len(rows))) for a, b in ((start, end), (first, end), (start, first))
    )
    read, steady = _rate(start, first, prompt), _rate(first, end, output - 1)
    generated = _chunk_rate(rows, first, output) or Curve.of(*steady)
    moved = Curve.of(read[0] + steady[0], read[1] + steady[1])
    filled, held = Curve.of(*read), _held(rows, start, first, end)
    each, each_filled = generated.over(decoding), filled.over(filling)
    second, user = ("tokens/sec", 1e9), ("tokens/sec/user", 1e9)
    curves = {
        "effective_concurrency": running.figures("requests", 1.0, span),
        "effective_decode_throughput": generated.figures(*second, span),
        "effective_prefill_throughput": filled.figures(*second, span),
        "effective_decode_concurrency": decoding.figures("requests", 1.0, span),
        "effective_prefill_concurrency": filling.figures("requests", 1.0, span),
        "effective_total_throughput": moved.figures(*second, span),
        "effective_decode_throughput_per_user": each.figures(*user, span),
        "effective_prefill_throughput_per_user": each_filled.figures(*user, span),
        "tokens_in_flight": held.figures("tokens", 1.0, span),
        "active_decode_throughput": generated.figures(*second, span, decoding),
        "active_prefill_throughput": filled.figures(*second, span, filling),
        "active_decode_throughput_per_user": each.figures(*user, span, decoding),
        "active_prefill_throughput_per_user": each_filled.figures(*user, span, filling),
        "active_total_throughput": moved.figures(*second, span, running),
    }
    return {tag: one for tag, one in curves.items() if not _unknown(rows, tag)}


def _unknown(rows: Rows, tag: str) -> bool:
    """Whether a curve is 0 only because the file does not count tokens; AIPerf's own always does."""
    if rows.records.tool == "aiperf" or not rows.ok.any() or not ("throughput" in tag or "tokens" in tag):
        return False
    both = (("prompt", rows.prompt_tokens), ("output", rows.output_tokens))
    absent = {side for side, column in both if np.isnan(column[rows.ok]).all()}
    needed = {"output"} if "decode" in tag else {"prompt"} if "prefill" in tag else {"prompt", "output"}
    if absent & needed:
        rows.missing("curves of tokens", f"the file does not count {' and '.join(sorted(absent))} tokens")
    return bool(absent & needed)


def _first(rows: Rows) -> Floats:
    """ns: when the first token of each success came; added as whole numbers, and only then made a float64."""
    arrive = rows.records.arrive_ns
    known = rows.ok & ~np.isnan(rows.ttft)
    if rows.records.clock is None or arrive is None:
        return np.full(len(rows), np.nan)
    whole = arrive + np.where(known, np.rint(np.where(known, rows.ttft, 0.0) * 1e9), 0).astype(np.int64)
    return np.where(known & (arrive != ABSENT), whole.astype(np.float64), np.nan)


Steps = tuple[list[Floats], list[Floats]]


def _steps(begin: Floats, until: Floats, amount: Floats, keep: Bools) -> Steps:
    return [begin[keep], until[keep]], [amount[keep], -amount[keep]]


def _lasting(begin: Floats, until: Floats, amount: Floats) -> Curve:
    """An amount that each request adds for a time."""
    return Curve.of(*_steps(begin, until, amount, ~np.isnan(begin) & ~np.isnan(until)))


def _rate(begin: Floats, until: Floats, tokens: Floats) -> Steps:
    """Tokens of each request, spread evenly over a time of it."""
    with np.errstate(invalid="ignore"):
        keep = (until - begin > 0) & ~np.isnan(tokens)
        return _steps(begin, until, np.where(keep, tokens / np.where(keep, until - begin, 1), 0.0), keep)


def _chunks(rows: Rows, first: Floats) -> tuple[Floats, Floats, NDArray[np.int64]] | None:
    """ns: gap and end of every chunk after the first, and the row it belongs to; None where there are none."""
    if rows.gaps is None:
        return None
    gaps = rows.gaps.select(rows.ok & ~np.isnan(first))
    if not gaps.values.size:
        return None
    row = np.flatnonzero(rows.ok & ~np.isnan(first))[gaps.rows]
    steps = np.rint(gaps.values * 1e9)
    running = np.cumsum(steps)
    before = np.concatenate(([0.0], running))[gaps.offsets[:-1]]
    return steps, first[row] + (running - before[gaps.rows]), row


def _chunk_rate(rows: Rows, first: Floats, output: Floats) -> Curve | None:
    """Tokens over time by chunks: the tokens after the first in equal parts on all gaps that are not 0."""
    if (chunks := _chunks(rows, first)) is None:
        return None
    steps, until, row = chunks
    real = steps > 0
    counts = np.bincount(row[real], minlength=len(rows)).astype(np.float64)[row]
    keep = real & (output[row] >= 1)
    rates = np.where(keep, (output[row] - 1) / np.maximum(counts, 1) / np.where(real, steps, 1), 0.0)
    return Curve.of(*_steps(until - steps, until, rates, keep)) if keep.any() else None


def _held(rows: Rows, start: Floats, first: Floats, end: Floats) -> Curve:
    """Tokens that the server holds: a prompt from its sending, an answer as it grows, both until the end."""
    prompt, output = rows.prompt_tokens, np.where(rows.ok, rows.output_tokens, np.nan)
    filled = ~np.isnan(start) & ~np.isnan(prompt) & ~np.isnan(first) & (first > start)
    times, steps = [start[filled]], [prompt[filled]]
    grown = rows.ok & ~np.isnan(first) & ~np.isnan(output) & (end > first)
    chunks = _chunks(rows, first)
    if chunks is not None:
        _, until, row = chunks
        counts = np.bincount(row, minlength=len(rows)).astype(np.float64)
        grown = counts > 0
        opening = grown & (output >= 1)
        keep = ~np.isnan(output[row])
        late = until >= end[row]
        times += [first[opening], np.where(late, np.nextafter(end[row], -np.inf), until)[keep]]
        steps += [np.ones(int(opening.sum())), ((output[row] - 1) / counts[row])[keep]]
    else:
        times, steps = [*times, first[grown]], [*steps, output[grown]]
    gone = np.where(filled, prompt, 0.0) + np.where(grown, output, 0.0)
    leaving = (filled | grown) & ~np.isnan(end)
    return Curve.of([*times, end[leaving]], [*steps, -gone[leaving]])
