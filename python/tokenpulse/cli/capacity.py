"""`tokenpulse capacity`: from runs at several rates to the highest that a system can take, on standard output."""

from __future__ import annotations

import sys

import click

import tokenpulse
from tokenpulse.cli.ending import check_duration
from tokenpulse.cli.options import cut_options, json_option, slo_options, threads_option
from tokenpulse.cli.progress import progress_bar
from tokenpulse.grammar import since_ns, slo_sets
from tokenpulse.model import ITL_RULES


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@slo_options("A request is good when it is under all of these limits.")
@click.option("--gpu-hour", type=float, metavar="2.50", help="The price of a GPU for an hour, in any currency.")
@click.option("--gpus", type=float, metavar="N", help="How many GPUs served. [as the log says, or 1]")
@click.option(
    "--cost-limit", metavar="0.001|40/h", help="The most that a good request may cost, or with /h the hour of all GPUs."
)
@click.option(
    "--target",
    "targets",
    type=float,
    multiple=True,
    metavar="0.99",
    help="An attainment to keep. May be given several times. [0.9 and 0.99]",
)
@click.option("--kv-tokens", type=float, metavar="N", help="Tokens that the KV cache has room for.")
@click.option("--block-tokens", type=int, metavar="N", help="Tokens of a block, for logs that tell blocks.")
@click.option("--tokens-held", type=float, metavar="N", help="Tokens in the KV cache of a running request, on average.")
@click.option(
    "--varied",
    metavar="batch_max=32,64",
    help="What differs between the runs where it is not their rate, and its value in each.",
)
@click.option("--itl", type=click.Choice(ITL_RULES), help="As for report. [token, or what a file has]")
@click.option("--plot", "plot", metavar="FILE", help="Draw the first SLO set's rates into FILE (.svg or .png).")
@cut_options
@threads_option
@json_option
def capacity(
    runs: tuple[str, ...],
    slos: tuple[str, ...],
    where: tuple[str, ...],
    gpu_hour: float | None,
    gpus: float | None,
    cost_limit: str | None,
    targets: tuple[float, ...],
    kv_tokens: float | None,
    block_tokens: int | None,
    tokens_held: float | None,
    varied: str | None,
    itl: str | None,
    plot: str | None,
    begin: str | None,
    end: str | None,
    steady: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """The highest rate that a system can take, from RUNs at several rates: logs, files of other tools, sketches.

    The rate that keeps 90 % and 99 % of requests good is interpolated between the runs, never beyond them; with it
    which limit binds first, what a good request costs, and how large a batch the KV cache allows.
    """
    for option, text in (("--from", begin), ("--to", end)):
        check_duration(option, text, since_ns)
    if plot is not None:
        check_plot(plot)
    with progress_bar() as progress:
        found = tokenpulse.capacity(
            runs,
            slo=slo_sets(slos, where) if slos or where else None,
            gpu_hour=gpu_hour,
            gpus=gpus,
            cost_limit=cost_limit,
            **({"targets": targets} if targets else {}),
            kv_tokens=kv_tokens,
            block_tokens=block_tokens,
            tokens_held=tokens_held,
            varied=None if varied is None else _varied(varied),
            itl=itl,
            from_=begin,
            to=end,
            steady=steady,
            threads=threads,
            progress=progress,
        )
    show(found, as_json=as_json, plot=plot)


def _varied(text: str) -> tuple[str, list[float | str]]:
    """A setting and its values, as numbers where all are."""
    name, equals, written = text.partition("=")
    values = [one.strip() for one in written.split(",")]
    if not equals or not name.strip() or not all(values):
        raise ValueError(f"--varied must be NAME=A,B,C with a value for each run, got {text!r}")
    try:
        return name.strip(), [float(one) for one in values]
    except ValueError:
        return name.strip(), list(values)


def check_plot(path: str) -> None:
    """Find out before the work whether the picture can be drawn."""
    from tokenpulse.reporting.picture import check

    try:
        check(path)
    except ModuleNotFoundError as missing:
        raise click.ClickException(str(missing)) from None


def show(found: tokenpulse.Capacity, *, as_json: bool, plot: str | None) -> None:
    """Print a capacity, and draw it where that was asked for."""
    if as_json:
        from tokenpulse.reporting.json import dumps

        sys.stdout.write(dumps(found) + "\n")
    else:
        from tokenpulse.reporting.capacity_table import write

        write(found, sys.stdout)
    sys.stdout.flush()
    if plot is not None:
        from tokenpulse.reporting import capacity_plot

        capacity_plot.draw(found, plot)
