"""This process's part in a fleet whose pools are dealt to several: who is there, and its shards.

A thread says that the process is there, renews what it holds, and takes what is free and its own
(:mod:`driftwatch.service.rendezvous`). A shard that is another's by now goes between two ticks.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

import structlog

from driftwatch import __version__
from driftwatch.errors import StoreError
from driftwatch.service.leadership import Tenure, boot_seconds, standing
from driftwatch.service.rendezvous import dealt
from driftwatch.store.lease import Lease, Leases, OtherHolder
from driftwatch.store.members import SHARD_LEASE, Member, Members

# A process whose clock is further from the database's than this watches nothing: what it collects
# would be missing, or twice, where a shard changes hands.
MOST_CLOCK_SECONDS = 15.0


class Membership:
    """The shards that this process holds.

    Args:
        name: of this process, no other's.
        count: number of shards.
        seconds: how long a lease, and a word that it is there, lasts.
        now: aware, UTC: the clock that scrapes are asked by.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        leases: Leases,
        name: str,
        count: int,
        seconds: float,
        now: Callable[[], datetime],
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self.name, self.count = name, count
        self._leases, self._members = leases, Members(leases)
        self._seconds, self._now, self._clock = seconds, now, clock
        self._process = uuid.uuid4().hex
        self._changing = threading.Lock()
        self._tenures: dict[int, Tenure] = {}
        self._leaving: set[int] = set()
        self._joined = False
        self._looked_at = clock()  # when the database served it, or refused
        self._why_not: str | None = None  # why it is to watch nothing
        self._trouble: str | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._log: Any = structlog.get_logger()

    def join(self, patience_seconds: float = 0.0) -> None:
        """Be one of the members.

        ``patience_seconds``: so long another of this name may be there: this one, before it died.

        Raises StoreError: ``in-use``, ``other-shards``, ``older-version``, or the database does not
        serve.
        """
        self._members.deal(self.count)
        there = self._first_beat(self._clock() + patience_seconds)
        self._joined = True
        newer = [one for one in there if _number(one.version) > _number(__version__)]
        if newer:
            self.end()
            raise StoreError(
                f"{newer[0].name} watches this database with driftwatch {newer[0].version}, "
                f"this is {__version__}",
                code="older-version",
                help_text=f"use {newer[0].version} here too",
            )

    def _first_beat(self, until: float) -> list[Member]:
        while True:
            try:
                return self._members.beat(self.name, self._process, __version__, self._now())
            except StoreError as error:
                if error.code != "in-use" or self._clock() > until:
                    raise
            self._ended.wait(0.5)

    def start(self, when_taken: Callable[[], None], each: Callable[[], None]) -> None:
        """Beat in a thread until :meth:`end`.

        ``when_taken``: called when it has taken shards; ``each``: with every beat.
        """

        def work() -> None:
            while not self._ended.is_set():
                try:
                    if self.beat():
                        when_taken()
                    each()
                except Exception as error:  # noqa: BLE001 - what it holds is renewed all the same
                    self._log.error("not expected", member=self.name, reason=repr(error))
                self._ended.wait(self._seconds / 6)

        self._thread = threading.Thread(target=work, name="driftwatch member", daemon=True)
        self._thread.start()

    def beat(self) -> bool:
        """Say that it is there, renew, take; True: it has taken a shard."""
        asked_at = self._clock()
        try:
            there = self._members.beat(self.name, self._process, __version__, self._now())
            wanted = self._wanted(there)
            self._renew(asked_at)
            has_new = self._take(sorted(wanted - self._tenures.keys()))
        except StoreError as error:
            if error.message != self._trouble:
                self._log.warning("not known to be a member", reason=error.message)
            self._trouble = error.message
            return False
        finally:
            self._looked_at = self._clock()
        if self._trouble is not None:
            self._log.info("a member again", name=self.name)
            self._trouble = None
        with self._changing:
            self._leaving = self._tenures.keys() - wanted
        return has_new

    def leases(self) -> dict[int, Lease]:
        """Shard → its lease, of those that this process surely holds and is to keep."""
        with self._changing:
            now = self._clock()
            return {
                shard: tenure.lease
                for shard, tenure in sorted(self._tenures.items())
                if shard not in self._leaving and self._standing(tenure, now) == "leader"
            }

    def give_back(self) -> None:
        """Give back the shards that are another's: between two ticks, as nothing writes then."""
        with self._changing:
            leaving = {shard: self._tenures.pop(shard) for shard in self._leaving}
            self._leaving = set()
        for shard, tenure in sorted(leaving.items()):
            self._release(shard, tenure.lease)

    def why_not_ready(self) -> str | None:
        """Why this process watches nothing; None: it does, or has nothing to."""
        if self._trouble is not None:
            return f"not known to be a member: {self._trouble}"
        return self._why_not

    @property
    def is_clock_wrong(self) -> bool:
        """Its clock is far from the database's: what it would send would be late, or early."""
        return self._why_not is not None

    def why_unhealthy(self) -> str | None:
        """Why it should be restarted; None: it should not, as where the database is away."""
        silent = self._clock() - self._looked_at
        if silent > max(10 * self._seconds, 120.0):
            return f"no look at the members for {silent:.0f} s"
        return None

    def end(self) -> None:
        """Give everything back: the others need not wait."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(self._seconds)
        with self._changing:
            tenures, self._tenures = self._tenures, {}
        for shard, tenure in sorted(tenures.items()):
            self._release(shard, tenure.lease)
        if self._joined:
            try:
                self._members.leave(self.name, self._process)
            except StoreError as error:
                self._log.warning("still a member", reason=error.message)
        self._leases.close()

    def _wanted(self, there: list[Member]) -> set[int]:
        """The shards that are this member's; none while its clock is far from the database's."""
        good = {one.name for one in there if abs(one.clock_ahead_seconds) <= MOST_CLOCK_SECONDS}
        self._why_not = None
        if self.name not in good:
            ahead = next(o.clock_ahead_seconds for o in there if o.name == self.name)
            side = "ahead of" if ahead > 0 else "behind"
            self._why_not = f"its clock is {abs(ahead):.0f} s {side} the database's"
        return {s for s, member in dealt(self.count, good).items() if member == self.name}

    def _standing(self, tenure: Tenure, now: float) -> str:
        return standing(tenure, now, self._seconds)

    def _renew(self, asked_at: float) -> None:
        for shard, tenure in sorted(self._tenures.items()):
            renewed = self._leases.renew(tenure.lease)
            with self._changing:
                if renewed and shard in self._tenures:
                    self._tenures[shard] = Tenure(tenure.lease, asked_at)
                elif not renewed:
                    self._tenures.pop(shard, None)
                    self._log.warning("shard lost: another process has taken it", shard=shard)

    def _take(self, shards: list[int]) -> bool:
        new = []
        for shard in shards:
            asked_at = self._clock()
            answer = self._leases.take(self.name, f"{SHARD_LEASE}{shard}")
            if not isinstance(answer, OtherHolder):
                new.append(shard)
                with self._changing:
                    self._tenures[shard] = Tenure(answer, asked_at)
        if new:
            self._log.info("shards taken", shards=new)
        return bool(new)

    def _release(self, shard: int, lease: Lease) -> None:
        try:
            self._leases.release(lease)
            self._log.info("shard given back", shard=shard)
        except StoreError as error:
            self._log.warning("shard not given back", shard=shard, reason=error.message)


def _number(version: str) -> tuple[int, ...]:
    """A version, to be compared.

    >>> _number("0.11.0") < _number("0.12.0")
    True
    """
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
