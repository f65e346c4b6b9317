"""An incident: its page as sent, how it was decided, who was told, who did what."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from driftwatch.errors import UsageError
from driftwatch.evidence import BY_NAME
from driftwatch.incidents.actions import Action
from driftwatch.incidents.silence import labels_of, matches, silencing
from driftwatch.model import Incident, Step, TargetKey
from driftwatch.notify.columns import evidence_text
from driftwatch.notify.delivery_words import status_text
from driftwatch.notify.numbers import clean, cut, squeeze
from driftwatch.notify.page import http_url
from driftwatch.notify.page_values import reference_values
from driftwatch.notify.path import path_rows, short_reason
from driftwatch.notify.phrases.limits import LIMIT_WORDS
from driftwatch.notify.state_words import opening
from driftwatch.receivers.letter import letter_of
from driftwatch.receivers.sender import message_of
from driftwatch.web.fleet_states import incident_state
from driftwatch.web.incident_change import change_texts
from driftwatch.web.incident_view import (
    ActionRow,
    DeliveryRow,
    Evidence,
    Holder,
    Holding,
    IncidentView,
    LimitRow,
    Line,
    Marked,
    PathStep,
)
from driftwatch.web.page import Link, NotFound, Page, Query, Visit
from driftwatch.web.people import Person

PATH = "/incidents/{incident_id}"
_MOST_MEMBERS, _NEAR, _LONGEST = 20, 5, 600


class IncidentQuery(Query):
    """What a form that was just sent came to."""

    after: Literal["taken", "silenced", "marked", "noted", "before", ""] = ""


def incident_path(incident_id: str) -> str:
    """Where an incident's page is."""
    return PATH.format(incident_id=incident_id)


def load(visit: Visit) -> IncidentView:
    """The incident, whose id may be its first digits.

    Raises NotFound: there is none, or more than one.
    """
    incident = incident_named(visit.store, visit.path["incident_id"])
    page: Mapping[str, Any] = incident.page or {}
    summary, lines, commands = page_texts(incident)
    diagnosis = page.get("diagnosis") or {}
    actions = visit.store.actions(incident.id)
    path = path_steps(diagnosis, reference_values(page) if page.get("reference") else {})
    headline = without_state(summary, page)
    holding = tuple(_holding(visit, incident))
    return IncidentView(
        title=f"{state_of(incident)} {headline}",
        incident_id=incident.id,
        state=state_of(incident),
        severity=incident.severity,
        alert=incident.alert,
        rule=incident.rule,
        target=dict(sorted(incident.target.items())),
        summary=summary,
        headline=headline,
        lines=lines,
        commands=commands,
        runbook=http_url((page.get("links") or {}).get("runbook")),
        started_at=incident.started_at,
        firing_at=incident.firing_at,
        resolved_at=incident.resolved_at,
        holder=_holder(incident),
        holding=holding,
        part_of=_speaker(visit, incident),
        members=_members(visit, incident),
        path=path,
        has_baseline=any(step.baseline for step in path),
        leaf=diagnosis.get("leaf"),
        meaning=diagnosis.get("meaning"),
        limits=tuple(limit_row(one) for one in diagnosis.get("limits") or ()),
        evidence=tuple(_evidence(page.get("evidence") or {})),
        deliveries=tuple(_deliveries(visit, incident)),
        actions=tuple(_action(one) for one in actions),
        mark=_mark(visit, incident),
        verification=_verification(page, visit.now),
        change=change_texts(page),
        silencing=" ".join(matcher.text for matcher in silencing(incident)),
        may_acknowledge=incident.state == "firing",
        news=_news(visit.query.after, incident, visit.person, is_held=bool(holding)),
    )


def incident_named(store: Any, id_prefix: str) -> Incident:
    """The incident whose id begins so.

    Raises NotFound: none does, or more than one, with those of a name like it.
    """
    try:
        incident: Incident = store.incident(id_prefix)
        return incident
    except UsageError as error:
        raise NotFound(error.message, _near(store, id_prefix)) from None


def _news(after: str, incident: Incident, person: Person | None, *, is_held: bool) -> str | None:
    """What came of a form, as things stand now."""
    by = incident.acknowledged_by
    if after == "before" and by is not None and (person is None or by != person.name):
        return f"{clean(by)} has it already; nothing was changed"
    words = {
        "taken": "nobody has it now" if by is None else f"{clean(by)} has it",
        "silenced": "silenced: see Held back" if is_held else "no silence holds it now",
        "marked": "marked",
        "noted": "noted",
        "before": "nothing was changed: that was done before",
    }
    return words.get(after)


def _near(store: Any, text: str) -> tuple[Link, ...]:
    """Incidents whose id, target or alert is like the text; else the newest."""
    recent: Sequence[Incident] = store.incidents(limit=500, pages=False)
    words = text.strip().lower()
    begins = [one for one in recent if one.id.startswith(words[:4] or "-")]
    named = [one for one in recent if words and words in f"{one.alert} {target_text(one)}".lower()]
    ids = {one.id: one for one in recent}
    like = [ids[id_] for id_ in difflib.get_close_matches(words, ids, n=_NEAR, cutoff=0.6)]
    chosen = {one.id: one for one in [*begins, *like, *named, *recent[:_NEAR]]}
    return tuple(incident_link(one) for one in list(chosen.values())[:_NEAR])


def incident_link(incident: Incident) -> Link:
    """A link that names an incident: id, state, alert, target."""
    text = f"{incident.id[:8]} {state_of(incident)} {clean(incident.alert)} {target_text(incident)}"
    return Link(text=cut(text, 120), path=incident_path(incident.id))


