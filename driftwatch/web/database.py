"""Connections of the web: reading can write nothing; what is wrong with the database is an error
of the one request.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
from sqlalchemy import event, func, select

from driftwatch.database_place import Place
from driftwatch.errors import StoreError
from driftwatch.store.database import (
    is_postgres,
    named_failures,
    open_engine,
    reading,
    require_place,
)
from driftwatch.store.frames import Schema, decode
from driftwatch.store.migrate import check_revision, schema_revision, written_by
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store
from driftwatch.store.tables import minute_batches
from driftwatch.web.listed_incidents import ListedIncidents
from driftwatch.web.report_archive import KeptReports
from driftwatch.web.target_rows import TargetRows

if TYPE_CHECKING:
    from sqlite3 import Connection as SqliteConnection

# who waits for a page waits no longer than this for another's transaction
BUSY_SECONDS = 2.0

# a batch of minutes and its end: the same ones have the same rows
Batch = tuple[int, datetime]


class WebStore(Store, ListedIncidents, TargetRows, KeptReports):
    """The store with what only pages ask of it: bounded lists, counts, the newest minutes."""

    def newest_minutes(
        self, length: timedelta, schema: Schema, decoded: Mapping[Batch, pl.DataFrame]
    ) -> dict[Batch, pl.DataFrame]:
        """The minutes of the last ``length`` before the newest one, batch by batch.

        ``schema``: the columns wanted; ``decoded``: batches that are read already.
        """
        table = minute_batches.c
        minutes = table.seconds == MINUTE
        with self._reading() as connection:
            newest = connection.execute(select(func.max(table.until)).where(minutes)).scalar()
            if newest is None:
                return {}
            since = newest.astimezone(UTC) - length
            query = select(table.id, table.until).where(minutes, table.until > since)
            frames = {}
            for id_, until in connection.execute(query.order_by(table.id)).all():
                key = id_, until.astimezone(UTC)
                frame = decoded.get(key)
                if frame is None:
                    one = connection.execute(select(table.frame).where(table.id == id_))
                    frame = decode(one.scalar_one(), schema).filter(pl.col("end") > since)
                frames[key] = frame
        return frames


class WebDatabase:
    """One database, opened when it is first needed and again after it failed."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._opening = threading.Lock()
        self._stores: dict[bool, WebStore] = {}

    def reader(self) -> WebStore:
        """A store whose connections refuse to write.

        Raises StoreError: missing, of another version, locked, or it does not serve.
        """
        return self._open(writes=False)

    def writer(self) -> WebStore:
        """A store for what people do; errors as of :meth:`reader`."""
        return self._open(writes=True)

    def failed(self) -> None:
        """Open anew with the next request: the database may have been replaced or upgraded."""
        with self._opening:
            for store in self._stores.values():
                store.close()
            self._stores = {}

    close = failed

    def _open(self, *, writes: bool) -> WebStore:
        with self._opening:
            if writes not in self._stores:
                self._stores[writes] = _opened(self.place, writes=writes)
            return self._stores[writes]


def _opened(place: Place, *, writes: bool) -> WebStore:
    require_place(place, file_too=True)
    engine = open_engine(place, busy_seconds=BUSY_SECONDS)
    if not writes and not is_postgres(engine):

        @event.listens_for(engine, "connect")
        def _only_read(connection: SqliteConnection, _record: object) -> None:
            connection.execute("PRAGMA query_only = ON").close()

    try:
        with named_failures(place), reading(engine) as connection:
            check_revision(schema_revision(connection, place), place, written_by(connection))
    except StoreError:
        engine.dispose()
        raise
    return WebStore(engine, place)
