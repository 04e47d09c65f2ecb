"""From a reduction to a report, and a report as a table for people or as JSON.

The table is imported by its own name only, so that a report by itself loads no terminal library.
"""

from tokenpulse.reporting.report import Report

__all__ = ["Report"]
