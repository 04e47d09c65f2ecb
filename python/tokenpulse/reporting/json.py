"""A report as one JSON object: strict (no NaN, no Infinity), ASCII, one line."""

from __future__ import annotations

import json

from tokenpulse.reporting.report import Report


def dumps(report: Report) -> str:
    """The object of `Report.to_dict` as text that any JSON reader takes."""
    return json.dumps(report.to_dict(), allow_nan=False)
