"""``driftwatch run``: watch as a service, with a configuration file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.pipeline.state import Outcome
    from driftwatch.service.outbox import Attempt
    from driftwatch.service.run import Service
    from driftwatch.settings import Settings

# pins of 24 h and more page least (driftwatch/cli/proposal_notice.py); two days hold a whole one
_PROPOSED_FROM = timedelta(days=2)


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
def command(config: Path, once: bool) -> None:
    """Watch the configured sources until SIGTERM or Ctrl-C; logs state changes on stderr.

    driftwatch also logs when a server stops or starts to answer. It serves its own /metrics,
    /-/healthy and /-/ready at the address `listen`. Only one process may use a database.
    """
    from driftwatch.cli.allocator import give_memory_back

    give_memory_back()
    from driftwatch.cli.logs import configure_logs
    from driftwatch.clock import SystemClock
    from driftwatch.notify.senders import build_senders
    from driftwatch.service.configuration import plan_of_settings, sources_of
    from driftwatch.service.report_schedule import schedule_of
    from driftwatch.service.run import Receiver, Service
    from driftwatch.settings import RecordingSource, load_settings
    from driftwatch.store.store import Store

    if not config.exists():
        raise UsageError(
            f"there is no configuration {config}",
            help_text="driftwatch init writes one; driftwatch watch URL... needs none",
        )
    settings = load_settings(config)
    if any(isinstance(source, RecordingSource) for source in settings.sources):
        raise UsageError(
            "a recording is history, there is nothing to wait for in it",
            help_text=f"driftwatch replay RECORDING -c {config}",
        )
    plan = plan_of_settings(settings)
    log = configure_logs()
    clock = SystemClock()
    senders = build_senders(settings.receivers)
    receivers = [Receiver(r.name, r.severities, senders[r.name]) for r in settings.receivers]
    if not receivers:
        log.warning("no receivers: driftwatch sends pages to nobody; see `driftwatch incidents`")
    with Store.open(settings.database) as store, store.tick_lock():
        service = Service(
            sources_of(settings, clock),
            plan,
            store,
            receivers,
            clock,
            interval_seconds=settings.interval,
            retention=timedelta(seconds=settings.retention),
            reports=schedule_of(settings),
        )
        if not store.baselines_in_force():
            for words in proposing(settings, clock.now(), config):
                log.info("no baseline is pinned; the past proposes one", command=words)
        if once:
            _once(service, settings)
            return
        _serve(service, settings, log, rules=len(plan.enabled))
    log.info("stopped")


def proposing(settings: Settings, now: datetime, config: Path) -> list[str]:
    """The command that proposes a baseline from the past of each Prometheus of a configuration.

    A person accepts it; ``run`` itself never pins.
    """
    from driftwatch.settings import PrometheusSource

    commands = []
    for source in settings.sources:
        if isinstance(source, PrometheusSource):
            words = ["--prometheus", source.prometheus, "--step", f"{source.step:g}"]
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


def _serve(service: Service, settings: Settings, log: Any, *, rules: int) -> None:
    """Watch and answer on ``listen`` until a signal."""
    from driftwatch.cli.logs import until_signal
    from driftwatch.service.endpoint import Endpoint

    endpoint = Endpoint(
        settings.listen_address,
        service.metrics.registry,
        service.why_unhealthy,
        service.why_not_ready,
    )
    try:
        service.start()
        host, port = endpoint.address
        log.info(
            "watching",
            rules=rules,
            sources=len(settings.sources),
            database=str(settings.database),
            metrics=f"http://{host}:{port}/metrics",
        )
        until_signal()
        log.info("stopping")
    finally:
        service.stop()
        endpoint.close()


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
