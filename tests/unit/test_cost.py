"""What a run cost: worked out by hand, shared out exactly, and the same for groups, requests and live meters."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import FIXTURES, misuse, run
from random_logs import event_lines, request_lines

import tokenpulse
from tokenpulse import Meter
from tokenpulse.analysis.cost import COST_BY, Price, busy_metrics, shared_out
from tokenpulse.converting.rows import Rows
from tokenpulse.converting.verdicts import busy_metrics_of, costs
from tokenpulse.reporting.json import dumps

MS = 1_000_000
S = 1_000_000_000
RULES = pytest.mark.parametrize("by", COST_BY)


def written(folder: Path, *contents: bytes | list[dict[str, Any]]) -> list[Path]:
    paths = []
    for number, content in enumerate(contents):
        paths.append(folder / f"{number}.jsonl")
        text = content if isinstance(content, bytes) else b"".join(json.dumps(one).encode() + b"\n" for one in content)
        paths[-1].write_bytes(text)
    return paths


TWO = [
    # 10 s in all. Of tenant a: scheduled at 1 s, tokens at 2, 3 and 5 s: busy for 4 s.
    {
        "id": "1",
        "arrive_ns": 0,
        "schedule_ns": 1 * S,
        "prompt_tokens": 100,
        "labels": {"tenant": "a"},
        "token_ns": [2 * S, 3 * S, 5 * S],
        "status": "stop",
    },
    # Of b: scheduled at 2 s, prefill from 3 s, one token at 4 s and four at 10 s: busy for 8 s. Its TPOT is 1.5 s.
    {
        "id": "2",
        "arrive_ns": 0,
        "schedule_ns": 2 * S,
        "prefill_ns": 3 * S,
        "prompt_tokens": 80,
        "token_ns": [4 * S, 10 * S],
        "n": [1, 4],
        "status": "length",
        "labels": {"tenant": "b"},
    },
    # Of b too: scheduled, but out of memory before its first token: no time that a metric knows.
    {
        "id": "3",
        "arrive_ns": 0,
        "schedule_ns": 2 * S,
        "prompt_tokens": 12,
        "end_ns": 5 * S,
        "status": "oom",
        "labels": {"tenant": "b"},
    },
]


def test_a_run_worked_out_by_hand(tmp_path: Path) -> None:
    (path,) = written(tmp_path, TWO)
    made = tokenpulse.report(
        path, slo=["ttft=10s,tpot=1.5s", "none:ttft=1s,tpot=1s"], gpu_hour=3.6, gpus=4, by="tenant"
    )
    cost = made.cost
    assert cost is not None
    # 4 GPUs for 10 s at 3.6 / 3600 a second: 0.04; 8 output tokens, 200 in all, 3 requests.
    assert (cost["gpus"], cost["gpu_hour"], cost["seconds"], cost["gpu_seconds"]) == (4, 3.6, 10.0, 40.0)
    assert cost["total"] == pytest.approx(0.04, rel=1e-15)
    assert cost["per_1k_output_tokens"] == pytest.approx(1000 * 0.04 / 8)
    assert cost["per_1k_total_tokens"] == pytest.approx(1000 * 0.04 / 200)
    assert cost["per_request"] == pytest.approx(0.04 / 3)
    # TTFT of 2 s, TPOT of 1.5 s each: one is not under 1.5 s. Nobody is good for the other set.
    assert cost["per_good_request"] == {"default": None, "none": None}
    assert (cost["by"], cost["busy_is"]) == ("output", None)
    first, second = cost["parts"]
    assert (first["key"], first["weight"], first["other"]) == ({"tenant": "a"}, 3, False)
    assert first["share"] == 3 / 8
    assert first["cost"] == pytest.approx(0.04 * 3 / 8)
    assert second["per_request"] == pytest.approx(0.04 * 5 / 8 / 2)
    assert second["per_1k_total_tokens"] == pytest.approx(1000 * 0.04 * 5 / 8 / 97)
    assert cost["unattributed"] == {"weight": 0, "share": 0.0, "cost": 0.0}


@pytest.mark.parametrize(("by", "weights"), [("output", (3, 5)), ("total", (103, 97)), ("busy", (4.0, 8.0))])
def test_each_rule_worked_out_by_hand(tmp_path: Path, by: str, weights: tuple[float, float]) -> None:
    (path,) = written(tmp_path, TWO)
    settings = {"gpu_hour": 3.6, "gpus": 4, "cost_by": by}
    made = tokenpulse.report(path, slo="ttft=5s,tpot=2s", by="tenant", **settings)
    assert made.cost is not None
    assert made.cost["per_good_request"] == {"default": made.cost["total"] / 2}
    parts = made.cost["parts"]
    assert tuple(one["weight"] for one in parts) == weights
    assert [one["cost"] for one in parts] == pytest.approx([0.04 * one / sum(weights) for one in weights])
    assert made.cost["busy_is"] == (["scheduling", "prefill", "itl"] if by == "busy" else None)
    # The requests of the same run, as convert writes them.
    tokenpulse.convert(path, tmp_path / "out.jsonl", **settings)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    each = {row["id"]: row[f"cost.{by}"] for row in rows}
    assert each["1"] == parts[0]["cost"]
    assert each["2"] + each["3"] == parts[1]["cost"]


def test_no_price_is_no_cost(tmp_path: Path) -> None:
    (path,) = written(tmp_path, TWO)
    made = tokenpulse.report(path)
    assert made.cost is None
    assert not [name for name in made.absent if name.startswith("cost")]


def test_a_cut_costs_what_its_time_costs(tmp_path: Path) -> None:
    late = [{**one, "id": f"late {one['id']}", "arrive_ns": 1 * S} for one in TWO]
    (path,) = written(tmp_path, [*TWO, *late])
    made = tokenpulse.report(path, to="500ms", gpu_hour=3600)
    assert made.cost is not None
    assert made.cost["seconds"] == made.span_seconds == 0.5
    assert (made.cost["total"], made.cost["per_request"]) == (0.5, 0.5 / 3)


# Busy time


def test_busy_time_is_made_of_what_is_known(tmp_path: Path) -> None:
    unscheduled = [{name: one[name] for name in one if name not in ("schedule_ns", "prefill_ns")} for one in TWO]
    untimed = [
        {"id": tenant, "arrive_ns": 0, "first_token_ns": S, "last_token_ns": last, "labels": {"tenant": tenant}}
        | {"output_tokens": 9}
        for tenant, last in (("a", 4 * S), ("b", 6 * S))
    ]
    scheduled = [one | {"schedule_ns": S // 2} for one in untimed]
    at_once = [one | {"last_token_ns": S, "output_tokens": 1} for one in scheduled]
    for content, busy_is, weights in (
        (unscheduled, ["ttft", "itl"], [5.0, 10.0]),
        (untimed, ["e2e"], [4.0, 6.0]),
        (scheduled, ["e2e"], [4.0, 6.0]),
        (at_once, ["scheduling", "prefill", "itl"], [0.5, 0.5]),
    ):
        (path,) = written(tmp_path, content)
        made = tokenpulse.report(path, by="tenant", gpu_hour=1, cost_by="busy")
        assert made.cost is not None
        assert made.cost["busy_is"] == busy_is == list(busy_metrics_of([rows_of(path)]))
        assert [one["weight"] for one in made.cost["parts"]] == weights


def test_a_prefill_that_is_told_after_the_first_token(tmp_path: Path) -> None:
    events = [
        {"t_ns": 0, "id": "1", "ev": "arrive"},
        {"t_ns": 1 * S, "id": "1", "ev": "schedule"},
        {"t_ns": 2 * S, "id": "1", "ev": "tokens"},
        {"t_ns": 3 * S, "id": "1", "ev": "prefill"},
        {"t_ns": 5 * S, "id": "1", "ev": "tokens"},
        {"t_ns": 6 * S, "id": "2", "ev": "arrive"},
        {"t_ns": 7 * S, "id": "2", "ev": "schedule"},
        {"t_ns": 9 * S, "id": "2", "ev": "prefill"},
    ]
    reported, converted = both(written(tmp_path, events), "busy", "tenant")
    # From schedule to first token 1 s, 3 s of gaps, 2 s to the late prefill; and 2 s of one without a token.
    assert reported["parts"][0]["weight"] == 8.0
    assert converted[None] == pytest.approx(reported["total"])


def both(paths: list[Path], by: str, key: str) -> tuple[dict[str, Any], dict[Any, float]]:
    """The cost of a report, and that of convert's requests added up by a label."""
    made = tokenpulse.report(paths, by=key, gpu_hour=3.6, gpus=4, cost_by=by)
    assert made.cost is not None
    output = paths[0].with_name("out.jsonl")
    converted = tokenpulse.convert(paths, output, gpu_hour=3.6, gpus=4, cost_by=by)
    assert converted.cost == made.cost["total"]
    found: dict[Any, float] = defaultdict(float)
    shown = []
    for line in output.read_text().splitlines():
        row = json.loads(line)
        if f"cost.{by}" in row:
            shown.append(row[f"cost.{by}"])
            found[row.get("labels", {}).get(key)] += shown[-1]
    assert math.fsum(shown) == sum(shown) == made.cost["total"]
    return made.cost, found


