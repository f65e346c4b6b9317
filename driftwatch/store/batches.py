"""GPU readings in the database: compressed batches of one or some ticks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
from sqlalchemy import ColumnElement, Connection, Select, Table, insert, select, true, update

from driftwatch.collect.gpus import GPU_KEY, GPU_SCHEMA
from driftwatch.collect.schema import at_places
from driftwatch.store.database import Database
from driftwatch.store.frames import Schema, decode, encode
from driftwatch.store.tables import gpu_batches


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of batches."""

    table: Table  # where they lie
    schema: Schema  # today's columns of a row; one is ``time``
    # what two rows of the same thing have in common, in the order of the answer
    key: tuple[str, ...]


GPUS = Kind(gpu_batches, GPU_SCHEMA, GPU_KEY)
# A smaller batch takes the next tick's rows in (one server's scrape alone would be mostly a list of
# its columns), as long as it stays this short: it is deleted as a whole.
_GROWING_BYTES = 12 * 1024
_LONGEST = timedelta(minutes=15)


class Batches(Database):
    """Part of the store: GPU readings."""

    def gpus(self, since: datetime, until: datetime) -> pl.DataFrame:
        """GPU readings with since <= time < until, by GPU, workload and time."""
        with self._reading() as connection:
            return _frames(connection, GPUS, since, until, true())


def write_batch(
    connection: Connection,
    kind: Kind,
    rows: pl.DataFrame,
    since: datetime,
    until: datetime,
) -> None:
    """Add the rows of one tick; the interval is widened to hold every row."""
    if rows.is_empty():
        return
    rows = rows.select(pl.col(name).cast(dtype) for name, dtype in kind.schema.items())
    first, last = rows["time"].min(), rows["time"].max()
    if isinstance(first, datetime) and isinstance(last, datetime):
        since = min(since, first.astimezone(UTC))
        until = max(until, last.astimezone(UTC) + timedelta(microseconds=1))
    table = kind.table
    newest = connection.execute(newest_of(table)).one_or_none()
    if newest is not None and len(newest.frame) <= _GROWING_BYTES:
        whole = {"since": min(since, newest.since), "until": max(until, newest.until)}
        if whole["until"] - whole["since"] <= _LONGEST:
            frame = encode(pl.concat([decode(newest.frame, kind.schema), rows]))
            query = update(table).where(table.c.id == newest.id)
            connection.execute(query.values(**whole, frame=frame))
            return
    values = {"since": since, "until": until, "frame": encode(rows)}
    connection.execute(insert(table), [values])


def newest_of(table: Table) -> Select[Any]:
    """The batch that was written last."""
    return select(table).order_by(table.c.id.desc()).limit(1)


def _frames(
    connection: Connection,
    kind: Kind,
    since: datetime,
    until: datetime,
    own: ColumnElement[bool],
    without: Collection[str] = (),
) -> pl.DataFrame:
    """A row that two batches hold (a tick that ran again) is there once, from the later one."""
    table = kind.table
    query = select(table.c.frame).where(own, table.c.until > since, table.c.since < until)
    blobs = connection.execute(query.order_by(table.c.id)).scalars()
    schema = {name: dtype for name, dtype in kind.schema.items() if name not in without}
    rows = pl.concat([pl.DataFrame(schema=schema), *(decode(blob, schema) for blob in blobs)])
    places = (
        rows.select({*kind.key, "time"})
        .with_row_index("place")
        .filter((pl.col("time") >= since) & (pl.col("time") < until))
        .unique(subset=kind.key, keep="last", maintain_order=True)
        .sort(kind.key, maintain_order=True)
    )["place"]
    nothing = (pl.lit(None, dtype=kind.schema[name]).alias(name) for name in without)
    return at_places(rows, places).with_columns(*nothing).select(kind.schema.keys())
