"""By which names this machine is called."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def own_hosts(urls: Iterable[str] = (), *, hostname: str | None = None) -> frozenset[str]:
    """Names and addresses of this machine, without brackets.

    ``urls``: addresses that may be of this machine under another name; the hosts of those that are
    come back as well. A name is looked up, which takes what the resolver takes.
    """
    name = hostname or socket.gethostname()
    hosts = {*_LOOPBACK, *filter(_is_ours, _looked_up(name))}
    for word in (name, name.partition(".")[0]):
        hosts |= {word, word.lower()}
    for host in {host_of(url) for url in urls} - hosts - {""}:
        found = _looked_up(host)
        if found and all(map(_is_ours, found)):
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


def _is_ours(address: str) -> bool:
    """A socket can be bound to an address of this machine alone."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _looked_up(host: str) -> set[str]:
    try:
        return {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return set()  # the scrape says what is wrong with the name
