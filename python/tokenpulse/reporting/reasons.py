"""One line on each reason for which a log's content was not counted, for people who read a report."""

from __future__ import annotations

SKIPPED = {
    "too_long": "line longer than 64 MiB",
    "not_utf8": "line is not UTF-8",
    "too_deep": "nested deeper than 128",
    "not_json": "line is not JSON",
    "not_object": "JSON, but not an object",
    "unknown_kind": "neither a request nor a known event",
    "missing_field": "a required field is absent",
    "wrong_type": "a field has another type",
    "bad_value": "a number or status outside its range",
    "length_mismatch": "n is not as long as the token times",
    "truncated": "compressed input ends early or is damaged",
}
"""Why a line was skipped."""

REJECTED = {
    "duplicate": "second arrival, schedule or prefill; preempt or resume out of turn",
    "future": "time more than a day ahead of the newest one",
    "negative": "time before the request's last event",
    "unknown": "request never arrived, ended or lost",
}
"""Why an event was refused."""

CLAMPED = "end before the last event: moved there"

MISSING = {
    "ttft": "request without an output token",
    "queue": "never scheduled, or not in the log",
    "scheduling": "schedule or prefill time not in the log",
    "prefill": "schedule or first token time not in the log",
    "tpot": "first or last token time not in the log",
    "e2e": "last token time not in the log",
    "itl": "token times not in the log",
}
"""Why a metric of a request has no value."""

KV_SKIPPED = SKIPPED | {
    "unknown_kind": "no KV cache event, no block hashes, no known event",
    "bad_value": "a number outside its range",
}
"""Why a line was skipped where KV caches are read of."""

KV_REJECTED = {
    "full": "no room: max_blocks resident, or 8,191 copies",
    "future": "time more than a day ahead of the newest one",
    "invalid": "group over 4,095, or more tokens hit than queried",
    "negative": "time below 0",
    "tier": "tier other than gpu, cpu, disk, remote",
    "unknown": "evicted, but not known to be there",
}
"""Why a KV cache's event was refused."""

KV_CLAMPED = "time before the block's last use or eviction"
KV_LOST = "missing in the sequence: what they told is not counted"
KV_RESTARTED = "not above the last number; if 0, the cache was taken to be empty"
