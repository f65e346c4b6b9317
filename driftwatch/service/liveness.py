"""Who outside sees that a process lives: its own HTTP end, and a heartbeat.

The end serves /metrics, /-/healthy (also /healthz) and /-/ready. The heartbeat is sent after each
complete tick, so that something outside tells people when it stops. A tick is complete when it is
committed and every source has answered. A failed scrape of a server is an answer, as a coverage
alert tells of it; a source that cannot say which servers exist gives none. No heartbeat is sent
either while an incident is open that no receiver has taken.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from driftwatch.errors import ConfigError, DeliveryError, UsageError
from driftwatch.pipeline.roster import TickInput
from driftwatch.receivers.http import post
from driftwatch.service.metrics import OwnMetrics
from driftwatch.service.notes import Trouble
from driftwatch.settings.service import HeartbeatSettings
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
        """A client that went away before its answer was whole is not news."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # seconds; probes and scrapes take milliseconds
    default_request_version = "HTTP/1.0"  # also to who sends no request: an answer has a status
    error_message_format = _HINT  # without a word of the request
    error_content_type = "text/plain"

    def log_message(self, format: str, *args: object) -> None:
        """Probes are not news."""


# A page that no receiver has taken for this long withholds the heartbeat.
UNDELIVERED = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Ping:
    """A URL of a dead man's switch, such as a check of healthchecks.io: GET, any 2xx."""

    read_url: Callable[[], str] = field(repr=False)  # read for each ping: it may be changed

    def send(self) -> None:
        """Ask for the URL.

        Raises DeliveryError: it did not answer so, or the URL cannot be read.
        """
        try:
            url = self.read_url()
        except ConfigError as error:
            problem = error.problems[0].message
            raise DeliveryError(f"heartbeat: {problem}", permanent=True) from None
        post("heartbeat", url, b"", {}, method="GET")


def ping_of(settings: HeartbeatSettings) -> Ping:
    """Who hears the heartbeat of a configuration.

    Raises ConfigError: the URL cannot be read.
    """
    settings.read_url()
    return Ping(settings.read_url)


class Answering:
    """Which sources have answered last."""

    def __init__(self) -> None:
        self._silent: dict[str, str] = {}

    def why_incomplete(self, gathered: TickInput) -> str | None:
        """Why a tick with these answers tells nothing of some source; None = all have answered."""
        for name in gathered.answers:
            self._silent.pop(name, None)
        # one that was not asked again since it failed is as silent as before
        self._silent |= {name: f"{name} cannot answer" for name in gathered.failed}
        silent = {**self._silent, **gathered.late}
        return next((silent[name] for name in sorted(silent)), None)


def why_withheld(store: Store, blind: str | None, now: datetime) -> str | None:
    """Why the heartbeat is withheld; None = every batch was ticked, and somebody has each page.

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
    """Sends in a thread of its own; no tick waits for it."""

    def __init__(self, ping: Ping, every_seconds: float, metrics: OwnMetrics) -> None:
        self._ping, self._every_seconds = ping, every_seconds
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
            self._ping.send()
        except Exception as error:  # noqa: BLE001 - the next one may be taken
            why = str(error) if isinstance(error, DeliveryError) else repr(error)
        self._failing.note(why)
        self._counts.labels("sent" if why is None else "failed").inc()
        if why is None:
            # a tick comes a little early or late: a twentieth early is on time
            self._due = began + 0.95 * self._every_seconds
