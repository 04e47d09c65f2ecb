"""Where time went: requests in the system over time, arrivals against ends, the steady part, and checks on the data.

From a reduction's `flow`, which is of all requests whatever a cut leaves out; exactly, by a sweep, where the rows are
at hand. Every time here is in seconds since the first arrival.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenpulse import formulas
from tokenpulse.analysis import saturation
from tokenpulse.analysis.curve import Curve, Ints
from tokenpulse.analysis.saturation import Client
from tokenpulse.analysis.steady import Steady, plateau, steady_span
from tokenpulse.model import Reduction

Figures = dict[str, Any]

MOST_BINS = 240
"""Bins of concurrency at most: more than a picture of usual width can tell apart."""

MIDDLE = 0.05
"""Rates are compared between the 5th and the 95th of a hundred events: one straggler at the end would make a server
look slower than it was while it was busy."""

LITTLE_WARNING = 0.05
"""Little's law must hold within this, or the input says something that cannot be."""

LITTLE_TIMES = 10
"""It is judged only in a steady span of at least this many mean times in the system: of a shorter one too much is
requests of which only a part lies inside."""

UNTIMED = -1
"""A time in ns that is not known."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Each accepted request's arrival, end and first token in ns on the log's clock; -1 where there is none."""

    arrive_ns: Ints
    end_ns: Ints
    first_ns: Ints


def of_reduction(reduction: Reduction, rows: Rows | None = None, client: Client | None = None) -> Figures | None:
    """The figures of a report's `flow`; None without a request, and from a reduction that has no flow.

    `rows`, where they are at hand, must be those that the reduction counted.
    """
    flow = reduction.get("flow")
    if flow is None or flow["first_arrival_ns"] is None:
        return None
    curve = curve_of(reduction, rows)
    count = sum(one["arrivals"] for one in flow["bins"])
    ended = flow["residence_count"]
    seconds = curve.run / 1e9 if curve else None
    arrival_span = flow["last_arrival_ns"] - flow["first_arrival_ns"]
    end_span = (flow["last_end_ns"] or 0) - (flow["first_end_ns"] or 0)
    steady = steady_span(curve) if curve else None
    arrivals = {"count": count, "rate": _rate(count, arrival_span)}
    ends = {"count": ended, "rate": _rate(ended, end_span)}
    arrival_rate = _middle_rate(curve, "arrivals", arrivals, rows)
    service_rate = _middle_rate(curve, "ends", ends, rows)
    peak = _peak(curve)
    return {
        "first_arrival_seconds": flow["first_arrival_ns"] / 1e9,
        "seconds": seconds,
        "exact": curve is not None and curve.exact,
        **_over_time(curve, peak, steady),
        "arrivals": arrivals,
        "ends": ends,
        "arrival_rate": arrival_rate,
        "service_rate": service_rate,
        "utilisation": arrival_rate / service_rate if arrival_rate and service_rate else None,
        "steady": _steady(curve, steady),
        "first_wave": _first_wave(flow, rows),
        "littles_law": _littles_law(curve, steady, flow, rows),
        "coalesced": {
            "emissions": flow["emissions"],
            "coalesced": flow["coalesced"],
            "share": formulas.ratio(flow["coalesced"], flow["emissions"]),
            "zero_gap_share": _zero_gaps(reduction["total"]["latency"]["itl"]),
        },
        "saturation": saturation.figures(
            client or Client(), count, arrivals["rate"], peak["at_least"] if peak else None
        ),
    }


def curve_of(reduction: Reduction, rows: Rows | None = None) -> Curve | None:
    """Requests in the system over time; None where no time passed between the first and the last event."""
    flow, last = reduction["flow"], reduction["last_emission_ns"]
    if rows is None:
        return Curve.of_bins(flow, last)
    known = (t for t in (flow["last_arrival_ns"], flow["last_end_ns"], last) if t is not None)
    return Curve.of_rows(rows.arrive_ns, rows.end_ns, max(known))


def _rate(events: int, span_ns: int) -> float | None:
    """Events a second: the intervals between the first and the last, by the time between them."""
    return (events - 1) / (span_ns / 1e9) if events > 1 and span_ns > 0 else None


def _middle_rate(curve: Curve | None, which: str, events: Figures, rows: Rows | None) -> float | None:
    """`arrivals` or `ends` a second in the middle nine tenths of them."""
    count = events["count"]
    skipped = math.floor(MIDDLE * count)
    if curve is None or not skipped:
        return None if curve is None else events["rate"]
    if rows is not None:
        column = rows.arrive_ns if which == "arrivals" else rows.end_ns
        moments = np.sort(column[column >= 0])
        span, apart = float(moments[count - 1 - skipped] - moments[skipped]), 0
    else:
        counted = getattr(curve, which)
        low, high = np.interp([skipped + 0.5, count - 0.5 - skipped], counted, curve.times)
        # Of events in one bin it is not known how far they lie apart.
        span, apart = float(high - low), curve.grain
    return (count - 1 - 2 * skipped) / (span / 1e9) if span > apart else None


def _peak(curve: Curve | None) -> Figures | None:
    return None if curve is None else {"at_least": curve.least_peak, "at_most": curve.most}


