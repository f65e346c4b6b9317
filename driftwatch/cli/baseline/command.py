"""``driftwatch baseline``: what is good, pinned by a person."""

from __future__ import annotations

import click

from driftwatch.cli.lazy import LazySubcommands

SUBCOMMANDS = {
    "propose": "driftwatch.cli.baseline.propose",
    "pin": "driftwatch.cli.baseline.pin",
    "list": "driftwatch.cli.baseline.pin_list:list_command",
    "show": "driftwatch.cli.baseline.pin_list:show_command",
    "export": "driftwatch.cli.baseline.files:export_command",
    "import": "driftwatch.cli.baseline.files:import_command",
}


@click.command(cls=LazySubcommands, modules=SUBCOMMANDS)
def command() -> None:
    """Pin what is good: the stretch that speed and lengths are compared with.

    A pin is never moved by itself: a person pins, or accepts what is proposed. With --pins FILE a
    command works on an exported file instead of the database.
    """
