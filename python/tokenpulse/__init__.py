"""Exact metering for LLM serving: latency sketches, goodput and reports, live and from request logs."""

from importlib import import_module
from typing import TYPE_CHECKING

from tokenpulse import alerts, formulas
from tokenpulse.api import report
from tokenpulse.comparing import compare
from tokenpulse.converting import convert
from tokenpulse.diagnosing import Diagnosis, diagnose
from tokenpulse.engine import DecodeError, FormatError, IdMap, Sketch, SlidingSketch, __version__
from tokenpulse.kv import KVReport, KVSnapshot, KVTrace, KVTracker, kv_report
from tokenpulse.meter import Meter, MeterReader, read_dir
from tokenpulse.model import SLO
from tokenpulse.reporting import Report
from tokenpulse.run import Run
from tokenpulse.sizing import Capacity, capacity
from tokenpulse.snapshot import Snapshot

__all__ = [
    "SLO",
    "Capacity",
    "DecodeError",
    "Diagnosis",
    "FormatError",
    "IdMap",
    "KVReport",
    "KVSnapshot",
    "KVTrace",
    "KVTracker",
    "Meter",
    "MeterReader",
    "Report",
    "Run",
    "Sketch",
    "SlidingSketch",
    "Snapshot",
    "__version__",
    "alerts",
    "capacity",
    "compare",
    "convert",
    "diagnose",
    "formulas",
    "kv_report",
    "read_dir",
    "report",
    "simulate",
]

if TYPE_CHECKING:
    from tokenpulse import simulate


def __getattr__(name: str) -> object:
    """The simulator is loaded when somebody asks for it: a process that only counts does without."""
    if name == "simulate":
        return import_module("tokenpulse.simulate")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
