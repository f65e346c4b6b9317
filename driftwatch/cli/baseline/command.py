"""``driftwatch baseline``: what is good, accepted by a person."""

from __future__ import annotations

import click

from driftwatch.cli.lazy import LazyGroup

SUBCOMMANDS = {
    "propose": "driftwatch.cli.baseline.propose",
    "pin": "driftwatch.cli.baseline.pin",
    "list": "driftwatch.cli.baseline.pin_list:list_command",
    "show": "driftwatch.cli.baseline.pin_list:show_command",
    "export": "driftwatch.cli.baseline.files:export_command",
    "import": "driftwatch.cli.baseline.files:import_command",
}


@click.command(cls=LazyGroup, modules=SUBCOMMANDS)
def command() -> None:
    """Accept what is good: the stretch that speed and lengths are compared with.

    Nothing but a person changes a baseline: a person pins a window, or accepts a proposal. With
    --pins FILE a command works on an exported file instead of the database.
    """
