"""Lines of a vLLM stat logger: one `record()` call a line, with the scheduler's and the iteration's statistics.

vLLM gives an iteration's times to first token and between tokens as two lists without request ids; only a request that
finished has a row of its own. So the lists are kept as observations that belong to no row, and a row has what vLLM says
when it finishes. A recorder may leave out fields that have their default, which is 0 or nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Set
from typing import Any

import numpy as np

from tokenpulse.readers.documents import Source, each_line
from tokenpulse.readers.rows import (
    MAX_TIME,
    NAN,
    STATUS,
    Faults,
    LabelColumns,
    OwnColumns,
    UnreadableError,
    brief,
    floats,
    gaps,
    integer,
    ints,
    number,
    obj,
    optional,
    point,
    scalars,
    seconds,
    statuses,
    unique,
)
from tokenpulse.records import ABSENT, Records, Series, duration_ns, time_ns

FORMAT = "vllm-stat-logger"

DEFINITIONS = {
    "ttft": "arrival in the API server to the iteration that gave the first token, of all requests, finished or not",
    "itl": "one gap an iteration and request: a step of several tokens gives one",
    "tpot": "mean_time_per_output_token: decode time / (N - 1), on the engine's clock",
    "queue": "queued_time: from the engine's queue to the first schedule, without the way to the engine",
    "prefill": "prefill_time: first schedule to first token, on the engine's clock",
    "e2e": "e2e_latency: arrival to the iteration in which the request finished; a request's arrival is counted back",
}
_WITHOUT_IDS = "times to first token come without the request's id"
_FINISHED = {0: "stop", 1: "length", 2: "abort", 3: "error", 4: "stop"}  # 4: ended for repeating itself
_NAMED = {"stop": "stop", "length": "length", "abort": "abort", "error": "error", "repetition": "stop"}
_POOLED = {
    "queued_time": "queue",
    "prefill_time": "prefill",
    "mean_time_per_output_token": "tpot",
}
_LISTS = {
    "ttft": ("time_to_first_tokens_iter", "time_to_first_token_iter"),
    "itl": ("inter_token_latencies_iter", "time_per_output_tokens_iter"),
}
_GAUGES = {"running": "num_running_reqs", "waiting": "num_waiting_reqs", "kv_usage": "kv_cache_usage"}
_COUNTERS = {"output_tokens": "num_generation_tokens", "preemptions": "num_preempted_reqs"}


def recognises(keys: Set[str]) -> str | None:
    """Whether these keys are of a stat logger's line."""
    return FORMAT if {"sched", "iter"} <= keys and keys & {"mono", "mono_ns", "iter.iteration_timestamp"} else None


def read(source: Source) -> Iterator[Records]:
    """The file is one run, of one engine or several."""
    log = _Log(Faults(source.name))
    each_line(source, log.faults, log.add)
    yield log.records()


