"""The HTTP end of remote write: what comes is kept, or refused with the reason."""

from __future__ import annotations

import hmac
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from driftwatch.clock import Clock
from driftwatch.collect.prometheus.query import unix_ms
from driftwatch.collect.remote_write.inbox import FullInbox, Inbox
from driftwatch.collect.remote_write.request import read_request
from driftwatch.errors import BadPage, ConfigError, TooExpensive, UsageError

PATH = "/api/v1/write"
MOST_COMPRESSED_BYTES = 8 * 2**20
MOST_CLIENTS = 64
RETRY_SECONDS = 5
_IDLE_SECONDS, _BODY_SECONDS = 120.0, 30.0
_AT_ONCE = 2  # requests that are decompressed at the same time

Token = Callable[[], str | None] | None


class _Refusal(Exception):
    """An answer that is not 204."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Receiver:
    """Listens until it is closed.

    ``token``: gives the bearer token, read anew for each request; None = anybody may write.
    ``requests``: status → how many were answered with it; ``received_bytes``: of bodies.
    Raises UsageError: the address cannot be bound, or the extra is not installed.
    """

    def __init__(
        self, address: tuple[str, int], inbox: Inbox, clock: Clock, token: Token = None
    ) -> None:
        read_request(b"\0")  # an empty one: what is missing is said now, and loops are compiled
        self._inbox, self._clock, self._token = inbox, clock, token
        self.requests: Counter[int] = Counter()
        self.received_bytes = 0
        self._counting = threading.Lock()
        self._reading = threading.BoundedSemaphore(_AT_ONCE)
        server = _ServerOfIpv6 if ":" in address[0] else _Server
        try:
            self._server = server(address, _handler(self))
        except OSError as error:
            raise UsageError(
                f"cannot listen on {address[0]}:{address[1]}: {error.strerror}",
                help_text="set remote_write: HOST:PORT in sources",
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="driftwatch-remote-write", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Listen no more, and hang up."""
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()
        self._thread.join()

    def count(self, status: int, size: int) -> None:
        """Note an answer."""
        with self._counting:
            self.requests[status] += 1
            self.received_bytes += size

    def admit(self, path: str, headers: Any) -> int:
        """The size of a body that may come.

        Raises _Refusal: it may not.
        """
        if path.partition("?")[0] != PATH:
            raise _Refusal(HTTPStatus.NOT_FOUND, f"write to {PATH}")
        self._authorize(headers.get("Authorization", ""))
        kind = headers.get("Content-Type", "")
        version = headers.get("X-Prometheus-Remote-Write-Version", "")
        if "io.prometheus.write.v2" in kind or version.startswith("2"):
            raise _Refusal(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "remote write 2.0 is not read: set protobuf_message: prometheus.WriteRequest",
            )
        if headers.get("Content-Encoding", "") != "snappy":
            raise _Refusal(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be a snappy block, as of 1.0"
            )
        length = headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _Refusal(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
        if int(length) > MOST_COMPRESSED_BYTES:
            raise _Refusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"more than {MOST_COMPRESSED_BYTES} bytes: lower max_samples_per_send",
            )
        return int(length)

    def _authorize(self, credentials: str) -> None:
        if self._token is None:
            return
        try:
            token = self._token() or ""
        except ConfigError as error:  # it may be there again in a moment
            problem = error.problems[0].message
            raise _Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"no token: {problem}") from None
        if not token or not hmac.compare_digest(credentials.encode(), f"Bearer {token}".encode()):
            raise _Refusal(HTTPStatus.UNAUTHORIZED, "a bearer token is needed")

    def keep(self, body: bytes) -> None:
        """Keep the samples of a body.

        Raises _Refusal: not all of them were kept.
        """
        try:
            with self._reading:
                refused = self._inbox.add(read_request(body), unix_ms(self._clock.now()))
        except TooExpensive as error:
            raise _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, error.message) from None
        except BadPage as error:
            raise _Refusal(HTTPStatus.BAD_REQUEST, error.message) from None
        except FullInbox:
            raise _Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, "full until the next tick: try again"
            ) from None
        if refused:
            reasons = ", ".join(f"{number} {why}" for why, number in sorted(refused.items()))
            raise _Refusal(HTTPStatus.BAD_REQUEST, f"the rest was kept; samples refused: {reasons}")


class _Server(ThreadingHTTPServer):
    """At most :data:`MOST_CLIENTS` threads; who comes beyond them tries again."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self._slots = threading.BoundedSemaphore(MOST_CLIENTS)
        self._clients: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, where one is free."""
        if not self._slots.acquire(blocking=False):
            with suppress(OSError):
                request.sendall(
                    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n"
                    b"Retry-After: %d\r\nConnection: close\r\n\r\n" % RETRY_SECONDS
                )
            return super().shutdown_request(request)
        self._clients.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The client is done with; its thread ends."""
        super().shutdown_request(request)
        if request in self._clients:
            self._clients.discard(request)
            self._slots.release()

    def hang_up(self) -> None:
        """End every client."""
        for client in list(self._clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away before its answer was whole is not news."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _ServerOfIpv6(_Server):
    address_family = socket.AF_INET6


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "driftwatch"
        sys_version = ""
        timeout = _IDLE_SECONDS
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            size = 0
            try:
                size = receiver.admit(self.path, self.headers)
                self.connection.settimeout(_BODY_SECONDS)
                body = self.rfile.read(size)
                self.connection.settimeout(_IDLE_SECONDS)
                if len(body) < size:
                    self.close_connection = True
                    return
                receiver.keep(body)
            except _Refusal as refusal:
                if not size:  # the body was not read
                    self.close_connection = True
                self._answer(refusal.status, str(refusal), size)
            else:
                self._answer(HTTPStatus.NO_CONTENT, "", size)

        def send_error(
            self, code: int, message: str | None = None, explain: str | None = None
        ) -> None:
            """Nothing of what the client sent comes back."""
            self.close_connection = True
            status = HTTPStatus(405 if code == HTTPStatus.NOT_IMPLEMENTED else code)
            self._answer(status, f"POST to {PATH}", 0)

        def _answer(self, status: HTTPStatus, text: str, size: int) -> None:
            receiver.count(status, size)
            self.send_response(status)
            if status == HTTPStatus.SERVICE_UNAVAILABLE:
                self.send_header("Retry-After", str(RETRY_SECONDS))
            if status == HTTPStatus.UNAUTHORIZED:
                self.send_header("WWW-Authenticate", "Bearer")
            if status == HTTPStatus.METHOD_NOT_ALLOWED:
                self.send_header("Allow", "POST")
            if self.close_connection:
                self.send_header("Connection", "close")
            body = f"{text}\n".encode() if text else b""
            if status != HTTPStatus.NO_CONTENT:
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not news."""

    return Handler
