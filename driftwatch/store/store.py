"""The store: one database, its parts, and what a tick commits to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import polars as pl
from sqlalchemy import delete, insert, select

from driftwatch.model import Incident, Transition
from driftwatch.notify.plan import PlannedDelivery
from driftwatch.store.advice import (
    AdviceHistory,
    AdviceRow,
    VerificationRow,
    prune_advice,
    write_advices,
    write_verifications,
)
from driftwatch.store.baselines import Baselines
from driftwatch.store.batches import GPUS, SCRAPES, Batches, prune_batches, write_batch
from driftwatch.store.compaction import Compaction
from driftwatch.store.database import (
    BUSY_SECONDS,
    database_path,
    named_failures,
    open_engine,
    reading,
    require_place,
)
from driftwatch.store.deliveries import Deliveries, prune_reports, write_deliveries
from driftwatch.store.history import Checkpoint, History, prune_days, write_checkpoint
from driftwatch.store.incidents import Incidents, prune_incidents, write_incidents
from driftwatch.store.lock import tick_lock
from driftwatch.store.migrate import check_revision, schema_revision, upgrade, written_by
from driftwatch.store.minutes import Minutes, prune_minutes, write_minutes
from driftwatch.store.silences import Silences, prune_silences
from driftwatch.store.tables import memory as memory_table


@dataclass(frozen=True, slots=True, eq=False)
class TickRecord:
    """Everything a tick decided and saw."""

    # of the interval that scrapes and readings are from: since <= time < until
    since: datetime
    until: datetime
    incidents: Iterable[Incident] = ()  # all that are open after the tick
    # what happened; what they resolved, and what follow-ups say, is written from here
    transitions: Sequence[Transition] = ()
    deliveries: Iterable[PlannedDelivery] = ()  # what is to be sent
    scrapes: pl.DataFrame | None = None  # ``SCRAPE_SCHEMA``
    gpus: pl.DataFrame | None = None  # ``GPU_SCHEMA``
    minutes: pl.DataFrame | None = None  # ``STORED_SCHEMA``, those it evaluated
    checkpoint: Checkpoint | None = None  # the detectors' memory, where it is to be kept now
    advices: Iterable[AdviceRow] = ()  # what its pages advise
    verifications: Iterable[VerificationRow] = ()  # those that it opened, fed or closed
    # name → bytes to keep for the next tick; other names stay
    memory: Mapping[str, bytes] = field(default_factory=dict)


class Store(
    Incidents,
    Deliveries,
    Silences,
    Batches,
    Minutes,
    Compaction,
    History,
    Baselines,
    AdviceHistory,
):
    """One database. A method is one transaction unless it says otherwise.

    Use it as a context manager. Every method raises :class:`~driftwatch.errors.StoreError` with a
    ``code`` (locked, read-only, full, corrupt, ...) where the database does not serve; what was
    committed before is kept.
    """

    @classmethod
    def open(
        cls, path_or_url: str | Path, *, migrate: bool = True, busy_seconds: float = BUSY_SECONDS
    ) -> Self:
        """Open a database.

        ``path_or_url``: path of the SQLite file, or ``sqlite:///`` and the path; ``migrate``: make
        the file and bring its schema to this version; without it the file has to be there and to be
        of this version; ``busy_seconds``: how long to wait for another writer.

        Raises StoreError: missing, foreign, corrupt, or of another version.
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
                        revision = schema_revision(connection, path)
                        check_revision(revision, path, written_by(connection))
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

        Raises StoreError: ``in-use`` where another one is.
        """
        return tick_lock(self.path)

    def memory(self) -> dict[str, bytes]:
        """What the last tick left for the next one, by name."""
        with self._reading() as connection:
            rows = connection.execute(select(memory_table).order_by(memory_table.c.name))
            return {row.name: row.value for row in rows}

    def commit_tick(self, tick: TickRecord) -> None:
        """Everything a tick decided and saw, in one transaction: all of it or nothing.

        A pending incident in the database that the tick does not have is dropped; acknowledgements
        in the database are kept.
        """
        with self._writing() as connection:
            write_incidents(connection, tick.incidents, tick.transitions)
            write_deliveries(connection, tick.deliveries)
            for kind, frame in ((SCRAPES, tick.scrapes), (GPUS, tick.gpus)):
                if frame is not None:
                    write_batch(connection, kind, frame, tick.since, tick.until)
            if tick.minutes is not None:
                write_minutes(connection, tick.minutes)
            if tick.checkpoint is not None:
                write_checkpoint(connection, tick.checkpoint)
            write_advices(connection, tick.advices)
            write_verifications(connection, tick.verifications)
            for name, value in sorted(tick.memory.items()):
                connection.execute(delete(memory_table).where(memory_table.c.name == name))
                connection.execute(insert(memory_table), [{"name": name, "value": value}])

    def prune(
        self,
        before: datetime,
        *,
        incidents_before: datetime | None = None,
        minutes_before: datetime | None = None,
    ) -> int:
        """Delete what is no longer needed; says how many scrape batches went.

        ``before``: scrapes and GPU readings taken before this time go; ``minutes_before``: minutes
        and roll-ups that end before this time go; None keeps them; ``incidents_before``: incidents
        resolved before this time go, with their deliveries, and silences that ended before it; None
        keeps them all. One with a delivery that is still pending stays. Rows of days before it go
        as well, and so do advice, verifications and reports; an open verification stays.
        """
        with self._writing() as connection:
            if incidents_before is not None:
                prune_incidents(connection, incidents_before)
                prune_silences(connection, incidents_before)
                prune_days(connection, incidents_before)
                prune_advice(connection, incidents_before)
                prune_reports(connection, incidents_before)
            if minutes_before is not None:
                prune_minutes(connection, minutes_before)
            return prune_batches(connection, before)
