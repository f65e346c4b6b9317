"""``driftwatch baseline``: what is good, said by a person."""

from __future__ import annotations

import click

from driftwatch.cli.lazy import LazySubcommands

SUBCOMMANDS = {
    "propose": "driftwatch.cli.baseline_propose",
    "pin": "driftwatch.cli.baseline_pin",
    "list": "driftwatch.cli.baseline_list",
    "show": "driftwatch.cli.baseline_show",
    "export": "driftwatch.cli.baseline_export",
    "import": "driftwatch.cli.baseline_import",
}


@click.command(cls=LazySubcommands, modules=SUBCOMMANDS)
def command() -> None:
    """Pin what is good: the stretch that speed and lengths are compared with.

    A pin is never moved by itself: a person pins, or accepts what is proposed. With --pins FILE a
    command works on an exported file instead of the database.
    """