@RULES
@pytest.mark.parametrize("seed", range(4))
def test_reports_and_conversions_agree(tmp_path: Path, by: str, seed: int) -> None:
    """Over random logs with failures, untimed tokens, preemptions, requests without a schedule or a token."""
    paths = written(tmp_path, request_lines(seed, 120), event_lines(seed + 50, 80))
    reported, converted = both(paths, by, "tenant")
    assert len(reported["parts"]) == len(converted) > 3
    for one in reported["parts"]:
        assert one["cost"] == pytest.approx(converted[one["key"]["tenant"]], rel=1e-12)
    assert reported["unattributed"]["weight"] == 0


@RULES
@pytest.mark.parametrize("seed", range(4))
def test_requests_in_flight_have_their_part(tmp_path: Path, by: str, seed: int) -> None:
    paths = written(tmp_path, event_lines(seed, 100, left_open=True))
    made = tokenpulse.report(paths, by="tenant", gpu_hour=1, cost_by=by)
    assert made.requests["in_flight"] > 0
    assert made.cost is not None
    with_price = Price(1, 1, by)
    rows = rows_of(paths[0])
    found = costs(with_price, [rows])
    assert found is not None
    assert found[0] == made.cost["total"]
    codes, texts = rows.labels["tenant"]
    for one in made.cost["parts"]:
        tenant = one["key"]["tenant"]
        mine = codes == (-1 if tenant is None else texts.index(tenant))
        assert one["cost"] == pytest.approx(found[1][0][mine].sum(), rel=1e-12)
    assert made.cost["busy_is"] in (None, list(busy_metrics_of([rows])))


