"""Options that several commands have: each is written here once, and means the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

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


threads_option = click.option(
    "--threads", type=click.IntRange(1, 1024), metavar="N", help="How many read. [as many as there are]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
strict_option = click.option(
    "--strict", is_flag=True, help="Exit with status 1 if a line or an event could not be used."
)
