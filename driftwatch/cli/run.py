"""``driftwatch run``, ``web`` and ``db``: the service, its web pages, its database."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.database import database_of
from driftwatch.cli.history import History
from driftwatch.cli.main import EXIT_ANSWERED, Group
from driftwatch.cli.options import FILE, history_options, option
from driftwatch.database_place import SqliteFile
from driftwatch.errors import UsageError
from driftwatch.numbers import plural

if TYPE_CHECKING:
    from driftwatch.cli.process import Hangups
    from driftwatch.clock import Clock
    from driftwatch.collect.schema import Source
    from driftwatch.pipeline.plan import Plan
    from driftwatch.receivers.registry import Receiver
    from driftwatch.service.fleet import Fleet
    from driftwatch.service.metrics import OwnMetrics
    from driftwatch.service.run import Service
    from driftwatch.settings import Settings, SourceSettings
    from driftwatch.store.store import Store


@click.command(name="run")
@option("-c --config", FILE, "The configuration.", default=Path("driftwatch.yaml"))
def command(config: Path) -> int:
    """Watch the configured sources until SIGTERM or Ctrl-C; logs state changes on stderr.

    driftwatch also logs when a server stops or starts to answer. It serves its own /metrics,
    /-/healthy and /-/ready at the address `listen` (DRIFTWATCH_LISTEN). One process may use a
    SQLite file; on one PostgreSQL any number of processes share the work: start them on any host.
    SIGTERM lets the jobs under way finish; when one dies, hangs or loses the database, another does
    its jobs within two minutes.

    It reloads the configuration and its rules on SIGHUP. If a file has a problem it keeps what is
    in force and logs every problem.
    """
    from driftwatch.cli.process import Hangups, give_memory_back
    from driftwatch.settings import load_settings

    if not config.exists():
        raise UsageError(
            f"there is no configuration {config}",
            help_text="driftwatch init writes one; driftwatch watch URL... needs none",
        )
    give_memory_back()
    hangups = Hangups()  # one that comes before the first tick is not to end the process
    settings = load_settings(config)
    return _serve(config, settings, hangups)


def _serve(config: Path, settings: Settings, hangups: Hangups) -> int:
    """Do the service's work until a signal; the exit code."""
    from driftwatch.cli.process import configure_logs
    from driftwatch.clock import SystemClock
    from driftwatch.pipeline.stored_state import evaluated_until
    from driftwatch.receivers.registry import receivers_of
    from driftwatch.service.configuration import plan_of_settings
    from driftwatch.service.liveness import Endpoint
    from driftwatch.service.metrics import OwnMetrics
    from driftwatch.service.reload import Reload
    from driftwatch.store.store import Store

    plan, receivers = plan_of_settings(settings), receivers_of(settings)
    if settings.heartbeat is not None:
        settings.heartbeat.read_url()  # a URL that cannot be read stops the start
    log = configure_logs()
    clock = SystemClock()
    metrics = OwnMetrics(clock.now)
    _require_procrastinate(settings)
    with Store.open(settings.database_place) as store, store.tick_lock():
        until = evaluated_until(store)
        service, runner = _service(settings, plan, receivers, store, metrics)
        endpoint: Endpoint | None = None
        try:
            address, checks = settings.listen_address, (runner.why_unhealthy, runner.why_not_ready)
            endpoint = Endpoint(address, metrics.registry, *checks)
            reload = Reload(config, settings, plan, service.adopt, metrics, clock, log)
            hangups.listen()  # what is on its way from now on is to end
            runner.start()
            log.info(
                "watching",
                servers=", ".join(dict.fromkeys(map(_servers, settings.sources))),
                rules=reload.rules,
                database=str(settings.database_place),
                **({} if until is None else {"evaluated_until": f"{until:%Y-%m-%dT%H:%MZ}"}),
                web=_web(config, settings),
                metrics="http://{}:{}/metrics".format(*endpoint.address),
            )
            hangups.loop(reload.reload)
            log.info("stopping")
        finally:
            runner.stop()
            if endpoint is not None:
                endpoint.close()
    log.info("stopped")
    return 0


def _servers(source: SourceSettings) -> str:
    """``3 metrics pages`` or ``prometheus http://p:9090``."""
    from driftwatch.collect.http import without_secrets
    from driftwatch.settings import PagesSource, PrometheusSource

    if isinstance(source, PagesSource):
        return plural(len(source.pages), "metrics page")
    if isinstance(source, PrometheusSource):
        return f"prometheus {without_secrets(source.prometheus)}"
    return next(iter(type(source).model_fields))


