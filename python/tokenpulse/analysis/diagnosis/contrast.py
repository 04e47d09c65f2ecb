"""A latency of two stretches, compared within strata: a change of the mix of prompt lengths is no symptom.

Only strata that both sides have, with at least `FEWEST_IN_STRATUM` observations each, are compared. The baseline's are
weighed so that each has the share that it has in the current stretch (direct standardisation), and quantiles and the
Kolmogorov-Smirnov distance are those of the weighed buckets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpulse.analysis.intervals import Floats, bucket_counts, bucket_edges, first_index

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

    index: NDArray[np.int64]
    share: Floats
    """Of all weight, at or below each bucket; the last is 1."""
    scale: int
    least: float
    """s."""
    most: float

    @classmethod
    def of(cls, sketches: Sequence[Any], weights: Sequence[float]) -> _Weighed:
        """Of sketches that are not empty, all of one scale."""
        buckets = [bucket_counts(sketch) for sketch in sketches]
        index, place = np.unique(np.concatenate([index for index, _ in buckets]), return_inverse=True)
        mass = np.concatenate([counts * weight for (_, counts), weight in zip(buckets, weights, strict=True)])
        cumulative = np.cumsum(np.bincount(place, weights=mass))
        return cls(
            index,
            cumulative / cumulative[-1],
            sketches[0].scale,
            min(sketch.min for sketch in sketches),
            max(sketch.max for sketch in sketches),
        )

    def quantile(self, q: float) -> float:
        """s: of nearest rank, as a sketch estimates it."""
        place = min(int(np.searchsorted(self.share, q * (1 - 1e-12))), len(self.index) - 1)
        at = int(self.index[place]) - first_index(self.scale)
        low, high = bucket_edges(self.scale)[at : at + 2].tolist()
        estimate = 2 * low * high / (low + high) if math.isfinite(high) else self.most
        return min(max(estimate, self.least), self.most)

    def distance(self, other: _Weighed) -> float:
        """The largest difference of the two shares, over all edges of buckets."""
        edges = np.union1d(self.index, other.index)
        return float(np.max(np.abs(self._at(edges) - other._at(edges))))

    def _at(self, edges: NDArray[np.int64]) -> Floats:
        shares: Floats = np.concatenate([[0.0], self.share])[np.searchsorted(self.index, edges, side="right")]
        return shares
