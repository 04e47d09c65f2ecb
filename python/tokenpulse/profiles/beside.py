"""All profiles of one run side by side: a row a figure, a column a tool, and why they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tokenpulse.model import SLO
from tokenpulse.profiles.registry import PROFILES, profile
from tokenpulse.profiles.rows import Figures
from tokenpulse.records import Records

FIGURES = (
    *(f"{metric}.{figure}" for metric in ("ttft", "tpot", "itl", "e2e") for figure in ("mean", "p50", "p99", "std")),
    "requests_per_second",
    "output_tokens_per_second",
    "goodput",
    "attainment",
    "requests.succeeded",
    "requests.failed",
)
"""The figures of the rows, in their order."""

SAME = 1e-8
"""Figures closer than this, relatively, or than a nanosecond, are the same."""

WHY = {
    "ttft": "tokenpulse takes a TTFT when it happens, so that requests that failed later count too; the other tools "
    "count those that succeeded",
    "tpot": "last token minus first by N - 1 (tokenpulse, inference-perf), the end of the answer in place of the last "
    "token (vLLM, SGLang, genai-bench, MLPerf), or the whole request by N, weighted by N (GuideLLM)",
    "itl": "one gap a chunk (vLLM), a token (tokenpulse; SGLang over its own endpoint) or a token time, 0 within a "
    "chunk (inference-perf); or one mean a request: AIPerf and genai-perf without the TTFT, GuideLLM weighted by "
    "N - 1, llmperf with the TTFT in it",
    "e2e": "to the last token (tokenpulse, AIPerf, genai-perf) or to the end of the answer",
    "requests_per_second": "divided by the client's clock around the run (vLLM, SGLang, llmperf, genai-bench), else by "
    "first sending to last token or last end; GuideLLM weighs each rate by how long it lasted; MLPerf counts one "
    "request fewer",
    "output_tokens_per_second": "divided by the same times as requests; tokenpulse counts the tokens of requests that "
    "failed too",
    "goodput": "tokenpulse wants less than the limit, the others at most it; divided by the same times as requests",
    "attainment": "good of all that ended but aborts (tokenpulse), of all (AIPerf), of those with every metric and the "
    "errors (GuideLLM), of those that succeeded (inference-perf)",
    "requests.failed": "aborts and rejections are apart in tokenpulse, aborts in GuideLLM, and failures elsewhere",
}
"""What makes a metric differ between tools, whatever the statistic."""

METHODS = {
    "nearest_rank": "nearest rank",
    "linear": "linear",
    "floor_index": "place floor(n p)",
    "weighted": "by weight",
}


def side_by_side(
    records: Records,
    names: Iterable[str] | None = None,
    *,
    goodput: Mapping[str, float] | SLO | None = None,
    profiles: Mapping[str, Figures] | None = None,
) -> list[Figures]:
    """One row a figure: `figure` (such as `ttft.p99`), `unit`, `values` (tool to value; seconds for times) and `why`.

    A tool that does not have the figure is not among `values`; `why` is None where all agree. `profiles` may hold what
    `profile` already gave for some of the names.

    >>> import numpy as np
    >>> from tokenpulse.records import Records
    >>> two = Records(tool="table", format="table", ttft=np.array([0.1, 0.3]), e2e=np.array([0.5, 0.5]),
    ...               latency=np.array([0.5, 0.5]), output_tokens=np.array([5, 5]), status=np.zeros(2, np.uint8))
    >>> rows = {row["figure"]: row for row in side_by_side(two, ["vllm", "tokenpulse"])}
    >>> rows["ttft.p50"]["values"], rows["ttft.p50"]["why"]
    ({'vllm': 0.2, 'tokenpulse': 0.1}, 'percentiles: linear (vllm), nearest rank (tokenpulse)')
    """
    names = list(PROFILES) if names is None else list(names)
    made = {name: (profiles or {}).get(name) or profile(name, records, goodput=goodput) for name in names}
    heads = {name: figures["tokenpulse"]["headline"] for name, figures in made.items()}
    columns = {
        figure: values
        for figure in FIGURES
        if (values := {name: head[figure] for name, head in heads.items() if head.get(figure) is not None})
    }
    return [
        {
            "figure": figure,
            "unit": unit(figure),
            "values": values,
            "why": why(figure, values, columns.get(f"{figure.partition('.')[0]}.mean", values)),
        }
        for figure, values in columns.items()
    ]


def unit(figure: str) -> str:
    """The unit of a row.

    >>> unit("ttft.p99"), unit("goodput"), unit("attainment")
    ('s', '1/s', 'share')
    """
    if figure.partition(".")[0] in ("ttft", "tpot", "itl", "e2e"):
        return "s"
    return {"attainment": "share", "requests.succeeded": "requests", "requests.failed": "requests"}.get(figure, "1/s")


def why(figure: str, values: Mapping[str, float | None], means: Mapping[str, float | None]) -> str | None:
    """What makes the values differ, shortly; None where they do not. Where means agree, so do the observations.

    >>> why("itl.std", {"vllm": 2.0, "llmperf": 3.0}, {"vllm": 1.0, "llmperf": 1.0})
    'n - 1 in the deviation (llmperf)'
    """
    if _agree(values):
        return None
    metric, _, statistic = figure.partition(".")
    reasons = [_methods(values)] if statistic in ("p50", "p99") else []
    reasons += [_deviations(values)] if statistic == "std" else []
    if metric in WHY and not _agree(means):
        reasons.append(WHY[metric])
    if figure in WHY and figure != metric:
        reasons.append(WHY[figure])
    return "; ".join(reason for reason in reasons if reason) or None


def _agree(values: Mapping[str, float | None]) -> bool:
    known = [value for value in values.values() if value is not None]
    return not known or max(known) - min(known) <= max(SAME * max(abs(value) for value in known), 1e-9)


def _methods(values: Mapping[str, float | None]) -> str:
    methods: dict[str, list[str]] = {}
    for name in values:
        methods.setdefault(METHODS[PROFILES[name].choices.percentile], []).append(name)
    told = ", ".join(f"{method} ({', '.join(names)})" for method, names in methods.items())
    return f"percentiles: {told}" if len(methods) > 1 else ""


def _deviations(values: Mapping[str, float | None]) -> str:
    sample = [name for name in values if PROFILES[name].choices.ddof == 1]
    return f"n - 1 in the deviation ({', '.join(sample)})" if sample and len(sample) < len(values) else ""
