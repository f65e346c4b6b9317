"""Batches on PostgreSQL lie in one partition per day (UTC) of their end; old days are dropped.

``TABLE_20260301`` holds what ends on that day. ``TABLE_default`` takes what has no day: writes make
the day first, so it stays empty. On SQLite there is nothing to make, and old rows are deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Connection, Table, bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Text

from driftwatch.store.tables import gpu_batches, minute_batches, scrape_batches

PARTITIONED = (scrape_batches, gpu_batches, minute_batches)
_DAY = timedelta(days=1)
# DDL waits for readers, and whoever comes after waits for it: the next hour tries again
_QUICKLY = text("SELECT set_config('lock_timeout', '2s', true)")
_THERE = text(
    "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
    "WHERE i.inhparent = to_regclass(:parent)"
)
_EXIST = text(
    "SELECT relname FROM pg_class "
    "WHERE relname = ANY(:names) AND relnamespace = current_schema()::regnamespace"
).bindparams(bindparam("names", type_=ARRAY(Text)))


def make_days(connection: Connection, table: Table, ends: Iterable[datetime]) -> None:
    """Make the partitions of rows that end then, where they are missing.

    ``connection``: of a write transaction; ``table``: one of :data:`PARTITIONED`.
    """
    if connection.dialect.name != "postgresql":
        return
    days = {_name(table, day): day for day in (end.astimezone(UTC).date() for end in ends)}
    there = set(connection.execute(_EXIST, {"names": sorted(days)}).scalars())
    for name, day in sorted(days.items()):
        if name not in there:
            connection.execute(
                text(
                    f"CREATE TABLE {name} PARTITION OF {table.name} FOR VALUES "
                    f"FROM ('{day} 00:00+00') TO ('{day + _DAY} 00:00+00')"
                )
            )


def days_of(connection: Connection, table: Table) -> list[date]:
    """Days that have a partition, in order."""
    return sorted(day for _, day in _partitions(connection, table))


def prune_table(connection: Connection, table: Table, before: datetime) -> int:
    """Take away batches that end up to a time; says how many.

    On PostgreSQL whole days go: a batch stays until its day is over.
    """
    if connection.dialect.name != "postgresql":
        return connection.execute(delete(table).where(table.c.until <= before)).rowcount
    last = before.astimezone(UTC).date()
    old = [name for name, day in _partitions(connection, table) if day < last]
    if not old:
        return 0
    connection.execute(_QUICKLY)
    bound = datetime(last.year, last.month, last.day, tzinfo=UTC)
    count = select(func.count()).select_from(table).where(table.c.until < bound)
    rows = int(connection.execute(count).scalar_one())
    connection.execute(text(f"DROP TABLE {', '.join(sorted(old))}"))
    return rows


def _partitions(connection: Connection, table: Table) -> Iterator[tuple[str, date]]:
    for name in connection.execute(_THERE, {"parent": table.name}).scalars():
        match = re.fullmatch(rf"{table.name}_(\d{{4}})(\d\d)(\d\d)", name)
        if match is not None:
            yield name, date(*map(int, match.groups()))


def _name(table: Table, day: date) -> str:
    return f"{table.name}_{day.year:04}{day.month:02}{day.day:02}"
