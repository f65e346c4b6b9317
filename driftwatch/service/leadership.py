"""Which of several processes on one PostgreSQL ticks: the one that holds the lease, one at a time.

The database decides; its fence is in every write (:mod:`driftwatch.store.lease`). Beside it the
holder sends nothing once its lease could have ended by its own clock, which also counts while the
process is stopped. A process leads once: where its lease was taken over it ends, and its supervisor
starts it anew as a standby, so that nothing of the old state and no thread of it goes on.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import structlog

from driftwatch.errors import StoreError
from driftwatch.store.lease import Lease, Leases, OtherHolder

# a lease that is shorter would be lost to a pause of the machine
SHORTEST_LEASE_SECONDS = 5.0
# a holder's own clock may run this much slower than the database's
_CLOCK_MARGIN = 0.9
Standing = Literal["leader", "doubtful", "lost"]


def lease_seconds(interval_seconds: float) -> float:
    """How long a lease lasts: one interval, so that another process ticks within two.

    >>> lease_seconds(15.0), lease_seconds(1.0)
    (15.0, 5.0)
    """
    return max(interval_seconds, SHORTEST_LEASE_SECONDS)


def boot_seconds() -> float:
    """A clock that only grows, also while the process is stopped or the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class Tenure:
    """What a holder knows of its lease."""

    lease: Lease
    renewed_at: float  # when it last asked for what it got, in seconds of its own clock
    lost: bool = False


def standing(tenure: Tenure, now: float, seconds: float) -> Standing:
    """Whether a holder may act; ``now``: its own clock, ``seconds``: how long a lease lasts.

    ``doubtful``: the lease could have ended; nothing is begun until the database says otherwise.
    """
    if tenure.lost:
        return "lost"
    return "leader" if now - tenure.renewed_at < _CLOCK_MARGIN * seconds else "doubtful"


class Leadership:
    """This process's part in the lease: first :meth:`campaign` until it is taken, then it is kept.

    ``seconds``: how long a lease lasts; ``clock``: seconds that only grow; ``member``: the name of
    a process that watches shards whether it leads or not.
    """

    def __init__(
        self,
        leases: Leases,
        seconds: float,
        clock: Callable[[], float] = boot_seconds,
        member: str | None = None,
    ) -> None:
        self._leases, self._seconds, self._clock = leases, seconds, clock
        self._holder = f"{member or socket.gethostname()}/{os.getpid()}"
        self._event = "standby" if member is None else "does not lead"
        self._tenure: Tenure | None = None
        self._campaigned = clock()
        self._other: str | None = None  # who holds it, or why nobody knows
        self._trouble: str | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._log: Any = structlog.get_logger()

    @property
    def lease(self) -> Lease | None:
        """The lease that this process took; it may be over."""
        return None if self._tenure is None else self._tenure.lease

    @property
    def fence(self) -> int:
        """The number of that lease, 0 before."""
        return 0 if self._tenure is None else self._tenure.lease.fence

    @property
    def lost(self) -> bool:
        """Another process took over."""
        return self._tenure is not None and self._tenure.lost

    @property
    def each_seconds(self) -> float:
        """How often a standby asks for the lease."""
        return min(1.0, self._seconds / 6)

    def may_act(self) -> bool:
        """Whether this process may send: it surely holds the lease at this moment."""
        tenure = self._tenure
        return tenure is not None and standing(tenure, self._clock(), self._seconds) == "leader"

    def campaign(self) -> bool:
        """Ask for the lease once; True: this process has it and keeps it."""
        asked_at = self._campaigned = self._clock()
        try:
            answer = self._leases.take(self._holder)
        except StoreError as error:
            self._wait_for(f"nobody knows who leads: {error.message}", error=True)
            return False
        if isinstance(answer, OtherHolder):
            self._wait_for(f"{answer.holder} leads", error=False)
            return False
        self._tenure = Tenure(answer, asked_at)
        self._log.info("leads", holder=answer.holder, fence=answer.fence)
        return True

    def require(self) -> None:
        """Take the lease now.

        Raises StoreError: ``in-use`` where another process has it.
        """
        if not self.campaign():
            raise StoreError(
                f"the database is in use by another driftwatch run: {self._other}",
                code="in-use",
                help_text="stop that one, or give this one its own database",
            )

    def keep(self, when_lost: Callable[[], None]) -> None:
        """Renew in a thread until :meth:`end`; ``when_lost``: called once from it."""

        def work() -> None:
            wait = self._seconds / 3
            while not self._ended.wait(wait):
                wait = self._seconds / 3 if self._renew() else self._seconds / 10
                if self.lost:
                    when_lost()
                    return

        self._thread = threading.Thread(target=work, name="driftwatch lease", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Give the lease back, so that a standby need not wait."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(self._seconds)
        if self._tenure is not None and not self._tenure.lost:
            try:
                self._leases.release(self._tenure.lease)
            except StoreError as error:
                self._log.warning("lease not given back", reason=error.message)
        self._leases.close()

    def resign(self) -> None:
        """Give the lease back for good, where this process has it: it ends as one that lost it."""
        tenure = self._tenure
        if tenure is None or tenure.lost:
            return
        self._tenure = Tenure(tenure.lease, tenure.renewed_at, lost=True)
        self._log.error("leads no more: its clock is wrong", fence=tenure.lease.fence)
        try:
            self._leases.release(tenure.lease)
        except StoreError as error:
            self._log.warning("lease not given back", reason=error.message)

    def why_not_ready(self) -> str | None:
        """Why this process does not watch; None: it leads."""
        if self._tenure is None:
            return f"standby: {self._other or 'has not asked yet'}"
        if self.may_act():
            return None
        return f"the lease is not renewed: {self._trouble or 'another driftwatch has taken over'}"

    def why_unhealthy(self) -> str | None:
        """Why a process that waits should be restarted; None: it should not."""
        silent = self._clock() - self._campaigned
        if self._tenure is None and silent > max(5 * self._seconds, 60.0):
            return f"did not ask for the lease for {silent:.0f} s"
        return None

    def _wait_for(self, other: str, *, error: bool) -> None:
        if other != self._other:
            (self._log.warning if error else self._log.info)(self._event, reason=other)
        self._other = other

    def _renew(self) -> bool:
        """Renew once; True: it was taken."""
        tenure = self._tenure
        if tenure is None or tenure.lost:
            return False
        asked_at = self._clock()
        try:
            renewed = self._leases.renew(tenure.lease)
        except StoreError as error:
            if error.message != self._trouble:
                self._log.warning("lease not renewed", reason=error.message)
            self._trouble = error.message
            return False
        if not renewed:
            self._tenure = Tenure(tenure.lease, tenure.renewed_at, lost=True)
            self._log.error(
                "lease lost: another driftwatch has taken over", fence=tenure.lease.fence
            )
            return False
        self._tenure = Tenure(tenure.lease, asked_at)
        if self._trouble is not None:
            self._log.info("lease renewed again", fence=tenure.lease.fence)
            self._trouble = None
        return True
