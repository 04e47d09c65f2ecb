"""One run as a log, as a live meter, and as the reference has it: the same alerts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluations import SECOND_NS, episode, fired

from tokenpulse import SLO, KVTracker, Meter, alerts, simulate
from tokenpulse.reference.alerts import Episode, Key, Reading, alerts_of

CHAT = SLO("chat", ttft=0.15, tpot=0.02)


def by_key(found: list[alerts.Alert]) -> dict[Key, list[Episode]]:
    in_order: dict[Key, list[Episode]] = {}
    for one in sorted(found, key=lambda one: one.began_ns):
        in_order.setdefault((one.rule, one.severity, one.of), []).append(episode(one))
    return in_order


def test_a_log_and_a_live_meter_have_the_alerts_of_the_reference(tmp_path: Path) -> None:
    """A server that is overloaded from a third of the run on."""
    run: dict[str, Any] = {"seed": 4, "rate": 10, "duration": "120s", "kv_blocks": 700, "fault": "overload:1"}
    run |= {"output": "lognormal:60,cv=0.6", "batch_max": 16}
    log = tmp_path / "log.jsonl"
    simulate.run(out=log, **run)

    live, readings = alerts.Alerts(), list[Reading]()
    meter = Meter(slos=[CHAT], windows=["1m", "5m"], kv=KVTracker())

    def evaluate(t_ns: int | None) -> None:
        snapshot = meter.snapshot(t_ns)
        live.update(snapshot)
        readings.append(snapshot.reading())

    # A log is evaluated from its first whole second on, and last at its last line.
    simulate.run(meter=meter, on_pane=lambda t_ns: 0 < t_ns < 120 * SECOND_NS and evaluate(t_ns), **run)
    evaluate(None)
    expected = fired(alerts_of(readings, [CHAT]))
    assert {key[0] for key in expected} >= {"queue_depth", "queue_growth", "ttft_p99"}
    assert by_key([*live.cleared, *live.firing]) == expected
    assert by_key(list(alerts.of(log, slo=CHAT).alerts)) == expected
