"""One outbox for all that is sent, with repeats; what people did; conversations; who ticks."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)
_PARTITIONED = ("scrape_batches", "gpu_batches", "minute_batches")
_ATTEMPTS = "status, attempts, next_attempt_at, last_attempt_at, last_error, sent_at"
_BEFORE = f"id, incident_id, event, receiver, reason, payload, planned_at, {_ATTEMPTS}"
_AFTER = (
    "kind, subject, incident_id, event, number, receiver, reason, payload_id, planned_at, "
    f"{_ATTEMPTS}"
)
# what was sent, in 0007: pages with their deliveries, reports once for all of theirs
_DOCUMENTS = (
    "SELECT payload AS document, 0 AS kind, id FROM before_0008 UNION ALL "
    "SELECT r.document, 1, d.id FROM report_deliveries d JOIN reports r ON r.week = d.week"
)


def upgrade() -> None:
    op.add_column("incidents", sa.Column("acknowledged_until", _TIME))
    op.add_column("incidents", sa.Column("acknowledged_comment", sa.Text()))
    op.add_column("incidents", sa.Column("part_of", sa.Text()))
    op.add_column("incidents", sa.Column("extent", sa.Integer()))
    op.add_column("incidents", sa.Column("extent_at", _TIME))
    op.add_column("silences", sa.Column("starts_at", _TIME))
    op.execute("UPDATE silences SET starts_at = created_at")
    with op.batch_alter_table("silences") as batch:
        batch.alter_column("starts_at", existing_type=_TIME, nullable=False)
    _make_actions()
    op.execute(f"CREATE TABLE before_0008 AS SELECT {_BEFORE} FROM deliveries")
    op.drop_table("deliveries")
    op.create_table(
        "payloads",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_payloads")),
    )
    op.execute(
        f"INSERT INTO payloads (document) SELECT document FROM ({_DOCUMENTS}) documents "
        "GROUP BY document ORDER BY min(kind), min(id)"
    )
    _make_deliveries()
    op.execute(
        f"INSERT INTO deliveries ({_AFTER}) SELECT 'incident', incident_id, incident_id, event, 0, "
        f"receiver, reason, p.id, planned_at, {_ATTEMPTS} "
        "FROM before_0008 b JOIN payloads p ON p.document = b.payload ORDER BY b.id"
    )
    op.execute(
        f"INSERT INTO deliveries ({_AFTER}) SELECT 'report', r.week, NULL, 'report', 0, "
        f"d.receiver, 'first', p.id, r.made_at, {_ATTEMPTS} "
        "FROM report_deliveries d JOIN reports r ON r.week = d.week "
        "JOIN payloads p ON p.document = r.document ORDER BY d.id"
    )
    op.drop_table("report_deliveries")
    op.drop_table("before_0008")
    op.create_table(
        "conversations",
        sa.Column("incident_id", sa.String(length=12), nullable=False),
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["incident_id"],
            ["incidents.id"],
            name=op.f("fk_conversations_incident_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("incident_id", "receiver", name=op.f("pk_conversations")),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    if op.get_bind().dialect.name == "postgresql":
        _sort_by_bytes()
        for table in _PARTITIONED:
            _partition(table)


def _sort_by_bytes() -> None:
    """Text sorts and compares by its bytes, as in SQLite, whatever the database's own order."""
    inspector = sa.inspect(op.get_bind())
    for table in sorted(set(inspector.get_table_names()) - {"alembic_version"}):
        changes = [
            f'ALTER COLUMN "{column["name"]}" TYPE {column["type"].compile()} COLLATE "C"'
            for column in inspector.get_columns(table)
            if isinstance(column["type"], sa.String) and column["type"].collation is None
        ]
        if changes:
            op.execute(f"ALTER TABLE {table} {', '.join(changes)}")


def _partition(table: str) -> None:
    """One partition per day of ``until``, and one that stays empty for what has no day."""
    _put_aside(table)
    op.execute(f"CREATE TABLE {table} (LIKE aside INCLUDING DEFAULTS) PARTITION BY RANGE (until)")
    # frames are compressed already
    op.execute(f"ALTER TABLE {table} ALTER COLUMN frame SET STORAGE EXTERNAL")
    op.execute(f"CREATE TABLE {table}_default PARTITION OF {table} DEFAULT")
    days = "SELECT DISTINCT (until AT TIME ZONE 'UTC')::date AS day FROM aside ORDER BY day"
    for day in op.get_bind().execute(sa.text(days)).scalars().all():
        op.execute(
            f"CREATE TABLE {table}_{day:%Y%m%d} PARTITION OF {table} FOR VALUES "
            f"FROM ('{day} 00:00+00') TO ('{day + timedelta(days=1)} 00:00+00')"
        )
    _take_back(table, "id, until")


def _put_aside(table: str) -> None:
    op.execute(f"ALTER TABLE {table} RENAME TO aside")
    op.execute(f"ALTER TABLE aside DROP CONSTRAINT pk_{table}")
    op.execute(f"DROP INDEX ix_{table}_until")


def _take_back(table: str, key: str) -> None:
    op.execute(f"ALTER TABLE {table} ADD CONSTRAINT pk_{table} PRIMARY KEY ({key})")
    op.execute(f"CREATE INDEX ix_{table}_until ON {table} (until)")
    op.execute(f"ALTER SEQUENCE {table}_id_seq OWNED BY {table}.id")
    op.execute(f"INSERT INTO {table} SELECT * FROM aside")
    op.execute("DROP TABLE aside")


