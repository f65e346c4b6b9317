"""Which addresses driftwatch does not connect to: link-local ones and cloud metadata services.

The check is made on the resolved address that is connected to, so a name cannot answer one
address to a check and another to the connection.
"""

from __future__ import annotations

import ipaddress
import socket

# metadata services outside the link-local ranges
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        (
            "fd00:ec2::254",  # AWS
            "fd00:ec2::23",  # AWS, credentials of a pod
            "fd20:ce::254",  # Google
            "168.63.129.16",  # Azure
            "100.100.100.200",  # Alibaba
            "192.0.0.192",  # Oracle
        ),
    )
)
# IPv4 within IPv6, in the last 32 bits: RFC 6052, RFC 8215, and the compatible ones of RFC 4291
_EMBEDDING = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
_BROADCAST = ipaddress.ip_address("255.255.255.255")
REFUSED = "its address is link-local or a metadata service; refused"


class AddressRefused(OSError):
    """The address is link-local, a metadata service, multicast, broadcast or unspecified."""


def refused(address: str) -> bool:
    """Whether a numeric address must not be connected to.

    >>> refused("169.254.169.254"), refused("::ffff:169.254.169.254"), refused("127.0.0.1")
    (True, True, False)
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        embeds = any(ip in network for network in _EMBEDDING) and not ip.is_loopback
        if inner is None and embeds:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return refused(str(inner))
    bad_kind = ip.is_link_local or ip.is_multicast or ip.is_unspecified
    return bad_kind or ip in _METADATA or ip in _THIS_NETWORK or ip == _BROADCAST


def permitted_addresses(host: str, port: int) -> list[str]:
    """The numeric addresses of a host that may be connected to, in the resolver's order.

    Raises AddressRefused: it has no other; OSError: there is no such name.
    """
    rows = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    numeric = dict.fromkeys(str(row[4][0]) for row in rows)
    permitted = [address for address in numeric if not refused(address)]
    if not permitted:
        raise AddressRefused(1, REFUSED)
    return permitted


def connect_permitted(host: str, port: int, seconds: float) -> socket.socket:
    """A connection to the first permitted address that takes one; ``seconds``: for each.

    Raises OSError: no address takes one, or none is permitted.
    """
    failure: OSError | None = None
    for address in permitted_addresses(host, port):
        try:
            return socket.create_connection((address, port), seconds)
        except OSError as error:
            failure = error
    raise failure or AddressRefused(1, REFUSED)