def state_of(incident: Incident) -> str:
    """The word of an incident, open or not."""
    return "resolved" if incident.state == "resolved" else incident_state(incident)


def target_text(incident: Incident) -> str:
    """What the incident is about: a target, a pool, else its labels."""
    target = incident.target
    if "instance" in target:
        return clean(TargetKey(target["instance"], target.get("engine", "0")).text)
    return clean(target.get("pool") or ",".join(f"{k}={v}" for k, v in sorted(target.items())))


def page_texts(incident: Incident) -> tuple[str, tuple[Line, ...], tuple[str, ...]]:
    """Line 1, the other lines, the commands; of one that did not fire only what it is."""
    if incident.page is None:
        return f"{clean(incident.alert)} {target_text(incident)}: not sent yet", (), ()
    letter = letter_of(message_of(incident.page))
    lines = tuple(Line(label=label, text=text) for label, text in letter.lines)
    return letter.title, lines, letter.commands


def without_state(summary: str, page: Mapping[str, Any]) -> str:
    """Line 1 less the state of when it was sent: the page has the one of now."""
    lead = clean(opening(page)) if page else ""
    return summary.removeprefix(lead).lstrip() if lead else summary


def _holder(incident: Incident) -> Holder | None:
    if incident.acknowledged_at is None:
        return None
    return Holder(
        by=clean(incident.acknowledged_by or "somebody"),
        at=incident.acknowledged_at,
        comment=incident.acknowledged_comment and clean(incident.acknowledged_comment),
    )


def _holding(visit: Visit, incident: Incident) -> Iterator[Holding]:
    end = incident.resolved_at or visit.now
    for one in visit.store.silences():
        if one.starts_at <= end and one.ends_at > incident.started_at:
            if not matches(one, labels_of(incident)):
                continue
            verb = "silenced" if one.active(visit.now) else "was silenced"
            times = f"{_utc(one.starts_at)} to {_utc(one.ends_at)}"
            why = f": {one.comment}" if one.comment else ""
            text = f"{verb} {times} by {one.created_by}{why}"
            yield Holding(text=cut(clean(text), _LONGEST))
    if incident.state == "pending" and incident.inhibited_by is not None:
        yield Holding(text=f"inhibited by {clean(incident.inhibited_by)}")


def _utc(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _speaker(visit: Visit, incident: Incident) -> Link | None:
    """The pool's incident that speaks for it."""
    if incident.part_of is None:
        return None
    speaker = visit.store.open_incident(incident.part_of)
    return None if speaker is None else incident_link(speaker)


def _members(visit: Visit, incident: Incident) -> tuple[Link, ...]:
    if incident.extent is None or incident.state == "resolved":
        return ()
    return tuple(map(incident_link, visit.store.open_members(incident.key, _MOST_MEMBERS)))


def path_steps(diagnosis: Mapping[str, Any], reference: Mapping[str, Any]) -> tuple[PathStep, ...]:
    """The walk of a page's diagnosis; ``reference``: column → value of the baseline."""
    steps = [
        Step(one["node"], one["question"], one["answer"], one["evidence"], one.get("reason"))
        for one in diagnosis.get("path") or ()
    ]
    return tuple(
        PathStep(
            question=row.question,
            answer=row.answer,
            baseline=row.before,
            now=row.now,
            also=row.also,
        )
        for row in path_rows(steps, reference)
    )


def limit_row(limit: Mapping[str, Any]) -> LimitRow:
    """A limit of a page's diagnosis."""
    return LimitRow(
        name=LIMIT_WORDS.get(limit["name"], clean(limit["name"])),
        allows_requests=limit["allows_requests"],
        in_flight_requests=limit["in_flight_requests"],
        margin_ratio=limit["margin_ratio"],
        is_full=limit["binds"],
        note=limit["note"],
    )


def _evidence(evidence: Mapping[str, Mapping[str, Any]]) -> Iterator[Evidence]:
    for column, entry in evidence.items():
        definition, value = BY_NAME.get(column), entry["value"]
        reason = entry.get("reason")
        text = "unknown" if value is None or definition is None else evidence_text(column, value)
        yield Evidence(
            column=column,
            meaning="" if definition is None else definition.meaning,
            value=value,
            text=clean(text),
            reason=None if reason is None else cut(short_reason(reason), _LONGEST),
        )


def _deliveries(visit: Visit, incident: Incident) -> Iterator[DeliveryRow]:
    for one in visit.store.deliveries(incident.id):
        again = f" ({one.number})" if one.number else ""
        yield DeliveryRow(
            at=one.planned_at,
            event=one.event,
            receiver=squeeze(clean(one.receiver), 63),
            reason=one.reason + again,
            status=one.status,
            status_text=cut(clean(status_text(one, visit.now.date())), _LONGEST),
        )


def _action(one: Action) -> ActionRow:
    about = f" {one.subject}" if one.subject and one.action == "mark" else ""
    return ActionRow(
        at=one.at,
        action=one.action + about,
        by=clean(one.by),
        comment=clean(one.comment),
        via=clean(one.via),
    )


def _mark(visit: Visit, incident: Incident) -> Marked | None:
    mark = visit.store.marks([incident.id]).get(incident.id)
    if mark is None:
        return None
    return Marked(mark=mark.mark, by=clean(mark.by), at=mark.at, because=clean(mark.because))


def _verification(page: Mapping[str, Any], now: datetime) -> str | None:
    document = page.get("verification")
    if document is None:
        return None
    from driftwatch.notify.verification_line import outcome_line

    return clean(outcome_line(document, now.date()))


PAGE = Page(PATH, "Incident", "incident.html", IncidentView, load, IncidentQuery, api=PATH)
