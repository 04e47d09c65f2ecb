"""How requests came and went: arrivals and ends in bins of time, and the times of the whole run.

Every request is counted, inside a cut or not. A bin keeps the sum of absolute times, so that nothing must be corrected
when its width doubles; the offsets from its start are formed when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenpulse.reference.window import Timeline, greatest, least

WIDTH_NS = 1_000_000
"""How wide the bins are before they double: 1 ms."""


@dataclass(slots=True)
class Traffic:
    """What came and went within a bin. The TTFT is in the bin in which its request arrived."""

    arrivals: int = 0
    arrivals_ns: int = 0
    ends: int = 0
    ends_ns: int = 0
    ttft_count: int = 0
    ttft_sum_ns: int = 0

    def merge(self, other: Traffic) -> None:
        self.arrivals += other.arrivals
        self.arrivals_ns += other.arrivals_ns
        self.ends += other.ends
        self.ends_ns += other.ends_ns
        self.ttft_count += other.ttft_count
        self.ttft_sum_ns += other.ttft_sum_ns

    def as_dict(self, start_ns: int) -> dict[str, int]:
        return {
            "start_ns": start_ns,
            "arrivals": self.arrivals,
            "arrival_offset_ns": self.arrivals_ns - self.arrivals * start_ns,
            "ends": self.ends,
            "end_offset_ns": self.ends_ns - self.ends * start_ns,
            "ttft_count": self.ttft_count,
            "ttft_sum_ns": self.ttft_sum_ns,
        }


class Flow:
    """Arrivals, ends and emissions of a run.

    >>> flow = Flow()
    >>> flow.arrive(1_000_007), flow.end(1_000_007, 1_000_009)
    (None, None)
    >>> bin = flow.as_dict()["bins"][0]
    >>> bin["start_ns"], bin["arrival_offset_ns"], bin["end_offset_ns"]
    (1000000, 7, 9)
    """

    def __init__(self) -> None:
        self.bins = Timeline(WIDTH_NS, Traffic)
        self.first_arrival_ns: int | None = None
        self.last_arrival_ns: int | None = None
        self.first_end_ns: int | None = None
        self.last_end_ns: int | None = None
        self.residence_count = 0
        self.residence_sum_ns = 0
        self.emissions = 0
        self.coalesced = 0

    def arrive(self, t_ns: int) -> None:
        self.first_arrival_ns = least(self.first_arrival_ns, t_ns)
        self.last_arrival_ns = greatest(self.last_arrival_ns, t_ns)
        traffic = self.bins.bin(t_ns)
        traffic.arrivals += 1
        traffic.arrivals_ns += t_ns

    def first_token(self, arrive_ns: int, ttft_ns: int) -> None:
        traffic = self.bins.bin(arrive_ns)
        traffic.ttft_count += 1
        traffic.ttft_sum_ns += ttft_ns

    def emit(self, k: int) -> None:
        self.emissions += 1
        self.coalesced += k > 1

    def end(self, arrive_ns: int, end_ns: int) -> None:
        self.first_end_ns = least(self.first_end_ns, end_ns)
        self.last_end_ns = greatest(self.last_end_ns, end_ns)
        self.residence_count += 1
        self.residence_sum_ns += end_ns - arrive_ns
        traffic = self.bins.bin(end_ns)
        traffic.ends += 1
        traffic.ends_ns += end_ns

    def merge(self, other: Flow) -> None:
        self.bins.merge(other.bins)
        if other.first_arrival_ns is not None and other.last_arrival_ns is not None:
            self.first_arrival_ns = least(self.first_arrival_ns, other.first_arrival_ns)
            self.last_arrival_ns = greatest(self.last_arrival_ns, other.last_arrival_ns)
        if other.first_end_ns is not None and other.last_end_ns is not None:
            self.first_end_ns = least(self.first_end_ns, other.first_end_ns)
            self.last_end_ns = greatest(self.last_end_ns, other.last_end_ns)
        self.residence_count += other.residence_count
        self.residence_sum_ns += other.residence_sum_ns
        self.emissions += other.emissions
        self.coalesced += other.coalesced

    def as_dict(self) -> dict[str, Any]:
        return {
            "width_ns": self.bins.width_ns,
            "bins": [traffic.as_dict(start_ns) for start_ns, traffic in self.bins.bins()],
            "first_arrival_ns": self.first_arrival_ns,
            "last_arrival_ns": self.last_arrival_ns,
            "first_end_ns": self.first_end_ns,
            "last_end_ns": self.last_end_ns,
            "residence_count": self.residence_count,
            "residence_sum_ns": self.residence_sum_ns,
            "emissions": self.emissions,
            "coalesced": self.coalesced,
        }
