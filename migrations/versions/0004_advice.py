"""What was advised: laws that were fitted, whole answers, whether a change worked, follow-ups."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# as UtcTime of that day: a migration stays what it was when the code moves on
_TIME = sa.DateTime(timezone=True)


_BEFORE = "event IN ('firing', 'resolved')"
_EVENTS = "event IN ('firing', 'advised', 'verified', 'resolved')"


def _transitions(events: str) -> sa.Table:
    return sa.Table(
        "transitions",
        sa.MetaData(),
        sa.Column("incident_id", sa.String(length=12), nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.CheckConstraint(events, name=op.f("ck_transitions_event")),
        sa.ForeignKeyConstraint(
            ["incident_id"],
            ["incidents.id"],
            name=op.f("fk_transitions_incident_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("incident_id", "event", name=op.f("pk_transitions")),
        sa.Index("ix_transitions_at", "at"),
    )


def _deliveries(events: str) -> sa.Table:
    return sa.Table(
        "deliveries",
        sa.MetaData(),
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
        sa.CheckConstraint(events, name=op.f("ck_deliveries_event")),
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
        sa.Index("ix_deliveries_status_next_attempt_at", "status", "next_attempt_at"),
    )


def _allow(before: str, events: str) -> None:
    """Which events there are; SQLite, which alters no constraint, gets the tables anew."""
    for table in (_transitions(before), _deliveries(before)):
        with op.batch_alter_table(table.name, copy_from=table) as batch:
            name = op.f(f"ck_{table.name}_event")
            batch.drop_constraint(name, type_="check")
            batch.create_check_constraint(name, events)


def upgrade() -> None:
    _allow(_BEFORE, _EVENTS)
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
    op.create_table(
        "reports",
        sa.Column("week", sa.String(length=8), nullable=False),
        sa.Column("made_at", _TIME, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("week", name=op.f("pk_reports")),
    )
    op.create_table(
        "report_deliveries",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("week", sa.String(length=8), nullable=False),
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", _TIME, nullable=True),
        sa.Column("last_attempt_at", _TIME, nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("sent_at", _TIME, nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'sent', 'dead')", name=op.f("ck_report_deliveries_status")
        ),
        sa.CheckConstraint(
            "(status = 'pending') = (next_attempt_at IS NOT NULL)",
            name=op.f("ck_report_deliveries_next_attempt_at"),
        ),
        sa.CheckConstraint(
            "(status = 'sent') = (sent_at IS NOT NULL)", name=op.f("ck_report_deliveries_sent_at")
        ),
        sa.ForeignKeyConstraint(
            ["week"],
            ["reports.week"],
            name=op.f("fk_report_deliveries_week"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_report_deliveries")),
        sa.UniqueConstraint("week", "receiver", name=op.f("uq_report_deliveries_week_receiver")),
    )


def downgrade() -> None:
    for table in (_transitions(_EVENTS), _deliveries(_EVENTS)):
        op.execute(table.delete().where(table.c.event.in_(["advised", "verified"])))
    _allow(_EVENTS, _BEFORE)
    op.drop_table("report_deliveries")
    op.drop_table("reports")
    op.drop_table("verifications")
    op.drop_table("advice")
    op.drop_table("calibrations")
