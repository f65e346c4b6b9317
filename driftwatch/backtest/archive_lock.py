"""One process at a time computes the evidence of a folder; others wait for it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftwatch.errors import UsageError

_LOCK = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the one that writes there; what one that was killed left half written is removed.

    Raises UsageError: the folder or a file in it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            _remove_halves(folder)
            yield
        finally:
            os.close(handle)
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder}: {error.strerror or error}",
            help_text="--keep names another folder for evidence",
        ) from error


def _remove_halves(folder: Path) -> None:
    for path in folder.glob("*.new"):
        path.unlink()
    for path in folder.glob("*.parts"):
        shutil.rmtree(path, ignore_errors=True)
