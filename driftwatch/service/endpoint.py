"""The service's own HTTP end: /metrics, /-/healthy, /-/ready."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from driftwatch.errors import UsageError

# None = yes; a text says why not
Check = Callable[[], str | None]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away before its answer was whole is not news."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _ServerOfIpv6(_Server):
    address_family = socket.AF_INET6


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
        registry: CollectorRegistry,
        healthy: Check,
        ready: Check,
    ) -> None:
        handler = _handler(registry, healthy, ready)
        try:
            self._server = (_ServerOfIpv6 if ":" in address[0] else _Server)(address, handler)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {address[0]}:{address[1]}: {error.strerror}",
                help_text="set listen: in the configuration, or DRIFTWATCH_LISTEN",
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="driftwatch-endpoint", daemon=True
        )
        self._thread.start()

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


def _handler(
    registry: CollectorRegistry, healthy: Check, ready: Check
) -> type[BaseHTTPRequestHandler]:
    checks = {"/-/healthy": healthy, "/healthz": healthy, "/-/ready": ready}

    class Handler(BaseHTTPRequestHandler):
        server_version = "driftwatch"
        sys_version = ""
        timeout = 10  # a client that says nothing does not keep a thread

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path in checks:
                why_not = checks[path]()
                text = "ok\n" if why_not is None else f"{why_not}\n"
                self._answer(200 if why_not is None else 503, text.encode(), "text/plain")
            else:
                self._answer(404, b"see /metrics, /-/healthy, /-/ready\n", "text/plain")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes are not news."""

    return Handler
