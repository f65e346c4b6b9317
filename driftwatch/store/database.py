"""SQLite as it has to be set up, and its failures in words.

Write-ahead log, ``synchronous=FULL`` (a committed page survives a power cut), foreign keys, a
busy time-out, and ``BEGIN IMMEDIATE`` for everything that writes: a plain ``BEGIN`` that reads
and then writes fails at once under contention, whatever the time-out says.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from driftwatch.errors import StoreError

BUSY_SECONDS = 10.0

# primary result code → (code of the StoreError, what happened, what helps)
_FAILURES: dict[int, tuple[str, str, str | None]] = {
    sqlite3.SQLITE_BUSY: (
        "locked",
        "is locked by another process",
        "try again; if it stays locked, look for a backup or a shell that holds it open",
    ),
    sqlite3.SQLITE_LOCKED: ("locked", "is locked by another connection", "try again"),
    sqlite3.SQLITE_READONLY: (
        "read-only",
        "is read-only",
        "the folder and the file, its -wal and its -shm must be writable for this user",
    ),
    sqlite3.SQLITE_PERM: ("read-only", "may not be accessed", "check owner and mode"),
    sqlite3.SQLITE_CANTOPEN: (
        "unusable",
        "cannot be opened",
        "check that it is a file and that this user may read and write it and its folder",
    ),
    sqlite3.SQLITE_FULL: (
        "full",
        "cannot grow: the disk is full",
        "free space; nothing of this transaction was kept, everything before it was",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "corrupt",
        "is corrupt",
        "move it away and restore a backup, or start with a new one",
    ),
    sqlite3.SQLITE_NOTADB: ("corrupt", "is not a SQLite database", "check the path"),
    sqlite3.SQLITE_IOERR: ("unusable", "met an I/O error", "check the disk and the file system"),
}


def database_path(path_or_url: str | Path) -> Path:
    """The file that a path or a ``sqlite:///`` URL means.

    Raises StoreError: it means another kind of database.
    """
    text = str(path_or_url)
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    elif "://" in text:
        # the URL may hold a password: name only what stands before it
        raise StoreError(
            f"databases of kind {text.split('://', 1)[0]!r} are not supported by this version",
            code="unsupported",
            help_text="give the path of a SQLite file",
        )
    if not text or text == ":memory:":
        raise StoreError(
            f"{text!r} is not a file: incidents have to outlive the process", code="unsupported"
        )
    return Path(text)


def require_place(path: Path, *, file_too: bool) -> None:
    """Check that the folder of a database, or the file too, is there.

    Raises StoreError: ``missing``.
    """
    if not path.parent.is_dir():
        raise StoreError(
            f"the folder of the database {path} does not exist",
            code="missing",
            help_text=f"make it: mkdir -p {path.parent}",
        )
    if file_too and not path.exists():
        raise StoreError(
            f"there is no database {path}",
            code="missing",
            help_text="name it with --db FILE or -c CONFIG; driftwatch run makes one, "
            f"and so does: driftwatch db upgrade --db {path}",
        )


def open_engine(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """An engine for one SQLite file; connects to nothing yet."""
    engine = create_engine(
        URL.create("sqlite", database=os.fspath(path)),
        connect_args={"timeout": busy_seconds, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # BEGIN is ours, below
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("driftwatch_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def use_write_ahead_log(engine: Engine) -> None:
    """Switch the file to the write-ahead log; it stays so."""
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        mode = cursor.execute("PRAGMA journal_mode").fetchone()[0]
        if mode != "wal":
            cursor.execute("PRAGMA journal_mode = WAL")
        cursor.close()
    finally:
        raw.close()


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection in a read transaction: one snapshot."""
    with engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A connection in a write transaction, committed at the end or rolled back whole."""
    with engine.connect() as connection:
        connection = connection.execution_options(driftwatch_writes=True)
        with connection.begin():
            yield connection


@contextmanager
def named_failures(path: Path) -> Iterator[None]:
    """Turn the database's failures into a StoreError that says what, where and what helps.

    Raises StoreError: with ``code`` locked, read-only, full, corrupt or unusable.
    """
    try:
        yield
    except DBAPIError as error:
        raise _named(path, error.orig) from error
    except sqlite3.Error as error:
        raise _named(path, error) from error


def _named(path: Path, error: Any) -> StoreError:
    number = getattr(error, "sqlite_errorcode", None)
    primary = None if number is None else number & 0xFF
    if primary in _FAILURES:
        code, words, help_text = _FAILURES[primary]
        return StoreError(f"database {path} {words}", code=code, help_text=help_text)
    return StoreError(f"database {path}: {error}", code="unusable")


class Database:
    """A database that is open; its parts are the classes that make the :class:`Store`.

    ``engine``: of the file; ``path``: the file, for messages.
    """

    def __init__(self, engine: Engine, path: Path) -> None:
        self.path = path
        self._engine = engine

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with named_failures(self.path), reading(self._engine) as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with named_failures(self.path), writing(self._engine) as connection:
            yield connection


def chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Ids in groups small enough for one ``IN (...)``."""
    return (ids[start : start + 500] for start in range(0, len(ids), 500))
