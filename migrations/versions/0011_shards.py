"""Pools dealt to several processes: the members, and whose rows are whose."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_OF_SHARDS = ("incidents", "scrape_batches", "gpu_batches", "minute_batches")


def upgrade() -> None:
    collation = "C" if op.get_bind().dialect.name == "postgresql" else None
    for table in _OF_SHARDS:
        op.add_column(table, sa.Column("shard", sa.Integer()))
    op.create_table(
        "members",
        sa.Column("name", sa.String(length=128, collation=collation), nullable=False),
        sa.Column("process", sa.Text(collation=collation), nullable=False),
        sa.Column("version", sa.Text(collation=collation), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("clock_ahead_seconds", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_members")),
    )


def downgrade() -> None:
    op.drop_table("members")
    for table in _OF_SHARDS:
        op.drop_column(table, "shard")
