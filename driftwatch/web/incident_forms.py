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
from driftwatch.store.incidents import LONGEST_BECAUSE
from driftwatch.web.incidents import PATH, incident_named
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


def acknowledge(visit: Visit) -> None:
    """Acknowledge it; an acknowledgement that is there stays."""
    incident, who = _who(visit)
    comment = visit.query.comment
    visit.store.acknowledge(incident.id, who, visit.now, comment=comment, via=WEB, only_free=True)


def unacknowledge(visit: Visit) -> None:
    """End the acknowledgement, unless it is another one than when the form was drawn."""
    with visit.store.one_transaction():
        incident, who = _who(visit)
        holder, known = clean(incident.acknowledged_by or "").strip(), visit.query.holder
        if not holder and incident.state == "firing":
            return  # it was ended before
        if holder and known and holder != known:
            raise UsageError(f"{holder} has acknowledged it: nothing was changed")
        visit.store.unacknowledge(incident.id, who, visit.now, comment=visit.query.comment, via=WEB)


def silence(visit: Visit) -> None:
    """Silence the alert on its target."""
    store, now, fields = visit.store, visit.now, visit.query
    incident, who = _who(visit)
    if incident.state == "resolved":
        raise UsageError(f"incident {incident.id} is already resolved: there is nothing to silence")
    once, until = _once(visit, incident), now + timedelta(hours=fields.hours)
    with store.one_transaction():
        if not store.is_request_done(once):
            matchers = silencing(incident)
            one = store.add_silence(matchers, until=until, by=who, at=now, comment=fields.comment)
            _keep(visit, "silence", one.id, once)


def mark(visit: Visit) -> None:
    """Say whether its page was of use; the last mark counts."""
    fields, (incident, who) = visit.query, _who(visit)
    because = fields.because
    visit.store.mark(incident.id, fields.mark, by=who, at=visit.now, because=because, via=WEB)


def note(visit: Visit) -> None:
    """Write something down beside it; the same twice within a minute is one note."""
    _keep(visit, "note", None, _once(visit, _who(visit)[0]))


def _who(visit: Visit) -> tuple[Incident, str]:
    """The incident of the path, and who acts."""
    assert visit.person is not None  # noqa: S101 - nobody else reaches a form
    return incident_named(visit.store, visit.path["incident_id"]), visit.person.name


def _keep(visit: Visit, action: Literal["silence", "note"], subject: str | None, once: str) -> None:
    """Keep what was done, unless the same request was done before."""
    (incident, who), comment = _who(visit), visit.query.comment
    about = {"incident_id": incident.id, "subject": subject, "comment": comment}
    visit.store.note_action(action, who, visit.now, **about, via=WEB, request_id=once)


def _once(visit: Visit, incident: Incident) -> str:
    kind, minute = type(visit.query).__name__, int(visit.now.timestamp()) // _AGAIN_SECONDS
    parts = (kind, incident.id, _who(visit)[1], visit.query.model_dump(), minute)
    return f"web {kind} {hashlib.sha256(orjson.dumps(parts)).hexdigest()[:32]}"


FORMS = (
    Form(f"{PATH}/acknowledge", Acknowledgement, acknowledge),
    Form(f"{PATH}/unacknowledge", Acknowledgement, unacknowledge),
    Form(f"{PATH}/silence", Silencing, silence),
    Form(f"{PATH}/mark", Marking, mark),
    Form(f"{PATH}/note", Note, note),
)
