"""``driftwatch run``: watch as a service, with a configuration file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.cli.service_process import Decided
    from driftwatch.pipeline.state import Outcome
    from driftwatch.service.leadership import Leadership
    from driftwatch.service.membership import Membership
    from driftwatch.service.own_metrics import OwnMetrics
    from driftwatch.service.receiver_queue import Attempt
    from driftwatch.service.run import Service
    from driftwatch.settings import Settings
    from driftwatch.store.store import Store

# pins of 24 h and more page least (driftwatch/cli/proposal_notice.py); two days hold a whole one
_PROPOSED_FROM = timedelta(days=2)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@click.command(name="run")
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("driftwatch.yaml"),
    show_default=True,
    help="The configuration.",
)
@click.option("--once", is_flag=True, help="Collect, evaluate and deliver once, then stop.")
@click.option("--name", help="With shards: what this process is called; default: the host's name.")
def command(config: Path, once: bool, name: str | None) -> int:
    """Watch the configured sources until SIGTERM or Ctrl-C; logs state changes on stderr.

    driftwatch also logs when a server stops or starts to answer. It serves its own /metrics,
    /-/healthy and /-/ready at the address `listen`. One process may use a SQLite file; of several
    on one PostgreSQL one watches, and the others wait to take over; with `shards` they share the
    pools.

    It reloads the configuration and its rules on SIGHUP, and when one of the files changes. If
    one has a problem it keeps what is in force and logs every problem.
    """
    from driftwatch.cli.allocator import give_memory_back

    give_memory_back()
    from driftwatch.cli.logs import Hangups, configure_logs
    from driftwatch.cli.service_process import Decided, leadership_of, membership_of, serve
    from driftwatch.clock import SystemClock
    from driftwatch.service.configuration import plan_of_settings
    from driftwatch.service.heartbeat import targets_of
    from driftwatch.service.own_metrics import OwnMetrics
    from driftwatch.service.receivers import receivers_of
    from driftwatch.service.reload import Reload
    from driftwatch.settings import RecordingSource, load_settings
    from driftwatch.store.members import require_shards
    from driftwatch.store.store import Store

    if name is not None and not _NAME.fullmatch(name):
        raise UsageError(
            "--name: 1 to 100 letters, digits, dots, dashes or underscores",
            help_text="driftwatch run --name eu-0; without it the host's name",
        )
    if not config.exists():
        raise UsageError(
            f"there is no configuration {config}",
            help_text="driftwatch init writes one; driftwatch watch URL... needs none",
        )
    hangups = Hangups()  # one that comes before the first tick is not to end the process
    settings = load_settings(config)
    if any(isinstance(source, RecordingSource) for source in settings.sources):
        raise UsageError(
            "a recording is history, there is nothing to wait for in it",
            help_text=f"driftwatch replay RECORDING -c {config}",
        )
    plan = plan_of_settings(settings)
    targets_of(settings.heartbeat)  # its URL can be read
    if settings.tasks.run_by == "workers":
        from driftwatch.tasks.queue import require_queue

        require_queue(settings.database_place)
    log = configure_logs()
    clock = SystemClock()
    decided = Decided(plan, receivers_of(settings))
    if not decided.receivers:
        log.warning("no receivers: driftwatch sends pages to nobody; see `driftwatch incidents`")
    metrics = OwnMetrics(clock.now)
    with (
        Store.open(settings.database_place) as store,
        store.tick_lock(),
        leadership_of(settings, metrics, name) as leadership,
        membership_of(settings, name, clock) as membership,
    ):
        if membership is None and (count := store.shard_count()) is not None:
            require_shards(count, settings.shards)
        watching = partial(
            _service, config, settings, decided, store, metrics, leadership, membership
        )
        if once:
            if leadership is not None:
                leadership.require()
                leadership.keep(lambda: None)
            if membership is not None:
                membership.beat()
            _once(watching(), settings)
            return 0
        reload = Reload(config, settings, plan, decided.adopt, metrics, clock, log)
        code = serve(watching, settings, metrics, leadership, hangups, reload, membership)
    log.info("stopped")
    return code


def _service(
    config: Path,
    settings: Settings,
    decided: Decided,
    store: Store,
    metrics: OwnMetrics,
    leadership: Leadership | None,
    membership: Membership | None = None,
) -> Service:
    """The service, from what is stored now; every write of it is one of the leader's."""
    import structlog

    from driftwatch.clock import SystemClock
    from driftwatch.service.configuration import sources_of
    from driftwatch.service.heartbeat import targets_of
    from driftwatch.service.report_schedule import schedule_of
    from driftwatch.service.run import Service
    from driftwatch.tasks.queue import WorkerQueue

    clock = SystemClock()
    store.lease = None if leadership is None else leadership.lease
    service = Service(
        sources_of(settings, clock),
        decided.plan,
        store,
        decided.receivers,
        clock,
        interval_seconds=settings.interval,
        retention=timedelta(seconds=settings.retention),
        reports=schedule_of(settings),
        metrics=metrics,
        may_send=(lambda: True) if leadership is None else leadership.may_act,
        tasks=WorkerQueue() if settings.tasks.run_by == "workers" else None,
        membership=membership,
    )
    decided.service = service
    if not store.baselines_in_force():
        for words in proposing(settings, clock.now(), config):
            structlog.get_logger().info(
                "no baseline is pinned; this looks for one in the past", command=words
            )
    if settings.heartbeat is not None:
        service.beat(targets_of(settings.heartbeat), settings.heartbeat.every)
    return service


def proposing(settings: Settings, now: datetime, config: Path) -> list[str]:
    """The command that proposes a baseline from the past of each Prometheus of a configuration.

    A person accepts it; ``run`` itself never pins.
    """
    from driftwatch.settings import PrometheusSource

    commands = []
    for source in settings.sources:
        if isinstance(source, PrometheusSource):
            words = ["--prometheus", source.prometheus]
            for label, value in source.match.items():
                words += ["--match", f"{label}={value}"]
            for option, at in (("--from", now - _PROPOSED_FROM), ("--to", now)):
                words += [option, f"{at:%Y-%m-%dT%H:%MZ}"]
            words = ["driftwatch", "baseline", "propose", "-c", str(config), *words]
            commands.append(shlex.join(words))
    return commands


def _once(service: Service, settings: Settings) -> None:
    """One tick and its deliveries; prints what it did where no receiver writes."""
    try:
        outcome = service.tick_once()
        attempts = service.deliver_once()
        piped = any(receiver.stdout is not None for receiver in settings.receivers)
        click.echo(_summary(outcome, attempts), err=piped)
    finally:
        service.stop()


def _summary(outcome: Outcome, attempts: Sequence[Attempt]) -> str:
    """What one tick did, on one line."""
    good = int(outcome.scrapes["ok"].sum()) if len(outcome.scrapes) else 0
    minutes = outcome.rows["end"].n_unique() if len(outcome.rows) else 0
    counts = {
        "scrapes": good,
        "failed": len(outcome.scrapes) - good,
        "minutes evaluated": minutes,
        "incidents fired or resolved": len(outcome.transitions),
        "pages sent": sum(attempt.result == "sent" for attempt in attempts),
        "not taken": sum(attempt.result != "sent" for attempt in attempts),
    }
    return ", ".join(f"{number} {name}" for name, number in counts.items())
