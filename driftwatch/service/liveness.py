"""How others see that the process lives: its HTTP endpoint and a heartbeat.

The endpoint serves /metrics, /-/healthy (also /healthz) and /-/ready. driftwatch sends a heartbeat
after each complete tick, so that something outside pages when the heartbeat stops. A tick is
complete when it is committed and every source has answered. A failed scrape of a server is an
answer, as CoverageLost reports it; a source that does not list its servers has not answered.
driftwatch also withholds the heartbeat while no receiver has taken the page of an open incident.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from driftwatch.errors import ConfigError, DeliveryError, UsageError
from driftwatch.receivers.http import post
from driftwatch.service.metrics import OwnMetrics
from driftwatch.service.notes import Trouble
from driftwatch.store.progress import unwatched
from driftwatch.store.store import Store

# None = yes; a text says why not
Check = Callable[[], str | None]

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
        self, address: tuple[str, int], registry: CollectorRegistry, healthy: Check, ready: Check
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._checks = {"/-/healthy": healthy, "/healthz": healthy, "/-/ready": ready}
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            self._server = type("Server", (_Server,), {"address_family": family})(address, _Handler)
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
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] != "GET":
            status, text = "405 Method Not Allowed", _HINT
        elif path == "/metrics":
            pages: Iterable[bytes] = self._metrics(environ, start)
            return pages
        elif path in self._checks:
            why_not = self._checks[path]()
            status = "200 OK" if why_not is None else "503 Service Unavailable"
            text = f"{why_not or 'ok'}\n"
        else:
            status, text = "404 Not Found", _HINT
        start(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(text.encode())))])
        return [text.encode()]


class _Server(ThreadingWSGIServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing where a client closed the connection early."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # seconds; probes and scrapes take milliseconds
    default_request_version = "HTTP/1.0"  # also to who sends no request: an answer has a status
    error_message_format = _HINT  # without a word of the request
    error_content_type = "text/plain"

    def log_message(self, format: str, *args: object) -> None:
        """Log no probe."""


# A page that no receiver has taken for this long withholds the heartbeat.
UNDELIVERED = timedelta(minutes=10)


def ping(read_url: Callable[[], str]) -> None:
    """GET the URL of a dead man's switch, such as a check of healthchecks.io.

    Raises DeliveryError: the answer is no 2xx, or the URL cannot be read.
    """
    try:
        url = read_url()
    except ConfigError as error:
        problem = error.problems[0].message
        raise DeliveryError(f"heartbeat: {problem}", permanent=True) from None
    post("heartbeat", url, b"", {}, method="GET")


def why_withheld(store: Store, blind: str | None, now: datetime) -> str | None:
    """Why the heartbeat is withheld; None = every batch was ticked, and each page was taken.

    ``blind``: why this process cannot evaluate anything.
    """
    progress = store.batches()
    if (why := next((one.incomplete for one in progress if one.incomplete), blind)) is not None:
        return why
    if silent := unwatched(progress, now):
        return f"no tick of batch {', '.join(map(str, silent))}"
    unheard = store.undelivered_incidents(now - UNDELIVERED)
    word = "incident" if unheard == 1 else "incidents"
    return f"no receiver has taken the page of {unheard} open {word}" if unheard else None


class Heartbeat:
    """Sends heartbeats in a thread of its own; no tick waits for it.

    ``read_url``: called for each heartbeat, as the URL may change.
    """

    def __init__(
        self, read_url: Callable[[], str], every_seconds: float, metrics: OwnMetrics
    ) -> None:
        self._read_url, self._every_seconds = read_url, every_seconds
        self._counts = metrics.heartbeats
        self._thread = ThreadPoolExecutor(1, "driftwatch-heartbeat")
        self._sending: Future[None] | None = None
        self._withheld = Trouble("heartbeat withheld", "heartbeat goes on")
        self._failing = Trouble("heartbeat not taken", "heartbeat taken again")
        self._due = 0.0  # monotonic
        for result in ("sent", "failed", "withheld"):
            self._counts.labels(result)

    def ticked(self, why_withheld: str | None) -> None:
        """A tick is committed; ``why_withheld``: why no heartbeat follows, None = one does."""
        self._withheld.note(why_withheld)
        if why_withheld is not None:
            self._counts.labels("withheld").inc()
        elif self._sending is None or self._sending.done():
            self._sending = self._thread.submit(self._send_if_due)

    def end(self) -> None:
        """Wait for what is on its way, and send no more."""
        self._thread.shutdown()

    def _send_if_due(self) -> None:
        """One that was not taken is tried again at the next tick."""
        began = time.monotonic()
        if began < self._due:
            return
        why = None
        try:
            ping(self._read_url)
        except Exception as error:  # noqa: BLE001 - the next one may be taken
            why = str(error) if isinstance(error, DeliveryError) else repr(error)
        self._failing.note(why)
        self._counts.labels("sent" if why is None else "failed").inc()
        if why is None:
            # a tick comes a little early or late: a twentieth early is on time
            self._due = began + 0.95 * self._every_seconds
