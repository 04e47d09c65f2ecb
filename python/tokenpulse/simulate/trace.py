"""Arrivals and lengths from a recorded trace: Azure's, BurstGPT's, or Mooncake's with its shared prefixes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from tokenpulse import readers
from tokenpulse.records import Workload as Trace
from tokenpulse.simulate.clock import SECOND_NS
from tokenpulse.simulate.request import Request

if TYPE_CHECKING:
    from tokenpulse.simulate.simulation import Simulation

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
    """Requests as a trace has them, `speed` times as fast, each once."""

    def __init__(self, trace: Trace, seed: int, speed: float, labels: dict[str, str]) -> None:
        known = (trace.prompt_tokens >= 1) & (trace.output_tokens >= 1)
        order = np.flatnonzero(known)
        order = order[np.argsort(trace.arrive_ns[order], kind="stable")]
        self._trace = trace
        self._rows = order.tolist()
        since = trace.arrive_ns[order] - (trace.arrive_ns[order[0]] if len(order) else 0)
        self._due_ns = [round(ns / speed) for ns in since.tolist()]
        self._next = 0
        self._content = Random(f"{seed}/trace/content")
        self._labels = labels

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
        own = self._content.getrandbits(63)
        hashes, tokens = self._trace.block_hashes, self._trace.block_tokens
        traced = [] if hashes is None else hashes.values[hashes.offsets[row] : hashes.offsets[row + 1]].tolist()
        return Request(number, t_ns, prompt, output, TracedText(traced, tokens or 1, prompt, own), self._labels)


def replay_of(path: str, seed: int, rate: float | None, labels: dict[str, str]) -> Replay:
    """A trace's requests, at their own times, or so that `rate` of them arrive a second on average.

    Raises OSError for a file that cannot be read, FormatError for one of an unknown format, ValueError for one that is
    no trace or has no request whose lengths are known.
    """
    traces = [run for run in readers.read(path) if isinstance(run, Trace)]
    if not traces:
        raise ValueError(f"{path}: is no trace of requests; arrivals must be poisson, bursty, closed or a trace's path")
    trace = traces[0]
    known = trace.arrive_ns[(trace.prompt_tokens >= 1) & (trace.output_tokens >= 1)]
    if not len(known):
        raise ValueError(f"{path}: no request whose prompt and answer have a length")
    span = float(np.ptp(known)) / SECOND_NS
    return Replay(trace, seed, 1.0 if rate is None or not span else rate * span / len(known), labels)
