"""The buttons of every Slack app: one Socket Mode connection an app, and what a click does.

docs.slack.dev/apis/events-api/using-socket-mode. Every click is acknowledged before anything is
done with it: Slack waits three seconds. The store keeps it once. The outbox tells every receiver of
an acknowledgement, this one too, within a second or two.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson
import structlog
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from slack_sdk.socket_mode.builtin import SocketModeClient
from slack_sdk.socket_mode.client import BaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from driftwatch.address_guard import permitted_addresses
from driftwatch.errors import ConfigError, DeliveryError, StoreError, UsageError
from driftwatch.incidents.silence import silence_matchers
from driftwatch.numbers import clean, cut, moment
from driftwatch.receivers.http import post
from driftwatch.receivers.registry import Receiver
from driftwatch.receivers.slack import SILENT, SlackClient, client_of
from driftwatch.receivers.slack_blocks import ACKNOWLEDGE, NOT_USEFUL, SILENCE, USEFUL, plain
from driftwatch.service.metrics import OwnMetrics
from driftwatch.service.notes import Trouble
from driftwatch.settings.receivers import SlackReceiver
from driftwatch.store.actions import require_open
from driftwatch.store.store import Store

LONGEST_DELAY_SECONDS = 60.0
# as old as Slack lets a signed request be
STALE_AFTER = timedelta(minutes=5)
SILENCED_FOR = timedelta(hours=2)
_MARKS = {USEFUL: "useful", NOT_USEFUL: "not useful"}
_ACTIONS = frozenset((ACKNOWLEDGE, SILENCE, *_MARKS))

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
            clicks = SlackClicks(app, self._store, self._now)
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


def apps_of(receivers: Iterable[Receiver]) -> list[_App]:
    """The apps with an app token, each with its receivers: several channels may be one app's."""
    apps: dict[tuple[str, str], dict[str, SlackReceiver]] = {}
    for one in receivers:
        if (slack := one.slack) is not None and slack.app_token_file is not None:
            apps.setdefault((str(slack.app_token_file), slack.api_url), {})[one.name] = slack
    return list(apps.values())


class _Connection(SocketModeClient):
    """The connection of one app, reopened for ever; ``handle``: takes clicks, one after another."""

    def __init__(
        self, name: str, settings: SlackReceiver, handle: Callable[[dict[str, Any]], None]
    ) -> None:
        client = SlackClient(name, "", settings.api_url)
        client.ssl = ssl.create_default_context()
        client.ssl.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
        super().__init__("", SILENT, client, concurrency=1)
        self.proxy = None  # not that of the environment
        self._settings, self._handle = settings, handle
        self._log: Any = structlog.get_logger()
        self._trouble = Trouble("Slack's buttons do not work", "Slack's buttons work again")
        self._clicks = ThreadPoolExecutor(1, "driftwatch-slack-clicks")
        self._ending = threading.Event()
        self._first = threading.Thread(target=self._begin, name="driftwatch-slack", daemon=True)
        self.socket_mode_request_listeners.append(self._take)
        self._first.start()

    def issue_new_wss_url(self) -> str:
        """Where to connect.

        Raises DeliveryError: Slack does not say; ConfigError: the token cannot be read; OSError:
        the address is link-local or a metadata service.
        """
        token = self._settings.read("app_token") or ""
        url = str(self.web_client.apps_connections_open(app_token=token).get("url"))
        permitted_addresses(urlsplit(url).hostname or "", 443)
        return url

    def connect_to_new_endpoint(self, force: bool = False) -> None:
        """Connect; what is wrong is logged when it begins, and that it works again."""
        try:
            super().connect_to_new_endpoint(force)
            trouble = None if self.is_connected() else "the connection could not be opened"
        except ConfigError as error:
            trouble = error.problems[0].message
        except (DeliveryError, OSError) as error:
            trouble = str(error)
        self._trouble.note(trouble)

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


class Click(NamedTuple):
    """One click, in driftwatch's words."""

    request_id: str  # Slack's own names for it: the same for the same click
    user: str  # user id
    user_name: str  # chosen by the user
    action: str
    incident_id: str
    channel: str
    ts: str  # of the message
    at: datetime
    response_url: str