def rows_of(path: Path) -> Rows:
    from tokenpulse import engine

    return Rows.of(str(path), engine.read_rows([str(path)], 3600 * S, max_tokens=10**6))


@RULES
@pytest.mark.parametrize("key", ["tenant", "prompt_length", "output_length"])
def test_parts_add_up_to_the_whole_exactly(tmp_path: Path, by: str, key: str) -> None:
    paths = written(tmp_path, request_lines(7, 60), event_lines(8, 60, left_open=True))
    for gpu_hour in (2.5, 1e-9, 1234.567, math.pi):
        cost = tokenpulse.report(paths, by=key, gpu_hour=gpu_hour, gpus=3, cost_by=by).cost
        assert cost is not None
        parts = [one["cost"] for one in cost["parts"]] + [cost["unattributed"]["cost"]]
        assert sum(parts) == sum(reversed(parts)) == math.fsum(parts) == cost["total"]
        assert min(parts) >= 0
        shares = [one["share"] for one in (*cost["parts"], cost["unattributed"])]
        assert sum(shares) == pytest.approx(1)
        assert parts == pytest.approx([share * cost["total"] for share in shares])


@pytest.mark.parametrize("seed", range(50))
def test_sharing_out_is_exact(seed: int) -> None:
    rng = random.Random(seed)
    whole = rng.choice([0.1, 1.0, math.pi, 1e-300, 5e-324, 1e300, rng.random(), rng.uniform(1, 1e9)])
    most = rng.choice([1, 10, 10**9, 10**30])
    weights = [rng.choice([0, rng.randrange(most + 1)]) for _ in range(rng.randrange(1, 200))] + [most]
    rng.shuffle(weights)
    given = np.array(weights) if most < 10**10 and seed % 2 else weights
    parts = shared_out(whole, given)
    assert parts is not None
    found = parts.tolist()
    assert sum(found) == sum(sorted(found)) == math.fsum(found) == whole
    for weight, part in zip(weights, found, strict=True):
        exact = Fraction(whole) * weight / sum(weights)
        assert abs(Fraction(part) - exact) <= 2 * Fraction(math.ulp(whole))
        assert weight or part == 0


