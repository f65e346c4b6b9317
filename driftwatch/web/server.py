"""The web in a process of its own: a socket, and uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from driftwatch.errors import UsageError
from driftwatch.settings.file import listen_address
from driftwatch.web.app import Web, application

if TYPE_CHECKING:
    from uvicorn import Server

_SHUTDOWN_SECONDS, _IDLE_SECONDS = 5, 20
_MOST_CONNECTIONS, _MOST_HEADER_BYTES = 200, 16_384


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
    """The uvicorn server; its ``run(sockets)`` returns after SIGTERM or Ctrl-C."""
    import uvicorn

    config = uvicorn.Config(
        application(web),
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        # further connections get a 503
        limit_concurrency=_MOST_CONNECTIONS,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    return uvicorn.Server(config)
