"""Conditions under which a comparison fails, as people write them: `p99(ttft) > +10%`.

A condition is a figure, one of `> >= < <=`, and a limit. A limit with a sign is a change from the first run to the
second, in percent of what it was or in the figure's unit; without a sign it is a value of the second run. The figures
are the points on which a report puts its own: conditions judge them as they are, not their intervals. `worse` and
`worse(FIGURE)` ask for the verdict, which allows for chance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tokenpulse.analysis.changes import WORSE, Block, Figures, Run, relative_change
from tokenpulse.analysis.compare import Comparison
from tokenpulse.formulas import UNAVAILABLE
from tokenpulse.grammar import parse_duration
from tokenpulse.model import METRICS

STATISTICS = ("mean", "min", "max")
DISTANCES = ("ks", "wasserstein")
OF_AN_SLO = ("goodput", "token_goodput", "attainment", "fluidity")
OF_A_RUN = ("throughput", "request_throughput", "error_rate", "availability", "degraded")

SECONDS, PER_SECOND, SHARE, PLAIN = "seconds", "per second", "share", "plain"

_UNITS = {
    "throughput": PER_SECOND,
    "request_throughput": PER_SECOND,
    "goodput": PER_SECOND,
    "token_goodput": PER_SECOND,
    "attainment": SHARE,
    "fluidity": SHARE,
    "error_rate": SHARE,
    "availability": SHARE,
    "degraded": SHARE,
    "ks": SHARE,
    "wasserstein": SECONDS,
}

_LIMITS = {
    SECONDS: "+10%, +2ms or 1.5s",
    PER_SECOND: "-5%, -20 or 300",
    SHARE: "0.99, 99%, -1pp (percentage points) or -5%",
}

_CONDITION = re.compile(r"\s*([a-z_]+[0-9.]*)\s*(?:\(\s*([^()]*?)\s*\))?\s*(>=|<=|>|<)\s*([^<>=]+?)\s*")
_PERCENTILE = re.compile(r"p([0-9]{1,2})(?:\.([0-9]{1,6}))?|p(999)")
_VERDICT = re.compile(r"\s*worse\s*(?:\(\s*([a-z0-9_]+)\s*\))?\s*")
_LIMIT = re.compile(r"([+-]?)\s*([0-9]{1,18}(?:\.[0-9]{1,12})?)\s*(%|pp|/s|[a-z]*)")

_COMPARED: dict[str, Callable[[float, float], bool]] = {
    ">": lambda value, limit: value > limit,
    ">=": lambda value, limit: value >= limit,
    "<": lambda value, limit: value < limit,
    "<=": lambda value, limit: value <= limit,
}


@dataclass(frozen=True)
class Limit:
    """What a figure is held against: `value`, `change` in the figure's unit, or `relative` change as a share."""

    kind: str
    amount: float


@dataclass(frozen=True)
class Condition:
    """One condition: a figure, a comparison and a limit; or, without the latter two, a verdict."""

    text: str
    figure: str
    """`p99`, `mean`, `goodput`, ...; `worse` for a verdict."""
    of: str | None
    """The metric, or the name of an SLO set; None where the figure has neither, or there is only one set."""
    operator: str = ""
    limit: Limit | None = None

    @property
    def quantile(self) -> float | None:
        """Of a percentile, as a share."""
        return quantile_of(self.figure)


def parse(text: str) -> Condition:
    """A condition from its text. ValueError says what was expected.

    >>> parse("p99(ttft) > +10%").limit
    Limit(kind='relative', amount=0.1)
    >>> parse("mean(e2e) > 1.5s").limit, parse("goodput(chat) < -5%").of, parse("worse(ttft)").of
    (Limit(kind='value', amount=1.5), 'chat', 'ttft')
    """
    verdict = _VERDICT.fullmatch(text)
    if verdict is not None:
        if verdict[1] is not None and verdict[1] not in (*METRICS, "throughput", "error_rate", "attainment"):
            raise _wrong(text, f"worse, or worse of {', '.join(METRICS)}, throughput, error_rate or attainment")
        return Condition(text, "worse", verdict[1])
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise _wrong(text, "FIGURE > LIMIT (or >=, <, <=) such as 'p99(ttft) > +10%', or worse")
    figure, of, operator, limit = found.groups()
    unit = _unit(text, figure, of)
    return Condition(text, figure, of or None, operator, _limit(text, limit, unit, figure in DISTANCES))


