"""What is known of targets and pools, in the database: baselines, in force and retired, the newest
proposals, and what detectors have learnt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.sql import Select

from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.errors import DocumentError, StoreError, UsageError
from driftwatch.model import TargetKey
from driftwatch.store.database import Database, chunks
from driftwatch.store.progress import batch_of
from driftwatch.store.tables import baselines as kept
from driftwatch.store.tables import batches
from driftwatch.store.tables import references as table

if TYPE_CHECKING:
    from driftwatch.detect.references import Place, Reference

# key of the last proposals in the memory, JSON: a proposal is accepted by its id
PROPOSALS = "baseline.proposals"


_COLUMNS = ("id", "scope", "instance", "engine", "pool", "accepted_at", "accepted_by")


class StoredBaselines(Database):
    """Part of the store: baselines."""

    def baselines(self) -> Baselines:
        """Those in force, in order of acceptance.

        Raises StoreError: one of them cannot be read; the others are no excuse.
        """
        return Baselines(tuple(map(baseline_of, self._all(in_force()))))

    def baselines_ever(self) -> list[tuple[Baseline, datetime | None]]:
        """All that ever were, with when another one took its place; None = it is in force."""
        rows = self._all(select(kept).order_by(kept.c.accepted_at, kept.c.id))
        return [(baseline_of(row), row["retired_at"]) for row in rows]

    def baselines_in_force(self) -> tuple[str, ...]:
        """Their ids and when they were accepted: another answer means they changed."""
        return tuple(f"{r['id']} {r['accepted_at'].isoformat()}" for r in self._all(in_force()))

    def add_baselines(self, baselines: Iterable[Baseline]) -> None:
        """Put them in force, all or none; what was so for the same target or pool retires.

        Raises UsageError: an id is that of a baseline of another target or pool.
        """
        new = {(one.scope, one.subject): one for one in baselines}  # of two the later one
        ids = {one.id: subject for subject, one in new.items()}
        with self._writing() as connection:
            query = select(kept.c.id, kept.c.scope, kept.c.instance, kept.c.engine, kept.c.pool)
            for row in connection.execute(query.add_columns(kept.c.retired_at)):
                key = None if row.instance is None else TargetKey(row.instance, row.engine)
                subject = (row.scope, row.pool if key is None else key.text)
                if ids.get(row.id, subject) != subject:
                    raise UsageError(
                        f"{row.id} is the id of a baseline of {subject[1]}",
                        help_text="another target needs its own: driftwatch baseline accept",
                    )
                if row.retired_at is None and (by := new.get(subject)) is not None:
                    of = update(kept).where(kept.c.id == row.id)
                    connection.execute(of.values(retired_at=by.accepted_at))
            for some in chunks(list(ids)):
                connection.execute(delete(kept).where(kept.c.id.in_(some)))
            if new:
                connection.execute(insert(kept), [_row(one) for one in new.values()])


def in_force() -> Select[tuple[object, ...]]:
    """Rows of the baselines in force, in order of acceptance."""
    return select(kept).where(kept.c.retired_at.is_(None)).order_by(kept.c.accepted_at, kept.c.id)


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


class StoredReferences(Database):
    """Part of the store: references."""

    def references(self) -> list[Reference]:
        """Those that hold, by kind, pool and target; of a batch those of its pools."""
        from driftwatch.detect.references import KINDS, Reference

        query = select(table).order_by(table.c.kind, table.c.pool, table.c.instance, table.c.engine)
        with self._reading() as connection:
            if self.batch is not None:
                of = len(connection.execute(select(batches.c.number)).all())
                pools = connection.execute(select(table.c.pool).distinct()).scalars()
                own = [pool for pool in pools if batch_of(pool, of or 1) == self.batch]
                query = query.where(table.c.pool.in_(own))
            return [
                Reference(
                    pool=row.pool,
                    key=None if row.instance is None else TargetKey(row.instance, row.engine),
                    learnt_at=row.learnt_at.astimezone(UTC),
                    document=KINDS[row.kind].model_validate_json(row.document),
                )
                for row in connection.execute(query)
            ]


def write_references(
    connection: Connection, new: Collection[Reference], gone: Iterable[Place] = ()
) -> None:
    """Put references in the place of what was there, and delete those that are gone."""
    of_pool = delete(table).where(
        table.c.kind == bindparam("b_kind"),
        table.c.pool == bindparam("b_pool"),
        table.c.instance.is_(None),
    )
    of_target = delete(table).where(
        table.c.kind == bindparam("b_kind"),
        table.c.instance == bindparam("b_instance"),
        table.c.engine == bindparam("b_engine"),
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
        connection.execute(insert(table), rows)


def prune_references(connection: Connection, before: datetime) -> None:
    """Delete what was learnt of targets before a time and never since: they are gone."""
    own = table.c.instance.is_not(None) & (table.c.learnt_at < before)
    connection.execute(delete(table).where(own))
