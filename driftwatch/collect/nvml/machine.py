"""By which names this machine is called, and which ports the processes on its GPUs listen on."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_LISTENS: Final = "0A"  # include/net/tcp_states.h, TCP_LISTEN
_DEEPEST: Final = 64  # generations; a longer chain is a loop in what was read


class NoPorts(Exception):
    """The ports are not known.

    ``reason``: why.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Listeners:
    """The ports of one moment; the table of sockets is read once."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._ports: dict[str, int] | None = None

    def ports(self, processes: Iterable[int]) -> list[int]:
        """Ports that the processes and their ancestors listen on, in order.

        ``processes``: ids as this process's own namespace counts.
        Raises NoPorts: none of the processes can be looked into.
        """
        ports: set[int] = set()
        why: NoPorts | None = None
        looked_into = 0
        for process in processes:
            try:
                ports |= self._of(process)
                looked_into += 1
            except NoPorts as error:
                why = error
        if why is not None and not looked_into:
            raise why
        return sorted(ports)

    def _of(self, process: int) -> set[int]:
        """Ports of one process and its ancestors."""
        if not (self._proc / str(process)).is_dir():
            raise NoPorts("processes of another pid namespace")
        if self._elsewhere(process):
            raise NoPorts("processes of another network namespace")
        ports: set[int] = set()
        refused = False
        current: int | None = process
        for _ in range(_DEEPEST):
            if current is None or current == 0:
                break
            try:
                ports |= self._listening(current)
            except OSError:
                refused = True  # of another user, or it has just ended
            current = self._parent(current)
        if refused and not ports:
            raise NoPorts("no permission to look into the processes: run as their user, or as root")
        return ports

    def _elsewhere(self, process: int) -> bool:
        """The process has another network than this one: its ports are not this machine's."""
        try:
            theirs = (self._proc / str(process) / "ns" / "net").readlink()
            return theirs != (self._proc / "self" / "ns" / "net").readlink()
        except OSError:
            return False  # not to be told: its sockets are looked for

    def _listening(self, process: int) -> set[int]:
        table = self._table()
        ports = set()
        for entry in (self._proc / str(process) / "fd").iterdir():
            try:
                target = str(entry.readlink())
            except OSError:
                continue  # closed meanwhile
            port = table.get(target)
            if port is not None:
                ports.add(port)
        return ports

    def _parent(self, process: int) -> int | None:
        try:
            text = (self._proc / str(process) / "status").read_text(errors="replace")
        except OSError:
            return None
        for line in text.splitlines():
            if line.startswith("PPid:"):
                return int(line.split()[1])
        return None

    def _table(self) -> dict[str, int]:
        """``socket:[inode]`` → port, of every listening TCP socket."""
        if self._ports is None:
            self._ports = {}
            for name in ("tcp", "tcp6"):
                try:
                    text = (self._proc / "net" / name).read_text()
                except OSError:
                    continue  # no IPv6 here
                for line in text.splitlines()[1:]:
                    words = line.split()
                    if len(words) > 9 and words[3] == _LISTENS:
                        port = int(words[1].rpartition(":")[2], 16)
                        self._ports[f"socket:[{words[9]}]"] = port
        return self._ports


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
