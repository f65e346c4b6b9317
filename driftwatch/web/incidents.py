"""The incidents, open ones first, and one: its page, what was missed, deliveries, actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import polars as pl
from pydantic import Field

from driftwatch.errors import UsageError
from driftwatch.incidents.delivery import Delivery, status_text
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.silence import Silence, silenced_by, silences_incident, silencing
from driftwatch.model import Diagnosis, TargetKey
from driftwatch.notify.advice import NOTHING_TO_DO, few, vllm_arguments
from driftwatch.notify.headline import opening
from driftwatch.notify.page import First, Line
from driftwatch.notify.page import Page as IncidentPage
from driftwatch.notify.path import PathRow, path_rows
from driftwatch.notify.verification_line import verification_line
from driftwatch.numbers import clean, cut, moment, plural
from driftwatch.plots.plot import Plot
from driftwatch.web.database import WebStore, incident_state, is_old
from driftwatch.web.page import (
    LONGEST,
    Api,
    NotFound,
    Page,
    Paged,
    Shown,
    Slice,
    Visit,
    paged,
    search,
)
from driftwatch.web.plots import incident_plot, subjects
from driftwatch.web.signals import SIGNAL_COLUMNS, changes, usual

if TYPE_CHECKING:
    from driftwatch.web.app import Web

LIST_PATH, PATH = "/incidents", "/incidents/{incident_id}"


def servers_of(incident: Incident) -> list[TargetKey]:
    """The servers that an incident is about: those that its messages count, else all of them."""
    return list(incident.concerned or (one.key for one in incident.servers))


def line_of(incident: Incident, *, beside_page: bool = False) -> str:
    """Line 1 without the state of when it was sent: the web shows the one of now.

    ``beside_page``: a page is open there, so that a notice says nothing of what is to be done.
    """
    page = incident.page
    if page is None:
        # of one that fired another version wrote the page
        waits = f"waits while {clean(incident.inhibited_by)} fires" if incident.inhibited_by else ""
        rest = f": {waits or 'has not fired yet'}" if incident.firing_at is None else ""
        return f"{clean(incident.alert)} {clean(incident.name)}{rest}"
    line = page.summary.removeprefix(opening(page)).lstrip()
    if beside_page and page.severity == "notice" and NOTHING_TO_DO in page.phrases.advice:
        line = line.removesuffix(f". {page.phrases.advice}")
    return cut(clean(line), 200)


class Look(NamedTuple):
    """What was found of an incident at one moment: the texts, and how they were decided."""

    title: str
    line_1: str
    lines: tuple[tuple[str, str], ...]  # (label, text)
    path: Sequence[PathRow]
    diagnosis: Diagnosis | None
    is_end: bool = False  # of the minute in which the incident ended


def _look(title: str, found: First, today: date, *, is_end: bool = False) -> Look:
    baseline = {} if found.baseline is None else found.baseline.values
    return Look(
        title,
        clean(found.summary),
        tuple(page_lines(found.lines, today)),
        [] if found.diagnosis is None else path_rows(found.diagnosis.path, baseline),
        found.diagnosis,
        is_end,
    )


def page_lines(lines: Iterable[Line], today: date) -> Iterator[tuple[str, str]]:
    """(label, text) of the lines of a page after the first."""
    for one in lines:
        stamp = "" if one.at is None else moment(one.at, today)
        yield clean(one.label), clean(": ".join(filter(None, (stamp, one.text))))


def looks(page: IncidentPage | None, today: date) -> Iterator[Look]:
    """The page as it was first made; where it was made again, the last look as well.

    The look at the end of an incident advises nothing.
    """
    if page is None:
        return
    is_over = page.event == "resolved"
    first = page.first or (None if is_over else page.as_first)
    if first is not None:
        yield _look(f"The {page.severity} of {moment(first.at, today)}", first, today)
    last = page.model_copy(update={"first": None}).as_first
    if is_over:
        ended = last.model_copy(update={"summary": _ended(page), "lines": (), "diagnosis": None})
        yield _look(f"At its end, {moment(last.at, today)}", ended, today, is_end=True)
    elif page.first is not None and last.diagnosis != page.first.diagnosis:
        summary = last.summary.removeprefix(opening(page)).lstrip()
        title = f"The last look, {moment(last.at, today)}"
        yield _look(title, last.model_copy(update={"summary": summary}), today)


def _ended(page: IncidentPage) -> str:
    """How a page ended, and that no change is advised where its recovery was measured."""
    if page.resolved_reason:
        return f"{page.resolved_reason}; no recovery was measured"
    over = page.phrases.over or f"{page.alert} is no longer true"
    if page.ended_in_target is False:
        return f"{over}; requests still missed their target"
    return f"{over}: nothing was wrong any more, so no change is advised"


def load(visit: Visit) -> Shown:
    """The incident, whose id may be its first digits.

    Raises NotFound: there is none, or more than one.
    """
    store, today = visit.store, visit.now.date()
    incident = incident_named(store, visit.path["incident_id"])
    page, state, headline = incident.page, incident_state(incident), line_of(incident)
    deliveries, newest = store.deliveries(incident.id), store.newest_minute()
    verified = None if page is None else page.verification
    rows = _rows(visit, incident)
    return {
        "title": f"{state} {headline}",
        "incident": incident,
        "page": page,
        "state": state,
        "headline": headline,
        "looks": [*looks(page, today)],
        "servers": servers_of(incident),
        "span": _range(visit, incident),
        "end": newest,
        "is_stale": is_old(newest, visit.now),
        "updates": [one for one in incident.messages[1:] if one.event == "updated"],
        "sent": _sent(incident, deliveries, store.silences(), today),
        "commands": [] if page is None else [*_commands(visit.web, incident, page)],
        "plot": _plot(visit, incident, deliveries, rows),
        "changes": changes(rows),
        "holding": [*_holding(visit, incident)],
        "deliveries": [(one, status_text(one, today)) for one in deliveries],
        "actions": store.actions(incident.id),
        "mark": store.marks([incident.id]).get(incident.id),
        "verification": None if verified is None else verification_line(verified, today),
        "change": None if page is None or incident.resolved_at else _change(page),
        "silencing": " ".join(matcher.text for matcher in silencing(incident)),
    }


def _range(visit: Visit, incident: Incident) -> str:
    """The incident's time with an hour before it, as the query of a server's page."""
    end = incident.resolved_at
    until = visit.now if end is None else min(visit.now, end + timedelta(minutes=30))
    since = max(_first(visit, incident), until - LONGEST)
    wanted = {"from": since} if end is None else {"from": since, "to": until}
    return "?" + "&".join(f"{name}={at:%Y-%m-%dT%H:%MZ}" for name, at in wanted.items())


def _rows(visit: Visit, incident: Incident) -> pl.DataFrame:
    """Minutes of 20 of its servers, from an hour before it to half an hour after it."""
    until = min(visit.now, (incident.resolved_at or visit.now) + timedelta(minutes=30))
    rows = visit.store.past(_first(visit, incident), until, servers_of(incident)[:20])
    return rows.filter(pl.col("scrapes") > 0)


def _first(visit: Visit, incident: Incident) -> datetime:
    """An hour before it began; where its rule is about lengths, before these began to move."""
    began = incident.started_at
    if "lengths" in subjects(_columns(visit, incident.rule, incident.pool)):
        at = (began, began + timedelta(minutes=1))
        for one in visit.store.incidents_between(incident.pool, at, 50):
            if subjects(_columns(visit, one.rule, one.pool)) == ["lengths"]:
                began = min(began, one.started_at)
    return began - timedelta(hours=1)


def _columns(visit: Visit, rule_id: str, pool: str) -> frozenset[str]:
    """What a rule reads; empty where the configuration has it no more."""
    rule = next((one for one in visit.web.plan.rules if one.id == rule_id), None)
    return frozenset() if rule is None else rule.in_pool(pool).columns


def _bands(visit: Visit, incident: Incident) -> Mapping[str, tuple[float, float]]:
    """The usual ranges of its servers in the last day of its baseline."""
    page = incident.page
    baseline = None if page is None else page.as_first.baseline or page.baseline
    if baseline is None or baseline.since is None or baseline.until is None:
        return {}
    since = max(baseline.since, baseline.until - timedelta(days=1))
    keys = servers_of(incident)[:20]
    return usual(visit.store.past(since, baseline.until, keys, SIGNAL_COLUMNS))


def _plot(
    visit: Visit, incident: Incident, deliveries: Iterable[Delivery], rows: pl.DataFrame
) -> Plot | None:
    plan = visit.web.plan
    slo = next((one.slo for one in plan.pools if one.name == incident.pool), None)
    sent = (one.sent_at for one in deliveries if one.event == "firing" and one.sent_at)
    columns, sent_at = _columns(visit, incident.rule, incident.pool), min(sent, default=None)
    return incident_plot(rows, slo, incident, columns, sent_at, _bands(visit, incident))


def _sent(
    incident: Incident, deliveries: Iterable[Delivery], silences: Sequence[Silence], today: date
) -> str:
    """Who got the page, in a sentence; who did not, and why: what is done later changes nothing."""
    pages = [one for one in deliveries if one.event == "firing"]
    sent = [one.sent_at for one in pages if one.sent_at is not None]
    if sent:
        names = [*dict.fromkeys(clean(one.receiver) for one in pages if one.sent_at is not None)]
        return f"Sent to {few(names[:4], len(names))}, {moment(min(sent), today)}."
    if pages:
        return f"No receiver has it: {status_text(pages[0], today)}."
    if incident.firing_at is None:
        return "It has not fired yet, so nobody got anything."
    held = silenced_by(incident, silences, incident.firing_at)
    for one in silences:
        if one.id == held:
            return f"Nobody got it: {clean(one.created_by)} had silenced it {_span(one)}."
    return (
        f"Nobody got it: no receiver takes a {incident.severity} of this pool and rule, or a "
        "replay wrote this database."
    )


def _commands(web: Web, incident: Incident, page: IncidentPage) -> Iterator[tuple[str, str]]:
    """(what for, command) of what can be done on the command line now."""
    explain, where = page.links.explain or f"driftwatch explain {incident.id}", web.where
    if page.first or not incident.resolved_at:
        at = f" --at {page.as_first.at:%Y-%m-%dT%H:%MZ}"
        yield f"Explain it as of the {incident.severity}", explain + at + where
    if incident.is_firing:
        yield "Explain it as of now", explain + where
        if incident.acknowledgement is None and page.links.ack:
            yield "Acknowledge it", page.links.ack + where
        if page.links.silence:
            yield "Silence it for 2 h", page.links.silence + where


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


def _holding(visit: Visit, incident: Incident) -> Iterator[tuple[str, str]]:
    """(label, text) of what holds its messages back, or did."""
    end = incident.resolved_at or visit.now
    for one in visit.store.silences():
        if one.starts_at <= end and one.ends_at > incident.started_at:
            if not silences_incident(one, incident):
                continue
            word = "Silenced" if one.active(visit.now) else "Was silenced"
            why = f": {one.comment}" if one.comment else ""
            yield word, f"{_span(one)} by {one.created_by}{why}"
    if incident.inhibited_by is not None and incident.resolved_at is None:
        yield "Waits", f"while {incident.inhibited_by} fires"


def _span(one: Silence) -> str:
    return " to ".join(f"{at:%Y-%m-%d %H:%M} UTC" for at in (one.starts_at, one.ends_at))


def _change(page: IncidentPage) -> str:
    """The change that a page advises, as arguments of vLLM; empty without one."""
    return "" if page.advice is None else vllm_arguments(page.advice.moves)


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
    read = partial(
        visit.store.listed_incidents,
        state=query.state,
        severity=query.severity,
        pool=query.pool,
        text=query.q,
    )
    return paged(query, LIST_PATH, read)


def load_list(visit: Visit) -> Shown:
    """The part that the query names; one behind the last is the last."""
    query: IncidentsQuery = visit.query
    incidents, part = _listed(visit)
    pools = {*visit.store.pool_names()[:_MOST_POOLS], query.pool} - {""}
    every = visit.store.open_now()
    paged_pools = {one.pool for one in every if one.severity == "page" and one.is_firing}
    newest = visit.store.newest_minute()
    return {
        "title": f"{plural(len(every), 'open incident')}" if every else "No incident is open",
        "end": newest,
        "is_stale": is_old(newest, visit.now),
        "rows": [
            (one, incident_state(one), listed_line(one, beside_page=one.pool in paged_pools))
            for one in incidents
        ],
        "part": part,
        "query": query,
        "is_narrowed": query.model_copy(update={"page": 1, "size": 50}) != IncidentsQuery(),
        "states": STATES,
        "pools": sorted(pools),
    }


def listed_line(incident: Incident, *, beside_page: bool) -> str:
    """Line 1; of one that is over first what happened, then how it ended."""
    line, page = line_of(incident, beside_page=beside_page), incident.page
    if page is None or page.event != "resolved" or not page.first_problem:
        return line
    where, after, how = line.partition(" after ")
    if not after:
        where, _, how = line.partition(": ")
    ended = f"After {how}" if after else how[:1].upper() + how[1:]
    return f"{where}: {clean(page.first_problem)}. {ended}"


def documents(visit: Visit) -> Mapping[str, Any]:
    """The incidents as they are stored."""
    incidents, part = _listed(visit)
    return {"rows": [one.document() for one in incidents], "part": part}


PAGE = Page(PATH, "Incident", "incident.html", load)
LIST = Page(LIST_PATH, "Incidents", "incidents.html", load_list, IncidentsQuery, is_placed=True)
APIS = (Api(LIST_PATH, documents, IncidentsQuery), Api(PATH, document))
