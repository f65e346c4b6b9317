"""The detectors' memory at one time, and the days that reports and trends are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl
from sqlalchemy import Connection, delete, insert, select

from driftwatch.collect.schema import KEY
from driftwatch.store.database import Database, named
from driftwatch.store.frames import decode, pack
from driftwatch.store.tables import checkpoint, day_batches
from driftwatch.store.tables import memory as memory_table


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The detectors' memory after the minutes up to a time."""

    at: datetime  # end of the last minute that is in it
    # name → frame as bytes (:func:`driftwatch.store.frames.to_arrow`): a large fleet's are large
    frames: Mapping[str, bytes]


class History(Database):
    """Part of the store: the checkpoint, and days."""

    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint; None in a database without any."""
        with self._reading() as connection:
            return read_checkpoint(connection, self._prefix)

    def days(self, since: datetime, until: datetime) -> pl.DataFrame:
        """Rows of days that begin in [since, until), with the columns that any of them has."""
        query = (
            select(day_batches.c.frame)
            .where(day_batches.c.day >= since, day_batches.c.day < until)
            .order_by(day_batches.c.day)
        )
        with self._reading() as connection:
            frames = [decode(frame) for frame in connection.execute(query).scalars()]
        return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()

    def day_starts(self) -> list[datetime]:
        """Which days there are rows of, in order."""
        query = select(day_batches.c.day).order_by(day_batches.c.day)
        with self._reading() as connection:
            return [at.astimezone(UTC) for at in connection.execute(query).scalars()]

    def write_day(
        self, day: datetime, rows: pl.DataFrame, memory: Mapping[str, bytes] | None = None
    ) -> None:
        """Keep one day's rows, in the place of those of the same targets that were there.

        ``day``: its start; ``rows``: instance, engine, pool, day and columns of numbers;
        ``memory``: name → bytes to remember with it.
        """
        with self._writing() as connection:
            query = select(day_batches.c.frame).where(day_batches.c.day == day)
            if (stored := connection.execute(query).scalar()) is not None:
                others = decode(stored).join(rows, on=KEY, how="anti", maintain_order="left")
                rows = pl.concat([others, rows], how="diagonal_relaxed").sort(KEY)
            connection.execute(delete(day_batches).where(day_batches.c.day == day))
            connection.execute(insert(day_batches), [{"day": day, "frame": pack(rows)}])
            write_memory(connection, {f"{self._prefix}{n}": v for n, v in (memory or {}).items()})


def read_checkpoint(connection: Connection, prefix: str = "") -> Checkpoint | None:
    """The newest one, within a transaction; ``prefix``: of its frames' names."""
    query = select(checkpoint).where(named(checkpoint, prefix)).order_by(checkpoint.c.name)
    rows = connection.execute(query).all()
    if not rows:
        return None
    frames = {name: row.frame for row in rows if (name := row.name.removeprefix(prefix))}
    return Checkpoint(rows[0].at, frames)


def write_checkpoint(connection: Connection, new: Checkpoint, prefix: str = "") -> None:
    """Put it in the place of the one before; ``prefix``: of its frames' names."""
    connection.execute(delete(checkpoint).where(named(checkpoint, prefix)))
    rows = [
        {"name": f"{prefix}{name}", "at": new.at, "frame": frame}
        for name, frame in sorted(new.frames.items())
    ]
    # a memory without a frame is one, too: nothing before it has to be read again
    connection.execute(insert(checkpoint), rows or [{"name": prefix, "at": new.at, "frame": b""}])


def write_memory(connection: Connection, memory: Mapping[str, bytes]) -> None:
    """Keep these in place of what is kept under the same names."""
    if not memory:
        return
    rows = [{"name": name, "value": value} for name, value in sorted(memory.items())]
    connection.execute(delete(memory_table).where(memory_table.c.name.in_(sorted(memory))))
    connection.execute(insert(memory_table), rows)


def prune_days(connection: Connection, before: datetime) -> None:
    """Delete days that begin before a time."""
    connection.execute(delete(day_batches).where(day_batches.c.day < before))
