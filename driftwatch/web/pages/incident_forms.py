"""What people do with an incident: take it, give it back, silence it, mark its page, note."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from driftwatch.errors import UsageError
from driftwatch.incidents.actions import WEB, ActionResult
from driftwatch.incidents.silence import silencing
from driftwatch.model import Incident
from driftwatch.notify.numbers import clean, moment
from driftwatch.store.incidents import LONGEST_BECAUSE
from driftwatch.web.page import Deed, Done, Fields, Form
from driftwatch.web.pages.incident import PATH, incident_named, incident_path

Comment = Annotated[str, Field(max_length=LONGEST_BECAUSE)]
Hours = Annotated[float, Field(gt=0, le=366 * 24, description="hours")]


class Acknowledgement(Fields):
    """Take the incident."""

    comment: Comment = ""


class GivingBack(Fields):
    """Give the incident back."""

    holder: Annotated[str, Field(description="who has it, as far as the sender knows")] = ""
    comment: Comment = ""


class Silencing(Fields):
    """Send nothing of this alert on this target for so long."""

    hours: Hours = 2.0
    comment: Comment = ""


class Marking(Fields):
    """Whether the page was of use."""

    mark: Literal["useful", "not useful"]
    because: Comment = ""


class Note(Fields):
    """What whoever looks next should know."""

    comment: Annotated[str, Field(min_length=1, max_length=LONGEST_BECAUSE)]


def acknowledge(deed: Deed, fields: Acknowledgement) -> Done:
    """Take it; where somebody has, say who."""
    incident = incident_named(deed.store, deed.path["incident_id"])
    result = deed.store.acknowledge(
        incident.id,
        deed.person.name,
        deed.now,
        comment=fields.comment,
        via=WEB,
        request_id=deed.request_id,
        only_free=True,
    )
    return _done(deed, result)


def unacknowledge(deed: Deed, fields: GivingBack) -> Done:
    """Give it back, unless somebody else has taken it since the form was drawn."""
    with deed.store.one_transaction():
        incident = incident_named(deed.store, deed.path["incident_id"])
        holder = clean(incident.acknowledged_by or "").strip()
        is_anothers = bool(holder and fields.holder) and holder != fields.holder
        if is_anothers and not deed.store.is_request_done(deed.request_id):
            raise UsageError(f"{holder} has it now: nothing was changed")
        result = deed.store.unacknowledge(
            incident.id,
            deed.person.name,
            deed.now,
            comment=fields.comment,
            via=WEB,
            request_id=deed.request_id,
        )
    return _done(deed, result)


def _done(deed: Deed, result: ActionResult) -> Done:
    incident = result.incident
    if incident.acknowledged_at is None:
        text = "nobody has it now"
    else:
        at = moment(incident.acknowledged_at, deed.now.date())
        text = f"{clean(incident.acknowledged_by or 'somebody')} took it at {at}"
    return Done(done=result.is_new, text=text, location=_back(incident.id, "taken", result.is_new))


def silence(deed: Deed, fields: Silencing) -> Done:
    """Silence the alert on its target."""
    incident = incident_named(deed.store, deed.path["incident_id"])
    if incident.state == "resolved":
        raise UsageError(f"incident {incident.id} is already resolved: there is nothing to silence")
    matchers = silencing(incident)
    until = deed.now + timedelta(hours=fields.hours)
    by, comment = deed.person.name, fields.comment
    with deed.store.one_transaction():
        if deed.store.is_request_done(deed.request_id):
            return _before(incident)
        one = deed.store.add_silence(matchers, until=until, by=by, at=deed.now, comment=comment)
        deed.store.note_action(
            "silence",
            by,
            deed.now,
            incident_id=incident.id,
            subject=one.id,
            comment=comment,
            via=WEB,
            request_id=deed.request_id,
        )
    text = f"silenced until {moment(until, deed.now.date())}: " + " ".join(m.text for m in matchers)
    return Done(done=True, text=clean(text), location=_back(incident.id, "silenced", True))


def mark(deed: Deed, fields: Marking) -> Done:
    """Say whether its page was of use."""
    incident = incident_named(deed.store, deed.path["incident_id"])
    by, because = deed.person.name, fields.because
    # two buttons of one form are two marks
    sent = f"{deed.request_id} {fields.mark}"
    with deed.store.one_transaction():
        if deed.store.is_request_done(sent):
            return _before(incident)
        one = deed.store.mark(incident.id, fields.mark, by=by, at=deed.now, because=because)
        deed.store.note_action(
            "mark",
            by,
            deed.now,
            incident_id=incident.id,
            subject=fields.mark,
            comment=because,
            via=WEB,
            request_id=sent,
        )
    return Done(done=True, text=f"marked {one.mark}", location=_back(incident.id, "marked", True))


def note(deed: Deed, fields: Note) -> Done:
    """Write something down beside it."""
    incident = incident_named(deed.store, deed.path["incident_id"])
    is_new = deed.store.note_action(
        "note",
        deed.person.name,
        deed.now,
        incident_id=incident.id,
        comment=fields.comment,
        via=WEB,
        request_id=deed.request_id,
    )
    if not is_new:
        return _before(incident)
    return Done(done=True, text="noted", location=_back(incident.id, "noted", True))


def _before(incident: Incident) -> Done:
    """What a form that was sent before comes to."""
    location = _back(incident.id, "before", False)
    return Done(done=False, text="this form was sent before", location=location)


def _back(incident_id: str, what: str, is_new: bool) -> str:
    path = incident_path(incident_id)
    return f"{path}?after={what}" if is_new else f"{path}?after=before"


FORMS = (
    Form(f"{PATH}/acknowledge", "Take an incident", Acknowledgement, acknowledge),
    Form(f"{PATH}/unacknowledge", "Give an incident back", GivingBack, unacknowledge),
    Form(f"{PATH}/silence", "Silence an incident's alert", Silencing, silence),
    Form(f"{PATH}/mark", "Mark an incident's page", Marking, mark),
    Form(f"{PATH}/note", "Note something of an incident", Note, note),
)
