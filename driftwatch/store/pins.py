"""Pins in the database: those in force, those that were, and proposals nobody has accepted yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.sql import Select

from driftwatch.errors import UsageError
from driftwatch.store.rows import chunks
from driftwatch.store.tables import memory, pins
from driftwatch.store.transactions import Transactions

_PROPOSALS = "baseline.proposals"


@dataclass(frozen=True, slots=True)
class KeptPin:
    """A pin as its row.

    Attributes:
        id: short and unique.
        scope: ``target`` or ``pool``.
        instance: of a target's, else None.
        engine: of a target's, else None.
        pool: its pool.
        accepted_at: when.
        accepted_by: who.
        document: the pin as JSON.
        retired_at: when another one took its place; None while it is in force.
    """

    id: str
    scope: str
    instance: str | None
    engine: str | None
    pool: str
    accepted_at: datetime
    accepted_by: str
    document: str
    retired_at: datetime | None = None


class KeptPins(Transactions):
    """Part of the store: pins. Every method is one transaction."""

    def pins(self, *, retired: bool = False) -> list[KeptPin]:
        """Pins in force, in order of acceptance; with ``retired`` all that ever were."""
        with self._reading() as connection:
            return _read(connection, _in_order(retired))

    def pins_in_force(self) -> tuple[str, ...]:
        """Which: their ids and when they were accepted. Another answer means they changed."""
        with self._reading() as connection:
            query = select(pins.c.id, pins.c.accepted_at).where(pins.c.retired_at.is_(None))
            rows = connection.execute(query.order_by(pins.c.id))
            return tuple(f"{row.id} {row.accepted_at.isoformat()}" for row in rows)

    def add_pins(self, found: Sequence[KeptPin]) -> None:
        """Put pins in force, all or none; what was in force for the same target or pool retires.

        Raises:
            UsageError: an id is that of a pin of another target or pool.
        """
        new = {_place(pin): pin for pin in found}  # of two of one place the later one holds
        with self._writing() as connection:
            held = {_place(pin): pin for pin in _read(connection, _in_order(retired=False))}
            for place, pin in new.items():
                if place in held:
                    query = update(pins).where(pins.c.id == held[place].id)
                    connection.execute(query.values(retired_at=pin.accepted_at))
            for ids in chunks([pin.id for pin in new.values()]):
                same = _read(connection, select(pins).where(pins.c.id.in_(ids)))
                places = {pin.id: place for place, pin in new.items()}
                if taken := [pin for pin in same if _place(pin) != places[pin.id]]:
                    one = taken[0]
                    raise UsageError(
                        f"{one.id} is the id of a pin of {one.instance or one.pool}",
                        help_text="another target needs a pin of its own: driftwatch baseline pin",
                    )
                connection.execute(delete(pins).where(pins.c.id.in_(ids)))
            if new:
                connection.execute(insert(pins), [_row(pin) for pin in new.values()])

    def keep_proposals(self, document: bytes) -> None:
        """Keep what was proposed last, so that it can be accepted by its id."""
        with self._writing() as connection:
            connection.execute(delete(memory).where(memory.c.name == _PROPOSALS))
            connection.execute(insert(memory), [{"name": _PROPOSALS, "value": document}])

    def proposals(self) -> bytes | None:
        """What :meth:`keep_proposals` kept; None where nothing was."""
        with self._reading() as connection:
            query = select(memory.c.value).where(memory.c.name == _PROPOSALS)
            found: bytes | None = connection.execute(query).scalar()
            return found


def _in_order(retired: bool) -> Select[tuple[object, ...]]:
    query = select(pins).order_by(pins.c.accepted_at, pins.c.id)
    return query if retired else query.where(pins.c.retired_at.is_(None))


def _read(connection: Connection, query: Select[tuple[object, ...]]) -> list[KeptPin]:
    return [KeptPin(**row) for row in connection.execute(query).mappings()]


def _place(pin: KeptPin) -> tuple[str | None, ...]:
    """What only one pin in force can be of."""
    if pin.scope == "pool":
        return ("pool", pin.pool)
    return ("target", pin.instance, pin.engine)


def _row(pin: KeptPin) -> Mapping[str, object]:
    return {name: getattr(pin, name) for name in KeptPin.__slots__}
