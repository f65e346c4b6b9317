"""Calibrations, advice and verifications in the database: who, when, and a JSON document each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Column, Connection, Table, delete, insert, or_, select
from sqlalchemy.sql import Select

from driftwatch.documents import to_json
from driftwatch.model import TargetKey
from driftwatch.store.rows import chunks
from driftwatch.store.tables import advice, calibrations, verifications
from driftwatch.store.transactions import Transactions


@dataclass(frozen=True, slots=True)
class KeptCalibration:
    """The laws of one engine at one time.

    Attributes:
        instance: of the target.
        engine: of it.
        at: end of the window.
        document: as :mod:`driftwatch.recommend.calibration.fits` writes it.
    """

    instance: str
    engine: str
    at: datetime
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeptAdvice:
    """One whole answer.

    Attributes:
        id: :func:`advice_id`.
        instance: of the target.
        engine: of it.
        pool: of it.
        at: end of the window.
        document: as :mod:`driftwatch.recommend.documents` writes it.
        incident_id: whose page carries it; None = nobody's.
    """

    id: str
    instance: str
    engine: str
    pool: str
    at: datetime
    document: Mapping[str, Any]
    incident_id: str | None = None


@dataclass(frozen=True, slots=True)
class KeptVerification:
    """A change, and what came of it.

    Attributes:
        id: of the verification.
        instance: of the target that changed.
        engine: of it.
        pool: of it.
        opened_at: when it was noticed.
        verdict: open, PASS, FAIL or INCONCLUSIVE.
        document: the verification as JSON.
        closed_at: when the verdict fell; None while it is open.
        incident_id: whose page had advised the change; None = none.
    """

    id: str
    instance: str
    engine: str
    pool: str
    opened_at: datetime
    verdict: str
    document: Mapping[str, Any]
    closed_at: datetime | None = None
    incident_id: str | None = None


def advice_id(target: TargetKey, at: datetime, incident_id: str | None = None) -> str:
    """The id of the advice that was given to a target at a time, for an incident."""
    said = "\n".join([*target, at.astimezone(UTC).isoformat(), incident_id or ""])
    return hashlib.sha256(said.encode()).hexdigest()[:12]


class Advised(Transactions):
    """Part of the store: what was advised and what came of it. A method is one transaction."""

    def write_calibration(self, kept: KeptCalibration) -> None:
        """Keep a calibration, in the place of one of the same target and time."""
        with self._writing() as connection:
            write_calibrations(connection, [kept])

    def calibration(
        self, target: TargetKey, until: datetime | None = None
    ) -> KeptCalibration | None:
        """The newest calibration of a target; None without one.

        Args:
            target: whose.
            until: the newest whose window ends then or before; None = of all.
        """
        table = calibrations
        query = select(table).where(
            table.c.instance == target.instance, table.c.engine == target.engine
        )
        if until is not None:
            query = query.where(table.c.at <= until)
        with self._reading() as connection:
            found = _read(connection, query.order_by(table.c.at.desc()).limit(1))
            return KeptCalibration(**found[0]) if found else None

    def write_advice(self, kept: KeptAdvice) -> None:
        """Keep an answer, in the place of the one with its id."""
        with self._writing() as connection:
            write_advices(connection, [kept])

    def advices(
        self, since: datetime, until: datetime, key: TargetKey | None = None
    ) -> list[KeptAdvice]:
        """Answers given in [since, until), in order of time.

        Args:
            since: first time.
            until: end, itself not in it.
            key: only of this target; None = of all.
        """
        query = _of(advice, key).where(advice.c.at >= since, advice.c.at < until)
        with self._reading() as connection:
            rows = _read(connection, query.order_by(advice.c.at, advice.c.id))
            return [KeptAdvice(**row) for row in rows]

    def advices_of(self, incident_id: str) -> list[KeptAdvice]:
        """Answers given for an incident, in order of time."""
        query = select(advice).where(advice.c.incident_id == incident_id)
        with self._reading() as connection:
            rows = _read(connection, query.order_by(advice.c.at, advice.c.id))
            return [KeptAdvice(**row) for row in rows]

    def write_verification(self, kept: KeptVerification) -> None:
        """Keep a verification, in the place of the one with its id."""
        with self._writing() as connection:
            write_verifications(connection, [kept])

    def verifications(
        self, since: datetime, until: datetime, key: TargetKey | None = None
    ) -> list[KeptVerification]:
        """Verifications that were open in some of [since, until), in order of their opening.

        Args:
            since: first time; what closed then or later, or is open still, is told.
            until: end; what opened then or later is not told.
            key: only of this target; None = of all.
        """
        table = verifications
        query = _of(table, key).where(
            table.c.opened_at < until,
            or_(table.c.closed_at.is_(None), table.c.closed_at >= since),
        )
        with self._reading() as connection:
            rows = _read(connection, query.order_by(table.c.opened_at, table.c.id))
            return [KeptVerification(**row) for row in rows]

    def open_verifications(self) -> list[KeptVerification]:
        """Verifications without a verdict, in order of their opening."""
        table = verifications
        query = select(table).where(table.c.closed_at.is_(None))
        with self._reading() as connection:
            rows = _read(connection, query.order_by(table.c.opened_at, table.c.id))
            return [KeptVerification(**row) for row in rows]

    def verifications_of(self, incident_id: str) -> list[KeptVerification]:
        """Verifications of a change that an incident's page had advised."""
        table = verifications
        query = select(table).where(table.c.incident_id == incident_id)
        with self._reading() as connection:
            rows = _read(connection, query.order_by(table.c.opened_at, table.c.id))
            return [KeptVerification(**row) for row in rows]


