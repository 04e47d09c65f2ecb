"""The specification, executable: pure Python, no dependency, written to be read.

The Rust core must agree with it, bit for bit; where the two differ, one has a bug. It is slow, and meant to be.

- `sketch`, `buckets`, `wire`: the quantile sketch, its edges, its bytes
- `window`: sliding windows, timelines, the newest time of an input
- `request`: one request as a pure state machine
- `slo`: verdicts and smoothness
- `strata`: length bins, bounded classes
- `tally`, `accounts`: what is added up
- `flow`, `grid`: arrivals and ends over time; successes by TTFT and TPOT
- `log`, `columns`: bytes to records, columns to records
- `inputs`, `report`: records to a `Reduction`
- `rows`: logs to exact rows
- `meter`, `clock`, `scopes`, `gauges`: live metering, events to a reading
- `kv`, `kv_cache`: blocks of a KV cache, evicted and refilled; caches of other sizes and policies
- `trend`, `alerts`: whether a series goes up; when alerts began, fired, peaked and cleared
- `diagnosis`: what the figures of two stretches of time say
"""

from tokenpulse.reference.kv import KVTracker
from tokenpulse.reference.log import FormatError
from tokenpulse.reference.meter import Meter
from tokenpulse.reference.report import reduce, reduce_columns, reduce_lines
from tokenpulse.reference.rows import rows_of
from tokenpulse.reference.sketch import DecodeError, Sketch
from tokenpulse.reference.window import Horizon, Ring, Timeline

__all__ = [
    "DecodeError",
    "FormatError",
    "Horizon",
    "KVTracker",
    "Meter",
    "Ring",
    "Sketch",
    "Timeline",
    "reduce",
    "reduce_columns",
    "reduce_lines",
    "rows_of",
]
