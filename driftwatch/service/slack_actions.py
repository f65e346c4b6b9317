"""The buttons of every Slack app: one Socket Mode connection an app, started and stopped.

docs.slack.dev/apis/events-api/using-socket-mode. Every click is acknowledged before anything is
done with it: Slack waits three seconds.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any

import structlog
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from slack_sdk.socket_mode.builtin import SocketModeClient
from slack_sdk.socket_mode.client import BaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web import WebClient

from driftwatch.errors import ConfigError, DeliveryError
from driftwatch.receivers.slack_api import SlackApi
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.service.receivers import Receiver
from driftwatch.service.slack_clicks import SlackClicks
from driftwatch.settings.receivers.slack import SlackReceiver
from driftwatch.store.store import Store

LONGEST_DELAY_SECONDS = 60.0
# its lines hold the ticket
_SILENT = logging.Logger("driftwatch.slack", logging.CRITICAL + 1)

# receivers of one app: receiver name → its settings
_App = Mapping[str, SlackReceiver]


class SlackActions:
    """Listens for clicks while it is started; each method is for one thread at a time."""

    def __init__(self, store: Store, now: Callable[[], datetime], metrics: OwnMetrics) -> None:
        self._store, self._now, self._metrics = store, now, metrics
        self._apps: list[_App] = []
        self._connections: list[_Connection] = []
        self._is_started = False

    def start(self, receivers: Iterable[Receiver]) -> None:
        """Connect every app that has an app token."""
        self._is_started = True
        self.adopt(receivers)

    def adopt(self, receivers: Iterable[Receiver]) -> None:
        """Connect anew where the configuration of an app is another one; before a start nothing."""
        apps = apps_of(receivers)
        if not self._is_started or apps == self._apps:
            return
        self._disconnect()
        self._apps = apps
        for app in apps:
            clicks = SlackClicks(app, self._store, self._now, self._metrics.slack_clicks)
            connection = _Connection(*next(iter(app.items())), clicks.handle)
            for name in app:
                self._metrics.slack_connected.labels(name).set_function(connection.is_connected)
            self._connections.append(connection)

    def stop(self) -> None:
        """Finish every click that was acknowledged, and disconnect."""
        self._is_started = False
        self._disconnect()

    def _disconnect(self) -> None:
        for connection in self._connections:
            connection.close()
        self._apps, self._connections = [], []
        self._metrics.slack_connected.clear()


class _Connection(SocketModeClient):
    """The connection of one app, reopened for ever; ``handle``: takes clicks, one after another."""

    def __init__(
        self, name: str, settings: SlackReceiver, handle: Callable[[dict[str, Any]], None]
    ) -> None:
        context = ssl.create_default_context()
        context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
        super().__init__("", _SILENT, WebClient(ssl=context, logger=_SILENT), concurrency=1)
        self.proxy = None  # not that of the environment
        self._name, self._settings, self._handle = name, settings, handle
        self._log: Any = structlog.get_logger()
        self._trouble: str | None = None
        self._clicks = ThreadPoolExecutor(1, "driftwatch-slack-clicks")
        self._ending = threading.Event()
        self._first = threading.Thread(target=self._begin, name="driftwatch-slack", daemon=True)
        self.socket_mode_request_listeners.append(self._take)
        self._first.start()

    def issue_new_wss_url(self) -> str:
        """Where to connect: asked through the bounded way out.

        Raises DeliveryError: Slack does not say, or names an address that is not its own;
        ConfigError: the token cannot be read.
        """
        settings = self._settings
        url = settings.api_url.rstrip("/") + "/"
        api = SlackApi(self._name, settings.read("app_token") or "", url)
        address = str(api.ask("apps.connections.open").get("url"))
        if not address.startswith(("ws://", "wss://")) or not api.is_slack(address):
            text = "Slack named an address that is not its own; refused"
            raise DeliveryError(text, permanent=True)
        return address

    def connect_to_new_endpoint(self, force: bool = False) -> None:
        """Connect; what is wrong is logged when it begins, and that it works again."""
        try:
            super().connect_to_new_endpoint(force)
            trouble = None if self.is_connected() else "the connection could not be opened"
        except DeliveryError as error:
            trouble = error.message
        except ConfigError as error:
            trouble = error.problems[0].message
        if trouble is not None and trouble != self._trouble:
            self._log.warning("Slack's buttons do not work", reason=trouble)
        elif trouble is None and self._trouble is not None:
            self._log.info("Slack's buttons work again")
        self._trouble = trouble

    def close(self) -> None:
        """Close the connection, and finish every click that was acknowledged."""
        self._ending.set()
        self._first.join()
        session = self.current_session
        if session is not None and session.sock is not None:
            with suppress(OSError):  # its thread may wait for a message
                session.sock.shutdown(socket.SHUT_RDWR)
        super().close()
        self._clicks.shutdown()

    def _begin(self) -> None:
        """Until the first connection; from then on the client looks after it."""
        delay_seconds = 1.0
        while not self._ending.is_set():
            self.connect_to_new_endpoint()
            if self.current_session is not None:
                return
            self._ending.wait(delay_seconds)
            delay_seconds = min(LONGEST_DELAY_SECONDS, 2 * delay_seconds)

    def _take(self, _: BaseSocketModeClient, request: SocketModeRequest) -> None:
        self.send_socket_mode_response(SocketModeResponse(request.envelope_id))
        if request.type == "interactive":
            self._clicks.submit(self._handled, request.payload)

    def _handled(self, payload: dict[str, Any]) -> None:
        try:
            self._handle(payload)
        except Exception as error:  # noqa: BLE001 - one click holds up no other
            self._log.error("click failed", reason=f"{type(error).__name__}: {error}")


def apps_of(receivers: Iterable[Receiver]) -> list[_App]:
    """The apps with an app token, each with its receivers: several channels may be one app's."""
    apps: dict[tuple[str, str], dict[str, SlackReceiver]] = {}
    for one in receivers:
        slack = one.slack
        if slack is not None and slack.app_token_file is not None:
            key = (str(slack.app_token_file), slack.api_url)
            apps.setdefault(key, {})[one.name] = slack
    return list(apps.values())
