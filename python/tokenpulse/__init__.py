"""Exact metering for LLM serving: latency sketches, goodput and reports from request logs."""

from tokenpulse.api import report
from tokenpulse.engine import DecodeError, FormatError, Sketch, SlidingSketch, __version__
from tokenpulse.model import SLO
from tokenpulse.reporting import Report

__all__ = ["SLO", "DecodeError", "FormatError", "Report", "Sketch", "SlidingSketch", "__version__", "report"]
