"""Runs migrations on the connection that ``driftwatch.store.migrate`` hands over."""

from __future__ import annotations

from alembic import context

from driftwatch.store.tables import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise RuntimeError("run: driftwatch db upgrade (migrations need its connection)")


def _is_declared(name: str | None, kind: str, _parents: object) -> bool:
    """procrastinate has tables of its own."""
    return kind != "table" or not (name or "").startswith("procrastinate_")


context.configure(
    connection=connection,
    target_metadata=metadata,
    # both databases roll DDL back; all of it runs in the caller's one transaction
    transactional_ddl=True,
    render_as_batch=True,
    include_name=_is_declared,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
