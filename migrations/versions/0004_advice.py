"""What was advised: laws that were fitted, whole answers, and whether a change worked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# as UtcTime of that day: a migration stays what it was when the code moves on
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "calibrations",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("instance", "engine", "at", name=op.f("pk_calibrations")),
    )
    op.create_index("ix_calibrations_at", "calibrations", ["at"], unique=False)
    op.create_table(
        "advice",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("incident_id", sa.String(length=12), nullable=True),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_advice")),
    )
    op.create_index("ix_advice_at", "advice", ["at"], unique=False)
    op.create_index("ix_advice_incident_id", "advice", ["incident_id"], unique=False)
    op.create_table(
        "verifications",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("opened_at", _TIME, nullable=False),
        sa.Column("closed_at", _TIME, nullable=True),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("incident_id", sa.String(length=12), nullable=True),
        sa.Column("document", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "verdict IN ('open', 'PASS', 'FAIL', 'INCONCLUSIVE')",
            name=op.f("ck_verifications_verdict"),
        ),
        sa.CheckConstraint(
            "(verdict = 'open') = (closed_at IS NULL)", name=op.f("ck_verifications_closed_at")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verifications")),
    )
    op.create_index("ix_verifications_opened_at", "verifications", ["opened_at"], unique=False)
    op.create_index("ix_verifications_closed_at", "verifications", ["closed_at"], unique=False)
    op.create_index("ix_verifications_incident_id", "verifications", ["incident_id"], unique=False)


def downgrade() -> None:
    op.drop_table("verifications")
    op.drop_table("advice")
    op.drop_table("calibrations")
