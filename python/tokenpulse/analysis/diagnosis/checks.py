"""What a row of the diagnosis table is made of: figures held against thresholds, and how far they are over them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenpulse.analysis.diagnosis.contrast import Contrast

Pair = tuple[float | None, float | None]
"""A figure of the baseline, and of the current stretch; None where it is not known."""


@dataclass(frozen=True)
class Judged:
    """A row that could be judged."""

    strength: float
    """The smallest ratio of a figure to its threshold: the row holds where every figure is past its own."""
    holds: bool
    evidence: Mapping[str, Pair]


@dataclass(frozen=True)
class Lacking:
    """A row that could not be judged, and what it needs for that."""

    needs: str


@dataclass
class Checks:
    """Figures that must all be past their thresholds, and those that are shown beside them."""

    evidence: dict[str, Pair] = field(default_factory=dict)
    ratios: list[float] = field(default_factory=list)
    holds: bool = True

    def show(self, name: str, base: float | None, current: float | None) -> None:
        """Tell a figure that decides nothing."""
        self.evidence[name] = (base, current)

    def over(self, figure: float, threshold: float) -> None:
        """The figure must be over the threshold."""
        self.ratios.append(ratio(figure, threshold))
        self.holds &= figure > threshold

    def at_least(self, figure: float, threshold: float) -> None:
        """The figure must be at the threshold or over it."""
        self.ratios.append(ratio(figure, threshold))
        self.holds &= figure >= threshold

    def at_most(self, figure: float, threshold: float) -> None:
        """The figure must be at the threshold or under it."""
        self.ratios.append(ratio(threshold, figure))
        self.holds &= figure <= threshold

    def under(self, figure: float, threshold: float) -> None:
        """The figure must be under the threshold."""
        self.ratios.append(ratio(threshold, figure))
        self.holds &= figure < threshold

    def any_of(self, ways: Sequence[Checks]) -> None:
        """One of these must hold: the clearest counts, and of those that do not hold the nearest. All are shown."""
        for way in ways:
            self.evidence |= way.evidence
        best = max(ways, key=lambda way: (way.holds, way.strength))
        self.ratios.append(best.strength)
        self.holds &= best.holds

    @property
    def strength(self) -> float:
        return min(self.ratios, default=math.inf)

    def judged(self) -> Judged:
        return Judged(self.strength, self.holds, dict(self.evidence))


def ratio(figure: float, threshold: float) -> float:
    """A figure over its threshold; infinite over a threshold of 0.

    >>> ratio(3.0, 2.0), ratio(1.0, 0.0), ratio(0.0, 0.0)
    (1.5, inf, 1.0)
    """
    if threshold > 0:
        return figure / threshold
    return math.inf if figure > 0 else 1.0


RISE = 1.2
"""How many times its baseline a percentile must be to have risen."""

KS = 0.1
"""How far the two distributions must lie apart for it."""


def rises(checks: Checks, contrast: Contrast) -> None:
    """A latency has risen: half of its values and its slow ones, and its whole distribution with them."""
    name = contrast.metric
    for label, (base, current) in (("p50", contrast.p50), ("p99", contrast.p99)):
        checks.show(f"{name}_{label}_seconds", base, current)
        checks.over(current, RISE * base)
    checks.show(f"{name}_ks_distance", 0.0, contrast.ks)
    checks.over(contrast.ks, KS)
    checks.show(f"{name}_observations", *contrast.observations)