def quantile_of(figure: str) -> float | None:
    """The share below a percentile that is called so; None for what is no percentile.

    >>> quantile_of("p99"), quantile_of("p99.9"), quantile_of("p999"), quantile_of("mean")
    (0.99, 0.999, 0.999, None)
    """
    found = _PERCENTILE.fullmatch(figure)
    if found is None:
        return None
    if found[3]:
        return 0.999
    return float(f"{found[1]}.{found[2] or 0}e-2")


def _wrong(text: str, expected: str) -> ValueError:
    return ValueError(f"--fail-if {text!r}: expected {expected}")


def _unit(text: str, figure: str, of: str | None) -> str:
    """What a figure is measured in; ValueError for one that is not known, or not of that."""
    quantile = quantile_of(figure)
    if quantile is not None or figure in (*STATISTICS, *DISTANCES):
        if quantile == 0:
            raise _wrong(text, "a percentile from p0.000001 to p99.999999")
        if of not in METRICS:
            got = "none" if not of else repr(of)
            raise _wrong(text, f"{figure}(METRIC) with a metric of {', '.join(METRICS)}, got {got}")
        return _UNITS.get(figure, SECONDS)
    if figure in OF_AN_SLO:
        return _UNITS[figure]
    if figure in OF_A_RUN:
        if of:
            raise _wrong(text, f"{figure} of the whole run, without ({of})")
        return _UNITS[figure]
    latencies = "p50(METRIC), p99.9(METRIC), mean(METRIC), min, max, ks, wasserstein"
    raise _wrong(text, f"a figure: {latencies}, {', '.join((*OF_A_RUN, *OF_AN_SLO))}; got {figure!r}")


def _limit(text: str, written: str, unit: str, is_distance: bool) -> Limit:
    found = _LIMIT.fullmatch(written)
    wrong = _wrong(text, f"a limit such as {_LIMITS[unit]}; got {written!r}")
    if found is None:
        raise wrong
    sign, number, suffix = found.groups()
    if is_distance and sign:
        raise _wrong(text, f"a limit without a sign, since a distance is between both runs already; got {written!r}")
    amount = float(number) * (-1 if sign == "-" else 1)
    if suffix == "%" and sign:
        return Limit("relative", _hundredth(amount))
    kind = "change" if sign else "value"
    if unit == SECONDS and suffix and suffix not in ("%", "pp", "/s"):
        try:
            seconds = 0 if not amount else parse_duration(number + suffix) / 1e9
        except ValueError as no_duration:
            raise _wrong(text, f"a limit such as {_LIMITS[unit]}; {no_duration}") from None
        return Limit(kind, -seconds if sign == "-" else seconds)
    if unit == PER_SECOND and suffix in ("", "/s"):
        return Limit(kind, amount)
    if unit == SHARE and (suffix == "" or (suffix == "%" and not sign) or (suffix == "pp" and sign)):
        share = _hundredth(amount) if suffix else amount
        if abs(share) > 1:  # it would hold always, or never
            raise _wrong(text, f"a share from 0 to 1 (or 0% to 100%), such as {_LIMITS[SHARE]}; got {written!r}")
        return Limit(kind, share)
    raise wrong


def _hundredth(percent: float) -> float:
    """A percentage as a share, rounded once.

    >>> _hundredth(0.1), _hundredth(-5.0)
    (0.001, -0.05)
    """
    return float(f"{percent!r}e-2") if "e" not in repr(percent) else percent / 100


