"""``driftwatch tasks``: the slow work that waits, and what could not be done."""

from __future__ import annotations

from collections.abc import Sequence

import click

from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.output import lines, print_json
from driftwatch.clock import SystemClock
from driftwatch.notify.numbers import duration, moment, utc_text

QUEUES_HEADER = ("QUEUE", "WAITING", "RUNNING", "OLDEST")
DEAD_HEADER = ("DEAD SINCE UTC", "TASK", "KEY", "REASON")


@click.command()
@json_option
@history_options("db", "config")
def command(as_json: bool, history: History) -> None:
    """List dead tasks with their reason, newest first; on PostgreSQL what waits for a worker too.

    A task is dead after three tries. Its line goes when a task with the same key is done, or after
    7 days. Without workers, /metrics of the process count what waits in it.

    Piped, each line begins with `queue` (its name, waiting, running, oldest) or `dead` (since,
    task, key, reason); tabs between them, nothing cut.
    """
    from driftwatch.database_place import PostgresPlace
    from driftwatch.store.queue_schema import has_procrastinate
    from driftwatch.tasks.queue import WorkerQueue, require_tables

    now = SystemClock().now()
    with history.store() as store:
        failures = store.task_failures()
        counts = {}
        if isinstance(store.place, PostgresPlace) and has_procrastinate():
            require_tables(store)
            counts = dict(WorkerQueue().counts(store))
    if as_json:
        queues = {
            queue: {
                "waiting": one.waiting,
                "running": one.running,
                "oldest_waiting_seconds": one.oldest_waiting_seconds,
            }
            for queue, one in counts.items()
        }
        dead = [
            {
                "key": one.key,
                "task": one.name,
                "queue": one.queue,
                "failed_at": utc_text(one.failed_at),
                "reason": one.reason,
            }
            for one in failures
        ]
        print_json({"schema_version": 1, "queues": queues or None, "dead": dead})
        return
    waits = [
        (
            queue,
            str(one.waiting),
            str(one.running),
            duration(one.oldest_waiting_seconds) if one.waiting else "-",
        )
        for queue, one in counts.items()
    ]
    _print(QUEUES_HEADER, waits, [("queue", *one) for one in waits])
    dead_rows = [(moment(o.failed_at, now.date()), o.name, o.key, o.reason) for o in failures]
    full = [("dead", utc_text(one.failed_at), one.name, one.key, one.reason) for one in failures]
    _print(DEAD_HEADER, dead_rows, full)
    if not failures:
        click.echo("no dead task", err=True)


def _print(
    header: Sequence[str], short: Sequence[Sequence[str]], full: Sequence[Sequence[str]]
) -> None:
    for line in lines(header, short, full):
        click.echo(line)
