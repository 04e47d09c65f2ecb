"""The progress bar: silent without a terminal, and within the first second."""

from __future__ import annotations

import io
import sys

import pytest

from tokenpulse.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, patience: float) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", patience)
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress_bar() as advance:
        for done in range(5):
            advance(done, 4)
        advance(5, 0)
    return stream.getvalue()


def test_nothing_is_drawn_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, io.StringIO(), patience=-1) == ""


def test_nothing_is_drawn_for_short_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, Terminal(), patience=60) == ""


def test_long_work_draws_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "reading" in drawn(monkeypatch, Terminal(), patience=-1)
