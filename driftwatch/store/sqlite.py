"""SQLite as it has to be set up, and its failures in words.

Write-ahead log, ``synchronous=FULL`` (a committed page survives a power cut), foreign keys, a
busy time-out, and ``BEGIN IMMEDIATE`` for everything that writes: a plain ``BEGIN`` that reads
and then writes fails at once under contention, whatever the time-out says.

One process ticks on a file at a time: it holds an advisory lock on a file beside it. ``ack``,
``silence`` and ``incidents`` work beside it. The operating system gives the lock back when its
holder dies, however it dies. The file is left lying: taking it away would let two processes lock
two files of the same name. Do not put the database on a network file system: neither this lock nor
SQLite's own is reliable there.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import QueuePool

from driftwatch.errors import StoreError

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


def require_file(path: Path, *, file_too: bool) -> None:
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


def make_file(path: Path) -> None:
    """Make an empty file that its user alone can read, where there is none; -wal and -shm get the
    same mode. Where it cannot be made, the first statement fails with the reason.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def sqlite_engine(path: Path, busy_seconds: float, *, durable: bool = True) -> Engine:
    """An engine for one file; connects to nothing yet.

    A write transaction raises StoreError ``missing`` where the file is another than at first.
    """
    engine = create_engine(
        URL.create("sqlite", database=os.fspath(path)),
        connect_args={"timeout": busy_seconds, "check_same_thread": False},
        hide_parameters=True,
    )
    opened: list[os.stat_result] = []

    @event.listens_for(engine, "connect")
    def _opened(_connection: sqlite3.Connection, _record: object) -> None:
        if not opened:
            opened.append(path.stat())

    @event.listens_for(engine, "begin")
    def _still_there(connection: Connection) -> None:
        if connection.get_execution_options().get("driftwatch_writes", False):
            _require_same_file(path, opened[0])

    return _set_up(engine, durable=durable)


def _require_same_file(path: Path, opened: os.stat_result) -> None:
    """SQLite goes on writing into a file that was deleted, and all of it is lost at the end."""
    with suppress(OSError):
        if os.path.samestat(path.stat(), opened):
            return
    raise StoreError(
        f"database {path} was deleted or replaced while it was open",
        code="missing",
        help_text="put it back from a backup, or start anew without it: then restart this process",
    )


_NUMBERS = count()


def memory_engine(busy_seconds: float) -> tuple[Engine, sqlite3.Connection]:
    """An engine for a new database in memory, and the connection with which it ends."""
    # connections of one process share a memdb of one name, and lock it as they would a file
    name = f"file:/driftwatch-{next(_NUMBERS)}?vfs=memdb"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(name, timeout=busy_seconds, check_same_thread=False, uri=True)

    return _set_up(
        create_engine("sqlite://", creator=connect, poolclass=QueuePool, hide_parameters=True),
        durable=False,
    ), connect()


def _set_up(engine: Engine, *, durable: bool) -> Engine:
    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # BEGIN is ours, below
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
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


def sqlite_failure(place: object, error: BaseException | None) -> StoreError:
    """A failure of SQLite in words.

    ``place``: the database; ``error``: the driver's, a :class:`sqlite3.Error`.
    """
    number = getattr(error, "sqlite_errorcode", None)
    primary = None if number is None else number & 0xFF
    if primary in _FAILURES:
        code, words, help_text = _FAILURES[primary]
        return StoreError(f"database {place} {words}", code=code, help_text=help_text)
    return StoreError(f"database {place}: {error}", code="unusable")


def lock_path(database: Path) -> Path:
    """The lock file of a database: one for all names of the same file."""
    real = database.resolve()
    return real.with_name(real.name + ".lock")


@contextmanager
def tick_lock(database: Path) -> Iterator[None]:
    """Be the one process that ticks on this database.

    Raises StoreError: ``in-use`` where another one is; ``read-only`` where no file can be made.
    """
    path = lock_path(database)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be made: {error.strerror}",
            code="read-only",
            help_text="the folder of the database must be writable",
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
            raise StoreError(
                f"database {database} is in use by another driftwatch run"
                + (f" (process {holder})" if holder.isdigit() else ""),
                code="in-use",
                help_text="stop that one, or give this one its own database",
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
