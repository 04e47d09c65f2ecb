"""Exact metering for LLM serving: latency sketches, goodput, reports and judgement, live and from request logs.

What an engine embeds is loaded at once; all else when it is asked for, so that a process that only counts starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tokenpulse.engine import DecodeError, FormatError, IdMap, Sketch, SlidingSketch, __version__
from tokenpulse.kv import KVReport, KVSnapshot, KVTrace, KVTracker, kv_report
from tokenpulse.meter import Meter, MeterReader, read_dir
from tokenpulse.model import SLO
from tokenpulse.reporting import Report
from tokenpulse.snapshot import Snapshot

if TYPE_CHECKING:
    from tokenpulse import alerts, formulas, profiles, simulate
    from tokenpulse.api import report
    from tokenpulse.comparing import compare
    from tokenpulse.converting import convert
    from tokenpulse.diagnosing import Diagnosis, diagnose
    from tokenpulse.run import Run
    from tokenpulse.sizing import Capacity, capacity

_ROOM_OF = {
    "Capacity": "sizing",
    "Diagnosis": "diagnosing",
    "Run": "run",
    "capacity": "sizing",
    "compare": "comparing",
    "convert": "converting",
    "diagnose": "diagnosing",
    "report": "api",
}
_ROOMS = ("alerts", "formulas", "profiles", "simulate")

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
    "profiles",
    "read_dir",
    "report",
    "simulate",
]


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"tokenpulse.{name}")
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"tokenpulse.{room}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
