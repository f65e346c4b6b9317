"""Minutes of targets in the database: written by each tick, packed later, then rolled up.

A batch lies in one hour, once packed in one day, and names the first and the last instance in it,
so that one target's past is a few batches even in a large fleet.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta

import polars as pl
from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    func,
    insert,
    or_,
    select,
    update,
)

from driftwatch.collect.schema import KEY_COLUMNS, is_ordered, keys_frame
from driftwatch.model import TargetKey
from driftwatch.store.confirmed import ConfirmedSettings, confirmed_settings, with_confirmed
from driftwatch.store.database import Database, of_batch
from driftwatch.store.minute_columns import STORED_SCHEMA, decode, encode, rolled_up
from driftwatch.store.tables import minute_batches

MINUTE = 60
AS_WRITTEN, PACKED = 0, 1
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
_KEY = [*KEY_COLUMNS, "end"]
# Rows of one batch of a tick: what is packed together is 60 of them, and must fit into memory.
_PART_ROWS = 1000
# Of a whole day: all of them are read for one target.
_DAY_ROWS = 4096
# A smaller batch takes the next tick's rows in, as it would be mostly a list of its columns.
_GROWING_BYTES = 48 * 1024
_NAMED_IN_A_QUERY = 200


class Minutes(Database):
    """Part of the store: minutes and their roll-ups."""

    def past(
        self,
        since: datetime,
        until: datetime,
        targets: Iterable[TargetKey] | None = None,
        columns: Collection[str] | None = None,
    ) -> pl.DataFrame:
        """Minutes that end in (since, until], and roll-ups where minutes are not stored any more.

        ``targets``: only these; None = all.

        Returns :data:`driftwatch.store.minute_columns.STORED_SCHEMA`, or these ``columns`` of it
        with instance, engine and end, and ``seconds`` (Float64: how long the row is, 60 or a
        roll-up's), by instance, engine and end.
        """
        with self._reading() as connection:
            own = self._own_rows(minute_batches)
            (rows,) = _parts(connection, since, until, targets, own, columns)
            return with_confirmed(rows, confirmed_settings(connection))

    def past_in_parts(
        self, since: datetime, until: datetime, columns: Collection[str], most: int
    ) -> Iterator[pl.DataFrame]:
        """The same of every target, some targets at a time: of ``most`` rows where batches allow.

        The store is being read until the last part was taken.
        """
        with self._reading() as connection:
            own = self._own_rows(minute_batches)
            confirmed = confirmed_settings(connection)
            for rows in _parts(connection, since, until, None, own, columns, most):
                yield with_confirmed(rows, confirmed)

    def confirmed_settings(self) -> list[ConfirmedSettings]:
        """What people confirmed that servers run since a restart, the oldest note first."""
        with self._reading() as connection:
            return confirmed_settings(connection)

    def minutes_reach(self) -> tuple[datetime, datetime] | None:
        """Start of the first stored row of any target and end of the last; None without any."""
        table = minute_batches
        query = select(func.min(table.c.since), func.max(table.c.until))
        with self._reading() as connection:
            first, last = connection.execute(query).one()
        return None if first is None else (first.astimezone(UTC), last.astimezone(UTC))

    def minutes_span(self, target: TargetKey) -> tuple[datetime, datetime] | None:
        """Start of the first stored row of a target and end of the last; None without any."""
        reach = self.minutes_reach()
        rows = None if reach is None else self.past(*reach, [target], ())
        if rows is None or rows.is_empty():
            return None
        return span(rows.head(1), int(rows["seconds"][0]))[0], span(rows)[1]


def write_minutes(connection: Connection, rows: pl.DataFrame, batch: int | None = None) -> None:
    """Add the minutes of one tick (:data:`STORED_SCHEMA`)."""
    if rows.is_empty():
        return
    first, last = span(rows)
    if last - first > 6 * HOUR:  # more than a service catches up: replayed, by day as it is packed
        day = (pl.col("end") - pl.duration(microseconds=1)).dt.truncate("1d")
        for part in rows.with_columns(day=day).partition_by("day", include_key=False):
            _insert(connection, once(part), _DAY_ROWS, PACKED, batch)
        return
    hours = rows.with_columns(
        hour=(pl.col("end") - pl.duration(microseconds=1)).dt.truncate("1h")
    ).partition_by("hour", include_key=False, maintain_order=True)
    for hour in hours:
        if hour.height < _PART_ROWS and _appended(connection, hour, batch):
            continue
        _insert(connection, once(hour), _PART_ROWS, AS_WRITTEN, batch)


def _insert(
    connection: Connection, rows: pl.DataFrame, most: int, packed: int, batch: int | None
) -> None:
    each = [batch_row(part, encode(part), packed, MINUTE, batch) for part in parts(rows, most)]
    connection.execute(insert(minute_batches), each)


def _appended(connection: Connection, rows: pl.DataFrame, batch: int | None) -> bool:
    """Whether the last batch took the rows in, as it was small and of the same hour."""
    own = select(minute_batches).where(of_batch(minute_batches, batch))
    newest = connection.execute(own.order_by(minute_batches.c.id.desc()).limit(1)).one_or_none()
    if newest is None or newest.packed != AS_WRITTEN or len(newest.frame) > _GROWING_BYTES:
        return False
    if not hour_of(newest.since) <= span(rows)[0] < hour_of(newest.since) + HOUR:
        return False
    together = once(pl.concat([decode(newest.frame, STORED_SCHEMA), rows]))
    values = batch_row(together, encode(together), AS_WRITTEN, MINUTE, batch)
    connection.execute(
        update(minute_batches).where(minute_batches.c.id == newest.id).values(**values)
    )
    return True


def batch_row(
    rows: pl.DataFrame, frame: bytes, packed: int, seconds: int, batch: int | None
) -> dict[str, object]:
    """The row of the table of sorted rows; ``frame``: their bytes."""
    since, until = span(rows, seconds)
    return {
        "since": since,
        "until": until,
        "seconds": seconds,
        "packed": packed,
        "first_instance": rows["instance"].min(),
        "last_instance": rows["instance"].max(),
        "frame": frame,
        "batch": batch,
    }


def once(rows: pl.DataFrame) -> pl.DataFrame:
    """Sorted by instance, engine and end; of two rows of one minute the later one."""
    return rows.unique(_KEY, keep="last", maintain_order=True).sort(_KEY)


def parts(rows: pl.DataFrame, most: int) -> Iterator[pl.DataFrame]:
    """Sorted rows in parts of at most so many."""
    return (rows.slice(first, most) for first in range(0, rows.height, most))


def span(rows: pl.DataFrame, seconds: int = MINUTE) -> tuple[datetime, datetime]:
    """Start of the first row and end of the last; there is one."""
    first, last = rows["end"].min(), rows["end"].max()
    assert isinstance(first, datetime) and isinstance(last, datetime)  # noqa: S101
    return first.astimezone(UTC) - timedelta(seconds=seconds), last.astimezone(UTC)


def hour_of(at: datetime) -> datetime:
    """Start of the hour."""
    return at.replace(minute=0, second=0, microsecond=0)


def _parts(
    connection: Connection,
    since: datetime,
    until: datetime,
    targets: Iterable[TargetKey] | None,
    own: ColumnElement[bool],
    columns: Collection[str] | None = None,
    most: float = math.inf,
) -> Iterator[pl.DataFrame]:
    """Rows of whole targets in order, at least one frame."""
    table, schema = minute_batches, STORED_SCHEMA
    if columns is not None:
        wanted = {*_KEY, *columns}
        schema = {name: dtype for name, dtype in STORED_SCHEMA.items() if name in wanted}
    query = select(
        *(table.c.seconds, table.c.packed, table.c.id, table.c.frame),
        *(table.c.since, table.c.until),
        *(table.c.first_instance, table.c.last_instance),
    ).where(own, table.c.until > since, table.c.since < until)
    named = None
    if targets is not None:
        keys = sorted(set(targets))
        named = keys_frame(keys)
        names = sorted({key.instance for key in keys})
        spans = [(name, name) for name in names]
        if len(names) > _NAMED_IN_A_QUERY:
            spans = [(names[0], names[-1])]
        query = query.where(
            or_(
                table.c.id < 0,  # of no target there is nothing
                *(and_(table.c.first_instance <= b, table.c.last_instance >= a) for a, b in spans),
            )
        )
    empty = pl.DataFrame(schema={**schema, "seconds": pl.Float64})
    # longer rows first: a minute counts more than the longer row that it lies in
    frames: dict[tuple[int, int, int], pl.DataFrame] = {}
    height, reach = 0, ""
    for batch in connection.execute(query.order_by(table.c.first_instance)):
        if height >= most and batch.first_instance > reach:
            yield _each_span_once(pl.concat(frames[at] for at in sorted(frames)))
            frames, height = {}, 0
        rows = decode(batch.frame, schema)
        if batch.since < since or batch.until > until:
            rows = rows.filter((pl.col("end") > since) & (pl.col("end") <= until))
        if named is not None:
            rows = rows.join(named, on=KEY_COLUMNS, how="semi", maintain_order="left")
        order = (-batch.seconds, -batch.packed, batch.id)
        frames[order] = rows.with_columns(seconds=pl.lit(float(batch.seconds)))
        height, reach = height + len(rows), max(reach, batch.last_instance)
    yield _each_span_once(pl.concat([empty, *(frames[at] for at in sorted(frames))]))


def _each_span_once(rows: pl.DataFrame) -> pl.DataFrame:
    """Every row once; two parts of one longer row added up."""
    if is_ordered(rows, _KEY, or_same=False):
        return rows
    rows = rows.sort(*_KEY, "seconds")
    again = pl.all_horizontal(pl.col(c) == pl.col(c).shift(1) for c in (*_KEY, "seconds"))
    if not rows.select(again.any()).item():
        return rows
    each = [once(rows.filter(pl.col("seconds") == MINUTE))]
    others = [pl.lit(None, t).alias(n) for n, t in STORED_SCHEMA.items() if n not in rows.columns]
    for seconds in rows["seconds"].filter(rows["seconds"] > MINUTE).unique().sort():
        longer = rows.filter(pl.col("seconds") == seconds).with_columns(others).sort(_KEY)
        longer = rolled_up(longer.select(*STORED_SCHEMA), int(seconds))
        each.append(longer.with_columns(seconds=pl.lit(float(seconds))).select(rows.columns))
    return pl.concat(each).sort(_KEY)
