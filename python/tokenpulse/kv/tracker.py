"""`KVTracker`: follows the blocks of an engine's KV cache, alone or as part of a `Meter`.

Settings are parsed here, once; the calls an engine makes are the compiled core's own, without a Python frame.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenpulse import engine
from tokenpulse.kv import checks
from tokenpulse.kv.snapshot import KVSnapshot

REMEMBER = 1_000_000
MAX_BLOCKS = 1_000_000
TTL = "30m"
RATE = 0.01


class KVTracker(engine.CoreKVTracker):
    __doc__ = engine.CoreKVTracker.__doc__
    __slots__ = ()

    def __new__(
        cls,
        remember: int = REMEMBER,
        ttl: str | float = TTL,
        report: str = "copies",
        mode: str = "exact",
        rate: float = RATE,
        windows: str | float | Iterable[str | float] | None = None,
        *,
        max_blocks: int = MAX_BLOCKS,
        scale: int = 6,
    ) -> KVTracker:
        widths = [windows] if isinstance(windows, (str, int, float)) else windows
        return super().__new__(
            cls,
            remember=remember,
            ttl_ns=checks.duration("ttl", ttl),
            report=report,
            mode=mode,
            rate=checks.share("rate", rate),
            windows_ns=None if widths is None else [checks.duration("windows", width) for width in widths],
            max_blocks=max_blocks,
            scale=scale,
        )

    def snapshot(self, t: int | None = None) -> KVSnapshot:
        """What the tracker holds: at `t`, or at its newest time. Reading changes nothing."""
        return KVSnapshot(self._snapshot(t))
