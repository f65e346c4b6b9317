"""The incidents, open ones first, and one: its page, what was missed, deliveries, actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from driftwatch.errors import UsageError
from driftwatch.incidents.delivery import status_text
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.silence import silences_incident, silencing
from driftwatch.model import TargetKey
from driftwatch.notify.change_text import helm_values_diff, vllm_arguments
from driftwatch.notify.headline import opening, rendered
from driftwatch.notify.page import Page as IncidentPage
from driftwatch.notify.path import path_rows
from driftwatch.notify.verification_line import verification_line
from driftwatch.numbers import clean, cut
from driftwatch.receivers.letter import letter_of
from driftwatch.receivers.sender import message_of
from driftwatch.web.access import Person
from driftwatch.web.database import Wanted, WebStore, incident_state
from driftwatch.web.missed import missed_plot
from driftwatch.web.page import (
    Api,
    NotFound,
    Page,
    Paged,
    Query,
    Shown,
    Slice,
    Visit,
    paged,
    search,
)

LIST_PATH, PATH = "/incidents", "/incidents/{incident_id}"


class IncidentQuery(Query):
    """What a form that was just sent came to."""

    after: Literal["acknowledged", "silenced", "marked", "noted", "before", ""] = ""


def incident_path(incident_id: str) -> str:
    """Where an incident's page is."""
    return PATH.format(incident_id=incident_id)


def servers_of(incident: Incident) -> list[TargetKey]:
    """The servers that an incident is about: those that its messages count, else all of them."""
    return list(incident.concerned or (one.key for one in incident.servers))


def line_of(incident: Incident) -> str:
    """Line 1 without the state of when it was sent: the web shows the one of now."""
    page = incident.page
    if page is None:
        # of one that fired another version wrote the page
        waits = f"waits while {clean(incident.inhibited_by)} fires" if incident.inhibited_by else ""
        rest = f": {waits or 'has not fired yet'}" if incident.firing_at is None else ""
        return f"{clean(incident.alert)} {clean(incident.name)}{rest}"
    return cut(clean(page.summary.removeprefix(opening(page)).lstrip()), 200)


def page_lines(incident: Incident) -> tuple[tuple[str, str], ...]:
    """(label, text) of the lines of its page after the first, of one that is over those that it had
    while it fired too; none before it fired.
    """
    if (page := incident.page) is None:
        return ()
    lines = letter_of(message_of(page)).lines
    if page.event != "resolved":
        return lines
    fired = rendered(page.model_copy(update={"event": "firing", "acknowledgement": None}))
    return (*lines, *letter_of(message_of(fired)).lines)


def load(visit: Visit) -> Shown:
    """The incident, whose id may be its first digits.

    Raises NotFound: there is none, or more than one.
    """
    store, today = visit.store, visit.now.date()
    incident = incident_named(store, visit.path["incident_id"])
    page, state, headline = incident.page, incident_state(incident), line_of(incident)
    diagnosis = None if page is None else page.diagnosis
    holding = [*_holding(visit, incident)]
    verified = None if page is None else page.verification
    return {
        "title": f"{state} {headline}",
        "incident": incident,
        "page": page,
        "state": state,
        "headline": headline,
        "lines": page_lines(incident),
        "commands": [] if page is None else _commands(page),
        "plot": missed_plot(visit, incident, servers_of(incident)),
        "holding": holding,
        "path": ()
        if page is None or diagnosis is None
        else path_rows(diagnosis.path, page.baseline_values),
        "diagnosis": diagnosis,
        "deliveries": [(one, status_text(one, today)) for one in store.deliveries(incident.id)],
        "actions": store.actions(incident.id),
        "mark": store.marks([incident.id]).get(incident.id),
        "verification": None if verified is None else verification_line(verified, today),
        "change": None if page is None else _change(page),
        "silencing": " ".join(matcher.text for matcher in silencing(incident)),
        "news": _news(visit.query.after, incident, visit.person, is_held=bool(holding)),
    }


def _commands(page: IncidentPage) -> list[str]:
    """What to run: ready to copy."""
    return [one for one in (page.links.explain, page.links.ack, page.links.silence) if one]


