"""All of one database into another, empty one, in one transaction that is checked at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Table, func, insert, select, text

from driftwatch.database_place import Place, SqliteFile
from driftwatch.errors import StoreError
from driftwatch.store.database import (
    is_postgres,
    named_failures,
    open_engine,
    require_place,
    writing,
)
from driftwatch.store.lock import tick_lock
from driftwatch.store.members import SHARDS, shard_count
from driftwatch.store.migrate import check_revision, migrate, schema_revision, written_by
from driftwatch.store.partitions import PARTITIONED, make_days
from driftwatch.store.sqlite import use_write_ahead_log
from driftwatch.store.tables import leases, members, meta, metadata

# Who ticks on a database, and who upgraded it, is that database's own.
_OWN = (leases, members, meta)
_ROWS_AT_ONCE = 50
_UNTIMED = text(
    "SELECT set_config('statement_timeout', '0', true), "
    "set_config('idle_in_transaction_session_timeout', '0', true)"
)


@dataclass(frozen=True, slots=True)
class Content:
    """What a table holds."""

    rows: int
    digest: str  # SHA-256 of the rows in order of their key


def copy_database(
    source: Place, target: Place, progress: Callable[[float, float], None] | None = None
) -> dict[str, int]:
    """Copy every row; the target has all of them afterwards, or is as empty as before.

    Nobody can write to the source meanwhile. ``progress``: called with rows copied and all rows.

    Returns table → rows. Raises StoreError: ``in-use`` (a service runs on the source),
    ``not-empty``, older or newer schema, or one of the two does not serve.
    """
    if source == target:
        raise StoreError(f"{source} cannot be copied into itself", code="in-use")
    require_place(source, file_too=True)
    require_place(target, file_too=False)
    with _opened(source) as old, _emptied_on_failure(target), _opened(target) as new:
        if not is_postgres(new):
            with named_failures(target):
                use_write_ahead_log(new)
        with named_failures(source), _unused(source, old), writing(old) as reader:
            check_revision(schema_revision(reader, source), source, written_by(reader))
            _untimed(reader)
            with named_failures(target), writing(new) as writer:
                _untimed(writer)
                _make_empty(writer, target)
                return _copy(reader, writer, target, progress)


def _copy(
    reader: Connection,
    writer: Connection,
    target: Place,
    progress: Callable[[float, float], None] | None,
) -> dict[str, int]:
    tables = [table for table in metadata.sorted_tables if table not in _OWN]
    total = sum(_count(reader, table) for table in tables)
    done = 0
    contents: dict[str, Content] = {}
    for table in tables:

        def write(rows: Sequence[Mapping[Any, Any]], table: Table = table) -> None:
            nonlocal done
            if table in PARTITIONED:
                make_days(writer, table, {row["until"] for row in rows})
            writer.execute(insert(table), [dict(row) for row in rows])
            done += len(rows)
            if progress is not None:
                progress(done, total)

        contents[table.name] = _content(reader, table, write)
        if is_postgres(writer) and "id" in table.c and table.c.id.autoincrement is True:
            _set_sequence(writer, table)
    if (count := shard_count(reader)) is not None:
        writer.execute(insert(meta), [{"name": SHARDS, "value": str(count)}])
    for table in tables:
        if _content(writer, table) != contents[table.name]:
            raise StoreError(
                f"table {table.name} of {target} is not what was copied: nothing was kept",
                help_text="check both disks, then try again",
            )
    return {name: content.rows for name, content in contents.items()}


def _content(
    connection: Connection,
    table: Table,
    each: Callable[[Sequence[Mapping[Any, Any]]], None] = lambda rows: None,
) -> Content:
    """Count and digest of a table; ``each`` gets its rows, some at a time."""
    digest, count = hashlib.sha256(), 0
    query = select(table).order_by(*table.primary_key.columns)
    result = connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query)
    for rows in result.mappings().partitions():
        for row in rows:
            for value in row.values():
                part = _canonical(value)
                digest.update(b"%d:" % len(part) + part)
        count += len(rows)
        each(rows)
    return Content(count, digest.hexdigest())


def _canonical(value: object) -> bytes:
    if isinstance(value, bytes):
        return b"b" + value
    if isinstance(value, str):  # PostgreSQL holds no NUL
        return b"s" + value.replace("\0", "\ufffd").encode()
    return (value.isoformat() if isinstance(value, datetime) else repr(value)).encode()


def _make_empty(connection: Connection, place: Place) -> None:
    """This version's schema without a row.

    Raises StoreError: there are rows, or another schema.
    """
    revision = schema_revision(connection, place)
    if revision is None:
        migrate(connection)
        return
    check_revision(revision, place, written_by(connection))
    for table in metadata.sorted_tables:
        if table not in _OWN and connection.execute(select(table).limit(1)).first() is not None:
            raise StoreError(
                f"database {place} is not empty: table {table.name} has rows",
                code="not-empty",
                help_text="copy into a new database",
            )


def _count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def _set_sequence(connection: Connection, table: Table) -> None:
    """The next id comes after the copied ones."""
    highest = connection.execute(select(func.max(table.c.id))).scalar()
    if highest is not None:
        sequence = func.pg_get_serial_sequence(table.name, "id")
        connection.execute(select(func.setval(sequence, highest)))


def _untimed(connection: Connection) -> None:
    if is_postgres(connection):
        connection.execute(_UNTIMED)


@contextmanager
def _unused(place: Place, engine: Engine) -> Iterator[None]:
    """While no service runs on it.

    Raises StoreError: ``in-use``.
    """
    if isinstance(place, SqliteFile):
        with tick_lock(place.path):
            yield
        return
    with writing(engine) as connection:
        alive = select(leases.c.holder).where(leases.c.expires_at > func.now())
        holder = connection.execute(alive.limit(1)).scalar()
    if holder is not None:
        raise StoreError(
            f"database {place} is in use by driftwatch run ({holder})",
            code="in-use",
            help_text="stop it first",
        )
    yield


@contextmanager
def _opened(place: Place) -> Iterator[Engine]:
    engine = open_engine(place)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def _emptied_on_failure(target: Place) -> Iterator[None]:
    """A SQLite file that was not there before is not there after a failure."""
    path = target.path if isinstance(target, SqliteFile) else None
    new = path is not None and not path.exists()
    try:
        yield
    except BaseException:
        if new and path is not None:
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                path.with_name(name).unlink(missing_ok=True)
        raise
