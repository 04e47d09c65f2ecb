"""Files that may be compressed: written as their name says, read as their content says.

`.gz` is gzip, `.zst` Zstandard (Python 3.14 has it; before that it is in the extra `zstd`), anything else plain. A
file is written beside its place and put there when it is whole; what is read is bounded.
"""

from __future__ import annotations

import gzip
import importlib
import io
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

HOW_TO_ZSTD = "Zstandard needs Python 3.14 or the extra: pip install 'tokenpulse[zstd]'"


def check(path: str) -> None:
    """Raise ValueError where a file of this name could not be written here for want of a library.

    >>> check("run.sketches.json.gz")
    """
    if path.endswith(".zst"):
        _zstd()


@contextmanager
def writing(path: str) -> Iterator[BinaryIO]:
    """A stream into a file, compressed as its name says; the file takes its place when all is written, or never.

    Raises OSError where it cannot be written, and ValueError for `.zst` without the library.
    """
    check(path)
    with placing(path) as plain, _compressing(Path(path).name, plain) as stream:
        yield stream


@contextmanager
def placing(path: str) -> Iterator[BinaryIO]:
    """As `writing`, of bytes that stay as they are, whatever the name."""
    try:
        with _beside(Path(path)) as stream:
            yield stream
    except OSError as wrong:
        if wrong.errno is None or wrong.strerror is None or wrong.filename is not None:
            raise
        raise OSError(wrong.errno, wrong.strerror, path) from None  # a full disk is that of this file


def check_output(path: str, inputs: Iterable[str]) -> None:
    """Raise ValueError where a file to be written is one of the files that are read: it would be lost.

    >>> check_output("page.html", ["run.jsonl", "-"])
    """
    for one in inputs:
        with suppress(OSError, ValueError):  # what does not exist is no file of the other's
            if Path(path).is_file() and Path(path).samefile(one):
                break
    else:
        return
    raise ValueError(f"{path}: is an input, and would be overwritten")


@contextmanager
def _beside(place: Path) -> Iterator[BinaryIO]:
    """A new file in the folder of `place`, which takes its name at the end; a device or a pipe is written as it is."""
    if place.exists() and not place.is_file():
        with open(place, "wb") as stream:
            yield stream
        return
    target = place.resolve()  # a link stays one
    try:
        number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as wrong:
        raise OSError(wrong.errno, wrong.strerror, os.fspath(place)) from None
    try:
        with os.fdopen(number, "wb") as stream:
            yield stream
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~mask)  # noqa: PTH101
        os.replace(name, target)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def _compressing(name: str, plain: BinaryIO) -> Iterator[BinaryIO]:
    if name.endswith(".gz"):
        # No name and no time inside: the same content is the same file.
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=plain, mtime=0) as packed:
            yield cast(BinaryIO, packed)
    elif name.endswith(".zst"):
        with _zstd().writer(plain) as stream:
            yield stream
    else:
        yield plain


def read(path: str, most: int) -> bytes:
    """All of a file, uncompressed whatever its name says.

    Raises OSError where it cannot be read, and ValueError beyond `most` bytes, for compressed bytes that are damaged
    and for Zstandard without the library.
    """
    with open(path, "rb") as stream:
        found = _some(_opened(stream), most + 1)
    if len(found) > most:
        raise ValueError(f"a file must be at most {most:,} bytes, uncompressed")
    return found


def head(path: str, size: int = 65_536) -> bytes:
    """The first bytes of a file, uncompressed as far as they can be; a folder or a pipe has none."""
    if not Path(path).is_file():
        return b""
    with open(path, "rb") as stream:
        try:
            return _some(_opened(stream), size)
        except ValueError:
            return b""


def _opened(stream: BinaryIO) -> BinaryIO:
    magic = stream.read(4)
    stream.seek(0) if stream.seekable() else None
    if not stream.seekable():
        stream = cast(BinaryIO, io.BufferedReader(_Rest(magic, stream)))
    if magic.startswith(GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb"))
    if magic == ZSTD_MAGIC:
        return cast(BinaryIO, _zstd().reader(stream))
    return stream


class _Rest(io.RawIOBase):
    """A stream of which the first bytes have been read already."""

    def __init__(self, begun: bytes, stream: BinaryIO) -> None:
        self._begun, self._stream = begun, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._begun[: len(buffer)] or self._stream.read(len(buffer))
        self._begun = self._begun[len(buffer) :]
        buffer[: len(found)] = found
        return len(found)


def _some(stream: BinaryIO, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    damage: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile, *_zstd_errors())
    try:
        while size < most and (part := stream.read(min(1 << 20, most - size))):
            parts.append(part)
            size += len(part)
    except damage as wrong:
        raise ValueError(f"the compressed file ends early or is damaged ({wrong})") from None
    return b"".join(parts)


class _Zstd:
    """The one of two libraries that is there."""

    def __init__(self) -> None:
        try:
            self.own: Any = importlib.import_module("compression.zstd")
        except ModuleNotFoundError:
            self.own = None
            self.other: Any = importlib.import_module("zstandard")

    @property
    def error(self) -> type[Exception]:
        found: type[Exception] = self.other.ZstdError if self.own is None else self.own.ZstdError
        return found

    def writer(self, plain: BinaryIO) -> Any:
        if self.own is not None:
            return self.own.ZstdFile(plain, mode="wb")
        return self.other.ZstdCompressor(write_checksum=True).stream_writer(plain, closefd=False)

    def reader(self, stream: BinaryIO) -> Any:
        if self.own is not None:
            return self.own.ZstdFile(stream, mode="rb")
        # A window beyond 128 MiB is refused, as the zstd tool does: a file cannot ask for more memory than that.
        decompressor = self.other.ZstdDecompressor(max_window_size=1 << 27)
        return decompressor.stream_reader(stream, read_across_frames=True)


def _zstd() -> _Zstd:
    try:
        return _Zstd()
    except ModuleNotFoundError:
        raise ValueError(HOW_TO_ZSTD) from None


def _zstd_errors() -> tuple[type[Exception], ...]:
    try:
        return (_Zstd().error,)
    except ModuleNotFoundError:
        return ()
