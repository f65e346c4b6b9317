"""Forecasts that people ask for on the web, as documents with a state."""

from __future__ import annotations

import orjson
from sqlalchemy import delete, insert, select

from driftwatch.store.database import Database
from driftwatch.store.tables import memory

MOST_FORECASTS = 200
_FORECAST = "web.forecast."


class Forecasts(Database):
    """Part of the store: the newest forecasts."""

    def keep_forecast(self, forecast_id: str, document: bytes) -> None:
        """Keep a forecast under its id, in place of what is there; only the newest 200 stay.

        ``forecast_id``: in order of time.
        """
        name = f"{_FORECAST}{forecast_id}"
        names = select(memory.c.name).where(memory.c.name.startswith(_FORECAST, autoescape=True))
        with self._writing() as connection:
            connection.execute(delete(memory).where(memory.c.name == name))
            connection.execute(insert(memory), [{"name": name, "value": document}])
            stored_names = sorted(connection.execute(names).scalars())
            if old := stored_names[:-MOST_FORECASTS]:
                connection.execute(delete(memory).where(memory.c.name.in_(old)))

    def answer_forecast(self, forecast_id: str, document: bytes) -> bool:
        """Keep a forecast with its answer, once: False where none waits for one."""
        with self.one_transaction():
            if self.forecast_state(forecast_id) != "waiting":
                return False
            self.keep_forecast(forecast_id, document)
            return True

    def forecast_state(self, forecast_id: str) -> str | None:
        """How far it is; None: there is none."""
        document = self.forecast(forecast_id)
        return None if document is None else str(orjson.loads(document).get("state"))

    def forecast(self, forecast_id: str) -> bytes | None:
        """What :meth:`keep_forecast` kept; None: nothing, or not any more."""
        query = select(memory.c.value).where(memory.c.name == f"{_FORECAST}{forecast_id}")
        with self._reading() as connection:
            value = connection.execute(query).scalar()
            return None if value is None else bytes(value)
