"""A latency of two stretches, compared within strata: a change of the mix of prompt lengths is no symptom.

Only strata that both sides have, with at least `FEWEST_IN_STRATUM` observations each, are compared. The baseline's are
weighed so that each has the share that it has in the current stretch (direct standardisation), and quantiles and the
Kolmogorov-Smirnov distance are those of the weighed buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenpulse.analysis.intervals import Floats, Spread

FEWEST = 100
"""Observations on either side, in all strata that are compared."""

FEWEST_IN_STRATUM = 10


@dataclass(frozen=True)
class Contrast:
    """One latency of the baseline, standardised, and of the current stretch."""

    metric: str
    p50: tuple[float, float]
    """s: of the baseline, of the current stretch; likewise below."""
    p99: tuple[float, float]
    ks: float
    """The largest difference of the shares at or below a value, 0 to 1."""
    observations: tuple[int, int]
    strata: tuple[str, ...]
    """Those that were compared."""

    @classmethod
    def of(
        cls, metric: str, base: Mapping[str, Mapping[str, Any]], current: Mapping[str, Mapping[str, Any]]
    ) -> Contrast | None:
        """From the strata of two stretches; None where there are too few observations."""
        pairs = {
            key: (base[key][metric], current[key][metric])
            for key in base
            if key in current and min(base[key][metric].count, current[key][metric].count) >= FEWEST_IN_STRATUM
        }
        observations = (sum(old.count for old, _ in pairs.values()), sum(new.count for _, new in pairs.values()))
        if min(observations) < FEWEST:
            return None
        weights = [new.count / old.count for old, new in pairs.values()]
        before = _Weighed.of([old for old, _ in pairs.values()], weights)
        after = _Weighed.of([new for _, new in pairs.values()], [1.0] * len(pairs))
        return cls(
            metric=metric,
            p50=(before.quantile(0.5), after.quantile(0.5)),
            p99=(before.quantile(0.99), after.quantile(0.99)),
            ks=before.distance(after),
            observations=observations,
            strata=tuple(pairs),
        )


@dataclass(frozen=True)
class _Weighed:
    """Buckets of several sketches together, each sketch with its weight."""

    index: np.ndarray[Any, np.dtype[np.int64]]
    points: Floats
    """s: the estimate of each bucket's values."""
    share: Floats
    """Of all weight, at or below each bucket; the last is 1."""

    @classmethod
    def of(cls, sketches: Sequence[Any], weights: Sequence[float]) -> _Weighed:
        spreads = [Spread.of(sketch) for sketch in sketches]
        index, place = np.unique(np.concatenate([one.index for one in spreads]), return_inverse=True)
        mass = np.concatenate([one.counts * weight for one, weight in zip(spreads, weights, strict=True)])
        points = np.concatenate([one.points for one in spreads])
        total = np.bincount(place, weights=mass)
        # Buckets at the ends are cut off at each sketch's least and greatest value: the estimate is their mean.
        centre = np.bincount(place, weights=mass * np.where(np.isfinite(points), points, 0.0)) / total
        cumulative = np.cumsum(total)
        return cls(index, centre, cumulative / cumulative[-1])

    def quantile(self, q: float) -> float:
        """s: of nearest rank."""
        return float(self.points[min(int(np.searchsorted(self.share, q * (1 - 1e-12))), len(self.points) - 1)])

    def distance(self, other: _Weighed) -> float:
        """The largest difference of the two shares, over all edges of buckets."""
        edges = np.union1d(self.index, other.index)
        return float(np.max(np.abs(self._at(edges) - other._at(edges))))

    def _at(self, edges: np.ndarray[Any, np.dtype[np.int64]]) -> Floats:
        shares: Floats = np.concatenate([[0.0], self.share])[np.searchsorted(self.index, edges, side="right")]
        return shares
