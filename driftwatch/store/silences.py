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
from driftwatch.incidents.silence import Silence
from driftwatch.matchers import Matcher
from driftwatch.store.database import Database
from driftwatch.store.incidents import by_prefix
from driftwatch.store.tables import silences


class Silences(Database):
    """Part of the store: silences."""

    def add_silence(
        self,
        matchers: Sequence[Matcher],
        *,
        until: datetime,
        by: str,
        at: datetime,
        comment: str,
        starts_at: datetime | None = None,
    ) -> Silence:
        """Hold back pages that match, from ``starts_at`` to ``until``; twice the same is one.

        ``starts_at``: None = ``at``, now.

        Raises UsageError: it would end before it begins.
        """
        begins = at if starts_at is None else max(at, starts_at)
        if until <= begins:
            raise UsageError("a silence has to end after it begins")
        # not from a random source: a replayed command gives the same silence
        times = [until.isoformat(), by, at.isoformat(), comment]
        later = [] if begins == at else [begins.isoformat()]
        parts = [*(m.text for m in matchers), *times, *later]
        id_ = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
        silence = Silence(
            id=id_,
            matchers=tuple(matchers),
            until=until,
            created_by=by,
            created_at=at,
            starts_at=begins,
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
        every = map(_silence, self._all(query))
        return [silence for silence in every if at is None or silence.active(at)]

    def expire_silence(self, id_prefix: str, at: datetime) -> Silence:
        """End a silence now.

        Raises UsageError: there is none, more than one, or it is over.
        """
        with self._writing() as connection:
            command = "driftwatch silence --list"
            silence = _silence(by_prefix(connection, silences, id_prefix, "a silence", command))
            if at >= silence.ends_at:
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
