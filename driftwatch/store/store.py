"""The store: one database, its parts, and what a tick commits to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from sqlite3 import Connection as Connection3
from types import TracebackType
from typing import Self

import polars as pl
from sqlalchemy import Connection, delete, insert, select

from driftwatch.database_place import Place, SqliteFile, place_of
from driftwatch.detect.references import Place as ReferencePlace
from driftwatch.detect.references import Reference
from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.store.actions import Actions, Silences, prune_silences, write_planned
from driftwatch.store.advice import (
    AdviceHistory,
    AdviceRow,
    prune_advice,
    prune_reports,
    write_advices,
    write_verifications,
)
from driftwatch.store.baselines import (
    Baselines,
    StoredReferences,
    prune_references,
    write_references,
)
from driftwatch.store.compaction import Compaction
from driftwatch.store.database import (
    BUSY_SECONDS,
    named_failures,
    open_engine,
    reading,
    repeated_after_conflict,
    require_place,
)
from driftwatch.store.deliveries import Deliveries
from driftwatch.store.incidents import Incidents, prune_incidents, write_incidents
from driftwatch.store.migrate import check_revision, schema_revision, upgrade, written_by
from driftwatch.store.minutes import Batches, Minutes, write_gpus, write_minutes
from driftwatch.store.planned import forget_payloads, write_deliveries
from driftwatch.store.progress import BatchProgress, Progress, write_progress
from driftwatch.store.sqlite import memory_engine, tick_lock
from driftwatch.store.tables import NO_BATCH, gpu_batches, metadata, minute_batches
from driftwatch.store.tables import memory as memory_table
from driftwatch.verify.verification import Verification


@dataclass(frozen=True, slots=True, eq=False)
class TickRecord:
    """Everything a tick decided and saw."""

    # of the interval that readings are from: since <= time < until
    since: datetime
    until: datetime
    # all that are open after the tick; None: they are as they were
    incidents: Collection[Incident] | None = ()
    # what happened; what they resolved, and what follow-ups say, is written from here
    transitions: Sequence[Transition] = ()
    deliveries: Collection[PlannedDelivery] = ()  # what is to be sent
    by_labels: Collection[str] = ()  # receivers that know alerts by their labels alone
    planned_actions: Sequence[int] = ()  # numbers of the actions whose messages are among them
    gpus: pl.DataFrame | None = None  # ``GPU_SCHEMA``
    minutes: pl.DataFrame | None = None  # ``STORED_SCHEMA``, those it evaluated
    references: Collection[Reference] = ()  # what detectors learnt
    references_gone: Collection[ReferencePlace] = ()  # of whom they forgot it
    advices: Collection[AdviceRow] = ()  # what its pages advise
    verifications: Collection[Verification] = ()  # those that it opened, fed or closed
    # name → bytes to keep for the next tick; other names stay
    memory: Mapping[str, bytes] = field(default_factory=dict)
    # the batch as the tick found it, and as it leaves it; None: it is no tick of a batch
    progress: tuple[BatchProgress, BatchProgress] | None = None


class Store(
    Incidents,
    Actions,
    Deliveries,
    Silences,
    Batches,
    Minutes,
    Compaction,
    StoredReferences,
    Baselines,
    AdviceHistory,
    Progress,
):
    """One database. A method is one transaction unless it says otherwise.

    Use it as a context manager. Every method raises :class:`~driftwatch.errors.StoreError` with a
    ``code`` (locked, read-only, full, corrupt, ...) where the database does not serve; what was
    committed before is kept.
    """

    @classmethod
    def open(
        cls,
        database: str | Path | Place,
        *,
        migrate: bool = True,
        busy_seconds: float = BUSY_SECONDS,
        durable: bool = True,
    ) -> Self:
        """Open a database.

        ``database``: path of the SQLite file, or a URL as :func:`place_of` takes it; ``migrate``:
        make the file and bring the schema to this version; without it the database has to be there
        and to be of this version; ``busy_seconds``: how long to wait for another writer;
        ``durable``: a commit of a SQLite file outlives a power cut, which a replay need not.

        Raises StoreError: missing, foreign, corrupt, of another version, or it does not serve.
        """
        place = place_of(database)
        require_place(place, file_too=not migrate)
        engine = open_engine(place, busy_seconds=busy_seconds, durable=durable)
        try:
            with named_failures(place):
                if migrate:
                    upgrade(engine, place)
                else:
                    with reading(engine) as connection:
                        revision = schema_revision(connection, place)
                        check_revision(revision, place, written_by(connection))
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, place)

    @classmethod
    def in_memory(cls) -> Self:
        """A new database of this version's schema, in memory until it is closed."""
        engine, keeper = memory_engine(BUSY_SECONDS)
        with engine.begin() as connection:
            metadata.create_all(connection)
        store = cls(engine, SqliteFile(Path("(in memory)")))
        store._keeper = keeper
        return store

    _keeper: Connection3 | None = None  # the connection that a database in memory lives by

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()
        if self._keeper is not None:
            self._keeper.close()

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

        On PostgreSQL any number of processes may; one in memory has no other process.

        Raises StoreError: ``in-use`` where another one is.
        """
        if self._keeper is None and isinstance(self.place, SqliteFile):
            return tick_lock(self.place.path)
        return nullcontext()

    def memory(self) -> dict[str, bytes]:
        """What the last tick left for the next one, by name."""
        query = select(memory_table).where(memory_table.c.batch == self._memory_of)
        return {row["name"]: row["value"] for row in self._all(query.order_by(memory_table.c.name))}

    def remembered(self, name: str) -> bytes | None:
        """One of these; None where nothing is kept under that name."""
        table = memory_table.c
        query = select(table.value).where(table.name == name, table.batch == self._memory_of)
        value = self._scalar(query)
        return None if value is None else bytes(value)

    def remember(self, memory: Mapping[str, bytes]) -> None:
        """Keep these in place of what is kept under the same names."""
        with self._writing() as connection:
            self._write_memory(connection, memory)

    def remembered_by_batch(self, name: str) -> dict[int | None, bytes]:
        """The same of each batch; of none (None) where there is one batch."""
        query = select(memory_table).where(memory_table.c.name == name)
        rows = self._all(query.order_by(memory_table.c.batch))
        return {r["batch"] if r["batch"] != NO_BATCH else None: bytes(r["value"]) for r in rows}

    @property
    def _memory_of(self) -> int:
        return NO_BATCH if self.batch is None else self.batch

    def _write_memory(self, connection: Connection, memory: Mapping[str, bytes]) -> None:
        if memory:
            table, of = memory_table.c, self._memory_of
            mine = (table.batch == of, table.name.in_(sorted(memory)))
            connection.execute(delete(memory_table).where(*mine))
            rows = [{"name": n, "batch": of, "value": v} for n, v in sorted(memory.items())]
            connection.execute(insert(memory_table), rows)

    def of_batch(self, number: int, of: int) -> Store:
        """The part of one batch: what it remembers, its minutes and open incidents.

        Other rows are everybody's. Of one batch it is the database itself.
        """
        if of == 1:
            return self
        part = type(self)(self._engine, self.place, number)
        part._own = self._own  # one_transaction of a thread is both's
        return part

    @repeated_after_conflict
    def commit_tick(self, tick: TickRecord) -> None:
        """Everything a tick decided and saw, in one transaction: all of it or nothing.

        A pending incident in the database that the tick does not have is dropped; acknowledgements
        in the database are kept.

        Raises StoreError: ``tick-lost`` where another tick of its batch was committed meanwhile.
        """
        with self._writing() as connection:
            if tick.progress is not None:
                write_progress(connection, *tick.progress)
            if tick.incidents is not None:
                write_incidents(connection, tick.incidents, tick.transitions, self.batch)
            write_planned(connection, tick.planned_actions, tick.until)
            write_deliveries(connection, tick.deliveries, tick.by_labels)
            if tick.gpus is not None:
                write_gpus(connection, tick.gpus, tick.since, tick.until)
            if tick.minutes is not None:
                write_minutes(connection, tick.minutes, self.batch)
            write_references(connection, tick.references, tick.references_gone)
            write_advices(connection, tick.advices)
            write_verifications(connection, tick.verifications)
            self._write_memory(connection, tick.memory)

    def prune(
        self,
        before: datetime,
        *,
        incidents_before: datetime | None = None,
        minutes_before: datetime | None = None,
        payloads_before: datetime | None = None,
    ) -> int:
        """Delete what is no longer needed, in some transactions; says how many batches of them.

        ``before``: GPU readings taken before this time go; ``minutes_before``: minutes
        and roll-ups that end before this time go; None keeps them; ``incidents_before``: incidents
        resolved before this time go, with their deliveries, and silences that ended before it; None
        keeps them all. One with a delivery that is still pending stays. Advice, verifications,
        reports and references of before go as well; an open verification stays.
        ``payloads_before``: the text of what was sent before this time goes; None keeps it.
        """
        if incidents_before is not None:
            with self._writing() as connection:
                prune_incidents(connection, incidents_before)
                prune_silences(connection, incidents_before)
                prune_references(connection, incidents_before)
                prune_advice(connection, incidents_before)
                prune_reports(connection, incidents_before)
        if payloads_before is not None:
            with self._writing() as connection:
                forget_payloads(connection, payloads_before)
        count = 0
        ends = ((minute_batches, minutes_before), (gpu_batches, before))
        for table, end in ends:
            if end is not None:
                with self._writing() as connection:
                    count = connection.execute(delete(table).where(table.c.until <= end)).rowcount
        return count
