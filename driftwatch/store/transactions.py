"""One database and its transactions, for the classes that :class:`~driftwatch.store.Store` is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine

from driftwatch.store.sqlite import named_failures, reading, writing


class Transactions:
    """A database that is open.

    Args:
        engine: of the file.
        path: the file, for messages.
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
