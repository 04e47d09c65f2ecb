"""The most memory that a report needs, of logs of one size and of ten times that.

    python benches/python/memory_report.py [FOLDER]

The whole command is measured, as a process of its own. The logs (0.5 and 5 GB each) are made in FOLDER, or where
temporary files are, and removed. BENCH_SMOKE=1 only sees that it works.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from conftest import SMOKE, WRITERS

SIZES = (2_000_000, 20_000_000) if SMOKE else (500_000_000, 5_000_000_000)
LIMIT = 100_000_000

# A child begins with the peak of the process that it is forked from: so a small one starts the command.
WATCH = (
    "import resource, subprocess, sys;"
    "subprocess.run(sys.argv[1:], check=True);"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"
)


def peak_of_report(log: Path) -> int:
    """Bytes of memory at most of `tokenpulse report LOG --json`, which must find requests."""
    command = [sys.executable, "-c", WATCH, sys.executable, "-m", "tokenpulse", "report", str(log), "--json"]
    watched = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(watched.stdout)["requests"]["attempted"] > 0
    # macOS counts bytes, Linux KiB.
    return int(watched.stderr) * (1 if sys.platform == "darwin" else 1024)


def main(folder: str | None) -> None:
    over = []
    with tempfile.TemporaryDirectory(dir=folder) as made:
        for kind, write in WRITERS.items():
            for size in SIZES:
                log = Path(made) / f"{kind}.jsonl"
                write(log, size)
                peak = peak_of_report(log)
                print(f"| {kind}, {log.stat().st_size / 1e9:.3g} GB | {peak / 1e6:.1f} MB |", flush=True)
                log.unlink()
                over += [f"{kind}, {size} bytes"] * (peak >= LIMIT)
    if over:
        sys.exit(f"over {LIMIT / 1e6:g} MB: {'; '.join(over)}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit("usage: memory_report.py [FOLDER]")
    main(sys.argv[1] if len(sys.argv) == 2 else None)
