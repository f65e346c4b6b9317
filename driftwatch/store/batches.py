"""Scrapes and GPU readings in the database: compressed batches of one or some ticks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import polars as pl
from sqlalchemy import Connection, Table, delete, insert, select, update

from driftwatch.collect.gpus import GPU_KEY, GPU_SCHEMA
from driftwatch.collect.schema import KEY_COLUMNS, SCRAPE_SCHEMA
from driftwatch.store.frames import decode, encode
from driftwatch.store.tables import gpu_batches, scrape_batches


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of batches.

    Attributes:
        table: where they lie.
        schema: today's columns of a row; one is ``time``.
        key: what two rows of the same thing have in common, in the order of the answer.
    """

    table: Table
    schema: Mapping[str, pl.DataType | type[pl.DataType]]
    key: tuple[str, ...]


# A batch that is smaller takes the next tick's rows in, as long as it stays this short: it is
# deleted as a whole.
_APPENDED_TO_BYTES = 12 * 1024
_LONGEST = timedelta(minutes=15)

SCRAPES = Kind(scrape_batches, SCRAPE_SCHEMA, (*KEY_COLUMNS, "time"))
GPUS = Kind(gpu_batches, GPU_SCHEMA, GPU_KEY)


def write(
    connection: Connection, kind: Kind, rows: pl.DataFrame, since: datetime, until: datetime
) -> None:
    """Add the rows of one tick; the interval is widened to hold every row.

    While the batch before it is small it takes them in: one server's scrape alone would be mostly
    a list of its columns.
    """
    if rows.is_empty():
        return
    rows = rows.select(pl.col(name).cast(dtype) for name, dtype in kind.schema.items())
    first, last = rows["time"].min(), rows["time"].max()
    if isinstance(first, datetime) and isinstance(last, datetime):
        since = min(since, first.astimezone(UTC))
        until = max(until, last.astimezone(UTC) + timedelta(microseconds=1))
    table = kind.table
    newest = connection.execute(select(table).order_by(table.c.id.desc()).limit(1)).one_or_none()
    if (
        newest is None
        or len(newest.frame) > _APPENDED_TO_BYTES
        or max(until, newest.until) - min(since, newest.since) > _LONGEST
    ):
        values = {"since": since, "until": until, "frame": encode(rows)}
        connection.execute(insert(table), [values])
        return
    together = pl.concat([decode(newest.frame, kind.schema), rows])
    connection.execute(
        update(table)
        .where(table.c.id == newest.id)
        .values(
            since=min(since, newest.since),
            until=max(until, newest.until),
            frame=encode(together),
        )
    )


def read(connection: Connection, kind: Kind, since: datetime, until: datetime) -> pl.DataFrame:
    """Rows with since <= time < until, sorted by the kind's key.

    A row that two batches hold (a tick that ran again) is there once, from the later one.
    """
    table = kind.table
    query = (
        select(table.c.frame)
        .where(table.c.until > since, table.c.since < until)
        .order_by(table.c.id)
    )
    frames = [decode(blob, kind.schema) for blob in connection.execute(query).scalars()]
    if not frames:
        return pl.DataFrame(schema=dict(kind.schema))
    return (
        pl.concat(frames)
        .filter((pl.col("time") >= since) & (pl.col("time") < until))
        .unique(subset=kind.key, keep="last", maintain_order=True)
        .sort(kind.key, maintain_order=True)
    )


def prune(connection: Connection, before: datetime) -> int:
    """Delete batches that end before a time; says how many of scrapes."""
    connection.execute(delete(gpu_batches).where(gpu_batches.c.until <= before))
    done = connection.execute(delete(scrape_batches).where(scrape_batches.c.until <= before))
    return done.rowcount
