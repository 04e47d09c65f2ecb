"""Tables on terminals that are too narrow for them: no figure is cut, no word broken."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tokenpulse.reporting.layout import figures_table, show

FIXTURES = Path(__file__).parents[1] / "fixtures"
COMMANDS = {
    "events": ("kv", "run.jsonl.gz"),
    "a sample of events": ("kv", "run.jsonl.gz", "--sample", "0.1", "--remember", "100"),
    "vLLM": ("kv", "kv_events.jsonl"),
    "trace and curve": ("kv", "mooncake_conversation.jsonl.gz", "--blocks", "10000", "--curve", "--sizes", "7,12345"),
    "report": ("report", "demo_events.jsonl", "--slo", "chat:ttft=100ms,tpot=6ms", "--by", "tenant"),
    "a tool's file": ("report", "tools/vllm_bench_detailed.json.gz", "--profile", "all"),
    "a tool's figures": ("report", "tools/aiperf_cancel_summary.json.gz", "tools/inferencex_agg.json"),
    "workload": ("report", "mooncake_conversation.jsonl.gz"),
    "report over time": ("report", "demo_requests.jsonl", "--slo", "ttft=200ms,tpot=30ms", "--timeline", "500ms"),
}
NARROW = ("40", "60", "72")


def text_of(command: str, columns: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tokenpulse", *COMMANDS[command]],
        capture_output=True,
        timeout=120,
        cwd=FIXTURES,
        env={**os.environ, "COLUMNS": columns, "PYTHONIOENCODING": "utf-8"},
        check=True,
    )
    return done.stdout.decode()


def words(text: str) -> Counter[str]:
    """Figures and words, each as often as it is printed; rules are as long as there is room."""
    return Counter(word for word in text.split() if not re.fullmatch("[\u2500-]{2,}|#+", word))


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_cut(command: str) -> None:
    wide = words(text_of(command, "300"))
    assert sum(any(c.isdigit() for c in word) for word in wide) > 20
    for columns in NARROW:
        assert words(text_of(command, columns)) == wide, columns


@pytest.mark.parametrize("columns", NARROW)
@pytest.mark.parametrize("command", COMMANDS)
def test_rows_that_fit_do_so(command: str, columns: str) -> None:
    """Text is broken at the width; only tables of figures go beyond it, and never further than they must."""
    lines = text_of(command, columns).splitlines()
    notes = [line for line in lines if line.startswith("  ") and line.rstrip().endswith(".")]
    assert all(len(line) <= max(int(columns), 80) for line in notes)
    assert max(map(len, lines)) <= 85


def test_a_table_takes_the_room_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (1, 10, 30, 50, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        table = figures_table("name", "first figure", "second")
        table.add_row("a name of several words", "123,456,789 %", "381.7 ")
        stream = io.StringIO()
        show([table], stream)
        assert "123,456,789 %" in stream.getvalue()
        assert "381.7" in stream.getvalue()
        assert "first figure" in stream.getvalue()
        for word in ("name", "several", "words"):
            assert word in stream.getvalue()
