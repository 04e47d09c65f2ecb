"""The lines on standard error that name what could not be used."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

MAX_NOTICES = 10


def warn(unusable: int, notices: Sequence[Mapping[str, Any]]) -> None:
    """Name the first lines and events that could not be used; nothing where all could."""
    if not unusable:
        return
    from tokenpulse.reporting.text import printable

    shown = notices[:MAX_NOTICES]
    what = "line or event" if unusable == 1 else "lines or events"
    print(f"tokenpulse: warning: {unusable:,} {what} could not be used", file=sys.stderr)
    for one in shown:
        place = f"{printable(one['path'])}:{one['line']}"
        print(f"  {place}: {one['reason']}: {printable(one['message'])}", file=sys.stderr)
    if unusable > len(shown):
        print(f"  ... and {unusable - len(shown):,} more", file=sys.stderr)
