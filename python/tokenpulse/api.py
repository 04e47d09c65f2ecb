"""`tokenpulse.report`: composes the engine and the reporting; computes nothing itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenpulse import engine
from tokenpulse.grammar import Path, duration_ns, path_names, slo_sets
from tokenpulse.model import ITL_RULES, LENGTH_KEYS, MAX_LABEL_KEYS, SLO
from tokenpulse.reporting import Report


def report(
    paths: Path | Iterable[Path],
    *,
    slo: SLO | str | Iterable[SLO | str] | None = None,
    itl: str = "token",
    by: str | Iterable[str] | None = None,
    timeline: str | float | None = None,
    ttl: str | float = "1h",
    progress: engine.Progress | None = None,
) -> Report:
    """Read one or more logs and report on them together; `"-"` is standard input.

    `slo`: one set or several, as `SLO` or as text such as `"chat:ttft=200ms,tpot=30ms"`.
    `itl`: what an emission of several tokens gives: `token`, `chunk` or `stamp`.
    `by`: labels, `prompt_length` or `output_length`; the report has a block for each combination that occurs.
    `timeline`: the width of its bins, and `ttl`: the silence after which a request is lost, as `"10s"` or seconds.

    Lines that cannot be read are counted, not raised. Raises OSError for a file that cannot be read, FormatError
    for one of unknown format, and ValueError or TypeError for a setting that does not fit.
    """
    names = path_names(paths)
    sets = slo_sets(slo)
    reduction: dict[str, Any] = engine.reduce_paths(
        names,
        sets,
        _rule(itl),
        _keys(by),
        None if timeline is None else duration_ns(timeline),
        duration_ns(ttl),
        progress,
    )
    return Report.of(reduction, sets, itl)


def _rule(itl: str) -> str:
    if itl not in ITL_RULES:
        raise ValueError(f"itl must be one of {', '.join(ITL_RULES)}, got {itl!r}")
    return itl


def _keys(by: str | Iterable[str] | None) -> list[str]:
    keys = [] if by is None else [by] if isinstance(by, str) else list(by)
    if len(set(keys)) != len(keys):
        raise ValueError(f"by must not name a key twice, got {', '.join(keys)}")
    if sum(key not in LENGTH_KEYS for key in keys) > MAX_LABEL_KEYS:
        raise ValueError(f"by must name at most {MAX_LABEL_KEYS} labels, got {len(keys)}")
    if "" in keys:
        raise ValueError("by must name a label, prompt_length or output_length, got an empty name")
    return keys
