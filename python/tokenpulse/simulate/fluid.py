"""What a machine can do on average, without a simulation: a fluid in place of requests.

Requests flow at a steady rate, all of them average ones; queues, bursts and rounding are left out. Good for choosing
settings, and within some 10 % of what a simulation shows while the machine keeps up.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenpulse.simulate.hardware import Machine
from tokenpulse.simulate.workload import Traffic, Workload

ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Demand:
    """What an average request asks of the machine, in tokens."""

    prompt_tokens: float
    """Of its prompt, those that are computed: the others are in the prefix cache."""
    output_tokens: float
    cached_tokens: float
    """In the KV cache, on average over the time in which it decodes."""

    @classmethod
    def of(cls, traffic: Traffic | Workload, block_tokens: int = 16) -> Demand:
        """That of a source's requests, while the prefix cache has all that they share."""
        prefixes = traffic.prefixes
        found = prefixes.share * (min(prefixes.tokens, traffic.prompt.mean) // block_tokens * block_tokens)
        output = traffic.output.mean
        return cls(max(1.0, traffic.prompt.mean - found), output, traffic.prompt.mean + output / 2)


def mean_step_seconds(machine: Machine, demand: Demand, batch: float, prefill_tokens_per_second: float = 0.0) -> float:
    """How long a step takes in which `batch` requests decode while prompts are computed at such a rate.

    It holds rate times its own length in tokens of prompts. Infinite where no step can be long enough for that.
    """
    low, high = 0.0, 1000.0
    if _step(machine, demand, batch, prefill_tokens_per_second, high) > high:
        return float("inf")
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        if _step(machine, demand, batch, prefill_tokens_per_second, middle) > middle:
            low = middle
        else:
            high = middle
    return high


def _step(machine: Machine, demand: Demand, batch: float, rate: float, seconds: float) -> float:
    """What a step takes that holds the prompts' tokens of so many seconds."""
    return machine.step(batch + rate * seconds, batch * demand.cached_tokens).seconds


def capacity(machine: Machine, demand: Demand, batch_max: int) -> float:
    """The most requests/s that can be served for ever, with `batch_max` of them decoding all the time.

    >>> from tokenpulse.simulate.hardware import known_machine
    >>> machine = known_machine("llama-3.1-70b-fp8", "h100-sxm", 8)
    >>> round(capacity(machine, Demand(prompt_tokens=420, output_tokens=150, cached_tokens=625), 128))
    68
    """
    per_step = batch_max / demand.output_tokens
    tokens = batch_max + per_step * demand.prompt_tokens
    return per_step / machine.step(tokens, batch_max * demand.cached_tokens).seconds


def mean_batch(machine: Machine, demand: Demand, rate: float) -> float:
    """How many requests decode at a time when `rate` requests/s arrive; infinite where that is beyond any batch."""
    low, high = 0.0, 1e5
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        if (
            rate * demand.output_tokens * mean_step_seconds(machine, demand, middle, rate * demand.prompt_tokens)
            > middle
        ):
            low = middle
        else:
            high = middle
    return high if high < 0.99e5 else float("inf")


def gpu_utilization(machine: Machine, demand: Demand, rate: float) -> float:
    """The share of time in which the GPUs compute when `rate` requests/s arrive, at most 1."""
    tokens = rate * (demand.prompt_tokens + demand.output_tokens)
    return min(1.0, machine.step(tokens, 0).compute)
