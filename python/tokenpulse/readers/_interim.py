"""Stand-in for the core's JsonDocument until it is there; to be deleted."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

try:
    from tokenpulse.engine import JsonDocument  # type: ignore[attr-defined]
except ImportError:

    class JsonDocument:  # type: ignore[no-redef]
        def __init__(self, source, *, name=None, select=(), columns=(), integers=(), skip=(), lines=False, limit=0):
            content = source if isinstance(source, bytes) else open(source, "rb").read()
            if content[:2] == b"\x1f\x8b":
                content = gzip.decompress(content)
            self.text = content.decode()
            self.select, self.columns, self.integers, self.skip = select, columns, integers, skip
            self.line = 0

        def __iter__(self):
            return self._run()

        def _run(self) -> Iterator[tuple[str, tuple[int, ...], Any]]:
            decoder = json.JSONDecoder()
            at = 0
            doc = 0
            while True:
                m = re.compile(r"\s*").match(self.text, at)
                at = m.end()
                if at >= len(self.text):
                    return
                value, at = decoder.raw_decode(self.text, at)
                self.line = self.text.count("\n", 0, at) + 1
                yield from self._walk(value, "", (doc,))
                if "$" in self.select:
                    yield "$", (doc,), json.dumps(value).encode()
                doc += 1

        def _walk(self, value, path, at):
            if isinstance(value, dict):
                for key in list(value):
                    sub = f"{path}.{key}" if path else key
                    if (yield from self._one(value[key], sub, at)):
                        del value[key]
            elif isinstance(value, list):
                for i, member in enumerate(value):
                    yield from self._one(member, path + "[*]", (*at, i))
                if path + "[*]" in self.select or path + "[*]" in self.skip:
                    value.clear()

        def _one(self, value, path, at):
            if path in self.skip:
                return True
            if path in self.columns or path in self.integers:
                if not isinstance(value, list):
                    yield path, at, json.dumps(value).encode()
                elif path in self.columns:
                    yield path, at, np.array([np.nan if v is None else float(v) for v in value])
                else:
                    yield path, at, np.array([-(2**63) if v is None else int(v) for v in value], np.int64)
                return True
            ragged = path + "[*]"
            if (ragged in self.columns or ragged in self.integers) and isinstance(value, list):
                dtype = np.float64 if ragged in self.columns else np.int64
                rows = [np.array(v or [], dtype) for v in value]
                offsets = np.zeros(len(rows) + 1, np.int64)
                np.cumsum([len(r) for r in rows], out=offsets[1:])
                yield ragged, at, (np.concatenate(rows) if rows else np.empty(0, dtype), offsets)
                return True
            yield from self._walk(value, path, at)
            if path in self.select:
                yield path, at, json.dumps(value).encode()
                return True
            return False
