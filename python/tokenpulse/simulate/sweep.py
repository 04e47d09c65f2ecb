"""The same simulation at several values of one setting, and what the runs say together.

Each value is simulated in a process of its own, as many at once as there are cores. All have the same seed, so that
what differs between them is the value. The runs are logs like any other, and are read as such.
"""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenpulse import sizing
from tokenpulse.grammar import slo_sets
from tokenpulse.simulate.simulation import run
from tokenpulse.sizing import Capacity

Value = float | int | str

RATE = "rate"
WHOLE = ("batch_max", "block_tokens", "chunk", "gpus", "in_flight", "kv_blocks", "prefill_quota", "seed", "speculate")
BROKEN = ("abort_rate", "acceptance", "burstiness", "prefix_share", RATE)
WORDS = ("arrivals", "gpu", "model", "output", "policy", "prompt")

MOST_VALUES = 1000

CHILD = "from tokenpulse.simulate.sweep import child; child()"


@dataclass(frozen=True)
class Sweep:
    """A setting and the values that it takes, in order."""

    name: str
    values: tuple[Value, ...]

    @classmethod
    def parse(cls, text: str) -> Sweep:
        """From `rate=2:40:2` (first, last, step; the last one included where it is met) or `batch_max=32,64`.

        Raises ValueError that says what does not fit.

        >>> Sweep.parse("rate=2:4:0.5").values, Sweep.parse("batch-max=32,64")
        ((2.0, 2.5, 3.0, 3.5, 4.0), Sweep(name='batch_max', values=(32, 64)))
        """
        written, equals, values = text.partition("=")
        name = written.strip().replace("-", "_")
        if not equals or name not in (*WHOLE, *BROKEN, *WORDS):
            known = ", ".join(sorted((*WHOLE, *BROKEN, *WORDS)))
            raise ValueError(f"a sweep must be NAME=FIRST:LAST:STEP or NAME=A,B,C with one of {known}; got {text!r}")
        if name in WORDS:
            found: Iterable[Value] = [one.strip() for one in values.split(";" if ";" in values else ",")]
        elif ":" in values:
            found = _steps(name, values)
        else:
            found = [_number(name, one) for one in values.split(",")]
        several = tuple(found)
        if len(set(several)) < len(several) or "" in several:
            raise ValueError(f"a sweep's values must differ, and none may be empty; got {text!r}")
        return cls(name, several)

    def label(self, value: Value) -> str:
        """A run's name."""
        return f"{self.name}={value if isinstance(value, str) else format(value, '.9g')}"


def sweep(
    setting: str | Sweep,
    *,
    slo: Any,
    out: str | os.PathLike[str] | None = None,
    processes: int | None = None,
    capacity: dict[str, Any] | None = None,
    **settings: Any,
) -> Capacity:
    """Simulate each value of a setting, and return what the runs say together.

    `setting`: such as `"rate=2:40:2"` or `"batch_max=32,64,128"`. `slo`: the limits that make a request good.
    `out`: a directory that is made, and keeps the runs as `rate=2.jsonl`, ...; else they are not kept. `processes`: how
    many at once, by default as many as there are cores. `capacity`: settings of `tokenpulse.capacity`, such as
    `gpu_hour`. All others are those of `simulate.run`. Errors are those of both.

    >>> found = sweep("rate=5,10", slo="ttft=1s,tpot=50ms", duration="20s", processes=1)
    >>> [row["name"] for row in found.runs], found.slos[0]["keeps"][0]["how"]
    (['rate=5', 'rate=10'], 'at least')
    """
    asked = Sweep.parse(setting) if isinstance(setting, str) else setting
    if asked.name in settings:
        raise ValueError(f"{asked.name} is what is swept: it must not be given beside")
    if not slo_sets(slo):
        raise ValueError("a sweep needs limits to judge requests by: --slo ttft=..,tpot=..")
    further = capacity or {}
    # What is not kept has no file to be told by; a trace's own name may end in .gz, and says nothing of the run's.
    ending = "" if out is None and asked.name != "arrivals" else ".jsonl"
    sizing.budget_of(*(further.get(name) for name in ("gpu_hour", "gpus", "cost_limit")))
    with TemporaryDirectory(prefix="tokenpulse-") as kept_until_read:
        folder = Path(kept_until_read if out is None else out)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, "a sweep needs a directory for its runs, and this is a file", str(out)
            )
        folder.mkdir(parents=True, exist_ok=True)
        paths = [str(folder / f"{asked.label(value).replace('/', '_')}{ending}") for value in asked.values]
        every = [{**settings, asked.name: value, "out": path} for value, path in zip(asked.values, paths, strict=True)]
        _simulate(every, processes)
        varied = None if asked.name == RATE else (asked.name, asked.values)
        found = sizing.capacity(paths, slo=slo, varied=varied, **further)
    if out is None:
        for row in found.runs:
            row["path"] = row["name"]
    return found


def _simulate(every: Sequence[dict[str, Any]], processes: int | None) -> None:
    """Run all simulations, the slowest ones (which come last where a rate is swept) first."""
    many = min(len(every), os.cpu_count() or 1 if processes is None else processes)
    try:
        told = [json.dumps(one, default=os.fspath) for one in every]
    except TypeError:  # settings that are objects stay in this process
        many = 1
    if many == 1:
        for one in every:
            run(**one)
        return
    with ThreadPoolExecutor(many) as pool:
        running = [pool.submit(_process, text) for text in reversed(told)]
        try:
            for simulated in reversed(running):
                simulated.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _process(settings: str) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], input=settings.encode(), capture_output=True, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ValueError(last[0] if last else f"a simulation ended with status {done.returncode}")


def child() -> None:
    """What a process does: simulate by the settings on standard input."""
    try:
        run(**json.loads(sys.stdin.read()))
    except (ValueError, OSError) as wrong:
        print(" ".join(str(wrong).split()), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _number(name: str, text: str) -> float | int:
    try:
        return int(text) if name in WHOLE else float(Decimal(text.strip()))
    except (ValueError, InvalidOperation):
        kind = "a whole number" if name in WHOLE else "a number"
        raise ValueError(f"a sweep's {name} must be {kind}, got {text!r}") from None


def _steps(name: str, text: str) -> list[float | int]:
    """First, last and step, added up exactly."""
    parts = text.split(":")
    try:
        first, last, step = (Decimal(part.strip()) for part in parts)
    except (ValueError, InvalidOperation):
        raise ValueError(f"a sweep of {name} must be FIRST:LAST:STEP, got {text!r}") from None
    if not (first.is_finite() and last.is_finite() and step.is_finite() and step > 0 and last >= first):
        raise ValueError(f"a sweep of {name} must rise from FIRST to LAST by a STEP above 0, got {text!r}")
    many = math.floor((last - first) / step) + 1
    if many > MOST_VALUES:
        raise ValueError(f"a sweep must have at most {MOST_VALUES:,} values, got {many:,} from {text!r}")
    return [_number(name, str(first + number * step)) for number in range(many)]
