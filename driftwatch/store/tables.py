"""The tables, in SQLAlchemy Core; ``migrations/`` brings an older database to the same schema.

They serve SQLite and PostgreSQL. Times are UTC; JSON is text with sorted keys, so that equal values
are equal bytes; text sorts by its bytes.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

# the newest file in migrations/versions; a test compares the two
SCHEMA_REVISION = "0018"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class UtcTime(TypeDecorator[datetime]):
    """An aware UTC time; SQLite, which knows no zones, keeps it as sortable UTC text."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a time without a zone: it would silently be read as UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the zone back."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


incidents = Table(
    "incidents",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("key", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("alert", Text, nullable=False),
    Column("severity", String(16), nullable=False),
    Column("pool", Text, nullable=False),
    Column("state", String(16), nullable=False),  # acknowledged or not
    Column("started_at", UtcTime, nullable=False),
    Column("firing_at", UtcTime),
    Column("resolved_at", UtcTime),
    Column("silenced_by", Text),
    Column("document", Text, nullable=False),  # JSON: the incident without the next two
    Column("acknowledgement", Text),  # JSON; a person's: the tick never writes it
    Column("page", Text),  # JSON, NULL while pending
    Column("batch", Integer),  # whose; NULL where there is one batch
    CheckConstraint("state IN ('pending', 'firing', 'resolved')", name="state"),
    CheckConstraint("severity IN ('page', 'ticket', 'notice')", name="severity"),
    CheckConstraint("(state = 'resolved') = (resolved_at IS NOT NULL)", name="resolved_at"),
    CheckConstraint("(state = 'pending') = (firing_at IS NULL)", name="firing_at"),
)
Index("ix_incidents_state", incidents.c.state)
Index("ix_incidents_started_at", incidents.c.started_at)
# promise P2, kept by the database as well: at most one open incident per key
Index(
    "uq_incidents_open_key",
    incidents.c.key,
    unique=True,
    sqlite_where=incidents.c.state != "resolved",
    postgresql_where=incidents.c.state != "resolved",
)

# what people did: kept; the next planning makes messages of acknowledgements
actions = Table(
    "actions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("incident_id", ForeignKey("incidents.id", ondelete="CASCADE")),  # NULL: of none
    Column("action", String(16), nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("by", Text, nullable=False),
    Column("comment", Text, nullable=False),  # empty: none
    Column("via", Text, nullable=False),  # where it was done: command line, a receiver's name
    # what a receiver calls the click, so that one that is sent twice is done once
    Column("request_id", Text, unique=True),
    Column("planned_at", UtcTime),  # when its messages were planned, NULL = not yet
    Column("subject", Text),  # id of the silence or baseline that it is about, or the mark
    CheckConstraint(
        "action IN ('acknowledge', 'unacknowledge', 'note', 'mark', 'unmark', 'silence', "
        "'end silence', 'accept baseline', 'refuse baseline')",
        name="action",
    ),
)
Index("ix_actions_incident_id", actions.c.incident_id)
Index("ix_actions_planned_at", actions.c.planned_at)

# what receivers are sent, once for those who are sent the same; forgotten some days after
payloads = Table(
    "payloads",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("document", Text, nullable=False),  # JSON: page, report
)

# the outbox: what is to be sent to whom; one row is one message to one receiver
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("kind", String(16), nullable=False),
    Column("subject", Text, nullable=False),  # incident id or week
    # of an incident: the same as subject
    Column("incident_id", ForeignKey("incidents.id", ondelete="CASCADE")),
    Column("event", String(16), nullable=False),
    Column("number", Integer, nullable=False),  # 0 the first of this event
    Column("receiver", Text, nullable=False),
    Column("payload_id", ForeignKey("payloads.id")),  # NULL: forgotten
    Column("planned_at", UtcTime, nullable=False),
    Column("status", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_attempt_at", UtcTime),
    Column("last_attempt_at", UtcTime),
    Column("last_error", Text),
    Column("sent_at", UtcTime),
    CheckConstraint("status IN ('pending', 'sent', 'dead', 'withdrawn')", name="status"),
    CheckConstraint("(status = 'pending') = (next_attempt_at IS NOT NULL)", name="next_attempt_at"),
    CheckConstraint("(status = 'sent') = (sent_at IS NOT NULL)", name="sent_at"),
    UniqueConstraint("kind", "subject", "event", "number", "receiver"),
    CheckConstraint("kind IN ('incident', 'report')", name="kind"),
    CheckConstraint("(kind = 'incident') = (incident_id IS NOT NULL)", name="incident_id"),
    CheckConstraint("status <> 'pending' OR payload_id IS NOT NULL", name="payload_id"),
)
Index("ix_deliveries_incident_id", deliveries.c.incident_id)
Index("ix_deliveries_payload_id", deliveries.c.payload_id)
# the queue of each receiver: the next one is found at once, however many wait
Index(
    "ix_deliveries_receiver_status_next_attempt_at",
    *(deliveries.c.receiver, deliveries.c.status, deliveries.c.next_attempt_at, deliveries.c.id),
)
Index(
    "ix_deliveries_receiver_status_attempts_id",
    *(deliveries.c.receiver, deliveries.c.status, deliveries.c.attempts, deliveries.c.id),
)

# what a receiver calls its message about an incident, for updates of it and for its thread
conversations = Table(
    "conversations",
    metadata,
    Column("incident_id", ForeignKey("incidents.id", ondelete="CASCADE"), primary_key=True),
    Column("receiver", Text, primary_key=True),
    Column("document", Text, nullable=False),  # JSON: the receiver's own words
)

# how far each batch of pools is; a tick commits with the version that it began from, or not at all
batches = Table(
    "batches",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("of", Integer, nullable=False),  # how many batches there are
    Column("evaluated_until", UtcTime),  # NULL: no minute yet
    Column("version", BigInteger, nullable=False),  # grows with each commit
    Column("ticked_at", UtcTime),
    Column("targets", Integer, nullable=False),
    Column("seconds", Float),  # how long the last tick took
    Column("incomplete", Text),  # why the last tick knows nothing of some source, NULL: it does
)

silences = Table(
    "silences",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("matchers", Text, nullable=False),  # JSON: list of [name, operator, value]
    Column("until", UtcTime, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("comment", Text, nullable=False),
    Column("expired_at", UtcTime),
    Column("starts_at", UtcTime, nullable=False),
)


# minutes of targets: as each tick saw them, then packed together, then rolled up
minute_batches = Table(
    "minute_batches",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("since", UtcTime, nullable=False),  # since < end <= until, for every row in it
    Column("until", UtcTime, nullable=False),
    Column("seconds", Integer, nullable=False),  # of a row: 60, or a roll-up's
    Column("packed", Integer, nullable=False),  # 0 as a tick wrote it, 1 packed
    Column("first_instance", Text, nullable=False),  # in order of text, both in it
    Column("last_instance", Text, nullable=False),
    Column("frame", LargeBinary, nullable=False),
    Column("batch", Integer),  # whose; NULL: of any, as there is one or pools moved
)
Index("ix_minute_batches_until", minute_batches.c.until)

# what detectors have learnt, at most one of a kind per pool or target
references = Table(
    "references",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("pool", Text, nullable=False),
    Column("instance", Text),  # NULL: of the pool
    Column("engine", Text),
    Column("kind", String(16), nullable=False),
    Column("learnt_at", UtcTime, nullable=False),
    Column("document", Text, nullable=False),  # JSON
    CheckConstraint("(instance IS NULL) = (engine IS NULL)", name="engine"),
)
Index("ix_references_kind", references.c.kind, references.c.pool)

baselines = Table(
    "baselines",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("scope", String(16), nullable=False),
    Column("instance", Text),
    Column("engine", Text),
    Column("pool", Text, nullable=False),
    Column("accepted_at", UtcTime, nullable=False),
    Column("accepted_by", Text, nullable=False),
    Column("retired_at", UtcTime),
    Column("document", Text, nullable=False),  # JSON
    CheckConstraint("scope IN ('target', 'pool')", name="scope"),
    CheckConstraint("(scope = 'target') = (instance IS NOT NULL)", name="instance"),
    CheckConstraint("(scope = 'target') = (engine IS NOT NULL)", name="engine"),
)
Index("ix_baselines_accepted_at", baselines.c.accepted_at)

advice = Table(
    "advice",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("instance", Text, nullable=False),
    Column("engine", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("at", UtcTime, nullable=False),  # end of the window
    Column("incident_id", String(12)),  # whose page carries it, NULL = nobody's
    Column("document", Text, nullable=False),  # JSON
)
Index("ix_advice_at", advice.c.at)
Index("ix_advice_incident_id", advice.c.incident_id)

verifications = Table(
    "verifications",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("instance", Text, nullable=False),
    Column("engine", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("opened_at", UtcTime, nullable=False),
    Column("closed_at", UtcTime),
    Column("verdict", String(16), nullable=False),
    Column("incident_id", String(12)),
    Column("document", Text, nullable=False),  # JSON
    CheckConstraint("verdict IN ('open', 'PASS', 'FAIL', 'INCONCLUSIVE')", name="verdict"),
    CheckConstraint("(verdict = 'open') = (closed_at IS NULL)", name="closed_at"),
)
Index("ix_verifications_opened_at", verifications.c.opened_at)
Index("ix_verifications_closed_at", verifications.c.closed_at)
Index("ix_verifications_incident_id", verifications.c.incident_id)

# a week's report, once made; the outbox has who was sent it
reports = Table(
    "reports",
    metadata,
    Column("week", String(8), primary_key=True),  # as ISO 8601 names it: 2026-W47
    Column("made_at", UtcTime, nullable=False),
    Column("document", Text, nullable=False),  # JSON
)

memory = Table(
    "memory",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("batch", Integer, primary_key=True, autoincrement=False),  # whose; -1: everybody's
    Column("value", LargeBinary, nullable=False),
)
NO_BATCH = -1

# servers and pools as of their newest minute: a tick replaces the rows of its batch
latest_servers = Table(
    "latest_servers",
    metadata,
    Column("instance", Text, primary_key=True),
    Column("engine", Text, primary_key=True),
    Column("pool", Text, nullable=False),
    Column("labels", Text, nullable=False),  # JSON
    Column("batch", Integer, nullable=False),  # whose; -1: there is one batch
    Column("state", String(16), nullable=False),
    Column("since", UtcTime, nullable=False),  # when that state began
    Column("at", UtcTime, nullable=False),  # end of the minute
    Column("why", Text),
    Column("in_target", Float),
    Column("in_target_at_most", Float),
    Column("speed", Float),
    Column("speed_why", Text),
    Column("limit", Text),
    Column("margin", Float),
)
Index("ix_latest_servers_pool", latest_servers.c.pool)
latest_pools = Table(
    "latest_pools",
    metadata,
    Column("pool", Text, primary_key=True),
    Column("batch", Integer, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("document", Text, nullable=False),  # JSON
    Column("trace", Text, nullable=False),  # JSON: its last 24 h
)

meta = Table(
    "meta",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("value", Text, nullable=False),
)

for _table in metadata.tables.values():
    for _column in _table.columns:
        if isinstance(_column.type, String):
            # by its bytes on PostgreSQL as well, whatever the database's own order
            _sorted = type(_column.type)(_column.type.length, collation="C")
            _column.type = _column.type.with_variant(_sorted, "postgresql")
# frames are compressed already
_as_it_is = DDL(  # type: ignore[no-untyped-call]
    "ALTER TABLE %(table)s ALTER COLUMN frame SET STORAGE EXTERNAL"
)
event.listen(minute_batches, "after_create", _as_it_is.execute_if(dialect="postgresql"))
