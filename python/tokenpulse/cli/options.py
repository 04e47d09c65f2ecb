"""Options that several commands have: each is written here once, and means the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tokenpulse.analysis.cost import COST_BY

_Command = TypeVar("_Command", bound=Callable[..., Any])

SLO_FORM = "[NAME:]ttft=200ms,tpot=30ms[,e2e=..][,itl=..][,objective=0.99]"


def slo_options(does: str = "Judge requests by these limits.") -> Callable[[_Command], _Command]:
    """`--slo` and `--slo-where`, as `slos` and `where`; `does` is the first sentence of the help."""

    def add(command: _Command) -> _Command:
        command = click.option(
            "--slo-where",
            "where",
            multiple=True,
            metavar="NAME=LABEL:VALUE",
            help="Let an SLO set judge only requests that bear this label.",
        )(command)
        return click.option(
            "--slo", "slos", multiple=True, metavar=SLO_FORM, help=f"{does} May be given several times."
        )(command)

    return add


def by_option(does: str) -> Callable[[_Command], _Command]:
    """`--by`, as `by`."""
    return click.option(
        "--by",
        multiple=True,
        metavar="LABEL|prompt_length|output_length",
        help=f"{does} May be given several times.",
    )


def cut_options(command: _Command) -> _Command:
    """`--from`, `--to` and `--steady`, as `begin`, `end` and `steady`."""
    for option in (
        click.option("--steady", is_flag=True, help="Count only requests of the longest span of steady concurrency."),
        click.option(
            "--to", "end", metavar="70s", help="Count only requests that arrive before this time after the first."
        ),
        click.option(
            "--from", "begin", metavar="10s", help="Count only requests that arrive this long after the first."
        ),
    ):
        command = option(command)
    return command


def price_options(does: str) -> Callable[[_Command], _Command]:
    """`--gpu-hour`, `--gpus` and `--cost-by`, as `gpu_hour`, `gpus` and `cost_by`; `does` is what they are for."""

    def add(command: _Command) -> _Command:
        for option in (
            click.option(
                "--cost-by",
                type=click.Choice(COST_BY),
                help="What the cost is shared out by: output tokens, all tokens, or the time for which requests kept "
                "the server busy. [output]",
            ),
            click.option("--gpus", type=float, metavar="N", help="How many GPUs served. [1]"),
            click.option("--gpu-hour", type=float, metavar="PRICE", help=f"What a GPU costs for an hour: {does}."),
        ):
            command = option(command)
        return command

    return add


def check_price(gpu_hour: float | None, gpus: float | None, cost_by: str | None) -> None:
    """ValueError for an option that needs the price, where there is none."""
    for option, given in (("--gpus", gpus), ("--cost-by", cost_by)):
        if given is not None and gpu_hour is None:
            raise ValueError(f"{option} needs --gpu-hour, the price of a GPU for an hour")


threads_option = click.option(
    "--threads", type=click.IntRange(1, 1024), metavar="N", help="How many read. [as many as there are]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
strict_option = click.option(
    "--strict", is_flag=True, help="Exit with status 1 if a line or an event could not be used."
)
