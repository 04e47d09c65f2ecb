"""`tokenpulse merge`: files of sketches to one report on standard output, and to one file of sketches."""

from __future__ import annotations

from dataclasses import replace

import click

from tokenpulse import sketches
from tokenpulse.cli.ending import check_file, conclude
from tokenpulse.cli.options import check_price, json_option, price_options, strict_option
from tokenpulse.comparing import is_automatic, report_of
from tokenpulse.comparing import merge as merge_files


@click.command()
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", help="Also write what they come to, to merge or compare it again.")
@price_options("report what the runs cost, the GPUs of all hosts counted")
@json_option
@strict_option
@click.pass_context
def merge(
    context: click.Context,
    paths: tuple[str, ...],
    output: str | None,
    gpu_hour: float | None,
    gpus: float | None,
    cost_by: str | None,
    as_json: bool,
    strict: bool,
) -> None:
    """Report on runs of several hosts or times together, as if their logs had been read at once.

    FILE is what `report --sketches` or `merge -o` wrote, plain, gzip or Zstandard; all must be made with the same
    settings, and count time from the same moment.
    """
    check_price(gpu_hour, gpus, cost_by)
    check_file("-o", output)
    if output is not None:
        sketches.check(output)
    merged = merge_files(paths)
    made = report_of(merged, gpu_hour=gpu_hour, gpus=gpus, cost_by=cost_by)
    if output is not None:
        sketches.save(output, merged)
    if is_automatic(merged):
        made = replace(made, timeline=[], timeline_width_seconds=None, timeline_asked_seconds=None)
    if as_json:
        conclude(context, made, None, strict)
    else:
        from tokenpulse.reporting.table import write

        conclude(context, made, write, strict)
