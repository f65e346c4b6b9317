"""The tables of 0.16.

A change of the tables goes into ``driftwatch/store/tables.py`` and into a revision after this one.
``tests/store/test_migrations.py`` compares what the revisions make with the tables.
"""

from __future__ import annotations

from alembic import op

from driftwatch.store.tables import metadata

revision = "0017"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
