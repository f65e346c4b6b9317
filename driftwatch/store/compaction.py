"""Minutes packed and rolled up, in steps that each are one short transaction.

Packing is slow next to writing, so it happens outside of the transaction that then exchanges the
batches: a tick waits for no more than that exchange. Only ``driftwatch run`` does it, on hours
that no tick writes any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl
from sqlalchemy import Connection, delete, func, insert, select

from driftwatch.store.database import Database, of_batch
from driftwatch.store.minute_columns import STORED_SCHEMA, decode, pack, rolled_up
from driftwatch.store.minutes import (
    DAY,
    HOUR,
    MINUTE,
    PACKED,
    batch_row,
    hour_of,
    once,
    parts,
)
from driftwatch.store.tables import minute_batches

ROLLED_UP = 600
# How long minutes stay minutes: what a baseline of 48 h is measured from, in whole days.
MINUTES_KEPT = timedelta(hours=48)
# Rows of a packed batch: more are hardly smaller, and all of them are read for one target.
_PACKED_ROWS = 2048
# Of longer rows less, about two servers' day: a month of one server is 30 batches to be read.
_ROLLED_UP_ROWS = 256
# A smaller batch takes the next hour in, so that a small fleet's day is few batches.
_GROWING_BYTES = 64 * 1024
# Batches that are rolled up together: 25,000 rows or so.
_TOGETHER_BYTES = 2 * 1024 * 1024


# More than detectors have at hand.
AS_WRITTEN_FOR = timedelta(hours=3)


@dataclass(frozen=True, slots=True)
class Job:
    """Batches that become others."""

    ids: tuple[int, ...]  # of the batches that go
    seconds: int  # of a row of what comes


class Compaction(Database):
    """Part of the store: minutes in fewer bytes."""

    def pack_minutes(self, now: datetime) -> int:
        """Pack hours that are over and roll up days that are older than two; in many transactions.

        Minutes of the last :data:`AS_WRITTEN_FOR` stay as they were written, to the bit: a restart
        goes on with them. Two processes may do it at once: batches that another one replaced
        meanwhile are left to it. Returns how many batches were replaced.
        """
        batches = self._all(select(minute_batches.c.batch).distinct())
        return sum(self._pack_batch(one["batch"], now) for one in batches)

    def _pack_batch(self, batch: int | None, now: datetime) -> int:
        replaced = 0
        while True:
            with self._reading() as connection:
                settled = now - AS_WRITTEN_FOR
                todo = jobs(connection, hour_of(settled), now, batch)
            for job in todo:
                with self._reading() as connection:
                    frames = _frames(connection, job)
                if len(frames) == len(job.ids) and self._exchanged(job, frames, batch):
                    replaced += len(job.ids)
            if not todo:
                return replaced

    def _exchanged(self, job: Job, frames: Mapping[int, bytes], batch: int | None = None) -> bool:
        """Replace the batches of a job by what it makes of them; False: they have changed since.

        ``frames``: id → bytes of the batches; SQLite gives an id that is free to another one.
        """
        parts = _result(job, frames)
        with self._writing() as connection:
            if _frames(connection, job) != frames:
                return False
            batches = minute_batches.c.id.in_(job.ids)
            connection.execute(delete(minute_batches).where(batches))
            made = [batch_row(*part, PACKED, job.seconds, batch) for part in parts]
            connection.execute(insert(minute_batches), made)
        return True


def jobs(
    connection: Connection, settled: datetime, now: datetime, batch: int | None = None
) -> list[Job]:
    """The jobs that are due; those that these make possible come with the next call.

    ``connection``: of a read transaction; ``settled``: no tick writes minutes that end up to here
    any more, and no restart goes on with them; ``now``: what time it is; ``batch``: whose
    batches; None: those of no batch.
    """
    table = minute_batches
    columns = (table.c.id, table.c.since, table.c.packed, table.c.first_instance)
    rows = connection.execute(
        select(*columns, func.length(table.c.frame).label("size"))
        .where(of_batch(table, batch), table.c.seconds == MINUTE, table.c.until <= settled)
        .order_by(table.c.since, table.c.first_instance, table.c.id)
    ).all()
    hours: dict[datetime, list[list[int]]] = {}
    days: dict[datetime, list[tuple[str, int, int]]] = defaultdict(list)
    within: dict[datetime, int] = defaultdict(int)
    waiting: set[datetime] = set()
    for row in rows:
        hour = hour_of(row.since)
        day = hour.replace(hour=0)
        if row.packed == PACKED:
            days[day].append((row.first_instance, row.id, row.size))
            continue
        waiting.add(day)
        if hour + HOUR <= settled:
            # the parts of a large fleet: the first of each minute together, the second, ...
            groups, part = hours.setdefault(hour, []), within[row.since]
            within[row.since] += 1
            groups.extend([] for _ in range(part + 1 - len(groups)))
            groups[part].append(row.id)
    due: list[Job] = []
    grown: set[datetime] = set()
    for hour, groups in sorted(hours.items()):
        day = hour.replace(hour=0)
        if day in grown:
            continue  # the batch that this hour may be added to is being made
        small = [number for _, number, size in days[day] if size < _GROWING_BYTES]
        if len(groups) == 1:
            grown.add(day)
            groups = [[*small, *groups[0]]]
        due += [Job(tuple(ids), MINUTE) for ids in groups]
    for day, batches in sorted(days.items()):
        if day not in waiting and day + DAY <= min(settled, now - MINUTES_KEPT):
            due += [Job(ids, ROLLED_UP) for ids in _by_size(sorted(batches))]
    return due


def _by_size(batches: list[tuple[str, int, int]]) -> Iterator[tuple[int, ...]]:
    """Neighbouring batches (first instance, id, bytes) in groups that fit into memory."""
    group: list[int] = []
    size = 0
    for _, number, length in batches:
        if group and size + length > _TOGETHER_BYTES:
            yield tuple(group)
            group, size = [], 0
        group.append(number)
        size += length
    if group:
        yield tuple(group)


def _frames(connection: Connection, job: Job) -> dict[int, bytes]:
    columns = minute_batches.c
    query = select(columns.id, columns.frame).where(columns.id.in_(job.ids))
    return {number: bytes(frame) for number, frame in connection.execute(query)}


def _result(job: Job, frames: Mapping[int, bytes]) -> list[tuple[pl.DataFrame, bytes]]:
    each = []
    for number in job.ids:
        rows = decode(frames[number], STORED_SCHEMA)
        each.append(rows if job.seconds == MINUTE else rolled_up(once(rows), job.seconds))
    rows = pl.concat(each)
    if job.seconds == MINUTE:
        rows = once(rows)
    else:
        rows = rolled_up(rows.sort("instance", "engine", "end"), job.seconds)
    most = _PACKED_ROWS if job.seconds == MINUTE else _ROLLED_UP_ROWS
    return [(part, pack(part)) for part in parts(rows, most)]
