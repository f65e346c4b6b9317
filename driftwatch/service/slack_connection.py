"""Slack's Socket Mode: a WebSocket that driftwatch opens and that brings clicks, reopened for ever.

docs.slack.dev/apis/events-api/using-socket-mode. Every envelope is acknowledged before anything is
done with it: Slack waits three seconds. slack-sdk's own client reads frames without a bound and
takes a proxy from the environment, so the WebSocket is that of ``websockets``.
"""

from __future__ import annotations

import logging
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import orjson
import structlog
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from driftwatch.errors import ConfigError, DeliveryError
from driftwatch.receivers.bounded_socket import Bounds, open_socket
from driftwatch.receivers.slack_api import SlackApi

OPEN_SECONDS, CLOSE_SECONDS = 10.0, 1.0
LARGEST_MESSAGE = 1024 * 1024
LONGEST_DELAY_SECONDS = 60.0
# clicks that wait for the one before them
_MOST_WAITING = 100
_LOOK_SECONDS = 0.5
# its lines hold the ticket
_SILENT = logging.Logger("driftwatch.slack_connection", logging.CRITICAL + 1)


def delay_seconds(failures: int) -> float:
    """How long to wait before the next connection.

    >>> [delay_seconds(failures) for failures in (0, 1, 2, 3, 9)]
    [0.0, 1.0, 2.0, 4.0, 60.0]
    """
    return 0.0 if failures == 0 else min(LONGEST_DELAY_SECONDS, 2.0 ** (failures - 1))


def failures_after(failures: int, seconds: float, *, planned: bool) -> int:
    """Failures in a row, after a connection that took ``seconds`` in all.

    One that stood for a while begins the count anew; one that Slack refreshes at once, again and
    again, is a failure too, else nothing would slow the next one down.

    >>> failures_after(7, 3600.0, planned=True), failures_after(7, 3600.0, planned=False)
    (0, 1)
    >>> failures_after(7, 0.1, planned=True)
    8
    """
    before = 0 if seconds >= LONGEST_DELAY_SECONDS else failures
    return before if planned and seconds >= LONGEST_DELAY_SECONDS else before + 1


