"""The group that the commands belong to."""

from __future__ import annotations

import click

from tokenpulse import __version__
from tokenpulse.cli.alerts import alerts
from tokenpulse.cli.capacity import capacity
from tokenpulse.cli.compare import compare
from tokenpulse.cli.convert import convert
from tokenpulse.cli.diagnose import diagnose
from tokenpulse.cli.kv import kv
from tokenpulse.cli.merge import merge
from tokenpulse.cli.report import report
from tokenpulse.cli.simulate import simulate


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="tokenpulse")
@click.pass_context
def root(context: click.Context) -> None:
    """Exact metering for LLM serving."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (alerts, report, merge, compare, convert, diagnose, kv, capacity, simulate):
    root.add_command(command)
