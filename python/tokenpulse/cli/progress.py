"""A progress bar on standard error: only on a terminal, and only for work that takes more than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tokenpulse.engine import Progress

PATIENCE_SECONDS = 1.0


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """What to hand to the engine as `progress`.

    Also without a terminal it is a Python function, so that an interrupt is seen while the engine works.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("reading"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("reading", total=None)
    begun = time.monotonic()
    started = False

    def advance(done: int, total: int) -> None:
        nonlocal started
        if not started and time.monotonic() - begun > PATIENCE_SECONDS:
            bar.start()
            started = True
        bar.update(task, completed=done, total=total or None)

    try:
        yield advance
    finally:
        if started:
            bar.stop()
