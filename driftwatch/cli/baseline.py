"""``driftwatch baseline``: what is good, said by a person."""

from __future__ import annotations

import importlib

import click

SUBCOMMANDS = {
    "propose": "driftwatch.cli.baseline_propose",
    "pin": "driftwatch.cli.baseline_pin",
    "list": "driftwatch.cli.baseline_list",
    "show": "driftwatch.cli.baseline_show",
    "export": "driftwatch.cli.baseline_export",
    "import": "driftwatch.cli.baseline_import",
}


class _Lazy(click.Group):
    """Imports a subcommand only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of use."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one; None where there is none of that name."""
        if cmd_name not in SUBCOMMANDS:
            return None
        found: click.Command = importlib.import_module(SUBCOMMANDS[cmd_name]).command
        return found


@click.command(cls=_Lazy)
def command() -> None:
    """Pin what is good: the stretch that speed and lengths are compared with.

    A pin is never moved by itself: a person pins, or accepts what is proposed. With --pins FILE a
    command works on an exported file instead of the database.
    """
