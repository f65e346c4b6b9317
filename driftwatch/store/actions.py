"""What people did, in the database: an acknowledgement with the incident it changes; silences."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from driftwatch.documents import to_json
from driftwatch.errors import UsageError
from driftwatch.incidents.delivery import (
    COMMAND_LINE,
    Action,
    ActionResult,
    KeptAction,
)
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.silence import Silence
from driftwatch.matchers import Matcher
from driftwatch.notify.page import Acknowledgement
from driftwatch.numbers import moment
from driftwatch.store.database import Database, chunks
from driftwatch.store.incidents import LONGEST_BECAUSE, Incidents, by_prefix, one_incident
from driftwatch.store.tables import actions, incidents, silences

USEFUL, NOT_USEFUL = "useful", "not useful"


@dataclass(frozen=True, slots=True)
class Mark:
    """Whether somebody found the page of an incident useful."""

    incident_id: str  # whose
    mark: str  # useful or not useful
    at: datetime  # when
    by: str  # who
    because: str = ""  # why; empty = no reason given


class Actions(Incidents):
    """Part of the store: what people did; acknowledgements, marks of pages."""

    def acknowledge(
        self,
        id_prefix: str,
        by: str,
        at: datetime,
        *,
        comment: str = "",
        via: str = COMMAND_LINE,
        request_id: str | None = None,
        only_free: bool = False,
    ) -> ActionResult:
        """Acknowledge a firing incident. An earlier acknowledgement stays, unless this one has a
        comment; with ``only_free`` another person's stays in any case.

        ``via``: the command line or a receiver's name; ``request_id``: the receiver's id of the
        click, so that one click is done once.
        Raises UsageError: no incident or several have the id, it does not fire, or the comment is
        too long.
        """
        _check(comment)
        with self._writing() as connection:
            incident = one_incident(connection, id_prefix, lock=True)
            if (before := _done(connection, request_id)) is not None:
                return ActionResult(incident, False, before)
            _require_firing(incident, "acknowledged")
            before_by = incident.acknowledgement
            is_others = only_free and before_by is not None and before_by.by != by
            if before_by is not None and (is_others or not comment):
                return ActionResult(incident, False, None)
            action = Action(0, incident.id, "acknowledge", at, by, comment, via, request_id)
            new = Acknowledgement(by=by, at=at, comment=comment, via=via)
            return ActionResult(_set(connection, incident, new), True, _write(connection, action))

    def unacknowledge(
        self,
        id_prefix: str,
        by: str,
        at: datetime,
        *,
        comment: str = "",
        via: str = COMMAND_LINE,
    ) -> ActionResult:
        """Withdraw the acknowledgement of a firing incident; arguments as of :meth:`acknowledge`.

        Raises UsageError: as there, or nobody has acknowledged it.
        """
        _check(comment)
        with self._writing() as connection:
            incident = one_incident(connection, id_prefix, lock=True)
            _require_firing(incident, "unacknowledged")
            if incident.acknowledgement is None:
                raise UsageError(f"incident {incident.id} is not acknowledged")
            action = Action(0, incident.id, "unacknowledge", at, by, comment, via)
            cleared = _set(connection, incident, None)
            return ActionResult(cleared, True, _write(connection, action))

    def note_action(
        self,
        action: KeptAction,
        by: str,
        at: datetime,
        *,
        incident_id: str | None = None,
        subject: str | None = None,
        comment: str = "",
        via: str = COMMAND_LINE,
        request_id: str | None = None,
    ) -> bool:
        """Write down an action or a note; False where the same request was written before.

        ``incident_id``: whole, None = of no incident; ``subject``: what else it is about; other
        arguments as of :meth:`acknowledge`. Receivers hear nothing of it.

        Raises UsageError: the comment is too long, or there is no such incident.
        """
        _check(comment)
        with self._writing() as connection:
            if _done(connection, request_id) is not None:
                return False
            if incident_id is not None:
                one_incident(connection, incident_id)
            row = Action(0, incident_id, action, at, by, comment, via, request_id, at)
            _write(connection, replace(row, subject=subject))
            return True

    def mark(
        self, id_prefix: str, mark: str, *, by: str, at: datetime, because: str = "", **more: Any
    ) -> Mark:
        """Mark a page as :data:`USEFUL` or not; the last mark counts.

        ``because``: why; empty = no reason given; ``more``: as of :meth:`note_action`.

        Raises UsageError: no such incident, more than one, or it has not fired; or the reason is
        too long.
        """
        incident = self.incident(id_prefix)
        if incident.state == "pending":
            raise UsageError(f"incident {incident.id} has not fired yet: there is no page to mark")
        about = {"incident_id": incident.id, "subject": mark, "comment": because}
        self.note_action("mark", by, at, **about, **more)
        return Mark(incident.id, mark, at, by, because)

    def marks(self, incident_ids: Collection[str]) -> dict[str, Mark]:
        """Incident id → its mark, of those that somebody marked."""
        table, mark_of = actions.c, dict[str, Mark]()
        query = select(table.incident_id, table.subject, table.at, table.by, table.comment)
        for ids in chunks(sorted(set(incident_ids))):
            marked = query.where(table.action == "mark", table.incident_id.in_(ids))
            for row in self._all(marked.order_by(table.id)):
                mark_of[row["incident_id"]] = Mark(*row.values())
        return mark_of

    def is_request_done(self, request_id: str) -> bool:
        """Whether a click or form of that name was done."""
        query = select(actions.c.id).where(actions.c.request_id == request_id)
        return self._scalar(query) is not None

    def actions(self, incident_id: str) -> list[Action]:
        """Actions of people on one incident, in order."""
        query = select(actions).where(actions.c.incident_id == incident_id)
        return [Action(**row) for row in self._all(query.order_by(actions.c.id))]

    def unplanned_actions(self) -> list[Action]:
        """Actions whose messages are not planned yet, in order."""
        query = select(actions).where(actions.c.planned_at.is_(None))
        return [Action(**row) for row in self._all(query.order_by(actions.c.id))]


def write_planned(connection: Connection, planned_actions: Collection[int], at: datetime) -> None:
    """Note that messages of actions are planned."""
    for number in planned_actions:
        query = update(actions).where(actions.c.id == number, actions.c.planned_at.is_(None))
        connection.execute(query.values(planned_at=at))


def _check(comment: str) -> None:
    if len(comment) > LONGEST_BECAUSE:
        raise UsageError(f"a comment has at most {LONGEST_BECAUSE} characters")


def require_open(incident: Incident, done: str) -> None:
    """Refuse an action on a resolved incident; ``done``: the action, as a participle.

    Raises UsageError: it is resolved.
    """
    if incident.resolved_at is not None:
        raise UsageError(
            f"incident {incident.id} resolved {moment(incident.resolved_at, None)}: "
            f"it cannot be {done} any more",
            help_text=f"driftwatch ack {incident.id} --useful or --not-useful marks its page",
        )


def _require_firing(incident: Incident, done: str) -> None:
    require_open(incident, done)
    if not incident.is_firing:
        raise UsageError(f"incident {incident.id} has not fired yet: it cannot be {done}")


def _done(connection: Connection, request_id: str | None) -> Action | None:
    if request_id is None:
        return None
    query = select(actions).where(actions.c.request_id == request_id)
    row = connection.execute(query).mappings().first()
    return None if row is None else Action(**row)


def _write(connection: Connection, action: Action) -> Action:
    row = {name: value for name, value in asdict(action).items() if name != "id"}
    done = connection.execute(insert(actions).values(**row))
    return replace(action, id=int(done.inserted_primary_key[0]))  # type: ignore[index]


def _set(connection: Connection, incident: Incident, by: Acknowledgement | None) -> Incident:
    text = None if by is None else by.text()
    of_incident = incidents.c.id == incident.id
    connection.execute(update(incidents).where(of_incident).values(acknowledgement=text))
    return incident.model_copy(update={"acknowledgement": by})


class Silences(Database):
    """Part of the store: silences."""

    def add_silence(
        self,
        matchers: Sequence[Matcher],
        *,
        until: datetime,
        by: str,
        at: datetime,
        comment: str,
    ) -> Silence:
        """Hold back pages that match, from ``at`` to ``until``; a repeated call adds none.

        Raises UsageError: it would end before it begins.
        """
        if until <= at:
            raise UsageError("a silence has to end after it begins")
        # not from a random source: a replayed command gives the same silence
        times = [until.isoformat(), by, at.isoformat(), comment]
        parts = [*(m.text for m in matchers), *times]
        id_ = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
        silence = Silence(
            id=id_,
            matchers=tuple(matchers),
            until=until,
            created_by=by,
            created_at=at,
            starts_at=at,
            comment=comment,
        )
        with self._writing() as connection:
            same = select(silences.c.id).where(silences.c.id == id_)
            if connection.execute(same).first() is None:
                texts = to_json([matcher.text for matcher in silence.matchers])
                connection.execute(insert(silences), [{**dict(silence), "matchers": texts}])
        return silence

    def silences(self, at: datetime | None = None) -> list[Silence]:
        """Silences in force at a time (every one for None), the one that ends first first."""
        query = select(silences).order_by(silences.c.until, silences.c.id)
        every = map(_silence, self._all(query))
        return [silence for silence in every if at is None or silence.active(at)]

    def expire_silence(self, id_prefix: str, at: datetime) -> Silence:
        """End a silence now.

        Raises UsageError: there is none, more than one, or it is over.
        """
        with self._writing() as connection:
            command = "driftwatch silence --list"
            silence = _silence(by_prefix(connection, silences, id_prefix, "a silence", command))
            if at >= silence.ends_at:
                raise UsageError(f"silence {silence.id} is over already")
            query = update(silences).where(silences.c.id == silence.id)
            connection.execute(query.values(expired_at=at))
        return silence.model_copy(update={"expired_at": at})


def _silence(row: Mapping[Any, Any]) -> Silence:
    return Silence(**{**row, "matchers": json.loads(row["matchers"])})


def prune_silences(connection: Connection, before: datetime) -> None:
    """Delete what ended before a time."""
    connection.execute(delete(silences).where(silences.c.until < before))
