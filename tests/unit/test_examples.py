"""The programs in examples/ run as written, and what they print adds up."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tokenpulse import Meter

ROOT = Path(__file__).parents[2]

FAMILIES = {
    "requests_total": "counter",
    "requests_in_flight": "gauge",
    "requests_ended_total": "counter",
    "output_tokens_total": "counter",
    "preemptions_total": "counter",
    "ttft_seconds": "gauge",
    "itl_seconds": "gauge",
    "tpot_seconds": "gauge",
    "goodput_requests_per_second": "gauge",
    "queue_depth": "gauge",
    "kv_utilization": "gauge",
    "open_gap_oldest_seconds": "gauge",
    "open_gaps": "gauge",
}
SAMPLE = re.compile(r'llm_(?P<family>\w+)(\{\w+="[^"]+"\})? \d+(\.\d+)?(e[+-]\d+)?')


def test_an_engine_in_miniature(tmp_path: Path) -> None:
    path = tmp_path / "engine.meter"
    command = [sys.executable, "examples/engine_loop.py", "--seconds", "1.2", "--path", str(path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    printed, *_, last = ran.stdout.split("\n\n")

    lines = printed.splitlines()
    comments = [line.split() for line in lines if line.startswith("#")]
    assert FAMILIES.items() <= {name.removeprefix("llm_"): kind for _, _, name, kind in comments}.items()
    samples = [SAMPLE.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(samples), printed
    assert {match["family"] for match in samples if match} >= {"requests_total", "itl_seconds", "open_gaps"}
    assert all(f'llm_{metric}_seconds{{quantile="{q}"}}' in printed for metric in ("ttft", "tpot") for q in (0.5, 0.99))

    accounted = re.search(r"^attempted (\d+) = (.*)$", last, re.MULTILINE)
    assert accounted is not None, last
    parts = {name: int(n) for name, n in (part.split() for part in accounted[2].split(" + "))}
    assert list(parts) == ["succeeded", "failed", "aborted", "rejected", "lost", "in_flight"]
    assert sum(parts.values()) == int(accounted[1]) > 10
    assert "refused: {}" in last

    # The file tells the same after the engine has ended.
    reader = Meter.open(path)
    assert not reader.alive
    assert reader.snapshot().total.counts["attempted"] == int(accounted[1])
