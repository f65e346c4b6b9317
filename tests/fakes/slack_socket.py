"""Slack's end of Socket Mode on the loopback: a real WebSocket that pushes envelopes."""

from __future__ import annotations

import itertools
import json
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

_WAIT_SECONDS = 10.0


class SlackSocket:
    """Takes connections with a ticket that it gave out, each ticket once.

    Attributes:
        acknowledged: envelope ids that were acknowledged, in order.
        refused: handshakes without a valid ticket.
    """

    def __init__(self) -> None:
        self.acknowledged: list[str] = []
        self.connections = 0
        self.refused = 0
        self._numbers = itertools.count(1)
        self._tickets: set[str] = set()
        self._open: list[ServerConnection] = []
        self._changed = threading.Condition()
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """A new address with a ticket, as ``apps.connections.open`` answers it."""
        assert self._server is not None
        ticket = f"canary-ticket-{next(self._numbers)}"
        self._tickets.add(ticket)
        port = self._server.socket.getsockname()[1]
        return f"ws://127.0.0.1:{port}/link/?ticket={ticket}&app_id=A0000APP"

    @property
    def open(self) -> bool:
        return bool(self._open)

    def push(self, kind: str, payload: Any, envelope_id: str | None = None) -> str:
        """Send an envelope over the newest connection; returns its id.

        Raises TimeoutError: nobody is connected.
        """
        name = envelope_id or f"envelope-{next(self._numbers)}"
        envelope = {
            "envelope_id": name,
            "type": kind,
            "payload": payload,
            "accepts_response_payload": True,
        }
        self.send(json.dumps(envelope))
        return name

    def send(self, text: str) -> None:
        """Send any text over the newest connection. Raises as above."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._open, _WAIT_SECONDS):
                raise TimeoutError("nobody is connected")
            connection = self._open[-1]
        connection.send(text)

    def disconnect(self, reason: str) -> None:
        """Say that the connection ends, and end it, as Slack does every few hours."""
        document = {
            "type": "disconnect",
            "reason": reason,
            "debug_info": {"host": "wss-111.slack.com"},
        }
        with self._changed:
            connections = list(self._open)
        for connection in connections:
            connection.send(json.dumps(document))
            if reason != "warning":
                connection.close()

    def wait_for(self, condition: Any, seconds: float = _WAIT_SECONDS) -> bool:
        """Wait until a condition holds; it is looked at when something comes or goes."""
        with self._changed:
            return bool(self._changed.wait_for(condition, seconds))

    def start(self) -> None:
        self._server = serve(self._serve, "127.0.0.1", 0, compression=None)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        for connection in list(self._open):
            connection.close()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()

    def _serve(self, connection: ServerConnection) -> None:
        path = connection.request.path if connection.request is not None else ""
        ticket = parse_qs(urlsplit(path).query).get("ticket", [""])[0]
        if ticket not in self._tickets:
            self.refused += 1
            connection.close(1008, "no ticket")
            return
        self._tickets.remove(ticket)
        hello = {
            "type": "hello",
            "num_connections": 1,
            "connection_info": {"app_id": "A0000APP"},
            "debug_info": {"host": "applink-1", "approximate_connection_time": 18060},
        }
        try:
            connection.send(json.dumps(hello))
            with self._changed:
                self._open.append(connection)
                self.connections += 1
                self._changed.notify_all()
            for text in connection:
                answer = json.loads(text)
                with self._changed:
                    self.acknowledged.append(answer["envelope_id"])
                    self._changed.notify_all()
        except (ConnectionClosed, OSError):
            pass
        finally:
            with self._changed:
                if connection in self._open:
                    self._open.remove(connection)
                self._changed.notify_all()