class Disconnected(Exception):
    """The connection ended, or could not be opened."""

    def __init__(self, reason: str, *, planned: bool = False, seconds: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.planned = planned  # Slack refreshes every connection every few hours
        self.seconds = seconds  # after which Slack wants to be asked again


class SlackConnection:
    """The connection of one app, and a thread that handles what it brings.

    Args:
        api_of: the Web API with the app-level token, read anew for each connection.
        handle: takes the payload of each click; in a thread of its own, one after the other.
        connected: told whether the connection stands.
    """

    def __init__(
        self,
        api_of: Callable[[], SlackApi],
        handle: Callable[[dict[str, Any]], None],
        connected: Callable[[bool], None],
    ) -> None:
        self._api_of, self._handle, self._connected = api_of, handle, connected
        self._log = structlog.get_logger()
        self._stopping = threading.Event()
        self._clicks: queue.Queue[dict[str, Any]] = queue.Queue(_MOST_WAITING)
        self._trouble: str | None = None
        self._listening = threading.Thread(
            target=self._listen_always, name="driftwatch-slack", daemon=True
        )
        self._working = threading.Thread(
            target=self._work, name="driftwatch-slack-clicks", daemon=True
        )

    def start(self) -> None:
        """Open the connection, and keep it open until :meth:`stop`."""
        self._listening.start()
        self._working.start()

    def stop(self) -> None:
        """Close the connection, finish every click that was acknowledged, within 22 s."""
        self._stopping.set()
        for thread in (self._listening, self._working):
            thread.join(OPEN_SECONDS + CLOSE_SECONDS)
        undone = 0
        with suppress(queue.Empty):
            while True:
                self._clicks.get_nowait()
                undone += 1
        if undone:
            self._log.error("clicks not done", count=undone, reason="driftwatch stopped before")

    def _listen_always(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            wait, began = 0.0, time.monotonic()
            try:
                self._listen()
            except Disconnected as error:
                lasted = time.monotonic() - began
                failures = failures_after(failures, lasted, planned=error.planned)
                wait = max(delay_seconds(failures), error.seconds or 0.0)
                self._note(None if error.planned else error.reason)
            except Exception as error:  # noqa: BLE001 - whatever comes, the next one may work
                failures = failures_after(failures, time.monotonic() - began, planned=False)
                wait = delay_seconds(failures)
                self._note(f"not expected: {type(error).__name__}")
            finally:
                self._connected(False)
            self._stopping.wait(wait)

    def _note(self, trouble: str | None) -> None:
        """Say what is wrong once, and that it works again."""
        if trouble is not None and trouble != self._trouble:
            self._log.warning("Slack's buttons do not work", reason=trouble)
        self._trouble = trouble

    def _listen(self) -> None:
        """One connection, from its opening to its end. Raises Disconnected, unless stopped."""
        with self._opened() as connection:
            while not self._stopping.is_set():
                try:
                    text = connection.recv(_LOOK_SECONDS)
                except TimeoutError:
                    continue
                except (WebSocketException, OSError):
                    raise Disconnected("the connection to Slack broke off") from None
                self._take(connection, text)

    def _opened(self) -> ClientConnection:
        try:
            api = self._api_of()
            url = str(api.ask("apps.connections.open").get("url"))
        except DeliveryError as error:
            seconds = error.retry_after_seconds
            raise Disconnected(error.message, seconds=seconds) from None
        except ConfigError as error:
            raise Disconnected(error.problems[0].message) from None
        if not api.is_slack(url) or urlsplit(url).scheme not in ("ws", "wss"):
            raise Disconnected("Slack named an address that is not its own; refused")
        try:
            return _connected(url)
        except (OSError, WebSocketException, EOFError, ValueError):
            raise Disconnected("the connection to Slack could not be opened") from None

    def _take(self, connection: ClientConnection, text: str | bytes) -> None:
        """One message of Slack's."""
        try:
            message = orjson.loads(text)
        except orjson.JSONDecodeError:
            message = None
        if not isinstance(message, dict):
            return
        if message.get("type") == "hello":
            self._connected(True)
            if self._trouble is not None:
                self._log.info("Slack's buttons work again")
            self._note(None)
        elif message.get("type") == "disconnect":
            reason = message.get("reason")
            if reason == "link_disabled":
                raise Disconnected("Socket Mode is switched off in the app's settings")
            if reason != "warning":  # that comes ten seconds before
                planned = reason == "refresh_requested"
                raise Disconnected("Slack ended the connection", planned=planned)
        elif (request := _request(message)) is not None:
            self._acknowledge(connection, request)

    def _acknowledge(self, connection: ClientConnection, request: SocketModeRequest) -> None:
        answer = orjson.dumps(SocketModeResponse(request.envelope_id).to_dict()).decode()
        try:
            connection.send(answer)
        except (WebSocketException, OSError):
            raise Disconnected("the connection to Slack broke off") from None
        if request.type != "interactive":
            return
        try:
            self._clicks.put_nowait(request.payload)
        except queue.Full:
            self._log.warning("click dropped", reason=f"{_MOST_WAITING} wait already")

    def _work(self) -> None:
        while True:
            may_come = self._listening.is_alive()
            try:
                payload = self._clicks.get(timeout=_LOOK_SECONDS if may_come else 0.01)
            except queue.Empty:
                if not may_come:
                    return
                continue
            try:
                self._handle(payload)
            except Exception as error:  # noqa: BLE001 - one click holds up no other
                self._log.error("click failed", reason=f"{type(error).__name__}: {error}")


def _request(message: dict[str, Any]) -> SocketModeRequest | None:
    """An envelope, None for what is none."""
    try:
        return SocketModeRequest.from_dict(message)
    except (ValueError, TypeError):
        return None


def _connected(url: str) -> ClientConnection:
    """Over a guarded connection, without a proxy.

    Raises OSError, WebSocketException, EOFError.
    """
    parts = urlsplit(url)
    secure, host = parts.scheme == "wss", parts.hostname or ""
    port = parts.port or (443 if secure else 80)
    bounded = open_socket(host, port, Bounds(OPEN_SECONDS, LARGEST_MESSAGE), OPEN_SECONDS / 2)
    # the bounds of one exchange would end it: from here on each message has its own
    opened = socket.socket(fileno=bounded.detach())
    try:
        opened.settimeout(None)
        context = None
        if secure:
            context = ssl.create_default_context()
            context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
        return connect(
            url,
            sock=opened,
            ssl=context,
            server_hostname=host if secure else None,
            proxy=None,
            compression=None,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            max_size=LARGEST_MESSAGE,
            logger=_SILENT,
        )
    except BaseException:
        opened.close()
        raise
