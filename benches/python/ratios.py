"""Prints what pytest-benchmark measured: nanoseconds a value, and how many times that a peer takes.

    python benches/python/ratios.py run1.json run2.json run3.json

Of several runs the median of their medians is taken. The ratio is to the first benchmark of a group.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

Key = tuple[str, str]
Row = tuple[str, ...]


def collect(runs: Iterable[dict[str, Any]]) -> tuple[dict[Key, list[float]], dict[Key, dict[str, Any]]]:
    """The nanoseconds a value of each run, and what a benchmark said of itself, by group and name."""
    figures: dict[Key, list[float]] = defaultdict(list)
    extras: dict[Key, dict[str, Any]] = {}
    for run in runs:
        for one in run["benchmarks"]:
            extra = one["extra_info"]
            name = extra.get("peer") or one["name"].split("[")[0].replace("test_", "")
            key = (one["group"] or "", name)
            figures[key].append(one["stats"]["median"] * 1e9 / extra["values"])
            extras[key] = extra
    return figures, extras


def rows(runs: Iterable[dict[str, Any]]) -> list[Row]:
    figures, extras = collect(runs)
    first: dict[str, float] = {}
    table: list[Row] = [("group", "what", "median", "lowest", "highest", "ratio", "size")]
    for (group, name), found in figures.items():
        middle = median(found)
        base = first.setdefault(group, middle)
        extra = extras[group, name]
        table.append(
            (
                group,
                name,
                f"{middle:,.2f} ns/{extra.get('unit', 'value')}",
                f"{min(found):,.2f}",
                f"{max(found):,.2f}",
                f"{middle / base:.2f}x",
                f"{extra['bytes']} bytes" if "bytes" in extra else "",
            )
        )
    return table


def main(paths: list[str]) -> None:
    if not paths:
        sys.exit("usage: ratios.py RUN.json...")
    head, *body = rows(json.loads(Path(path).read_text()) for path in paths)
    for row in (head, ("---",) * len(head), *body):
        print("|", " | ".join(row), "|")


if __name__ == "__main__":
    main(sys.argv[1:])
