"""Baselines in force and retired, references of detectors, advice, verifications and weekly
reports: a JSON document each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table, bindparam, delete, insert, or_, select, update
from sqlalchemy.sql import Select

from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.documents import Document, to_json
from driftwatch.errors import DocumentError, StoreError
from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.model import KnobMove, TargetKey
from driftwatch.store.database import Database, chunks
from driftwatch.store.planned import write_deliveries
from driftwatch.store.progress import batch_of
from driftwatch.store.tables import advice, batches, deliveries, reports, verifications
from driftwatch.store.tables import baselines as kept_baselines
from driftwatch.store.tables import references as kept_references
from driftwatch.verify.verification import Verification

if TYPE_CHECKING:
    from driftwatch.detect.references import Place, Reference
    from driftwatch.recommend.advice import Answer


_accepted, _learnt = kept_baselines.c, kept_references.c
_COLUMNS = ("id", "scope", "instance", "engine", "pool", "accepted_at", "accepted_by")


class History(Database):
    """Part of the store: baselines, references, advice, verifications, reports."""

    def baselines(self) -> Baselines:
        """Those in force, in order of acceptance.

        Raises StoreError: one of them cannot be read; the others are no excuse.
        """
        return Baselines(tuple(map(baseline_of, self._all(in_force()))))

    def baselines_ever(self) -> list[tuple[Baseline, datetime | None]]:
        """All that ever were, with when another one took its place; None = it is in force."""
        rows = self._all(select(kept_baselines).order_by(_accepted.accepted_at, _accepted.id))
        return [(baseline_of(row), row["retired_at"]) for row in rows]

    def baselines_in_force(self) -> tuple[str, ...]:
        """Their ids and when they were accepted: another answer means they changed."""
        return tuple(f"{r['id']} {r['accepted_at'].isoformat()}" for r in self._all(in_force()))

    def add_baselines(self, baselines: Iterable[Baseline]) -> None:
        """Put them in force, all or none; the baseline before of the same target or pool retires.

        An id is a hash of the target or pool and the window.
        """
        new = {(one.scope, one.subject): one for one in baselines}  # of two the later one
        with self._writing() as connection:
            for row in connection.execute(in_force()).all():
                subject = row.pool
                if row.instance is not None:
                    subject = TargetKey(row.instance, row.engine).text
                if (by := new.get((row.scope, subject))) is not None:
                    of = update(kept_baselines).where(_accepted.id == row.id)
                    connection.execute(of.values(retired_at=by.accepted_at))
            for ids in chunks([one.id for one in new.values()]):
                connection.execute(delete(kept_baselines).where(_accepted.id.in_(ids)))
            if new:
                connection.execute(insert(kept_baselines), [_row(one) for one in new.values()])

    def references(self) -> list[Reference]:
        """Those that hold, by kind, pool and target; of a batch those of its pools."""
        from driftwatch.detect.references import KINDS, Reference

        query = select(kept_references).order_by(
            _learnt.kind,
            _learnt.pool,
            _learnt.instance,
            _learnt.engine,
        )
        with self._reading() as connection:
            if self.batch is not None:
                of = len(connection.execute(select(batches.c.number)).all())
                pools = connection.execute(select(_learnt.pool).distinct()).scalars()
                own = [pool for pool in pools if batch_of(pool, of or 1) == self.batch]
                query = query.where(_learnt.pool.in_(own))
            return [
                Reference(
                    pool=row.pool,
                    key=None if row.instance is None else TargetKey(row.instance, row.engine),
                    learnt_at=row.learnt_at.astimezone(UTC),
                    document=KINDS[row.kind].model_validate_json(row.document),
                )
                for row in connection.execute(query)
            ]

    def advices(self, since: datetime, until: datetime) -> list[TargetAdvice]:
        """Answers given in [since, until), in order of time.

        Answers in the form of an earlier version are left out.
        """
        from driftwatch.recommend.advice import Answer  # loads what simulates

        query = select(advice).where(advice.c.at >= since, advice.c.at < until)
        rows = self._all(query.order_by(advice.c.at, advice.c.id))
        found = []
        for row in rows:
            about = (TargetKey(row["instance"], row["engine"]), row["pool"], row["at"])
            with suppress(DocumentError):
                answer = Answer.read(row["document"])
                found.append(TargetAdvice(*about, answer, row["incident_id"]))
        return found

    def verifications(self, since: datetime, until: datetime) -> list[Verification]:
        """Verifications that were open in some of [since, until), in order of their opening."""
        closed_at = verifications.c.closed_at
        query = select(verifications).where(
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
        """The report of a week; None without one."""
        document = self._scalar(select(reports.c.document).where(reports.c.week == week))
        return None if document is None else dict(json.loads(document))


def in_force() -> Select[tuple[object, ...]]:
    """Rows of the baselines in force, in order of acceptance."""
    return (
        select(kept_baselines)
        .where(_accepted.retired_at.is_(None))
        .order_by(_accepted.accepted_at, _accepted.id)
    )


def _row(one: Baseline) -> dict[str, object]:
    return {**{name: getattr(one, name) for name in _COLUMNS}, "document": one.text()}


def baseline_of(row: Mapping[Any, Any]) -> Baseline:
    """The baseline of a row.

    Raises StoreError: its document is no baseline.
    """
    try:
        return Baseline.read(row["document"])
    except DocumentError as error:
        subject = row["instance"] or row["pool"]
        raise StoreError(
            f"baseline {row['id']} in the database: {error.message}",
            code="corrupt",
            help_text=f"accept another one of {subject}: driftwatch baseline list",
        ) from error


def write_references(
    connection: Connection, new: Collection[Reference], gone: Iterable[Place] = ()
) -> None:
    """Put references in the place of what was there, and delete those that are gone."""
    of_pool = delete(kept_references).where(
        _learnt.kind == bindparam("b_kind"),
        _learnt.pool == bindparam("b_pool"),
        _learnt.instance.is_(None),
    )
    of_target = delete(kept_references).where(
        _learnt.kind == bindparam("b_kind"),
        _learnt.instance == bindparam("b_instance"),
        _learnt.engine == bindparam("b_engine"),
    )
    pools, targets = [], []
    for kind, pool, key in (*gone, *(one.place for one in new)):
        if key is None:
            pools.append({"b_kind": kind, "b_pool": pool})
        else:
            targets.append({"b_kind": kind, "b_instance": key.instance, "b_engine": key.engine})
    for query, places in ((of_pool, pools), (of_target, targets)):
        if places:
            connection.execute(query, places)
    rows = [
        {
            "kind": one.document.kind,
            "pool": one.pool,
            "instance": None if one.key is None else one.key.instance,
            "engine": None if one.key is None else one.key.engine,
            "learnt_at": one.learnt_at,
            "document": one.document.model_dump_json(),
        }
        for one in new
    ]
    if rows:
        connection.execute(insert(kept_references), rows)


def prune_references(connection: Connection, before: datetime) -> None:
    """Delete what was learnt of targets before a time and never since: they are gone."""
    own = _learnt.instance.is_not(None) & (_learnt.learnt_at < before)
    connection.execute(delete(kept_references).where(own))


@dataclass(frozen=True, slots=True)
class TargetAdvice:
    """The answer to one question about a server."""

    key: TargetKey
    pool: str
    at: datetime  # end of the window
    answer: Answer
    incident_id: str | None = None  # whose page carries it; None = nobody's
    failed: str | None = None  # the traceback of an unexpected error; not stored

    @property
    def moves(self) -> tuple[KnobMove, ...]:
        """The settings that it advises to change."""
        return self.answer.advice.moves

    @property
    def id(self) -> str:
        """The same for the same server, time and incident."""
        text = "\n".join([*self.key, self.at.astimezone(UTC).isoformat(), self.incident_id or ""])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def instance(self) -> str:
        """Of the server."""
        return self.key.instance

    @property
    def engine(self) -> str:
        """Of the server."""
        return self.key.engine


def write_advices(connection: Connection, rows: Iterable[TargetAdvice]) -> None:
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
