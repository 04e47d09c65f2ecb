"""Reading a file by its format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from tokenpulse.engine import FormatError, Progress
from tokenpulse.readers import (
    aiperf,
    genai_bench,
    genai_perf,
    guidellm,
    inference_perf,
    inferencex,
    llmperf,
    own,
    sglang,
    stat_logger,
    table,
    traces,
    vllm,
)
from tokenpulse.readers.detection import EITHER_WAY, IN_ARRAYS, TABLES, detect, head
from tokenpulse.readers.documents import FAULTS, Forget, Shape, Source, reason_of, shape_of
from tokenpulse.readers.rows import UnreadableError
from tokenpulse.readers.table import Table
from tokenpulse.records import Records, Summary, Workload

Run: TypeAlias = Records | Summary | Workload | Table
_Reader: TypeAlias = Callable[[Source], Iterator[Run | Forget]]

_READERS: dict[str, _Reader] = {
    vllm.DETAILED: vllm.read,
    vllm.SUMMARY: vllm.read,
    aiperf.REQUESTS: aiperf.read,
    aiperf.SUMMARY: aiperf.read_summary,
    guidellm.FORMAT: guidellm.read,
    inference_perf.REQUESTS: inference_perf.read,
    inference_perf.SUMMARY: inference_perf.read_summary,
    inference_perf.STAGE: inference_perf.read_summary,
    sglang.FORMAT: sglang.read,
    genai_bench.FORMAT: genai_bench.read,
    genai_perf.FORMAT: genai_perf.read,
    llmperf.REQUESTS: llmperf.read,
    llmperf.SUMMARY: llmperf.read_summary,
    inferencex.FORMAT: inferencex.read,
    stat_logger.FORMAT: stat_logger.read,
    traces.AZURE: traces.read_azure,
    traces.BURSTGPT: traces.read_burstgpt,
    traces.MOONCAKE: traces.read_mooncake,
    own.FORMAT: own.read,
}


def read(
    source: str | bytes,
    *,
    name: str | None = None,
    format: str | None = None,  # noqa: A002 (what `detect` calls it too)
    progress: Progress | None = None,
) -> list[Run]:
    """Every run in a file: a path, or its bytes.

    `format` is what `detect` says if it is not given. Our own lines are read exactly too, for whoever needs each
    value; a report of them is `engine.reduce_paths`. A table of our columns is read when its rows are asked for.

    Raises OSError for a file that cannot be read, FormatError for one whose format is unknown or in which nothing
    could be read; any other fault stands in the last run's `skipped` and `notices`.
    """
    if name is None:
        name = source if isinstance(source, str) else "<bytes>"
    start = head(source)
    known = format or detect(start)
    if known in TABLES:
        return [table.read(source, name=name, format=known)]
    if known not in _READERS:
        raise FormatError(f"{name}: unknown format; expected a file of a tool that is named in docs/formats.md")
    shape: Shape = shape_of(start, in_array=known in IN_ARRAYS) if known in EITHER_WAY else "usual"
    runs: list[Run] = []
    try:
        for run in _READERS[known](Source(source, name, progress, shape)):
            if isinstance(run, Forget):
                runs.clear()
            else:
                runs.append(run)
    except UnreadableError as error:
        _keep(runs, name, None, error.reason, str(error), error)
    except FAULTS as error:
        _keep(runs, name, getattr(error, "line", None), reason_of(error), str(error), error)
    if not runs:
        raise FormatError(f"{name}: {known}: no run in it")
    return runs


def _keep(runs: list[Run], name: str, line: int | None, reason: str, message: str, error: Exception) -> None:
    """A fault that ended the reading stands in the last run; without any it is an error."""
    if not runs:
        raise FormatError(message if message.startswith(name) else f"{name}: {message}") from error
    last = runs[-1]
    last.skipped[reason] = last.skipped.get(reason, 0) + 1
    last.notices.append({"path": name, "line": line, "reason": reason, "message": message})
