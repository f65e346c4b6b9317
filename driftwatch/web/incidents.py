"""The incidents, open ones first, and one: its page, its plot, deliveries, actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import polars as pl
from pydantic import Field

from driftwatch.errors import UsageError
from driftwatch.incidents.delivery import Delivery, status_text
from driftwatch.incidents.incident import Incident, Message
from driftwatch.incidents.silence import Silence, silences_incident, silencing
from driftwatch.model import Diagnosis, Limit, TargetKey
from driftwatch.notify.advice import NOTHING_TO_DO, few, vllm_arguments
from driftwatch.notify.headline import opening
from driftwatch.notify.page import First, Line
from driftwatch.notify.page import Page as IncidentPage
from driftwatch.notify.path import LimitRow, PathRow, limit_row, path_rows
from driftwatch.notify.verification_line import verification_line
from driftwatch.numbers import clean, cut, moment, percent, plural
from driftwatch.plots.plot import Plot
from driftwatch.web.database import WebStore
from driftwatch.web.page import LONGEST, NotFound, Page, Paged, Shown, Visit, paged, search
from driftwatch.web.plots import incident_plot
from driftwatch.web.signals import SIGNAL_COLUMNS, changes, usual

if TYPE_CHECKING:
    from driftwatch.web.app import Web

LIST_PATH, PATH = "/incidents", "/incidents/{incident_id}"
_MOST_SERVERS, _MOST_RELATED = 20, 20
_AROUND, _DAY = timedelta(hours=1), timedelta(days=1)  # of the plot before the incident began


def servers_of(incident: Incident) -> list[TargetKey]:
    """The servers that the messages of an incident count; before its first message, all of them."""
    return list(incident.concerned or (one.key for one in incident.servers))


def line_of(incident: Incident, *, beside_page: bool = False) -> str:
    """Line 1 without its state: the web shows the state of now beside it.

    ``beside_page``: a page of the same pool is open, so a notice gives no advice.
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
    """An incident at one moment: the texts of its page, and how they were decided."""

    title: str
    line_1: str
    lines: tuple[tuple[str, str], ...] = ()  # (label, text)
    path: Sequence[PathRow] = ()
    diagnosis: Diagnosis | None = None
    limits: Sequence[LimitRow] = ()
    note: str = ""  # of what the limits' figures are
    of: str = ""  # which of several servers was diagnosed


def _look(title: str, found: First, today: date, of: str) -> Look:
    lines, diagnosis = tuple(page_lines(found.lines, today)), found.diagnosis
    if diagnosis is None:
        return Look(title, clean(found.summary), lines)
    path, limits = path_rows(diagnosis.path), [*map(limit_row, diagnosis.limits)]
    note = _of_limits(diagnosis.limits)
    return Look(title, clean(found.summary), lines, path, diagnosis, limits, note, of)


def _of_limits(limits: Sequence[Limit]) -> str:
    """When so many requests ran, and how often a limit was full where none holds requests back."""
    if any(one.binds for one in limits):
        return "In use: requests that ran while the limit was full, on average."
    share = max((one.full_ratio or 0.0 for one in limits), default=0.0)
    often = f" A limit was full in {percent(share)} of scrapes, none for long." if share else ""
    return f"In use: requests that ran, on average.{often}"


def page_lines(lines: Iterable[Line], today: date) -> Iterator[tuple[str, str]]:
    """(label, text) of the lines of a page after the first."""
    for one in lines:
        stamp = "" if one.at is None else moment(one.at, today)
        yield clean(one.label), clean(": ".join(filter(None, (stamp, one.text))))


def looks(page: IncidentPage | None, today: date) -> Iterator[Look]:
    """The first page, and the newest evaluation if it differs; of one that ended, how it ended."""
    if page is None:
        return
    is_over, worst = page.event == "resolved", ", worst server"
    # the page kept of the first only its texts
    named = f"{worst} {clean(page.servers.first[0])}" if page.servers.first else worst
    if not page.is_of_many:
        worst = named = ""
    first = page.first or (None if is_over else page.as_first)
    if first is not None:
        title = f"The {page.severity} of {moment(first.at, today)}"
        yield _look(title, first, today, worst if page.first else named)
    last = page.model_copy(update={"first": None}).as_first
    at = moment(last.at, today)
    if is_over:
        ended = _ended(page)
        lines = (*page_lines(page.lines, today), ("", f"{ended[:1].upper()}{ended[1:]}."))
        yield Look(f"At its end, {at}", clean(page.summary), lines)
    elif page.first is not None and last.diagnosis != page.first.diagnosis:
        summary = last.summary.removeprefix(opening(page)).lstrip()
        last = last.model_copy(update={"summary": summary})
        yield _look(f"Ten minutes to {at}, its last look", last, today, named)


