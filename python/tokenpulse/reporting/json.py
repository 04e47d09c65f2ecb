"""A report as one JSON object: strict (no NaN, no Infinity), ASCII, one line."""

from __future__ import annotations

import json
from typing import Any, Protocol


class Reported(Protocol):
    """What has figures that JSON can hold."""

    def to_dict(self) -> dict[str, Any]: ...


def dumps(report: Reported) -> str:
    """The object of `to_dict` as text that any JSON reader takes."""
    return json.dumps(report.to_dict(), allow_nan=False)
