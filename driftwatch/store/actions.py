"""What people did, in the database: an acknowledgement with the incident that it changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from driftwatch.errors import UsageError
from driftwatch.incidents.actions import (
    COMMAND_LINE,
    Action,
    ActionResult,
    KeptAction,
)
from driftwatch.model import Incident
from driftwatch.store.database import Database
from driftwatch.store.incidents import ACKNOWLEDGEMENT, LONGEST_BECAUSE, one_incident
from driftwatch.store.tables import actions, incidents


class Actions(Database):
    """Part of the store: acknowledgements, and what people did."""

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
        """Take a firing incident. Where somebody has, that one stays, unless this one brings a
        comment: then it takes its place; with ``only_free`` that of another stays even then.

        ``via``: where it was done; ``request_id``: what a receiver calls the click: one that was
        done is not done again.
        Raises UsageError: there is none, more than one, or it does not fire; or the comment is too
        long.
        """
        _check(comment)
        with self._writing() as connection:
            incident = one_incident(connection, id_prefix, lock=True)
            if (before := _done(connection, request_id)) is not None:
                return ActionResult(incident, False, before)
            _require_firing(incident, "acknowledge")
            is_others = only_free and incident.acknowledged_by not in (None, by)
            if incident.acknowledged_at is not None and (is_others or not comment):
                return ActionResult(incident, False, None)
            action = Action(0, incident.id, "acknowledge", at, by, comment, via, request_id)
            values = dict(zip(ACKNOWLEDGEMENT, (at, by, comment or None), strict=True))
            return ActionResult(
                _set(connection, incident, values), True, _write(connection, action)
            )

    def unacknowledge(
        self,
        id_prefix: str,
        by: str,
        at: datetime,
        *,
        comment: str = "",
        via: str = COMMAND_LINE,
        request_id: str | None = None,
    ) -> ActionResult:
        """Give a firing incident back; other arguments as of :meth:`acknowledge`.

        Raises UsageError: there is none, more than one, it does not fire, or nobody took it.
        """
        _check(comment)
        with self._writing() as connection:
            incident = one_incident(connection, id_prefix, lock=True)
            if (before := _done(connection, request_id)) is not None:
                return ActionResult(incident, False, before)
            _require_firing(incident, "give back")
            if incident.acknowledged_at is None:
                raise UsageError(f"incident {incident.id} is not acknowledged")
            action = Action(0, incident.id, "unacknowledge", at, by, comment, via, request_id)
            cleared = _set(connection, incident, dict.fromkeys(ACKNOWLEDGEMENT))
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
        """Keep what somebody did or wrote; False where the same request was kept before.

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

    def is_request_done(self, request_id: str) -> bool:
        """Whether a click or form of that name was done."""
        query = select(actions.c.id).where(actions.c.request_id == request_id)
        return self._scalar(query) is not None

    def actions(self, incident_id: str) -> list[Action]:
        """What people did with one incident, in order."""
        query = select(actions).where(actions.c.incident_id == incident_id)
        return [Action(**row) for row in self._all(query.order_by(actions.c.id))]

    def unplanned_actions(self) -> list[Action]:
        """What people did that no receiver has been told of yet, in order."""
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


def _require_firing(incident: Incident, verb: str) -> None:
    if incident.state != "firing":
        state = "has not fired yet" if incident.state == "pending" else "is already resolved"
        raise UsageError(f"incident {incident.id} {state}: there is nothing to {verb}")


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


def _set(connection: Connection, incident: Incident, values: Mapping[str, Any]) -> Incident:
    connection.execute(update(incidents).where(incidents.c.id == incident.id).values(**values))
    return one_incident(connection, incident.id)
