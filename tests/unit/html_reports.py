"""Reports of every kind that a page may have to show, and what a browser would make of a page."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import tokenpulse
from tokenpulse import engine
from tokenpulse.grammar import slo_sets
from tokenpulse.reporting import Report, html

FIXTURES = Path(__file__).parents[1] / "fixtures"
MS = 1_000_000
SECOND = 1000 * MS

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> & $x$ \u202e\x1b[31m \u4e2d\u6587 \U0001f469"


def made(
    lines: Iterable[dict[str, Any]],
    slo: str | Sequence[str] | None = None,
    by: Sequence[str] = (),
    *,
    name: str = "run.jsonl",
    timeline_ns: int | None = MS,
    bins: int = 240,
    **cut: int,
) -> Report:
    sets = slo_sets(slo)
    text = "\n".join(map(json.dumps, lines)).encode()
    reduction = engine.reduce_bytes(
        [(name, text)], sets, "token", list(by), timeline_ns, 3600 * SECOND, timeline_bins=bins, **cut
    )
    return Report.of(reduction, sets)


def requests(
    n: int, seconds: float, *, spread: float = 0.4, labels: Sequence[str] = (), seed: int = 3, start_ns: int = 0
) -> list[Any]:
    """Request lines of every ending, with latencies that are apart by `spread` (of a log-normal distribution)."""
    rng = random.Random(seed)
    lines = []
    for i in range(n):
        arrive = 1_764_000_000 * SECOND + start_ns + round(seconds * SECOND * i / n)
        status = rng.choices(("stop", "length", "error", "timeout", "abort", "reject"), (70, 20, 3, 1, 4, 2))[0]
        offsets = [round(150 * MS * rng.lognormvariate(0, spread))]
        for _ in range(rng.randrange(30)):
            offsets.append(offsets[-1] + round(20 * MS * rng.lognormvariate(0, spread)))
        offsets = [] if status in ("error", "reject") else offsets
        lines.append(
            {
                "id": f"r{i}",
                "arrive_ns": arrive,
                "schedule_ns": arrive + (offsets[0] // 2 if offsets else 0),
                "dt_ns": offsets,
                "end_ns": arrive + (offsets[-1] if offsets else 100 * MS),
                "prompt_tokens": rng.randrange(1, 4000),
                "status": status,
                "labels": {"tenant": labels[i % len(labels)]} if labels else {},
            }
        )
    return lines


def same(n: int, offsets: Sequence[int], status: str = "stop", every: int = 10 * MS) -> list[Any]:
    """Requests that are all alike."""
    return [
        {"id": str(i), "arrive_ns": i * every, "dt_ns": list(offsets), "end_ns": i * every + MS, "status": status}
        for i in range(n)
    ]


def fixture(name: str, **settings: Any) -> Report:
    return tokenpulse.report(FIXTURES / name, timeline="10ms", **settings)


REPORTS: dict[str, Callable[[], Report]] = {
    "events": lambda: fixture(
        "run.jsonl.gz", slo=["chat:ttft=500ms,tpot=30ms", "fast:ttft=0.1s,tpot=6ms"], by="tenant"
    ),
    "async": lambda: fixture("run_async.jsonl.gz", slo="ttft=500ms,tpot=30ms"),
    "demo": lambda: tokenpulse.report(FIXTURES / "demo_requests.jsonl"),
    "long": lambda: made(
        requests(1500, 3000), "ttft=0.2s,tpot=30ms,e2e=2s,itl=90ms", ["prompt_length", "output_length"]
    ),
    "far apart": lambda: made(requests(600, 900, spread=3.0), ["a:ttft=1us,tpot=1us", "b:ttft=1000s,tpot=100s"]),
    "close together": lambda: made(requests(300, 60, spread=0.25), "ttft=0.15s,tpot=20ms"),
    "no slo": lambda: made(requests(300, 60)),
    "many sets": lambda: made(
        requests(200, 60),
        [f"set{'-of-a-long-name' * (i % 3)}{i}:ttft={100 + 40 * i}ms,tpot={10 + i}ms" for i in range(9)],
    ),
    "many classes": lambda: made(
        requests(700, 60, labels=[f"{HOSTILE} {i} {'long' * 40}" for i in range(300)]),
        "ttft=0.2s,tpot=30ms",
        ["tenant"],
        name=f"{HOSTILE}.jsonl",
    ),
    "10,000 bins": lambda: made(requests(900, 9000), "ttft=0.2s,tpot=30ms", timeline_ns=SECOND, bins=10_000),
    "no timeline": lambda: made(requests(50, 60), "ttft=0.2s,tpot=30ms", timeline_ns=None),
    "cut": lambda: made(
        requests(400, 100),
        "ttft=0.2s,tpot=30ms",
        from_ns=1_764_000_020 * SECOND,
        to_ns=1_764_000_060 * SECOND,
    ),
    "one token": lambda: made(same(1, [10 * MS]), "ttft=1s,tpot=1s", ["tenant"]),
    "one request": lambda: made(same(1, [10 * MS, 20 * MS, 35 * MS]), "ttft=1s,tpot=1s", ["tenant"]),
    "one token each": lambda: made(same(300, [10 * MS]), "ttft=20ms,tpot=1s"),
    "all alike": lambda: made(same(300, [10 * MS, 20 * MS, 30 * MS]), "ttft=11ms,tpot=20ms"),
    "all zero": lambda: made(same(50, [0, 0, 0]), "ttft=11ms,tpot=20ms"),
    "no token": lambda: made(same(20, [], "error"), "ttft=11ms,tpot=20ms", ["tenant"]),
    "in flight": lambda: made(
        [{"t_ns": i * MS, "id": str(i), "ev": "arrive"} for i in range(9)], "ttft=1s,tpot=1s", ["tenant"]
    ),
    "nothing": lambda: made([{"t_ns": 1, "ev": "gauge"}], "ttft=1s,tpot=1s", ["tenant"]),
    "a stat logger": lambda: tokenpulse.report(
        FIXTURES / "tools/stat_logger.jsonl.gz", timeline="auto", slo="ttft=1s,tpot=1s", by="engine"
    ),
    "a trace": lambda: tokenpulse.report(
        FIXTURES / "mooncake_conversation.jsonl.gz", timeline="1s", slo="ttft=1s,tpot=1s"
    ),
}


@cache
def report_of(kind: str) -> Report:
    return REPORTS[kind]()


@cache
def text_of(kind: str) -> str:
    """The page of a report, made once for all tests."""
    return html.render(report_of(kind))


VOID = {"meta", "br", "hr", "link", "img", "input", "base", "source", "embed", "col", "area", "track", "wbr"}


class Page(HTMLParser):
    """A page as a browser takes it apart: its elements in order, and the text of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((tuple(self.open), data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        """What can be read."""
        return " ".join(text for place, text in self.texts if "style" not in place).replace("\xa0", " ")
