"""The `tokenpulse` command, run as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures"


def run(*args: object, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """What it says, and how it ends; never in a traceback. Paths may be those of fixtures."""
    done = subprocess.run(
        [sys.executable, "-m", "tokenpulse", *map(str, args)],
        input=stdin,
        capture_output=True,
        timeout=120,
        cwd=FIXTURES,
        env={**os.environ, "COLUMNS": "80", **environment},
    )
    assert b"Traceback" not in done.stderr
    assert b"Traceback" not in done.stdout
    return done


def misuse(done: subprocess.CompletedProcess[bytes]) -> str:
    """The one line that a misuse ends in."""
    lines = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (2, b"", 1), done.stderr
    assert lines[0].startswith("tokenpulse: error: ")
    return lines[0].removeprefix("tokenpulse: error: ")
