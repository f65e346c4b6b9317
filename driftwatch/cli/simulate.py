"""``driftwatch simulate``: replay requests through the batching simulator."""

from __future__ import annotations

import importlib

import click

SUBCOMMANDS = {
    "run": "driftwatch.cli.simulate_run",
    "compare": "driftwatch.cli.simulate_compare",
}


class _Lazy(click.Group):
    """Imports a subcommand only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one; None where there is none of that name."""
        if cmd_name not in SUBCOMMANDS:
            return None
        found: click.Command = importlib.import_module(SUBCOMMANDS[cmd_name]).command
        return found


@click.command(cls=_Lazy)
def command() -> None:
    """Replay requests through vLLM's scheduler, or compare ways of batching."""
    from driftwatch.simulate.compiled import why_plain

    if reason := why_plain():
        click.echo(f"note: {reason}: replays run as plain Python, many times slower", err=True)
