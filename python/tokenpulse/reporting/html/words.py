"""What the page calls things, and what it says they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenpulse.model import LENGTH_KEYS
from tokenpulse.reporting.report import Figures, Report

SHORT = {
    "ttft": "TTFT",
    "queue": "Queue time",
    "scheduling": "Scheduling time",
    "prefill": "Prefill time",
    "tpot": "TPOT",
    "e2e": "E2E",
    "itl": "ITL",
    "preemption_stall": "Preemption stall",
}

NAMES = {
    "ttft": "time to first token",
    "queue": "time in the queue",
    "scheduling": "scheduling time",
    "prefill": "prefill time",
    "tpot": "time per output token",
    "e2e": "end-to-end latency",
    "itl": "inter-token latency",
    "preemption_stall": "time stalled by preemption",
}

MEANING = {
    "ttft": "From a request's arrival to its first token.",
    "queue": "From a request's arrival to its first schedule.",
    "scheduling": "From a request's first schedule to the start of its prefill.",
    "prefill": "From the start of a request's prefill (or its first schedule, where that is not known) to its first"
    " token.",
    "tpot": "From a successful request's first token to its last, divided by its tokens less one: every request weighs"
    " the same.",
    "e2e": "From a successful request's arrival to its last token.",
    "itl": "The gaps between a request's tokens: every token weighs the same.",
    "preemption_stall": "All the time that a preempted request was out of the running batch.",
}

LIMITED = ("ttft", "tpot", "e2e", "itl")
"""The metrics that an SLO set may limit; of ITL it limits the largest of a request."""

ITL_RULE = {
    "token": "An emission of k tokens after a gap gives k values of gap / k.",
    "chunk": "An emission of several tokens after a gap gives one value, the gap.",
    "stamp": "An emission of k tokens after a gap gives one value of the gap and k - 1 of 0.",
}


def heading(metric: str) -> str:
    """A metric's name as a heading.

    >>> heading("ttft"), heading("queue")
    ('TTFT: time to first token', 'Queue time')
    """
    return f"{SHORT[metric]}: {NAMES[metric]}" if SHORT[metric].isupper() else SHORT[metric]


def listed(names: Sequence[str], last: str | None = None) -> str:
    """Names in a row.

    >>> listed(["a", "b", "c"], "and"), listed(["a"]), listed(["a", "b"])
    ('a, b and c', 'a', 'a, b')
    """
    if last is None or len(names) < 2:
        return ", ".join(names)
    return f"{', '.join(names[:-1])} {last} {names[-1]}"


def short(name: str, most: int = 20) -> str:
    """A name for the head of a column.

    >>> short("interactive"), short("x" * 30)
    ('interactive', 'xxxxxxxxxxxxxxxxx...')
    """
    return name if len(name) <= most else f"{name[: most - 3]}..."


def counted(report: Report) -> str:
    """What the figures of a report are of."""
    return "whole run" if report.cut is None else "part that is counted"


def judged(report: Report) -> list[Figures]:
    """What the SLO sets judged; nothing where the inputs do not tell what that needs."""
    return [] if any(one["good"] is None for one in report.goodput) else report.goodput


def group(one: Mapping[str, Any]) -> str:
    """What a group of requests is called.

    >>> group({"key": {"tenant": None, "prompt_length": "0-128"}, "other": False}), group({"key": {}, "other": True})
    ('(none), prompt 0-128', '(all others)')
    """
    if one["other"]:
        return "(all others)"
    parts = []
    for name, value in one["key"].items():
        told = "(none)" if value is None else str(value)
        parts.append(f"{name.removesuffix('_length')} {told}" if name in LENGTH_KEYS else told)
    return ", ".join(parts)


def key(name: str) -> str:
    """What groups are told apart by, as a heading has it.

    >>> key("prompt_length"), key("my_label")
    ('prompt length', 'my_label')
    """
    return name.replace("_", " ") if name in LENGTH_KEYS else name
