"""The only file that imports the compiled core; everything else takes its names from here.

Settings arrive as the model's types and leave as the plain tuples that the core takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenpulse import _core
from tokenpulse._core import (
    DecodeError,
    FormatError,
    IdMap,
    JsonDocument,
    PlainBytes,
    Sketch,
    SlidingSketch,
    __version__,
    read_blocks,
)
from tokenpulse._core import KVTrace as CoreKVTrace
from tokenpulse._core import KVTracker as CoreKVTracker
from tokenpulse._core import Meter as CoreMeter
from tokenpulse._core import MeterReader as CoreMeterReader
from tokenpulse._core import Snapshot as RawSnapshot
from tokenpulse.model import MAX_TIMELINE_BINS, SLO, TTL_NS, Reduction

__all__ = [
    "ColumnReducer",
    "CoreKVTrace",
    "CoreKVTracker",
    "CoreMeter",
    "CoreMeterReader",
    "DecodeError",
    "FormatError",
    "IdMap",
    "JsonDocument",
    "PlainBytes",
    "Progress",
    "RawSnapshot",
    "Sketch",
    "SlidingSketch",
    "__version__",
    "read_blocks",
    "read_kv",
    "read_rows",
    "read_rows_bytes",
    "reduce_bytes",
    "reduce_paths",
    "replay",
    "replay_bytes",
    "replay_columns",
    "slo_settings",
]

Progress = Callable[[int, int], None]
"""Called a few times a second with the bytes done and the bytes in all (0 when unknown)."""

_NO_LIMIT = 2**63 - 1
_Limits = tuple[str, int, int, int | None, int | None, dict[str, str]]


def _limits(slos: Sequence[SLO]) -> list[_Limits]:
    return [(s.name, s.ttft_ns, s.tpot_ns, s.e2e_ns, s.itl_ns, dict(s.where)) for s in slos]


def slo_settings(slos: Sequence[SLO]) -> list[tuple[_Limits, float]]:
    """What a meter judges by: limits and objective of each set."""
    return [(limits, slo.objective) for limits, slo in zip(_limits(slos), slos, strict=True)]


def reduce_paths(
    paths: Sequence[str],
    slos: Sequence[SLO] = (),
    itl_rule: str = "token",
    by: Sequence[str] = (),
    timeline_ns: int | None = None,
    ttl_ns: int = TTL_NS,
    progress: Progress | None = None,
    *,
    from_ns: int | None = None,
    to_ns: int | None = None,
    timeline_bins: int = MAX_TIMELINE_BINS,
    threads: int = 0,
    heads: dict[str, bytes] | None = None,
) -> Reduction:
    """Read logs in one pass each and return what they come to; `-` is standard input.

    Only requests that arrive at `from_ns` or later and before `to_ns` are counted. Past `timeline_bins` bins (2 to
    10,000) the width of the timeline's bins doubles.

    `threads` read each input, 0 for as many as there are cores; the result does not depend on it. `heads` has what was
    read of a path already and stands before the rest.

    Raises OSError for a file that cannot be read and FormatError for one whose format is unknown. An exception
    that `progress` raises ends the reading.
    """
    return _core.reduce_paths(
        list(paths),
        _limits(slos),
        itl_rule,
        list(by),
        timeline_ns,
        ttl_ns,
        progress,
        from_ns=from_ns,
        to_ns=to_ns,
        timeline_bins=timeline_bins,
        threads=threads,
        heads=heads,
    )


def reduce_bytes(
    named: Sequence[tuple[str, bytes]],
    slos: Sequence[SLO] = (),
    itl_rule: str = "token",
    by: Sequence[str] = (),
    timeline_ns: int | None = None,
    ttl_ns: int = TTL_NS,
    *,
    from_ns: int | None = None,
    to_ns: int | None = None,
    timeline_bins: int = MAX_TIMELINE_BINS,
    threads: int = 0,
) -> Reduction:
    """The same for logs already in memory, each with the name it is reported under."""
    return _core.reduce_bytes(
        list(named),
        _limits(slos),
        itl_rule,
        list(by),
        timeline_ns,
        ttl_ns,
        from_ns=from_ns,
        to_ns=to_ns,
        timeline_bins=timeline_bins,
        threads=threads,
    )


class ColumnReducer:
    """Requests and events in memory, as NumPy columns, to a reduction: read where they are, without a copy.

    A column has a value for each row, of the dtype below, contiguous; -2**63 stands for what is absent. Times and
    durations are nanoseconds. A column that is left out, or None, is absent in every row.
    Other columns than these are ignored.

    | of requests | dtype |
    |---|---|
    | `arrive_ns` | int64, the one that is needed |
    | `token_ns`, or `dt_ns` (since the arrival) | int64: the emissions of all rows, one row after the other |
    | `token_offsets` | int64 or int32, one more than rows: where each row's emissions begin, and the last one's end |
    | `n` | int64, int32 or uint32: tokens of each emission; without, one each |
    | `output_tokens`, `first_token_ns`, `last_token_ns` | int64: without emissions, or beside chunks |
    | `schedule_ns`, `prefill_ns`, `end_ns`, `prompt_tokens` | int64 |
    | `preempt_ns` and `preempt_offsets`, `resume_ns` and `resume_offsets` | as `token_ns` and `token_offsets` |
    | `status` | uint8: the place in `model.STATUSES`; 255: in flight. Without, `stop` |
    | `degraded` | bool |
    | `ids` | a list of str; or the texts as uint8 and their offsets; without, the row's number in its input, from 0 |
    | `labels` | a dict of names to codes (int32) and the list of str they stand for; -1: absent |

    Events have `t_ns` (int64), `ev` (uint8: arrive, schedule, prefill, tokens, preempt, resume, end, any other), and
    `k`, `status`, `degraded`, `prompt_tokens`, `ids`, `labels` as above; a row is read as its kind of line would be.

    Raises TypeError or ValueError, which name the column, for one of another dtype, shape or length. A row with a
    number out of its range is skipped and counted, with its number, from 1, as the line of its notice.

    >>> import numpy as np
    >>> reducer = ColumnReducer()
    >>> tokens = {"token_ns": np.array([70, 80, 95]), "token_offsets": np.array([0, 2, 3])}
    >>> reducer.requests("run", "arrays", {"arrive_ns": np.array([50, 60]), **tokens})
    >>> total = reducer.finish()["total"]
    >>> total["output_tokens"], total["latency"]["ttft"].max_ns
    (3, 35)
    """

    def __init__(
        self,
        slos: Sequence[SLO] = (),
        itl_rule: str = "token",
        by: Sequence[str] = (),
        timeline_ns: int | None = None,
        ttl_ns: int = TTL_NS,
        *,
        from_ns: int | None = None,
        to_ns: int | None = None,
        timeline_bins: int = MAX_TIMELINE_BINS,
    ) -> None:
        self._core = _core.ColumnReducer(
            _limits(slos), itl_rule, list(by), timeline_ns, timeline_bins, ttl_ns, from_ns, to_ns
        )

    def requests(self, name: str, format: str, columns: Mapping[str, Any]) -> None:  # noqa: A002
        """A batch of requests of the input `name`. Its rows go on where the input's last batch ended."""
        self._core.requests(name, format, dict(columns))

    def events(self, name: str, format: str, columns: Mapping[str, Any]) -> None:  # noqa: A002
        """A batch of events of the input `name`. Its rows go on where the input's last batch ended."""
        self._core.events(name, format, dict(columns))

    def finish(self) -> Reduction:
        """What all inputs come to. The reducer takes nothing more."""
        return self._core.finish()


