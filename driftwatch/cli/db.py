"""``driftwatch db``: the schema of the database."""

from __future__ import annotations

import click

from driftwatch.cli.database import database_of
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.options import Database, Progress
from driftwatch.database_place import Place


@click.group()
def command() -> None:
    """Bring the database to this version, print which one it is, or copy it."""


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


@command.command()
@click.argument("source", type=Database(), metavar="FROM")
@click.argument("target", type=Database(), metavar="[TO]", required=False)
@history_options("config")
def copy(source: Place, target: Place | None, history: History) -> None:
    """Copy all of one database into another, empty one; TO is the configuration's by default.

    One of them is a SQLite file, the other may be postgresql://USER@HOST/NAME. It copies in one
    transaction and compares both before it commits: TO has everything, or is as empty as before.
    Stop driftwatch run first, and start it on TO afterwards.
    """
    from driftwatch.store.database_copy import copy_database

    into = target or database_of(None, history.config)
    progress = Progress(f"copying {source}")
    try:
        rows = copy_database(source, into, progress)
    finally:
        progress.close()
    tables = sum(count > 0 for count in rows.values())
    click.echo(f"{source} -> {into}: {sum(rows.values())} rows of {tables} tables, compared")
