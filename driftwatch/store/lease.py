"""Who does what on a PostgreSQL database: a row with a holder, an end, and a growing fence.

One lease says who leads; where pools are dealt to several processes, each shard has one more.

Times are the database's own (``clock_timestamp()``), so that the hosts' clocks do not matter. What
a holder writes is checked against its fence in the same transaction: a process that was stopped,
and goes on after another one took over, writes nothing. On SQLite a lock of the file does this
(:mod:`driftwatch.store.lock`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from driftwatch.database_place import PostgresPlace
from driftwatch.errors import StoreError
from driftwatch.store.postgres import postgres_engine, postgres_failure
from driftwatch.store.tables import leases

LEADER = "tick"
# of one try to take or renew it, waiting for a lock included
_LONGEST_TRY_SECONDS = 5.0
# a process that is stopped between its last look at the fence and its commit blocks a taker this
# long: then the server ends its session, and takes back what it wrote
_COMMIT_SECONDS = 3
_TAKEN_OVER = "another driftwatch has taken over on this database"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that was taken."""

    holder: str
    fence: int
    name: str = LEADER


@dataclass(frozen=True, slots=True)
class OtherHolder:
    """Who has the lease, and for how long it is sure of it."""

    holder: str
    remaining_seconds: float


class Leases:
    """The rows, over a connection of their own: pages and ticks do not delay a renewal.

    ``seconds``: how long a lease lasts. Every method raises StoreError where the database does not
    serve.
    """

    def __init__(self, place: PostgresPlace, seconds: float) -> None:
        self._place = place
        self._lasts = timedelta(seconds=seconds)
        self._engine = postgres_engine(place, min(seconds / 3, _LONGEST_TRY_SECONDS))

    def take(self, holder: str, name: str = LEADER) -> Lease | OtherHolder:
        """Take a lease where it is free or has ended, with the next fence; else who has it."""
        row = insert(leases).values(name=name, holder=holder, fence=1, expires_at=self.end())
        upsert = row.on_conflict_do_update(
            index_elements=["name"],
            set_={
                "holder": row.excluded.holder,
                "fence": leases.c.fence + 1,
                "expires_at": self.end(),
            },
            where=leases.c.expires_at <= func.clock_timestamp(),
        ).returning(leases.c.fence)
        remaining = func.extract("epoch", leases.c.expires_at - func.clock_timestamp())
        with self.transaction() as connection:
            fence = connection.execute(upsert).scalar()
            if fence is not None:
                return Lease(holder, fence, name)
            other = connection.execute(
                select(leases.c.holder, remaining).where(leases.c.name == name)
            )
            other_name, seconds = other.one()
            return OtherHolder(other_name, max(0.0, float(seconds)))

    def renew(self, lease: Lease) -> bool:
        """Put its end off; False: it was taken over. One that ended and nobody took goes on."""
        query = update(leases).where(_row_of(lease)).values(expires_at=self.end())
        with self.transaction() as connection:
            return connection.execute(query).rowcount == 1

    def release(self, lease: Lease) -> None:
        """End it now, where it is still held: another one need not wait."""
        query = update(leases).where(_row_of(lease)).values(expires_at=func.clock_timestamp())
        with self.transaction() as connection:
            connection.execute(query)

    def close(self) -> None:
        """Give the connection back."""
        self._engine.dispose()

    def end(self) -> ColumnElement[Any]:
        """When what is taken or renewed now ends."""
        return func.clock_timestamp() + self._lasts

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction over that connection, bounded in time."""
        try:
            with self._engine.begin() as connection:
                seconds = f"{max(self._lasts.total_seconds() / 3, 1.0):.0f}s"
                connection.execute(_BOUND, {"seconds": seconds})
                yield connection
        except DBAPIError as error:
            raise postgres_failure(self._place, error.orig) from error
        except PoolTimeout as error:
            raise postgres_failure(self._place, error) from error


_BOUND = text(
    "SELECT set_config('statement_timeout', :seconds, true), "
    "set_config('idle_in_transaction_session_timeout', :seconds, true)"
)
_HURRY = text(
    f"SELECT set_config('idle_in_transaction_session_timeout', '{_COMMIT_SECONDS}s', true)"
)


def _row_of(lease: Lease) -> ColumnElement[bool]:
    return (
        (leases.c.name == lease.name)
        & (leases.c.holder == lease.holder)
        & (leases.c.fence == lease.fence)
    )


def require_lease(
    connection: Connection, lease: Lease | None, *, until_commit: bool = False
) -> None:
    """Check that the lease is still held; None needs no check.

    ``until_commit``: nobody takes it over before this transaction ends: for the last statement.

    Raises StoreError: ``lease-lost``.
    """
    if lease is None:
        return
    query = select(leases.c.fence).where(_row_of(lease))
    if until_commit:
        connection.execute(_HURRY)
        query = query.with_for_update(read=True)
    if connection.execute(query).first() is None:
        raise StoreError(_TAKEN_OVER, code="lease-lost")
