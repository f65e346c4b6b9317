"""``driftwatch worker``: does the slow work of a PostgreSQL database, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driftwatch.pipeline.plan import Plan
    from driftwatch.service.report_schedule import Schedule
    from driftwatch.service.slow_tasks import Configured
    from driftwatch.settings import Settings
    from driftwatch.tasks.task import Function, Queue

# as driftwatch.tasks.task has them, which takes long to import
_QUEUES: tuple[Queue, ...] = ("reports", "maintenance")


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
    help="Do the tasks of this queue only; may be repeated.",
)
@click.option(
    "--listen",
    default="127.0.0.1:9097",
    show_default=True,
    metavar="HOST:PORT",
    help="Where it serves /metrics, /-/healthy and /-/ready; port 0 takes a free one.",
)
def command(config: Path, queues: tuple[Queue, ...], listen: str) -> int:
    """Do weekly reports and compaction, until SIGTERM or Ctrl-C.

    One task at a time, the most urgent first; start as many processes as you like. The
    configuration must say `tasks: {run_by: workers}`. SIGTERM lets the task under way finish. When
    a worker dies, another one does its task again. Each task begins with the rules and settings of
    that moment; another database or heartbeat needs a restart. Exit code 1: the database went away.
    """
    from prometheus_client import CollectorRegistry

    from driftwatch.cli.logs import configure_logs
    from driftwatch.service.endpoint import Endpoint
    from driftwatch.service.task_metrics import TaskMetrics
    from driftwatch.settings import load_settings
    from driftwatch.settings.web import checked_listen, listen_address
    from driftwatch.store.store import Store
    from driftwatch.tasks.queue import WorkerQueue, require_queue, require_tables

    settings = load_settings(config)
    if settings.tasks.run_by != "workers":
        raise UsageError(
            f"{config} has no tasks for workers",
            help_text="set tasks: {run_by: workers}, then restart driftwatch run",
        )
    try:
        checked_listen(listen)
    except ValueError as error:
        raise UsageError(f"--listen: {error}") from None
    place = require_queue(settings.database_place)
    from driftwatch.tasks.worker import Worker

    log = configure_logs()
    with Store.open(place, migrate=False) as store:
        require_tables(store)
        worker = Worker(
            place,
            store,
            _functions(configured(config, settings)),
            queues or _QUEUES,
            settings.tasks.heartbeat,
        )
        metrics, registry = TaskMetrics(), CollectorRegistry()
        metrics.read(lambda: WorkerQueue().counts(store))
        registry.register(metrics)
        endpoint = Endpoint(
            listen_address(listen), registry, worker.why_unhealthy, worker.why_not_ready
        )
        try:
            host, port = endpoint.address
            log.info("working", database=str(place), metrics=f"http://{host}:{port}/metrics")
            was_told = worker.run()
        finally:
            endpoint.close()
    log.info("stopped")
    return EXIT_ANSWERED if was_told else EXIT_PROBLEM


def configured(config: Path, settings: Settings) -> Configured:
    """Reads the configuration and its rules anew each time; a wrong one leaves the one before."""
    import structlog

    from driftwatch.errors import DriftwatchError
    from driftwatch.service.configuration import plan_of_settings
    from driftwatch.service.report_schedule import schedule_of
    from driftwatch.settings import load_settings

    latest = plan_of_settings(settings), schedule_of(settings)

    def read() -> tuple[Plan, Schedule | None]:
        nonlocal latest
        try:
            current = load_settings(config)
            latest = plan_of_settings(current), schedule_of(current)
        except (DriftwatchError, OSError) as error:
            structlog.get_logger().error("not reloaded: what is in force stays", reason=str(error))
        return latest

    return read


def _functions(now: Configured) -> Mapping[str, Function]:
    """Everything that a worker can do, each with what is configured when it begins."""
    from driftwatch.service.slow_tasks import COMPACTION, REPORTS, compact, reports_function

    return {
        COMPACTION: compact,
        REPORTS: reports_function(now),
    }
