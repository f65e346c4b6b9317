"""``driftwatch db``: the schema of the database."""

from __future__ import annotations

import click

from driftwatch.cli.database import database_of
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options
from driftwatch.cli.main import EXIT_ANSWERED


@click.group()
def command() -> None:
    """Bring the database to this version."""


@command.command()
@history_options("db", "config")
def upgrade(history: History) -> int:
    """Run the missing migrations in one transaction; without a file, make one.

    driftwatch run does the same when it starts.
    """
    from driftwatch.store.migrate import upgrade_database

    where = database_of(history.db, history.config)
    before, after = upgrade_database(where)
    if before == after:
        click.echo(f"{where}: schema {after}, nothing to do")
    else:
        click.echo(f"{where}: schema {before or 'none'} -> {after}")
    return EXIT_ANSWERED
