"""The processes among which shards are dealt: each says again and again that it is there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, update

from driftwatch.errors import StoreError
from driftwatch.store.database import Database
from driftwatch.store.lease import LEADER, Leases
from driftwatch.store.tables import leases, members, meta

SHARD_LEASE = "shard "
SHARDS = "shards"


@dataclass(frozen=True, slots=True)
class Member:
    """A process that watches shards."""

    name: str
    process: str  # one start of it
    version: str
    joined_at: datetime
    clock_ahead_seconds: float  # its own clock before the database's
    remaining_seconds: float  # how long it counts as there; 0 and less: it is gone


@dataclass(frozen=True, slots=True)
class ShardHolder:
    """Who has the lease of a shard."""

    shard: int
    holder: str
    fence: int
    remaining_seconds: float


class Members:
    """The rows of the members, over the connection of the leases."""

    def __init__(self, rows: Leases) -> None:
        self._rows = rows

    def deal(self, count: int) -> None:
        """Note that pools are dealt to so many shards.

        Raises StoreError: ``in-use`` (a process without shards watches), ``other-shards`` (they
        were dealt to another number of them).
        """
        with self._rows.transaction() as connection:
            stored = shard_count(connection)
            if stored is None:
                query = select(leases.c.holder).where(
                    leases.c.name == LEADER, leases.c.expires_at > func.clock_timestamp()
                )
                if (holder := connection.execute(query).scalar()) is not None:
                    raise StoreError(
                        f"{holder} watches this database without shards",
                        code="in-use",
                        help_text="stop it, then start processes with shards",
                    )
                connection.execute(insert(meta), [{"name": SHARDS, "value": str(count)}])
        require_shards(stored or count, count)

    def beat(self, name: str, process: str, version: str, now: datetime) -> list[Member]:
        """Say that this process is there; ``now``: by its own clock. Who is there, by name.

        Raises StoreError: ``in-use`` where another process of this name is there.
        """
        with self._rows.transaction() as connection:
            there = func.clock_timestamp()
            at: datetime = connection.execute(select(there)).scalar_one()
            ahead = (now - at).total_seconds()
            connection.execute(delete(members).where(members.c.expires_at <= there))
            row = connection.execute(select(members).where(members.c.name == name)).one_or_none()
            if row is None:
                new = {"name": name, "process": process, "version": version}
                connection.execute(
                    insert(members).values(
                        **new,
                        joined_at=there,
                        expires_at=self._rows.end(),
                        clock_ahead_seconds=ahead,
                    )
                )
            elif row.process == process:
                query = update(members).where(members.c.name == name)
                connection.execute(
                    query.values(expires_at=self._rows.end(), clock_ahead_seconds=ahead)
                )
            else:
                raise StoreError(
                    f"another driftwatch run is called {name}",
                    code="in-use",
                    help_text="give each process a name of its own: driftwatch run --name NAME",
                )
            return _members(connection)

    def leave(self, name: str, process: str) -> None:
        """It is not there any more."""
        with self._rows.transaction() as connection:
            own = (members.c.name == name) & (members.c.process == process)
            connection.execute(delete(members).where(own))


class ShardList(Database):
    """Part of the store: who watches which shard, on PostgreSQL."""

    def shard_count(self) -> int | None:
        """To how many shards pools are dealt; None: to none, one process watches all."""
        with self._reading() as connection:
            return shard_count(connection)

    def members(self) -> list[Member]:
        """The processes that share the shards, and those that are gone since, by name."""
        with self._reading() as connection:
            return _members(connection)

    def shard_holders(self) -> list[ShardHolder]:
        """Who has, or had, which shard, by its number."""
        remaining = func.extract("epoch", leases.c.expires_at - func.clock_timestamp())
        query = select(leases.c.name, leases.c.holder, leases.c.fence, remaining.label("left"))
        query = query.where(leases.c.name.startswith(SHARD_LEASE))
        with self._reading() as connection:
            holders = [
                ShardHolder(
                    int(row.name.removeprefix(SHARD_LEASE)), row.holder, row.fence, row.left
                )
                for row in connection.execute(query)
            ]
        return sorted(holders, key=lambda one: one.shard)


def shard_count(connection: Connection) -> int | None:
    """To how many shards pools were dealt; None: to none."""
    value = connection.execute(select(meta.c.value).where(meta.c.name == SHARDS)).scalar()
    return None if value is None else int(value)


def require_shards(stored: int, configured: int) -> None:
    """Check that a configuration deals pools as they were dealt before.

    Raises StoreError: ``other-shards``.
    """
    if stored != configured:
        raise StoreError(
            f"this database deals pools to {stored} shards, the configuration has {configured}",
            code="other-shards",
            help_text=f"shards: {stored}; the number stays, processes come and go",
        )


def _members(connection: Connection) -> list[Member]:
    remaining = func.extract("epoch", members.c.expires_at - func.clock_timestamp())
    query = select(members, remaining.label("left")).order_by(members.c.name)
    return [
        Member(
            row.name,
            row.process,
            row.version,
            row.joined_at,
            row.clock_ahead_seconds,
            float(row.left),
        )
        for row in connection.execute(query)
    ]
