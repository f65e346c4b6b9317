"""The store: one database, its parts, and what a tick commits to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import polars as pl
from sqlalchemy import delete, select

from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.store.actions import prune_silences, write_planned
from driftwatch.store.compaction import Compaction
from driftwatch.store.database import (
    repeated_after_conflict,
)
from driftwatch.store.history import (
    History,
    TargetAdvice,
    prune_advice,
    prune_references,
    prune_reports,
    write_advices,
    write_references,
    write_verifications,
)
from driftwatch.store.incidents import prune_incidents, write_incidents
from driftwatch.store.latest import Latest, LatestRows, write_latest
from driftwatch.store.minutes import Minutes, write_minutes
from driftwatch.store.people import IncidentStore
from driftwatch.store.planned import forget_payloads, write_deliveries
from driftwatch.store.progress import BatchProgress, Progress, write_progress
from driftwatch.store.tables import NO_BATCH, minute_batches
from driftwatch.store.tables import memory as memory_table
from driftwatch.verify.verification import Verification

if TYPE_CHECKING:
    from driftwatch.detect.references import Place as ReferencePlace
    from driftwatch.detect.references import Reference


@dataclass(frozen=True, slots=True, eq=False)
class TickRecord:
    """Everything a tick decided and saw."""

    until: datetime  # when it was made
    # all that are open after the tick; None: they are as they were
    incidents: Collection[Incident] | None = ()
    # what happened; what they resolved, and what follow-ups say, is written from here
    transitions: Sequence[Transition] = ()
    deliveries: Collection[PlannedDelivery] = ()  # what is to be sent
    by_labels: Collection[str] = ()  # receivers that know alerts by their labels alone
    planned_actions: Sequence[int] = ()  # numbers of the actions whose messages are among them
    minutes: pl.DataFrame | None = None  # ``STORED_SCHEMA``, those it evaluated
    references: Collection[Reference] = ()  # what detectors learnt
    references_gone: Collection[ReferencePlace] = ()  # of whom they forgot it
    advices: Collection[TargetAdvice] = ()  # what its pages advise
    verifications: Collection[Verification] = ()  # those that it opened, fed or closed
    # the servers and pools of its batch; None: it has no new minute
    latest: Latest | None = None
    # name → bytes to keep for the next tick; other names stay
    memory: Mapping[str, bytes] = field(default_factory=dict)
    # the batch as the tick found it, and as it leaves it; None: it is no tick of a batch
    progress: tuple[BatchProgress, BatchProgress] | None = None


class Store(IncidentStore, Minutes, Compaction, History, Progress, LatestRows):
    """One database: what people read and change, minutes, references, advice, progress."""

    def remembered_by_batch(self, name: str) -> dict[int | None, bytes]:
        """The same of each batch; of none (None) where there is one batch."""
        query = select(memory_table).where(memory_table.c.name == name)
        rows = self._all(query.order_by(memory_table.c.batch))
        return {r["batch"] if r["batch"] != NO_BATCH else None: bytes(r["value"]) for r in rows}

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
            if tick.minutes is not None:
                write_minutes(connection, tick.minutes, self.batch)
            write_references(connection, tick.references, tick.references_gone)
            write_advices(connection, tick.advices)
            write_verifications(connection, tick.verifications)
            if tick.latest is not None:
                write_latest(connection, tick.latest, self.batch)
            self._write_memory(connection, tick.memory)

    def prune(
        self,
        *,
        incidents_before: datetime,
        minutes_before: datetime,
        payloads_before: datetime,
    ) -> None:
        """Delete what is no longer needed, in some transactions.

        ``incidents_before``: incidents resolved before this time go, with their deliveries; one
        with a delivery that is still pending stays. Silences, advice, verifications, reports and
        references of before go as well; an open verification stays. ``minutes_before``: minutes
        and roll-ups that end before this time go; ``payloads_before``: texts of messages sent
        before this time go.
        """
        with self._writing() as connection:
            prune_incidents(connection, incidents_before)
            prune_silences(connection, incidents_before)
            prune_references(connection, incidents_before)
            prune_advice(connection, incidents_before)
            prune_reports(connection, incidents_before)
        with self._writing() as connection:
            forget_payloads(connection, payloads_before)
        with self._writing() as connection:
            ends = minute_batches.c.until
            connection.execute(delete(minute_batches).where(ends <= minutes_before))
