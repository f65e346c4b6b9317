"""Servers and pools as of their newest minute: what the fleet's pages list.

The tick writes a row of each with everything else that it decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import Field, field_validator
from sqlalchemy import Connection, Table, case, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from driftwatch.documents import Document, to_json
from driftwatch.model import Target, TargetKey
from driftwatch.store.database import Database
from driftwatch.store.tables import NO_BATCH, latest_pools, latest_servers

MinuteState = Literal[
    "no data", "target missed", "slower", "limit full", "not judged", "in target", "as its baseline"
]
# worst first
MINUTE_STATES: tuple[MinuteState, ...] = MinuteState.__args__  # type: ignore[attr-defined]
UNKNOWN: tuple[MinuteState, ...] = ("no data", "not judged")
SLOT, SLOTS = timedelta(minutes=30), 48


class ServerNow(Document):
    """A server as of its newest minute; what is unknown is None."""

    instance: str
    engine: str
    pool: str
    labels: Mapping[str, str] = {}
    state: MinuteState  # by this minute alone: an incident may say more
    since: datetime  # when that state began
    at: datetime  # end of the minute
    why: str | None = None  # why the state is unknown
    in_target: float | None = None  # share of the requests of 10 min, of the worse latency
    in_target_at_most: float | None = None  # where in_target is a lower bound
    speed: float | None = None  # at equal load, over its baseline
    speed_why: str | None = None
    limit: str | None = None  # the full one; "none": no limit is full
    margin: float | None = None  # share of room left under the nearest limit

    @field_validator("labels", mode="before")
    @classmethod
    def _as_stored(cls, labels: Any) -> Any:
        return json.loads(labels) if isinstance(labels, str) else labels

    @property
    def target(self) -> Target:
        """The target that it is."""
        return Target(self.key, self.labels, self.pool)

    @property
    def key(self) -> TargetKey:
        """Of the target."""
        return TargetKey(self.instance, self.engine)


class Trace(Document):
    """A pool's last 24 h in :data:`SLOTS` half hours; sums, so that minutes are only added."""

    first: datetime  # where the first half hour begins
    requests: tuple[float, ...] = (0.0,) * SLOTS  # that were judged
    hits: tuple[float, ...] = (0.0,) * SLOTS  # of them in target
    minutes: tuple[float, ...] = (0.0,) * SLOTS  # in which a speed was known
    speeds: tuple[float, ...] = (0.0,) * SLOTS  # of the slowest server in each of them

    @property
    def in_target(self) -> list[float | None]:
        """Share of requests in target of each half hour, None without a request."""
        return _ratios(self.hits, self.requests)

    @property
    def speed(self) -> list[float | None]:
        """Speed at equal load of the slowest server, mean of each half hour."""
        return _ratios(self.speeds, self.minutes)

    def with_minutes(self, sums: Mapping[datetime, Sequence[float]], until: datetime) -> Trace:
        """With more minutes, the half hour of ``until`` last.

        ``sums``: start of a half hour → requests, hits, minutes and speeds to add.
        """
        first = slot_of(until) - (SLOTS - 1) * SLOT
        moved = (first - self.first) // SLOT
        columns = (self.requests, self.hits, self.minutes, self.speeds)
        slots = [
            [column[at + moved] if 0 <= at + moved < SLOTS else 0.0 for column in columns]
            for at in range(SLOTS)
        ]
        for start, added in sums.items():
            at = (start - first) // SLOT
            if 0 <= at < SLOTS:
                slots[at] = [round(a + b, 4) for a, b in zip(slots[at], added, strict=True)]
        requests, hits, minutes, speeds = zip(*slots, strict=True)
        return Trace(first=first, requests=requests, hits=hits, minutes=minutes, speeds=speeds)


def _ratios(parts: Sequence[float], wholes: Sequence[float]) -> list[float | None]:
    return [part / whole if whole else None for part, whole in zip(parts, wholes, strict=True)]


def slot_of(end: datetime) -> datetime:
    """Start of the half hour that a minute belongs to; the minute ends at ``end``."""
    begins = end - timedelta(microseconds=1)
    seconds = begins.timestamp() // SLOT.total_seconds() * SLOT.total_seconds()
    return datetime.fromtimestamp(seconds, UTC)


class PoolNow(Document):
    """A pool as of its newest minute: its servers in numbers; what is unknown is None."""

    pool: str
    at: datetime
    states: dict[MinuteState, int] = Field(default_factory=dict)  # state → servers
    why: str | None = None  # of servers whose state is unknown, the commonest reason
    in_target: float | None = None  # of the requests of 10 min
    in_target_at_most: float | None = None  # where in_target is a lower bound
    in_target_why: str | None = None
    required: float | None = None  # share that the pool's slo asks for
    declared: dict[str, Any] | None = None  # its configuration, as driftwatch.pipeline.plan.Pool
    speed: float | None = None  # of the slowest server, at equal load
    speed_why: str | None = None
    limit: str | None = None  # full on most of the servers on which one is; "none"
    full_on: int = 0  # servers on which it is full
    margin: float | None = None  # the least of any server

    @property
    def servers(self) -> int:
        """How many there are."""
        return sum(self.states.values())


@dataclass(frozen=True, slots=True)
class Latest:
    """What a tick writes of the servers and pools of its batch; others of the batch are gone."""

    since: datetime  # end of the tick's first minute
    at: datetime  # of its newest
    servers: Sequence[ServerNow]
    pools: Sequence[tuple[PoolNow, Trace]]


class LatestRows(Database):
    """Part of the store: servers and pools now."""

    def traces(self) -> dict[str, Trace]:
        """The last 24 h of every pool; of a batch its own."""
        query = select(latest_pools.c.pool, latest_pools.c.trace)
        if self.batch is not None:
            query = query.where(latest_pools.c.batch == self.batch)
        return {row["pool"]: Trace.read(row["trace"]) for row in self._all(query)}

    def stored_pools(self) -> list[PoolNow]:
        """Every pool as of its newest minute."""
        return [PoolNow.read(row["document"]) for row in self._all(select(latest_pools.c.document))]


SERVER_COLUMNS = tuple(latest_servers.c[name] for name in ServerNow.model_fields)


def write_latest(connection: Connection, latest: Latest, batch: int | None) -> None:
    """The rows of a batch, and none of what it has no more."""
    of = NO_BATCH if batch is None else batch
    servers = [{**dict(one), "labels": to_json(one.labels), "batch": of} for one in latest.servers]
    pools = [
        {
            "pool": one.pool,
            "at": one.at,
            "batch": of,
            "document": one.text(),
            "trace": trace.text(),
        }
        for one, trace in latest.pools
    ]
    for table, rows in ((latest_servers, servers), (latest_pools, pools)):
        if rows:
            connection.execute(_upsert(connection, table, latest.since), rows)
        connection.execute(delete(table).where(table.c.batch == of, table.c.at < latest.at))


def _upsert(connection: Connection, table: Table, first: datetime) -> Any:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table)
    keys, new = [column.name for column in table.primary_key], statement.excluded
    changed = {c.name: new[c.name] for c in table.c if c.name not in keys}
    if table is latest_servers:
        # a state that lasts through the whole tick has begun before it
        is_same = (table.c.state == new.state) & (new.since <= first)
        changed["since"] = case((is_same, table.c.since), else_=new.since)
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)
