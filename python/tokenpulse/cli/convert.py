"""`tokenpulse convert`: files of any reader to our lines or to Parquet."""

from __future__ import annotations

import sys

import click

from tokenpulse.cli import OK, UNUSABLE
from tokenpulse.cli.ending import check_duration, extras, warn
from tokenpulse.cli.options import check_price, price_options, slo_options, strict_option
from tokenpulse.cli.progress import progress_bar
from tokenpulse.converting import STDOUT, Converted
from tokenpulse.converting import convert as convert_files
from tokenpulse.grammar import slo_sets
from tokenpulse.model import ITL_RULES


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE.jsonl[.gz|.zst]|FILE.parquet|-",
    help="What to write; - is standard output. Parquet needs the extra: pip install tokenpulse[arrow].",
)
@slo_options("Write each request's verdict by these limits beside it.")
@click.option("--itl", type=click.Choice(ITL_RULES), default="token", show_default=True, help="The rule to judge by.")
@price_options("write each request's part")
@click.option("--ttl", metavar="1h", default="1h", show_default=True, help="The silence after which a request is lost.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@strict_option
@click.pass_context
def convert(
    context: click.Context,
    paths: tuple[str, ...],
    output: str,
    slos: tuple[str, ...],
    where: tuple[str, ...],
    itl: str,
    gpu_hour: float | None,
    gpus: float | None,
    cost_by: str | None,
    ttl: str,
    as_json: bool,
    strict: bool,
) -> None:
    """Write logs, files of other tools or tables as our own request lines, or as Parquet: one request each.

    PATH is as for report. What is written reads back to the same report.
    """
    check_duration("--ttl", ttl)
    check_price(gpu_hour, gpus, cost_by)
    with progress_bar() as progress, extras():
        made = convert_files(
            paths,
            output,
            slo=slo_sets(slos, where),
            itl=itl,
            gpu_hour=gpu_hour,
            gpus=gpus,
            cost_by=cost_by,
            ttl=ttl,
            progress=progress,
        )
    _tell(made, as_json)
    warn(made.unusable, made.notices)
    context.exit(UNUSABLE if strict and made.unusable else OK)


def _tell(made: Converted, as_json: bool) -> None:
    """Say what was written: on standard error where the rows themselves went to standard output."""
    stream = sys.stderr if made.output == STDOUT else sys.stdout
    if as_json:
        from tokenpulse.reporting.json import dumps

        print(dumps(made), file=stream)
        return
    from tokenpulse.reporting.text import count, number, percent, printable, several

    print(f"{several(made.requests, 'request')} written to {printable(made.output)}", file=stream)
    for name, (good, judged) in made.good.items():
        share = percent(good / judged if judged else None)
        print(f"{printable(name)}: {count(good)} of {count(judged)} judged are good ({share})", file=stream)
    if made.cost is not None:
        print(f"cost: {number(made.cost)}, shared out by {made.cost_by}", file=stream)
    for note in made.notes:
        print(f"tokenpulse: note: {printable(note)}", file=sys.stderr)
