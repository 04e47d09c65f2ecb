"""`tokenpulse alerts`: from a log to the alerts that would have fired over it, or the rules for Prometheus."""

from __future__ import annotations

import sys

import click

from tokenpulse import alerts as judged
from tokenpulse.cli import OK
from tokenpulse.cli.ending import check_duration, conclude, extras
from tokenpulse.cli.options import json_option, slo_options, strict_option
from tokenpulse.cli.progress import progress_bar
from tokenpulse.export.rules import prometheus_rules
from tokenpulse.grammar import slo_sets
from tokenpulse.kv import STREAMS
from tokenpulse.model import ITL_RULES


@click.command()
@click.argument("path", metavar="[PATH]", required=False)
@slo_options("Alert when the P99 of TTFT comes near its limit, and when the error budget is spent too fast.")
@click.option("--rules", "rules_file", metavar="FILE.toml", help="Thresholds and times other than the defaults.")
@click.option(
    "--itl",
    type=click.Choice(ITL_RULES),
    default="token",
    show_default=True,
    help="As for report; SLO sets may need it.",
)
@click.option("--ttl", metavar="1h", help="The silence after which a request is lost. [1h]")
@click.option(
    "--stream",
    type=click.Choice(STREAMS),
    default="copies",
    show_default=True,
    help="Events of the KV cache: as for kv.",
)
@click.option(
    "--prometheus", is_flag=True, help="Print the rules as alerting rules for Prometheus instead; without PATH."
)
@json_option
@strict_option
@click.pass_context
def alerts(
    context: click.Context,
    path: str | None,
    slos: tuple[str, ...],
    where: tuple[str, ...],
    rules_file: str | None,
    itl: str,
    ttl: str | None,
    stream: str,
    prometheus: bool,
    as_json: bool,
    strict: bool,
) -> None:
    """Say which alerts would have fired over PATH, when each began, fired, peaked and cleared.

    PATH is one log or one file of another tool, as for report; - is standard input. The rules are evaluated once a
    second of the log's own time. What could not be judged is listed with what it needs.
    """
    sets = slo_sets(slos, where)
    rules = judged.Rules() if rules_file is None else judged.Rules.load(rules_file)
    if prometheus:
        of_a_log = {"PATH": path is not None, "--json": as_json, "--strict": strict, "--ttl": ttl is not None}
        if any(of_a_log.values()):
            given = " and ".join(name for name, has in of_a_log.items() if has)
            raise ValueError(f"--prometheus prints rules and reads no log: leave out {given}")
        sys.stdout.write(prometheus_rules(rules, sets))
        context.exit(OK)
    if path is None:
        raise ValueError("PATH is missing: the log to look at, or --prometheus for rules")
    check_duration("--ttl", ttl)
    with progress_bar() as progress, extras():
        made = judged.of(path, slo=sets, rules=rules, itl=itl, ttl=ttl or "1h", stream=stream, progress=progress)
    if as_json:
        conclude(context, made, None, strict)
    else:
        from tokenpulse.reporting.alerts_table import write

        conclude(context, made, write, strict)
