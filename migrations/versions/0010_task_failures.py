"""Tasks that are dead, and why."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    collation = "C" if op.get_bind().dialect.name == "postgresql" else None
    text = sa.Text(collation=collation)
    op.create_table(
        "task_failures",
        sa.Column("key", text, nullable=False),
        sa.Column("name", text, nullable=False),
        sa.Column("queue", text, nullable=False),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", text, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_task_failures")),
    )


def downgrade() -> None:
    op.drop_table("task_failures")
