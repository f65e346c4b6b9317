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
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return refused(str(inner))
    return ip.is_link_local or ip.is_multicast or ip.is_unspecified or ip in _METADATA


def connect(
    address: tuple[str, int],
    timeout: Any = None,
    source_address: Any = None,
    *,
    allow_link_local: bool = False,
) -> socket.socket:
    """Like :func:`socket.create_connection`, without the addresses that are refused.

    Raises AddressRefused: the name has no other address; OSError: nobody answered.
    """
    host, port = address
    failure: OSError = AddressRefused()
    for family, kind, protocol, _, target in socket.getaddrinfo(
        host.strip("[]"), port, 0, socket.SOCK_STREAM
    ):
        if not allow_link_local and refused(str(target[0])):
            continue
        opened = socket.socket(family, kind, protocol)
        try:
            if isinstance(timeout, int | float):
                opened.settimeout(timeout)
            if source_address:
                opened.bind(source_address)
            opened.connect(target)
        except OSError as error:
            opened.close()
            failure = error
        else:
            return opened
    raise failure


class _PlainConnection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _opened(self)


class _TlsConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _opened(self)


def _opened(connection: HTTPConnection) -> socket.socket:
    try:
        opened = connect((connection.host, connection.port or 80), connection.timeout)
    except AddressRefused:
        raise
    except TimeoutError:
        raise ConnectTimeoutError(connection, "timed out") from None
    except OSError as error:
        raise NewConnectionError(connection, type(error).__name__) from None
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


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
    new = requests.Session()
    new.trust_env = False
    if not allow_link_local:
        for scheme in ("http://", "https://"):
            new.mount(scheme, _GuardedAdapter(max_retries=0))
    return new
