"""Posts again, each interval, what fires to receivers that forget it: Alertmanagers.

No outbox row an interval: what is posted is what the store holds at that moment, so that a restart
of theirs or of ours needs no book. A thread a receiver: one that hangs delays no other.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

import structlog
from prometheus_client import Gauge

from driftwatch.errors import DeliveryError, StoreError
from driftwatch.model import Incident
from driftwatch.notify.numbers import utc_text
from driftwatch.service.receivers import Receiver

# of an exchange with the slowest of a cluster
_STOP_SECONDS = 12.0


class FiringStore(Protocol):
    """What the keeper needs of a store."""

    def open_incidents(self) -> dict[str, Incident]:
        """Pending and firing incidents by key."""

    def notified(
        self, also: Iterable[str] = (), *, or_given_up: bool = False
    ) -> Collection[tuple[str, str]]:
        """(incident id, receiver) whose firing page is sent, to be sent or given up."""


class Keeper:
    """Keeps alerts alive until :meth:`stop`.

    ``up``: by receiver and Alertmanager, 1 if it took the last alerts.
    """

    def __init__(
        self,
        store: FiringStore,
        up: Gauge,
    ) -> None:
        self._store, self._taken = store, up
        self._log: Any = structlog.get_logger()
        self._changing = threading.Lock()
        self._receivers: dict[str, Receiver] = {}
        self._threads: list[threading.Thread] = []
        self._ending = threading.Event()
        self._running = False
        self._refused: dict[tuple[str, str], str] = {}  # (receiver, host) → why, as last logged

    def adopt(self, receivers: Iterable[Receiver]) -> None:
        """Post to these receivers from now on; others than Alertmanagers are left alone."""
        with self._changing:
            self._receivers = {one.name: one for one in receivers if one.reposts is not None}
            if self._running:
                self._end()
                self._begin()

    def start(self) -> None:
        """Post in threads."""
        with self._changing:
            self._running = True
            self._begin()

    def stop(self) -> None:
        """Post nothing more; an exchange under way ends by itself."""
        with self._changing:
            self._running = False
            self._end()

    @property
    def receivers(self) -> list[str]:
        """The names of those that are posted to."""
        with self._changing:
            return sorted(self._receivers)

    def keep_once(self, name: str) -> None:
        """Post what fires to one receiver now."""
        receiver = self._receivers.get(name)
        if receiver is None or receiver.reposts is None:
            return
        sender = receiver.reposts.sender
        try:
            posted = self._firing(name)
            answers = sender.keep(posted.values())
            # what resolved while it was posted, or got other labels, ended there first, and fires
            # again now
            firing = self._firing(name)
            ended = [
                page
                for id_, page in posted.items()
                if id_ not in firing or firing[id_]["target"] != page["target"]
            ]
            if ended:
                sender.keep(ended, over=True)
        except (StoreError, DeliveryError) as error:
            self._log.warning("not posted again", receiver=name, reason=str(error))
            return
        self._note(name, answers)

    def _firing(self, name: str) -> dict[str, Mapping[str, Any]]:
        """Incident id → page of what fires and is the receiver's to know.

        Also one that was given up: who did not take it for an hour may take it now.
        """
        notified = self._store.notified(or_given_up=True)
        return {
            one.id: page_of(one)
            for one in self._store.open_incidents().values()
            if one.state == "firing" and one.page is not None and (one.id, name) in notified
        }

    def _note(self, name: str, answers: Mapping[str, DeliveryError | None]) -> None:
        """The gauge, and a line in the log when it changes."""
        for host, failure in answers.items():
            self._taken.labels(name, host).set(failure is None)
            before = self._refused.get((name, host))
            now = None if failure is None else failure.message
            if now == before:
                continue
            if now is None:
                self._refused.pop((name, host), None)
                self._log.info("alertmanager answers again", receiver=name, host=host)
            else:
                self._refused[name, host] = now
                self._log.warning("alertmanager refused", receiver=name, host=host, reason=now)

    def _begin(self) -> None:
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._work,
                args=(one.name, one.reposts.every_seconds, self._ending),
                name=f"driftwatch-keeper-{one.name}",
                daemon=True,
            )
            for one in self._receivers.values()
            if one.reposts is not None
        ]
        for thread in self._threads:
            thread.start()

    def _end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)
        self._threads = []

    def _work(self, name: str, every_seconds: float, ending: threading.Event) -> None:
        # at once: after a restart of ours its alerts are near their end
        while not ending.is_set():
            try:
                self.keep_once(name)
            except Exception as error:  # noqa: BLE001 - one bad round must not end the thread
                self._log.error("not posted again", receiver=name, reason=repr(error))
            ending.wait(every_seconds)


def page_of(incident: Incident) -> dict[str, Any]:
    """The page as it is now, with who has the incident."""
    page = dict(incident.page or {})
    if incident.acknowledged_at is not None:
        page["acknowledgement"] = {
            "by": incident.acknowledged_by,
            "at": utc_text(incident.acknowledged_at),
            "comment": incident.acknowledged_comment or "",
        }
    return page
