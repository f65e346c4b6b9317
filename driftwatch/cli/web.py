"""``driftwatch web``: the pages, in a process of their own."""

from __future__ import annotations

import shlex
import signal
from importlib.util import find_spec

import click

from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options
from driftwatch.database_place import SqliteFile


@click.command()
@click.option("--listen", metavar="HOST:PORT", help="Address; default: web.listen.")
@history_options("db", "config")
def command(listen: str | None, history: History) -> None:
    """Serve the fleet, its incidents and what people do with them as web pages, until SIGTERM.

    The pages read the database of driftwatch run and never delay it. Who has the token of
    web.token_file, or comes through the proxy of web.proxy, may acknowledge, silence, mark and
    note; everybody else may look. `external_url` is where people reach it; pages link there.
    """
    from driftwatch.cli.database import database_of
    from driftwatch.cli.logs import configure_logs
    from driftwatch.errors import UsageError

    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        help_text = "pip install 'vllm-driftwatch[web]', in a checkout pip install '.[web]'"
        raise UsageError("the web is not installed", help_text=help_text)
    from driftwatch.service.configuration import plan_of_rules, plan_of_settings
    from driftwatch.settings import load_settings
    from driftwatch.settings.web import WebSettings, checked_listen
    from driftwatch.web.server import listening, server_of, web_of

    settings = None if history.config is None else load_settings(history.config)
    if listen is not None:
        try:
            checked_listen(listen)
        except ValueError as error:
            raise UsageError(f"--listen: {error}") from None
        own = (settings and settings.web) or WebSettings.model_validate({})
        web_settings = own.model_copy(update={"listen": listen})
    else:
        web_settings = (settings and settings.web) or WebSettings.model_validate({})
    plan = plan_of_rules(()) if settings is None else plan_of_settings(settings)
    place = database_of(history.db, history.config)
    web = web_of(settings, plan, place, own=web_settings, where=_where(history))
    log = configure_logs()
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn stops at both, and sends them on to whoever had them before
        signal.signal(number, lambda *_: None)
    with listening(web) as (host, sockets):
        log.info(
            "serving",
            pages=f"http://{host}/",
            database=str(web.database.place),
            people_may="read and act" if web.people.may_act else "read",
        )
        server_of(web).run(sockets)
    log.info("stopped")


def _where(history: History) -> str:
    """The options of this command for others, which may be typed in another folder."""
    words = [] if history.config is None else ["-c", str(history.config.resolve())]
    if isinstance(history.db, SqliteFile):
        words += ["--db", str(history.db.path.resolve())]
    elif history.db is not None:
        words += ["--db", history.db.typed]
    return "".join(f" {shlex.quote(word)}" for word in words)
