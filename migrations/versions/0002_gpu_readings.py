"""GPU readings beside the scrapes: explain and a restart know them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# as UtcTime of that day: a migration stays what it was when the code moves on
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "gpu_batches",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("since", _TIME, nullable=False),
        sa.Column("until", _TIME, nullable=False),
        sa.Column("frame", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gpu_batches")),
    )
    op.create_index("ix_gpu_batches_until", "gpu_batches", ["until"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_gpu_batches_until", table_name="gpu_batches")
    op.drop_table("gpu_batches")
