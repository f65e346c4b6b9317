"""The buttons of every Slack app of a configuration: one connection an app, started and stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from driftwatch.receivers.slack import app_of
from driftwatch.receivers.slack_api import SlackApi
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.service.receivers import Receiver
from driftwatch.service.slack_clicks import ClickStore, SlackClicks
from driftwatch.settings.receivers.slack import SlackReceiver

if TYPE_CHECKING:
    from driftwatch.service.slack_connection import SlackConnection

# receivers of one app: receiver name → its settings
_App = Mapping[str, SlackReceiver]


class SlackActions:
    """Listens for clicks while it is started; each method is for one thread at a time."""

    def __init__(self, store: ClickStore, now: Callable[[], datetime], metrics: OwnMetrics) -> None:
        self._store, self._now, self._metrics = store, now, metrics
        self._apps: list[_App] = []
        self._connections: list[SlackConnection] = []
        self._is_started = False

    def start(self, receivers: Iterable[Receiver]) -> None:
        """Connect every app that has an app token."""
        self._is_started = True
        self._connect(apps_of(receivers))

    def adopt(self, receivers: Iterable[Receiver]) -> None:
        """Connect anew where the configuration of an app is another one; before a start nothing."""
        apps = apps_of(receivers)
        if self._is_started and apps != self._apps:
            self._disconnect()
            self._connect(apps)

    def stop(self) -> None:
        """Finish the clicks under way, and disconnect."""
        self._is_started = False
        self._disconnect()

    def _connect(self, apps: list[_App]) -> None:
        # a process without buttons imports no WebSocket
        from driftwatch.service.slack_connection import SlackConnection

        self._apps = apps
        for app in apps:
            channels = {one.channel or "": (name, one) for name, one in app.items()}
            clicks = SlackClicks(channels, self._store, self._now, app_of, self._note)
            connected = partial(self._set_connected, tuple(app))
            connected(False)
            first = next(iter(app.items()))
            connection = SlackConnection(partial(_api, *first), clicks.handle, connected)
            connection.start()
            self._connections.append(connection)

    def _disconnect(self) -> None:
        for connection in self._connections:
            connection.stop()
        self._connections = []
        self._metrics.slack_connected.clear()

    def _set_connected(self, names: Iterable[str], connected: bool) -> None:
        for name in names:
            self._metrics.slack_connected.labels(name).set(connected)

    def _note(self, receiver: str, result: str) -> None:
        self._metrics.slack_clicks.labels(receiver, result).inc()


def apps_of(receivers: Iterable[Receiver]) -> list[_App]:
    """The apps with an app token, each with its receivers: several channels may be one app's."""
    apps: dict[tuple[str, str], dict[str, SlackReceiver]] = {}
    for one in receivers:
        slack = one.slack
        if slack is not None and slack.app_token_file is not None:
            key = (str(slack.app_token_file), slack.api_url)
            apps.setdefault(key, {})[one.name] = slack
    return list(apps.values())


def _api(name: str, settings: SlackReceiver) -> SlackApi:
    """The Web API with the app-level token.

    Raises ConfigError: the token cannot be read.
    """
    return SlackApi(name, settings.read_app_token() or "", settings.api_url.rstrip("/") + "/")
