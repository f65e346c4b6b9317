"""The incidents, open ones first, and one: its page as sent, who was told, who did what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from driftwatch.errors import UsageError
from driftwatch.incidents.delivery import status_text
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.silence import labels_of, matches, silencing
from driftwatch.model import Diagnosis, TargetKey
from driftwatch.notify.change_text import helm_values_diff, vllm_arguments
from driftwatch.notify.headline import opening
from driftwatch.notify.page import Page as IncidentPage
from driftwatch.notify.path import path_rows
from driftwatch.notify.phrases.limits import LIMIT_WORDS
from driftwatch.numbers import clean, cut
from driftwatch.receivers.letter import letter_of
from driftwatch.receivers.sender import message_of
from driftwatch.web.access import Person
from driftwatch.web.database import Wanted
from driftwatch.web.fleet import incident_state
from driftwatch.web.page import Link, NotFound, Page, Paged, Query, View, Visit, sliced

PATH = "/incidents/{incident_id}"
_MOST_MEMBERS, _NEAR = 20, 5
# of an incident; its page is drawn by its own fields
_OWN = (
    *("severity", "alert", "rule", "target", "started_at", "firing_at", "resolved_at"),
    *("acknowledged_by", "acknowledged_at", "acknowledged_comment"),
)


class IncidentQuery(Query):
    """What a form that was just sent came to."""

    after: Literal["taken", "silenced", "marked", "noted", "before", ""] = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a page."""

    label: str
    text: str


def incident_path(incident_id: str) -> str:
    """Where an incident's page is."""
    return PATH.format(incident_id=incident_id)


