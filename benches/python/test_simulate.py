"""The simulator: how many output tokens it simulates in a second on one core while it drives a meter.

Bar: a million tokens a second from a batch of 64 on, KV cache with shared prefixes and its tracker included. Readings
are of the processor's time of this process; `tokens_per_second` stands beside each of them.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from conftest import SMOKE
from tokenpulse import KVTracker, Meter
from tokenpulse.simulate import run

DURATION = "1s" if SMOKE else "60s"

CASES: dict[str, dict[str, Any]] = {
    "batch of 64": {"arrivals": "closed", "in_flight": 64},
    "batch of 128": {"arrivals": "closed", "in_flight": 128},
    "batch of 256": {"arrivals": "closed", "in_flight": 256, "batch_max": 256},
    "batch of 128, answers of 1,000": {"arrivals": "closed", "in_flight": 128, "output": 1000},
    "batch of 128, no prefix cache": {"arrivals": "closed", "in_flight": 128, "prefix_cache": False},
    "batch of 128, 3 drafts": {"arrivals": "closed", "in_flight": 128, "speculate": 3},
    "10 requests/s": {"rate": 10.0},
    "40 requests/s": {"rate": 40.0},
}


@pytest.mark.parametrize("case", CASES)
def test_simulated_tokens(benchmark: Any, case: str) -> None:
    settings = CASES[case]

    def simulate() -> tuple[int, int, float]:
        meter = Meter(windows=(), burn=False, kv=KVTracker())
        begun = time.process_time()
        result = run(seed=1, duration=DURATION, meter=meter, **settings)
        took = time.process_time() - begun
        assert meter.snapshot().total.counts["output_tokens"] == result.output_tokens > 0
        return result.output_tokens, result.steps, took

    tokens, steps, took = benchmark.pedantic(simulate, rounds=1 if SMOKE else 3, warmup_rounds=0)
    benchmark.extra_info["tokens_per_second"] = round(tokens / took)
    benchmark.extra_info["us_per_step"] = round(1e6 * took / steps, 1)
    benchmark.extra_info["tokens_per_step"] = round(tokens / steps, 1)
