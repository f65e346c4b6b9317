"""Connections that can be ended from outside, so that a deadline holds in every phase of a GET."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class EndableAdapter(HTTPAdapter):
    """One connection at a time, whose socket is handed out as soon as it stands; no retries.

    Args:
        held: takes a duplicate of each new socket (TLS takes the first one away during its
            handshake); shutting it down ends the exchange, whatever phase it is in.
    """

    def __init__(self, held: Callable[[socket.socket], None]) -> None:
        self._held = held
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make pools whose connections hand their socket out."""
        super().init_poolmanager(*args, **kwargs)
        held = self._held

        class Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                made = super()._new_conn()
                held(made.dup())
                return made

        class Secure(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                made = super()._new_conn()
                held(made.dup())
                return made

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
