"""Real `driftwatch run` processes on one real PostgreSQL; their first tick fires."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

from fakes.webhook_server import WebhookServer

from driftwatch.receivers.webhook import IDEMPOTENCY_HEADER

RULES = """\
groups:
  - name: own
    rules:
      - alert: RequestsQueue
        when: waiting_requests >= 5
        severity: ticket
        keep_firing_for: 1h
"""


class Cut:
    """A way to the socket of PostgreSQL that can be cut: nothing passes, and no end is told."""

    def __init__(self, server_folder: Path, folder: Path) -> None:
        self._to = str(server_folder / ".s.PGSQL.5432")
        self.folder = folder
        self._open = threading.Event()
        self._open.set()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    def close(self) -> None:
        self.mend()
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._to)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()  # the other direction's thread closes the other end


def arrivals(webhook: WebhookServer) -> Counter[str]:
    """How often each message arrived, taken or not, by its idempotency key."""
    name = IDEMPOTENCY_HEADER.lower()
    return Counter(request.headers[name] for request in webhook.requests)
