"""The summary of MLPerf LoadGen in its Server scenario with token latencies, by the names in its summary; times in ns.

LoadGen sorts whole nanoseconds and takes the one in place `floor(n p)`; means are whole too. A published limit is met
when the 99th percentile of both TTFT and TPOT is at or under it. Whether a run would have been valid also depends on
its length, its number of requests and LoadGen's early stopping, which are not judged here.
"""

from __future__ import annotations

import numpy as np

from tokenpulse.profiles.choices import Choices
from tokenpulse.profiles.rows import Bools, Figures, Rows, known, over
from tokenpulse.records import Floats

CHOICES = Choices(
    first="the first token",
    itl="none: TPOT",
    tpot_span="latency - ttft",
    tpot_divisor="N - 1",
    counts="the tokens that the system under test reports",
    few_tokens="left out",
    percentile="floor_index",
    ddof=None,
    empty="none",
    time="the start to the last completion, for one request fewer",
    good="<=",
    good_of="a verdict on the run: the 99th percentile of TTFT and of TPOT against limits",
    failed="have no place in a run; here left out",
)

POINTS = (0.5, 0.9, 0.95, 0.97, 0.99, 0.999)

LIMITS = {
    "Llama2-70B": (2000, 200),
    "Llama2-70B interactive": (450, 40),
    "Llama3.1-405B": (6000, 175),
    "Llama3.1-405B interactive": (4500, 80),
    "Llama3.1-8B": (2000, 100),
    "Llama3.1-8B interactive": (500, 30),
    "DeepSeek-R1": (2000, 80),
    "Mixtral-8x7B": (2000, 200),
}
"""ms: the published limits on the 99th percentile of TTFT and of TPOT."""

HEADLINE = {
    **{
        f"{metric}.{figure}": ((name,), 1e-9)
        for metric, mean, percentiles in (
            ("ttft", "Mean First Token latency (ns)", "percentile first token latency (ns)"),
            ("tpot", "Mean Time to Output Token (ns)", "percentile time to output token (ns)"),
            ("e2e", "Mean latency (ns)", "percentile latency (ns)"),
        )
        for figure, name in (("mean", mean), ("p50", f"50.00 {percentiles}"), ("p99", f"99.00 {percentiles}"))
    },
    "requests_per_second": (("Completed samples per second",), 1),
    "output_tokens_per_second": (("Completed tokens per second",), 1),
}


def figures(rows: Rows, limits: dict[str, float]) -> Figures:
    """LoadGen's summary, and a verdict for each set of published limits and for the limits given."""
    ok = rows.ok
    ttft, latency = _whole(rows.ttft), _whole(rows.latency)
    several = rows.output_tokens > 1
    tpot = np.where(several, np.floor((latency - ttft) / np.where(several, rows.output_tokens - 1, 1)), np.nan)
    single = int((ok & (rows.output_tokens <= 1)).sum())
    if single:
        rows.missing("TPOT of requests of one token", f"{single} of them have none and were left out")
    if rows.failed.any():
        rows.missing("failed requests", "LoadGen knows none; they were left out")
    seconds, scheduled = _spans(rows, ok)
    if seconds is None:
        rows.missing("rates", "the file has no times of the requests")
    n = int(ok.sum())
    tokens = rows.total(rows.output_tokens, ok, "Completed tokens per second")
    columns = {
        ("latency (ns)", "percentile latency (ns)"): known(latency[ok]),
        ("First Token latency (ns)", "percentile first token latency (ns)"): known(ttft[ok]),
        ("Time to Output Token (ns)", "percentile time to output token (ns)"): known(tpot[ok]),
    }
    summary: Figures = {
        "Scenario": "Server",
        "Completed samples per second": over(n - 1, seconds) if n else None,
        "Scheduled samples per second": over(n - 1, scheduled) if n else None,
        "Completed tokens per second": None if tokens is None else over(tokens, seconds),
    }
    for (name, percentiles), values in columns.items():
        summary |= distribution(name, percentiles, values)
    rows.missing("Result is", "length of the run, number of requests and early stopping are not judged")
    sets = {name: (ms / 1e3, each / 1e3) for name, (ms, each) in LIMITS.items()}
    if "ttft" in limits and "tpot" in limits:
        sets["given"] = (limits["ttft"], limits["tpot"])
    summary["Performance constraints satisfied"] = {
        name: verdict(summary, first, each) for name, (first, each) in sets.items()
    }
    return summary


def verdict(summary: Figures, ttft: float, tpot: float) -> Figures:
    """Whether the 99th percentiles are at or under limits in s; None where one is not known."""
    found = (
        summary["99.00 percentile first token latency (ns)"],
        summary["99.00 percentile time to output token (ns)"],
    )
    met = None if None in found else found[0] <= round(ttft * 1e9) and found[1] <= round(tpot * 1e9)
    return {"ttft_ms": ttft * 1e3, "tpot_ms": tpot * 1e3, "met": met}


def distribution(name: str, percentiles: str, values: Floats) -> Figures:
    """Extremes, whole mean and percentiles in whole ns; None without values."""
    names = [f"{p * 100:.2f} {percentiles}" for p in POINTS]
    if not values.size:
        return dict.fromkeys([f"Min {name}", f"Max {name}", f"Mean {name}", *names])
    points = CHOICES.percentiles(values, list(POINTS))
    return {
        f"Min {name}": int(values.min()),
        f"Max {name}": int(values.max()),
        f"Mean {name}": sum(int(value) for value in values.tolist()) // values.size,
        **{key: int(point) for key, point in zip(names, points, strict=True)},
    }


def _whole(seconds: Floats) -> Floats:
    return np.rint(seconds * 1e9)


def _spans(rows: Rows, ok: Bools) -> tuple[float | None, float | None]:
    """s: from the first sending to the last completion, and to the last sending."""
    if rows.start is None or not ok.any():
        return None, None
    starts = known(rows.start[ok])
    ends = known(rows.start[ok] + rows.latency[ok])
    if not starts.size or not ends.size:
        return None, None
    return float(ends.max() - starts.min()), float(starts.max() - starts.min())
