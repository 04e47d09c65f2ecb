"""Distributions of lengths in tokens, as people write them: `lognormal:550,cv=0.8`, `fixed:512`, `uniform:100-200`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from random import Random

KINDS = ("lognormal", "fixed", "uniform", "geometric", "exponential")
FORM = "lognormal:MEAN[,cv=0.8] | fixed:N | uniform:LOW-HIGH | geometric:MEAN | exponential:MEAN"

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_FORM = re.compile(rf"(?:([a-z]+):)?({_NUMBER})(?:-({_NUMBER}))?(?:,cv=({_NUMBER}))?")


@dataclass(slots=True)
class Lengths:
    """A distribution of whole numbers of tokens, 1 or more; `mean` is that before rounding.

    `cv` is the standard deviation over the mean, of `lognormal`; `low` and `high` are the ends of `uniform`.
    """

    kind: str
    mean: float
    cv: float = 0.8
    low: int = 0
    high: int = 0

    def draw(self, random: Random) -> int:
        """The next length."""
        if self.kind == "fixed":
            return round(self.mean)
        if self.kind == "uniform":
            return random.randint(self.low, self.high)
        if self.kind == "geometric":
            return 1 if self.mean <= 1 else 1 + int(math.log(1 - random.random()) / math.log(1 - 1 / self.mean))
        if self.kind == "exponential":
            return max(1, round(random.expovariate(1 / self.mean)))
        spread = math.log(1 + self.cv**2)
        return max(1, round(random.lognormvariate(math.log(self.mean) - spread / 2, math.sqrt(spread))))

    def times(self, factor: float) -> Lengths:
        """The same shape, so many times as long."""
        return Lengths(self.kind, self.mean * factor, self.cv, round(self.low * factor), round(self.high * factor))

    def __str__(self) -> str:
        if self.kind == "uniform":
            return f"uniform:{self.low}-{self.high}"
        return f"{self.kind}:{self.mean:g}" + (f",cv={self.cv:g}" if self.kind == "lognormal" else "")


def lengths(text: str | int | Lengths, name: str = "a length") -> Lengths:
    """A distribution as it is written; a number alone is that length.

    Raises ValueError, which says what `name` must be, for anything else.

    >>> [str(lengths(text)) for text in ("lognormal:550", "uniform:100-200", 512)]
    ['lognormal:550,cv=0.8', 'uniform:100-200', 'fixed:512']
    """
    if isinstance(text, Lengths):
        return text
    found = _FORM.fullmatch(str(text).strip())
    if found is None or (found[1] or "fixed") not in KINDS:
        raise ValueError(f"{name} must be {FORM}; got {text!r}")
    kind, first = found[1] or "fixed", float(found[2])
    if (kind == "uniform") != (found[3] is not None) or (found[4] is not None and kind != "lognormal"):
        raise ValueError(f"{name} must be {FORM}; got {text!r}")
    if kind == "uniform":
        low, high = round(first), round(float(found[3]))
        if not 1 <= low <= high:
            raise ValueError(f"{name} must be 1 or more, and HIGH not below LOW; got {text!r}")
        return Lengths(kind, (low + high) / 2, low=low, high=high)
    if first < 1:
        raise ValueError(f"{name} must be 1 or more; got {text!r}")
    return Lengths(kind, first, float(found[4]) if found[4] is not None else 0.8)
