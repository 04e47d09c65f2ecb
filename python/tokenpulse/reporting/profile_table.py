"""What each tool would have said, side by side: a row for all tools that agree, and below it why the others do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Protocol

from rich.console import RenderableType

from tokenpulse.reporting.layout import figures_table, heading, note, show
from tokenpulse.reporting.text import count, ms, number, percent, printable

Figures = Mapping[str, Any]

ALL = "all"
"""The name under which the rows of all profiles stand beside the profiles."""

METRICS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}
STATISTICS = {"mean": "mean", "p50": "P50", "p99": "P99", "std": "std dev"}

RATES = {
    "requests_per_second": "requests/s",
    "output_tokens_per_second": "tokens/s",
    "goodput": "good req/s",
    "attainment": "attained",
    "requests.succeeded": "succeeded",
    "requests.failed": "failed",
}

SAME = 1e-8
"""Figures closer than this, relatively, or than a nanosecond, are one row's."""
MAX_ABSENT = 8
"""Figures that could not be had which are named at most for each tool; `--json` has them all."""


class Profiled(Protocol):
    """What has profiles: of one run a dict of figures by name, of several `runs` under each name."""

    @property
    def profiles(self) -> Figures: ...


def write(report: Profiled, stream: IO[str]) -> None:
    """Print the profiles of a report to a stream."""
    show(parts(report.profiles), stream)


def parts(profiles: Figures) -> Iterator[RenderableType]:
    """The sections, one set of them for each run."""
    for path, run in runs(profiles):
        title = "What each tool would say" + (f" of {printable(path)}" if path else "")
        yield heading(title)
        yield from _run(run)


def runs(profiles: Figures) -> Iterator[tuple[str, Figures]]:
    """The runs that profiles are of: each with its path, and its figures by name.

    >>> list(runs({"vllm": {"runs": [{"path": "a", "completed": 1}, {"path": "a", "completed": 2}]}}))
    [('a', {'vllm': {'path': 'a', 'completed': 1}}), ('a', {'vllm': {'path': 'a', 'completed': 2}})]
    """
    several = {
        name: one["runs"] for name, one in profiles.items() if isinstance(one, Mapping) and _listed(one.get("runs"))
    }
    if not several:
        if profiles:
            yield "", profiles
        return
    for place in range(max(len(one) for one in several.values())):
        run = {name: one[place] for name, one in several.items() if place < len(one)}
        path = next((str(one["path"]) for one in run.values() if "path" in one), "")
        yield path, run


def _listed(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _run(run: Figures) -> Iterator[RenderableType]:
    whys = _whys(run.get(ALL))
    told: set[str] = set()
    tools = {name: one["tokenpulse"] for name, one in run.items() if name != ALL}
    heads = {name: one["headline"] for name, one in tools.items()}
    for metric, label in METRICS.items():
        table = figures_table(f"{label}, ms", *STATISTICS.values())
        names = [f"{metric}.{statistic}" for statistic in STATISTICS]
        for agreeing, values in groups(heads, names):
            table.add_row(", ".join(agreeing), *("-" if value is None else ms(value) for value in values))
        if table.row_count:
            yield table
            yield from _reasons(whys, names, told)
    table = figures_table("rates", *RATES.values())
    for agreeing, values in groups(heads, list(RATES)):
        shown = (_shown(name, value) for name, value in zip(RATES, values, strict=True))
        table.add_row(", ".join(agreeing), *shown)
    if table.row_count:
        yield table
        yield from _reasons(whys, list(RATES), told)
    yield from _limits(tools)
    if not whys:
        for name, one in tools.items():
            yield note(f"{name}: {chosen(one['choices'])}")
        for name, one in tools.items():
            yield from _absent(name, one["absent"])
    elif any(one["absent"] for one in tools.values()):
        yield note("What these requests cannot give each tool, and why: --json, under tokenpulse.absent of each.")


def groups(heads: Mapping[str, Figures], names: Sequence[str]) -> list[tuple[list[str], list[float | None]]]:
    """The tools that say the same of some figures, in order, with what they say; those that say nothing are left out.

    >>> groups({"a": {"x": 1.0}, "b": {"x": 2.0}, "c": {"x": 1.0}, "d": {}}, ["x"])
    [(['a', 'c'], [1.0]), (['b'], [2.0])]
    """
    found: list[tuple[list[str], list[float | None]]] = []
    for tool, head in heads.items():
        values = [head.get(name) for name in names]
        if all(value is None for value in values):
            continue
        for agreeing, others in found:
            if all(_same(value, other) for value, other in zip(values, others, strict=True)):
                agreeing.append(tool)
                break
        else:
            found.append(([tool], values))
    return found


def _same(value: float | None, other: float | None) -> bool:
    if value is None or other is None:
        return value is other
    return abs(value - other) <= max(SAME * abs(other), 1e-9)


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name == "attainment":
        return percent(value)
    return count(int(value)) if name.startswith("requests.") else number(value)


def _whys(rows: Any) -> dict[str, str]:
    """Why the tools differ in a figure, where all were asked for."""
    listed = rows.get("rows", ()) if isinstance(rows, Mapping) else rows or ()
    return {row["figure"]: row["why"] for row in listed if row["why"]}


def _reasons(whys: Mapping[str, str], names: Iterable[str], told: set[str]) -> Iterator[RenderableType]:
    """What was not told yet; the methods of percentiles once, though each metric names its own tools."""
    new: list[str] = []
    for name in names:
        for reason in whys.get(name, "").split("; "):
            mark = reason.partition(":")[0] if reason.startswith("percentiles:") else reason
            if reason and mark not in told:
                told.add(mark)
                new.append(reason)
    if new:
        text = "; ".join(new)
        yield note(f"{text[0].upper()}{text[1:]}.")


def _limits(tools: Mapping[str, Figures]) -> Iterator[RenderableType]:
    limits: Figures = next((one["limits"] for one in tools.values() if one["limits"]), {})
    if limits:
        told = ", ".join(f"{name} {1e3 * seconds:.12g} ms" for name, seconds in limits.items())
        yield note(f"Limits of goodput: {told}.")


def chosen(choices: Figures) -> str:
    """A tool's choices in a line.

    >>> chosen({"percentile": "linear", "tpot_span": "last - first", "tpot_divisor": "N - 1", "ddof": 0,
    ...         "itl": "a gap a chunk", "time": "the client's clock", "good": "<="})
    "percentiles linear; TPOT (last - first) / (N - 1); ITL: a gap a chunk; rates: the client's clock; good at <=."
    """
    tpot = "no TPOT"
    if choices["tpot_span"] is not None:
        divisor = choices["tpot_divisor"]
        tpot = f"TPOT ({choices['tpot_span']}) / {divisor if divisor == 'N' else f'({divisor})'}"
    good = "no goodput" if choices["good"] is None else f"good at {choices['good']}"
    method = choices["percentile"].replace("_", " ")
    return f"percentiles {method}; {tpot}; ITL: {choices['itl']}; rates: {choices['time']}; {good}."


def _absent(name: str, absent: Mapping[str, str]) -> Iterator[RenderableType]:
    if not absent:
        return
    told = [f"{printable(figure)} ({printable(reason)})" for figure, reason in list(absent.items())[:MAX_ABSENT]]
    more = f"; and {count(len(absent) - MAX_ABSENT)} more" if len(absent) > MAX_ABSENT else ""
    yield note(f"{name} cannot be had in full: {'; '.join(told)}{more}.")
