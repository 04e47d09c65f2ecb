"""The table of profiles: tools that agree share a row, nothing is cut where there is no room, runs come in turn."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from profiling import run, runs

from tokenpulse.profiles import PROFILES, profile, side_by_side
from tokenpulse.reporting import profile_table


def printed(profiles: dict, monkeypatch: pytest.MonkeyPatch, columns: int = 100) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    profile_table.write(SimpleNamespace(profiles=profiles), stream)
    return stream.getvalue()


def test_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = runs("aiperf_cancel.jsonl.gz")
    made = {name: profile(name, one, goodput={"ttft": 0.08, "tpot": 0.005}) for name in PROFILES}
    text = printed({**made, "all": side_by_side(one, profiles=made)}, monkeypatch)
    assert "aiperf, genai-perf" in text
    assert "n - 1 in the deviation (llmperf)" in " ".join(text.split())
    assert "Limits of goodput: ttft 80 ms, tpot 5 ms." in text
    for heading in ("TTFT, ms", "TPOT, ms", "ITL, ms", "E2E, ms", "rates"):
        assert heading in text
    assert text.count("Percentiles:") == 1


@pytest.mark.parametrize("columns", [30, 50, 80])
def test_nothing_is_cut(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = runs("guidellm_errors.json.gz")
    made = {name: profile(name, one) for name in PROFILES}
    made["all"] = side_by_side(one, profiles=made)
    words = printed(made, monkeypatch, 200).split()
    narrow = printed(made, monkeypatch, columns).split()
    rules = {word for word in (*words, *narrow) if set(word) <= {"\u2500", "-"}}
    assert sorted(set(words) - rules) == sorted(set(narrow) - rules)


def test_one_profile_tells_its_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed({"vllm": profile("vllm", run([0.1, 0.2, 0.1]))}, monkeypatch)
    assert "vllm: percentiles linear; TPOT (latency - ttft) / (N - 1);" in text
    assert "request_goodput (no limits were given)" in " ".join(text.split())


def test_several_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = runs("vllm_bench_append.jsonl.gz")
    made = [{"path": f"a.jsonl:{place}", **profile("vllm", one)} for place, one in enumerate(found, 1)]
    text = printed({"vllm": {"runs": made}}, monkeypatch)
    assert [f"of a.jsonl:{place}" in text for place in (1, 2, 3)] == [True] * 3
    assert text.count("TTFT, ms") == 3


def test_nothing_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed({}, monkeypatch) == ""
    assert "rates" in printed({"vllm": profile("vllm", run())}, monkeypatch)
