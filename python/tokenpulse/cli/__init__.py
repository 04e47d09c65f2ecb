"""The `tokenpulse` command: runs one, and turns every failure into one line and an exit status.

0: done. 1: done, but `--strict` and something could not be used. 2: an input or an option does not fit.
130: interrupted. Commands compose the package's functions and compute nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

OK, UNUSABLE, MISUSE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; no input ends in a traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        status = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has left. The interpreter flushes at its exit, and must not find the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _run(argv: Sequence[str] | None) -> int:
    import click

    from tokenpulse.cli.root import root

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        # Not `root.main`, which would swallow a broken pipe.
        with root.make_context("tokenpulse", list(sys.argv[1:] if argv is None else argv)) as context:
            root.invoke(context)
    except click.exceptions.Exit as finished:
        return finished.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as wrong:
        return _fail(wrong.format_message())
    except BrokenPipeError:
        raise
    except OSError as wrong:
        named = wrong.filename is not None and wrong.strerror
        return _fail(f"{wrong.filename}: {wrong.strerror}" if named else str(wrong))
    except (ValueError, OverflowError) as wrong:
        return _fail(str(wrong))
    return OK


def _fail(message: str) -> int:
    print("tokenpulse: error: " + " ".join(message.split()), file=sys.stderr)
    return MISUSE
