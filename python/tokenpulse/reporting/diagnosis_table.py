"""A diagnosis for people: each finding in plain English, with its figures before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO, Any, Protocol

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from tokenpulse.analysis.diagnosis import Finding, NotJudged
from tokenpulse.reporting.layout import figures_table, heading, not_judged, note, show
from tokenpulse.reporting.text import count, number, printable, several

SHARES = ("utilization", "share_of_time", "share_of_computed_tokens", "hit_rate", "refill_rate_low_end")
NAMES = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "p50": "P50",
    "p99": "P99",
    "ks": "KS",
    "kv": "KV",
    "gpu": "GPU",
    "z": "Z",
    "flops": "FLOPs",
}


class Diagnosed(Protocol):
    """What is asked of a diagnosis."""

    @property
    def findings(self) -> tuple[Finding, ...]: ...
    @property
    def not_judged(self) -> tuple[NotJudged, ...]: ...
    @property
    def current(self) -> Mapping[str, Any]: ...
    @property
    def baseline(self) -> Mapping[str, Any]: ...
    @property
    def notices(self) -> tuple[Mapping[str, Any], ...]: ...


def write(diagnosis: Diagnosed, stream: IO[str]) -> None:
    """Print the diagnosis to a stream; a terminal gets bold headings, everything else plain text."""
    show(parts(diagnosis), stream)


def parts(diagnosis: Diagnosed) -> Iterator[RenderableType]:
    """The diagnosis's sections, top to bottom."""
    yield heading("Compared")
    table = figures_table("", "run", "from s", "to s", "arrivals", "ended", left=2)
    for name, side in (("baseline", diagnosis.baseline), ("current", diagnosis.current)):
        table.add_row(
            name,
            printable(side["name"]),
            number(side["from_seconds"]),
            number(side["to_seconds"]),
            count(side["arrivals"]),
            count(side["ended"]),
        )
    yield table
    if not diagnosis.findings:
        whole = len(diagnosis.not_judged)
        yield heading("Nothing found" if not whole else "Nothing found by what could be judged")
    for position, finding in enumerate(diagnosis.findings, start=1):
        yield from _finding(position, finding)
    if diagnosis.not_judged:
        yield from not_judged("row", ((one.row, one.needs) for one in diagnosis.not_judged))
    if diagnosis.notices:
        yield note(f"{several(len(diagnosis.notices), 'notice')} about lines that could not be used: see --json.")


def _finding(position: int, finding: Finding) -> Iterator[RenderableType]:
    by = f", explained by {finding.explained_by}" if finding.explained_by else ""
    yield heading(f"{position}. {finding.row} (strength {number(finding.strength)}{by})")
    said = figures_table("", "", left=2, head=False)
    said.columns[0].no_wrap = True
    for label, text in (("Seen", finding.symptom), ("Likely", finding.cause), ("Do", finding.action)):
        said.add_row(label, text)
    yield Padding(said, (0, 0, 0, 2))
    yield Text()
    table = figures_table("", "baseline", "current", "change")
    for name, (base, current) in finding.evidence.items():
        label, shown = _label(name)
        table.add_row(
            label,
            "-" if base is None else shown(base),
            "-" if current is None else shown(current),
            f"{number(current / base)} x" if base and current is not None and base != current and base > 0 else "",
        )
    yield Padding(table, (0, 0, 0, 2))


def _label(name: str) -> tuple[str, Any]:
    """A figure's name as people say it, and how its values are shown."""
    if name.endswith("_seconds") or "_seconds_worst" in name:
        text = name.replace("_seconds", "")
        return f"{_words(text)}, ms", lambda value: number(value * 1e3)
    if name.endswith(SHARES):
        return f"{_words(name)}, %", lambda value: number(100 * value)
    if "seconds_per_second" in name:
        return f"{_words(name.replace('_seconds_per_second', ''))}, ms/s", lambda value: number(value * 1e3)
    if name.endswith("observations"):
        return _words(name), lambda value: count(int(value))
    return _words(name), number


def _words(name: str) -> str:
    words = [NAMES.get(word, word) for word in name.split("_")]
    return " ".join(words)
