"""What people do with an incident: acknowledge it, or end that; silence it, mark its page, note."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Annotated, Literal

import orjson
from pydantic import Field

from driftwatch.errors import UsageError
from driftwatch.incidents.delivery import WEB
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.silence import silencing
from driftwatch.numbers import clean
from driftwatch.store.actions import require_open
from driftwatch.store.incidents import LONGEST_BECAUSE
from driftwatch.web.incidents import PATH, incident_named, incident_path
from driftwatch.web.page import Form, Query, Visit

Comment = Annotated[str, Field(max_length=LONGEST_BECAUSE)]
_AGAIN_SECONDS = 60  # the same words of one person within a minute are one form, sent twice


class Acknowledgement(Query):
    """Acknowledge the incident, or end an acknowledgement."""

    holder: str = ""  # who has acknowledged it, as far as the sender knows
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
    """Acknowledge it; an acknowledgement that is there stays."""
    incident, comment = _incident(visit), visit.query.comment
    done = visit.store.acknowledge(
        incident.id, _by(visit), visit.now, comment=comment, via=WEB, only_free=True
    )
    return _back(incident, "acknowledged" if done.is_new else "before")


def unacknowledge(visit: Visit) -> str:
    """End the acknowledgement, unless it is another one than when the form was drawn."""
    with visit.store.one_transaction():
        incident = _incident(visit)
        holder, known = clean(incident.acknowledged_by or "").strip(), visit.query.holder
        if not holder and incident.state == "firing":
            return _back(incident, "before")
        if holder and known and holder != known:
            raise UsageError(f"{holder} has acknowledged it: nothing was changed")
        done = visit.store.unacknowledge(
            incident.id, _by(visit), visit.now, comment=visit.query.comment, via=WEB
        )
    return _back(incident, "acknowledged" if done.is_new else "before")


def silence(visit: Visit) -> str:
    """Silence the alert on its target."""
    store, now, fields, by = visit.store, visit.now, visit.query, _by(visit)
    incident = _incident(visit)
    require_open(incident, "silenced")
    until, once = now + timedelta(hours=fields.hours), _once(visit, incident)
    with store.one_transaction():
        if store.is_request_done(once):
            return _back(incident, "before")
        one = store.add_silence(
            silencing(incident), until=until, by=by, at=now, comment=fields.comment
        )
        _keep(visit, incident, "silence", one.id, fields.comment, once)
    return _back(incident, "silenced")


def mark(visit: Visit) -> str:
    """Say whether its page was of use; the last mark counts."""
    fields, incident = visit.query, _incident(visit)
    with visit.store.one_transaction():
        visit.store.mark(
            incident.id, fields.mark, by=_by(visit), at=visit.now, because=fields.because
        )
        _keep(visit, incident, "mark", fields.mark, fields.because)
    return _back(incident, "marked")


def note(visit: Visit) -> str:
    """Write something down beside it."""
    incident = _incident(visit)
    once = _once(visit, incident)
    is_new = _keep(visit, incident, "note", None, visit.query.comment, once)
    return _back(incident, "noted" if is_new else "before")


def _incident(visit: Visit) -> Incident:
    return incident_named(visit.store, visit.path["incident_id"])


def _keep(
    visit: Visit,
    incident: Incident,
    action: Literal["silence", "mark", "note"],
    subject: str | None,
    comment: str,
    once: str | None = None,
) -> bool:
    """Keep what was done; False: it was done before."""
    return visit.store.note_action(
        *(action, _by(visit), visit.now),
        incident_id=incident.id,
        subject=subject,
        comment=comment,
        via=WEB,
        request_id=once,
    )


def _by(visit: Visit) -> str:
    assert visit.person is not None  # noqa: S101 - nobody else reaches a form
    return visit.person.name


def _once(visit: Visit, incident: Incident) -> str:
    kind, minute = type(visit.query).__name__, int(visit.now.timestamp()) // _AGAIN_SECONDS
    parts = (kind, incident.id, _by(visit), visit.query.model_dump(), minute)
    return f"web {kind} {hashlib.sha256(orjson.dumps(parts)).hexdigest()[:32]}"


def _back(incident: Incident, after: str) -> str:
    return f"{incident_path(incident.id)}?after={after}"


FORMS = (
    Form(f"{PATH}/acknowledge", Acknowledgement, acknowledge),
    Form(f"{PATH}/unacknowledge", Acknowledgement, unacknowledge),
    Form(f"{PATH}/silence", Silencing, silence),
    Form(f"{PATH}/mark", Marking, mark),
    Form(f"{PATH}/note", Note, note),
)
