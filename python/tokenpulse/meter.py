"""`Meter`: counts a running engine's requests as they happen; and readers of the meters of other processes.

Settings are parsed here, once; the calls an engine makes are the compiled core's own, without a Python frame.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenpulse import engine
from tokenpulse.grammar import duration_ns, slo_sets
from tokenpulse.kv import KVTracker
from tokenpulse.model import MAX_CLASSES, SLO
from tokenpulse.snapshot import Snapshot

WINDOWS = ("15s", "1m", "5m", "1h")
MAX_REQUESTS = 65_536


class Meter(engine.CoreMeter):
    __doc__ = engine.CoreMeter.__doc__
    __slots__ = ()

    def __new__(
        cls,
        slos: SLO | str | Iterable[SLO | str] | None = (),
        windows: str | float | Iterable[str | float] = WINDOWS,
        *,
        burn: bool = True,
        scale: int = 6,
        itl: str = "token",
        max_requests: int = MAX_REQUESTS,
        max_classes: int = MAX_CLASSES,
        ttl: str | float = "1h",
        path: str | os.PathLike[str] | None = None,
        shards: int = 1,
        kv: KVTracker | None = None,
    ) -> Meter:
        widths = [windows] if isinstance(windows, (str, int, float)) else windows
        return super().__new__(
            cls,
            slos=engine.slo_settings(slo_sets(slos)),
            windows_ns=[duration_ns(width) for width in widths],
            burn=burn,
            scale=scale,
            itl_rule=itl,
            max_requests=max_requests,
            max_classes=max_classes,
            ttl_ns=duration_ns(ttl),
            path=path,
            shards=shards,
            kv=kv,
        )

    if TYPE_CHECKING:

        @property
        def kv(self) -> KVTracker | None: ...

    def snapshot(self, t: int | None = None) -> Snapshot:
        """What the meter holds: at `t`, or at its newest time. Reading changes nothing."""
        return Snapshot(self._snapshot(t))

    @staticmethod
    def open(path: str | os.PathLike[str]) -> MeterReader:
        """A reader of the meter that some process, alive or not, writes or wrote to `path`.

        OSError for a file that cannot be read, DecodeError for one that holds no meter.
        """
        return MeterReader(path)


class MeterReader(engine.CoreMeterReader):
    __doc__ = engine.CoreMeterReader.__doc__
    __slots__ = ()

    def snapshot(self, t: int | None = None) -> Snapshot:
        """What the meter holds: at `t` on its own clock, or at its newest time. Reading changes nothing."""
        return Snapshot(self._snapshot(t))


@dataclass(frozen=True, slots=True)
class Block:
    """One file of a folder of meters: what it held, or why it could not be read."""

    path: Path
    pid: int | None
    alive: bool | None
    snapshot: Snapshot | None
    error: str | None


@dataclass(frozen=True, slots=True)
class DirReading:
    """A folder of meters, all read at the same moment."""

    blocks: tuple[Block, ...]

    @property
    def snapshot(self) -> Snapshot:
        """All meters that could be read as one: what counters are taken from, since they do not fall at a restart.

        ValueError if there are none or their settings differ.
        """
        return _merged(self.blocks, "can be read as a meter")

    @property
    def living(self) -> Snapshot:
        """The meters whose writers are alive as one: what is asked about now, gauges and requests in flight.

        ValueError if there are none or their settings differ.
        """
        return _merged([block for block in self.blocks if block.alive], "is a meter whose writer is alive")

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)


def _merged(blocks: Sequence[Block], wanted: str) -> Snapshot:
    merged: Snapshot | None = None
    for block in blocks:
        if block.snapshot is None:
            continue
        try:
            merged = block.snapshot if merged is None else merged + block.snapshot
        except ValueError as differ:
            raise ValueError(f"{block.path}: cannot be added to the meters before it: {differ}") from None
    if merged is None:
        raise ValueError(f"no file {wanted}")
    return merged


def read_dir(folder: str | os.PathLike[str], unix_ns: int | None = None) -> DirReading:
    """Read every meter in a folder at one moment: at `unix_ns`, or at the newest time that any of them has seen.

    Each is read on its own clock; clocks that differ are brought together by the moment that each meter noted on both
    its own and the system's. Files that cannot be read are listed with an error. OSError for a folder that cannot be
    read.
    """
    found = engine.read_blocks(folder)
    readers = [reader for _, reader in found if not isinstance(reader, str)]
    newest = max((reader for reader in readers if reader.newest_ns is not None), key=_newest_unix, default=None)
    moment = unix_ns if unix_ns is not None else None if newest is None else _newest_unix(newest)
    blocks = []
    for path, reader in found:
        if isinstance(reader, str):
            blocks.append(Block(path, None, None, None, reader))
            continue
        try:
            snapshot = Snapshot(_read_at(reader, newest, moment, exact=unix_ns is None))
        except engine.DecodeError as wrong:
            blocks.append(Block(path, reader.pid, reader.alive, None, str(wrong)))
        else:
            blocks.append(Block(path, reader.pid, reader.alive, snapshot, None))
    return DirReading(tuple(blocks))


def _read_at(
    reader: engine.CoreMeterReader, newest: engine.CoreMeterReader | None, moment: int | None, *, exact: bool
) -> engine.RawSnapshot:
    """A meter's reading at a moment since the Unix epoch, on the clock of the newest of the meters."""
    if moment is None or newest is None:
        return reader._snapshot(None)
    if _clock(reader) == _clock(newest):
        # On one clock there is one time: anchors were taken apart from each other and differ by that much.
        return reader._snapshot(newest.newest_ns if exact else max(0, moment - _offset(newest)))
    ahead = _offset(reader) - _offset(newest)
    return reader._snapshot(max(0, moment - _offset(reader))).shift(ahead)


def _offset(reader: engine.CoreMeterReader) -> int:
    """What to add to a time on a meter's clock for the time since the Unix epoch."""
    return int(reader.origin["anchor_unix_ns"] - reader.origin["anchor_monotonic_ns"])


def _newest_unix(reader: engine.CoreMeterReader) -> int:
    return (reader.newest_ns or 0) + _offset(reader)


def _clock(reader: engine.CoreMeterReader) -> object:
    """The same for meters on the same clock."""
    origin = reader.origin
    return (origin["boot"],) if origin["monotonic"] and origin["boot"] else (origin["pid"], _offset(reader))