def test_busy_time_by_output_length_is_not_known_of_event_lines(tmp_path: Path) -> None:
    (path,) = written(tmp_path, event_lines(3, 60))
    made = tokenpulse.report(path, by="output_length", gpu_hour=1, cost_by="busy")
    assert made.cost is not None
    assert made.cost["total"] > 0
    assert {one[name] for one in made.cost["parts"] for name in ("share", "cost", "per_request")} == {None}
    assert made.cost["unattributed"]["cost"] is None
    assert made.absent["cost.unattributed.cost"] == "nothing to share the cost by, or not known of the groups"
    by_tokens = tokenpulse.report(path, by="output_length", gpu_hour=1, cost_by="output").cost
    assert by_tokens is not None
    assert by_tokens["parts"][0]["cost"] > 0


def test_nothing_to_share_by() -> None:
    assert shared_out(1.0, []) is None
    assert shared_out(1.0, [0, 0]) is None
    assert busy_metrics({}) == ("e2e",)


# What cannot be told


def test_without_a_time_there_is_no_cost_and_a_reason(tmp_path: Path) -> None:
    (path,) = written(tmp_path, [{"id": "1", "arrive_ns": 5, "labels": {"tenant": "a"}}])
    made = tokenpulse.report(path, by="tenant", gpu_hour=1)
    assert made.cost is not None
    assert (made.cost["total"], made.cost["per_request"], made.cost["parts"][0]["cost"]) == (None, None, None)
    judged = tokenpulse.report(path, slo="ttft=1s,tpot=1s", gpu_hour=1)
    assert judged.absent["cost.per_good_request"] == "needs the cost in all, and a good request"
    assert made.absent["cost.total"] == "no time from the first arrival to the last token"
    json.loads(dumps(made), parse_constant=pytest.fail)


TOOLS = sorted((FIXTURES / "tools").glob("*.gz")) + sorted((FIXTURES / "tools").glob("*.csv"))


