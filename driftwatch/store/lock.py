"""One ticking process per database: an advisory lock on a file beside it.

Only ``driftwatch run`` takes it; ``ack``, ``silence`` and ``incidents`` work beside it. The
operating system gives the lock back when its holder dies, however it dies. The file is left
lying: taking it away would let two processes lock two files of the same name. Do not put the
database on a network file system: neither this lock nor SQLite's own is reliable there.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftwatch.errors import StoreError


def lock_path(database: Path) -> Path:
    """Where the lock file of a database lies; other names of the same file lead to the same."""
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
