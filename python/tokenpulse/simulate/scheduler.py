"""`Scheduler`: the queue, the batch, and who of them takes part in the next step.

Three policies, which differ in what a step may mix:

| policy | a step |
|---|---|
| `chunked` | one token for each request that decodes, and with the rest of the `chunk` tokens prompts, in pieces |
| `prefill-first` | whole prompts while any can be admitted, up to `chunk` tokens; only else decodes |
| `decode-first` | decodes until the batch is empty; then at once the whole prompts of a new batch |

`chunked` is the stall-free schedule of Sarathi-Serve (Agrawal et al., 2024), today's default of vLLM; `prefill-first`
is that of Orca and of vLLM before; `decode-first` is batching by request, as FasterTransformer has it. In all of them
requests are admitted in the order of the queue, and when the KV cache is full the one that was admitted last is
preempted: its blocks are given up, and it goes back to the head of the queue to be computed again.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from tokenpulse.simulate.cache import BlockPool
from tokenpulse.simulate.request import Request

POLICIES = ("chunked", "prefill-first", "decode-first")
NO_LIMIT = 2**62


@dataclass(slots=True)
class Plan:
    """Who takes part in a step, and what became of others while it was made."""

    decodes: list[Request] = field(default_factory=list)
    """Each computes its next token, and its drafts."""
    prefills: list[tuple[Request, int]] = field(default_factory=list)
    """Each computes so many tokens of its prompt."""
    admitted: list[tuple[Request, int]] = field(default_factory=list)
    """Came from the queue into the batch; so many tokens of each were found in the cache."""
    preempted: list[Request] = field(default_factory=list)
    impossible: list[Request] = field(default_factory=list)
    """Cannot go on: the KV cache is too small for them, with nobody left to preempt."""
    may_admit: bool = True
    """Nobody is admitted where somebody was just preempted."""
    prefill_tokens: int = 0
    decode_tokens: int = 0
    """Drafts included."""
    cached_tokens: int = 0
    """Tokens whose KV cache the step reads."""


class Scheduler:
    """What `plan` may do is set by attributes, which may change at any time.

    `batch_max`: most requests in the batch. `chunk`: most tokens in a step. `prefill_quota`: most tokens of prompts in
    a step, or None. `drafts`: tokens that a decoding request computes in a step beside its next one.
    `prefill_tokens_per_second`: most tokens of prompts over time while some wait, or None; of policy `chunked`.
    `decode_parts`: only one in so many of the decoding requests takes part in a step, in turns.
    """

    def __init__(
        self,
        pool: BlockPool,
        *,
        policy: str = "chunked",
        batch_max: int = 128,
        chunk: int = 2048,
        prefill_quota: int | None = None,
        drafts: int = 0,
    ) -> None:
        if policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}; got {policy!r}")
        for name, value in (("batch_max", batch_max), ("chunk", chunk), ("prefill_quota", prefill_quota)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        if drafts < 0:
            raise ValueError(f"speculate must be 0 drafts or more, got {drafts}")
        self.pool = pool
        self.policy = policy
        self.batch_max = batch_max
        self.chunk = chunk
        self.prefill_quota = prefill_quota
        self.drafts = drafts
        self.prefill_tokens_per_second: float | None = None
        self.decode_parts = 1.0
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        """The batch, in the order of admission."""
        self.decoding: list[Request] = []
        """Those of the batch whose prompt is computed."""
        self.decoding_cached = 0
        """The tokens that these have in the KV cache."""
        self.short_of_blocks: list[Request] = []
        """Those whose blocks are full."""
        self._credit = 0.0
        self._turn = 0

    # The next step

    def plan(self, *, may_admit: bool = True) -> Plan:
        """Who takes part in the next step; whether any of the queue may."""
        plan = Plan(may_admit=may_admit)
        if self.policy == "chunked":
            self._decode(plan)
            self._prefill(plan, self._tokens_left(plan), whole=False)
        elif self.policy == "prefill-first":
            self._prefill(plan, self.chunk, whole=True)
            if not plan.prefills:
                self._decode(plan)
        else:
            self._decode(plan)
            if not plan.decodes:
                self._prefill(plan, NO_LIMIT, whole=True)
        return plan

    def _tokens_left(self, plan: Plan) -> int:
        """How many tokens of prompts the step has room for."""
        left = self.chunk - plan.decode_tokens
        if self.prefill_quota is not None:
            left = min(left, self.prefill_quota)
        if self.prefill_tokens_per_second is not None:
            left = min(left, int(self._credit))
        return left

    def _decode(self, plan: Plan) -> None:
        """Each decoding request takes part, if it has, or gets, a block for what it will compute."""
        ahead = 1 + self.drafts
        short, self.short_of_blocks = self.short_of_blocks, []
        for request in self.decoding.copy() if self.drafts else short:
            too_few = request.computed + ahead > request.blocks * self.pool.block_tokens
            if too_few and request.decoding:  # else it was preempted for one before it, or has ended
                self._make_room(plan, request, request.computed + ahead)
        plan.decodes = self._whose_turn()
        plan.decode_tokens = ahead * len(plan.decodes)
        everyone = len(plan.decodes) == len(self.decoding)
        plan.cached_tokens += self.decoding_cached if everyone else sum(one.computed for one in plan.decodes)

    def _whose_turn(self) -> list[Request]:
        """The decoding requests that take part in this step: all of them, or one part after the other."""
        everyone = self.decoding
        if self.decode_parts <= 1.0 or not everyone:
            return everyone.copy()
        some = math.ceil(len(everyone) / self.decode_parts)
        begin = self._turn % len(everyone)
        self._turn = begin + some
        return (everyone[begin:] + everyone[:begin])[:some]

    def _prefill(self, plan: Plan, budget: int, *, whole: bool) -> None:
        """Compute prompts: first those that were begun, then those of the queue, while the step has room for them."""
        if budget < 1:
            return
        for request in self._begun_prompts():
            if plan.prefill_tokens >= budget:
                return
            if request.in_batch:  # else it was preempted for one before it
                tokens = min(request.missing, budget - plan.prefill_tokens)
                if self._make_room(plan, request, request.computed + tokens):
                    self._compute(plan, request, tokens)
        while self.waiting and len(self.running) < self.batch_max and plan.prefill_tokens < budget:
            if not plan.may_admit or not self._admit(plan, budget - plan.prefill_tokens, whole=whole):
                return

    def _begun_prompts(self) -> list[Request]:
        if len(self.running) == len(self.decoding):
            return []
        return [request for request in self.running if not request.decoding]

    def _admit(self, plan: Plan, budget: int, *, whole: bool) -> bool:
        """Take the head of the queue into the batch, if there is room for what would be computed of it."""
        request = self.waiting[0]
        if self.pool.blocks_for(request.prompt_tokens + request.generated) > self.pool.capacity:
            plan.impossible.append(self.waiting.popleft())
            return True
        found = self.pool.find(request)
        missing = request.missing - found
        if whole and missing > budget and plan.prefills:
            return False
        tokens = missing if whole else min(missing, budget)
        self.pool.claim(request, found)
        if not self.pool.reserve(request, found + tokens):
            self.pool.release(request)
            return False
        self.waiting.popleft()
        request.in_batch = True
        self.running.append(request)
        plan.admitted.append((request, found))
        self._compute(plan, request, tokens)
        return True

    def _compute(self, plan: Plan, request: Request, tokens: int) -> None:
        plan.prefills.append((request, tokens))
        plan.prefill_tokens += tokens
        plan.cached_tokens += request.computed + tokens

    # Room in the KV cache

    def _make_room(self, plan: Plan, request: Request, tokens: int) -> bool:
        """Blocks for the request's first `tokens` tokens, if need be from those who were admitted after it."""
        while not self.pool.reserve(request, tokens):
            last = self.running[-1]
            if last is request and len(self.running) == 1:
                self.remove(request)
                plan.impossible.append(request)
                return False
            self._preempt(last)
            plan.preempted.append(last)
            plan.may_admit = False
            if last is request:
                return False
        return True

    def make_less(self, blocks: int) -> list[Request]:
        """Preempt until at least `blocks` blocks fewer are in use; who was preempted."""
        most = self.pool.used - blocks
        preempted = []
        while self.running and self.pool.used > most:
            preempted.append(self.running[-1])
            self._preempt(self.running[-1])
        self.pool.settle()
        return preempted

    def _preempt(self, request: Request) -> None:
        """Recomputation: what it held is given up, and it waits before all others."""
        self.remove(request)
        self.waiting.appendleft(request)

    # Who comes and goes

    def add(self, request: Request) -> None:
        """A request arrived."""
        self.waiting.append(request)

    def begin_decoding(self, request: Request) -> None:
        """Its prompt is computed."""
        request.decoding = True
        self.decoding.append(request)
        if not request.computed % self.pool.block_tokens:
            self.short_of_blocks.append(request)
        self.decoding_cached += request.computed

    def remove(self, request: Request) -> None:
        """Take a request out of the batch, or of the queue."""
        if not request.in_batch:
            self.waiting.remove(request)
            return
        self.running.remove(request)
        if request.decoding:
            request.decoding = False
            self.decoding.remove(request)
            self.decoding_cached -= request.computed
        self.pool.release(request)
        request.in_batch = False

    def earn(self, plan: Plan, seconds: float) -> None:
        """A step took so long: prompts that wait earn what may be computed of them in the next one."""
        if self.prefill_tokens_per_second is None:
            return
        backlog = bool(self.waiting) or len(self.running) > len(self.decoding)
        earned = self._credit - plan.prefill_tokens + self.prefill_tokens_per_second * seconds
        self._credit = min(max(0.0, earned), float(self.chunk)) if backlog else 0.0
