"""Diagnosis: a current stretch of a run held against a baseline, and what the difference is likely due to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenpulse.analysis.diagnosis.checks import Judged, Lacking, Pair
from tokenpulse.analysis.diagnosis.contrast import Contrast
from tokenpulse.analysis.diagnosis.explains import ordered
from tokenpulse.analysis.diagnosis.rows import ROWS, Case, batch_filled
from tokenpulse.analysis.diagnosis.words import BURSTS, WORDS
from tokenpulse.analysis.stretch import Stretch

__all__ = ["ROWS", "Case", "Contrast", "Finding", "NotJudged", "judge"]


@dataclass(frozen=True)
class Finding:
    """A row that holds."""

    row: str
    symptom: str
    cause: str
    action: str
    strength: float
    """The smallest ratio of a figure to its threshold, over 1; no more than that of the row that explains it."""
    evidence: Mapping[str, Pair]
    """Each figure of the baseline and of the current stretch."""
    explained_by: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As an object that JSON can hold."""
        return {
            "row": self.row,
            "symptom": self.symptom,
            "cause": self.cause,
            "action": self.action,
            "strength": self.strength,
            "explained_by": self.explained_by,
            "evidence": {name: list(pair) for name, pair in self.evidence.items()},
        }


@dataclass(frozen=True)
class NotJudged:
    """A row whose inputs are absent."""

    row: str
    needs: str

    def to_dict(self) -> dict[str, Any]:
        """As an object that JSON can hold."""
        return {"row": self.row, "needs": self.needs}


def judge(
    base: Stretch,
    current: Stretch,
    *,
    machine: Mapping[str, float] | None = None,
    tpot_limit: float | None = None,
) -> tuple[list[Finding], list[NotJudged]]:
    """The rows that hold, strongest first and causes before effects, and those that could not be judged.

    `machine` tells `peak_flops` (FLOP/s) and `bandwidth_bytes_per_second`, of all GPUs together; `tpot_limit` is the
    tightest TPOT limit (s) of the SLO sets.
    """
    case = Case.of(base, current, machine, tpot_limit)
    outcomes = {row: predicate(case) for row, predicate in ROWS.items()}
    held = {row: one for row, one in outcomes.items() if isinstance(one, Judged) and one.holds}
    findings = [
        _finding(row, strength, held[row].evidence, by)
        for row, strength, by in ordered({row: one.strength for row, one in held.items()}, filled=batch_filled(current))
    ]
    return findings, [NotJudged(row, one.needs) for row, one in outcomes.items() if isinstance(one, Lacking)]


def _finding(row: str, strength: float, evidence: Mapping[str, Pair], by: str | None) -> Finding:
    words = WORDS[row]
    cause, action = words.cause, words.action
    if row == "p99-swings":
        bursts = [name for name in BURSTS if _bursts(evidence, name)]
        if len(bursts) == 1:
            cause, action = BURSTS[bursts[0]]
    return Finding(row, words.symptom, cause, action, strength, evidence, by)


def _bursts(evidence: Mapping[str, Pair], name: str) -> bool:
    peak = evidence.get(name, (None, None))[1]
    usual = evidence.get(name.replace("_in_worst_tenth", "_median"), (None, None))[1]
    return peak is not None and usual is not None and peak > 3 * usual
