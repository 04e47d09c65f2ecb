"""`Request`: one request's way through the engine, and what of it is still to be computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

HASH_BITS = 63
"""Of hashes that are drawn: so that a block's number can be added, and the sum fits 64 bits."""


class Stage(Enum):
    """Where a request is."""

    WAITING = "waiting"
    """In the queue; nothing of it was ever computed."""
    PREFILL = "prefill"
    """In the batch; its prompt is being computed (after a preemption, also what it had generated)."""
    DECODE = "decode"
    """In the batch; each step gives its next token."""
    PREEMPTED = "preempted"
    """Back in the queue; its KV cache was given to others."""
    ENDED = "ended"


class Prompt(Protocol):
    """What a prompt consists of, as blocks of the KV cache see it."""

    def block_hashes(self, first: int, end: int, block_tokens: int) -> list[int]:
        """The hashes of blocks `first` to `end`, `end` left out; blocks of the answer follow those of the prompt."""


@dataclass(slots=True, eq=False)
class Request:
    """One request. Its KV cache holds its first `computed` tokens; `prompt_tokens + generated` are known."""

    number: int
    arrive_ns: int
    prompt_tokens: int
    output_tokens: int
    """How many it will generate."""
    content: Prompt
    labels: dict[str, str] = field(default_factory=dict)

    in_batch: bool = False
    decoding: bool = False
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    """Blocks of the KV cache that it holds."""
    hashes: list[int] = field(default_factory=list)
    """Those of them that are full, from the first on: others may share them."""
    schedule_ns: int | None = None
    first_ns: int | None = None
    leaves: str | None = None
    """The status with which it will end at the end of this step: nobody waits for it any more."""
    status: str | None = None
    """How it ended."""
    handle: int = -1
    """What a meter calls it."""

    @property
    def missing(self) -> int:
        """How many tokens must be computed before it has its next token: one while it decodes."""
        return self.prompt_tokens + self.generated - self.computed

    def stage(self) -> Stage:
        """Where it is."""
        if self.status is not None:
            return Stage.ENDED
        if not self.in_batch:
            return Stage.WAITING if self.schedule_ns is None else Stage.PREEMPTED
        return Stage.DECODE if self.decoding else Stage.PREFILL
