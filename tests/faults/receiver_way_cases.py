"""A way to a receiver's port that can be closed, or bring requests there and no answer back."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class Way:
    """Passes TCP from a port of its own to another while it is entered.

    Attributes:
        swallows_after: once a client has sent these bytes, nothing comes back to it any more.
    """

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self.swallows_after: bytes | None = None
        self.port = 0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def open(self) -> None:
        """Take connections, at the same port each time."""
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listening.getsockname()[1]
        self._start(self._accept, self._listening)

    def close(self) -> None:
        """Refuse connections."""
        with suppress(OSError):  # a close alone leaves the thread in accept
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to_port))
                self._sockets += [near, far]
                silent = threading.Event()
                self._start(self._there, near, far, silent)
                self._start(self._back, far, near, silent)

    def _there(self, near: socket.socket, far: socket.socket, silent: threading.Event) -> None:
        sent = b""
        with suppress(OSError):
            while data := near.recv(65536):
                sent += data
                if self.swallows_after is not None and self.swallows_after in sent:
                    silent.set()
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)

    def _back(self, far: socket.socket, near: socket.socket, silent: threading.Event) -> None:
        with suppress(OSError):
            while data := far.recv(65536):
                if not silent.is_set():
                    near.sendall(data)
            if not silent.is_set():
                near.shutdown(socket.SHUT_WR)
