"""Sockets whose every read and write ends at one deadline, and that take in so many bytes.

A time-out of a socket is one of each call: a peer that sends a byte a second never meets it. A
deadline is of all calls together, the TLS handshake included.
"""

from __future__ import annotations

import socket
import ssl
import time
from functools import cache
from typing import Any, cast

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from driftwatch.address_guard import AddressRefused, refused
from driftwatch.receivers.lookup import Address, lookup


class TooManyBytes(OSError):
    """The peer sent more than is taken in."""


class Bounds:
    """What one exchange may still take.

    ``seconds``: for all of it, from now on; ``most_bytes``: that may come in.
    """

    def __init__(self, seconds: float, most_bytes: int) -> None:
        self._deadline = time.monotonic() + seconds
        self._bytes = most_bytes
        self.missing = "its name was not resolved"  # what has not come yet, for people

    def seconds(self) -> float:
        """Seconds that are left. Raises TimeoutError: none."""
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining

    def count(self, number: int) -> None:
        """Count bytes that came in. Raises TooManyBytes: there are more than may."""
        self._bytes -= number
        if self._bytes < 0:
            raise TooManyBytes


class _BoundedReads(socket.socket):
    """``http.client`` reads by this alone."""

    bounds: Bounds

    def recv_into(self, *args: Any, **named: Any) -> int:
        """As of a socket, within the bounds."""
        self.settimeout(self.bounds.seconds())
        number = super().recv_into(*args, **named)
        self.bounds.count(number)
        return number


class PlainSocket(_BoundedReads):
    """A TCP socket within bounds."""

    def sendall(self, *args: Any, **named: Any) -> None:
        """As of a socket; its time-out is of the whole call."""
        self.settimeout(self.bounds.seconds())
        super().sendall(*args, **named)


class TlsSocket(_BoundedReads, ssl.SSLSocket):
    """A TLS socket within bounds."""

    def send(self, *args: Any, **named: Any) -> int:
        """As of a socket; ``sendall`` of a TLS socket calls it once and again."""
        self.settimeout(self.bounds.seconds())
        return super().send(*args, **named)


def open_socket(
    host: str, port: int, bounds: Bounds, connect_seconds: float, *, allow_link_local: bool = False
) -> PlainSocket:
    """Connect to the first address of a host that answers, refused addresses left out.

    ``connect_seconds``: for one address; of several each has its share of what is left.
    Raises AddressRefused: the host has no other address; TimeoutError; OSError: nobody answered.
    """
    addresses = lookup(host, port, bounds.seconds())
    bounds.missing = "no connection"
    permitted = [a for a in addresses if allow_link_local or not refused(str(a.target[0]))]
    failure: OSError = AddressRefused()
    for position, address in enumerate(permitted):
        share = bounds.seconds() / (len(permitted) - position)
        try:
            return _connected(address, bounds, min(connect_seconds, share))
        except OSError as error:
            failure = error
    raise failure


def _connected(address: Address, bounds: Bounds, seconds: float) -> PlainSocket:
    opened = PlainSocket(address.family, address.kind, address.protocol)
    try:
        opened.bounds = bounds
        opened.settimeout(seconds)
        opened.connect(address.target)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        opened.close()
        raise
    return opened


def with_tls(opened: PlainSocket, host: str) -> TlsSocket:
    """Shake hands over a connection, and check the certificate against the host.

    Raises SSLError; TimeoutError: the handshake hangs.
    """
    opened.bounds.missing = "no TLS handshake"
    opened.settimeout(opened.bounds.seconds())
    wrapped = cast(TlsSocket, _context().wrap_socket(opened, server_hostname=host))
    wrapped.bounds = opened.bounds
    return wrapped


@cache
def _context() -> ssl.SSLContext:
    """Trusts what the machine trusts (``SSL_CERT_FILE`` counts), and Mozilla's list."""
    context = ssl.create_default_context()
    context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
    context.sslsocket_class = TlsSocket
    return context