def _ended(page: IncidentPage) -> str:
    """How a page ended; if its recovery was measured, that no change is advised."""
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
    page, state, headline = incident.page, incident.state_word, line_of(incident)
    deliveries = store.deliveries(incident.id)
    silences = [one for one in store.silences() if silences_incident(one, incident)]
    verified = None if page is None else page.verification
    until = min(visit.now, (incident.resolved_at or visit.now) + _AROUND / 2)
    since = max(incident.started_at - _AROUND, until - LONGEST)
    rows = store.past(since, until, servers_of(incident)[:_MOST_SERVERS])
    rows = rows.filter(pl.col("scrapes") > 0)
    span = f"?from={since:%Y-%m-%dT%H:%MZ}&to={until:%Y-%m-%dT%H:%MZ}"
    if page is not None and (incident.resolved_at or page.first):
        span += f"&at={page.as_first.at:%Y-%m-%dT%H:%MZ}"
    return {
        "title": f"{state} {headline}",
        "incident": incident,
        "page": page,
        "state": state,
        "headline": headline,
        "looks": [*looks(page, today)],
        "servers": servers_of(incident),
        "span": span if incident.resolved_at else "",  # of the pages of its servers
        "end": store.newest_minute(),
        "related": [*_related(store, incident, until)],
        "updates": [*_updates(visit.web, incident, today)],
        "sent": _sent(incident, deliveries, silences, today),
        "commands": [] if page is None else [*_commands(visit.web, incident, page)],
        "plot": _plot(visit, incident, deliveries, rows),
        "changes": changes(rows),
        "holding": [*_holding(visit, incident, silences)],
        "deliveries": [(one, status_text(one, today)) for one in deliveries],
        "actions": store.actions(incident.id),
        "mark": store.marks([incident.id]).get(incident.id),
        "verification": None if verified is None else verification_line(verified, today),
        "silencing": " ".join(matcher.text for matcher in silencing(incident)),
    }


def _related(
    store: WebStore, incident: Incident, until: datetime
) -> Iterator[tuple[Incident, str]]:
    """The other incidents of its servers that fired while it was open, and what happened."""
    span = (incident.started_at, incident.resolved_at or until)
    near, servers = (
        store.incidents_between(incident.pool, span, _MOST_RELATED),
        servers_of(incident),
    )
    mine = (
        one
        for one in near
        if not set(servers).isdisjoint(servers_of(one))
        and one.last_true_at > incident.started_at  # not only its closing message
        and incident.last_true_at > one.started_at
    )
    for one in store.with_pages(one for one in mine if one.id != incident.id):
        yield one, listed_line(one, beside_page=False)


def _updates(
    web: Web, incident: Incident, today: date
) -> Iterator[tuple[Message, Sequence[tuple[str, str]], str]]:
    """Each message after the page and before the end, its lines, and its own command."""
    page = incident.page
    explain = (page and page.links.explain) or f"driftwatch explain {incident.id}"
    for one in incident.messages[1:]:
        if one.event != "resolved":
            at = f" --at {one.at:%Y-%m-%dT%H:%MZ}"
            yield one, [*page_lines(one.lines, today)], explain + at + web.where


def _plot(
    visit: Visit, incident: Incident, deliveries: Iterable[Delivery], rows: pl.DataFrame
) -> Plot | None:
    """What its rule reads, with the usual ranges of the last day of its baseline."""
    plan, page, bands = visit.web.plan, incident.page, {}
    baseline = None if page is None else page.as_first.baseline or page.baseline
    if baseline is not None and baseline.since is not None and baseline.until is not None:
        since, keys = max(baseline.since, baseline.until - _DAY), servers_of(incident)
        past = visit.store.past(since, baseline.until, keys[:_MOST_SERVERS], SIGNAL_COLUMNS)
        bands = usual(past)
    slo = next((one.slo for one in plan.pools if one.name == incident.pool), None)
    # the configuration may have dropped the rule
    rule = next((one for one in plan.rules if one.id == incident.rule), None)
    columns = frozenset[str]() if rule is None else rule.in_pool(incident.pool).columns
    sent = (one.sent_at for one in deliveries if one.event == "firing" and one.sent_at)
    return incident_plot(rows, slo, incident, columns, min(sent, default=None), bands)