def document(visit: Visit) -> Mapping[str, Any]:
    """The incident as it is stored, with what was sent and what people did."""
    incident = incident_named(visit.store, visit.path["incident_id"])
    return {
        "incident": incident.document(),
        "deliveries": visit.store.deliveries(incident.id),
        "actions": visit.store.actions(incident.id),
        "mark": visit.store.marks([incident.id]).get(incident.id),
    }


def incident_named(store: WebStore, id_prefix: str) -> Incident:
    """The incident whose id begins so.

    Raises NotFound: none does, or more than one.
    """
    try:
        return store.incident(id_prefix)
    except UsageError as error:
        raise NotFound(error.message, search(LIST_PATH, id_prefix)) from None


def _news(after: str, incident: Incident, person: Person | None, *, is_held: bool) -> str | None:
    """What came of a form, as things stand now."""
    by = incident.acknowledged_by
    if after == "before" and by is not None and (person is None or by != person.name):
        return f"{clean(by)} has acknowledged it already; nothing was changed"
    words = {
        "acknowledged": "not acknowledged" if by is None else f"{clean(by)} has acknowledged it",
        "silenced": "silenced: see Held back" if is_held else "no silence holds it now",
        "marked": "marked",
        "noted": "noted",
        "before": "nothing was changed: that was done before",
    }
    return words.get(after)


def _holding(visit: Visit, incident: Incident) -> Iterator[str]:
    """What holds its messages back, or did."""
    end = incident.resolved_at or visit.now
    for one in visit.store.silences():
        if one.starts_at <= end and one.ends_at > incident.started_at:
            if not silences_incident(one, incident):
                continue
            verb = "silenced" if one.active(visit.now) else "was silenced"
            start, last = (f"{at:%Y-%m-%d %H:%M} UTC" for at in (one.starts_at, one.ends_at))
            why = f": {one.comment}" if one.comment else ""
            yield f"{verb} {start} to {last} by {one.created_by}{why}"
    if incident.inhibited_by is not None and incident.resolved_at is None:
        yield f"waits while {incident.inhibited_by} fires"


def _change(page: IncidentPage) -> tuple[str, str] | None:
    """The change that a page advises, as arguments of vLLM and as values of its Helm chart."""
    if page.advice is None or not (moves := page.advice.moves):
        return None
    model = page.labels.get("model_name")
    return " ".join(vllm_arguments(moves)), "\n".join(helm_values_diff(moves, model))


_MOST_POOLS = 200
State = Literal["open", "firing", "acknowledged", "silenced", "pending", "resolved", ""]
STATES: tuple[State, ...] = State.__args__[:-1]  # type: ignore[attr-defined]


class IncidentsQuery(Paged):
    """Which incidents are listed."""

    q: Annotated[
        str, Field(max_length=200, description="words of the alert, target, labels or id")
    ] = ""
    pool: Annotated[str, Field(max_length=300)] = ""
    severity: Literal["page", "ticket", "notice", ""] = ""
    state: State = ""


def _listed(visit: Visit) -> tuple[Sequence[Incident], Slice]:
    query: IncidentsQuery = visit.query
    wanted = Wanted(query.state, query.severity, query.pool, query.q)
    return paged(query, LIST_PATH, partial(visit.store.listed_incidents, wanted))


def load_list(visit: Visit) -> Shown:
    """The part that the query names; one behind the last is the last."""
    query: IncidentsQuery = visit.query
    incidents, part = _listed(visit)
    pools = {*visit.store.pool_names()[:_MOST_POOLS], query.pool} - {""}
    return {
        "title": "Incidents",
        "rows": [(one, incident_state(one), line_of(one)) for one in incidents],
        "part": part,
        "query": query,
        "is_narrowed": query.model_copy(update={"page": 1, "size": 50}) != IncidentsQuery(),
        "states": STATES,
        "pools": sorted(pools),
    }


def documents(visit: Visit) -> Mapping[str, Any]:
    """The incidents as they are stored."""
    incidents, part = _listed(visit)
    return {"rows": [one.document() for one in incidents], "part": part}


PAGE = Page(PATH, "Incident", "incident.html", load, IncidentQuery)
LIST = Page(LIST_PATH, "Incidents", "incidents.html", load_list, IncidentsQuery, is_placed=True)
APIS = (Api(LIST_PATH, documents, IncidentsQuery), Api(PATH, document))
