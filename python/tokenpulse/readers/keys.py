"""The keys at the beginning of a JSON text, whether or not the text goes on: what a format is told by.

Reading is one pass over the tokens; a text that is cut off anywhere gives the keys before the cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

DEPTH = 5
"""Keys deeper than this are of no use for telling formats apart."""

_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def keys_of(text: str) -> Iterator[set[str]]:
    """Of each JSON value in a text its keys as paths, `a.b` in objects and `a[].b` in arrays.

    >>> [sorted(keys) for keys in keys_of('{"a": [{"b": 1}], "c": {"d": "x"}} {"e"')]
    [['a', 'a[]', 'a[].b', 'c', 'c.d'], []]
    >>> [sorted(keys) for keys in keys_of('[{"x": 1, "y": "cut o')]
    [['[]', '[].x', '[].y']]
    """
    keys: set[str] = set()
    stack: list[tuple[bool, str]] = []  # whether it is an object, and its path
    key: str | None = None
    waiting: str | None = None
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in ("{", "["):
            path = _below(stack, key)
            if word == "[" and len(stack) < DEPTH:
                keys.add(f"{path}[]")
            stack.append((word == "{", path if word == "{" else f"{path}[]"))
            key = waiting = None
        elif word in ("}", "]"):
            if not stack:
                return
            stack.pop()
            key = waiting = None
            if not stack:
                yield keys
                keys = set()
        elif word == ":":
            if waiting is not None and stack:
                key = waiting
                if len(stack) <= DEPTH:
                    keys.add(_below(stack, key))
        elif word == ",":
            key = waiting = None
        elif token[1] is not None and stack and stack[-1][0] and key is None:
            waiting = token[1]
    if stack:
        yield keys


def _below(stack: list[tuple[bool, str]], key: str | None) -> str:
    if not stack:
        return ""
    is_object, path = stack[-1]
    if not is_object or key is None:
        return path
    return f"{path}.{key}" if path else key
