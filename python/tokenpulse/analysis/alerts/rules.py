"""The settings of alerts: thresholds, how long a condition must hold, when an alert clears, over which windows.

Every setting has a default, and all can be given in a TOML file of the same names (`Rules.load`). Durations are text
such as `30s`, or seconds.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

from tokenpulse.analysis.alerts.growth import DEPTH_BATCHES, Growth
from tokenpulse.grammar import duration_ns, duration_text, since_ns

WARNING, CRITICAL = "warning", "critical"
SEVERITIES = (WARNING, CRITICAL)
"""How bad it is; each is an alert of its own."""

HOLD = {WARNING: "30s", CRITICAL: "10s"}
"""How long a condition must hold before its alert fires."""

CLEAR_BELOW = 0.9
"""An alert clears below this share of its threshold."""

PANES = 60
"""The panes of a window."""

MOST_WINDOW_HOURS = 2400
"""The widest window that a meter keeps."""

AVAILABILITY = "availability"
"""What a burn rate is of, where it is of no SLO set."""


def _number(name: str, setting: object, *, least: float, strict: bool) -> None:
    if isinstance(setting, bool) or not isinstance(setting, (int, float)):
        raise TypeError(f"{name} must be a number, got {setting!r}")
    if not math.isfinite(setting) or setting < least or (strict and setting == least):
        raise ValueError(
            f"{name} must be a finite number {'above' if strict else 'of at least'} {least:g}, got {setting!r}"
        )


def _hold_ns(name: str, hold: str | float) -> int:
    try:
        return since_ns(hold)
    except (TypeError, ValueError) as wrong:
        raise type(wrong)(f"{name}: {wrong}") from None


_ns = cache(duration_ns)
width_text = cache(duration_text)
"""Both are asked for the same few widths at every evaluation."""


def _width_ns(name: str, width: str | float) -> int:
    try:
        return duration_ns(width)
    except (TypeError, ValueError) as wrong:
        raise type(wrong)(f"{name}: {wrong}") from None


def _check_window(width: str | float) -> None:
    if (
        not PANES <= _width_ns("window", width) <= MOST_WINDOW_HOURS * 3600 * 10**9
        or _width_ns("window", width) % PANES
    ):
        raise ValueError(f"window must be a multiple of {PANES} ns, and at most {MOST_WINDOW_HOURS}h, got {width!r}")


@dataclass(frozen=True, slots=True)
class Level:
    """One threshold of a rule, with all that decides when its alert fires and clears."""

    threshold: float
    for_ns: int
    clear_below: float


@dataclass(frozen=True, slots=True)
class Levels:
    """A rule that compares a figure with a threshold for warning and one for critical; None: that one is off.

    ValueError or TypeError, naming the setting, for a threshold that is negative, a warning above the critical one,
    `clear_below` outside 0 to 1, a duration that is none.

    >>> Levels(0.8, 0.9).level("critical")
    Level(threshold=0.9, for_ns=10000000000, clear_below=0.9)
    >>> Levels(0.8).level("critical") is None
    True
    """

    warning: float | None = None
    critical: float | None = None
    window: str | float = field(default="1m", kw_only=True)
    """The sliding window that the figure is of."""
    warning_for: str | float = field(default=HOLD[WARNING], kw_only=True)
    critical_for: str | float = field(default=HOLD[CRITICAL], kw_only=True)
    clear_below: float = field(default=CLEAR_BELOW, kw_only=True)

    def __post_init__(self) -> None:
        for severity in SEVERITIES:
            threshold = getattr(self, severity)
            if threshold is not None:
                _number(severity, threshold, least=0, strict=False)
            _hold_ns(f"{severity}_for", getattr(self, f"{severity}_for"))
        if self.warning is not None and self.critical is not None and self.warning > self.critical:
            raise ValueError(f"warning must be at most critical, {self.critical!r}, got {self.warning!r}")
        _clear_below(self.clear_below)
        _check_window(self.window)

    @property
    def window_ns(self) -> int:
        """The window's width."""
        return _ns(self.window)

    def level(self, severity: str) -> Level | None:
        """What belongs to a severity; None if it is off."""
        threshold = getattr(self, severity)
        if threshold is None:
            return None
        return Level(float(threshold), since_ns(getattr(self, f"{severity}_for")), self.clear_below)