def judge(condition: Condition, before: Run, after: Run, comparison: Comparison) -> Figures:
    """Whether a condition holds: the two values, and `holds`, None where a figure is absent, with `why`.

    ValueError where it names an SLO set that is not there.
    """
    found: Figures = {"condition": condition.text, "before": None, "after": None, "change": None}
    found |= {"relative_change": None, "holds": None, "why": None}
    if condition.limit is None:
        return found | _verdict(condition, comparison)
    if condition.figure in DISTANCES:
        latency = comparison.latency[str(condition.of)]
        if latency is None:
            return found | {"why": f"{condition.of} has no values in one of the runs"}
        distance = latency["ks" if condition.figure == "ks" else "wasserstein_seconds"]
        return found | {"after": distance, "holds": _COMPARED[condition.operator](distance, condition.limit.amount)}
    values = [_value(condition, run) for run in (before, after)]
    change = None if None in values else values[1] - values[0]  # type: ignore[operator]
    found |= {"before": values[0], "after": values[1], "change": change}
    found["relative_change"] = relative_change(*values)
    needed: dict[str, float | None] = {"value": values[1], "change": change, "relative": _relative(*values)}
    value = needed[condition.limit.kind]
    if value is None:
        missing = "second" if values[1] is None else "first"
        return found | {"why": f"the {missing} run has no such figure"}
    return found | {"holds": _COMPARED[condition.operator](value, condition.limit.amount)}


def _relative(before: float | None, after: float | None) -> float | None:
    """The change as a share; from nothing to something it is beyond every limit."""
    found = relative_change(before, after)
    return math.copysign(math.inf, after) if found is None and before == 0 and after is not None else found


def _verdict(condition: Condition, comparison: Comparison) -> Figures:
    if condition.of is None:
        worse = [one["figure"] for one in comparison.because if one["verdict"] == WORSE]
        return {"holds": bool(worse), "why": ", ".join(worse) or None}
    if condition.of in METRICS:
        latency = comparison.latency[condition.of]
        if latency is None:
            return {"why": f"{condition.of} has no values in one of the runs"}
        return {"holds": any(latency[name]["clearly"] == WORSE for name in ("p50", "p99"))}
    figures: list[Figures] = {
        "throughput": [comparison.rates["output_tokens_per_second"]],
        "error_rate": [comparison.shares["error_rate"]],
        "attainment": [one["attainment"] for one in comparison.goodput],
    }[condition.of]
    if not figures:
        return {"why": "there is no SLO set: give --slo"}
    return {"holds": any(one["clearly"] == WORSE for one in figures)}


def _value(condition: Condition, run: Run) -> float | None:
    """The figure of a run in seconds, per second or as a share; None where it is absent."""
    figure, of = condition.figure, condition.of
    if condition.quantile is not None or figure in STATISTICS:
        sketch = run.sketches[str(of)]
        if not sketch.count:
            return None
        value: float = getattr(sketch, figure) if condition.quantile is None else sketch.quantile(condition.quantile)
        return value
    if figure in OF_AN_SLO:
        return _of_slo(condition, run)
    of_run: dict[str, float | None] = {
        "throughput": run.rates["output_tokens_per_second"],
        "request_throughput": run.rates["requests_per_second"],
        "availability": run.availability,
        "error_rate": None if run.availability is None else error_rate(run.reduction["total"]),
        "degraded": run.degraded,
    }
    return of_run[figure]


def error_rate(block: Block) -> float | None:
    """Requests that were not served over those that ended without an abort; None where there are none."""
    by_status = block["by_status"]
    judged = sum(by_status.values()) - by_status.get("abort", 0)
    return sum(by_status.get(status, 0) for status in UNAVAILABLE) / judged if judged else None


def check(conditions: Iterable[Condition], slos: Sequence[str]) -> None:
    """Raise ValueError for a condition on an SLO set that is not among these names, or not the only one."""
    for condition in conditions:
        if condition.figure in OF_AN_SLO:
            _set_of(condition, slos)


def _set_of(condition: Condition, names: Sequence[str]) -> str:
    """The name of the SLO set that a condition is about."""
    if not names:
        raise _wrong(condition.text, "an SLO set to judge by: give --slo")
    if condition.of is None and len(names) > 1:
        raise _wrong(condition.text, f"{condition.figure}(NAME) with the name of an SLO set: {', '.join(names)}")
    name = condition.of or names[0]
    if name not in names:
        raise _wrong(condition.text, f"the name of an SLO set: {', '.join(names)}; got {name!r}")
    return name


def _of_slo(condition: Condition, run: Run) -> float | None:
    names = [slo.name for slo in run.slos]
    name = _set_of(condition, names)
    if condition.figure == "fluidity":
        index: float | None = run.fluidity[name]["index"]
        return index
    key = {"goodput": "requests_per_second", "token_goodput": "tokens_per_second", "attainment": "attainment"}
    value: float | None = run.goodput[names.index(name)][key[condition.figure]]
    return value
