"""``driftwatch simulate``: replay requests through the batching simulator."""

from __future__ import annotations

import click

from driftwatch.cli.lazy import LazyGroup

SUBCOMMANDS = {
    "run": "driftwatch.cli.simulate.run",
    "compare": "driftwatch.cli.compare",
}


@click.command(cls=LazyGroup, modules=SUBCOMMANDS)
def command() -> None:
    """Replay requests through vLLM's scheduler, or compare ways of batching."""
