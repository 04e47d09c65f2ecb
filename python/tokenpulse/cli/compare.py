"""`tokenpulse compare`: from two runs to what changed, on standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

import tokenpulse
from tokenpulse.cli import MISUSE, OK, UNUSABLE
from tokenpulse.cli.ending import check_duration
from tokenpulse.cli.options import by_option, cut_options, json_option, slo_options, threads_option
from tokenpulse.cli.progress import progress_bar
from tokenpulse.grammar import slo_sets
from tokenpulse.model import ITL_RULES


@click.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--fail-if",
    "fail_if",
    multiple=True,
    metavar="'p99(ttft) > +10%'",
    help="Exit with status 1 if this holds: a figure of B against a value, or with a sign its change from A. Or worse: "
    "if B is clearly worse. May be given several times.",
)
@slo_options()
@click.option("--itl", type=click.Choice(ITL_RULES), help="As for report. [token, or what a file has]")
@by_option("Also compare each group.")
@cut_options
@threads_option
@json_option
@click.pass_context
def compare(
    context: click.Context,
    before: str,
    after: str,
    fail_if: tuple[str, ...],
    slos: tuple[str, ...],
    where: tuple[str, ...],
    itl: str | None,
    by: tuple[str, ...],
    begin: str | None,
    end: str | None,
    steady: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Compare two runs, A before and B after: what changed, by how much at least and at most, for better or worse.

    A and B are logs, files of other tools, or files that `report --sketches` or `merge -o` wrote. Exit status: 0; 1
    where a condition to fail by holds; 2 where one cannot be judged, or something does not fit.
    """
    for option, text in (("--from", begin), ("--to", end)):
        check_duration(option, text)
    with progress_bar() as progress:
        made = tokenpulse.compare(
            before,
            after,
            slo=slo_sets(slos, where) if slos or where else None,
            itl=itl,
            by=by or None,
            from_=begin,
            to=end,
            steady=steady,
            fail_if=fail_if,
            threads=threads,
            progress=progress,
        )
    if as_json:
        from tokenpulse.reporting.json import dumps

        sys.stdout.write(dumps(made) + "\n")
    else:
        from tokenpulse.reporting.compare_table import write

        write(made, sys.stdout)
    sys.stdout.flush()
    context.exit(_told(made.fail_if))


def _told(judged: list[dict[str, Any]]) -> int:
    """Name the conditions that hold, or cannot be judged, and return the exit status that follows."""
    from tokenpulse.reporting.text import printable

    for one in judged:
        if one["holds"]:
            print(f"tokenpulse: failed: {printable(one['condition'])}{_values(one)}", file=sys.stderr)
        elif one["holds"] is None:
            print(f"tokenpulse: cannot be judged: {printable(one['condition'])}: {one['why']}", file=sys.stderr)
    found = {one["holds"] for one in judged}
    return UNUSABLE if True in found else MISUSE if None in found else OK


def _values(one: Mapping[str, Any]) -> str:
    if one["after"] is None:
        return f" ({one['why']})" if one["why"] else ""
    return f" ({one['after']:.6g})" if one["before"] is None else f" ({one['before']:.6g} -> {one['after']:.6g})"