def write_calibrations(connection: Connection, kept: Iterable[KeptCalibration]) -> None:
    """Calibrations, each in the place of one of the same target and time."""
    for one in kept:
        table = calibrations
        connection.execute(
            delete(table).where(
                table.c.instance == one.instance,
                table.c.engine == one.engine,
                table.c.at == one.at,
            )
        )
        connection.execute(insert(table), [_row(one)])


def write_advices(connection: Connection, kept: Iterable[KeptAdvice]) -> None:
    """Answers, each in the place of the one with its id."""
    _put(connection, advice, advice.c.id, [_row(one) for one in kept])


def write_verifications(connection: Connection, kept: Iterable[KeptVerification]) -> None:
    """Verifications, each in the place of the one with its id."""
    _put(connection, verifications, verifications.c.id, [_row(one) for one in kept])


def prune(connection: Connection, before: datetime) -> None:
    """Delete what was told before a time; an open verification stays."""
    connection.execute(delete(calibrations).where(calibrations.c.at < before))
    connection.execute(delete(advice).where(advice.c.at < before))
    connection.execute(delete(verifications).where(verifications.c.closed_at < before))


def _put(
    connection: Connection, table: Table, id_column: Column[Any], rows: list[dict[str, Any]]
) -> None:
    last = {row["id"]: row for row in rows}
    for ids in chunks(sorted(last)):
        connection.execute(delete(table).where(id_column.in_(ids)))
    if last:
        connection.execute(insert(table), list(last.values()))


def _of(table: Table, key: TargetKey | None) -> Select[Any]:
    query = select(table)
    if key is None:
        return query
    return query.where(table.c.instance == key.instance, table.c.engine == key.engine)


def _read(connection: Connection, query: Select[Any]) -> list[dict[str, Any]]:
    rows = connection.execute(query).mappings()
    return [{**row, "document": json.loads(row["document"])} for row in rows]


def _row(kept: KeptCalibration | KeptAdvice | KeptVerification) -> dict[str, Any]:
    row = {field.name: getattr(kept, field.name) for field in fields(kept)}
    return {**row, "document": to_json(dict(kept.document))}
