"""Runs migrations on the connection that ``driftwatch.store.migrate`` hands over."""

from __future__ import annotations

from alembic import context

from driftwatch.store.tables import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise RuntimeError("run: driftwatch db upgrade (migrations need its connection)")

context.configure(
    connection=connection,
    target_metadata=metadata,
    # SQLite can roll DDL back; all of it runs in the caller's one transaction
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
