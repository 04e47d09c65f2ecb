"""A report as one HTML page that needs nothing else: no network, no script, no files beside it.

Figures are drawn by Matplotlib (the extra `plot`) as SVG in the page. The page follows the reader's light or dark
setting, is readable on a telephone and prints on A4. Text of a log (paths, labels, ids) is escaped wherever it stands.
The same report gives the same page, byte for byte, with the same Matplotlib.
"""

from __future__ import annotations

import os
from typing import IO

from tokenpulse.compressed import placing
from tokenpulse.reporting.html.svg import check
from tokenpulse.reporting.report import Report

__all__ = ["check", "render", "write"]


def render(report: Report) -> str:
    """The page as text, in ASCII only.

    Raises ModuleNotFoundError, naming the extra, where Matplotlib is not installed.
    """
    check()
    from tokenpulse.reporting.html import page

    return page.render(report)


def write(report: Report, file: str | os.PathLike[str] | IO[str]) -> None:
    """Write the page into a file of this name, or into one that is open for text.

    A file takes its place when all of the page is written, or never. Raises OSError for one that cannot be written, and
    ModuleNotFoundError, naming the extra, where Matplotlib is not installed.
    """
    text = render(report)
    if isinstance(file, (str, os.PathLike)):
        with placing(os.fspath(file)) as stream:
            stream.write(text.encode("ascii"))
    else:
        file.write(text)
