"""Incidents and transitions in the database."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, case, delete, func, insert, or_, select, update

from driftwatch.documents import to_json
from driftwatch.errors import UsageError
from driftwatch.model import Incident, Transition
from driftwatch.store.rows import (
    ACKNOWLEDGEMENT,
    INCIDENT_COLUMNS,
    chunks,
    incident_of,
    incident_row,
)
from driftwatch.store.tables import incidents, transitions


def read_open(connection: Connection) -> dict[str, Incident]:
    """Pending and firing incidents by key."""
    query = select(incidents).where(incidents.c.state != "resolved").order_by(incidents.c.key)
    return {row["key"]: incident_of(row) for row in connection.execute(query).mappings()}


def read_list(
    connection: Connection, *, state: str | None, since: datetime | None, limit: int
) -> list[Incident]:
    """Incidents, open ones first, then the newest; ``since`` keeps what was open after it."""
    rank = case((incidents.c.state == "firing", 0), (incidents.c.state == "pending", 1), else_=2)
    query = select(incidents).order_by(rank, incidents.c.started_at.desc(), incidents.c.key)
    if state is not None:
        query = query.where(incidents.c.state == state)
    if since is not None:
        open_after = or_(incidents.c.resolved_at.is_(None), incidents.c.resolved_at >= since)
        query = query.where(open_after)
    return [incident_of(row) for row in connection.execute(query.limit(limit)).mappings()]


def read_one(connection: Connection, id_prefix: str) -> Incident:
    """The incident whose id begins so.

    Raises:
        UsageError: there is none, or more than one.
    """
    prefix = id_prefix.strip().lower()
    if re.fullmatch(r"[0-9a-f]{1,12}", prefix) is None:
        raise UsageError(
            f"{id_prefix!r} is not an incident id (up to twelve digits 0-9, a-f)",
            help_text="driftwatch incidents lists them",
        )
    query = select(incidents).where(incidents.c.id.startswith(prefix, autoescape=True))
    rows = connection.execute(query.order_by(incidents.c.id).limit(6)).mappings().all()
    if not rows:
        raise UsageError(
            f"no incident {prefix!r}", help_text="driftwatch incidents --all lists every one"
        )
    if len(rows) > 1:
        ids = ", ".join(row["id"] for row in rows[:5]) + (", ..." if len(rows) > 5 else "")
        raise UsageError(
            f"{prefix!r} fits more than one incident: {ids}", help_text="give more of the id"
        )
    return incident_of(rows[0])


def acknowledge(connection: Connection, id_prefix: str, by: str, at: datetime) -> Incident:
    """Note who took a firing incident; who came first stays.

    Raises:
        UsageError: no such incident, or it does not fire.
    """
    found = read_one(connection, id_prefix)
    if found.state != "firing":
        told = "has not fired yet" if found.state == "pending" else "is already resolved"
        raise UsageError(f"incident {found.id} {told}: there is nothing to acknowledge")
    connection.execute(
        update(incidents)
        .where(incidents.c.id == found.id, incidents.c.acknowledged_at.is_(None))
        .values(acknowledged_at=at, acknowledged_by=by)
    )
    return read_one(connection, found.id)


def write(
    connection: Connection, open_now: Iterable[Incident], happened: Sequence[Transition]
) -> None:
    """Bring the table to what the tick decided.

    Pending rows that are no longer open are dropped. A firing row that the tick does not mention
    stays as it is, a resolved one is final, and the acknowledgement columns are left alone: a
    person may have written them since the tick read them. A page once rendered is kept where the
    tick brings none.
    """
    told = [t for t in happened if t.event in ("firing", "resolved")]
    last = {t.incident.id: t.incident for t in told} | {i.id: i for i in open_now}
    stored = {
        row.id: row.state
        for row in connection.execute(
            select(incidents.c.id, incidents.c.state).where(incidents.c.state != "resolved")
        )
    }
    gone = [id_ for id_, state in stored.items() if state == "pending" and id_ not in last]
    for ids in chunks(sorted(gone)):
        connection.execute(delete(incidents).where(incidents.c.id.in_(ids)))
    resolved = _resolved_among(connection, [id_ for id_ in last if id_ not in stored])
    # what resolves goes first: one key has one open row at a time
    order = sorted(last.values(), key=lambda i: (i.state != "resolved", i.key, i.started_at))
    changed = [incident_row(i) for i in order if i.id in stored]
    new = [incident_row(i) for i in order if i.id not in stored and i.id not in resolved]
    if changed:
        kept = {"id", "page", *ACKNOWLEDGEMENT}
        # "b_": bound names must differ from column names in an UPDATE
        values: dict[str, Any] = {
            name: bindparam(f"b_{name}") for name in INCIDENT_COLUMNS if name not in kept
        }
        page = func.coalesce(bindparam("b_page", type_=incidents.c.page.type), incidents.c.page)
        connection.execute(
            update(incidents)
            .where(incidents.c.id == bindparam("b_id"))
            .values(page=page, **values),
            [{f"b_{name}": value for name, value in row.items()} for row in changed],
        )
    if new:
        connection.execute(insert(incidents), new)
    _note_news(connection, [t for t in happened if t.event in _NEWS])
    _note(connection, happened)


# event of a follow-up → the field of the page that it is about
_NEWS = {"advised": "recommendation", "verified": "verification"}


def _note_news(connection: Connection, follow_ups: Iterable[Transition]) -> None:
    """What follow-ups tell, on the pages of their incidents: those of resolved ones as well."""
    for transition in follow_ups:
        of_incident = incidents.c.id == transition.incident.id
        found = connection.execute(select(incidents.c.page).where(of_incident)).scalar()
        if found is None or transition.incident.page is None:
            continue
        name = _NEWS[transition.event]
        page = {**json.loads(found), name: transition.incident.page.get(name)}
        connection.execute(update(incidents).where(of_incident).values(page=to_json(page)))


def _note(connection: Connection, happened: Sequence[Transition]) -> None:
    rows = {(t.incident.id, t.event): t.at for t in happened}
    for ids in chunks(sorted({id_ for id_, _ in rows})):
        query = select(transitions.c.incident_id, transitions.c.event)
        for known in connection.execute(query.where(transitions.c.incident_id.in_(ids))):
            rows.pop((known.incident_id, known.event), None)
    if rows:
        connection.execute(
            insert(transitions),
            [{"incident_id": id_, "event": event, "at": at} for (id_, event), at in rows.items()],
        )


def _resolved_among(connection: Connection, candidates: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for ids in chunks(candidates):
        found.update(
            connection.execute(select(incidents.c.id).where(incidents.c.id.in_(ids))).scalars()
        )
    return found
