"""What `import tokenpulse` offers, and what of it is loaded only when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tokenpulse

LATER = ("alerts", "analysis.diagnosis", "api", "comparing", "profiles", "readers", "run", "simulate", "sizing")


def test_every_name_is_there() -> None:
    assert [name for name in tokenpulse.__all__ if getattr(tokenpulse, name, None) is None] == []
    assert set(tokenpulse.__all__) <= set(dir(tokenpulse))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tokenpulse.nothing


def test_a_process_that_only_counts_loads_no_more() -> None:
    code = "import sys, tokenpulse; tokenpulse.Meter().snapshot(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "tokenpulse.snapshot" in loaded
    assert [name for name in LATER if f"tokenpulse.{name}" in loaded] == []
    assert not {"click", "rich", "matplotlib", "pyarrow"} & set(loaded)
