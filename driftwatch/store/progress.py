"""How far each batch of pools is, and the compare-and-set that makes a tick a transaction."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, func, insert, select, update

from driftwatch.errors import StoreError
from driftwatch.store.database import Database
from driftwatch.store.tables import batches


@functools.lru_cache(maxsize=100_000)
def batch_of(pool: str, of: int) -> int:
    """The batch of a pool.

    >>> [batch_of(pool, 4) for pool in ("chat", "code", "batch")]
    [3, 1, 0]
    """
    return int.from_bytes(hashlib.blake2b(pool.encode(), digest_size=8).digest()) % of


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """A row of the table, by default of a batch that was never ticked."""

    number: int
    of: int  # how many batches there are
    evaluated_until: datetime | None = None
    version: int = 0  # grows with each commit
    ticked_at: datetime | None = None
    targets: int = 0
    seconds: float | None = None  # how long the last tick took
    incomplete: str | None = None  # why the last tick knows nothing of some source

    def is_same_commit(self, other: BatchProgress) -> bool:
        """No tick was committed between the two."""
        mine = self.of, self.version, self.evaluated_until
        return mine == (other.of, other.version, other.evaluated_until)


# A batch whose last tick is older than this is unwatched: two minutes, and what a tick takes.
UNWATCHED = timedelta(seconds=150)


def unwatched(progress: Iterable[BatchProgress], now: datetime) -> list[int]:
    """Batches without a tick for :data:`UNWATCHED`."""
    return [
        one.number for one in progress if one.ticked_at is None or now - one.ticked_at > UNWATCHED
    ]


class Progress(Database):
    """Part of the store: batches."""

    def batches(self) -> list[BatchProgress]:
        """Every batch, by number; none in a database without a tick."""
        return [BatchProgress(**row) for row in self._all(_EVERY)]

    def batch_progress(self) -> BatchProgress | None:
        """The progress of this store's batch; None before its first commit."""
        query = _EVERY.where(batches.c.number == (self.batch or 0))
        return next((BatchProgress(**row) for row in self._all(query)), None)

    def database_time(self) -> datetime | None:
        """What time it is by the database's own clock; None where it has none."""
        if self._engine.dialect.name != "postgresql":
            return None
        at: datetime = self._scalar(select(func.clock_timestamp()))
        return at.astimezone(UTC)

    def make_batches(self, of: int) -> int:
        """Make so many batches in a database that has none; returns how many there are."""
        with self._writing() as connection:
            count = connection.execute(select(func.count()).select_from(batches)).scalar_one()
            if count == 0 and of > 1:
                new = [BatchProgress(number, of) for number in range(of)]
                connection.execute(insert(batches), [asdict(one) for one in new])
                return of
            return int(count) or 1


_EVERY = select(batches).order_by(batches.c.number)


def write_progress(connection: Connection, begun: BatchProgress, new: BatchProgress) -> None:
    """Write how far a batch is, if its row is still the one that the tick began from.

    Raises StoreError: ``tick-lost``: another tick of the batch was committed meanwhile.
    """
    row = asdict(replace(new, version=begun.version + 1))
    if begun.version == 0:
        stored = select(batches.c.number).where(batches.c.number == begun.number)
        if connection.execute(stored).first() is None:
            connection.execute(insert(batches), [row])
            return
    query = update(batches).where(
        batches.c.number == begun.number,
        batches.c.of == begun.of,
        batches.c.version == begun.version,
    )
    if connection.execute(query.values(**row)).rowcount != 1:
        raise StoreError(
            f"another tick of batch {begun.number} was committed meanwhile", code="tick-lost"
        )
