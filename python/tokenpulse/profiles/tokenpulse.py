"""tokenpulse's own figures on exact values: the definitions of its reports, without a sketch.

Durations are whole nanoseconds, percentiles are the value of nearest rank, so that a report's figures differ from these
by no more than its sketch's error. Keys and units are those of a report's JSON: seconds, rates per second.
"""

from __future__ import annotations

import numpy as np

from tokenpulse import formulas
from tokenpulse.model import STATUSES, SUCCEEDED
from tokenpulse.profiles.choices import Choices
from tokenpulse.profiles.rows import IN_FLIGHT, Bools, Figures, Rows, over
from tokenpulse.records import ABSENT, Ints, Ragged

CHOICES = Choices(
    starts="arrival at the server, or sending where a client wrote the file",
    first="the first token, as the file has it",
    itl="k observations of gap / k for an emission of k tokens; one a chunk where its size is not known",
    tpot_span="last - first",
    tpot_divisor="N - 1",
    counts="every generated token, reasoning included",
    few_tokens="absent",
    percentile="nearest_rank",
    empty="null",
    time="first arrival to last token",
    good="<",
    good_of="seconds; attainment: ended without aborts",
    failed="counted; their TTFT and gaps count, their TPOT and E2E do not",
)

POINTS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}

METRICS = ("ttft", "queue", "scheduling", "prefill", "tpot", "e2e", "itl")

HEADLINE = {
    **{
        f"{metric}.{figure}": (("latency", metric, figure), 1)
        for metric in ("ttft", "tpot", "itl", "e2e")
        for figure in ("mean", "p50", "p99", "std")
    },
    "requests.succeeded": (("requests", "succeeded"), 1),
    "requests.failed": (("requests", "failed"), 1),
    "requests_per_second": (("rates", "requests_per_second"), 1),
    "output_tokens_per_second": (("rates", "output_tokens_per_second"), 1),
    "goodput": (("goodput", "requests_per_second"), 1),
    "attainment": (("goodput", "attainment"), 1),
}


def figures(rows: Rows, limits: dict[str, float]) -> Figures:
    """The figures of a report on these requests, exact."""
    exact = Exact(rows)
    by_status = {
        name: int(count) for code, name in enumerate(STATUSES) if (count := (rows.records.status == code).sum())
    }
    succeeded = sum(by_status.get(name, 0) for name in SUCCEEDED)
    tokens = exact.output
    prompt = rows.total(rows.prompt_tokens, rows.ended, "tokens.prompt")
    span = exact.span
    if span is None:
        rows.missing("span_seconds, rates", "the file has no times of the requests")
    values = exact.latencies
    for name in METRICS:
        if not values[name].size:
            rows.missing(f"latency.{name}", rows.records.absent.get(f"latency.{name}", "no request has one"))
    rows.missing("latency.preemption_stall", "exact rows do not have preemptions; the report does")
    return {
        "span_seconds": span,
        "requests": {
            "attempted": len(rows),
            "succeeded": succeeded,
            "failed": sum(by_status.get(name, 0) for name in ("error", "timeout", "oom")),
            "aborted": by_status.get("abort", 0),
            "rejected": by_status.get("reject", 0),
            "lost": by_status.get("lost", 0),
            "in_flight": int((rows.records.status == IN_FLIGHT).sum()),
            "by_status": by_status,
        },
        "tokens": {"prompt": None if prompt is None else int(prompt), "output": tokens},
        "latency": {name: distribution(values[name]) for name in METRICS},
        "rates": {
            "output_tokens_per_second": None if tokens is None else over(tokens, span),
            "requests_per_second": over(succeeded, span),
        },
        "goodput": _goodput(rows, exact, limits, span),
        "availability": formulas.availability_of(by_status),
    }


