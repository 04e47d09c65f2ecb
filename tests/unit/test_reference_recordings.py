"""The reference over recordings of a real engine gives the figures of the engine and of an independent count."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tokenpulse import engine
from tokenpulse.model import SLO
from tokenpulse.reference import reduce, reduce_lines

FIXTURES = Path(__file__).parents[1] / "fixtures"


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def statuses(total: dict[str, Any]) -> int:
    return sum(total["by_status"].values())


@pytest.mark.parametrize("read", [reduce, engine.reduce_paths], ids=["reference", "core"])
@pytest.mark.parametrize(
    ("run", "lines", "known", "by_status", "first_tokens"),
    [
        # The engine's own counters in the same runs, and what its clients saw:
        # requests, tokens, preemptions; ends; requests with a first token.
        ("run", 21592, (320, 17525, 32), {"length": 242, "stop": 60, "abort": 18}, 312),
        ("run_async", 15460, (195, 12579, 51), {"length": 172, "stop": 4, "abort": 19}, 189),
    ],
)
def test_a_whole_run_gives_the_engines_sums(
    read: Any, run: str, lines: int, known: tuple[int, int, int], by_status: dict[str, int], first_tokens: int
) -> None:
    found = read([str(FIXTURES / f"{run}.jsonl.gz")])
    total = found["total"]
    assert found["inputs"][0]["lines"] == lines
    assert (found["rejected"], found["clamped"], found["notices"]) == ({}, 0, [])
    assert (total["attempted"], total["output_tokens"], total["preemptions"]) == known
    assert total["attempted"] == statuses(total)
    assert total["by_status"] == by_status
    assert total["latency"]["ttft"].count == first_tokens
    assert total["latency"]["e2e"].count == by_status["length"] + by_status["stop"]
    # One token an emission: every token but the first of a request has a gap.
    assert total["latency"]["itl"].count == total["output_tokens"] - first_tokens


def test_requests_of_one_token_and_of_none() -> None:
    """In the first run 38 requests have one token, and 8 none."""
    path = FIXTURES / "run.jsonl.gz"
    found = reduce([str(path)])["total"]
    assert found["missing"]["ttft"] == 8
    lines = gzip.decompress(path.read_bytes()).splitlines()
    events = [event for event in map(json.loads, lines) if "id" in event]
    tokens = Counter(event["id"] for event in events if event["ev"] == "tokens")
    assert Counter(tokens.values())[1] == 38
    ended_well = {event["id"] for event in events if event.get("status") in ("stop", "length")}
    assert found["latency"]["tpot"].count == sum(tokens[name] >= 2 for name in ended_well)
    assert found["latency"]["e2e"].count == sum(tokens[name] >= 1 for name in ended_well)


@pytest.mark.parametrize("name", ["demo_events.jsonl", "demo_requests.jsonl"])
def test_goodput_adds_up(name: str) -> None:
    slos = [SLO(ttft=0.2, tpot=0.03), SLO(ttft=1e9, tpot=1e9), SLO(ttft=1e-9, tpot=1e-9)]
    found = reduce([str(FIXTURES / name)], slos, by=["prompt_length"], timeline_ns=10**9)
    total = found["total"]
    judged = statuses(total) - total["by_status"].get("abort", 0)
    succeeded = total["by_status"].get("stop", 0) + total["by_status"].get("length", 0)
    for slo in total["slos"]:
        assert slo["good"] + sum(slo["missed"].values()) == judged
        assert slo["good"] <= succeeded
    assert total["slos"][1]["good"] == succeeded  # all are good when the limits are out of reach
    assert total["slos"][2]["good"] == 0
    for parts in (found["by"], found["timeline"]["bins"]):
        for count in ("attempted", "output_tokens", "preemptions", "prompt_tokens"):
            assert sum(part["block"][count] for part in parts) == total[count]
        for metric, whole in total["latency"].items():
            union = parts[0]["block"]["latency"][metric].copy()
            for part in parts[1:]:
                union.merge(part["block"]["latency"][metric])
            assert union == whole


def test_requests_seen_by_a_client() -> None:
    """Every figure again from the fixture's own fields."""
    lines = lines_of(FIXTURES / "demo_requests.jsonl")
    total = reduce([str(FIXTURES / "demo_requests.jsonl")])["total"]
    assert total["attempted"] == len(lines) == 60
    assert total["output_tokens"] == sum(sum(line["n"]) for line in lines)
    assert total["prompt_tokens"] == sum(line.get("prompt_tokens", line.get("ctx", 0)) for line in lines)
    assert total["latency"]["ttft"].sum_ns == sum(line["dt_ns"][0] for line in lines)
    assert total["latency"]["e2e"].sum_ns == sum(line["dt_ns"][-1] for line in lines)
    gaps = [(b - a, k) for x in lines for a, b, k in zip(x["dt_ns"], x["dt_ns"][1:], x["n"][1:], strict=False)]
    assert total["latency"]["itl"].count == sum(k for _, k in gaps)
    assert total["latency"]["itl"].sum_ns == sum(gap for gap, _ in gaps)


def test_gzip_is_told_by_content() -> None:
    content = (FIXTURES / "demo_requests.jsonl").read_bytes()
    plain = reduce_lines([("log", content)])
    for packed in (gzip.compress(content), gzip.compress(content[:5000]) + gzip.compress(content[5000:])):
        again = reduce_lines([("log", packed)])
        assert again["inputs"] == plain["inputs"]
        assert again["total"]["latency"] == plain["total"]["latency"]


@pytest.mark.parametrize("lost", [1, 8, 40])
def test_what_comes_before_the_damage_counts(lost: int) -> None:
    content = b'{"ev": "arrive", "t_ns": 1, "id": "a"}\n' * 2000 + b'{"ev": "ready"'
    found = reduce_lines([("log", gzip.compress(content)[:-lost])])
    whole = found["inputs"][0]["lines"]
    assert whole == 2000 or lost == 40
    assert found["inputs"][0]["skipped"] == {"truncated": 1}  # and not the line that has no end
    assert found["rejected"] == {"duplicate": whole - 1}


def test_a_wrong_checksum_is_damage() -> None:
    content = b'{"ev": "ready", "t_ns": 1}\n' * 10
    packed = gzip.compress(content)
    found = reduce_lines([("log", packed[:-8] + bytes(8))])
    assert (found["inputs"][0]["lines"], found["inputs"][0]["skipped"]) == (10, {"truncated": 1})
    assert [(notice["line"], notice["reason"]) for notice in found["notices"]] == [(11, "truncated")]
