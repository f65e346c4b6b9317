"""Connections that refuse link-local and cloud metadata addresses, whatever the name said.

The check is made on the resolved address that is connected to, so a name cannot answer one
address to a check and another to the connection.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

# metadata services outside the link-local ranges: AWS over IPv6, Alibaba
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200")))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class AddressRefused(OSError):
    """The address is link-local, a metadata service, multicast or unspecified."""


def refused(address: str) -> bool:
    """Whether a numeric address must not be connected to.

    >>> refused("169.254.169.254"), refused("::ffff:169.254.169.254"), refused("127.0.0.1")
    (True, True, False)
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return refused(str(inner))
    return found.is_link_local or found.is_multicast or found.is_unspecified or found in _METADATA


def connect(
    address: tuple[str, int],
    timeout: Any = None,
    source_address: Any = None,
    *,
    allow_link_local: bool = False,
) -> socket.socket:
    """Like :func:`socket.create_connection`, without the addresses that are refused.

    Raises:
        AddressRefused: the name has no other address.
        OSError: nobody answered.
    """
    host, port = address
    failure: OSError = AddressRefused()
    for family, kind, protocol, _, target in socket.getaddrinfo(
        host.strip("[]"), port, 0, socket.SOCK_STREAM
    ):
        if not allow_link_local and refused(str(target[0])):
            continue
        made = socket.socket(family, kind, protocol)
        try:
            if isinstance(timeout, int | float):
                made.settimeout(timeout)
            if source_address:
                made.bind(source_address)
            made.connect(target)
        except OSError as error:
            made.close()
            failure = error
        else:
            return made
    raise failure


class _PlainConnection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _opened(self)


class _TlsConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _opened(self)


def _opened(connection: HTTPConnection) -> socket.socket:
    try:
        made = connect((connection.host, connection.port or 80), connection.timeout)
    except AddressRefused:
        raise
    except TimeoutError:
        raise ConnectTimeoutError(connection, "timed out") from None
    except OSError as error:
        raise NewConnectionError(connection, type(error).__name__) from None
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _GuardedAdapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}


def session(*, allow_link_local: bool = False) -> requests.Session:
    """A session without proxies, netrc or retries, whose connections are guarded."""
    made = requests.Session()
    made.trust_env = False
    if not allow_link_local:
        for scheme in ("http://", "https://"):
            made.mount(scheme, _GuardedAdapter(max_retries=0))
    return made
