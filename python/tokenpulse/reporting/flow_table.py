"""Where time went, for people: how full the system was, arrivals against ends, and what to doubt about the run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType

from tokenpulse.analysis.flow import LITTLE_WARNING
from tokenpulse.reporting.layout import figures_table, heading, note
from tokenpulse.reporting.report import Report
from tokenpulse.reporting.text import count, ms, number, percent, several

WAVE = 1.5
"""From this ratio on the first wave is pointed out: it moves a mean over a few hundred requests by percents."""

OVERLOAD = 1.05
"""Arrivals over ends from which on the queue grows, where chance alone would not do it: two rates of `n` events each
differ by 2 sqrt(2 / n) of themselves in one case of twenty."""

LASTING = 0.2
"""Below this share of the run the steady span is a peak rather than a state."""


def parts(report: Report) -> Iterator[RenderableType]:
    """A section on where time went; nothing where the inputs do not tell it."""
    flow = report.flow
    if flow is None or flow["concurrency"] is None:
        return
    yield heading("Where time went")
    table = figures_table("", "", "", left=1, head=False)
    table.columns[2].justify, table.columns[2].no_wrap = "left", False
    inside, steady = flow["concurrency"], flow["steady"]
    table.add_row("in the system, mean", number(inside["mean"]), f"requests over {number(flow['seconds'])} s")
    table.add_row("peak", _peak(inside["peak"]), f"plateau {number(inside['plateau'])}")
    if steady is not None:
        table.add_row(
            "steady span",
            f"{number(steady['seconds'])} s",
            f"from {number(steady['from_seconds'])} s to {number(steady['to_seconds'])} s, "
            f"{percent(steady['share'])} of the run",
        )
    table.add_row("arrivals/s", number(flow["arrival_rate"]), _of_all(flow["arrivals"], "request"))
    table.add_row("ends/s", number(flow["service_rate"]), _of_all(flow["ends"], "end"))
    if flow["utilisation"] is not None:
        chance = 1 + 2 * math.sqrt(2 / flow["ends"]["count"])
        growing = "; the queue grows" if flow["utilisation"] > max(OVERLOAD, chance) else ""
        table.add_row("arrivals / ends", number(flow["utilisation"]), f"of the rates above{growing}")
    wave = flow["first_wave"]
    if wave is not None and wave["ratio"] is not None and wave["requests"] > 1:
        table.add_row(
            "first wave",
            several(wave["requests"], "request"),
            f"mean TTFT {ms(wave['ttft_mean'])} ms, all others {ms(wave['others_ttft_mean'])} ms",
        )
    law = flow["littles_law"]
    if law is not None and (law["warning"] is not None or (law["relative_difference"] or 0) > LITTLE_WARNING):
        over = "the steady span" if law["over"] == "steady" else "the whole run: some requests never ended"
        table.add_row("Little's law", _times(law["relative_difference"]), f"off over {over}")
    table.add_row(*_coalesced(flow["coalesced"]))
    table.add_row("client", flow["saturation"]["verdict"], _saturation(flow["saturation"]))
    yield table
    yield note("Rates: of the middle nine tenths of arrivals and of ends.")
    yield from _warnings(report, flow)


def _peak(peak: Mapping[str, int]) -> str:
    if peak["at_least"] == peak["at_most"]:
        return count(peak["at_least"])
    return f"{count(peak['at_least'])} to {count(peak['at_most'])}"


def _of_all(events: Mapping[str, Any], noun: str) -> str:
    every = f", first to last {number(events['rate'])}/s" if events["rate"] is not None else ""
    return several(events["count"], noun) + every


def _times(ratio: float) -> str:
    """A ratio in percent that may be over 100.

    >>> _times(2.3456), _times(0.0123)
    ('235 %', '1.23 %')
    """
    return f"{100 * ratio:.3g} %"


def _coalesced(coalesced: Mapping[str, Any]) -> tuple[str, str, str]:
    share, zero = coalesced["share"], coalesced["zero_gap_share"]
    emissions = "" if coalesced["emissions"] is None else f"of {several(coalesced['emissions'], 'emission')}"
    gaps = "" if zero is None else f"{percent(zero)} of gaps under 1 us"
    return "coalesced", percent(share), ", ".join(part for part in (emissions, gaps) if part)


def _saturation(verdict: Mapping[str, Any]) -> str:
    """What the verdict rests on, or what it would need."""
    if not verdict["judged_by"]:
        return "needs " + ", or ".join(verdict["needs"])
    told = []
    delay, ratio = verdict["schedule_delay"], verdict["delay_to_ttft"]
    if delay is not None and "schedule_delay" in verdict["judged_by"]:
        share = f", {_times(ratio['p99'])} of TTFT's" if ratio and ratio["p99"] is not None else ""
        told.append(f"P99 of delay in sending {ms(delay['p99'])} ms{share}")
    if "rate" in verdict["judged_by"]:
        told.append(f"{number(verdict['achieved_rate'])} of {number(verdict['requested_rate'])} requests/s")
    return "; ".join(told)


def _warnings(report: Report, flow: Mapping[str, Any]) -> Iterator[RenderableType]:
    """What a reader of the figures must know before believing them."""
    law, wave, steady = flow["littles_law"], flow["first_wave"], flow["steady"]
    if law is not None and law["warning"]:
        yield note(
            f"Warning: Little's law is off by {_times(law['relative_difference'])} in the steady span: "
            f"{number(law['mean_in_system'])} requests in the system, but throughput x mean time is "
            f"{number(law['throughput_times_mean_time'])}. Times of arrival or end are wrong, or requests are missing."
        )
    if flow["saturation"]["verdict"] == "client saturated":
        yield note("Warning: the client did not keep up: its own delay is in no latency. Use more clients.")
    if steady is not None and steady["share"] < LASTING:
        yield note("No lasting plateau: concurrency swings, and the steady span is one of its peaks.")
    elif (
        report.cut is None
        and steady is not None
        and wave is not None
        and wave["requests"] > 1
        and (wave["ratio"] or 0) >= WAVE
    ):
        yield note(f"The first wave waited {number(wave['ratio'])} times as long as the others: see --steady.")
