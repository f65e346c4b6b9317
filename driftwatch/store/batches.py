"""Scrapes in the database: one compressed batch per tick."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
from sqlalchemy import Connection, delete, insert, select

from driftwatch.collect.schema import SCRAPE_SCHEMA, empty_scrapes
from driftwatch.store.frames import decode, encode
from driftwatch.store.tables import scrape_batches


def write(connection: Connection, scrapes: pl.DataFrame, since: datetime, until: datetime) -> None:
    """Add the scrapes of one tick; the interval is widened to hold every row."""
    if scrapes.is_empty():
        return
    scrapes = scrapes.select(pl.col(name).cast(dtype) for name, dtype in SCRAPE_SCHEMA.items())
    first, last = scrapes["time"].min(), scrapes["time"].max()
    if isinstance(first, datetime) and isinstance(last, datetime):
        since = min(since, first.astimezone(UTC))
        until = max(until, last.astimezone(UTC) + timedelta(microseconds=1))
    connection.execute(
        insert(scrape_batches),
        [{"since": since, "until": until, "frame": encode(scrapes)}],
    )


def read(connection: Connection, since: datetime, until: datetime) -> pl.DataFrame:
    """Scrapes with since <= time < until, sorted by instance, engine and time.

    A scrape that two batches hold (a tick that ran again) is there once, from the later one.
    """
    query = (
        select(scrape_batches.c.frame)
        .where(scrape_batches.c.until > since, scrape_batches.c.since < until)
        .order_by(scrape_batches.c.id)
    )
    frames = [decode(blob) for blob in connection.execute(query).scalars()]
    if not frames:
        return empty_scrapes()
    key = ["instance", "engine", "time"]
    return (
        pl.concat(frames)
        .filter((pl.col("time") >= since) & (pl.col("time") < until))
        .unique(subset=key, keep="last", maintain_order=True)
        .sort(key)
    )


def prune(connection: Connection, before: datetime) -> int:
    """Delete batches that end before a time; says how many."""
    done = connection.execute(delete(scrape_batches).where(scrape_batches.c.until <= before))
    return done.rowcount
