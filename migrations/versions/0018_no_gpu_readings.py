"""Readings of GPUs are not stored: a minute has the name of its GPUs."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DROP TABLE IF EXISTS gpu_batches")
