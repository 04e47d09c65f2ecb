"""`tokenpulse diagnose`: from a run, and perhaps another one, to what is wrong with it, on standard output."""

from __future__ import annotations

import sys

import click

import tokenpulse
from tokenpulse.cli.ending import check_duration
from tokenpulse.cli.options import json_option, slo_options
from tokenpulse.cli.progress import progress_bar
from tokenpulse.grammar import since_ns, slo_sets


@click.command()
@click.argument("run", metavar="RUN")
@click.option(
    "--baseline",
    metavar="RUN",
    help="Another run to hold it against, whole against whole unless --from or --to is given. [RUN's first third]",
)
@click.option("--from", "begin", metavar="80s", help="Look at RUN only from this long after its beginning on.")
@click.option("--to", "end", metavar="2m", help="Look at RUN only until then.")
@slo_options("A TPOT over this limit is a sign of trouble by itself where the GPU idles.")
@click.option(
    "--peak-flops",
    type=click.FloatRange(min=0, min_open=True),
    metavar="FLOP/s",
    help="What all GPUs compute together at most, such as 1.58e16. [as the log says]",
)
@click.option(
    "--bandwidth",
    type=click.FloatRange(min=0, min_open=True),
    metavar="BYTES/s",
    help="What their memories move together at most, such as 2.68e13. [as the log says]",
)
@json_option
def diagnose(
    run: str,
    baseline: str | None,
    begin: str | None,
    end: str | None,
    slos: tuple[str, ...],
    where: tuple[str, ...],
    peak_flops: float | None,
    bandwidth: float | None,
    as_json: bool,
) -> None:
    """Say what is wrong with RUN, a log or a tool's file of requests: what changed, the likely cause, what to do.

    Without --baseline the last third of the run is held against its first third; with --from, what came from then on
    against all before it. A healthy run has no findings; what
    could not be judged is listed with what it needs.
    """
    given = {"peak_flops": peak_flops, "bandwidth_bytes_per_second": bandwidth}
    check_duration("--from", begin, since_ns)
    check_duration("--to", end, since_ns)
    with progress_bar() as progress:
        found = tokenpulse.diagnose(
            run,
            baseline,
            from_=begin,
            to=end,
            slo=slo_sets(slos, where),
            machine={name: value for name, value in given.items() if value is not None},
            progress=progress,
        )
    if as_json:
        from tokenpulse.reporting.json import dumps

        sys.stdout.write(dumps(found) + "\n")
    else:
        from tokenpulse.reporting.diagnosis_table import write

        write(found, sys.stdout)
    sys.stdout.flush()
