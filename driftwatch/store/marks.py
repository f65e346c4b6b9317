"""What people say of pages, in the database: useful, or not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select

from driftwatch.errors import UsageError
from driftwatch.store.incidents import read_one
from driftwatch.store.rows import chunks
from driftwatch.store.tables import marks
from driftwatch.store.transactions import Transactions

USEFUL, NOT_USEFUL = "useful", "not useful"
LONGEST_BECAUSE = 500


@dataclass(frozen=True, slots=True)
class Mark:
    """What somebody said of one incident's page.

    Attributes:
        incident_id: whose.
        mark: useful or not useful.
        at: when it was said.
        by: who.
        because: why; empty = not said.
    """

    incident_id: str
    mark: str
    at: datetime
    by: str
    because: str = ""


class KeptMarks(Transactions):
    """Part of the store: marks. A method is one transaction."""

    def mark(self, id_prefix: str, mark: str, *, by: str, at: datetime, because: str = "") -> Mark:
        """Note what somebody says of a page, in the place of what was said of it before.

        Args:
            id_prefix: how the incident's id begins.
            mark: useful or not useful.
            by: who says it.
            at: when.
            because: why; empty = not said.

        Raises:
            UsageError: no such incident, more than one, or nobody was told of it yet; or the
                reason is longer than :data:`LONGEST_BECAUSE` characters.
        """
        if len(because) > LONGEST_BECAUSE:
            raise UsageError(f"a reason has at most {LONGEST_BECAUSE} characters")
        with self._writing() as connection:
            found = read_one(connection, id_prefix)
            if found.state == "pending":
                raise UsageError(f"incident {found.id} has not fired yet: there is no page to mark")
            told = Mark(found.id, mark, at, by, because)
            connection.execute(delete(marks).where(marks.c.incident_id == found.id))
            row = {field.name: getattr(told, field.name) for field in fields(told)}
            connection.execute(insert(marks), [row])
            return told

    def unmark(self, id_prefix: str) -> str:
        """Take a mark back; says the incident's id.

        Raises:
            UsageError: no such incident, more than one, or nobody marked it.
        """
        with self._writing() as connection:
            found = read_one(connection, id_prefix)
            gone = connection.execute(delete(marks).where(marks.c.incident_id == found.id))
            if not gone.rowcount:
                raise UsageError(f"incident {found.id} is not marked")
            return found.id

    def marks(self, incident_ids: Collection[str]) -> dict[str, Mark]:
        """Incident → its mark; those that nobody marked are not among them."""
        with self._reading() as connection:
            return read_marks(connection, incident_ids)


def read_marks(connection: Connection, incident_ids: Collection[str]) -> dict[str, Mark]:
    """The same within a transaction."""
    found: dict[str, Mark] = {}
    for ids in chunks(sorted(set(incident_ids))):
        rows = connection.execute(select(marks).where(marks.c.incident_id.in_(ids))).mappings()
        found |= {row["incident_id"]: Mark(**row) for row in rows}
    return found