def _clear_below(share: float) -> None:
    _number("clear_below", share, least=0, strict=False)
    if share > 1:
        raise ValueError(f"clear_below must be between 0 and 1, got {share!r}")


@dataclass(frozen=True, slots=True)
class QueueGrowth(Growth):
    """The rule of a queue that grows without pause: a trend, over the panes of a window, and how long it must hold.

    It clears when Z falls below `clear_z`, or the depth below the warning of `queue_depth`. `on=False` turns it off.
    """

    on: bool = field(default=True, kw_only=True)
    window: str | float = field(default="1m", kw_only=True)
    """The window of which the panes, each a sixtieth of it, are looked at."""
    hold: str | float = field(default=HOLD[CRITICAL], kw_only=True)
    """How long the condition must hold."""

    def __post_init__(self) -> None:
        Growth.__post_init__(self)
        if not isinstance(self.on, bool):
            raise TypeError(f"on must be true or false, got {self.on!r}")
        _hold_ns("for", self.hold)
        _check_window(self.window)

    @property
    def window_ns(self) -> int:
        """The window's width."""
        return _ns(self.window)

    @property
    def pane_ns(self) -> int:
        """The width of a pane."""
        return self.window_ns // PANES

    @property
    def for_ns(self) -> int:
        """How long the condition must hold."""
        return since_ns(self.hold)


@dataclass(frozen=True, slots=True)
class Burn:
    """A burn-rate rule of two windows: the budget is spent `threshold` times too fast over the long one, and still is.

    The figure is the lower of both burn rates. It needs at least the short window's width of events. `threshold` None:
    off.
    """

    threshold: float | None
    long: str | float
    short: str | float
    severity: str = field(kw_only=True)
    hold: str | float | None = field(default=None, kw_only=True)
    """How long the condition must hold; None: as long as others of its severity."""
    clear_below: float = field(default=CLEAR_BELOW, kw_only=True)

    KEPT: ClassVar[tuple[str, ...]] = ("5m", "30m", "1h", "6h", "3d", "30d")
    """The widths over which a meter keeps what burn rates are made of."""

    def __post_init__(self) -> None:
        if self.threshold is not None:
            _number("threshold", self.threshold, least=0, strict=False)
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity must be {' or '.join(SEVERITIES)}, got {self.severity!r}")
        if self.hold is not None:
            _hold_ns("for", self.hold)
        _clear_below(self.clear_below)
        for name in ("long", "short"):
            width = getattr(self, name)
            if width not in self.KEPT and duration_text(_width_ns(name, width)) not in self.KEPT:
                raise ValueError(f"{name} must be one of {', '.join(self.KEPT)}, got {width!r}")
        if self.short_ns >= self.long_ns:
            raise ValueError(f"short must be less than long, {self.long!r}, got {self.short!r}")

    @property
    def long_ns(self) -> int:
        """The long window's width."""
        return _kept_ns(self.long)

    @property
    def short_ns(self) -> int:
        """The short window's width."""
        return _kept_ns(self.short)

    @property
    def widths(self) -> tuple[str, str]:
        """Both widths as people write them, the long one first."""
        return width_text(self.long_ns), width_text(self.short_ns)

    def level(self) -> Level | None:
        """What decides when it fires and clears; None if it is off."""
        if self.threshold is None:
            return None
        hold = HOLD[self.severity] if self.hold is None else self.hold
        return Level(float(self.threshold), since_ns(hold), self.clear_below)


@cache
def _kept_ns(width: str | float) -> int:
    if isinstance(width, str) and width.endswith("d"):
        return int(width[:-1]) * duration_ns("24h")
    return duration_ns(width)


