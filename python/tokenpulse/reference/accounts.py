"""The accounts of an input, and their sum over the inputs of a run.

Every input keeps accounts of its own, and they are merged in the order of the inputs: total with total, class with
class, bin with bin. So the order in which inputs are read does not show, and they may be read at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenpulse.model import ITL_RULES, MAX_TIMELINE_BINS, SLO
from tokenpulse.reference.flow import Flow
from tokenpulse.reference.grid import Grid
from tokenpulse.reference.log import MAX_TIME
from tokenpulse.reference.strata import OTHER, Interner, check_keys, combination
from tokenpulse.reference.tally import Block, Slowest
from tokenpulse.reference.window import Timeline, check_bins, greatest, least


@dataclass(frozen=True, slots=True)
class Settings:
    """What a reduction is asked for."""

    slos: Sequence[SLO]
    itl_rule: str
    by: Sequence[str]
    timeline_ns: int | None
    ttl_ns: int
    from_ns: int | None = None
    to_ns: int | None = None
    timeline_bins: int = MAX_TIMELINE_BINS

    def __post_init__(self) -> None:
        if self.itl_rule not in ITL_RULES:
            raise ValueError(f"itl_rule must be one of {', '.join(ITL_RULES)}, got {self.itl_rule!r}")
        if self.ttl_ns < 1:
            raise ValueError(f"ttl_ns must be at least 1, got {self.ttl_ns}")
        for t_ns in (self.from_ns, self.to_ns):
            if t_ns is not None and not 0 <= t_ns <= MAX_TIME:
                raise ValueError(f"a time must be between 0 and {MAX_TIME}, got {t_ns}")
        if self.from_ns is not None and self.to_ns is not None and self.from_ns >= self.to_ns:
            raise ValueError(f"from_ns must be before to_ns, {self.to_ns}, got {self.from_ns}")
        check_bins(self.timeline_bins)
        check_keys(self.by)

    @property
    def has_cut(self) -> bool:
        return self.from_ns is not None or self.to_ns is not None

    def is_inside(self, arrive_ns: int) -> bool:
        """Whether a request that arrives at a time is counted, or only followed."""
        return (self.from_ns is None or self.from_ns <= arrive_ns) and (self.to_ns is None or arrive_ns < self.to_ns)


class Accounts:
    """What is added up."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.total = self.block()
        self.interner = Interner()
        self.classes: dict[int, Block] = {}
        self.timeline = (
            None if settings.timeline_ns is None else Timeline(settings.timeline_ns, self.block, settings.timeline_bins)
        )
        self.grid = Grid()
        self.slowest = Slowest()
        self.flow = Flow()
        self.outside = 0
        self.rejected: Counter[str] = Counter()
        self.clamped = 0
        self.oom_events: int | None = None
        self.first_arrival_ns: int | None = None
        self.last_emission_ns: int | None = None

    def block(self) -> Block:
        return Block(self.settings.itl_rule, len(self.settings.slos))

    def class_of(self, labels: Mapping[str, str], prompt_tokens: int, output_tokens: int | None) -> Block | None:
        """The block of a request's class; None if it is not known yet or if none was asked for."""
        by = self.settings.by
        if not by or (output_tokens is None and "output_length" in by):
            return None
        return self._class(combination(by, labels, prompt_tokens, output_tokens))

    def _class(self, values: tuple[str | None, ...]) -> Block:
        return self.classes.setdefault(self.interner.intern(values), self.block())

    def blocks(self, t_ns: int, own: Block | None) -> list[Block]:
        """Every block in which something of a request at a time is counted."""
        bins = [] if self.timeline is None else [self.timeline.bin(t_ns)]
        return [self.total, *bins, *([] if own is None else [own])]

    def arrived(self, t_ns: int) -> None:
        self.first_arrival_ns = least(self.first_arrival_ns, t_ns)

    def ran_out_of_memory(self, t_ns: int, n: int) -> None:
        self.oom_events = (self.oom_events or 0) + (n if self.settings.is_inside(t_ns) else 0)

    def emitted(self, t_ns: int) -> None:
        self.last_emission_ns = greatest(self.last_emission_ns, t_ns)

    def merge(self, other: Accounts) -> None:
        """Adds the accounts of the next input. A class for which there is no room left goes to `other` whole."""
        self.total.merge(other.total)
        for index, values in enumerate(other.interner.combinations()):
            self._class(values).merge(other.classes[index])
        if OTHER in other.classes:
            self.classes.setdefault(OTHER, self.block()).merge(other.classes[OTHER])
        if self.timeline is not None and other.timeline is not None:
            self.timeline.merge(other.timeline)
        self.grid.merge(other.grid)
        self.slowest.merge(other.slowest)
        self.flow.merge(other.flow)
        self.outside += other.outside
        self.rejected += other.rejected
        self.clamped += other.clamped
        if other.oom_events is not None:
            self.oom_events = (self.oom_events or 0) + other.oom_events
        if other.first_arrival_ns is not None:
            self.arrived(other.first_arrival_ns)
        if other.last_emission_ns is not None:
            self.emitted(other.last_emission_ns)

    def as_dict(self) -> dict[str, Any]:
        other = self.classes.get(OTHER)
        return {
            "first_arrival_ns": self.first_arrival_ns,
            "last_emission_ns": self.last_emission_ns,
            "rejected": dict(self.rejected),
            "clamped": self.clamped,
            "oom_events": self.oom_events,
            "total": self.total.as_dict(),
            "slowest": self.slowest.as_dict(),
            "by": self._classes_as_dicts(),
            "by_interned_over": 0 if other is None else other.attempted,
            "timeline": self._timeline_as_dict(),
            "grid": self.grid.as_dict(),
            "flow": self.flow.as_dict(),
            "cut": self._cut_as_dict(),
        }

    def _cut_as_dict(self) -> dict[str, int | None] | None:
        if not self.settings.has_cut:
            return None
        return {"from_ns": self.settings.from_ns, "to_ns": self.settings.to_ns, "outside": self.outside}

    def _classes_as_dicts(self) -> list[dict[str, Any]]:
        """In order of first appearance, `other` last."""
        named: list[dict[str, Any]] = [
            {
                "key": dict(zip(self.settings.by, values, strict=True)),
                "other": False,
                "block": self.classes[i].as_dict(),
            }
            for i, values in enumerate(self.interner.combinations())
        ]
        if OTHER in self.classes:
            named.append({"key": {}, "other": True, "block": self.classes[OTHER].as_dict()})
        return named

    def _timeline_as_dict(self) -> dict[str, Any] | None:
        if self.timeline is None:
            return None
        return {
            "width_ns": self.timeline.width_ns,
            "asked_ns": self.timeline.asked_ns,
            "bins": [{"start_ns": start, "block": block.as_dict()} for start, block in self.timeline.bins()],
        }
