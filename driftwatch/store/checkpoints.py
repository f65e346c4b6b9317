"""What the detectors remembered at one time, and the days that reports and trends are made of."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl
from sqlalchemy import Connection, delete, insert, select

from driftwatch.store.packing import pack, unpack
from driftwatch.store.tables import checkpoint, day_batches


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The detectors' memory after the minutes up to a time.

    Attributes:
        at: end of the last minute that is in it.
        frames: name → frame, as the detectors gave them.
    """

    at: datetime
    frames: Mapping[str, pl.DataFrame]


def write_checkpoint(connection: Connection, kept: Checkpoint) -> None:
    """Put it in the place of the one before."""
    connection.execute(delete(checkpoint))
    rows = [
        {"name": name, "at": kept.at, "frame": _packed(frame)}
        for name, frame in sorted(kept.frames.items())
    ]
    # a memory without a frame is one, too: nothing before it has to be read again
    connection.execute(insert(checkpoint), rows or [{"name": "", "at": kept.at, "frame": b""}])


def read_checkpoint(connection: Connection) -> Checkpoint | None:
    """The last one; None in a database without any."""
    rows = connection.execute(select(checkpoint).order_by(checkpoint.c.name)).all()
    if not rows:
        return None
    frames = {row.name: pl.read_ipc(io.BytesIO(row.frame)) for row in rows if row.name}
    return Checkpoint(rows[0].at, frames)


def _packed(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="zstd")
    return buffer.getvalue()


def write_day(connection: Connection, day: datetime, rows: pl.DataFrame) -> None:
    """Put one day's rows in the place of what was there; ``day`` is its start."""
    connection.execute(delete(day_batches).where(day_batches.c.day == day))
    connection.execute(insert(day_batches), [{"day": day, "frame": pack(rows)}])


def read_days(connection: Connection, since: datetime, until: datetime) -> pl.DataFrame:
    """Rows of days that begin in [since, until), with the columns that any of them has."""
    query = (
        select(day_batches.c.frame)
        .where(day_batches.c.day >= since, day_batches.c.day < until)
        .order_by(day_batches.c.day)
    )
    found = [unpack(frame) for frame in connection.execute(query).scalars()]
    return pl.concat(found, how="diagonal") if found else pl.DataFrame()


def read_day_starts(connection: Connection) -> list[datetime]:
    """The days there are."""
    query = select(day_batches.c.day).order_by(day_batches.c.day)
    return [at.astimezone(UTC) for at in connection.execute(query).scalars()]


def prune_days(connection: Connection, before: datetime) -> None:
    """Delete days that begin before a time."""
    connection.execute(delete(day_batches).where(day_batches.c.day < before))