def _over_time(curve: Curve | None, peak: Figures | None, steady: Steady | None) -> Figures:
    """Concurrency, and arrivals and ends a second, in bins that cover the run without a hole."""
    if curve is None:
        return {"width_seconds": None, "concurrency": None, "rates": None}
    width = curve.grain * math.ceil((curve.run - curve.origin) / (MOST_BINS * curve.grain))
    inner = np.arange(curve.origin + width, curve.run, width, dtype=np.float64)
    edges = np.concatenate([[0.0], inner[inner > 0], [curve.run]])
    seconds = np.diff(edges) / 1e9
    starts = edges[:-1] / 1e9
    means = curve.means(edges)
    rates = (curve.counts(which, edges) / seconds for which in ("arrivals", "ends"))
    rows = zip(starts.tolist(), *(column.tolist() for column in rates), strict=True)
    return {
        "width_seconds": width / 1e9,
        "concurrency": {
            "bins": [list(pair) for pair in zip(starts.tolist(), means.tolist(), strict=True)],
            "mean": curve.mean(0, curve.run),
            "peak": peak,
            "plateau": steady.plateau if steady else plateau(curve),
        },
        "rates": [list(row) for row in rows],
    }


def _steady(curve: Curve | None, steady: Steady | None) -> Figures | None:
    if curve is None or steady is None:
        return None
    return {
        "from_seconds": steady.from_ns / 1e9,
        "to_seconds": steady.to_ns / 1e9,
        "seconds": (steady.to_ns - steady.from_ns) / 1e9,
        "share": (steady.to_ns - steady.from_ns) / curve.run,
        "mean_concurrency": steady.mean,
    }


def _first_wave(flow: Mapping[str, Any], rows: Rows | None) -> Figures | None:
    """TTFT of the requests that arrived before any had ended, against that of all others.

    From bins: those of the bins wholly before the first end. None where there are none.
    """
    first_end = flow["first_end_ns"]
    if first_end is None:  # then nobody came after one
        first_end = flow["last_arrival_ns"] + flow["width_ns"] + 1
    if rows is None:
        wave = [one for one in flow["bins"] if one["start_ns"] + flow["width_ns"] <= first_end]
        requests = sum(one["arrivals"] for one in wave)
        timed, total = sum(one["ttft_count"] for one in wave), sum(one["ttft_sum_ns"] for one in wave)
        others = sum(one["ttft_count"] for one in flow["bins"]) - timed
        rest = sum(one["ttft_sum_ns"] for one in flow["bins"]) - total
    else:
        inside, known = rows.arrive_ns < first_end, rows.first_ns >= 0
        ttft = rows.first_ns - rows.arrive_ns
        requests, timed, others = int(inside.sum()), int((inside & known).sum()), int((~inside & known).sum())
        total, rest = int(ttft[inside & known].sum()), int(ttft[~inside & known].sum())
    if not requests:
        return None
    mean = total / timed / 1e9 if timed else None
    other_mean = rest / others / 1e9 if others else None
    return {
        "requests": requests,
        "ttft_mean": mean,
        "others_ttft_mean": other_mean,
        "ratio": mean / other_mean if mean is not None and other_mean else None,
    }


def _littles_law(
    curve: Curve | None, steady: Steady | None, flow: Mapping[str, Any], rows: Rows | None
) -> Figures | None:
    """Mean requests in the system against throughput times mean time in the system.

    Over the steady span where it is long enough, with a verdict; else over the whole run, where only requests that
    never ended can make them differ, and none.
    """
    if curve is None or not flow["residence_count"]:
        return None
    mean_time = flow["residence_sum_ns"] / flow["residence_count"]
    needs = None
    begin, end = 0.0, curve.run
    if steady is None or steady.to_ns - steady.from_ns < LITTLE_TIMES * mean_time:
        needs = f"a steady span of at least {LITTLE_TIMES} mean times in the system"
    elif rows is None and steady.to_ns - steady.from_ns < curve.run / 2:
        # Bins have the mean time of all requests only, which is not that of a part of the run.
        needs = "a steady span of at least half of the run"
    else:
        begin, end = float(steady.from_ns), float(steady.to_ns)
    ended = float(curve.counts("ends", np.array([begin, end]))[0])
    if rows is not None:
        left = rows.end_ns - curve.first_ns
        inside = (rows.end_ns >= 0) & (left >= begin) & ((left < end) | (end >= curve.run))
        mean_time = float((rows.end_ns - rows.arrive_ns)[inside].mean()) if inside.any() else 0.0
    inside_mean = curve.mean(begin, end)
    by_law = ended * mean_time / (end - begin)
    difference = abs(inside_mean - by_law) / inside_mean if inside_mean > 0 else None
    return {
        "over": "run" if needs else "steady",
        "mean_in_system": inside_mean,
        "throughput_times_mean_time": by_law,
        "relative_difference": difference,
        "warning": None if needs or difference is None else difference > LITTLE_WARNING,
        "needs": needs,
    }


def _zero_gaps(itl: Any) -> float | None:
    """The share of inter-token latencies under a microsecond; under the rule `stamp` most are of the rule's making."""
    rule = getattr(itl, "itl_rule", None)
    return None if rule == "stamp" or not itl.count else itl.zero_count / itl.count
