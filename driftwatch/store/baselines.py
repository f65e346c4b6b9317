"""What is known of targets and pools, in the database: baselines, in force and retired, the newest
proposals, and what detectors have learnt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.sql import Select

from driftwatch.errors import UsageError
from driftwatch.model import TargetKey
from driftwatch.store.database import Database, chunks
from driftwatch.store.progress import batch_of
from driftwatch.store.tables import batches, pins
from driftwatch.store.tables import references as table

if TYPE_CHECKING:
    from driftwatch.detect.references import Place, Reference

# key of the last proposals in the memory, JSON: a proposal is accepted by its id
PROPOSALS = "baseline.proposals"


@dataclass(frozen=True, slots=True)
class BaselineRow:
    """A pinned baseline."""

    id: str  # short and unique
    scope: str  # ``target`` or ``pool``
    instance: str | None  # of a target's, else None
    engine: str | None  # of a target's, else None
    pool: str  # its pool
    accepted_at: datetime  # when
    accepted_by: str  # who
    document: str  # the baseline as JSON
    retired_at: datetime | None = None  # when another one took its place; None while it is in force

    @property
    def subject(self) -> tuple[str | None, ...]:
        """What only one baseline in force can be of."""
        if self.scope == "pool":
            return ("pool", self.pool)
        return ("target", self.instance, self.engine)


class Baselines(Database):
    """Part of the store: baselines."""

    def baselines(self, *, retired: bool = False) -> list[BaselineRow]:
        """Those in force, in order of acceptance; with ``retired`` all that ever were."""
        return [BaselineRow(**row) for row in self._all(_in_order(retired))]

    def baselines_in_force(self) -> tuple[str, ...]:
        """Their ids and when they were accepted: another answer means they changed."""
        query = select(pins.c.id, pins.c.accepted_at).where(pins.c.retired_at.is_(None))
        rows = self._all(query.order_by(pins.c.id))
        return tuple(f"{row['id']} {row['accepted_at'].isoformat()}" for row in rows)

    def add_baselines(self, rows: Sequence[BaselineRow]) -> None:
        """Put them in force, all or none; what was so for the same target or pool retires.

        Raises UsageError: an id is that of a baseline of another target or pool.
        """
        new = {row.subject: row for row in rows}  # of two of one subject the later one
        with self._writing() as connection:
            before = {row.subject: row for row in _rows(connection, _in_order(retired=False))}
            for subject, row in new.items():
                if subject in before:
                    query = update(pins).where(pins.c.id == before[subject].id)
                    connection.execute(query.values(retired_at=row.accepted_at))
            subjects = {row.id: subject for subject, row in new.items()}
            for ids in chunks(list(subjects)):
                for same in _rows(connection, select(pins).where(pins.c.id.in_(ids))):
                    if same.subject != subjects[same.id]:
                        raise UsageError(
                            f"{same.id} is the id of a baseline of {same.instance or same.pool}",
                            help_text="another target needs its own: driftwatch baseline accept",
                        )
                connection.execute(delete(pins).where(pins.c.id.in_(ids)))
            if new:
                connection.execute(insert(pins), [asdict(row) for row in new.values()])


def _in_order(retired: bool) -> Select[tuple[object, ...]]:
    query = select(pins).order_by(pins.c.accepted_at, pins.c.id)
    return query if retired else query.where(pins.c.retired_at.is_(None))


def _rows(connection: Connection, query: Select[tuple[object, ...]]) -> list[BaselineRow]:
    return [BaselineRow(**row) for row in connection.execute(query).mappings()]


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
    places = [*gone, *(one.place for one in new)]
    for kind in sorted({kind for kind, _, _ in places}):
        pools = sorted({pool for of, pool, key in places if of == kind and key is None})
        keys = sorted({key for of, _, key in places if of == kind and key is not None})
        for some in chunks(pools):
            connection.execute(
                delete(table).where(
                    table.c.kind == kind, table.c.pool.in_(some), table.c.instance.is_(None)
                )
            )
        for names in chunks(sorted({key.instance for key in keys})):
            own = {(key.instance, key.engine) for key in keys}
            query = select(table.c.id, table.c.instance, table.c.engine).where(
                table.c.kind == kind, table.c.instance.in_(names)
            )
            ids = [i for i, *key in connection.execute(query) if tuple(key) in own]
            for some_ids in chunks(ids):
                connection.execute(delete(table).where(table.c.id.in_(some_ids)))
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
