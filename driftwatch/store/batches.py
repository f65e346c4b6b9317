"""GPU readings in the database: compressed batches of one or some ticks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
from sqlalchemy import Connection, Select, Table, insert, select, update

from driftwatch.collect.gpus import GPU_KEY, GPU_SCHEMA
from driftwatch.store.database import Database
from driftwatch.store.frames import decode, encode
from driftwatch.store.tables import gpu_batches

# A smaller batch takes the next tick's rows in (one server's scrape alone would be mostly a list of
# its columns), as long as it stays this short: it is deleted as a whole.
_GROWING_BYTES = 12 * 1024
_LONGEST = timedelta(minutes=15)


class Batches(Database):
    """Part of the store: GPU readings."""

    def gpus(self, since: datetime, until: datetime) -> pl.DataFrame:
        """GPU readings with since <= time < until, by GPU, workload and time.

        A reading that two batches hold (a tick that ran again) is there once, from the later one.
        """
        table = gpu_batches
        query = select(table.c.frame).where(table.c.until > since, table.c.since < until)
        batches = self._all(query.order_by(table.c.id))
        frames = [decode(one["frame"], GPU_SCHEMA) for one in batches]
        rows = pl.concat([pl.DataFrame(schema=GPU_SCHEMA), *frames])
        return (
            rows.filter((pl.col("time") >= since) & (pl.col("time") < until))
            .unique(subset=GPU_KEY, keep="last", maintain_order=True)
            .sort(GPU_KEY, maintain_order=True)
        )


def write_gpus(
    connection: Connection, rows: pl.DataFrame, since: datetime, until: datetime
) -> None:
    """Add the readings of one tick; the interval is widened to hold every row."""
    if rows.is_empty():
        return
    rows = rows.select(pl.col(name).cast(dtype) for name, dtype in GPU_SCHEMA.items())
    first, last = rows["time"].min(), rows["time"].max()
    if isinstance(first, datetime) and isinstance(last, datetime):
        since = min(since, first.astimezone(UTC))
        until = max(until, last.astimezone(UTC) + timedelta(microseconds=1))
    table = gpu_batches
    newest = connection.execute(newest_of(table)).one_or_none()
    if newest is not None and len(newest.frame) <= _GROWING_BYTES:
        whole = {"since": min(since, newest.since), "until": max(until, newest.until)}
        if whole["until"] - whole["since"] <= _LONGEST:
            frame = encode(pl.concat([decode(newest.frame, GPU_SCHEMA), rows]))
            query = update(table).where(table.c.id == newest.id)
            connection.execute(query.values(**whole, frame=frame))
            return
    values = {"since": since, "until": until, "frame": encode(rows)}
    connection.execute(insert(table), [values])


def newest_of(table: Table) -> Select[Any]:
    """The batch that was written last."""
    return select(table).order_by(table.c.id.desc()).limit(1)
