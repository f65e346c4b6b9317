"""``driftwatch baseline``: what is good, accepted by a person."""

from __future__ import annotations

import click

from driftwatch.cli.lazy import LazyGroup

SUBCOMMANDS = {
    "propose": "driftwatch.cli.baseline.propose",
    "pin": "driftwatch.cli.baseline.pin",
    "list": "driftwatch.cli.baseline.pin_list:list_command",
}


@click.command(cls=LazyGroup, modules=SUBCOMMANDS)
def command() -> None:
    """Pin what is good: the window that speed and lengths are compared with.

    Only a person changes a baseline: with `pin`, of a window or of a proposal.
    """
