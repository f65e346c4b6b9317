"""The web in a process of its own: from a configuration to uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from driftwatch.clock import Clock, SystemClock
from driftwatch.database_place import Place
from driftwatch.errors import UsageError
from driftwatch.pipeline.plan import Plan
from driftwatch.settings import Settings
from driftwatch.settings.web import WebSettings, listen_address
from driftwatch.web.access import People
from driftwatch.web.app import Web, application
from driftwatch.web.database import WebDatabase

if TYPE_CHECKING:
    from uvicorn import Server

_SHUTDOWN_SECONDS, _IDLE_SECONDS = 5, 20
_MOST_CONNECTIONS, _MOST_HEADER_BYTES = 200, 16_384


def web_of(
    settings: Settings | None,
    plan: Plan,
    place: Place,
    *,
    own: WebSettings,
    clock: Clock | None = None,
    where: str = "",
) -> Web:
    """The web of a configuration; ``own``: its part for the web, or what stands for it; ``where``:
    options by which commands find configuration and database.

    Raises ConfigError: the token cannot be read, or is too short.
    """
    people = People(own.token_file, own.proxy)
    people.require_token()
    return Web(
        settings=own,
        plan=plan,
        database=WebDatabase(place),
        people=people,
        clock=SystemClock() if clock is None else clock,
        external_url=None if settings is None else settings.external_url,
        where=where,
    )


@contextmanager
def listening(web: Web) -> Iterator[tuple[str, list[socket.socket]]]:
    """The address of its pages, as host:port, and the socket that waits there.

    Raises UsageError: it cannot be listened on.
    """
    host, port = listen_address(web.settings.listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        waiting = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {web.settings.listen}: {error.strerror or error}",
            help_text="choose another address: --listen 127.0.0.1:9097",
        ) from error
    with waiting:
        named = f"[{host}]" if ":" in host else host
        yield f"{named}:{waiting.getsockname()[1]}", [waiting]


def server_of(web: Web) -> Server:
    """What serves it; ``run(sockets)`` returns after SIGTERM or Ctrl-C."""
    import uvicorn

    config = uvicorn.Config(
        application(web),
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        # others are told to come again
        limit_concurrency=_MOST_CONNECTIONS,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    return uvicorn.Server(config)