class Exact:
    """The requests as the core would have them: whole nanoseconds, `ABSENT` where there is none."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        columns = rows.records.columns()
        self.arrive: Ints = columns["arrive_ns"]
        given: Ints = columns["output_tokens"]
        self.first, self.last = columns["first_token_ns"].copy(), columns["last_token_ns"].copy()
        n = len(rows)
        self.times = Ragged(values=np.zeros(0, np.int64), offsets=np.zeros(n + 1, np.int64))
        sizes = np.zeros(0, np.int64)
        if "token_ns" in columns:
            self.times = Ragged(values=columns["token_ns"], offsets=columns["token_offsets"])
            sizes = columns.get("n", np.ones(self.times.values.size, np.int64)).astype(np.int64)
        emits = self.times.lengths > 0
        offsets = self.times.offsets
        self.first[emits] = self.times.values[offsets[:-1][emits]]
        self.last[emits] = self.times.values[offsets[1:][emits] - 1]
        sums = np.zeros(n, np.int64)
        np.add.at(sums, self.times.rows, sizes)
        self.tokens = np.where(given == ABSENT, np.where(emits, sums, ABSENT), given)
        # Where N is given and is not the emissions' own sum, nobody knows what each bore: one gap an emission.
        known = (given == ABSENT) | (given == sums)
        self.sizes = np.where(np.repeat(known, self.times.lengths), sizes, 1)
        self.ok = rows.ok
        # Where nobody counted tokens, emissions are none: they only say that there was a token.
        self.counted = "tokens.output" not in rows.records.absent
        if not self.counted:
            rows.missing("tokens.output", rows.records.absent["tokens.output"])

    @property
    def output(self) -> int | None:
        """All output tokens; None where nobody counted them."""
        return int(self.tokens[self.tokens != ABSENT].sum()) if self.counted else None

    @property
    def span(self) -> float | None:
        """s: first arrival to last token of all requests."""
        timed = self.rows.records.clock is not None and bool((self.arrive != ABSENT).any())
        last = self.last[self.last != ABSENT]
        if not timed or not last.size:
            return None
        length = int(last.max()) - int(self.arrive[self.arrive != ABSENT].min())
        return length / 1e9 if length > 0 else None

    @property
    def latencies(self) -> dict[str, Ints]:
        """ns: the observations of each metric."""
        records, ok = self.rows.records, self.ok
        schedule, prefill = records.schedule_ns, records.prefill_ns
        found = {name: np.zeros(0, np.int64) for name in METRICS}
        found["ttft"] = _between(self.arrive, self.first)
        if schedule is not None:
            found["queue"] = _between(self.arrive, schedule)
            began = schedule
            if prefill is not None:
                found["scheduling"] = _between(schedule, prefill)
                began = np.where((prefill == ABSENT) | (schedule == ABSENT), schedule, prefill)
            found["prefill"] = _between(began, self.first)
        found["tpot"] = self.tpot[ok & (self.tpot != ABSENT)]
        found["e2e"] = _between(self.arrive[ok], np.where(self.tokens[ok] >= 1, self.last[ok], ABSENT))
        found["itl"] = self.gaps()[0]
        return found

    @property
    def tpot(self) -> Ints:
        """ns: floored; `ABSENT` for N <= 1 and where a milestone is not known."""
        whole = self.counted & (self.tokens > 1) & (self.first != ABSENT) & (self.last != ABSENT)
        each: Ints = np.where(whole, (self.last - self.first) // np.where(whole, self.tokens - 1, 1), ABSENT)
        return each

    def gaps(self) -> tuple[Ints, Ints]:
        """ns: every observation of inter-token latency, and the row it belongs to."""
        inner = np.ones(self.times.values.size, np.bool_)
        inner[self.times.offsets[:-1][self.times.lengths > 0]] = False
        steps = np.diff(self.times.values, prepend=0)[inner]
        sizes, rows = self.sizes[inner], self.times.rows[inner]
        return np.repeat(steps // sizes, sizes), np.repeat(rows, sizes)


def _between(begin: Ints, until: Ints) -> Ints:
    known = (begin != ABSENT) & (until != ABSENT)
    spans: Ints = until[known] - begin[known]
    return spans


def distribution(values: Ints) -> Figures | None:
    """Count, mean, extremes, deviation and percentiles in s; None without values.

    >>> found = distribution(np.array([1_000_000_000, 3_000_000_000]))
    >>> found["mean"], found["p50"], found["std"]
    (2.0, 1.0, 1.0)
    """
    if not values.size:
        return None
    # In two parts, each of which fits 64 bits however many there are.
    total = (int((values >> 20).sum()) << 20) + int((values & 0xFFFFF).sum())
    points = CHOICES.percentiles(values.astype(np.float64), list(POINTS.values()))
    return {
        "count": int(values.size),
        "sum": total / 1e9,
        "mean": total / 1e9 / values.size,
        "min": int(values.min()) / 1e9,
        "max": int(values.max()) / 1e9,
        "std": float(np.std(values / 1e9)),
        **{name: float(point) / 1e9 for name, point in zip(POINTS, points, strict=True)},
    }


def _goodput(rows: Rows, exact: Exact, limits: dict[str, float], span: float | None) -> Figures | None:
    """Good requests: every limit undercut. Aborts and what has not ended are not judged."""
    held = {name: round(limit * 1e9) for name, limit in limits.items() if name in ("ttft", "tpot", "e2e", "itl")}
    if not held:
        rows.missing("goodput", "no limits were given")
        return None
    judged = rows.ended & ~rows.aborted
    good = judged & exact.ok & (exact.tokens >= 1)
    ttft = _under(exact.arrive, exact.first, held.get("ttft"))
    e2e = _under(exact.arrive, exact.last, held.get("e2e"))
    good &= ttft & e2e
    if "tpot" in held:
        good &= (exact.tokens == 1) | ((exact.tpot != ABSENT) & (exact.tpot < held["tpot"]))
    if "itl" in held:
        observed, owners = exact.gaps()
        late = np.zeros(len(rows), np.bool_)
        late[owners[observed >= held["itl"]]] = True
        good &= ~late & ((exact.tokens == 1) | (exact.times.lengths > 1))
    count, total = int(good.sum()), int(judged.sum())
    return {
        "good": count,
        "judged": total,
        "attainment": formulas.attainment(count, total),
        "requests_per_second": over(count, span),
        "tokens_per_second": over(int(exact.tokens[good].sum()), span) if exact.counted else None,
    }


def _under(begin: Ints, until: Ints, limit: int | None) -> Bools:
    if limit is None:
        return np.ones(begin.size, np.bool_)
    under: Bools = (begin != ABSENT) & (until != ABSENT) & (until - begin < limit)
    return under
