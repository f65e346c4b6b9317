"""Advice and verifications in the database: who, when, and a JSON document each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, or_, select
from sqlalchemy.sql import Select

from driftwatch.documents import to_json
from driftwatch.model import TargetKey
from driftwatch.store.database import Database, chunks
from driftwatch.store.tables import advice, verifications
from driftwatch.verify.verification import VERIFICATION, Verification


@dataclass(frozen=True, slots=True)
class AdviceRow:
    """One whole answer."""

    id: str  # :func:`advice_id`
    instance: str  # of the target
    engine: str  # of it
    pool: str  # of it
    at: datetime  # end of the window
    document: Mapping[str, Any]  # the advice as JSON
    incident_id: str | None = None  # whose page carries it; None = nobody's


def advice_id(target: TargetKey, at: datetime, incident_id: str | None = None) -> str:
    """The id of the advice that was given to a target at a time, for an incident."""
    text = "\n".join([*target, at.astimezone(UTC).isoformat(), incident_id or ""])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class AdviceHistory(Database):
    """Part of the store: what was advised and what came of it."""

    def advices(
        self, since: datetime, until: datetime, key: TargetKey | None = None
    ) -> list[AdviceRow]:
        """Answers given in [since, until), in order of time; only of one target where ``key``."""
        query = _of(advice, key).where(advice.c.at >= since, advice.c.at < until)
        rows = self._all(query.order_by(advice.c.at, advice.c.id))
        return [AdviceRow(**{**row, "document": json.loads(row["document"])}) for row in rows]

    def verifications(
        self, since: datetime, until: datetime, key: TargetKey | None = None
    ) -> list[Verification]:
        """Verifications that were open in some of [since, until), in order of their opening."""
        closed_at = verifications.c.closed_at
        query = _of(verifications, key).where(
            verifications.c.opened_at < until, or_(closed_at.is_(None), closed_at >= since)
        )
        return self._verifications(query)

    def open_verifications(self) -> list[Verification]:
        """Verifications without a verdict, in order of their opening."""
        query = select(verifications).where(verifications.c.closed_at.is_(None))
        return self._verifications(query)

    def write_verification(self, one: Verification) -> None:
        """Keep a verification, in the place of the one with its id."""
        with self._writing() as connection:
            write_verifications(connection, [one])

    def _verifications(self, query: Select[Any]) -> list[Verification]:
        rows = self._all(query.order_by(verifications.c.opened_at, verifications.c.id))
        return [VERIFICATION.value(json.loads(row["document"])) for row in rows]


def write_advices(connection: Connection, rows: Iterable[AdviceRow]) -> None:
    """Answers, each in the place of the one with its id."""
    _put(connection, advice, ({**asdict(row), "document": dict(row.document)} for row in rows))


def write_verifications(connection: Connection, every: Iterable[Verification]) -> None:
    """Verifications, each in the place of the one with its id."""
    names = [column.name for column in verifications.c if column.name != "document"]
    _put(
        connection,
        verifications,
        (
            {**{name: getattr(one, name) for name in names}, "document": VERIFICATION.document(one)}
            for one in every
        ),
    )


def prune_advice(connection: Connection, before: datetime) -> None:
    """Delete what was given or closed before a time; an open verification stays."""
    connection.execute(delete(advice).where(advice.c.at < before))
    connection.execute(delete(verifications).where(verifications.c.closed_at < before))


def _put(connection: Connection, table: Table, rows: Iterable[dict[str, Any]]) -> None:
    last = {row["id"]: {**row, "document": to_json(row["document"])} for row in rows}
    for ids in chunks(sorted(last)):
        connection.execute(delete(table).where(table.c.id.in_(ids)))
    if last:
        connection.execute(insert(table), list(last.values()))


def _of(table: Table, key: TargetKey | None) -> Select[Any]:
    query = select(table)
    if key is None:
        return query
    return query.where(table.c.instance == key.instance, table.c.engine == key.engine)
