"""Where the simulator reduces to a queue that has a theory: its mean queue beside M/D/1 and M/M/1, by load.

    python benches/judging/simulated_queues.py [--requests 200000] [--seeds 8]

One request at a time, each done in one step whose length is in proportion to its prompt, no cache. Lengths that are all
the same make M/D/1, exponential ones M/M/1. The theory is that of Pollaczek and Khinchine, once at the load that was
asked for and once at the one measured (arrivals per second times the mean service time).
"""

from __future__ import annotations

import argparse

from tokenpulse.simulate import GPU, Machine, Model, Result, run

MEAN_TOKENS = 1000


def machine() -> Machine:
    """Steps take as long as their tokens, and no longer: memory and links have no limit."""
    model = Model("linear", parameters=8e9, layers=1, hidden=1, kv_heads=1, head_dim=1)
    gpu = GPU("linear", bf16_flops=1e15, memory_bytes=80e9, bandwidth=1e30, link_bandwidth=1e30)
    return Machine(model, gpu, overhead_seconds=0.0)


def simulate(kind: str, load: float, requests: int, seed: int) -> Result:
    """A queue with one server."""
    rate = load / machine().step(MEAN_TOKENS, 0).seconds
    return run(
        seed=seed,
        duration=requests / rate,
        rate=rate,
        machine=machine(),
        policy="prefill-first",
        batch_max=1,
        prompt=f"{kind}:{MEAN_TOKENS}",
        output="fixed:1",
        prefix_cache=False,
    )


def waiting(load: float, cv: float) -> float:
    """Requests that wait, on average."""
    return load**2 * (1 + cv**2) / (2 * (1 - load))


def main() -> None:
    """Print a row for each queue and load: means of the seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--seeds", type=int, default=8)
    asked = parser.parse_args()
    print("| queue | load | mean queue | theory | difference | at the measured load |")
    print("|---|---|---|---|---|---|")
    for name, kind, cv in (("M/D/1", "fixed", 0.0), ("M/M/1", "exponential", 1.0)):
        for load in (0.3, 0.5, 0.7, 0.8):
            results = [simulate(kind, load, asked.requests, seed) for seed in range(asked.seeds)]
            queue = sum(one.mean_waiting for one in results) / len(results)
            at_measured = sum(
                waiting(one.arrived / one.seconds * (one.mean_service_time or 0), one.service_cv or 0)
                for one in results
            ) / len(results)
            theory = waiting(load, cv)
            print(
                f"| {name} | {load} | {queue:.4f} | {theory:.4f} | {queue / theory - 1:+.1%} |"
                f" {queue / at_measured - 1:+.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
