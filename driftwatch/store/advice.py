"""Advice, verifications and weekly reports in the database: a JSON document each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table, delete, insert, or_, select
from sqlalchemy.sql import Select

from driftwatch.documents import Document, to_json
from driftwatch.errors import DocumentError
from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.model import TargetKey
from driftwatch.store.database import Database, chunks
from driftwatch.store.planned import write_deliveries
from driftwatch.store.tables import advice, deliveries, reports, verifications
from driftwatch.verify.verification import Verification

if TYPE_CHECKING:
    from driftwatch.recommend.advice import Answer


@dataclass(frozen=True, slots=True)
class AdviceRow:
    """One whole answer to a question about a server."""

    id: str  # :func:`advice_id`
    instance: str  # of the target
    engine: str  # of it
    pool: str  # of it
    at: datetime  # end of the window
    answer: Answer
    incident_id: str | None = None  # whose page carries it; None = nobody's


def advice_id(target: TargetKey, at: datetime, incident_id: str | None = None) -> str:
    """The id of the advice that was given to a target at a time, for an incident."""
    text = "\n".join([*target, at.astimezone(UTC).isoformat(), incident_id or ""])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class AdviceHistory(Database):
    """Part of the store: what was advised and what came of it; weekly reports."""

    def advices(
        self, since: datetime, until: datetime, key: TargetKey | None = None
    ) -> list[AdviceRow]:
        """Answers given in [since, until), in order of time; only of one target where ``key``.

        Answers in the form of an earlier version are left out.
        """
        from driftwatch.recommend.advice import Answer  # loads what simulates

        query = _of(advice, key).where(advice.c.at >= since, advice.c.at < until)
        rows = self._all(query.order_by(advice.c.at, advice.c.id))
        found = []
        for row in rows:
            about = {name: value for name, value in row.items() if name != "document"}
            with suppress(DocumentError):
                found.append(AdviceRow(**about, answer=Answer.read(row["document"])))
        return found

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
        return [Verification.read(row["document"]) for row in rows]

    def write_report(
        self, week: str, document: Mapping[str, Any], receivers: Iterable[str], at: datetime
    ) -> bool:
        """Keep a week's report and plan who is sent it; the first one of a week stays.

        ``week``: as ISO 8601 names it: ``2026-W47``; ``document``: the report as JSON;
        ``receivers``: names of those who are to be sent it, now; ``at``: when it was made.

        Returns False where the week has its report: nothing is written and nothing is sent again.
        """
        with self._writing() as connection:
            same = select(reports.c.week).where(reports.c.week == week)
            if connection.execute(same).first() is not None:
                return False
            row = {"week": week, "made_at": at, "document": to_json(dict(document))}
            connection.execute(insert(reports), [row])
            planned = [
                PlannedDelivery(
                    subject=week,
                    event="report",
                    receiver=name,
                    payload=dict(document),
                    planned_at=at,
                    kind="report",
                )
                for name in sorted(set(receivers))
            ]
            write_deliveries(connection, planned)
            return True

    def report_weeks(self) -> list[str]:
        """The weeks that have a report, in order."""
        return [row["week"] for row in self._all(select(reports.c.week).order_by(reports.c.week))]

    def report(self, week: str) -> dict[str, Any] | None:
        """The document of a week as it was made; None without one."""
        document = self._scalar(select(reports.c.document).where(reports.c.week == week))
        return None if document is None else dict(json.loads(document))


def write_advices(connection: Connection, rows: Iterable[AdviceRow]) -> None:
    """Answers, each in the place of the one with its id."""
    names = [column.name for column in advice.c if column.name != "document"]
    _put(connection, advice, names, ((row, row.answer) for row in rows))


def write_verifications(connection: Connection, every: Iterable[Verification]) -> None:
    """Verifications, each in the place of the one with its id."""
    names = [column.name for column in verifications.c if column.name != "document"]
    _put(connection, verifications, names, ((one, one) for one in every))


def prune_advice(connection: Connection, before: datetime) -> None:
    """Delete what was given or closed before a time; an open verification stays."""
    connection.execute(delete(advice).where(advice.c.at < before))
    connection.execute(delete(verifications).where(verifications.c.closed_at < before))


def prune_reports(connection: Connection, before: datetime) -> None:
    """Delete reports that were made before a time, with their deliveries."""
    weeks = select(reports.c.week).where(reports.c.made_at < before)
    connection.execute(
        delete(deliveries).where(deliveries.c.kind == "report", deliveries.c.subject.in_(weeks))
    )
    connection.execute(delete(reports).where(reports.c.made_at < before))


def _put(
    connection: Connection,
    table: Table,
    names: Sequence[str],
    pairs: Iterable[tuple[Any, Document]],
) -> None:
    """``pairs``: what has the columns of ``names``, and its document."""
    last = {
        one.id: {**{name: getattr(one, name) for name in names}, "document": document.text()}
        for one, document in pairs
    }
    for ids in chunks(sorted(last)):
        connection.execute(delete(table).where(table.c.id.in_(ids)))
    if last:
        connection.execute(insert(table), list(last.values()))


def _of(table: Table, key: TargetKey | None) -> Select[Any]:
    query = select(table)
    if key is None:
        return query
    return query.where(table.c.instance == key.instance, table.c.engine == key.engine)
