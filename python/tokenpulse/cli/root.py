"""The group that the commands belong to. A command's file is loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module

import click

from tokenpulse import __version__

COMMANDS = ("report", "merge", "compare", "convert", "kv", "diagnose", "alerts", "capacity", "simulate")
"""Each is a file beside this one, with a command of its name."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"tokenpulse.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="tokenpulse")
@click.pass_context
def root(context: click.Context) -> None:
    """Exact metering for LLM serving."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
