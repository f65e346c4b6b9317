"""The first schema: incidents, their transitions, the outbox, silences, scrapes, memory."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# as UtcTime of that day: a migration stays what it was when the code moves on
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("alert", sa.Text(), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("started_at", _TIME, nullable=False),
        sa.Column("last_true_at", _TIME, nullable=False),
        sa.Column("firing_at", _TIME, nullable=True),
        sa.Column("resolved_at", _TIME, nullable=True),
        sa.Column("acknowledged_at", _TIME, nullable=True),
        sa.Column("acknowledged_by", sa.Text(), nullable=True),
        sa.Column("page", sa.Text(), nullable=True),
        sa.Column("true_seconds", sa.Float(), nullable=False),
        sa.Column("false_seconds", sa.Float(), nullable=False),
        sa.Column("silenced_by", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(state = 'pending') = (firing_at IS NULL)", name=op.f("ck_incidents_firing_at")
        ),
        sa.CheckConstraint(
            "(state = 'resolved') = (resolved_at IS NOT NULL)",
            name=op.f("ck_incidents_resolved_at"),
        ),
        sa.CheckConstraint(
            "severity IN ('page', 'ticket', 'notice')", name=op.f("ck_incidents_severity")
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'firing', 'resolved')", name=op.f("ck_incidents_state")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incidents")),
    )
    op.create_index("ix_incidents_started_at", "incidents", ["started_at"], unique=False)
    op.create_index("ix_incidents_state", "incidents", ["state"], unique=False)
    op.create_index(
        "uq_incidents_open_key",
        "incidents",
        ["key"],
        unique=True,
        sqlite_where=sa.text("state != 'resolved'"),
        postgresql_where=sa.text("state != 'resolved'"),
    )
    op.create_table(
        "memory",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_memory")),
    )
    op.create_table(
        "meta",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_meta")),
    )
    op.create_table(
        "scrape_batches",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("since", _TIME, nullable=False),
        sa.Column("until", _TIME, nullable=False),
        sa.Column("frame", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scrape_batches")),
    )
    op.create_index("ix_scrape_batches_until", "scrape_batches", ["until"], unique=False)
    op.create_table(
        "silences",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("matchers", sa.Text(), nullable=False),
        sa.Column("until", _TIME, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("expired_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_silences")),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("incident_id", sa.String(length=12), nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("planned_at", _TIME, nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", _TIME, nullable=True),
        sa.Column("last_attempt_at", _TIME, nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("sent_at", _TIME, nullable=True),
        sa.CheckConstraint(
            "(status = 'pending') = (next_attempt_at IS NOT NULL)",
            name=op.f("ck_deliveries_next_attempt_at"),
        ),
        sa.CheckConstraint(
            "(status = 'sent') = (sent_at IS NOT NULL)", name=op.f("ck_deliveries_sent_at")
        ),
        sa.CheckConstraint("event IN ('firing', 'resolved')", name=op.f("ck_deliveries_event")),
        sa.CheckConstraint(
            "status IN ('pending', 'sent', 'dead')", name=op.f("ck_deliveries_status")
        ),
        sa.ForeignKeyConstraint(
            ["incident_id"],
            ["incidents.id"],
            name=op.f("fk_deliveries_incident_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint(
            "incident_id",
            "event",
            "receiver",
            name=op.f("uq_deliveries_incident_id_event_receiver"),
        ),
    )
    op.create_index(
        "ix_deliveries_status_next_attempt_at",
        "deliveries",
        ["status", "next_attempt_at"],
        unique=False,
    )
    op.create_table(
        "transitions",
        sa.Column("incident_id", sa.String(length=12), nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.CheckConstraint("event IN ('firing', 'resolved')", name=op.f("ck_transitions_event")),
        sa.ForeignKeyConstraint(
            ["incident_id"],
            ["incidents.id"],
            name=op.f("fk_transitions_incident_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("incident_id", "event", name=op.f("pk_transitions")),
    )
    op.create_index("ix_transitions_at", "transitions", ["at"], unique=False)


def downgrade() -> None:
    raise NotImplementedError("there is nothing before the first schema")
