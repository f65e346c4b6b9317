"""``driftwatch worker``: one more process that does the jobs of a PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.run import listening, serve
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.tasks.worker import Queue

# as driftwatch.tasks.worker has them, which takes long to import
_QUEUES: tuple[Queue, ...] = ("ticks", "deliveries", "slow")


@click.command(name="worker")
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("driftwatch.yaml"),
    show_default=True,
    help="The configuration, that of driftwatch run.",
)
@click.option(
    "--queue",
    "queues",
    type=click.Choice(_QUEUES),
    multiple=True,
    help="Do the jobs of this queue only; may be repeated.",
)
@click.option(
    "--listen",
    default="127.0.0.1:9097",
    show_default=True,
    metavar="HOST:PORT",
    help="Where it serves /metrics, /-/healthy and /-/ready; port 0 takes a free one.",
)
def command(config: Path, queues: tuple[Queue, ...], listen: str) -> int:
    """Tick batches, send pages, compact and report, until SIGTERM or Ctrl-C.

    Start as many processes as you like on one PostgreSQL, on any host: each takes the jobs that
    wait. SIGTERM lets the jobs under way finish. When a worker dies, hangs or loses the database,
    another one does its jobs within two minutes. `driftwatch run` on PostgreSQL is the same.
    """
    from driftwatch.database_place import PostgresPlace
    from driftwatch.settings import load_settings
    from driftwatch.settings.web import checked_listen, listen_address

    hangups = listening()
    settings = load_settings(config)
    if not isinstance(settings.database_place, PostgresPlace):
        raise UsageError(
            f"workers need PostgreSQL, and the database is {settings.database_place}",
            help_text="driftwatch run does everything on SQLite; or name a PostgreSQL as database",
        )
    try:
        checked_listen(listen)
    except ValueError as error:
        raise UsageError(f"--listen: {error}") from None
    return serve(config, settings, hangups, listen=listen_address(listen), queues=queues)