def load(visit: Visit) -> View:
    """The incident, whose id may be its first digits.

    Raises NotFound: there is none, or more than one.
    """
    store = visit.store
    incident = incident_named(store, visit.path["incident_id"])
    page = incident.page
    summary, lines, commands = page_texts(incident)
    diagnosis = None if page is None else page.diagnosis
    path = path_steps(diagnosis, {} if page is None else page.baseline_values)
    headline = without_state(summary, page)
    holding = list(_holding(visit, incident))
    return View.of(
        f"{state_of(incident)} {headline}",
        **{name: getattr(incident, name) for name in _OWN},
        incident_id=incident.id,
        state=state_of(incident),
        summary=summary,
        headline=headline,
        lines=lines,
        commands=commands,
        runbook=None if page is None else page.links.runbook,
        holding=holding,
        part_of=_speaker(visit, incident),
        members=_members(visit, incident),
        path=path,
        leaf=None if diagnosis is None else diagnosis.leaf,
        meaning=None if diagnosis is None else diagnosis.meaning,
        limits=[
            {**asdict(one), "name": LIMIT_WORDS.get(one.name, one.name)}
            for one in (() if diagnosis is None else diagnosis.limits)
        ],
        evidence=None
        if page is None
        else {name: one.document() for name, one in page.evidence.items()},
        deliveries=[
            {
                "at": one.planned_at,
                "event": one.event,
                "receiver": one.receiver,
                "changed": getattr(one.payload, "changed", None),
                "status": one.status,
                "status_text": status_text(one, visit.now.date()),
            }
            for one in store.deliveries(incident.id)
        ],
        actions=store.actions(incident.id),
        mark=store.marks([incident.id]).get(incident.id),
        verification=_verification(page, visit),
        change=_change(page),
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
    """Incidents whose id begins alike, or whose target or alert holds the text; else the newest."""
    recent: Sequence[Incident] = store.incidents(limit=500, pages=False)
    words = text.strip().lower()
    begins = [one for one in recent if one.id.startswith(words[:4] or "-")]
    named = [one for one in recent if words and words in f"{one.alert} {target_text(one)}".lower()]
    chosen = {one.id: one for one in [*begins, *named, *recent[:_NEAR]]}
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


def page_texts(incident: Incident) -> tuple[str, list[Line], Sequence[str]]:
    """Line 1, the other lines, the commands; of one that did not fire only what it is."""
    if incident.page is None:
        return f"{clean(incident.alert)} {target_text(incident)}: not sent yet", [], ()
    letter = letter_of(message_of(incident.page))
    return letter.title, [Line(label, text) for label, text in letter.lines], letter.commands


def without_state(summary: str, page: IncidentPage | None) -> str:
    """Line 1 less the state of when it was sent: the page has the one of now."""
    lead = "" if page is None else clean(opening(page))
    return summary.removeprefix(lead).lstrip() if lead else summary


def _holding(visit: Visit, incident: Incident) -> Iterator[str]:
    """What holds its messages back, or did."""
    end = incident.resolved_at or visit.now
    for one in visit.store.silences():
        if one.starts_at <= end and one.ends_at > incident.started_at:
            if not matches(one, labels_of(incident)):
                continue
            verb = "silenced" if one.active(visit.now) else "was silenced"
            start, last = (f"{at:%Y-%m-%d %H:%M} UTC" for at in (one.starts_at, one.ends_at))
            why = f": {one.comment}" if one.comment else ""
            yield f"{verb} {start} to {last} by {one.created_by}{why}"
    if incident.state == "pending" and incident.inhibited_by is not None:
        yield f"inhibited by {incident.inhibited_by}"


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


def path_steps(diagnosis: Diagnosis | None, reference: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The walk of a page's diagnosis; ``reference``: column → value of the baseline."""
    steps = () if diagnosis is None else diagnosis.path
    return [row._asdict() for row in path_rows(steps, reference)]


def _verification(page: IncidentPage | None, visit: Visit) -> str | None:
    from driftwatch.notify.verification_line import outcome_line

    one = None if page is None else page.verification
    return None if one is None else outcome_line(one, visit.now.date())


def _change(page: IncidentPage | None) -> dict[str, Any] | None:
    """The change that a page recommends in two forms to copy; None: it changes no setting."""
    if page is None or page.advice is None or not (moves := page.advice.moves):
        return None
    return {
        "vllm_arguments": " ".join(vllm_arguments(moves)),
        "helm_values_diff": "\n".join(helm_values_diff(moves, page.labels.get("model_name"))),
        "undo": page.advice.undo,
    }


PAGE = Page(PATH, "Incident", "incident.html", load, IncidentQuery, api=PATH)


LIST_PATH = "/incidents"
_MOST_POOLS, _LONGEST = 200, 160
State = Literal[
    "open", "firing", "taken", "silenced", "ticket", "notice", "pending", "resolved", ""
]
STATES: tuple[State, ...] = State.__args__[:-1]  # type: ignore[attr-defined]


class IncidentsQuery(Paged):
    """Which incidents are listed."""

    q: Annotated[
        str, Field(max_length=200, description="words of the alert, target, labels or id")
    ] = ""
    pool: Annotated[str, Field(max_length=300)] = ""
    alert: Annotated[str, Field(max_length=200, description="name of the rule's alert")] = ""
    rule: Annotated[str, Field(max_length=400, description="id of a rule, its labels too")] = ""
    severity: Literal["page", "ticket", "notice", ""] = ""
    state: State = ""


def load_list(visit: Visit) -> View:
    """The part that the query names; one behind the last is the last."""
    query: IncidentsQuery = visit.query
    wanted = Wanted(query.state, query.severity, query.alert, query.rule, query.pool, query.q)
    first = (query.page - 1) * query.size
    incidents, count = visit.store.listed_incidents(wanted, query.size, first)
    part = sliced(count, query, LIST_PATH)
    if part.page != query.page:
        first = (part.page - 1) * query.size
        incidents, _ = visit.store.listed_incidents(wanted, query.size, first)
    pools = {*visit.web.fleet.current(visit.store).pools, query.pool} - {""}
    alerts = {*visit.store.alerts_of_incidents(), query.alert} - {""}
    return View.of(
        "Incidents",
        rows=[_row(one) for one in incidents],
        part=part,
        query=query,
        is_narrowed=query.model_copy(update={"page": 1, "size": 50}) != IncidentsQuery(),
        states=STATES,
        alerts=sorted(alerts),
        pools=sorted(pools)[:_MOST_POOLS],
    )


def _row(incident: Incident) -> dict[str, Any]:
    """One incident of the list; null: its rule groups by other labels, it has not fired, …"""
    return {
        "incident_id": incident.id,
        "path": incident_path(incident.id),
        "state": state_of(incident),
        "severity": incident.severity,
        "alert": incident.alert,
        "target": target_text(incident),
        "pool": incident.target.get("pool"),
        "headline": _headline(incident.page),
        "waits": _waits(incident),
        "started_at": incident.started_at,
        "resolved_at": incident.resolved_at,
        "taken_by": incident.acknowledged_by,
    }


def _waits(incident: Incident) -> str:
    """Why a pending one has not fired."""
    if incident.part_of is not None:
        return "in the incident of its pool"
    told = incident.inhibited_by
    return "has not fired yet" if told is None else f"held back while {clean(told)} fires"


def _headline(page: IncidentPage | None) -> str | None:
    """Line 1 without the state of when it was sent."""
    if page is None:
        return None
    return cut(clean(page.summary.removeprefix(opening(page)).lstrip()), _LONGEST)


LIST = Page(
    LIST_PATH,
    "Incidents",
    "incidents.html",
    load_list,
    IncidentsQuery,
    is_placed=True,
    api=LIST_PATH,
)
