"""The service's own HTTP end: /metrics, /-/healthy (also /healthz), /-/ready."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import RestrictedRegistry

from driftwatch.errors import UsageError

# None = yes; a text says why not
Check = Callable[[], str | None]
Registry = CollectorRegistry | RestrictedRegistry

# probes and scrapes take milliseconds: whoever takes longer is no use to anybody
_CLIENT_SECONDS = 10.0
_HINT = "see /metrics, /-/healthy, /-/ready\n"


class Endpoint:
    """Serves three read-only pages until it is closed.

    Args:
        address: host and port; port 0 takes a free one.
        registry: what ``/metrics`` serves.
        healthy: why the process should be restarted, None = it should not.
        ready: why it is not doing its job yet, None = it is.

    Raises:
        UsageError: the address cannot be bound.
    """

    def __init__(
        self,
        address: tuple[str, int],
        registry: Registry,
        healthy: Check,
        ready: Check,
    ) -> None:
        self.serve(registry, healthy, ready)
        try:
            self._server = (_ServerOfIpv6 if ":" in address[0] else _Server)(address, _Handler)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {address[0]}:{address[1]}: {error.strerror}",
                help_text="set listen: in the configuration, or DRIFTWATCH_LISTEN",
            ) from error
        self._server.set_app(self._answer)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="driftwatch-endpoint", daemon=True
        )
        self._thread.start()

    def serve(self, registry: Registry, healthy: Check, ready: Check) -> None:
        """Serve these from now on."""
        self._metrics = make_wsgi_app(registry)
        self._checks = {"/-/healthy": healthy, "/healthz": healthy, "/-/ready": ready}

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path, more = environ["PATH_INFO"], []
        if environ["REQUEST_METHOD"] != "GET":
            status, text, more = "405 Method Not Allowed", _HINT, [("Allow", "GET")]
        elif path == "/metrics":
            pages: Iterable[bytes] = self._metrics(environ, start)
            return pages
        elif path in self._checks:
            why_not = self._checks[path]()
            status = "200 OK" if why_not is None else "503 Service Unavailable"
            text = f"{why_not or 'ok'}\n"
        else:
            status, text = "404 Not Found", _HINT
        body = text.encode()
        start(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), *more])
        return [body]


class _Server(ThreadingWSGIServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away before its answer was whole is not news."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _ServerOfIpv6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_SECONDS
    default_request_version = "HTTP/1.0"  # also to who sends no request: an answer has a status
    error_message_format = _HINT  # without a word of the request
    error_content_type = "text/plain"

    def log_message(self, format: str, *args: object) -> None:
        """Probes are not news."""
