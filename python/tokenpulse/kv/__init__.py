"""The blocks of a KV cache: what is evicted, what of it has to be computed again, and how large a cache would do."""

from tokenpulse.kv.report import STREAMS, kv_report
from tokenpulse.kv.snapshot import KVSnapshot, KVView
from tokenpulse.kv.trace import POLICIES, KVTrace
from tokenpulse.kv.tracker import KVTracker
from tokenpulse.reporting.kv import Curve, KVReport

__all__ = [
    "POLICIES",
    "STREAMS",
    "Curve",
    "KVReport",
    "KVSnapshot",
    "KVTrace",
    "KVTracker",
    "KVView",
    "kv_report",
]