BURNS = ("burn_fast", "burn_slow", "burn_ticket")
LEVELS = ("kv_utilization", "ttft_p99", "oom_rate", "refill_rate", "queue_depth")
NAMES = ("kv_utilization", "ttft_p99", "oom_rate", "refill_rate", "queue_depth", "queue_growth", *BURNS)
"""The rules, in the order in which they are told."""
WINDOWED = (*LEVELS, "queue_growth")
"""Those over a sliding window."""
SHARES = ("kv_utilization", "oom_rate")
"""Those whose figure is a part of a whole."""

UNITS = {
    "kv_utilization": "ratio",
    "ttft_p99": "seconds",
    "oom_rate": "ratio",
    "refill_rate": "ratio",
    "queue_depth": "requests",
    "queue_growth": "requests",
    **dict.fromkeys(BURNS, "times"),
}
"""What a rule's figure is measured in; a burn rate is so many times what the budget allows."""

MEANING = {
    "kv_utilization": "about to evict",
    "ttft_p99": "close to the SLO",
    "oom_rate": "change the batch policy",
    "refill_rate": "improve the eviction policy",
    "queue_depth": "add capacity or limit the rate",
    "queue_growth": "add capacity or limit the rate: the queue grows without pause",
    **dict.fromkeys(BURNS, "the error budget is spent too fast"),
}
"""What an alert says, or what to do about it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Every rule's settings.

    `ttft_p99` is in shares of the SLO set's TTFT limit, `queue_depth` in multiples of the largest batch; `batch_max`
    is that where the engine reports none.

    >>> Rules().kv_utilization.critical, Rules(kv_utilization=Levels(0.7)).kv_utilization.warning
    (0.9, 0.7)
    """

    kv_utilization: Levels = Levels(0.8, 0.9)
    ttft_p99: Levels = Levels(0.7, 0.9)
    oom_rate: Levels = Levels(0.0001, 0.001, window="5m")
    refill_rate: Levels = Levels(0.05, 0.15, window="5m")
    queue_depth: Levels = Levels(DEPTH_BATCHES)
    queue_growth: QueueGrowth = QueueGrowth()
    burn_fast: Burn = Burn(14.4, "1h", "5m", severity=CRITICAL)
    burn_slow: Burn = Burn(6.0, "6h", "30m", severity=CRITICAL)
    burn_ticket: Burn = Burn(1.0, "3d", "6h", severity=WARNING)
    batch_max: int | None = None

    def __post_init__(self) -> None:
        if self.batch_max is not None and (isinstance(self.batch_max, bool) or not isinstance(self.batch_max, int)):
            raise TypeError(f"batch_max must be a whole number, got {self.batch_max!r}")
        if self.batch_max is not None and self.batch_max < 1:
            raise ValueError(f"batch_max must be at least 1, got {self.batch_max!r}")
        for name in SHARES:
            for severity in SEVERITIES:
                if (getattr(getattr(self, name), severity) or 0) > 1:
                    shown = getattr(getattr(self, name), severity)
                    raise ValueError(f"{name}: {severity} must be a share of at most 1, got {shown!r}")

    @property
    def windows_ns(self) -> tuple[int, ...]:
        """The sliding windows that a meter must keep, narrowest first.

        ValueError, naming the rule, where no meter can: each must be a multiple of the one before it.
        """
        by_width = sorted((getattr(self, name).window_ns, name) for name in WINDOWED)
        for (narrow_ns, narrow), (wide_ns, wide) in pairwise(by_width):
            if wide_ns % narrow_ns:
                raise ValueError(
                    f"{wide}: window must be a multiple of the next narrower one, {width_text(narrow_ns)} of {narrow},"
                    f" got {width_text(wide_ns)}"
                )
        return tuple(sorted({width_ns for width_ns, _ in by_width}))

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Rules:
        """Rules from a mapping as a TOML file gives it: a table for each rule whose settings are not the defaults.

        `for` is what `queue_growth` and burn rates call the time for which a condition must hold. `warning_for`,
        `critical_for` and `clear_below` beside the tables hold for every rule that does not say otherwise; `false`
        turns off a threshold or a rule. ValueError or TypeError that names what does not fit.

        >>> Rules.of({"clear_below": 0.8, "kv_utilization": {"warning": False}}).kv_utilization.level("critical")
        Level(threshold=0.9, for_ns=10000000000, clear_below=0.8)
        """
        shared = {name: settings[name] for name in SHARED if name in settings}
        given: dict[str, Any] = {}
        rules = cls()
        for name, setting in settings.items():
            if name not in (*NAMES, *SHARED, "batch_max"):
                raise ValueError(f"expected one of {', '.join((*NAMES, *SHARED, 'batch_max'))}, got {name!r}")
            if name == "batch_max":
                given[name] = setting
            elif name in NAMES and setting is not False and not isinstance(setting, Mapping):
                raise TypeError(f"{name} must be a table of settings, or false, got {setting!r}")
        for name in NAMES:
            table = settings.get(name, {})
            if table or shared or table is False:
                given[name] = _changed(name, getattr(rules, name), table, shared)
        return replace(rules, **given)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Rules:
        """Rules from a TOML file; see `of`. OSError if it cannot be read, ValueError, naming it, for what is wrong."""
        name = os.fspath(path)
        with open(name, "rb") as file:
            try:
                return cls.of(tomllib.load(file))
            except (TypeError, ValueError) as wrong:
                raise ValueError(f"{name}: {wrong}") from None

    @property
    def deep_batches(self) -> float:
        """How many of the largest batch make a queue deep, where its growth is concerned: the warning's, or 2."""
        warning = self.queue_depth.warning
        return DEPTH_BATCHES if warning is None else float(warning)

    def to_dict(self) -> dict[str, Any]:
        """All settings, by the names that `of` takes."""
        tables: dict[str, Any] = {name: _table(getattr(self, name)) for name in NAMES}
        return tables | ({} if self.batch_max is None else {"batch_max": self.batch_max})