@RULES
@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.name)
def test_files_of_tools_have_a_cost_or_a_reason(path: Path, by: str) -> None:
    made = tokenpulse.report(path, slo="ttft=1s,tpot=50ms", gpu_hour=2.5, gpus=8, cost_by=by)
    cost = made.cost
    assert cost is not None
    for name in ("total", "per_1k_output_tokens", "per_1k_total_tokens", "per_request"):
        assert (cost[name] is None) == (f"cost.{name}" in made.absent)
    if made.tokens["prompt"] is None:
        assert cost["per_1k_total_tokens"] is None
    if cost["total"] is not None:
        assert cost["total"] == pytest.approx(made.span_seconds * 8 * 2.5 / 3600)
    json.loads(dumps(made), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gpu_hour": 0}, "gpu_hour must be a number above 0, got 0"),
        ({"gpu_hour": math.nan}, "gpu_hour must be a number above 0, got nan"),
        ({"gpu_hour": "2"}, "gpu_hour must be a number above 0, got '2'"),
        ({"gpu_hour": 1e12}, r"gpu_hour must be below 1e\+12, got 1000000000000.0"),
        ({"gpu_hour": 1, "gpus": -1}, "gpus must be a number above 0, got -1"),
        ({"gpu_hour": 1, "gpus": True}, "gpus must be a number above 0, got True"),
        ({"gpu_hour": 1, "cost_by": "time"}, "cost_by must be one of output, total, busy, got 'time'"),
        ({"gpus": 8}, "gpus needs gpu_hour"),
        ({"cost_by": "busy"}, "cost_by needs gpu_hour"),
    ],
)
def test_misuse(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    (path,) = written(tmp_path, TWO)
    for call in (
        lambda: tokenpulse.report(path, **given),
        lambda: tokenpulse.convert(path, tmp_path / "out.jsonl", **given),
    ):
        with pytest.raises(ValueError, match=message):
            call()


# Live


def live() -> Meter:
    """Two tenants: 3 and 5 output tokens, 100 and 80 of prompts; 2 s after the first event."""
    meter = Meter("chat:ttft=1500ms,tpot=1s")
    a, b = (meter.classify(tenant=tenant) for tenant in "ab")
    one, two = meter.arrive(0, [100, 80], [0, 0], [a, b]).tolist()
    meter.schedule(100 * MS, [one, two])
    meter.step(500 * MS, [one, two])
    meter.step(700 * MS, one, 2)
    meter.step(1700 * MS, two, 4)
    meter.end(1700 * MS, [one, two], "stop")
    return meter


def test_the_cost_of_a_meter_and_of_its_windows() -> None:
    snapshot = live().snapshot(2 * S)
    for view in (snapshot.total, snapshot.window("1m")):
        cost = view.cost(3600, 2)
        assert (cost["seconds"], cost["gpu_seconds"], cost["total"]) == (2.0, 4.0, 4.0)
        assert (cost["per_1k_output_tokens"], cost["per_request"]) == (500.0, 2.0)
        assert cost["per_good_request"] == {"chat": 2.0}
        assert [(one["key"], one["cost"]) for one in cost["parts"]] == [
            ({"tenant": "a"}, 1.5),
            ({"tenant": "b"}, 2.5),
        ]
        busy = view.cost(3600, 2, "busy")
        assert [one["weight"] for one in busy["parts"]] == [0.6, 1.6]
        assert sum(one["cost"] for one in busy["parts"]) + busy["unattributed"]["cost"] == 4.0
        json.dumps(cost, allow_nan=False)
    # A window in which nothing was done costs as much, and nobody has a part in it.
    idle = live().snapshot(30 * S).window("15s").cost(3600)
    assert (idle["total"], idle["per_request"]) == (pytest.approx(15, rel=0.02), None)
    assert [one["cost"] for one in idle["parts"]] == [None] * 2


def test_a_meter_costs_what_the_report_of_its_log_costs(tmp_path: Path) -> None:
    """But for the time: a meter's runs until it is read."""
    (path,) = written(
        tmp_path,
        [
            {"id": "1", "arrive_ns": 0, "schedule_ns": 100 * MS, "token_ns": [500 * MS, 700 * MS], "n": [1, 2],
             "prompt_tokens": 100, "labels": {"tenant": "a"}},
            {"id": "2", "arrive_ns": 0, "schedule_ns": 100 * MS, "token_ns": [500 * MS, 1700 * MS], "n": [1, 4],
             "prompt_tokens": 80, "labels": {"tenant": "b"}},
        ],
    )  # fmt: skip
    for by in COST_BY:
        reported = tokenpulse.report(path, slo="chat:ttft=1500ms,tpot=1s", by="tenant", gpu_hour=2, cost_by=by).cost
        metered = live().snapshot(1700 * MS).total.cost(2, cost_by=by)
        assert reported is not None
        assert metered == reported


def test_a_class_is_a_part_and_has_no_cost_of_its_own() -> None:
    view = live().snapshot().total.where(tenant="a")
    with pytest.raises(ValueError, match="cost is of a view of all requests"):
        view.cost(1)
    with pytest.raises(ValueError, match="gpu_hour must be a number above 0"):
        live().snapshot().total.cost(-1)
    empty = Meter().snapshot().total.cost(1)
    assert (empty["total"], empty["seconds"], empty["parts"], empty["unattributed"]) == (None, None, [], None)


# The command


def test_the_command_tells_the_cost() -> None:
    price = ("--gpu-hour", "2.50", "--gpus", "8", "--cost-by", "busy")
    slo = ("--slo", "ttft=100ms,tpot=6ms", "--by", "tenant")
    done = run("report", "demo_events.jsonl", *slo, *price)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    section = text[text.index("\nCost\n") :]
    for line in (
        "GPU-seconds",
        "cost",
        "per 1k output tokens",
        "per 1k total tokens",
        "per request",
        "per good request",
    ):
        assert f"\n{line}" in section
    assert "8 x 3.24 s of wall time" in section
    assert "Shared out by busy time (from schedule to last token)." in section
    found = json.loads(run("report", "demo_events.jsonl", *slo, *price, "--json").stdout)
    made = tokenpulse.report(
        FIXTURES / "demo_events.jsonl", slo="ttft=100ms,tpot=6ms", by="tenant", gpu_hour=2.5, gpus=8, cost_by="busy"
    )
    assert found["cost"] == made.cost
    assert "\nCost\n" not in run("report", "demo_events.jsonl", *slo).stdout.decode()


def test_the_page_shows_the_cost(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("report", "demo_events.jsonl", "--by", "tenant", "--gpu-hour", "2.5", "--html", page, "--json")
    assert "Each group" in page.read_text()
    assert 'id="cost"' in page.read_text()


@RULES
def test_merged_sketches_cost_what_their_runs_cost_together(tmp_path: Path, by: str) -> None:
    paths = written(tmp_path, request_lines(1, 40), request_lines(2, 40))
    saved = [path.with_suffix(".sketches") for path in paths]
    for path, kept in zip(paths, saved, strict=True):
        assert run("report", path, "--by", "tenant", "--sketches", kept, "--json").returncode == 0
    merged = json.loads(run("merge", *saved, "--gpu-hour", "2.5", "--gpus", "8", "--cost-by", by, "--json").stdout)
    made = tokenpulse.report(paths, by="tenant", gpu_hour=2.5, gpus=8, cost_by=by)
    assert merged["cost"] == made.cost
    assert json.loads(run("merge", *saved, "--json").stdout)["cost"] is None


def test_what_is_of_no_group_is_told(tmp_path: Path) -> None:
    (path,) = written(tmp_path, event_lines(3, 40, left_open=True))
    cost = tokenpulse.report(path, by="output_length", gpu_hour=1, cost_by="output").cost
    assert cost is not None
    assert cost["unattributed"]["cost"] > 0
    assert "(in no group)" in run("report", path, "--by", "output_length", "--gpu-hour", "1").stdout.decode()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--gpus", "8"), "--gpus needs --gpu-hour, the price of a GPU for an hour"),
        (("--cost-by", "busy"), "--cost-by needs --gpu-hour, the price of a GPU for an hour"),
        (("--gpu-hour", "-1"), "gpu_hour must be a number above 0, got -1.0"),
    ],
)
def test_misuse_of_the_command_is_one_line(given: tuple[str, ...], message: str) -> None:
    assert misuse(run("report", "demo_events.jsonl", *given)) == message