def _web(config: Path, settings: Settings) -> str:
    """Where the web is, and what serves it: another process."""
    from driftwatch.settings.file import WebSettings

    listen = (settings.web or WebSettings.model_validate({})).listen
    url = settings.external_url or f"http://{listen}/"
    return f"{url} (driftwatch web -c {shlex.quote(str(config))})"


def _require_procrastinate(settings: Settings) -> None:
    from driftwatch.database_place import PostgresPlace
    from driftwatch.store.migrate import has_procrastinate

    if isinstance(settings.database_place, PostgresPlace) and not has_procrastinate():
        raise UsageError(
            "procrastinate is not installed",
            help_text="pip install 'vllm-driftwatch[postgres]', in a checkout pip install "
            "'.[postgres]'",
        )


def _service(
    settings: Settings,
    plan: Plan,
    receivers: Sequence[Receiver],
    store: Store,
    metrics: OwnMetrics,
) -> tuple[Service, Service | Fleet]:
    """The service from what is stored, and what runs it."""
    from driftwatch.clock import SystemClock
    from driftwatch.database_place import PostgresPlace
    from driftwatch.service.configuration import sources_of
    from driftwatch.service.report_material import schedule_of
    from driftwatch.service.run import Service

    own, place = SystemClock(), settings.database_place
    sources: list[Source] = sources_of(settings, own)
    # what shows only the present is scraped each interval: a job a minute would miss most of it
    is_live = any(getattr(one, "is_live", False) for one in sources)
    clock: Clock = own
    batches = 1
    if isinstance(place, PostgresPlace) and not is_live:
        from driftwatch.service.fleet import BATCHES, DatabaseClock, Fleet

        clock, batches = DatabaseClock(store, own), BATCHES
    service = Service(
        sources,
        plan,
        store,
        receivers,
        clock,
        interval_seconds=settings.interval,
        reports=schedule_of(settings),
        metrics=metrics,
        batches=batches,
    )
    if settings.heartbeat is not None:
        service.beat(settings.heartbeat.read_url)
    if not isinstance(place, PostgresPlace) or is_live:
        return service, service
    assert isinstance(clock, DatabaseClock)  # noqa: S101 - see above
    return service, Fleet(service, store, place, clock)


@click.command()
@option("--listen", str, "Address; default: web.listen.", metavar="HOST:PORT")
@history_options("db", "config")
def web_command(listen: str | None, history: History) -> None:
    """Serve the fleet, its incidents and what people do with them as web pages, until SIGTERM.

    The pages read the database of driftwatch run and never delay it. Who has the token of
    web.token_file, or comes through the proxy of web.proxy, may acknowledge, silence, mark and
    note; everybody else may look. `external_url` is where people reach it; pages link there.
    """
    from driftwatch.cli.database import database_of
    from driftwatch.cli.process import configure_logs
    from driftwatch.clock import SystemClock
    from driftwatch.errors import UsageError

    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        help_text = "pip install 'vllm-driftwatch[web]', in a checkout pip install '.[web]'"
        raise UsageError("the web is not installed", help_text=help_text)
    from driftwatch.service.configuration import plan_of_rules, plan_of_settings
    from driftwatch.settings import load_settings
    from driftwatch.settings.file import WebSettings, checked_listen
    from driftwatch.web.access import People
    from driftwatch.web.app import Web, listening, server_of
    from driftwatch.web.database import WebDatabase

    settings = None if history.config is None else load_settings(history.config)
    web_settings = (settings and settings.web) or WebSettings.model_validate({})
    if listen is not None:
        try:
            web_settings = web_settings.model_copy(update={"listen": checked_listen(listen)})
        except ValueError as error:
            raise UsageError(f"--listen: {error}") from None
    plan = plan_of_rules(()) if settings is None else plan_of_settings(settings)
    place = database_of(history.db, history.config)
    people = People(web_settings.token_file, web_settings.proxy)
    people.require_token()
    url = None if settings is None else settings.external_url
    here = _where(history)
    web = Web(web_settings, plan, WebDatabase(place), people, SystemClock(), url, here)
    log = configure_logs()
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn stops at both, and sends them on to whoever had them before
        signal.signal(number, lambda *_: None)
    with listening(web) as (host, sockets):
        log.info("serving", pages=f"http://{host}/", database=str(web.database.place))
        server_of(web).run(sockets)
    log.info("stopped")


def _where(history: History) -> str:
    """The options of this command for others, which may be typed in another folder."""
    words = [] if history.config is None else ["-c", str(history.config.resolve())]
    if (db := history.db) is not None:
        words += ["--db", str(db.path.resolve()) if isinstance(db, SqliteFile) else db.typed]
    return "".join(f" {shlex.quote(word)}" for word in words)


@click.group(cls=Group)
def db_command() -> None:
    """Bring the database to this version."""


@db_command.command()
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
