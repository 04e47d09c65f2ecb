"""However a log is read, by whatever number of threads and in whatever pieces, it comes to what the reference says."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from agreement import differences, outcome
from batches import as_lists
from texts import log_of, packed

from tokenpulse import _core, engine, reference
from tokenpulse.model import SLO, TTL_NS

LOGS = int(os.environ.get("TOKENPULSE_LOGS", "400"))
"""How many logs are made; each from its own number, so that a failure can be repeated."""


LIMITS = (
    SLO("tight", ttft=1e-7, tpot=1e-8, itl=5e-6, where={"tenant": "x"}),
    SLO("wide", ttft=1.0, tpot=0.02, e2e=2.0, itl=0.01),
)


@dataclass
class Reading:
    """What is asked of logs, and the ways in which the core reads them.

    Alone or on several threads, by the shape of the lines or not, in small pieces or not.
    """

    asked: dict[str, Any]
    ways: list[dict[str, Any]]

    @classmethod
    def of(cls, rng: Random, texts: list[bytes]) -> Reading:
        times = sorted({0, *(int(digits) for text in texts for digits in re.findall(rb"\b\d{1,18}\b", text))})
        start, end = sorted((rng.choice(times), rng.choice(times)))
        cut = rng.choice(({}, {}, {"from_ns": start}, {"to_ns": end}, {"from_ns": start, "to_ns": end + 1}))
        asked = {
            "slos": rng.choice(((), LIMITS)),
            "itl_rule": rng.choice(("token", "token", "chunk", "stamp")),
            "by": rng.choice(([], ["tenant"], ["output_length", "tier"])),
            "timeline_ns": rng.choice((None, None, 10**6)),
            "ttl_ns": rng.choice((TTL_NS, TTL_NS, 10**6)),
            "timeline_bins": rng.choice((2, 10_000)),
        }
        pieces = rng.choice((1, 2, 3, 7, 16, 31, 64, 100, 300, 1000))
        ways: list[dict[str, Any]] = [
            {"threads": 1},
            {"threads": rng.choice((2, 3))},
            {"threads": 1, "plain": True},
            {"threads": rng.choice((1, 2, 3)), "chunk": pieces},
        ]
        return cls(asked | cut, ways)

    def differences(self, *texts: bytes) -> list[str]:
        named = [(f"input {i}", text) for i, text in enumerate(texts)]
        wanted = outcome(reference.reduce_lines, named, **self.asked)
        found = [(way, differences(outcome(self.core, named, way), wanted)) for way in self.ways]
        return [f"{way}: {line:.300}" for way, lines in found for line in lines]

    def core(self, named: list[tuple[str, bytes]], way: dict[str, Any]) -> Any:
        limits = [(s.name, s.ttft_ns, s.tpot_ns, s.e2e_ns, s.itl_ns, dict(s.where)) for s in self.asked["slos"]]
        return _core.reduce_bytes(named, **self.asked | {"slos": limits} | way)

    def least(self, text: bytes) -> bytes:
        """The lines of a text that differs without which it would not, so that a failure can be read."""
        lines = text.split(b"\n")
        size = len(lines)
        while size := size // 2:
            at = 0
            while at < len(lines):
                fewer = lines[:at] + lines[at + size :]
                if self.differences(b"\n".join(fewer)):
                    lines = fewer
                else:
                    at += size
        return b"\n".join(lines)


@pytest.mark.parametrize("first", range(0, LOGS, 50))
def test_any_text(first: int) -> None:
    for seed in range(first, min(first + 50, LOGS)):
        rng = Random(seed)
        texts = [log_of(rng) for _ in range(rng.choice((1, 1, 2)))]
        if rng.random() < 0.1:
            texts = [packed(rng, text) for text in texts]
        reading = Reading.of(rng, texts)
        if found := reading.differences(*texts):
            least = [reading.least(text) for text in texts if reading.differences(text)]
            pytest.fail(f"log {seed}, {reading.asked}, {least or texts}: " + "\n".join(found[:20]))


@pytest.mark.parametrize("first", range(0, LOGS, 200))
def test_the_rows_of_any_text(first: int) -> None:
    for seed in range(first, min(first + 50, LOGS)):
        rng = Random(seed)
        named = [("input", log_of(rng))]
        ttl_ns = rng.choice((TTL_NS, 10**6))
        wanted = outcome(lambda: as_lists(reference.rows_of(named, ttl_ns)))  # noqa: B023
        for threads in (1, 3):
            found = outcome(lambda: as_lists(engine.read_rows_bytes(named, ttl_ns, threads=threads)))  # noqa: B023
            assert differences(found, wanted) == [], f"log {seed}"


@pytest.mark.parametrize("first", range(0, LOGS, 200))
def test_any_text_in_a_file(first: int, tmp_path: Path) -> None:
    """A part of it, of whatever length, may have been read before."""
    path = tmp_path / "log"
    for seed in range(first, min(first + 50, LOGS)):
        rng = Random(seed)
        text = log_of(rng)
        wanted = outcome(reference.reduce_lines, [(str(path), text)])
        at = rng.randint(0, min(len(text), 2000))
        for head, rest in ((b"", text), (text[:at], text[at:])):
            path.write_bytes(rest)
            heads = {str(path): head} if head else None
            found = outcome(engine.reduce_paths, [str(path)], threads=rng.choice((1, 2, 3)), heads=heads)
            assert differences(found, wanted) == [], f"log {seed}, {len(head)} bytes read before"
