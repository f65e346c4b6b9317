"""By which names this machine is called."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def own_hosts(
    urls: Iterable[str] = (), *, hostname: str | None = None, proc: Path = Path("/proc")
) -> frozenset[str]:
    """Names and addresses of this machine, without brackets.

    ``urls``: addresses that may be of this machine under another name; the hosts of those that are
    come back as well. A name is looked up, which takes what the resolver takes.
    """
    name = hostname or socket.gethostname()
    addresses = _addresses(proc)
    hosts = {*_LOOPBACK, *addresses}
    for word in (name, name.partition(".")[0]):
        hosts |= {word, word.lower()}
    for host in {host_of(url) for url in urls} - hosts:
        host_addresses = {_canonical(address) for address in _looked_up(host)} if host else set()
        if host_addresses and all(
            a in addresses or ipaddress.ip_address(a).is_loopback for a in host_addresses
        ):
            hosts |= {host, host.lower()}
    return frozenset(hosts)


def host_of(url: str) -> str:
    """The host of a URL as it is written there, without brackets; "" where there is none."""
    try:
        place = urlsplit(url if "://" in url else f"//{url}").netloc.rpartition("@")[2]
    except ValueError:
        return ""
    host, colon, port = place.rpartition(":")
    return (host if colon and port.isdecimal() else place).strip("[]")


def is_address(host: str) -> bool:
    """The host is an address, not a name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _addresses(proc: Path) -> frozenset[str]:
    """Of this machine's interfaces, as the kernel tells them; none where it does not."""
    addresses = set()
    try:
        # "|-- 10.0.0.5", and on the next line "/32 host LOCAL"
        trie = (proc / "net" / "fib_trie").read_text()
        addresses |= set(re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", trie))
    except OSError:
        pass
    try:
        for line in (proc / "net" / "if_inet6").read_text().splitlines():
            addresses.add(str(ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))))
    except OSError:
        pass
    return frozenset(addresses)


def _looked_up(host: str) -> set[str]:
    try:
        return {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return set()  # the scrape says what is wrong with the name


def _canonical(address: str) -> str:
    return str(ipaddress.ip_address(address.partition("%")[0]))
