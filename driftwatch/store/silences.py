"""Silences in the database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from driftwatch.documents import to_json
from driftwatch.errors import UsageError
from driftwatch.notify.silence import Matcher, Silence
from driftwatch.store.database import Database
from driftwatch.store.incidents import by_prefix
from driftwatch.store.tables import silences


class Silences(Database):
    """Part of the store: silences."""

    def add_silence(
        self, matchers: Sequence[Matcher], *, until: datetime, by: str, at: datetime, comment: str
    ) -> Silence:
        """Hold back pages that match, from ``at`` to ``until``; twice the same is one.

        Raises UsageError: it would end before it begins.
        """
        if until <= at:
            raise UsageError("a silence has to end after it begins")
        # not from a random source: a replayed command gives the same silence
        parts = [*(m.text for m in matchers), until.isoformat(), by, at.isoformat(), comment]
        id_ = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
        silence = Silence(
            id=id_,
            matchers=tuple(matchers),
            until=until,
            created_by=by,
            created_at=at,
            comment=comment,
        )
        with self._writing() as connection:
            same = select(silences.c.id).where(silences.c.id == id_)
            if connection.execute(same).first() is None:
                texts = to_json([[m.name, m.operator, m.value] for m in silence.matchers])
                connection.execute(insert(silences), [{**asdict(silence), "matchers": texts}])
        return silence

    def silences(self, at: datetime | None = None) -> list[Silence]:
        """Silences in force at a time (every one for None), the one that ends first first."""
        query = select(silences).order_by(silences.c.until, silences.c.id)
        with self._reading() as connection:
            every = [_silence(row) for row in connection.execute(query).mappings()]
        return [silence for silence in every if at is None or silence.active(at)]

    def expire_silence(self, id_prefix: str, at: datetime) -> Silence:
        """End a silence now.

        Raises UsageError: there is none, more than one, or it is over.
        """
        with self._writing() as connection:
            command = "driftwatch silence --list"
            silence = _silence(by_prefix(connection, silences, id_prefix, "a silence", command))
            if not silence.active(at):
                raise UsageError(f"silence {silence.id} is over already")
            query = update(silences).where(silences.c.id == silence.id)
            connection.execute(query.values(expired_at=at))
        return replace(silence, expired_at=at)


def _silence(row: Mapping[Any, Any]) -> Silence:
    matchers = tuple(Matcher(*parts) for parts in json.loads(row["matchers"]))
    return Silence(**{**row, "matchers": matchers})


def prune_silences(connection: Connection, before: datetime) -> None:
    """Delete what ended before a time."""
    connection.execute(delete(silences).where(silences.c.until < before))
