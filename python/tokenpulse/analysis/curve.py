"""Requests in the system over time, as the area under that curve: exact at every point that was counted.

The mean over any stretch is the difference of two areas. From rows (a sweep over arrivals and ends) the curve is exact
everywhere; from a reduction's bins it is exact at their edges, and inside a bin it is taken to be even.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Times are ns since the first arrival, ascending from 0 to the run's last event; areas are request-ns.

    `arrivals` and `ends` count the events up to and with each time.
    """

    first_ns: int
    """The first arrival on the log's clock."""
    times: Floats
    area: Floats
    arrivals: Ints
    ends: Ints
    exact: bool
    grain: int
    """ns between points at which the curve is known: 1 for rows, else the width of the bins."""
    origin: int
    """ns since the first arrival at which the first grain begins: 0 or below."""
    most: int
    """Requests that were in the system at once, at most."""

    @classmethod
    def of_rows(cls, arrive_ns: Ints, end_ns: Ints, until_ns: int) -> Curve | None:
        """From one arrival and one end a request; an end past `until_ns` or of -1 stands for none.

        None without a request, or where nothing lies between the first arrival and `until_ns`.

        >>> Curve.of_rows(np.array([0, 10]), np.array([20, 30]), 30).mean(0, 30)
        1.3333333333333333
        """
        if not len(arrive_ns) or until_ns <= int(arrive_ns.min()):
            return None
        first_ns = int(arrive_ns.min())
        ended = end_ns[(end_ns >= 0) & (end_ns <= until_ns)] - first_ns
        begun = arrive_ns - first_ns
        times = np.unique(np.concatenate([begun, ended, [0, until_ns - first_ns]]))
        arrivals = np.searchsorted(np.sort(begun), times, side="right")
        ends = np.searchsorted(np.sort(ended), times, side="right")
        inside = (arrivals - ends).astype(np.float64)
        area = np.concatenate([[0.0], np.cumsum(inside[:-1] * np.diff(times))])
        return cls(
            first_ns=first_ns,
            times=times.astype(np.float64),
            area=area,
            arrivals=arrivals,
            ends=ends,
            exact=True,
            grain=1,
            origin=0,
            most=int(inside.max()),
        )

    @classmethod
    def of_bins(cls, flow: Mapping[str, Any], until_ns: int | None) -> Curve | None:
        """From the bins of a reduction's `flow`; `until_ns` is the last moment of the run, where it is after the last
        arrival and the last end. None as for `of_rows`."""
        first_ns = flow["first_arrival_ns"]
        known = [t for t in (flow["last_arrival_ns"], flow["last_end_ns"], until_ns) if t is not None]
        if first_ns is None or max(known) <= first_ns:
            return None
        bins: Sequence[Mapping[str, int]] = flow["bins"]
        width, until = flow["width_ns"], max(known) - first_ns
        times, area, arrivals, ends = [0.0], [0.0], [0], [0]
        carry = most = 0
        for one in bins:
            begin = max(0, one["start_ns"] - first_ns)
            end = one["start_ns"] + width - first_ns
            if begin > times[-1]:
                times.append(float(begin))
                area.append(area[-1] + carry * (begin - times[-2]))
                arrivals.append(arrivals[-1])
                ends.append(ends[-1])
            # Sums of offsets are whole numbers of any size.
            come = one["arrivals"] * width - one["arrival_offset_ns"]
            gone = one["ends"] * width - one["end_offset_ns"]
            most = max(most, carry + one["arrivals"])
            grown = carry * (end - begin) + come - gone
            carry += one["arrivals"] - one["ends"]
            times.append(float(end))
            area.append(area[-1] + grown)
            arrivals.append(arrivals[-1] + one["arrivals"])
            ends.append(ends[-1] + one["ends"])
        # After the last event the curve is level: the run ends there, not at the end of its bin.
        area[-1] += carry * (until - times[-1])
        times[-1] = float(until)
        return cls(
            first_ns=first_ns,
            times=np.array(times),
            area=np.array(area, np.float64),
            arrivals=np.array(arrivals),
            ends=np.array(ends),
            exact=False,
            grain=width,
            origin=min(0, bins[0]["start_ns"] - first_ns),
            most=most,
        )

    @property
    def run(self) -> float:
        """ns from the first arrival to the last event."""
        return float(self.times[-1])

    @property
    def least_peak(self) -> int:
        """Requests that were in the system at once, at least."""
        return int((self.arrivals - self.ends).max())

    def mean(self, begin: float, end: float) -> float:
        """The mean number of requests in the system over a stretch of the run."""
        low, high = np.interp([begin, end], self.times, self.area)
        return float((high - low) / (end - begin))

    def means(self, edges: Floats) -> Floats:
        """The mean between each two edges."""
        return np.asarray(np.diff(np.interp(edges, self.times, self.area)) / np.diff(edges))

    def counts(self, which: str, edges: Floats) -> Floats:
        """How many `arrivals` or `ends` lie in each `[edge, next edge)`; the last stretch has its end too."""
        column = getattr(self, which)
        if not self.exact:
            before = np.interp(edges, self.times, column)
        else:
            place = np.searchsorted(self.times, edges, side="left")
            before = np.concatenate([[0], column])[place].astype(np.float64)
        before[0] = 0 if edges[0] <= 0 else before[0]
        if edges[-1] >= self.run:
            before[-1] = column[-1]
        return np.asarray(np.diff(before))

    def smoothed(self, stretch: float) -> tuple[Floats, Floats]:
        """The mean over a stretch around each moment: times, and values between which it is a straight line.

        Nearer to an end of the run than half a stretch, it is that of the run's first or last stretch.
        """
        half = stretch / 2
        moments = np.concatenate([self.times - half, self.times + half, [half, self.run - half]])
        moments = np.unique(np.clip(moments, half, self.run - half))
        high = np.interp(moments + half, self.times, self.area)
        low = np.interp(moments - half, self.times, self.area)
        return moments, (high - low) / stretch
