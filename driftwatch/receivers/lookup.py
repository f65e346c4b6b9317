"""Names to addresses, within a time.

``getaddrinfo`` has no time-out and cannot be interrupted, so a thread of its own waits for it. One
that hangs is waited for again by the next who asks for the same name: one thread a name at most.
"""

from __future__ import annotations

import socket
import threading
from typing import Any, NamedTuple


class Address(NamedTuple):
    """One address to connect to, as ``getaddrinfo`` gives it."""

    family: int
    kind: int
    protocol: int
    canonical_name: str
    target: tuple[Any, ...]  # what ``socket.connect`` takes; its first is the numeric address


class _Lookup:
    """One question to the resolver."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.answered = threading.Event()
        self.addresses: list[Address] = []
        self.failure: OSError | None = OSError("no answer")

    def ask(self) -> None:
        try:
            rows = socket.getaddrinfo(self.host, self.port, 0, socket.SOCK_STREAM)
            self.addresses, self.failure = [Address(*row) for row in rows], None
        except (OSError, UnicodeError) as error:  # a label of more than 63 characters
            self.failure = error if isinstance(error, OSError) else OSError("no name")
        finally:
            with _lock:
                _pending.pop((self.host, self.port), None)
            self.answered.set()


_lock = threading.Lock()
_pending: dict[tuple[str, int], _Lookup] = {}


def lookup(host: str, port: int, seconds: float) -> list[Address]:
    """The addresses of a host, in the resolver's order.

    ``host``: a name, or a numeric address without brackets.
    Raises TimeoutError: no answer within ``seconds``; OSError: there is no such name.
    """
    with _lock:
        pending = _pending.get((host, port))
        if pending is None:
            pending = _Lookup(host, port)
            try:
                threading.Thread(target=pending.ask, name="driftwatch-lookup", daemon=True).start()
            except RuntimeError:  # the system gives no thread: the next one asks anew
                raise OSError("no thread to look it up") from None
            _pending[host, port] = pending
    if not pending.answered.wait(seconds):
        raise TimeoutError
    if pending.failure is not None:
        raise OSError("no such name") from None
    return pending.addresses