def click_of(payload: Mapping[str, Any]) -> Click | None:
    """A click on a button that acts; None for links and for what is not a click of ours.

    ``payload``: as docs.slack.dev/reference/interaction-payloads/block_actions-payload has it.
    """
    try:
        action, container, user = payload["actions"][0], payload["container"], payload["user"]
        place = (container["channel_id"], container["message_ts"])
        who, what, stamp = user["id"], action["action_id"], action["action_ts"]
        request_id = " ".join(("slack", *place, who, what, stamp))
        name = str(user.get("name") or user.get("username") or who)
        at, incident_id = datetime.fromtimestamp(float(stamp), UTC), str(action["value"])
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, OSError, AttributeError):
        return None
    if payload.get("type") != "block_actions" or what not in _ACTIONS:
        return None
    url = str(payload.get("response_url") or "")
    return Click(request_id, who, name, what, incident_id, *place, at, url)


class SlackClicks:
    """Handles the clicks of one app, one at a time.

    Args:
        app: receiver name → its settings.
    """

    def __init__(self, app: _App, store: Store, now: Callable[[], datetime]) -> None:
        self._channels = {one.channel: (name, one) for name, one in app.items()}
        self._store, self._now = store, now
        self._log = structlog.get_logger()

    def handle(self, payload: dict[str, Any]) -> None:
        """Do what a click asks for, and answer who clicked.

        Raises ConfigError: the bot token cannot be read; nothing is done then.
        """
        if (click := click_of(payload)) is None:
            return
        receiver, settings = self._channels.get(click.channel, ("", None))
        if settings is None:
            self._log.warning("click refused", reason="no receiver has this channel any more")
            return
        client, reason = client_of(receiver, settings), ""
        result, answer = "refused", self._refusal(settings, click)
        try:
            if self._store.is_request_done(click.request_id):
                result, answer = "again", None
            elif answer is None:
                result, answer = "done", self._act(client, receiver, click)
        except UsageError as error:
            answer = reason = error.message
        except StoreError as error:
            result, reason = "failed", error.message
            answer = f"driftwatch could not do it ({reason}); the commands work"
        about = {"receiver": receiver, "action": click.action, "user": click.user}
        about |= {"reason": reason} if reason else {}
        self._log.info(f"click {result}", id=clean(click.incident_id[:12]), **about)
        if answer:
            text = {"response_type": "ephemeral", "replace_original": False}
            body = orjson.dumps({**text, "text": plain(clean(answer))})
            try:
                post(receiver, click.response_url, body)
            except DeliveryError as error:
                self._log.warning("click not answered", reason=error.message)

    def _refusal(self, settings: SlackReceiver, click: Click) -> str | None:
        if abs(self._now() - click.at) > STALE_AFTER:
            return "this click is older than 5 minutes: click again"
        if settings.users and click.user not in settings.users:
            return "you are not among those who may use these buttons"
        return None

    def _act(self, client: SlackClient, receiver: str, click: Click) -> str | None:
        """Do it; returns the answer to who clicked, None where a message shows it."""
        by, now, store = cut(clean(click.user_name), 60), self._now(), self._store
        via: dict[str, Any] = {"via": receiver, "request_id": click.request_id}
        if click.action == ACKNOWLEDGE:
            done = store.acknowledge(click.incident_id, by, now, **via)
            if done.is_new or done.action is not None:
                return None
            before = done.incident.acknowledgement
            when = moment(now if before is None else before.at, now.date())
            return f"{done.incident.acknowledged_by} acknowledged it at {when}"
        if click.action in _MARKS:
            mark = _MARKS[click.action]
            id_ = store.mark(click.incident_id, mark, by=by, at=now, **via).incident_id
            return f"marked {mark}; driftwatch ack {id_} --useful or --not-useful marks it anew"
        incident = store.incident(click.incident_id)
        require_open(incident, "silenced")
        # of the click's own time: the same click is the same silence
        matchers, at, until = silence_matchers(incident), click.at, click.at + SILENCED_FOR
        with store.one_transaction():
            one = store.add_silence(matchers, until=until, by=by, at=at, comment="Slack button")
            store.note_action("silence", by, at, incident_id=incident.id, subject=one.id, **via)
        return _tell_thread(client, click, by, " ".join(matcher.text for matcher in matchers))


def _tell_thread(client: SlackClient, click: Click, by: str, what: str) -> str | None:
    """Say in the thread what is silenced; where that fails, the answer to who clicked."""
    end = moment(click.at + SILENCED_FOR, click.at.date())
    text = f"*Silenced* by {plain(by)} until {end}: {plain(clean(what))}"
    try:
        client.chat_postMessage(channel=click.channel, thread_ts=click.ts, text=text)
    except DeliveryError:
        return f"silenced until {end}"
    return None
