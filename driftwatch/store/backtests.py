"""The result of the last backtest of the database, for the pages of rules."""

from __future__ import annotations

import orjson
from sqlalchemy import delete, insert, select

from driftwatch.store.database import Database
from driftwatch.store.tables import memory

_RESULT = "rules.backtest"


class Backtests(Database):
    """Part of the store: what the last backtest said of each rule."""

    def keep_backtest(self, document: bytes) -> None:
        """Keep a result in place of the one before, where that was not made later.

        ``document``: JSON, with its time as ``at``.
        """
        with self.one_transaction() as connection:
            before = self.last_backtest()
            if before is not None and _time_of(before) > _time_of(document):
                return
            connection.execute(delete(memory).where(memory.c.name == _RESULT))
            connection.execute(insert(memory), [{"name": _RESULT, "value": document}])

    def last_backtest(self) -> bytes | None:
        """What :meth:`keep_backtest` kept; None where nothing was."""
        query = select(memory.c.value).where(memory.c.name == _RESULT)
        with self._reading() as connection:
            value = connection.execute(query).scalar()
            return None if value is None else bytes(value)


def _time_of(document: bytes) -> str:
    return str(orjson.loads(document)["at"])
