"""The service's own HTTP end: /metrics, /-/healthy, /-/ready."""

from __future__ import annotations

import io
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import RestrictedRegistry

from driftwatch.errors import UsageError

# None = yes; a text says why not
Check = Callable[[], str | None]
Registry = CollectorRegistry | RestrictedRegistry
_Pages = tuple[Registry, Check, Check]


# probes and scrapes take milliseconds: whoever takes longer is no use to anybody
MOST_CLIENTS, CLIENT_SECONDS, REQUEST_BYTES = 32, 10.0, 16 * 1024
_HINT = b"see /metrics, /-/healthy, /-/ready\n"


class _Server(ThreadingHTTPServer):
    """At most ``MOST_CLIENTS`` threads; a newcomer ends the client that is there longest."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self._slots = threading.BoundedSemaphore(MOST_CLIENTS)
        self._lock = threading.Lock()
        # a dict keeps its order: the first one is there longest; when it has to go
        self._clients: dict[socket.socket, float] = {}
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, where one is free or becomes so at once."""
        if not self._slots.acquire(blocking=False):
            self._end_clients(most=MOST_CLIENTS - 1)
            if not self._slots.acquire(timeout=1.0):
                return super().shutdown_request(request)
        with self._lock:
            self._clients[request] = time.monotonic() + CLIENT_SECONDS
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """The client is done with; its thread ends."""
        with self._lock:
            was_open = self._clients.pop(request, None) is not None
            super().shutdown_request(request)
        if was_open:
            self._slots.release()

    def service_actions(self) -> None:
        """Twice a second: end whoever has had the time that there is."""
        self._end_clients()

    def _end_clients(self, most: int = MOST_CLIENTS) -> None:
        """Of the clients, those past their time, and the first ones beyond so many."""
        now = time.monotonic()
        with self._lock:
            beyond = len(self._clients) - most
            for at, (client, end) in enumerate(self._clients.items()):
                if at < beyond or end <= now:
                    _hang_up(client)

    def server_close(self) -> None:
        """Nobody is served any more."""
        super().server_close()
        self._end_clients(most=0)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away before its answer was whole is not news."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _hang_up(client: socket.socket) -> None:
    """What its thread reads or writes now ends."""
    with suppress(OSError):  # it went away itself
        client.shutdown(socket.SHUT_RDWR)


class _BoundedRequest(io.BufferedIOBase):
    """The lines of a request, up to so many bytes in all."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._left = inner, REQUEST_BYTES

    def readline(self, size: int | None = -1) -> bytes:
        """The next line; empty where the bytes are used up."""
        most = self._left if size is None or size < 0 else min(size, self._left)
        line: bytes = self._inner.readline(most)
        self._left -= len(line)
        return line

    def close(self) -> None:
        """Close what it reads from."""
        self._inner.close()


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
        registry: Registry,
        healthy: Check,
        ready: Check,
    ) -> None:
        self.serve(registry, healthy, ready)
        handler = _handler(lambda: self._pages)
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

    def serve(self, registry: Registry, healthy: Check, ready: Check) -> None:
        """Serve these from now on."""
        self._pages: _Pages = (registry, healthy, ready)

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


def _handler(pages: Callable[[], _Pages]) -> type[BaseHTTPRequestHandler]:

    class Handler(BaseHTTPRequestHandler):
        server_version = "driftwatch"
        sys_version = ""
        default_request_version = "HTTP/1.0"
        timeout = CLIENT_SECONDS

        def setup(self) -> None:
            super().setup()
            self.rfile = _BoundedRequest(self.rfile)

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            registry, healthy, ready = pages()
            checks = {"/-/healthy": healthy, "/healthz": healthy, "/-/ready": ready}
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path in checks:
                why_not = checks[path]()
                text = "ok\n" if why_not is None else f"{why_not}\n"
                self._answer(200 if why_not is None else 503, text.encode(), "text/plain")
            else:
                self._answer(404, _HINT, "text/plain")

        def send_error(
            self, code: int, message: str | None = None, explain: str | None = None
        ) -> None:
            """Nothing of what the client sent comes back."""
            is_method = code == HTTPStatus.NOT_IMPLEMENTED
            self._answer(405 if is_method else code, _HINT, "text/plain")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            if status == HTTPStatus.METHOD_NOT_ALLOWED:
                self.send_header("Allow", "GET")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes are not news."""

    return Handler
