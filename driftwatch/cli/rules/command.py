"""``driftwatch rules``: rules as code."""

from __future__ import annotations

import click

from driftwatch.cli.lazy import LazyGroup

SUBCOMMANDS = {
    "test": "driftwatch.cli.rules.test",
    "backtest": "driftwatch.cli.rules.backtest",
    "export": "driftwatch.cli.rules.export",
}


_HELPS = {
    "test": "Test rules and trees; prints only what differs.",
    "backtest": "List the pages that rules would have sent over a history.",
    "export": "Write rules as alerts for Prometheus or its operator.",
}


@click.command(
    cls=LazyGroup,
    modules=SUBCOMMANDS,
    helps=_HELPS,
)
def command() -> None:
    """Test, backtest and export rules; `driftwatch check` checks them.

    A change of a rule takes three commands: `driftwatch check` finds what is wrong with it,
    test shows that it does what its author means, backtest lists the pages that it would have
    sent.
    """