def read_rows(
    paths: Sequence[str],
    ttl_ns: int = TTL_NS,
    *,
    max_tokens: int | None = None,
    progress: Progress | None = None,
    threads: int = 0,
    heads: Mapping[str, bytes] | None = None,
) -> dict[str, Any]:
    """Read logs of our own lines into exact rows: one for each request that arrived, with its accepted events alone.

    The columns are those of `ColumnReducer.requests`, all of them, with all labels; beside them stand `inputs`,
    `notices`, `rejected`, `clamped` and `newest_ns` as in a reduction. Memory follows the number of emissions: more
    than `max_tokens`, where that is given, are a ValueError. Raises as `reduce_paths` does.
    """
    most = _NO_LIMIT if max_tokens is None else max_tokens
    return _core.read_rows(
        list(paths), ttl_ns, most, progress, threads=threads, heads=None if heads is None else dict(heads)
    )


def read_rows_bytes(
    named: Sequence[tuple[str, bytes]], ttl_ns: int = TTL_NS, *, max_tokens: int | None = None, threads: int = 0
) -> dict[str, Any]:
    """The same for logs already in memory, each with the name it is reported under.

    >>> line = b'{"id": "a", "arrive_ns": 5, "token_ns": [7, 9], "labels": {"tenant": "x"}}'
    >>> rows = read_rows_bytes([("log", line)], max_tokens=10)
    >>> rows["ids"], rows["token_ns"].tolist(), rows["status"].tolist(), rows["labels"]["tenant"][1]
    (['a'], [7, 9], [0], ['x'])
    """
    most = _NO_LIMIT if max_tokens is None else max_tokens
    return _core.read_rows_bytes(list(named), ttl_ns, most, threads=threads)


