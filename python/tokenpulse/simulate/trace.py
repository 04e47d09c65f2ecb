"""Arrivals and lengths from a recorded trace: Azure's, BurstGPT's, or Mooncake's with its shared prefixes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokenpulse import readers
from tokenpulse.records import Workload as Trace
from tokenpulse.simulate.clock import SECOND_NS
from tokenpulse.simulate.request import HASH_BITS, Request

if TYPE_CHECKING:
    from tokenpulse.simulate.simulation import Simulation
    from tokenpulse.simulate.workload import Traffic

Rows: TypeAlias = NDArray[np.intp]

_MIX = 0x9E3779B97F4A7C15
"""Odd: multiplying by it modulo 2^64 keeps different numbers different."""


@dataclass(frozen=True, slots=True)
class TracedText:
    """A prompt whose blocks of `traced_tokens` tokens have the trace's hashes; the rest is its own."""

    traced: list[int]
    traced_tokens: int
    prompt_tokens: int
    own: int

    def block_hashes(self, first: int, end: int, block_tokens: int) -> list[int]:
        """Those of blocks `first` to `end`, `end` left out."""
        return [self._hash(block, block_tokens) for block in range(first, end)]

    def _hash(self, block: int, block_tokens: int) -> int:
        last = (block + 1) * block_tokens - 1
        whose = last // self.traced_tokens
        if last >= self.prompt_tokens or whose >= len(self.traced):
            return self.own + block
        return (self.traced[whose] * _MIX + block) % 2**64


class Replay:
    """Requests as a trace has them, `speed` times as fast, each once.

    What the trace does not tell (answers' lengths, in some) is drawn like the other traffic's.
    """

    def __init__(self, trace: Trace, rows: Rows, speed: float, traffic: Traffic, seed: int) -> None:
        self._trace = trace
        self._rows = rows.tolist()
        since = trace.arrive_ns[rows] - trace.arrive_ns[rows[0]]
        self._due_ns = [round(ns / speed) for ns in since.tolist()]
        self._next = 0
        self._traffic = traffic
        self._content = Random(f"{seed}/trace/content")
        self._lengths = Random(f"{seed}/trace/lengths")

    def start(self, simulation: Simulation) -> None:
        """Begin, now."""
        begin_ns = simulation.clock.now_ns

        def arrive() -> None:
            simulation.submit(self)
            wait()

        def wait() -> None:
            if self._next < len(self._rows):
                simulation.clock.at(begin_ns + self._due_ns[self._next], arrive)

        wait()

    def request(self, number: int, t_ns: int) -> Request:
        """The next one."""
        row = self._rows[self._next]
        self._next += 1
        prompt, output = int(self._trace.prompt_tokens[row]), int(self._trace.output_tokens[row])
        if output < 1:
            output = self._traffic.output.draw(self._lengths)
        own = self._content.getrandbits(HASH_BITS)
        text = TracedText(self._hashes(row), self._trace.block_tokens or 1, prompt, own)
        return Request(number, t_ns, prompt, output, text, self._traffic.labels)

    def _hashes(self, row: int) -> list[int]:
        hashes = self._trace.block_hashes
        if hashes is None or self._trace.block_tokens is None:
            return []
        found: list[int] = hashes.values[hashes.offsets[row] : hashes.offsets[row + 1]].tolist()
        return found


def replay_of(path: str, seed: int, rate: float | None, traffic: Traffic) -> Replay:
    """A trace's requests, at their own times, or so that `rate` of them arrive a second on average.

    Those that failed in the trace are left out. Raises OSError for a file that cannot be read, FormatError for one of
    an unknown format, ValueError for one that is no trace or has no request whose prompt has a length.
    """
    traces = [run for run in readers.read(path) if isinstance(run, Trace)]
    if not traces:
        raise ValueError(f"{path}: is no trace of requests; arrivals must be poisson, bursty, closed or a trace's path")
    trace = traces[0]
    known = trace.prompt_tokens >= 1
    if trace.failed is not None:
        known &= ~trace.failed
    rows = np.flatnonzero(known)
    if not len(rows):
        raise ValueError(f"{path}: no request whose prompt has a length")
    rows = rows[np.argsort(trace.arrive_ns[rows], kind="stable")]
    span = int(trace.arrive_ns[rows[-1]] - trace.arrive_ns[rows[0]]) / SECOND_NS
    own_rate = (len(rows) - 1) / span if span else None
    return Replay(trace, rows, 1.0 if rate is None or own_rate is None else rate / own_rate, traffic, seed)
