"""Minutes of targets in the database: written by each tick, packed later, then rolled up.

A batch lies in one hour, once packed in one day, and
tells the first and the last instance in it, so that one target's past is a few batches even in a
large fleet. Small ticks are added to the batch before them: one server's minute alone would be
mostly a list of its columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import polars as pl
from sqlalchemy import Connection, and_, delete, insert, or_, select, update

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.model import TargetKey
from driftwatch.store.frames import decode as decode_large
from driftwatch.store.frames import encode as encode_large
from driftwatch.store.minute_columns import STORED_SCHEMA, rolled_up
from driftwatch.store.packing import MAGIC, pack, unpack
from driftwatch.store.tables import minute_batches

MINUTE = 60
AS_WRITTEN, PACKED = 0, 1
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
_KEY = [*KEY_COLUMNS, "end"]
# A tick's rows from here on go into Parquet, which is written in a tenth of the time.
_LARGE_ROWS = 300
# Rows of one batch of a tick: what is packed together is 60 of them, and must fit into memory.
_SHARD_ROWS = 1000
# A batch that is smaller takes the next tick's rows in; so much is written again then.
_APPENDED_TO_BYTES = 24 * 1024


def encode_exact(rows: pl.DataFrame) -> bytes:
    """Rows as a tick writes them: nothing is rounded."""
    return encode_large(rows) if rows.height >= _LARGE_ROWS else pack(rows)


def decode(blob: bytes) -> pl.DataFrame:
    """The rows of a batch, :data:`STORED_SCHEMA`."""
    if blob.startswith(MAGIC):
        return unpack(blob, STORED_SCHEMA)
    return decode_large(blob, STORED_SCHEMA)


def once(rows: pl.DataFrame) -> pl.DataFrame:
    """Sorted by instance, engine and end; of two rows of one minute the later one."""
    return rows.unique(_KEY, keep="last", maintain_order=True).sort(_KEY)


def shards(rows: pl.DataFrame, most: int) -> Iterator[pl.DataFrame]:
    """Sorted rows in parts of at most so many."""
    return (rows.slice(first, most) for first in range(0, rows.height, most))


def write(connection: Connection, rows: pl.DataFrame) -> None:
    """Add the minutes of one tick (:data:`STORED_SCHEMA`)."""
    if rows.is_empty():
        return
    hours = rows.with_columns(
        hour=(pl.col("end") - pl.duration(microseconds=1)).dt.truncate("1h")
    ).partition_by("hour", include_key=False, maintain_order=True)
    for hour in hours:
        if hour.height < _SHARD_ROWS and _appended(connection, hour):
            continue
        for part in shards(once(hour), _SHARD_ROWS):
            insert_batch(connection, part, encode_exact(part), AS_WRITTEN, MINUTE)


def _appended(connection: Connection, rows: pl.DataFrame) -> bool:
    """Whether the last batch took the rows in, as it was small and of the same hour."""
    newest = connection.execute(
        select(minute_batches).order_by(minute_batches.c.id.desc()).limit(1)
    ).one_or_none()
    if newest is None or newest.packed != AS_WRITTEN or len(newest.frame) > _APPENDED_TO_BYTES:
        return False
    first, _ = span(rows)
    if not hour_of(newest.since) <= first < hour_of(newest.since) + HOUR:
        return False
    together = once(pl.concat([decode(newest.frame), rows]))
    values = _row(together, encode_exact(together), AS_WRITTEN, MINUTE)
    connection.execute(
        update(minute_batches).where(minute_batches.c.id == newest.id).values(**values)
    )
    return True


def insert_batch(
    connection: Connection, rows: pl.DataFrame, frame: bytes, packed: int, seconds: int
) -> None:
    """Add one batch of rows that are sorted."""
    connection.execute(insert(minute_batches), [_row(rows, frame, packed, seconds)])


def _row(rows: pl.DataFrame, frame: bytes, packed: int, seconds: int) -> dict[str, object]:
    since, until = span(rows, seconds)
    return {
        "since": since,
        "until": until,
        "seconds": seconds,
        "packed": packed,
        "first_instance": rows["instance"].min(),
        "last_instance": rows["instance"].max(),
        "frame": frame,
    }


def span(rows: pl.DataFrame, seconds: int = MINUTE) -> tuple[datetime, datetime]:
    """Start of the first row and end of the last.

    Raises:
        ValueError: there is no row.
    """
    first, last = rows["end"].min(), rows["end"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        raise ValueError("no rows")
    return first.astimezone(UTC) - timedelta(seconds=seconds), last.astimezone(UTC)


def hour_of(at: datetime) -> datetime:
    """Start of the hour."""
    return at.replace(minute=0, second=0, microsecond=0)


def day_of(at: datetime) -> datetime:
    """Start of the day, UTC."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def read(
    connection: Connection,
    since: datetime,
    until: datetime,
    targets: Iterable[TargetKey] | None = None,
) -> pl.DataFrame:
    """Rows that end in (since, until], by instance, engine and end.

    Args:
        connection: of a read transaction.
        since: end of the row before the first.
        until: end of the last row.
        targets: only these; None = all.

    Returns:
        :data:`STORED_SCHEMA` and ``seconds`` (Float64): how long the row is, 60 or a roll-up's.
    """
    table = minute_batches
    query = select(table.c.seconds, table.c.frame).where(
        table.c.until > since, table.c.since < until
    )
    keys = None if targets is None else sorted(set(targets))
    if keys is not None:
        named = sorted({key.instance for key in keys})
        between = (
            [and_(table.c.first_instance <= name, table.c.last_instance >= name) for name in named]
            if len(named) <= _NAMED_IN_A_QUERY
            else [and_(table.c.first_instance <= named[-1], table.c.last_instance >= named[0])]
        )
        query = query.where(or_(*between)) if named else query.where(table.c.id < 0)
    wanted = None
    if keys is not None:
        wanted = pl.DataFrame([tuple(k) for k in keys], schema=list(KEY_COLUMNS), orient="row")
    found = [pl.DataFrame(schema={**STORED_SCHEMA, "seconds": pl.Float64})]
    # longer rows first: where a minute is still there, it is what counts
    ordered = query.order_by(table.c.seconds.desc(), table.c.packed.desc(), table.c.id)
    for seconds, frame in connection.execute(ordered):
        rows = decode(frame).filter((pl.col("end") > since) & (pl.col("end") <= until))
        if wanted is not None:
            rows = rows.join(wanted, on=list(KEY_COLUMNS), how="semi", maintain_order="left")
        found.append(rows.with_columns(seconds=pl.lit(float(seconds))))
    return _each_span_once(pl.concat(found))