def read_kv(
    paths: Sequence[str],
    *,
    stream: str = "copies",
    remember: int | None = None,
    ttl_ns: int | None = None,
    sample: float | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Read logs of KV-cache events, or a trace of block hashes, in one pass each; `-` is standard input.

    `sample` is the share of blocks that is followed, None for every one. Raises as `reduce_paths` does.
    """
    return _core.read_kv(
        list(paths),
        stream=stream,
        remember=remember,
        ttl_ns=ttl_ns,
        mode="exact" if sample is None else "sampled",
        rate=1.0 if sample is None else sample,
        progress=progress,
    )


def replay(
    meter: CoreMeter,
    path: str,
    *,
    every_ns: int = 1_000_000_000,
    by: Sequence[str] = ("prompt_length",),
    on_pane: Callable[[int], object],
    progress: Progress | None = None,
    threads: int = 0,
    head: bytes | None = None,
) -> dict[str, Any]:
    """Put a log through a meter, line by line, as its engine would have called it; `-` is standard input.

    Requests are classed by `by`: `prompt_length` and labels (an SLO set that asks for labels judges what is classed by
    them). What lines say of a KV cache goes to the meter's tracker, if it has one. Emissions are taken as
    `Meter.tokens` takes them, so batch sizes are not counted.

    A log that begins with a request line is held in memory and applied in the order of its times: 8 bytes an emission
    (16 with `n`) and some 350 bytes a request. Else lines are applied as they come, and memory is bounded.

    Before the first line at or past a multiple of `every_ns` (nanoseconds, of the log's clock) is applied, `on_pane` is
    called with that multiple: `meter.snapshot` of it is what a reader would have seen. Multiples up to the log's first
    time are left out. In a silence longer than an hour the calls stop after the first hour, and go on after the line
    that ends it. After the last line `on_pane` is called with the newest time, if that is past the last call.

    `head` is what was read of the path already, and stands before the rest. Returns `inputs` and `notices` as
    `reduce_paths` does, `first_ns` and `newest_ns` (None without a line that has a time), and `machine`: what `ready`
    lines say of `peak_flops` (FLOP/s), `bandwidth_bytes_per_second`, `kv_block_tokens` and `gpus`, as far as they do.

    Raises as `reduce_paths` does. An exception of `on_pane` or `progress` ends the reading; the meter then has what
    came before.
    """
    return _core.replay(
        meter, path, every_ns=every_ns, by=list(by), on_pane=on_pane, progress=progress, threads=threads, head=head
    )


def replay_bytes(
    meter: CoreMeter,
    name: str,
    content: bytes,
    *,
    every_ns: int = 1_000_000_000,
    by: Sequence[str] = ("prompt_length",),
    on_pane: Callable[[int], object],
    threads: int = 0,
) -> dict[str, Any]:
    """The same for a log already in memory, with the name it is reported under.

    >>> from tokenpulse import Meter
    >>> meter, seen = Meter(windows=()), []
    >>> log = b'{"t_ns": 0, "ev": "ready", "gpus": 8}\\n{"t_ns": 2500000000, "ev": "gauge", "waiting": 3}'
    >>> replay_bytes(meter, "log", log, on_pane=seen.append)["machine"], seen
    ({'gpus': 8}, [1000000000, 2000000000, 2500000000])
    """
    return _core.replay_bytes(meter, name, content, every_ns=every_ns, by=list(by), on_pane=on_pane, threads=threads)


def replay_columns(
    meter: CoreMeter,
    columns: Mapping[str, Any],
    *,
    name: str = "columns",
    format: str = "columns",  # noqa: A002
    every_ns: int = 1_000_000_000,
    by: Sequence[str] = ("prompt_length",),
    on_pane: Callable[[int], object],
) -> dict[str, Any]:
    """The same for requests in columns, those of `ColumnReducer.requests`, in the order of their times.

    `Records.columns()` has those of another tool's file. Raises TypeError and ValueError as `ColumnReducer` does.

    >>> import numpy as np
    >>> from tokenpulse import Meter
    >>> meter = Meter(windows=())
    >>> tokens = {"token_ns": np.array([95, 70, 80]), "token_offsets": np.array([0, 1, 3])}
    >>> columns = {"arrive_ns": np.array([60, 50]), **tokens}
    >>> replay_columns(meter, columns, on_pane=print)["newest_ns"], meter.snapshot().total.counts["output_tokens"]
    95
    (95, 3)
    """
    return _core.replay_columns(meter, name, format, dict(columns), every_ns=every_ns, by=list(by), on_pane=on_pane)
