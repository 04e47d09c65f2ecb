"""A tool's own summary figures by our names and in seconds: what vLLM's, SGLang's and InferenceX's files share.

Their keys are a statistic, a metric and, where it is in milliseconds, `_ms`: `p99_ttft_ms`, `median_e2e_latency_ms`,
`mean_itl`. The unit is read off the key, never off the size of the number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

METRIC = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e", "e2e": "e2e", "e2e_latency": "e2e"}
_KEY = re.compile(r"^(mean|median|std|min|max|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el|e2e_latency|e2e)(_ms)?$")
_RATES = {
    "request_throughput": "requests",
    "request_goodput": "good_requests",
    "output_throughput": "output_tokens",
    "input_throughput": "prompt_tokens",
    "total_token_throughput": "total_tokens",
    "total_throughput": "total_tokens",
}
_COUNTS = {
    "num_prompts": ("requests", "attempted"),
    "completed": ("requests", "succeeded"),
    "failed": ("requests", "failed"),
    "total_input_tokens": ("tokens", "prompt"),
    "total_output_tokens": ("tokens", "output"),
}


def figure(value: Any) -> float | None:
    """A finite number, also in quotes; None for everything else: a summary's NaN says that it had no value."""
    known = rate(value)
    return known if known is not None and math.isfinite(known) else None


def rate(value: Any) -> float | None:
    """A requested rate in requests/s; `inf` (also as text) is all at once."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        known = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(known) else known


def bare(key: str) -> str:
    """A key without the colon that some versions left at its end (`request_goodput:`)."""
    return key.rstrip(":")


def normalised(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Latencies in seconds by metric, rates a second, counts.

    >>> normalised({"mean_ttft_ms": 25.0, "p99_e2el": 1.5, "request_throughput": 3, "completed": 7})
    {'ttft': {'mean': 0.025}, 'e2e': {'p99': 1.5}, 'rates': {'requests': 3.0}, 'requests': {'succeeded': 7}}
    """
    found: dict[str, Any] = {}
    for key, value in figures.items():
        known = figure(value)
        key = bare(key)
        if known is None:
            continue
        if match := _KEY.match(key):
            statistic, metric, unit = match.groups()
            statistic = {"median": "p50"}.get(statistic, statistic)
            found.setdefault(METRIC[metric], {})[statistic] = known / 1e3 if unit else known
        elif key in _RATES:
            found.setdefault("rates", {})[_RATES[key]] = known
        elif key in _COUNTS:
            group, name = _COUNTS[key]
            found.setdefault(group, {})[name] = int(known)
        elif key == "duration":
            found["duration"] = known
    return found
