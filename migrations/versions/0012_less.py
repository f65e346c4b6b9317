"""What 0.12 has no more: partitions, tables, columns, and rows of what is gone.

To drop something: take it out of ``driftwatch/store/tables.py``, add a line to ``upgrade`` below,
and run ``python -m pytest tests/store/test_migrations.py``. It upgrades the databases of 0.11 in
``tests/data/store`` and compares them with the tables.

- A table: ``op.drop_table("name")``. Rows: ``op.execute("DELETE FROM ...")``.
- A column: ``op.drop_column("table", "name")``; if an index has it, before that
  ``op.drop_index("ix_table_name", table_name="table")``.
- A check: ``with op.batch_alter_table("actions") as batch:
  batch.drop_constraint(op.f("ck_actions_action"), type_="check")``. Not of a table that others
  refer to (``incidents``, ``payloads``): SQLite copies the table and drops the old one, and with
  it every row that refers to it.
"""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("incidents", "muted_by")
    op.drop_column("incidents", "acknowledged_until")
    op.drop_column("actions", "until")
    op.execute("DELETE FROM deliveries WHERE kind = 'digest'")
    op.execute("DELETE FROM memory WHERE name IN ('digest', 'rules.backtest')")
    op.execute("DELETE FROM memory WHERE name LIKE 'web.forecast.%'")
    if op.get_bind().dialect.name == "postgresql":
        for table in ("scrape_batches", "gpu_batches", "minute_batches"):
            _without_partitions(table)
    op.drop_table("task_failures")


def _without_partitions(table: str) -> None:
    """One table in place of one partition per day."""
    op.execute(f"ALTER TABLE {table} RENAME TO aside")
    op.execute(f"ALTER TABLE aside DROP CONSTRAINT pk_{table}")
    op.execute(f"DROP INDEX ix_{table}_until")
    op.execute(f"CREATE TABLE {table} (LIKE aside INCLUDING DEFAULTS INCLUDING STORAGE)")
    op.execute(f"ALTER SEQUENCE {table}_id_seq OWNED BY {table}.id")
    op.execute(f"INSERT INTO {table} SELECT * FROM aside")
    op.execute("DROP TABLE aside")
    op.execute(f"ALTER TABLE {table} ADD CONSTRAINT pk_{table} PRIMARY KEY (id)")
    op.execute(f"CREATE INDEX ix_{table}_until ON {table} (until)")
