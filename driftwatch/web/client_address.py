"""From where a request comes: of a trusted proxy, whom it says it speaks for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network
# of one X-Forwarded-For; what lies before is the client's own word
_MOST_HOPS = 20


def client_address(peer: str, forwarded_for: Iterable[str], trusted: Sequence[Network]) -> str:
    """The nearest address that is no trusted proxy.

    ``peer``: where the connection comes from; ``forwarded_for``: every X-Forwarded-For, in order:
    believed from the right, as far as trusted proxies wrote it.

    >>> from ipaddress import ip_network
    >>> proxies = [ip_network("10.0.0.0/24")]
    >>> client_address("10.0.0.7", ["6.6.6.6, 192.0.2.9, 10.0.0.8"], proxies)
    '192.0.2.9'
    >>> client_address("192.0.2.9", ["6.6.6.6"], proxies)
    '192.0.2.9'
    """
    hops = [hop for header in forwarded_for for hop in header.split(",")]
    address = peer
    for hop in reversed(hops[-_MOST_HOPS:]):
        if not is_within(address, trusted) or (named := _address(hop)) is None:
            break
        address = str(named)
    return address


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Whether an address lies in one of the networks; IPv4 written as IPv6 is IPv4."""
    one = _address(address)
    if one is None:
        return False
    mapped = getattr(one, "ipv4_mapped", None)
    ways = (one, mapped) if mapped is not None else (one,)
    return any(way in network for way in ways for network in networks)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address, without its port or scope."""
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None
