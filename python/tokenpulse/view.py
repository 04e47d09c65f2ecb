"""`View`: the figures of one stretch of time, of all requests or of those that bear certain labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from tokenpulse import formulas
from tokenpulse.analysis.cost import Counted, Group, Price, cost_figures
from tokenpulse.model import FAILED, METRICS, SLO, STATUSES, SUCCEEDED, SketchLike
from tokenpulse.reporting.report import block_figures, fluidity_figures, goodput_figures, in_flight

ALL = -1
"""All classes together."""

EVENTS = ("oom_event", "semantic_lookup", "semantic_hit")
"""What is counted by name, and belongs to no request."""


class Blocks(Protocol):
    """What a view asks of the engine's reading."""

    def block(self, scope: int, classes: int | Sequence[int]) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Gauge:
    """A level over a stretch of time: the last one set, the mean weighted by time, the greatest.

    `mean` is None when no time has passed since the gauge was first set.
    """

    last: int
    mean: float | None
    max: int


class View:
    """The whole run or one window of a `Snapshot`, for all requests or for a class.

    Gauges, batch sizes and what an engine reports of its work are kept for all requests together: a view of a class
    has none.
    """

    def __init__(
        self,
        raw: Blocks,
        slos: Sequence[SLO],
        keys: Sequence[tuple[dict[str, str], bool]],
        *,
        scope: int,
        rate_seconds: float | None,
        true_width_ns: int,
        width_ns: int | None = None,
        late: int = 0,
        resources: Mapping[str, Any] | None = None,
        classes: int | tuple[int, ...] = ALL,
    ) -> None:
        self._raw = raw
        self._slos = slos
        self._keys = keys
        self._scope = scope
        self._rate_seconds = rate_seconds
        self._true_width_ns = true_width_ns
        self._resources = resources or {}
        self._positions = classes
        self.width_ns = width_ns
        """The nominal width; None for the whole run."""
        self.late = late
        """Events that the window no longer had a place for; the total has them. Of all requests."""

    @cached_property
    def _block(self) -> dict[str, Any]:
        return self._raw.block(self._scope, self._positions)

    @property
    def true_width(self) -> float:
        """The seconds really covered: of the whole run, those since the first event."""
        return self._true_width_ns / 1e9

    # What happened

    @property
    def latency(self) -> dict[str, SketchLike]:
        """A sketch for each metric: ttft, queue, scheduling, prefill, tpot, e2e, itl, preemption_stall."""
        return dict(self._block["latency"])

    @property
    def by_status(self) -> dict[str, int]:
        """Requests that ended, by status."""
        by_status = self._block["by_status"]
        return {status: by_status[status] for status in STATUSES if status in by_status}

    @property
    def missing(self) -> dict[str, int]:
        """Ended requests that lacked what a metric needs, by metric."""
        missing = self._block["missing"]
        return {metric: missing[metric] for metric in METRICS if metric in missing}

    @property
    def counts(self) -> dict[str, int]:
        """Requests, tokens and events. `in_flight` is told for the whole run only."""
        block, by_status = self._block, self.by_status
        counts = {
            "attempted": block["attempted"],
            "succeeded": sum(by_status.get(status, 0) for status in SUCCEEDED),
            "failed": sum(by_status.get(status, 0) for status in FAILED),
            "aborted": by_status.get("abort", 0),
            "rejected": by_status.get("reject", 0),
            "lost": by_status.get("lost", 0),
            **({} if self.width_ns else {"in_flight": in_flight(block)}),
        }
        named = ("degraded", "preempted", "preemptions", "prompt_tokens", "cached_tokens", "output_tokens")
        return counts | {name: block[name] for name in named} | {name: block["counts"].get(name, 0) for name in EVENTS}

    @property
    def rates(self) -> dict[str, float | None]:
        """Tokens, successes and arrivals per second; None where no time is covered."""
        block, seconds = self._block, self._rate_seconds
        return {
            "output_tokens_per_second": formulas.token_throughput(block["output_tokens"], seconds),
            "prompt_tokens_per_second": formulas.token_throughput(block["prompt_tokens"], seconds),
            "requests_per_second": formulas.request_throughput(self.counts["succeeded"], seconds),
            "arrivals_per_second": formulas.request_throughput(block["attempted"], seconds),
        }

    @property
    def goodput(self) -> list[dict[str, Any]]:
        """For each SLO set: good, judged, attainment, goodput per second, and what was missed. As in a `Report`."""
        return [
            goodput_figures(slo, one, self._rate_seconds)
            for slo, one in zip(self._slos, self._block["slos"], strict=True)
        ]

    @property
    def fluidity(self) -> dict[str, dict[str, Any]]:
        """For each SLO set by name: the pooled index and the distribution of the requests'. As in a `Report`."""
        return {slo.name: fluidity_figures(one) for slo, one in zip(self._slos, self._block["slos"], strict=True)}

    # Shares

    @property
    def _ended(self) -> int:
        return sum(self.by_status.values())

    @property
    def availability(self) -> float | None:
        """1 minus the share of errors, timeouts, oom, rejects and lost among what the clients did not abort."""
        return formulas.availability_of(self.by_status)

    @property
    def degraded_rate(self) -> float | None:
        """The share of ended requests that a fallback served."""
        return formulas.degraded_rate(int(self._block["degraded"]), self._ended)

    @property
    def oom_rate(self) -> float | None:
        """The share of ended requests that ended `oom`."""
        return formulas.oom_rate(self.by_status.get("oom", 0), self._ended)

    @property
    def preemption_rate(self) -> float | None:
        """The share of ended requests that were preempted at least once."""
        return formulas.preemption_rate(int(self._block["preempted"]), self._ended)

    @property
    def preemptions_per_request(self) -> float | None:
        """Preemptions over ended requests; may exceed 1."""
        return formulas.ratio(self._block["preemptions"], self._ended)

    @property
    def prefix_hit_rate(self) -> float | None:
        """Cached prompt tokens over prompt tokens."""
        return formulas.ratio(self._block["cached_tokens"], self._block["prompt_tokens"])

    @property
    def semantic_hit_rate(self) -> float | None:
        """Hits over look-ups of the semantic cache."""
        counts = self._block["counts"]
        return formulas.ratio(counts.get("semantic_hit", 0), counts.get("semantic_lookup", 0))

    @property
    def error_rate(self) -> float | None:
        """1 - availability."""
        return formulas.error_rate_of(self.by_status)

    # Cost

    def cost(self, gpu_hour: float, gpus: float = 1, cost_by: str = "output") -> dict[str, Any]:
        """What the time covered cost, per token, per request and per good request; and each class's part of it.

        `gpu_hour`: the price of a GPU for an hour; `gpus`: how many serve; `cost_by`: by what it is shared out,
        `output` tokens, `total` tokens or `busy` time. As a report's `cost`, but for the time: `true_width` seconds, of
        the whole run those since the first event. ValueError for a price that is none, and of a view of a class, whose
        part stands in that of all.
        """
        if self._positions != ALL:
            raise ValueError("cost is of a view of all requests: its parts say what each class costs")
        views = self.classes if len(self._keys) > 1 else []
        groups = [Group(one.key, one.other, one._counted, one._block) for one in views]
        seconds = self.true_width or None
        return cost_figures(Price(gpu_hour, gpus, cost_by), seconds, self._block, self._counted, groups)

    @property
    def _counted(self) -> Counted:
        block = self._block
        return Counted(
            requests=block["attempted"],
            output_tokens=block["output_tokens"],
            prompt_tokens=block["prompt_tokens"],
            good={slo.name: one["good"] for slo, one in zip(self._slos, block["slos"], strict=True)},
        )

    # The engine's resources

    @property
    def gauges(self) -> dict[str, Gauge | None]:
        """running, waiting, kv_used, kv_total, batch_max; None where not set within the window."""
        return {name: None if figure is None else _gauge(figure) for name, figure in self._gauges.items()}

    @property
    def limits(self) -> dict[str, int]:
        """kv_total and batch_max as they were last set, however long ago: many engines set them once."""
        return dict(self._resources.get("limits", {}))

    @property
    def _gauges(self) -> dict[str, Any]:
        return dict(self._resources.get("gauges", {}))

    def _mean(self, name: str) -> float | None:
        figure = self._gauges.get(name)
        return None if figure is None else _gauge(figure).mean

    def level(self, name: str) -> float | None:
        """A gauge's mean; of kv_total and batch_max, where they were not set within the window, what they are in
        `limits`. None where neither is known."""
        mean = self._mean(name)
        return self.limits.get(name) if mean is None else mean

    def _mean_ratio(self, part: str, whole: str) -> float | None:
        used, room = self._mean(part), self._mean(whole)
        return None if used is None or room is None else formulas.ratio(used, room)

    @property
    def kv_utilization(self) -> float | None:
        """Mean blocks of the KV cache in use over mean blocks there are."""
        return self._mean_ratio("kv_used", "kv_total")

    @property
    def batch_utilization(self) -> float | None:
        """Mean running requests over the mean largest batch."""
        return self._mean_ratio("running", "batch_max")

    @property
    def added(self) -> dict[str, int]:
        """The sums of what the engine reported of its work; what it never reported is not there."""
        return {name: figure["sum"] for name, figure in self._resources.get("added", {}).items()}

    def _time_share(self, name: str) -> float | None:
        return formulas.ratio(self.added[name], self._true_width_ns) if name in self.added else None

    @property
    def gpu_utilization(self) -> float | None:
        """GPU time spent computing over time covered; over 1 with several GPUs."""
        return self._time_share("gpu_active_ns")

    @property
    def comm_share(self) -> float | None:
        """Time spent on communication over time covered."""
        return self._time_share("comm_ns")

    @property
    def dequant_share(self) -> float | None:
        """Time spent on dequantisation over time covered."""
        return self._time_share("dequant_ns")

    @property
    def decode_share(self) -> float | None:
        """Decode's share of the tokens computed."""
        added = self.added
        if "prefill_tokens" not in added or "decode_tokens" not in added:
            return None
        return formulas.ratio(added["decode_tokens"], added["prefill_tokens"] + added["decode_tokens"])

    @property
    def arithmetic_intensity(self) -> float | None:
        """Floating-point operations per byte moved."""
        added = self.added
        if "flops" not in added or "bytes_moved" not in added:
            return None
        return formulas.ratio(added["flops"], added["bytes_moved"])

    @property
    def batch_sizes(self) -> dict[int, int]:
        """How many steps had each batch size; 8192 stands for all from there on."""
        return dict(self._resources.get("batch_sizes", {}))

    # Classes

    @property
    def key(self) -> dict[str, str]:
        """The labels of a view of one class; empty for several."""
        return {} if self._only is None else dict(self._keys[self._only][0])

    @property
    def other(self) -> bool:
        """Whether it is the class of all that found no room."""
        return self._only is not None and self._keys[self._only][1]

    @property
    def _only(self) -> int | None:
        """The one class of the view."""
        return self._positions if isinstance(self._positions, int) and self._positions != ALL else None

    @property
    def _chosen(self) -> tuple[int, ...]:
        if isinstance(self._positions, tuple):
            return self._positions
        return tuple(range(len(self._keys))) if self._positions == ALL else (self._positions,)

    @property
    def classes(self) -> list[View]:
        """A view of each class in it, in the order in which classes were made; `other` last."""
        return [self._of(position) for position in self._chosen]

    def where(self, **labels: str) -> View:
        """The requests that bear all these labels, of whatever classes. ValueError if no class bears them."""
        if not labels:
            return self
        keys = self._keys
        found = tuple(
            position
            for position in self._chosen
            if not keys[position][1] and all(keys[position][0].get(name) == value for name, value in labels.items())
        )
        if not found:
            wanted = ", ".join(f"{name}={value!r}" for name, value in labels.items())
            known = ", ".join(sorted({name for position in self._chosen for name in keys[position][0]})) or "none"
            raise ValueError(f"no class bears {wanted} (labels known: {known})")
        return self._of(found[0] if len(found) == 1 else found)

    def _of(self, classes: int | tuple[int, ...]) -> View:
        return View(
            self._raw,
            self._slos,
            self._keys,
            scope=self._scope,
            rate_seconds=self._rate_seconds,
            true_width_ns=self._true_width_ns,
            width_ns=self.width_ns,
            late=self.late,
            classes=classes,
        )

    def to_dict(self) -> dict[str, Any]:
        """All figures as one object that JSON can hold: finite numbers or None; times in seconds."""
        figures = block_figures(
            self._block, self._slos, self._rate_seconds, None if self.width_ns else in_flight(self._block)
        )
        figures["tokens"]["cached"] = self._block["cached_tokens"]
        del figures["degraded"]  # it is called degraded_rate here
        shares = (
            "error_rate",
            "degraded_rate",
            "oom_rate",
            "preemption_rate",
            "preemptions_per_request",
            "prefix_hit_rate",
            "semantic_hit_rate",
        )
        resources = (
            "kv_utilization",
            "batch_utilization",
            "gpu_utilization",
            "comm_share",
            "dequant_share",
            "decode_share",
            "arithmetic_intensity",
        )
        figures |= {
            "width": None if self.width_ns is None else self.width_ns / 1e9,
            "true_width": self.true_width,
            "late": self.late,
            "counts": self.counts,
            "rates": self.rates,
            **{name: getattr(self, name) for name in shares},
        }
        if self._positions == ALL:
            figures |= {name: getattr(self, name) for name in resources} | {
                "gauges": {
                    name: None if gauge is None else {"last": gauge.last, "mean": gauge.mean, "max": gauge.max}
                    for name, gauge in self.gauges.items()
                },
                "added": self.added,
                "batch_sizes": {str(size): n for size, n in self.batch_sizes.items()},
            }
        return figures

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"<tokenpulse.View of {self.true_width:.6g} s: {counts['attempted']} requests,"
            f" {counts['output_tokens']} output tokens>"
        )


def _gauge(figure: Mapping[str, int]) -> Gauge:
    return Gauge(figure["last"], formulas.ratio(figure["integral"], figure["covered_ns"]), figure["max"])
