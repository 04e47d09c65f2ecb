"""`tokenpulse report`: from logs to a report on standard output."""

from __future__ import annotations

import click

import tokenpulse
from tokenpulse.cli.ending import check_duration, conclude
from tokenpulse.cli.progress import progress_bar
from tokenpulse.grammar import slo_sets
from tokenpulse.model import ITL_RULES


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--slo",
    "slos",
    multiple=True,
    metavar="[NAME:]ttft=200ms,tpot=30ms[,e2e=..][,itl=..][,objective=0.99]",
    help="Judge requests by these limits. May be given several times.",
)
@click.option(
    "--slo-where",
    "where",
    multiple=True,
    metavar="NAME=LABEL:VALUE",
    help="Let an SLO set judge only requests that bear this label.",
)
@click.option(
    "--itl",
    type=click.Choice(ITL_RULES),
    default="token",
    show_default=True,
    help="What an emission of k tokens after a gap gives: k values of gap/k; one of the gap; "
    "one of the gap and k-1 of 0.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="LABEL|prompt_length|output_length",
    help="Also report on each group. May be given several times.",
)
@click.option("--timeline", metavar="10s", help="Also report on each bin of time of this width.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option("--strict", is_flag=True, help="Exit with status 1 if a line or an event could not be used.")
@click.pass_context
def report(
    context: click.Context,
    paths: tuple[str, ...],
    slos: tuple[str, ...],
    where: tuple[str, ...],
    itl: str,
    by: tuple[str, ...],
    timeline: str | None,
    as_json: bool,
    strict: bool,
) -> None:
    """Report latency, throughput and goodput of request and event logs.

    PATH is a JSON lines file, plain, gzip or Zstandard; - is standard input. Several are reported on together.
    """
    sets = slo_sets(slos, where)
    check_duration("--timeline", timeline)
    with progress_bar() as progress:
        made = tokenpulse.report(paths, slo=sets, itl=itl, by=by, timeline=timeline, progress=progress)
    if as_json:
        conclude(context, made, None, strict)
    else:
        from tokenpulse.reporting.table import write

        conclude(context, made, write, strict)
