"""What people do with an incident: take it, give it back, silence it, mark its page, note."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Annotated, Literal

import orjson
from pydantic import Field

from driftwatch.errors import UsageError
from driftwatch.incidents.delivery import WEB
from driftwatch.incidents.silence import silencing
from driftwatch.numbers import clean
from driftwatch.store.incidents import LONGEST_BECAUSE
from driftwatch.web.incidents import PATH, incident_named, incident_path
from driftwatch.web.page import Form, Query, Visit

Comment = Annotated[str, Field(max_length=LONGEST_BECAUSE)]
_AGAIN_SECONDS = 60  # the same words of one person within a minute are one form, sent twice


class Acknowledgement(Query):
    """Take the incident, or give it back."""

    holder: str = ""  # who has it, as far as the sender knows
    comment: Comment = ""


class Silencing(Query):
    """Send nothing of this alert on this target for so long."""

    hours: Annotated[float, Field(gt=0, le=366 * 24)] = 2.0
    comment: Comment = ""


class Marking(Query):
    """Whether the page was of use."""

    mark: Literal["useful", "not useful"]
    because: Comment = ""


class Note(Query):
    """What whoever looks next should know."""

    comment: Annotated[str, Field(min_length=1, max_length=LONGEST_BECAUSE)]


def acknowledge(visit: Visit) -> str:
    """Take it; where somebody has, they keep it."""
    incident, by = incident_named(visit.store, visit.path["incident_id"]), _by(visit)
    comment = visit.query.comment
    done = visit.store.acknowledge(
        incident.id, by, visit.now, comment=comment, via=WEB, only_free=True
    )
    return _back(incident.id, "acknowledged" if done.is_new else "before")


def unacknowledge(visit: Visit) -> str:
    """Give it back, unless somebody else has taken it since the form was drawn."""
    with visit.store.one_transaction():
        incident = incident_named(visit.store, visit.path["incident_id"])
        if incident.state == "firing" and incident.acknowledged_at is None:
            return _back(incident.id, "before")
        holder, known = clean(incident.acknowledged_by or "").strip(), visit.query.holder
        if holder and known and holder != known:
            raise UsageError(f"{holder} has acknowledged it: nothing was changed")
        done = visit.store.unacknowledge(
            incident.id, _by(visit), visit.now, comment=visit.query.comment, via=WEB
        )
    return _back(incident.id, "acknowledged" if done.is_new else "before")


def silence(visit: Visit) -> str:
    """Silence the alert on its target."""
    store, now, fields, by = visit.store, visit.now, visit.query, _by(visit)
    incident = incident_named(store, visit.path["incident_id"])
    if incident.state == "resolved":
        raise UsageError(f"incident {incident.id} is already resolved: there is nothing to silence")
    until, request_id = now + timedelta(hours=fields.hours), _request_id(visit, incident.id)
    with store.one_transaction():
        if store.is_request_done(request_id):
            return _back(incident.id, "before")
        one = store.add_silence(
            silencing(incident), until=until, by=by, at=now, comment=fields.comment
        )
        store.note_action(
            *("silence", by, now),
            incident_id=incident.id,
            subject=one.id,
            comment=fields.comment,
            via=WEB,
            request_id=request_id,
        )
    return _back(incident.id, "silenced")


def mark(visit: Visit) -> str:
    """Say whether its page was of use; the last mark counts."""
    store, now, fields, by = visit.store, visit.now, visit.query, _by(visit)
    incident = incident_named(store, visit.path["incident_id"])
    with store.one_transaction():
        store.mark(incident.id, fields.mark, by=by, at=now, because=fields.because)
        store.note_action(
            *("mark", by, now),
            incident_id=incident.id,
            subject=fields.mark,
            comment=fields.because,
            via=WEB,
        )
    return _back(incident.id, "marked")


def note(visit: Visit) -> str:
    """Write something down beside it."""
    incident = incident_named(visit.store, visit.path["incident_id"])
    is_new = visit.store.note_action(
        *("note", _by(visit), visit.now),
        incident_id=incident.id,
        comment=visit.query.comment,
        via=WEB,
        request_id=_request_id(visit, incident.id),
    )
    return _back(incident.id, "noted" if is_new else "before")


def _by(visit: Visit) -> str:
    assert visit.person is not None  # noqa: S101 - nobody else reaches a form
    return visit.person.name


def _request_id(visit: Visit, incident_id: str) -> str:
    kind, minute = type(visit.query).__name__, int(visit.now.timestamp()) // _AGAIN_SECONDS
    parts = (kind, incident_id, _by(visit), visit.query.model_dump(), minute)
    return f"web {kind} {hashlib.sha256(orjson.dumps(parts)).hexdigest()[:32]}"


def _back(incident_id: str, after: str) -> str:
    return f"{incident_path(incident_id)}?after={after}"


FORMS = (
    Form(f"{PATH}/acknowledge", Acknowledgement, acknowledge),
    Form(f"{PATH}/unacknowledge", Acknowledgement, unacknowledge),
    Form(f"{PATH}/silence", Silencing, silence),
    Form(f"{PATH}/mark", Marking, mark),
    Form(f"{PATH}/note", Note, note),
)