def _sent(
    incident: Incident,
    deliveries: Iterable[Delivery],
    silences: Iterable[Silence],
    today: date,
) -> str:
    """Which receivers got the page, in a sentence; where none did, why."""
    pages = [one for one in deliveries if one.event == "firing"]
    sent = [one.sent_at for one in pages if one.sent_at is not None]
    if sent:
        names = [*dict.fromkeys(clean(one.receiver) for one in pages if one.sent_at is not None)]
        return f"Sent to {few(names[:4], len(names))}, {moment(min(sent), today)}."
    if pages:
        return f"No receiver has it: {status_text(pages[0], today)}."
    if incident.firing_at is None:
        return "It has not fired yet, so nobody got anything."
    if any(one.active(incident.firing_at) for one in silences):
        return "Nobody got it: a silence held it back."
    return (
        f"Nobody got it: no receiver takes a {incident.severity} of this pool and rule (of a "
        "replay nobody gets anything)."
    )


def _commands(web: Web, incident: Incident, page: IncidentPage) -> Iterator[tuple[str, str]]:
    """(purpose, command) of what a person can do on the command line now."""
    explain, where = page.links.explain or f"driftwatch explain {incident.id}", web.where
    moves = () if incident.resolved_at or page.advice is None else page.advice.moves
    if change := vllm_arguments(moves):
        yield "Arguments of vllm serve", change
    if page.first or not incident.resolved_at:
        at = f" --at {page.as_first.at:%Y-%m-%dT%H:%MZ}"
        yield f"Explain it as of the {incident.severity}", explain + at + where
    if incident.resolved_at:
        at = f" --at {page.times.evaluated_at:%Y-%m-%dT%H:%MZ}"
        yield "Explain it as of its end", explain + at + where
    if incident.is_firing:
        yield "Explain it as of now", explain + where
        if incident.acknowledgement is None and page.links.ack:
            yield "Acknowledge it", page.links.ack + where
        if page.links.silence:
            yield "Silence it for 2 h", page.links.silence + where


def incident_named(store: WebStore, id_prefix: str) -> Incident:
    """The incident whose id begins so.

    Raises NotFound: none does, or more than one.
    """
    try:
        return store.incident(id_prefix)
    except UsageError as error:
        raise NotFound(error.message, search(LIST_PATH, id_prefix)) from None


def _holding(
    visit: Visit, incident: Incident, silences: Iterable[Silence]
) -> Iterator[tuple[str, str, str]]:
    """(label, text, command that ends it) of what holds its messages back, or did."""
    end = incident.resolved_at or visit.now
    for one in silences:
        if one.starts_at <= end and one.ends_at > incident.started_at:
            is_active = one.active(visit.now)
            word = "Silenced" if is_active else "Was silenced"
            end_it = visit.web.command("silence", "--expire", one.id) if is_active else ""
            why = f": {one.comment}" if one.comment else ""
            span = f"{one.starts_at:%Y-%m-%d %H:%M} UTC to {one.ends_at:%Y-%m-%d %H:%M} UTC"
            yield word, f"{span} by {one.created_by}{why}", end_it
    if incident.inhibited_by is not None and incident.resolved_at is None:
        yield "Waits", f"while {incident.inhibited_by} fires", ""


State = Literal["open", "firing", "acknowledged", "silenced", "pending", "resolved", ""]
STATES: tuple[State, ...] = State.__args__[:-1]  # type: ignore[attr-defined]


class IncidentsQuery(Paged):
    """Which incidents are listed."""

    # words of the id, alert, rule or pool, or the beginning of a server's name
    q: Annotated[str, Field(max_length=200)] = ""
    state: State = ""


def load_list(visit: Visit) -> Shown:
    """One part of the incidents that the query asks for."""
    query: IncidentsQuery = visit.query
    read = partial(visit.store.listed_incidents, state=query.state, text=query.q)
    incidents, part = paged(query, LIST_PATH, read)
    every = visit.store.open_now()
    with_page = {one.pool for one in every if one.severity == "page" and one.is_firing}
    return {
        "title": f"{plural(len(every), 'open incident')}" if every else "No incident is open",
        "end": visit.store.newest_minute(),
        "rows": [
            (one, one.state_word, listed_line(one, beside_page=one.pool in with_page))
            for one in incidents
        ],
        "part": part,
        "query": query,
        "states": STATES,
    }


def listed_line(incident: Incident, *, beside_page: bool) -> str:
    """Line 1; of a resolved incident what happened, then how it ended."""
    line, page = line_of(incident, beside_page=beside_page), incident.page
    if page is None or page.event != "resolved" or not page.first_problem:
        return line
    where, after, how = line.partition(" after ")
    if not after:
        where, _, how = line.partition(": ")
    ended = f"After {how}" if after else how[:1].upper() + how[1:]
    return f"{where}: {clean(page.first_problem)}. {ended}"


PAGE = Page(PATH, "Incident", "incident.html", load)
LIST = Page(LIST_PATH, "Incidents", "incidents.html", load_list, IncidentsQuery, is_placed=True)
