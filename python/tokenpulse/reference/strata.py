"""Strata: requests are compared with their like, by length and by label, in a bounded number of classes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from tokenpulse.model import LENGTH_EDGES, LENGTH_KEYS, MAX_CLASSES, MAX_LABEL_KEYS

OTHER = -1
"""The class of what came past the limit."""


def length_bin(tokens: int) -> str:
    """The bin of a length, `[lo, hi)`, as text.

    >>> length_bin(127), length_bin(128), length_bin(10**6)
    ('0-128', '128-512', '131072+')
    """
    lo = bisect_right(LENGTH_EDGES, tokens) - 1
    if lo == len(LENGTH_EDGES) - 1:
        return f"{LENGTH_EDGES[lo]}+"
    return f"{LENGTH_EDGES[lo]}-{LENGTH_EDGES[lo + 1]}"


def check_keys(keys: Sequence[str]) -> None:
    labels = [key for key in keys if key not in LENGTH_KEYS]
    if len(labels) > MAX_LABEL_KEYS:
        raise ValueError(f"at most {MAX_LABEL_KEYS} label keys, got {len(labels)}")
    if len(set(keys)) != len(keys):
        raise ValueError(f"keys must differ, got {', '.join(keys)}")


def combination(
    keys: Sequence[str], labels: Mapping[str, str], prompt_tokens: int, output_tokens: int | None
) -> tuple[str | None, ...]:
    """What a request bears under each key; None for a label it lacks."""
    lengths = {"prompt_length": prompt_tokens, "output_length": output_tokens}
    return tuple(length_bin(lengths[key] or 0) if key in lengths else labels.get(key) for key in keys)


class Interner:
    """Combinations as small integers, in order of appearance; past the limit, the class `OTHER`."""

    def __init__(self, max_classes: int = MAX_CLASSES) -> None:
        self._room = max_classes - 1  # `other` is a class too
        self._classes: dict[tuple[str | None, ...], int] = {}

    def intern(self, values: tuple[str | None, ...]) -> int:
        if values in self._classes:
            return self._classes[values]
        if len(self._classes) >= self._room:
            return OTHER
        return self._classes.setdefault(values, len(self._classes))

    def combinations(self) -> list[tuple[str | None, ...]]:
        """By class."""
        return list(self._classes)