_NAMED_IN_A_QUERY = 200


def _each_span_once(rows: pl.DataFrame) -> pl.DataFrame:
    """Every row once; two parts of one longer row added up."""
    again = rows.select(pl.struct([*_KEY, "seconds"]).is_duplicated())
    if not again.to_series().any():
        return rows.sort(_KEY)
    short = rows.filter(pl.col("seconds") == MINUTE).unique(_KEY, keep="last", maintain_order=True)
    parts = [short]
    for seconds in rows["seconds"].filter(rows["seconds"] > MINUTE).unique().sort():
        longer = rows.filter(pl.col("seconds") == seconds).drop("seconds").sort(_KEY)
        parts.append(rolled_up(longer, int(seconds)).with_columns(seconds=pl.lit(float(seconds))))
    return pl.concat(parts).sort(_KEY)


def read_span(connection: Connection, target: TargetKey) -> tuple[datetime, datetime] | None:
    """Start of the first row of a target and end of the last; None without any."""
    table = minute_batches
    mine = (table.c.first_instance <= target.instance) & (table.c.last_instance >= target.instance)
    query = select(table.c.since, table.c.until).where(mine)
    ends = []
    for ordered in (query.order_by(table.c.since), query.order_by(table.c.until.desc())):
        for batch in connection.execute(ordered):
            rows = read(connection, batch.since, batch.until, [target])
            if len(rows):
                ends.append(rows)
                break
    if len(ends) < 2:
        return None
    first, last = ends
    return span(first.head(1), int(first["seconds"][0]))[0], span(last)[1]


def prune(connection: Connection, before: datetime) -> None:
    """Delete batches that end before a time."""
    connection.execute(delete(minute_batches).where(minute_batches.c.until <= before))