class _Log:
    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.offset: int | None = None  # from the lines' monotonic clock to the iterations', which is the wall's
        self.lists = {name: array("d") for name in _LISTS}
        self.mono, self.engine = array("q"), array("q")
        self.gauges = {name: array("d") for name in _GAUGES}
        self.counters = dict.fromkeys(_COUNTERS, 0)
        self.prompt_tokens = 0
        self.ids: list[str | None] = []
        self.end, self.e2e = array("d"), array("d")
        self.prompt, self.output, self.cached = array("q"), array("q"), array("q")
        self.status = bytearray()
        self.labels, self.own = LabelColumns(), OwnColumns()

    def add(self, line: dict[str, Any]) -> None:
        """One call of `record()`; nothing of it is kept if any of it is at fault."""
        engine = integer(line.get("engine", line.get("engine_idx", line.get("engine_index"))), "engine")
        engine = 0 if engine == ABSENT else engine
        scheduler, iteration = (None if line.get(key) is None else obj(line[key], key) for key in ("sched", "iter"))
        mono = _mono(line)
        stamp = NAN if iteration is None else point(iteration.get("iteration_timestamp"), "iter.iteration_timestamp")
        lists = {name: _list(iteration or {}, keys) for name, keys in _LISTS.items()}
        counts = {name: _default(iteration or {}, key) for name, key in _COUNTERS.items()}
        prompts = optional((iteration or {}).get("prompt_token_stats"), "iter.prompt_token_stats")
        prompt_tokens = integer(prompts.get("total", (iteration or {}).get("num_prompt_tokens")), "prompt tokens")
        gauges = {name: number((scheduler or {}).get(key, 0), f"sched.{key}") for name, key in _GAUGES.items()}
        finished = (iteration or {}).get("finished_requests") or []
        if not isinstance(finished, list):
            raise UnreadableError("wrong_type", f"iter.finished_requests: expected an array, got {brief(finished)}")
        rows = [self._finished(obj(row, "a finished request"), stamp) for row in finished]
        if self.offset is None and mono != ABSENT and stamp == stamp:
            self.offset = int(time_ns(np.array([stamp]))[0]) - mono
        for name, values in lists.items():
            self.lists[name].extend(values)
        for name, count in counts.items():
            self.counters[name] += count
        self.prompt_tokens += max(prompt_tokens, 0)
        if scheduler is not None:
            self.mono.append(mono)
            self.engine.append(engine)
            for name, value in gauges.items():
                self.gauges[name].append(value)
        for row in rows:
            self._take(row, engine, stamp)

    def _finished(self, row: dict[str, Any], stamp: float) -> dict[str, Any]:
        reason = row.get("finish_reason", 0)
        if isinstance(reason, str) and reason.isdecimal():
            reason = int(reason)
        status = _FINISHED.get(reason) if isinstance(reason, int) else _NAMED.get(str(reason).lower())
        if status is None:
            raise UnreadableError(
                "bad_value", f"finish_reason: expected stop, length, abort or error, got {brief(reason)}"
            )
        if stamp != stamp:
            raise UnreadableError("missing_field", "iter.iteration_timestamp: expected a time in s, got nothing")
        for key in ("e2e_latency", *_POOLED):
            seconds(row.get(key), key)
        counts = {
            key: integer(row.get(key, 0), key)
            for key in ("num_prompt_tokens", "num_generation_tokens", "num_cached_tokens")
        }
        return row | counts | {"status": status}

    def _take(self, row: dict[str, Any], engine: int, stamp: float) -> None:
        self.ids.append(None if row.get("request_id") is None else str(row["request_id"]))
        self.end.append(stamp)
        self.e2e.append(seconds(row.get("e2e_latency"), "e2e_latency"))
        self.prompt.append(row["num_prompt_tokens"])
        self.output.append(row["num_generation_tokens"])
        self.cached.append(row["num_cached_tokens"])
        self.status.append(STATUS[row["status"]])
        self.labels.append({"engine": engine})
        self.own.append(scalars({key: value for key, value in row.items() if key != "finish_reason"}))

    def records(self) -> Records:
        """Everything the log says."""
        end, e2e = floats(self.end), floats(self.e2e)
        own = self.own.finish()
        succeeded = np.isin(statuses(self.status), (STATUS["stop"], STATUS["length"]))
        pooled = {name: floats(values) for name, values in self.lists.items()}
        for key, metric in _POOLED.items():
            values = own.get(key, np.empty(0))
            # TPOT is one of requests that ended well and had two tokens, everything else of all that have it.
            keep = ~np.isnan(values)
            if metric == "tpot" and len(values):
                keep &= succeeded & (ints(self.output) > 1)
            pooled[metric] = values[keep]
        mono = ints(self.mono)
        shift = 0 if self.offset is None else self.offset
        t_ns = np.where(mono == ABSENT, ABSENT, mono + shift)
        return Records(
            tool="vllm-stat-logger",
            format=FORMAT,
            ids=unique(self.ids),
            clock="epoch",
            arrive_ns=np.where(np.isnan(e2e), ABSENT, time_ns(end) - np.where(np.isnan(e2e), 0, duration_ns(e2e))),
            start=end - e2e,
            end=end,
            ttft=np.full(len(end), NAN),
            e2e=e2e,
            latency=e2e,
            prompt_tokens=ints(self.prompt),
            cached_tokens=ints(self.cached),
            output_tokens=ints(self.output),
            status=statuses(self.status),
            labels=self.labels.finish(),
            own=own,
            own_units=dict.fromkeys((*_POOLED, "e2e_latency", "inference_time", "decode_time"), "s"),
            pooled=pooled,
            gauges={
                name: Series(t_ns=t_ns, values=floats(values), engine=ints(self.engine))
                for name, values in self.gauges.items()
            },
            run={**self.counters, "prompt_tokens": self.prompt_tokens},
            absent={
                "latency.scheduling": "vLLM takes scheduling and prefill together",
                "latency.preemption_stall": "vLLM counts preemptions, it does not time them",
                "slowest.ttft": _WITHOUT_IDS,
                "goodput": _WITHOUT_IDS,
            },
            definitions=dict(DEFINITIONS),
            **self.faults.taken(),
        )


def _mono(line: dict[str, Any]) -> int:
    """The line's time in ns, on the recorder's monotonic clock."""
    if line.get("mono_ns") is not None:
        return integer(line["mono_ns"], "mono_ns", MAX_TIME // 4)
    return int(time_ns(np.array([point(line.get("mono"), "mono")]))[0])


def _list(iteration: dict[str, Any], keys: tuple[str, ...]) -> array[float]:
    for key in keys:
        if iteration.get(key) is not None:
            return gaps(iteration[key], f"iter.{key}")
    return array("d")


def _default(iteration: dict[str, Any], key: str) -> int:
    """A count whose default is 0."""
    return max(integer(iteration.get(key), f"iter.{key}"), 0)
