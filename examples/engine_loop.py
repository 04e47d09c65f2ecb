"""An LLM engine in miniature with a meter in its loop: `python examples/engine_loop.py --seconds 10`.

Clients arrive at random and wait in a queue. The engine takes them into its batch while the batch and the KV cache
have room, computes a step at a time, and puts each token into its client's stream. When the cache is full, the
youngest request loses its place. What an engine must tell a meter is in the methods of `Engine` that call it.

Once a second the meter is read and printed as Prometheus would scrape it; at the end, what it all came to.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import random
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tokenpulse import Meter, Snapshot

BATCH_MAX = 16
QUEUE_MAX = 64
KV_BLOCKS = 320
BLOCK_TOKENS = 16
MAX_TOKENS = 64
TENANTS = ("search", "chat")


@dataclass(eq=False)
class Request:
    handle: int
    cls: int
    prompt: int
    wanted: int
    """Tokens until the model stops by itself."""
    emitted: int = 0
    started: bool = False
    left: bool = False
    """Whether the client has hung up."""
    stream: asyncio.Queue[int | None] = field(default_factory=asyncio.Queue)

    @property
    def blocks(self) -> int:
        """Blocks of the KV cache that the request needs for its next step."""
        return -(-(self.prompt + self.emitted + 1) // BLOCK_TOKENS)


class Engine:
    """Continuous batching. Each method that tells the meter something is given the time; `run` reads it once a step."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        # Classes are asked for once and not at every arrival.
        self.classes = {tenant: meter.classify(tenant=tenant) for tenant in TENANTS}
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.work = asyncio.Event()
        self.chance = random.Random(11)

    def submit(self, t: int, tenant: str, prompt: int, wanted: int) -> Request | None:
        """A request reached the server; None where it is turned away."""
        request = Request(self.meter.arrive(t, prompt, cls=self.classes[tenant]), self.classes[tenant], prompt, wanted)
        if len(self.waiting) >= QUEUE_MAX:
            self.meter.end(t, request.handle, "reject")
            return None
        self.waiting.append(request)
        self.work.set()
        return request

    def schedule(self, t: int) -> int:
        """Fill the batch for the next step; returns how many prompt tokens that step must compute."""
        self.finish(t, [request for request in self.waiting if request.left], "abort")
        self.waiting = deque(request for request in self.waiting if not request.left)
        first: list[int] = []
        back: list[int] = []
        computed = 0
        while self.waiting and len(self.running) < BATCH_MAX:
            request = self.waiting[0]
            if self.kv_used + request.blocks > KV_BLOCKS:
                break
            self.running.append(self.waiting.popleft())
            computed += request.prompt + request.emitted
            (back if request.started else first).append(request.handle)
            if not request.started and self.chance.random() < 0.3:
                # How much of a prompt is cached is known now, and not when it arrived.
                self.meter.count(t, "cached_tokens", request.prompt // 2, request.cls)
                computed -= request.prompt // 2
            request.started = True
        # No requests are no event. A request that comes back is told as resumed, not as scheduled again.
        self.meter.schedule(t, first)
        self.meter.prefill(t, first)
        self.meter.resume(t, back)
        self.meter.gauge(
            t,
            running=len(self.running),
            waiting=len(self.waiting),
            kv_used=self.kv_used,
            kv_total=KV_BLOCKS,
            batch_max=BATCH_MAX,
        )
        return computed

    def emit(self, t: int, busy_ns: int, computed: int) -> None:
        """The step is done: one token for each request of the batch; some end, some must make room."""
        self.meter.step(t, [request.handle for request in self.running])
        self.meter.add(t, gpu_active_ns=busy_ns, prefill_tokens=computed, decode_tokens=len(self.running))
        ended: dict[str, list[Request]] = {"stop": [], "length": [], "abort": []}
        for request in self.running:
            request.emitted += 1
            request.stream.put_nowait(request.emitted)
            if request.left:
                ended["abort"].append(request)
            elif request.emitted == request.wanted:
                ended["stop"].append(request)
            elif request.emitted == MAX_TOKENS:
                ended["length"].append(request)
        for status, requests in ended.items():
            self.finish(t, requests, status)
            self.running = [request for request in self.running if request not in requests]
        preempted = []
        while self.kv_used > KV_BLOCKS:
            preempted.append(self.running.pop())
            self.waiting.appendleft(preempted[-1])
        self.meter.preempt(t, [request.handle for request in preempted])

    def finish(self, t: int, requests: list[Request], status: str) -> None:
        self.meter.end(t, [request.handle for request in requests], status)
        for request in requests:
            request.stream.put_nowait(None)

    @property
    def kv_used(self) -> int:
        return sum(request.blocks for request in self.running)

    async def run(self) -> None:
        t = time.monotonic_ns()
        self.meter.ready(t)
        while True:
            if not self.running and not self.waiting:
                self.work.clear()
                await self.work.wait()
                t = time.monotonic_ns()
            computed = self.schedule(t)
            begun = t
            await asyncio.sleep(0.006 + 0.0002 * len(self.running) + 0.00001 * computed)  # the GPU is at work
            t = time.monotonic_ns()  # the one clock read of a step: its end is the next one's beginning
            self.emit(t, t - begun, computed)


async def client(engine: Engine, chance: random.Random) -> None:
    """One client: asks, reads its stream, and now and then hangs up."""
    prompt = min(4000, int(chance.lognormvariate(5.6, 0.7)))
    tenant, wanted = chance.choice(TENANTS), 1 + int(chance.expovariate(1 / 30))
    patience = wanted // 2 if chance.random() < 0.03 else MAX_TOKENS
    request = engine.submit(time.monotonic_ns(), tenant, prompt, wanted)
    if request is None:
        return
    while (token := await request.stream.get()) is not None:
        if token > patience:
            request.left = True


async def clients(engine: Engine, rate: float, tasks: asyncio.TaskGroup) -> None:
    """Clients come independently of each other, so many a second: the gaps between them are exponential."""
    chance = random.Random(7)
    while True:
        await asyncio.sleep(chance.expovariate(rate))
        tasks.create_task(client(engine, random.Random(chance.random())))


def exposition(snapshot: Snapshot) -> Iterator[str]:
    """A snapshot as lines of Prometheus' text format."""
    total, minute, streams = snapshot.total, snapshot.window("1m"), snapshot.open["streams"]
    queue = minute.gauges["waiting"]
    # Counters come from the total and so never shrink; what is to be looked at comes from a window.
    yield from family("requests_total", "counter", {"": total.counts["attempted"]})
    yield from family("requests_in_flight", "gauge", {"": total.counts["in_flight"]})
    yield from family("requests_ended_total", "counter", labelled("status", total.by_status))
    tokens = {one.key["tenant"]: one.counts["output_tokens"] for one in total.classes if one.key}
    yield from family("output_tokens_total", "counter", labelled("tenant", tokens))
    yield from family("preemptions_total", "counter", {"": total.counts["preemptions"]})
    yield from family("events_rejected_total", "counter", labelled("reason", snapshot.rejected))
    for metric in ("ttft", "itl", "tpot"):
        quantiles = {str(q): minute.latency[metric].quantile(q) for q in (0.5, 0.99)}
        yield from family(f"{metric}_seconds", "gauge", labelled("quantile", quantiles))
    goodput = {one["name"]: one["requests_per_second"] for one in minute.goodput}
    yield from family("goodput_requests_per_second", "gauge", labelled("slo", goodput))
    yield from family("queue_depth", "gauge", {"": None if queue is None else queue.last})
    yield from family("kv_utilization", "gauge", {"": minute.kv_utilization})
    yield from family("open_gap_oldest_seconds", "gauge", {"": streams["oldest"]})
    yield from family("open_gaps", "gauge", labelled("over", streams["over"]))


def family(name: str, kind: str, samples: Mapping[str, float | None]) -> Iterator[str]:
    """One metric. What is absent, or a quantile of no values, is left out: it is not 0."""
    yield f"# TYPE llm_{name} {kind}"
    for labels, value in samples.items():
        if value is not None and not math.isnan(value):
            yield f"llm_{name}{labels} {value}"


def labelled(label: str, values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {f'{{{label}="{value}"}}': sample for value, sample in values.items()}


def summary(snapshot: Snapshot) -> Iterator[str]:
    counts, longest = snapshot.total.counts, snapshot.total.latency["itl"].max
    parts = ("succeeded", "failed", "aborted", "rejected", "lost", "in_flight")
    yield f"attempted {counts['attempted']} = " + " + ".join(f"{part} {counts[part]}" for part in parts)
    for one in snapshot.total.goodput:
        yield f"good for {one['name']}: {one['good']} of {one['judged']} judged; missed: {one['missed']}"
    yield f"{counts['output_tokens']} tokens; the longest gap {longest * 1e3:.1f} ms; refused: {snapshot.rejected}"


async def scrape(meter: Meter) -> None:
    while True:
        await asyncio.sleep(1)
        # In a thread: reading takes a millisecond or so that the engine's thread need not spend. With a time: what
        # hangs shows at the moment of reading, not at that of the last event.
        snapshot = await asyncio.to_thread(meter.snapshot, time.monotonic_ns())
        print("\n".join(exposition(snapshot)), end="\n\n", flush=True)


async def serve(meter: Meter, seconds: float, rate: float) -> None:
    engine = Engine(meter)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
            tasks.create_task(engine.run())
            tasks.create_task(clients(engine, rate, tasks))
            tasks.create_task(scrape(meter))


def main() -> None:
    parser = argparse.ArgumentParser(description="An LLM engine in miniature with a meter in its loop.")
    parser.add_argument("--seconds", type=float, default=10, help="how long to serve (default 10)")
    parser.add_argument("--rate", type=float, default=40, help="clients a second (default 40)")
    parser.add_argument("--path", help="a file to keep the meter in, for Meter.open in another process")
    options = parser.parse_args()
    meter = Meter("chat:ttft=100ms,tpot=12ms", path=options.path)
    asyncio.run(serve(meter, options.seconds, options.rate))
    last = meter.snapshot(time.monotonic_ns())
    print("\n".join([*exposition(last), "", *summary(last)]))


if __name__ == "__main__":
    main()
