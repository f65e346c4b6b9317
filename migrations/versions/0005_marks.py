"""What people say of pages: useful, or not."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# as UtcTime of that day: a migration stays what it was when the code moves on
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "marks",
        sa.Column("incident_id", sa.String(length=12), nullable=False),
        sa.Column("mark", sa.String(length=16), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("because", sa.Text(), nullable=False),
        sa.CheckConstraint("mark IN ('useful', 'not useful')", name=op.f("ck_marks_mark")),
        sa.ForeignKeyConstraint(
            ["incident_id"],
            ["incidents.id"],
            name=op.f("fk_marks_incident_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("incident_id", name=op.f("pk_marks")),
    )


def downgrade() -> None:
    op.drop_table("marks")
