"""The part of a database that people read and change. It loads no data frames: Polars takes as long
to import as everything else that ``driftwatch incidents`` needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from sqlite3 import Connection as Connection3
from types import TracebackType
from typing import Self

from sqlalchemy import Connection, delete, insert, select

from driftwatch.database_place import Place, SqliteFile, place_of
from driftwatch.store.actions import Actions, Silences
from driftwatch.store.database import (
    BUSY_SECONDS,
    named_failures,
    open_engine,
    reading,
    require_place,
)
from driftwatch.store.deliveries import Deliveries
from driftwatch.store.migrate import check_revision, schema_revision, upgrade
from driftwatch.store.sqlite import memory_engine, tick_lock
from driftwatch.store.tables import NO_BATCH, metadata
from driftwatch.store.tables import memory as memory_table


class IncidentStore(Actions, Deliveries, Silences):
    """Incidents, deliveries, silences and what people did, of one database.

    A method is one transaction unless it says otherwise.

    Use it as a context manager. Every method raises :class:`~driftwatch.errors.StoreError` with a
    ``code`` (locked, read-only, full, corrupt, ...) where the database does not serve; what was
    committed before is kept.
    """

    @classmethod
    def open(
        cls,
        database: str | Path | Place,
        *,
        migrate: bool = True,
        busy_seconds: float = BUSY_SECONDS,
        durable: bool = True,
    ) -> Self:
        """Open a database.

        ``database``: path of the SQLite file, or a URL as :func:`place_of` takes it; ``migrate``:
        make the file and bring the schema to this version; without it the database has to be there
        and to be of this version; ``busy_seconds``: how long to wait for another writer;
        ``durable``: a commit of a SQLite file outlives a power cut, which a replay need not.

        Raises StoreError: missing, foreign, corrupt, of another version, or it does not serve.
        """
        place = place_of(database)
        require_place(place, file_too=not migrate)
        engine = open_engine(place, busy_seconds=busy_seconds, durable=durable)
        try:
            with named_failures(place):
                if migrate:
                    upgrade(engine, place)
                else:
                    with reading(engine) as connection:
                        check_revision(schema_revision(connection, place), place)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, place)

    @classmethod
    def in_memory(cls) -> Self:
        """A new database of this version's schema, in memory until it is closed."""
        engine, keeper = memory_engine(BUSY_SECONDS)
        with engine.begin() as connection:
            metadata.create_all(connection)
        store = cls(engine, SqliteFile(Path("(in memory)")))
        store._keeper = keeper
        return store

    _keeper: Connection3 | None = None  # the connection that a database in memory lives by

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()
        if self._keeper is not None:
            self._keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def tick_lock(self) -> AbstractContextManager[None]:
        """Be the one process that ticks on this database, while the context lasts.

        On PostgreSQL any number of processes may; one in memory has no other process.

        Raises StoreError: ``in-use`` where another one is.
        """
        if self._keeper is None and isinstance(self.place, SqliteFile):
            return tick_lock(self.place.path)
        return nullcontext()

    def memory(self) -> dict[str, bytes]:
        """What the last tick wrote for the next one, by name."""
        query = select(memory_table).where(memory_table.c.batch == self._memory_of)
        return {row["name"]: row["value"] for row in self._all(query.order_by(memory_table.c.name))}

    @property
    def _memory_of(self) -> int:
        return NO_BATCH if self.batch is None else self.batch

    def _write_memory(self, connection: Connection, memory: Mapping[str, bytes]) -> None:
        if memory:
            table, of = memory_table.c, self._memory_of
            mine = (table.batch == of, table.name.in_(sorted(memory)))
            connection.execute(delete(memory_table).where(*mine))
            rows = [{"name": n, "batch": of, "value": v} for n, v in sorted(memory.items())]
            connection.execute(insert(memory_table), rows)
