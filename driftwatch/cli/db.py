"""``driftwatch db``: the schema of the database."""

from __future__ import annotations

import click

from driftwatch.cli.database import database_of
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM


@click.group()
def command() -> None:
    """Bring the database to this version, or print which one it is."""


@command.command()
@history_options("db", "config")
def upgrade(history: History) -> None:
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


@command.command()
@history_options("db", "config")
def version(history: History) -> int:
    """Print the schema of the database and the one this version needs; exit 1 if they differ."""
    from driftwatch.store.migrate import versions_of
    from driftwatch.store.tables import SCHEMA_REVISION

    where = database_of(history.db, history.config)
    revision, writer = versions_of(where)
    by = f" (upgraded by driftwatch {writer})" if writer else ""
    click.echo(f"{where}: schema {revision or 'none'}{by}; this version needs {SCHEMA_REVISION}")
    return EXIT_ANSWERED if revision == SCHEMA_REVISION else EXIT_PROBLEM
