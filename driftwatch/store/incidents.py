"""Incidents in the database."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    RowMapping,
    Table,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from driftwatch.errors import DocumentError, UsageError
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.notify.page import Acknowledgement, Page
from driftwatch.store.database import Database, chunks
from driftwatch.store.tables import deliveries, incidents

# of a row: what a tick writes of one that is there, besides its page
_WRITTEN = (
    *("key", "rule", "alert", "severity", "pool", "state", "started_at", "firing_at"),
    *("resolved_at", "silenced_by", "document"),
)

LONGEST_BECAUSE = 500


# "b_": bound names must differ from column names in an UPDATE
_UPDATE = (
    update(incidents)
    .where(incidents.c.id == bindparam("b_id"))
    .values({name: bindparam(f"b_{name}") for name in _WRITTEN})
    .values(page=func.coalesce(bindparam("b_page"), incidents.c.page))
)


class Incidents(Database):
    """Part of the store: incidents."""

    def open_incidents(self) -> dict[str, Incident]:
        """Pending and firing incidents by key; of a batch its own."""
        own = true() if self.batch is None else incidents.c.batch == self.batch
        query = select(incidents).where(own, incidents.c.state != "resolved")
        rows = self._all(query.order_by(incidents.c.key))
        return {row["key"]: stored_incident(row) for row in rows}

    def acknowledgements(self) -> dict[str, Acknowledgement]:
        """Incident id → its acknowledgement, of those that fire."""
        table = incidents.c
        query = select(table.id, table.acknowledgement).where(
            table.state == "firing", table.acknowledgement.is_not(None)
        )
        rows = self._all(query)
        return {row["id"]: Acknowledgement.read(row["acknowledgement"]) for row in rows}

    def incidents(
        self, *, since: datetime | None = None, limit: int = 1000, pages: bool = True
    ) -> list[Incident]:
        """Incidents: firing, pending, resolved; within each the newest first.

        ``since``: only those open now or resolved at or after this time; ``limit``: at most so
        many; ``pages``: False leaves their pages out, which take most of the time.
        """
        state_of = incidents.c.state
        rank = case((state_of == "firing", 0), (state_of == "pending", 1), else_=2)
        columns = [c for c in incidents.c if pages or c is not incidents.c.page]
        query = select(*columns).order_by(rank, incidents.c.started_at.desc(), incidents.c.key)
        if since is not None:
            resolved_at = incidents.c.resolved_at
            query = query.where(or_(resolved_at.is_(None), resolved_at >= since))
        return [stored_incident(row) for row in self._all(query.limit(limit))]

    def incident(self, id_prefix: str) -> Incident:
        """The one incident whose id begins with the prefix.

        Raises UsageError: there is none, or more than one.
        """
        with self._reading() as connection:
            return one_incident(connection, id_prefix)


def by_prefix(
    connection: Connection,
    table: Table,
    id_prefix: str,
    noun: str,
    command: str,
    *,
    lock: bool = False,
) -> RowMapping:
    """The row whose id begins with the prefix; ``lock`` it on PostgreSQL, for the transaction.

    Raises UsageError: there is none, or more than one.
    """
    prefix = id_prefix.strip().lower()
    if re.fullmatch(r"[0-9a-f]{1,12}", prefix) is None:
        raise UsageError(
            f"{id_prefix!r} is not the id of {noun} (up to twelve digits 0-9, a-f)",
            help_text=f"{command} lists them",
        )
    query = select(table).where(table.c.id.startswith(prefix, autoescape=True))
    query = query.order_by(table.c.id).limit(6)
    rows = connection.execute(query.with_for_update() if lock else query).mappings().all()
    noun = noun.partition(" ")[2]
    if not rows:
        raise UsageError(f"no {noun} {prefix!r}", help_text=f"{command} lists them")
    if len(rows) > 1:
        ids = ", ".join(row["id"] for row in rows[:5]) + (", ..." if len(rows) > 5 else "")
        raise UsageError(
            f"{prefix!r} fits more than one {noun}: {ids}", help_text="give more of the id"
        )
    return rows[0]


def one_incident(connection: Connection, id_prefix: str, *, lock: bool = False) -> Incident:
    """The incident whose id begins with the prefix; ``lock`` its row until the transaction ends.

    Raises UsageError: there is none, or more than one.
    """
    command = "driftwatch incidents --all"
    return stored_incident(
        by_prefix(connection, incidents, id_prefix, "an incident", command, lock=lock)
    )


def stored_page(text: str | bytes) -> Page | None:
    """A page of its text; None of one that an earlier version wrote in another form."""
    try:
        return Page.read(text)
    except DocumentError:
        return None


def stored_incident(row: Mapping[Any, Any]) -> Incident:
    """An incident of its row; without a column of the page it has none."""
    by, page = row["acknowledgement"], row.get("page")
    beside = {
        "acknowledgement": None if by is None else Acknowledgement.read(by),
        "page": None if page is None else stored_page(page),
    }
    return Incident.read(row["document"]).model_copy(update=beside)


def incident_row(incident: Incident) -> dict[str, Any]:
    """An incident as the columns of its row, without its acknowledgement."""
    bare = incident.model_copy(update={"acknowledgement": None, "page": None})
    row = {name: getattr(bare, name) for name in _WRITTEN if name != "document"}
    page = None if incident.page is None else incident.page.text()
    return {**row, "id": incident.id, "document": bare.text(), "page": page}


def prune_incidents(connection: Connection, before: datetime) -> None:
    """Delete what was resolved before a time; one with a pending delivery stays."""
    to_be_sent = exists().where(
        deliveries.c.incident_id == incidents.c.id, deliveries.c.status == "pending"
    )
    connection.execute(
        delete(incidents).where(
            incidents.c.state == "resolved", incidents.c.resolved_at < before, ~to_be_sent
        )
    )


def write_incidents(
    connection: Connection,
    open_now: Iterable[Incident],
    happened: Sequence[Transition],
    batch: int | None = None,
) -> None:
    """Write what the tick decided, for all pools or for those of a batch.

    A pending row that is no longer open is deleted. A firing row that the tick does not have stays
    as it is. A resolved row is final. The acknowledgement stays, as a person may have written it
    since the tick read it. A stored page stays where the tick made none. An unchanged row is not
    written. An incident that the batch has open belongs to it from now on.
    """
    changes = [t for t in happened if t.event in ("firing", "resolved")]
    last = {t.incident.id: t.incident for t in changes} | {i.id: i for i in open_now}
    query = select(incidents.c.id, incidents.c.batch, *(incidents.c[name] for name in _WRITTEN))
    own = incidents.c.batch == batch if batch is not None else true()
    ours = connection.execute(query.where(own, incidents.c.state != "resolved")).mappings()
    stored = {row["id"]: row for row in ours}
    dropped = [i for i, row in stored.items() if row["state"] == "pending" and i not in last]
    for ids in chunks(sorted(dropped)):
        connection.execute(delete(incidents).where(incidents.c.id.in_(ids)))
    resolved = set()
    for ids in chunks(sorted(last.keys() - stored.keys())):
        for row in connection.execute(query.where(incidents.c.id.in_(ids))).mappings():
            if row["state"] == "resolved":
                resolved.add(row["id"])
            else:
                stored[row["id"]] = row
    # what resolves goes first: one key has one open row at a time
    order = sorted(last.values(), key=lambda i: (i.state != "resolved", i.key, i.started_at))
    rows = [{**incident_row(i), "batch": batch} for i in order if i.id in stored]
    changed = [
        {f"b_{name}": value for name, value in row.items() if name != "batch"}
        for row in rows
        if row["page"] is not None
        or any(row[name] != stored[row["id"]][name] for name in (*_WRITTEN, "batch"))
    ]
    if changed:
        connection.execute(_UPDATE.values(batch=batch), changed)
    new = [
        {**incident_row(i), "batch": batch}
        for i in order
        if i.id not in stored and i.id not in resolved
    ]
    if new:
        connection.execute(insert(incidents), new)
    _note_verdicts(connection, [t for t in happened if t.event == "verified"])


def _note_verdicts(connection: Connection, verified: Iterable[Transition]) -> None:
    """The verdicts, on the pages of their incidents: those of resolved ones as well."""
    for transition in verified:
        of_incident = incidents.c.id == transition.incident.id
        document = connection.execute(select(incidents.c.page).where(of_incident)).scalar()
        if document is None or transition.incident.page is None:
            continue
        if (page := stored_page(document)) is None:
            continue
        verification = transition.incident.page.verification
        page = page.model_copy(update={"verification": verification})
        connection.execute(update(incidents).where(of_incident).values(page=page.text()))
