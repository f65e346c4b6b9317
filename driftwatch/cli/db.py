"""``driftwatch db``: the schema of the database."""

from __future__ import annotations

import click

from driftwatch.cli.database import database_of
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM


@click.group()
def command() -> None:
    """Bring the database to this version."""


@command.command()
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only print the schema of the database and the one this version needs; exit 1 if they "
    "differ.",
)
@history_options("db", "config")
def upgrade(dry_run: bool, history: History) -> int:
    """Run the missing migrations in one transaction; without a file, make one.

    driftwatch run does the same when it starts.
    """
    from driftwatch.store.migrate import upgrade_database, versions_of
    from driftwatch.store.tables import SCHEMA_REVISION

    where = database_of(history.db, history.config)
    if dry_run:
        revision, writer = versions_of(where)
        by = f" (upgraded by driftwatch {writer})" if writer else ""
        needed = f"this version needs {SCHEMA_REVISION}"
        click.echo(f"{where}: schema {revision or 'none'}{by}; {needed}")
        return EXIT_ANSWERED if revision == SCHEMA_REVISION else EXIT_PROBLEM
    before, after = upgrade_database(where)
    if before == after:
        click.echo(f"{where}: schema {after}, nothing to do")
    else:
        click.echo(f"{where}: schema {before or 'none'} -> {after}")
    return EXIT_ANSWERED
