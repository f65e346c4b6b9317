"""From processes that compute on a GPU to the TCP ports that they, or their parents, listen on.

vLLM's engine core and workers are children of the API server that listens, so the ancestors count.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

_LISTENS: Final = "0A"  # include/net/tcp_states.h, TCP_LISTEN
_DEEPEST: Final = 64  # generations; a longer chain is a loop in what was read


class NoPorts(Exception):
    """The ports are not known.

    Attributes:
        reason: why.
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

        Args:
            processes: ids as this process's own namespace counts.

        Raises:
            NoPorts: none of the processes can be looked into.
        """
        found: set[int] = set()
        why: NoPorts | None = None
        looked_into = 0
        for process in processes:
            try:
                found |= self._of(process)
                looked_into += 1
            except NoPorts as error:
                why = error
        if why is not None and not looked_into:
            raise why
        return sorted(found)

    def _of(self, process: int) -> set[int]:
        """Ports of one process and its ancestors."""
        if not (self._proc / str(process)).is_dir():
            raise NoPorts("processes of another pid namespace")
        if self._elsewhere(process):
            raise NoPorts("processes of another network namespace")
        found: set[int] = set()
        refused = False
        current: int | None = process
        for _ in range(_DEEPEST):
            if current is None or current == 0:
                break
            try:
                found |= self._listening(current)
            except OSError:
                refused = True  # of another user, or it has just ended
            current = self._parent(current)
        if refused and not found:
            raise NoPorts("no permission to look into the processes: run as their user, or as root")
        return found

    def _elsewhere(self, process: int) -> bool:
        """The process has another network than this one: its ports are not this machine's."""
        try:
            theirs = (self._proc / str(process) / "ns" / "net").readlink()
            return theirs != (self._proc / "self" / "ns" / "net").readlink()
        except OSError:
            return False  # not to be told: its sockets are looked for

    def _listening(self, process: int) -> set[int]:
        table = self._table()
        found = set()
        for entry in (self._proc / str(process) / "fd").iterdir():
            try:
                target = str(entry.readlink())
            except OSError:
                continue  # closed meanwhile
            port = table.get(target)
            if port is not None:
                found.add(port)
        return found

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
