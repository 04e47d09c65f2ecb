"""Where an engine's events go: into a file as lines, into a meter, or nowhere.

A `Sink` is told the same as a `Meter`, of requests in place of handles. The events of the KV cache are a stream of kind
`copies`: a block is stored once and evicted once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol

from tokenpulse.engine import CoreMeter
from tokenpulse.simulate.request import Request

FLUSH_LINES = 1000


class Levels(NamedTuple):
    """What the gauges show."""

    running: int
    waiting: int
    kv_used: int
    kv_total: int
    batch_max: int


class Sink(Protocol):
    """Is told what happens, in order of time; `t` is in nanoseconds."""

    def ready(self, t: int, about: Mapping[str, Any]) -> None: ...
    def arrive(self, t: int, request: Request, cached_tokens: int) -> None: ...
    def schedule(self, t: int, requests: Sequence[Request]) -> None: ...
    def prefill(self, t: int, requests: Sequence[Request]) -> None: ...
    def tokens(self, t: int, requests: Sequence[Request], counts: Sequence[int] | None) -> None: ...
    def preempt(self, t: int, requests: Sequence[Request]) -> None: ...
    def resume(self, t: int, requests: Sequence[Request]) -> None: ...
    def end(self, t: int, requests: Sequence[Request], status: str) -> None: ...
    def gauge(self, t: int, levels: Levels) -> None: ...
    def add(self, t: int, amounts: Mapping[str, int]) -> None: ...
    def count(self, t: int, name: str, n: int) -> None: ...
    def kv_store(self, t: int, hashes: Sequence[int]) -> None: ...
    def kv_evict(self, t: int, hashes: Sequence[int]) -> None: ...
    def kv_lookup(self, t: int, queried: int, hit: int, preempted: bool) -> None: ...


class ToMeter:
    """Drives a meter, and the tracker of KV blocks that it may have; classes are those of prompt lengths and labels."""

    def __init__(self, meter: CoreMeter) -> None:
        self._meter = meter
        self._kv = meter.kv

    def ready(self, t: int, about: Mapping[str, Any]) -> None:  # noqa: ARG002
        self._meter.ready(t)

    def arrive(self, t: int, request: Request, cached_tokens: int) -> None:
        kind = self._meter.classify(request.prompt_tokens, **request.labels)
        request.handle = self._meter.arrive(t, request.prompt_tokens, cached_tokens, kind)

    def schedule(self, t: int, requests: Sequence[Request]) -> None:
        self._meter.schedule(t, [request.handle for request in requests])

    def prefill(self, t: int, requests: Sequence[Request]) -> None:
        self._meter.prefill(t, [request.handle for request in requests])

    def tokens(self, t: int, requests: Sequence[Request], counts: Sequence[int] | None) -> None:
        self._meter.step(t, [request.handle for request in requests], counts)

    def preempt(self, t: int, requests: Sequence[Request]) -> None:
        self._meter.preempt(t, [request.handle for request in requests])

    def resume(self, t: int, requests: Sequence[Request]) -> None:
        self._meter.resume(t, [request.handle for request in requests])

    def end(self, t: int, requests: Sequence[Request], status: str) -> None:
        self._meter.end(t, [request.handle for request in requests], status)

    def gauge(self, t: int, levels: Levels) -> None:
        running, waiting, used, total, batch_max = levels
        self._meter.gauge(t, running=running, waiting=waiting, kv_used=used, kv_total=total, batch_max=batch_max)

    def add(self, t: int, amounts: Mapping[str, int]) -> None:
        self._meter.add(t, **amounts)

    def count(self, t: int, name: str, n: int) -> None:
        self._meter.count(t, name, n)

    def kv_store(self, t: int, hashes: Sequence[int]) -> None:
        if self._kv is not None:
            self._kv.store(t, hashes)

    def kv_evict(self, t: int, hashes: Sequence[int]) -> None:
        if self._kv is not None:
            self._kv.evict(t, hashes)

    def kv_lookup(self, t: int, queried: int, hit: int, preempted: bool) -> None:
        if self._kv is not None:
            self._kv.lookup(t, queried, hit, preempted)


class Lines:
    """Writes event lines, as docs/formats.md describes them. `close` writes what is still held back."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._held: list[str] = []

    def close(self) -> None:
        """Write all lines; the stream stays open."""
        self._stream.write("".join(self._held).encode())
        self._held.clear()
        self._stream.flush()

    def ready(self, t: int, about: Mapping[str, Any]) -> None:
        self._line(json.dumps({"t_ns": t, "ev": "ready", **about}, separators=(",", ":")) + "\n")

    def arrive(self, t: int, request: Request, cached_tokens: int) -> None:
        labels = f',"labels":{json.dumps(request.labels, separators=(",", ":"))}' if request.labels else ""
        self._line(
            f'{{"t_ns":{t},"id":{request.number},"ev":"arrive","prompt_tokens":{request.prompt_tokens}'
            f',"cached_tokens":{cached_tokens}{labels}}}\n'
        )

    def schedule(self, t: int, requests: Sequence[Request]) -> None:
        self._each(t, requests, '"ev":"schedule"')

    def prefill(self, t: int, requests: Sequence[Request]) -> None:
        self._each(t, requests, '"ev":"prefill"')

    def tokens(self, t: int, requests: Sequence[Request], counts: Sequence[int] | None) -> None:
        if counts is None:
            self._each(t, requests, '"ev":"tokens"')
            return
        for request, k in zip(requests, counts, strict=True):
            self._each(t, (request,), '"ev":"tokens"' if k == 1 else f'"ev":"tokens","k":{k}')

    def preempt(self, t: int, requests: Sequence[Request]) -> None:
        self._each(t, requests, '"ev":"preempt"')

    def resume(self, t: int, requests: Sequence[Request]) -> None:
        self._each(t, requests, '"ev":"resume"')

    def end(self, t: int, requests: Sequence[Request], status: str) -> None:
        self._each(t, requests, f'"ev":"end","status":"{status}"')

    def gauge(self, t: int, levels: Levels) -> None:
        running, waiting, used, total, batch_max = levels
        self._line(
            f'{{"t_ns":{t},"ev":"gauge","running":{running},"waiting":{waiting},"kv_used":{used}'
            f',"kv_total":{total},"batch_max":{batch_max}}}\n'
        )

    def add(self, t: int, amounts: Mapping[str, int]) -> None:
        fields = ",".join(f'"{name}":{n}' for name, n in amounts.items())
        self._line(f'{{"t_ns":{t},"ev":"add",{fields}}}\n')

    def count(self, t: int, name: str, n: int) -> None:
        self._line(f'{{"t_ns":{t},"ev":"count","name":"{name}","n":{n}}}\n')

    def kv_store(self, t: int, hashes: Sequence[int]) -> None:
        self._line(f'{{"t_ns":{t},"ev":"kv_store","hashes":[{",".join(map(str, hashes))}]}}\n')

    def kv_evict(self, t: int, hashes: Sequence[int]) -> None:
        self._line(f'{{"t_ns":{t},"ev":"kv_evict","hashes":[{",".join(map(str, hashes))}]}}\n')

    def kv_lookup(self, t: int, queried: int, hit: int, preempted: bool) -> None:
        again = ',"preempted":true' if preempted else ""
        self._line(f'{{"t_ns":{t},"ev":"kv_lookup","queried":{queried},"hit":{hit}{again}}}\n')

    def _each(self, t: int, requests: Sequence[Request], event: str) -> None:
        self._held += [f'{{"t_ns":{t},"id":{request.number},{event}}}\n' for request in requests]
        self._line("")

    def _line(self, line: str) -> None:
        self._held.append(line)
        if len(self._held) >= FLUSH_LINES:
            self._stream.write("".join(self._held).encode())
            self._held.clear()


class Several:
    """Tells each of several sinks, or none."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks

    def __getattr__(self, event: str) -> Any:
        calls = [getattr(sink, event) for sink in self._sinks]

        def tell(*arguments: Any) -> None:
            for call in calls:
                call(*arguments)

        setattr(self, event, tell)
        return tell