def _make_actions() -> None:
    op.create_table(
        "actions",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("incident_id", sa.String(length=12), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("until", _TIME),
        sa.Column("via", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text()),
        sa.Column("planned_at", _TIME),
        sa.CheckConstraint(
            "action IN ('acknowledge', 'unacknowledge')", name=op.f("ck_actions_action")
        ),
        sa.ForeignKeyConstraint(
            ["incident_id"],
            ["incidents.id"],
            name=op.f("fk_actions_incident_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_actions")),
        sa.UniqueConstraint("request_id", name=op.f("uq_actions_request_id")),
    )
    op.create_index("ix_actions_incident_id", "actions", ["incident_id"])
    op.create_index("ix_actions_planned_at", "actions", ["planned_at"])


def _attempts(
    table: str, statuses: str = "('pending', 'sent', 'dead')"
) -> list[sa.schema.SchemaItem]:
    return [
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", _TIME),
        sa.Column("last_attempt_at", _TIME),
        sa.Column("last_error", sa.Text()),
        sa.Column("sent_at", _TIME),
        sa.CheckConstraint(f"status IN {statuses}", name=op.f(f"ck_{table}_status")),
        sa.CheckConstraint(
            "(status = 'pending') = (next_attempt_at IS NOT NULL)",
            name=op.f(f"ck_{table}_next_attempt_at"),
        ),
        sa.CheckConstraint(
            "(status = 'sent') = (sent_at IS NOT NULL)", name=op.f(f"ck_{table}_sent_at")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    ]


def _of_incident() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["incident_id"],
        ["incidents.id"],
        name=op.f("fk_deliveries_incident_id"),
        ondelete="CASCADE",
    )


def _make_deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("incident_id", sa.String(length=12)),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("payload_id", sa.Integer()),
        sa.Column("planned_at", _TIME, nullable=False),
        *_attempts("deliveries", "('pending', 'sent', 'dead', 'withdrawn')"),
        _of_incident(),
        sa.ForeignKeyConstraint(
            ["payload_id"], ["payloads.id"], name=op.f("fk_deliveries_payload_id")
        ),
        sa.CheckConstraint(
            "status <> 'pending' OR payload_id IS NOT NULL", name=op.f("ck_deliveries_payload_id")
        ),
        sa.UniqueConstraint(
            *("kind", "subject", "event", "number", "receiver"),
            name=op.f("uq_deliveries_kind_subject_event_number_receiver"),
        ),
        sa.CheckConstraint(
            "kind IN ('incident', 'report', 'digest', 'silence', 'change')",
            name=op.f("ck_deliveries_kind"),
        ),
        sa.CheckConstraint(
            "(kind = 'incident') = (incident_id IS NOT NULL)",
            name=op.f("ck_deliveries_incident_id"),
        ),
    )
    op.create_index("ix_deliveries_incident_id", "deliveries", ["incident_id"])
    op.create_index("ix_deliveries_payload_id", "deliveries", ["payload_id"])
    op.create_index(
        "ix_deliveries_receiver_status_next_attempt_at",
        "deliveries",
        ["receiver", "status", "next_attempt_at", "id"],
    )
    op.create_index(
        "ix_deliveries_receiver_status_attempts_id",
        "deliveries",
        ["receiver", "status", "attempts", "id"],
    )


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table in _PARTITIONED:
            _put_aside(table)
            op.execute(f"CREATE TABLE {table} (LIKE aside INCLUDING DEFAULTS)")
            _take_back(table, "id")
    op.drop_table("leases")
    op.drop_table("conversations")
    events = "('firing', 'advised', 'verified', 'resolved')"
    kept = f"kind = 'incident' AND number = 0 AND event IN {events} AND status <> 'withdrawn'"
    op.execute(
        f"CREATE TABLE after_0008 AS SELECT {_AFTER}, d.id, "
        # of what is forgotten 0007 has the page as it is now
        "COALESCE(p.document, i.page, '{}') AS payload FROM deliveries d "
        "LEFT JOIN payloads p ON p.id = d.payload_id LEFT JOIN incidents i ON i.id = d.incident_id"
    )
    op.drop_table("deliveries")
    op.drop_table("payloads")
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("incident_id", sa.String(length=12), nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("planned_at", _TIME, nullable=False),
        *_attempts("deliveries"),
        _of_incident(),
        sa.UniqueConstraint(
            *("incident_id", "event", "receiver"),
            name=op.f("uq_deliveries_incident_id_event_receiver"),
        ),
        sa.CheckConstraint(f"event IN {events}", name=op.f("ck_deliveries_event")),
    )
    op.create_index(
        "ix_deliveries_status_next_attempt_at", "deliveries", ["status", "next_attempt_at"]
    )
    columns = _BEFORE.removeprefix("id, ")
    op.execute(
        f"INSERT INTO deliveries ({columns}) SELECT {columns} FROM after_0008 WHERE {kept} "
        "ORDER BY id"
    )
    op.create_table(
        "report_deliveries",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("week", sa.String(length=8), nullable=False),
        sa.Column("receiver", sa.Text(), nullable=False),
        *_attempts("report_deliveries"),
        sa.ForeignKeyConstraint(
            ["week"],
            ["reports.week"],
            name=op.f("fk_report_deliveries_week"),
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("week", "receiver", name=op.f("uq_report_deliveries_week_receiver")),
    )
    op.execute(
        f"INSERT INTO report_deliveries (week, receiver, {_ATTEMPTS}) "
        f"SELECT subject, receiver, {_ATTEMPTS} FROM after_0008 WHERE kind = 'report' "
        "AND status <> 'withdrawn' ORDER BY id"
    )
    op.drop_table("after_0008")
    op.drop_table("actions")
    op.drop_column("silences", "starts_at")
    op.drop_column("incidents", "extent_at")
    op.drop_column("incidents", "extent")
    op.drop_column("incidents", "part_of")
    op.drop_column("incidents", "acknowledged_comment")
    op.drop_column("incidents", "acknowledged_until")
