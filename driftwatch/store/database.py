"""A database that is open, whichever kind it is: its transactions, and its failures in words."""

from __future__ import annotations

import functools
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Executable,
    RowMapping,
    Table,
    or_,
    true,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from driftwatch.database_place import Place, PostgresPlace
from driftwatch.errors import StoreError
from driftwatch.store.postgres import (
    READ_OPTIONS,
    postgres_engine,
    postgres_failure,
    take_writer_lock,
)
from driftwatch.store.sqlite import require_file, sqlite_engine, sqlite_failure

BUSY_SECONDS = 10.0
_CONFLICTS = 2


def is_postgres(connection: Connection | Engine) -> bool:
    """Whether it is one of PostgreSQL."""
    return connection.dialect.name == "postgresql"


def require_place(place: Place, *, file_too: bool) -> None:
    """Check that the folder of a SQLite database, or the file too, is there.

    Raises StoreError: ``missing``.
    """
    if not isinstance(place, PostgresPlace):
        require_file(place.path, file_too=file_too)


def open_engine(
    place: Place, *, busy_seconds: float = BUSY_SECONDS, durable: bool = True
) -> Engine:
    """An engine for one database; connects to nothing yet.

    Raises StoreError: ``unsupported`` where the driver is not installed.
    """
    if isinstance(place, PostgresPlace):
        return postgres_engine(place, busy_seconds)
    return sqlite_engine(place.path, busy_seconds, durable=durable)


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection in a read transaction: one snapshot."""
    with engine.connect() as connection:
        if is_postgres(engine):
            connection = connection.execution_options(**READ_OPTIONS)
        with connection.begin():
            yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A connection in a write transaction, committed at the end or rolled back whole.

    One at a time: it waits for the one before, and reads what that wrote.
    """
    with engine.connect() as connection:
        connection = connection.execution_options(driftwatch_writes=True)
        with connection.begin():
            if is_postgres(engine):
                take_writer_lock(connection)
            yield connection


@contextmanager
def named_failures(place: Place) -> Iterator[None]:
    """Turn the database's failures into a StoreError that says what, where and what helps.

    Raises StoreError: with a ``code`` that says which.
    """
    try:
        yield
    except DBAPIError as error:
        raise _named(place, error.orig) from error
    except (sqlite3.Error, PoolTimeout) as error:
        raise _named(place, error) from error


def _named(place: Place, error: BaseException | None) -> StoreError:
    if isinstance(place, PostgresPlace):
        return postgres_failure(place, error)
    return sqlite_failure(place, error)


class Database:
    """A database that is open; its parts are the classes that make the :class:`Store`.

    ``engine``: of the database; ``place``: where it is.

    Attributes:
        batch: number of the batch whose part of the database this is; None: it is all of it.
    """

    def __init__(self, engine: Engine, place: Place, batch: int | None = None) -> None:
        self.place = place
        self.batch = batch
        self._engine = engine
        self._own = threading.local()  # the connection of a thread's one_transaction

    @contextmanager
    def one_transaction(self) -> Iterator[Connection]:
        """All that this thread reads and writes meanwhile is one write transaction, or nothing.

        So an action and what is kept of it are both there, and who asks inside whether it was done
        is asking after everybody else. One inside another is part of it.
        """
        outer = getattr(self._own, "connection", None)
        with self._writing() as connection:
            self._own.connection = connection
            try:
                yield connection
            finally:
                self._own.connection = outer

    def _own_rows(self, table: Table) -> ColumnElement[bool]:
        """Rows of the batch, and those of any batch; of no batch every row."""
        if self.batch is None:
            return true()
        return or_(table.c.batch == self.batch, table.c.batch.is_(None))

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        if (own := getattr(self._own, "connection", None)) is not None:
            yield own
            return
        with named_failures(self.place), reading(self._engine) as connection:
            yield connection

    def _all(self, query: Executable) -> Sequence[RowMapping]:
        with self._reading() as connection:
            return connection.execute(query).mappings().all()

    def _scalar(self, query: Executable, **bound: object) -> Any:
        with self._reading() as connection:
            return connection.execute(query, bound).scalar()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if (own := getattr(self._own, "connection", None)) is not None:
            yield own
            return
        with named_failures(self.place), writing(self._engine) as connection:
            yield connection


def of_batch(table: Table, batch: int | None) -> ColumnElement[bool]:
    """Rows of a batch, or of any."""
    return table.c.batch.is_(None) if batch is None else table.c.batch == batch


Method = TypeVar("Method", bound=Callable[..., Any])


def repeated_after_conflict(method: Method) -> Method:
    """A method of one write transaction, done again where PostgreSQL took it back for another.

    Nothing of such a transaction is kept, so doing it again is doing it once.
    """

    @functools.wraps(method)
    def repeated(*arguments: Any, **options: Any) -> Any:
        for _ in range(_CONFLICTS):
            try:
                return method(*arguments, **options)
            except StoreError as error:
                if error.code != "conflict":
                    raise
        return method(*arguments, **options)

    return cast(Method, repeated)


Id = TypeVar("Id")


def chunks(ids: Sequence[Id]) -> Iterator[Sequence[Id]]:
    """Ids in groups small enough for one ``IN (...)``."""
    return (ids[start : start + 500] for start in range(0, len(ids), 500))