SHARED = ("warning_for", "critical_for", "clear_below")
_Rule = Levels | QueueGrowth | Burn
_RuleT = TypeVar("_RuleT", Levels, QueueGrowth, Burn)
_TOML = {"hold": "for"}


def _table(rule: _Rule) -> dict[str, Any]:
    found = {_TOML.get(one.name, one.name): getattr(rule, one.name) for one in fields(rule)}
    if isinstance(rule, Burn) and rule.hold is None:
        found["for"] = HOLD[rule.severity]
    return {name: False if setting is None else setting for name, setting in found.items()}


def _changed(name: str, rule: _RuleT, table: Mapping[str, Any] | bool, shared: Mapping[str, Any]) -> _RuleT:
    """A rule with some of its settings changed; errors name the rule."""
    known = {_TOML.get(one.name, one.name): one.name for one in fields(rule)}
    if not isinstance(table, Mapping):
        off = {"on": False} if isinstance(rule, QueueGrowth) else dict.fromkeys(("warning", "critical"), False)
        table = {"threshold": False} if isinstance(rule, Burn) else off
    severity = rule.severity if isinstance(rule, Burn) else CRITICAL
    inherited = {"for": shared.get(f"{severity}_for"), **shared}
    wanted: dict[str, Any] = {
        known[key]: setting for key, setting in inherited.items() if key in known and setting is not None
    }
    for key, setting in table.items():
        if key not in known:
            raise ValueError(f"{name}: expected one of {', '.join(known)}, got {key!r}")
        off_able = key in (*SEVERITIES, "threshold")
        wanted[known[key]] = None if setting is False and off_able else setting
    try:
        return replace(rule, **wanted)
    except (TypeError, ValueError) as wrong:
        raise type(wrong)(f"{name}: {wrong}") from None
