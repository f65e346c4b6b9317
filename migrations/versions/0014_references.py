"""References in place of the detectors' checkpoint and of rows of days."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from driftwatch.store.tables import UtcTime

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("checkpoint")
    op.drop_table("day_batches")
    op.create_table(
        "references",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("pool", _text(), nullable=False),
        sa.Column("instance", _text()),
        sa.Column("engine", _text()),
        sa.Column("kind", _text(16), nullable=False),
        sa.Column("learnt_at", UtcTime, nullable=False),
        sa.Column("document", _text(), nullable=False),
        sa.CheckConstraint("(instance IS NULL) = (engine IS NULL)", name="engine"),
    )
    op.create_index("ix_references_kind", "references", ["kind", "pool"])
    op.execute("DELETE FROM memory WHERE name LIKE '%tick.forgotten' OR name LIKE '%tick.days'")


def _text(length: int | None = None) -> sa.types.TypeEngine[str]:
    """Text in the order of its bytes on PostgreSQL as well."""
    kind = sa.String(length) if length else sa.Text()
    return kind.with_variant(type(kind)(length, collation="C"), "postgresql")
