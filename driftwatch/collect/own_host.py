"""By which names and addresses the machine that driftwatch runs on is called."""

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

    Args:
        urls: addresses that may be of this machine under another name; the hosts of those that are
            come back as well. A name is looked up, which takes what the resolver takes.
    """
    name = hostname or socket.gethostname()
    addresses = _addresses(proc)
    found = {*_LOOPBACK, *addresses}
    for word in (name, name.partition(".")[0]):
        found |= {word, word.lower()}
    for host in {host_of(url) for url in urls} - found:
        known = {_canonical(address) for address in _looked_up(host)} if host else set()
        if known and all(a in addresses or ipaddress.ip_address(a).is_loopback for a in known):
            found |= {host, host.lower()}
    return frozenset(found)


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
    found = set()
    try:
        # "|-- 10.0.0.5", and on the next line "/32 host LOCAL"
        trie = (proc / "net" / "fib_trie").read_text()
        found |= set(re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", trie))
    except OSError:
        pass
    try:
        for line in (proc / "net" / "if_inet6").read_text().splitlines():
            found.add(str(ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))))
    except OSError:
        pass
    return frozenset(found)


def _looked_up(host: str) -> set[str]:
    try:
        return {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return set()  # the scrape says what is wrong with the name


def _canonical(address: str) -> str:
    return str(ipaddress.ip_address(address.partition("%")[0]))
