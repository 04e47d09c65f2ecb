"""The profiles by name, and the one function that applies them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokenpulse.model import SLO
from tokenpulse.profiles import (
    aiperf,
    genai_bench,
    genai_perf,
    guidellm,
    inference_perf,
    llmperf,
    mlperf,
    sglang,
    tokenpulse,
    vllm,
)
from tokenpulse.profiles.choices import Choices
from tokenpulse.profiles.rows import Figures, Rows
from tokenpulse.records import Records

LIMIT = 200_000_000
"""The most values (gaps and requests) of one run that a profile takes: each is held as 8 bytes, several times over."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """A tool's choices, its arithmetic, and where the figures that all tools have stand among its own."""

    name: str
    choices: Choices
    figures: Callable[[Rows, dict[str, float]], Figures]
    headline: Mapping[str, tuple[Path, float]]


_MODULES = {
    "tokenpulse": tokenpulse,
    "vllm": vllm,
    "sglang": sglang,
    "aiperf": aiperf,
    "guidellm": guidellm,
    "inference-perf": inference_perf,
    "genai-perf": genai_perf,
    "genai-bench": genai_bench,
    "llmperf": llmperf,
    "mlperf": mlperf,
}

PROFILES: dict[str, Profile] = {
    name: Profile(name, module.CHOICES, module.figures, module.HEADLINE) for name, module in _MODULES.items()
}
"""Every profile by its name, in the order in which they are shown."""


def profile(
    name: str,
    records: Records,
    *,
    goodput: Mapping[str, float] | SLO | None = None,
    summary: Mapping[str, Any] | None = None,
) -> Figures:
    """A run's figures as a tool would have had them, by its own keys and in its own units.

    `goodput` are limits in seconds by our names (`ttft`, `tpot`, `e2e`, `itl`), or an SLO set; without them those that
    the run itself used, where its file says. `summary` is the tool's own summary, for what only it knows: the times of
    AIPerf's phase, the percentiles that were asked for. What the records cannot give is None, or absent where the tool
    would leave it out. One key is not the tool's: `tokenpulse` holds the `choices`, what is `absent` and why, the
    `headline` (the figures that all tools have, by our names, in seconds), the `limits` of goodput that were used, and
    the `values` held in memory.

    Raises ValueError for an unknown name, a limit that is none, and a run of more than `LIMIT` values.

    >>> import numpy as np
    >>> from tokenpulse.records import Ragged, Records
    >>> one = Records(tool="vllm", format="vllm-bench-detailed", ttft=np.array([0.1]), e2e=np.array([0.4]),
    ...               latency=np.array([0.4]), gaps=Ragged.of([[0.1, 0.2]]), output_tokens=np.array([4]),
    ...               status=np.array([0], np.uint8), run={"duration": 2.0})
    >>> said = profile("vllm", one, goodput={"ttft": 0.1, "tpot": 0.2})
    >>> said["p99_itl_ms"], said["request_goodput"], said["tokenpulse"]["absent"]["total_input_tokens"]
    (199.0, 0.5, 'the file does not count these tokens')
    """
    if name not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {name!r}")
    chosen = PROFILES[name]
    held = len(records) + sum(0 if one is None else one.values.size for one in (records.gaps, records.emissions))
    if held > LIMIT:
        raise ValueError(f"a profile holds exact values in memory: at most {LIMIT:,}, got {held:,}")
    if summary is not None:
        records = replace(records, summary={**records.summary, **summary})
    rows = Rows(records)
    limits = rows.limits(goodput)
    with np.errstate(over="ignore", invalid="ignore"):  # a file may hold 1e308; what is no number becomes null
        found = chosen.figures(rows, limits)
    said: Figures = _finite(found)
    said["tokenpulse"] = {
        "choices": chosen.choices.to_dict(),
        "absent": dict(rows.absent),
        "headline": headline(name, said),
        "limits": limits,
        "values": {"held": held, "at_most": LIMIT},
    }
    return said


def _finite(figures: Any) -> Any:
    """Figures that JSON can hold: what is no finite number is None."""
    if isinstance(figures, dict):
        return {key: _finite(value) for key, value in figures.items()}
    if isinstance(figures, list):
        return [_finite(value) for value in figures]
    return None if isinstance(figures, float) and not math.isfinite(figures) else figures


def headline(name: str, figures: Figures) -> dict[str, float | None]:
    """The figures that all tools have, by our names and in seconds, of what a profile gave; only those it has.

    >>> headline("vllm", {"mean_ttft_ms": 250.0, "completed": 3})
    {'ttft.mean': 0.25, 'requests.succeeded': 3}
    """
    found: dict[str, float | None] = {}
    for key, (path, scale) in PROFILES[name].headline.items():
        value: Any = figures
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is not None:
            found[key] = value * scale if scale != 1 else value
    return found
