"""The store: incidents, the outbox, silences, scrapes, GPUs, minutes, the tick's memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import polars as pl
from sqlalchemy import Connection, delete, exists, insert, select

from driftwatch.model import Incident, Transition
from driftwatch.notify.plan import Delivery, PlannedDelivery
from driftwatch.notify.silence import Matcher, Silence
from driftwatch.store import advised, batches, outbox
from driftwatch.store import incidents as incident_rows
from driftwatch.store import minutes as minute_rows
from driftwatch.store import reports as report_rows
from driftwatch.store import silences as silence_rows
from driftwatch.store.advised import Advised, KeptAdvice, KeptCalibration, KeptVerification
from driftwatch.store.checkpoints import Checkpoint, prune_days, write_checkpoint
from driftwatch.store.lock import tick_lock
from driftwatch.store.marks import KeptMarks
from driftwatch.store.migrate import check_revision, schema_revision, upgrade, written_by
from driftwatch.store.past import Past
from driftwatch.store.pins import KeptPins
from driftwatch.store.reports import KeptReports
from driftwatch.store.sqlite import (
    BUSY_SECONDS,
    database_path,
    named_failures,
    open_engine,
    reading,
    require_place,
)
from driftwatch.store.tables import deliveries, incidents, memory, silences


class Store(Past, KeptPins, Advised, KeptReports, KeptMarks):
    """One database. Every method is one transaction; use it as a context manager.

    Every method raises :class:`~driftwatch.errors.StoreError` with a ``code`` (locked, read-only,
    full, corrupt, ...) where the database does not serve; what was committed before is kept.
    """

    @classmethod
    def open(
        cls, path_or_url: str | Path, *, migrate: bool = True, busy_seconds: float = BUSY_SECONDS
    ) -> Self:
        """Open a database.

        Args:
            path_or_url: path of the SQLite file, or ``sqlite:///`` and the path.
            migrate: make the file and bring its schema to this version; without it the file
                has to be there and to be of this version.
            busy_seconds: how long to wait for another writer.

        Raises:
            StoreError: missing, foreign, corrupt, or of another version.
        """
        path = database_path(path_or_url)
        require_place(path, file_too=not migrate)
        engine = open_engine(path, busy_seconds=busy_seconds)
        try:
            with named_failures(path):
                if migrate:
                    upgrade(engine, path)
                else:
                    with reading(engine) as connection:
                        found = schema_revision(connection, path)
                        check_revision(found, path, written_by(connection))
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, path)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def tick_lock(self) -> AbstractContextManager[None]:
        """Be the one process that ticks on this database, while the context lasts.

        Raises:
            StoreError: ``in-use`` where another one is.
        """
        return tick_lock(self.path)

    # incidents

    def open_incidents(self) -> dict[str, Incident]:
        """Pending and firing incidents by key."""
        with self._reading() as connection:
            return incident_rows.read_open(connection)

    def incidents(
        self, *, state: str | None = None, since: datetime | None = None, limit: int = 1000
    ) -> list[Incident]:
        """Incidents: firing, pending, resolved; within each the newest first.

        Args:
            state: only these (pending, firing, resolved).
            since: only those open now or resolved at or after this time.
            limit: at most so many.
        """
        with self._reading() as connection:
            return incident_rows.read_list(connection, state=state, since=since, limit=limit)

    def incident(self, id_prefix: str) -> Incident:
        """The one incident whose id begins so.

        Raises:
            UsageError: there is none, or more than one.
        """
        with self._reading() as connection:
            return incident_rows.read_one(connection, id_prefix)

    def acknowledge(self, id_prefix: str, by: str, at: datetime) -> Incident:
        """Note who took a firing incident; where somebody has, that one stays.

        Raises:
            UsageError: there is none, more than one, or it does not fire.
        """
        with self._writing() as connection:
            return incident_rows.acknowledge(connection, id_prefix, by, at)

    def commit_tick(
        self,
        *,
        incidents: Iterable[Incident],
        transitions: Sequence[Transition],
        deliveries: Iterable[PlannedDelivery],
        scrapes: pl.DataFrame | None,
        since: datetime,
        until: datetime,
        memory: Mapping[str, bytes],
        gpus: pl.DataFrame | None = None,
        minutes: pl.DataFrame | None = None,
        checkpoint: Checkpoint | None = None,
        calibrations: Iterable[KeptCalibration] = (),
        advices: Iterable[KeptAdvice] = (),
        verifications: Iterable[KeptVerification] = (),
    ) -> None:
        """Everything a tick decided and saw, in one transaction: all of it or nothing.

        Args:
            incidents: every incident open after the tick. A pending one in the database that is
                not among them is dropped; acknowledgements in the database are kept.
            transitions: what happened; what they resolved is written from here, and what a
                follow-up tells is noted on its incident, open or over.
            deliveries: what is to be sent.
            scrapes: rows in ``SCRAPE_SCHEMA``, or None.
            since: start of the interval the scrapes and readings are from.
            until: its end, itself not in it.
            memory: name → bytes to keep for the next tick; other names stay.
            gpus: rows in ``GPU_SCHEMA``, or None.
            minutes: the minutes it evaluated, in ``STORED_SCHEMA``, or None.
            checkpoint: the detectors' memory after them, where it is to be kept now.
            calibrations: laws that it fitted.
            advices: what its pages advise.
            verifications: those that it opened, fed or closed.
        """
        with self._writing() as connection:
            incident_rows.write(connection, incidents, transitions)
            outbox.write(connection, deliveries)
            if scrapes is not None:
                batches.write(connection, batches.SCRAPES, scrapes, since, until)
            if gpus is not None:
                batches.write(connection, batches.GPUS, gpus, since, until)
            if minutes is not None:
                minute_rows.write(connection, minutes)
            if checkpoint is not None:
                write_checkpoint(connection, checkpoint)
            advised.write_calibrations(connection, calibrations)
            advised.write_advices(connection, advices)
            advised.write_verifications(connection, verifications)
            _remember(connection, memory)

    # deliveries

    def due_deliveries(self, now: datetime) -> list[Delivery]:
        """Pending deliveries whose time has come; what follows waits for its firing page."""
        with self._reading() as connection:
            return outbox.read_due(connection, now)

    def deliveries(self, incident_id: str) -> list[Delivery]:
        """Every delivery of one incident."""
        with self._reading() as connection:
            return outbox.read_of(connection, incident_id)

    def notified(self, also: Iterable[str] = ()) -> frozenset[tuple[str, str]]:
        """(incident id, receiver) of open incidents, and of these, whose firing page is sent or
        to be sent.
        """
        with self._reading() as connection:
            return outbox.read_notified(connection, also)

    def mark_sent(self, delivery_id: int, at: datetime) -> bool:
        """Note that a receiver took it; False where it was not pending any more."""
        with self._writing() as connection:
            return outbox.mark_sent(connection, delivery_id, at)

    def mark_failed(
        self, delivery_id: int, at: datetime, error: str, next_attempt_at: datetime | None
    ) -> bool:
        """Note a failed attempt; without a next one the delivery is dead. False as above."""
        with self._writing() as connection:
            return outbox.mark_failed(connection, delivery_id, at, error, next_attempt_at)

    def undelivered_count(self) -> int:
        """How many deliveries no receiver has taken: pending and dead."""
        with self._reading() as connection:
            return outbox.count_undelivered(connection)

    # silences

    def add_silence(
        self, matchers: Sequence[Matcher], *, until: datetime, by: str, at: datetime, comment: str
    ) -> Silence:
        """Hold back pages that match, from ``at`` to ``until``.

        Raises:
            UsageError: it would end before it begins.
        """
        with self._writing() as connection:
            return silence_rows.add(
                connection, matchers, until=until, by=by, at=at, comment=comment
            )

    def silences(self, at: datetime | None = None) -> list[Silence]:
        """Silences that hold at a time; every one for None."""
        with self._reading() as connection:
            return silence_rows.read(connection, at)

    def expire_silence(self, id_prefix: str, at: datetime) -> Silence:
        """End a silence now.

        Raises:
            UsageError: there is none, more than one, or it is over.
        """
        with self._writing() as connection:
            return silence_rows.expire(connection, id_prefix, at)

    # scrapes and memory

    def scrapes(self, since: datetime, until: datetime) -> pl.DataFrame:
        """Scrapes with since <= time < until, sorted by instance, engine and time."""
        with self._reading() as connection:
            return batches.read(connection, batches.SCRAPES, since, until)

    def gpus(self, since: datetime, until: datetime) -> pl.DataFrame:
        """GPU readings with since <= time < until, by GPU, workload and time."""
        with self._reading() as connection:
            return batches.read(connection, batches.GPUS, since, until)

    def memory(self) -> dict[str, bytes]:
        """What the last tick left for the next one, by name."""
        with self._reading() as connection:
            rows = connection.execute(select(memory).order_by(memory.c.name))
            return {row.name: row.value for row in rows}

    def prune(
        self,
        before: datetime,
        *,
        incidents_before: datetime | None = None,
        minutes_before: datetime | None = None,
    ) -> int:
        """Delete what is no longer needed; says how many scrape batches went.

        Args:
            before: scrapes and GPU readings taken before this time go.
            minutes_before: minutes and roll-ups that end before this time go; None keeps them.
            incidents_before: incidents resolved before this time go, with their deliveries, and
                silences that ended before it; None keeps them all. One with a delivery that is
                still pending stays. Rows of days before it go as well, and so do calibrations,
                advice, verifications and reports; an open verification stays.
        """
        with self._writing() as connection:
            if incidents_before is not None:
                _prune_incidents(connection, incidents_before)
                prune_days(connection, incidents_before)
                advised.prune(connection, incidents_before)
                report_rows.prune(connection, incidents_before)
            if minutes_before is not None:
                minute_rows.prune(connection, minutes_before)
            return batches.prune(connection, before)


def _remember(connection: Connection, values: Mapping[str, bytes]) -> None:
    for name, value in sorted(values.items()):
        connection.execute(delete(memory).where(memory.c.name == name))
        connection.execute(insert(memory), [{"name": name, "value": value}])


def _prune_incidents(connection: Connection, before: datetime) -> None:
    to_be_sent = exists().where(
        deliveries.c.incident_id == incidents.c.id, deliveries.c.status == "pending"
    )
    connection.execute(
        delete(incidents).where(
            incidents.c.state == "resolved", incidents.c.resolved_at < before, ~to_be_sent
        )
    )
    connection.execute(delete(silences).where(silences.c.until < before))
