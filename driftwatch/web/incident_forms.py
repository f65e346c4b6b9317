"""Forms of an incident: acknowledge, silence, end either, note, mark."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from driftwatch.errors import UsageError
from driftwatch.incidents.delivery import WEB
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.silence import LONGEST, silence_matchers, silences_incident
from driftwatch.numbers import clean, moment
from driftwatch.store.incidents import LONGEST_BECAUSE
from driftwatch.web.incidents import PATH, incident_named
from driftwatch.web.page import Form, Query, Visit

Comment = Annotated[str, Field(max_length=LONGEST_BECAUSE)]
_AGAIN_SECONDS = 60  # of a form that one person sends twice in a minute the second does nothing


class Acknowledgement(Query):
    """Acknowledge the incident, or end an acknowledgement."""

    holder: str = ""  # whose acknowledgement the form showed
    comment: Comment = ""


class EndOfSilence(Query):
    """End a silence that the incident's page shows."""

    silence: str


class Silencing(Query):
    """Hold this alert back on its servers for some hours."""

    hours: Annotated[float, Field(gt=0, le=LONGEST / timedelta(hours=1))] = 2.0
    comment: Annotated[Comment, Field(min_length=1)]


class Note(Query):
    """A note for the next reader, a mark of the page, or both."""

    comment: Comment = ""
    mark: Literal["useful", "not useful", ""] = ""


def acknowledge(visit: Visit) -> None:
    """Acknowledge it, unless somebody else has.

    Raises UsageError: who was first, and that this changed nothing.
    """
    incident, who = _subject(visit)
    comment = visit.query.comment
    done = visit.store.acknowledge(
        incident.id, who, visit.now, comment=comment, via=WEB, only_free=True
    )
    first = done.incident.acknowledgement
    if first is not None and first.by != who:
        at = moment(first.at, visit.now.date())
        raise UsageError(
            f"{first.by} acknowledged it first, {at}: you changed nothing",
            help_text="add a note if the others should read something",
        )


def unacknowledge(visit: Visit) -> None:
    """End the acknowledgement that the form showed; another one stays."""
    with visit.store.one_transaction():
        incident, who = _subject(visit)
        holder, known = clean(incident.acknowledged_by or "").strip(), visit.query.holder
        if not holder and incident.state == "firing":
            return  # somebody ended it before
        if holder and known and holder != known:
            raise UsageError(f"{holder} has acknowledged it: nothing was changed")
        visit.store.unacknowledge(incident.id, who, visit.now, comment=visit.query.comment, via=WEB)


def silence(visit: Visit) -> None:
    """Silence the alert on its target."""
    store, now, fields = visit.store, visit.now, visit.query
    incident, who = _subject(visit)
    if incident.state == "resolved":
        raise UsageError(f"incident {incident.id} is already resolved: there is nothing to silence")
    kept, until = _kept(visit, incident, who), now + timedelta(hours=fields.hours)
    with store.one_transaction():
        if not store.is_request_done(kept["request_id"]):
            matchers = silence_matchers(incident)
            one = store.add_silence(matchers, until=until, by=who, at=now, comment=fields.comment)
            about = {"incident_id": incident.id, "subject": one.id, "comment": fields.comment}
            store.note_action("silence", who, now, **about, **kept)


def end_silence(visit: Visit) -> None:
    """End a silence now; one that is over stays so.

    Raises UsageError: it silences another incident.
    """
    store, now, id_ = visit.store, visit.now, visit.query.silence
    incident, who = _subject(visit)
    with store.one_transaction():
        one = next((one for one in store.silences() if one.id == id_), None)
        if one is None or not silences_incident(one, incident):
            raise UsageError(f"no silence {clean(id_)[:40]} holds incident {incident.id} back")
        if now < one.ends_at:
            store.expire_silence(one.id, now)
            about = {"incident_id": incident.id, "subject": one.id, "via": WEB}
            store.note_action("end silence", who, now, **about)


def note(visit: Visit) -> None:
    """Keep a note, or a mark with its reason; the last mark counts."""
    fields, store, (incident, who) = visit.query, visit.store, _subject(visit)
    kept = _kept(visit, incident, who)
    if fields.mark:
        because = fields.comment
        store.mark(incident.id, fields.mark, by=who, at=visit.now, because=because, **kept)
    elif fields.comment:
        about = {"incident_id": incident.id, "comment": fields.comment}
        store.note_action("note", who, visit.now, **about, **kept)
    else:
        raise UsageError("The note is empty", help_text="write what the next reader should know")


def _subject(visit: Visit) -> tuple[Incident, str]:
    """The incident of the path, and who acts."""
    assert visit.person is not None  # noqa: S101 - nobody else reaches a form
    return incident_named(visit.store, visit.path["incident_id"]), visit.person.name


def _kept(visit: Visit, incident: Incident, who: str) -> dict[str, Any]:
    """Arguments of the store: this is the web, and the id of the request."""
    kind, minute = type(visit.query).__name__, int(visit.now.timestamp()) // _AGAIN_SECONDS
    request = repr((kind, incident.id, who, visit.query, minute)).encode()
    return {"via": WEB, "request_id": f"web {kind} {hashlib.sha256(request).hexdigest()[:32]}"}


FORMS = (
    Form(f"{PATH}/acknowledge", Acknowledgement, acknowledge),
    Form(f"{PATH}/unacknowledge", Acknowledgement, unacknowledge),
    Form(f"{PATH}/silence", Silencing, silence),
    Form(f"{PATH}/end-silence", EndOfSilence, end_silence),
    Form(f"{PATH}/note", Note, note),
)
