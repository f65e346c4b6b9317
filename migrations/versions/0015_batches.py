"""Pools are dealt to batches: no leases, members and shards any more.

A change of the tables goes into ``driftwatch/store/tables.py`` and here; ``python -m pytest
tests/store/test_migrations.py`` upgrades the databases of 0.11 and compares them with the tables.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from driftwatch.store.tables import UtcTime

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

# of pools that were dealt to shards: the next start deals them to batches
_DEALT_OTHERWISE = 0
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    batches = op.create_table(
        "batches",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("of", sa.Integer, nullable=False),
        sa.Column("evaluated_until", UtcTime),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("ticked_at", UtcTime),
        sa.Column("targets", sa.Integer, nullable=False),
        sa.Column("seconds", sa.Float),
        sa.Column("incomplete", _TEXT),
    )
    connection = op.get_bind()
    shards = connection.execute(sa.text("SELECT value FROM meta WHERE name = 'shards'")).scalar()
    rows = [
        {"number": number, "of": _DEALT_OTHERWISE, "version": 0, "targets": 0}
        for number in range(int(shards or 0))
    ]
    if rows:
        connection.execute(batches.insert(), rows)
    connection.execute(sa.text("DELETE FROM meta WHERE name = 'shards'"))
    renamed = "name = 'batch-' || substr(name, 7) WHERE name LIKE 'shard-%'"
    connection.execute(sa.text(f"UPDATE memory SET {renamed}"))
    op.drop_table("leases")
    op.drop_table("members")
    op.drop_table("transitions")  # nothing read it
    # in place: a table that is made anew would take the rows that refer to it along
    for table in ("incidents", "minute_batches"):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN shard TO batch")
    op.execute("ALTER TABLE gpu_batches DROP COLUMN shard")
