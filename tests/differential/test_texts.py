"""However a log is read, by whatever number of threads and in whatever pieces, it comes to what the reference says."""

from __future__ import annotations

import os
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from agreement import differences, outcome
from texts import log_of, packed

from tokenpulse import _core, reference
from tokenpulse.model import TTL_NS

LOGS = int(os.environ.get("TOKENPULSE_LOGS", "400"))
"""How many logs are made; each from its own number, so that a failure can be repeated."""


@dataclass
class Reading:
    """What is asked of a log, and the ways in which the core reads it: alone or on several threads, by the shape of the
    lines or not, in small pieces or not."""

    by: list[str]
    timeline_ns: int | None
    ways: list[dict[str, Any]]

    @classmethod
    def of(cls, rng: Random) -> Reading:
        by, timeline_ns = rng.choice(([], ["tenant"], ["output_length", "tier"])), rng.choice((None, None, 10**6))
        pieces = rng.choice((1, 2, 3, 7, 16, 31, 64, 100, 300, 1000))
        ways = [
            {"threads": 1},
            {"threads": rng.choice((2, 3))},
            {"threads": 1, "plain": True},
            {"threads": rng.choice((1, 2, 3)), "chunk": pieces},
        ]
        return cls(by, timeline_ns, ways)

    def differences(self, *texts: bytes) -> list[str]:
        named = [(f"input {i}", text) for i, text in enumerate(texts)]
        asked = named, [], "token", self.by, self.timeline_ns, TTL_NS
        wanted = outcome(reference.reduce_lines, *asked)
        found = [(way, differences(outcome(_core.reduce_bytes, *asked, **way), wanted)) for way in self.ways]
        return [f"{way}: {line:.300}" for way, lines in found for line in lines]

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
        reading = Reading.of(rng)
        if found := reading.differences(*texts):
            least = [reading.least(text) for text in texts if reading.differences(text)]
            pytest.fail(f"log {seed}, {least or texts}: " + "\n".join(found[:20]))
