"""What detectors have learnt, in the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, insert, select

from driftwatch.detect.references import Reference, document_from
from driftwatch.model import TargetKey
from driftwatch.store.database import Database, chunks
from driftwatch.store.progress import batch_of
from driftwatch.store.tables import batches
from driftwatch.store.tables import references as table

Place = tuple[str, str, TargetKey | None]


class StoredReferences(Database):
    """Part of the store: references."""

    def references(self) -> list[Reference]:
        """Those that hold, by kind, pool and target; of a batch those of its pools."""
        query = select(table).order_by(table.c.kind, table.c.pool, table.c.instance, table.c.engine)
        with self._reading() as connection:
            if self.batch is not None:
                of = len(connection.execute(select(batches.c.number)).all())
                pools = connection.execute(select(table.c.pool).distinct()).scalars()
                own = [pool for pool in pools if batch_of(pool, of or 1) == self.batch]
                query = query.where(table.c.pool.in_(own))
            return [
                Reference(
                    kind=row.kind,
                    pool=row.pool,
                    key=None if row.instance is None else TargetKey(row.instance, row.engine),
                    learnt_at=row.learnt_at.astimezone(UTC),
                    document=document_from(row.kind, row.document),
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
            "kind": one.kind,
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
