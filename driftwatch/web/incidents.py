"""The list of incidents, and the page of one: messages, plot, deliveries, actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import polars as pl
from pydantic import Field

from driftwatch.errors import UsageError
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.silence import silence_matchers, silences_incident
from driftwatch.model import Diagnosis, TargetKey
from driftwatch.notify.advice import NOTHING_TO_DO, vllm_arguments
from driftwatch.notify.headline import current_line
from driftwatch.notify.page import Line
from driftwatch.notify.page import Page as IncidentPage
from driftwatch.notify.verification_line import verification_line
from driftwatch.numbers import clean, moment, plural
from driftwatch.web.database import WebStore
from driftwatch.web.page import LONGEST, NotFound, Page, Paged, Shown, Slice, Visit, paged, search
from driftwatch.web.plots import incident_plot
from driftwatch.web.signals import changes, gaps

LIST_PATH, PATH = "/incidents", "/incidents/{incident_id}"
_MOST_SERVERS = 20
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
        # an incident that fired has a page, unless another version wrote it
        waits = f"waits while {clean(incident.inhibited_by)} fires" if incident.inhibited_by else ""
        rest = f": {waits or 'has not fired yet'}" if incident.firing_at is None else ""
        return f"{clean(incident.alert)} {clean(incident.name)}{rest}"
    line = current_line(page)
    if beside_page and page.severity == "notice" and NOTHING_TO_DO in page.phrases.advice:
        line = line.removesuffix(f". {page.phrases.advice}")
    return clean(line)


def counted(incidents: Sequence[Incident]) -> str:
    """``2 open incidents, 3 pending``, of incidents that are not over."""
    fired = sum(one.is_firing for one in incidents)
    pending = f", {len(incidents) - fired} pending" if fired < len(incidents) else ""
    return f"{plural(fired, 'open incident') if fired else 'no open incident'}{pending}"


class Look(NamedTuple):
    """An incident at one moment: the texts of its page, and how they were decided."""

    title: str
    line_1: str
    lines: Sequence[tuple[str, str]]  # (label, text)
    diagnosis: Diagnosis | None = None
    of: str = ""  # which of several servers was diagnosed
    evidence: Mapping[str, Any] | None = None  # column → value; a first page keeps none


def page_lines(lines: Iterable[Line], today: date) -> Iterator[tuple[str, str]]:
    """(label, text) of the lines of a page after the first."""
    for one in lines:
        stamp = "" if one.at is None else moment(one.at, today)
        yield clean(one.label), clean(": ".join(filter(None, (stamp, one.text))))


def looks(page: IncidentPage | None, today: date) -> Iterator[Look]:
    """The newest evaluation where it differs from the first page, then that page. Of an incident
    that ended: the first page, then its end.
    """
    if page is None:
        return
    # of its first version a page keeps only the texts
    is_named = page.is_of_many and page.servers.first
    worst = f", worst server {clean(page.servers.first[0])}" if is_named else ""
    is_over, first, at = page.event == "resolved", page.as_first, page.times.evaluated_at
    lines = [*page_lines(page.lines, today)]
    if not is_over and page.diagnosis != first.diagnosis:
        evidence = {name: one.value for name, one in page.evidence.items()}
        yield Look(f"As of {moment(at, today)}", "", lines, page.diagnosis, worst, evidence)
    if page.first is not None or not is_over:
        title, of = f"The {page.severity} of {moment(first.at, today)}", "" if page.first else worst
        texts = [*page_lines(first.lines, today)]
        yield Look(title, clean(first.summary), texts, first.diagnosis, of)
    if is_over:
        yield Look(f"At its end, {moment(at, today)}", clean(page.summary), lines)


def load(visit: Visit) -> Shown:
    """The incident, whose id may be its first digits.

    Raises NotFound: there is none, or more than one.
    """
    store, today, now = visit.store, visit.now.date(), visit.now
    (incident,) = store.with_silences([incident_named(store, visit.path["incident_id"])], now)
    page, servers, deliveries = incident.page, servers_of(incident), store.deliveries(incident.id)
    end = incident.resolved_at or now
    silences = [
        one
        for one in store.silences()
        if silences_incident(one, incident)
        and one.starts_at <= end
        and one.ends_at > incident.started_at
    ]
    until = min(now, end + _AROUND / 2)
    since = max(incident.started_at - _AROUND, until - LONGEST)
    rows = store.past(since, until, servers[:_MOST_SERVERS])
    rows = rows.filter(pl.col("scrapes") > 0)
    span = {"from": max(incident.started_at - _AROUND / 2, since)}
    if incident.resolved_at:
        span |= {"to": until} | ({} if page is None else {"at": page.as_first.at})
    own = next(
        (o.in_pool(incident.pool) for o in visit.web.plan.rules if o.id == incident.rule), None
    )
    # the configuration may have dropped its rule
    columns, lasts = (frozenset(), None) if own is None else (own.columns, own.for_seconds)
    sent = (one.sent_at for one in deliveries if one.event == "firing" and one.sent_at)
    slo, pools = store.slo_of(incident.pool), store.pools_now(incident.pool)
    plot = incident_plot(rows, slo, incident, columns, min(sent, default=None))
    left = None if lasts is None else timedelta(seconds=max(lasts - incident.true_seconds, 60.0))
    verified = None if page is None else page.verification
    moves = () if incident.resolved_at or page is None or page.advice is None else page.advice.moves
    return {
        "title": f"{incident.state_word} {line_of(incident)}",
        "incident": incident,
        "page": page,
        "looks": [*looks(page, today)],
        "servers": servers,
        # of the pages of its servers
        "span": "&".join(f"{name}={at:%Y-%m-%dT%H:%MZ}" for name, at in span.items()),
        "end": store.newest_minute(),
        "others": _others(store, incident, until, now),
        "change": vllm_arguments(moves),
        "explain": (page and page.links.explain) or f"driftwatch explain {incident.id}",
        "plot": plot,
        "gaps": gaps(rows) if plot and "speed" in plot.title and len(servers) == 1 else [],
        "changes": changes(rows),
        "meanwhile": _meanwhile(incident, rows),
        # how long its condition must last, and when a pending one then fires
        "lasts": lasts,
        "fires_at": left and incident.last_true_at + left,
        "pool": pools[0][0] if pools else None,
        "silences": silences,
        "held_back": any(one.active(incident.firing_at or now) for one in silences),
        "deliveries": deliveries,
        "actions": store.actions(incident.id),
        "mark": store.marks([incident.id]).get(incident.id),
        "verification": None if verified is None else verification_line(verified, today),
        "silencing": silence_matchers(incident),
        "refused": None,  # why a form changed nothing
        "typed": {},  # field → what was typed in that form
    }


def _meanwhile(incident: Incident, scraped: pl.DataFrame) -> str | None:
    """Whether servers restarted while none was scraped; None while the incident is open."""
    since = scraped.filter(pl.col("end") > incident.started_at)
    if incident.resolved_at is None or since.is_empty():
        return None
    first = since.group_by("instance", "engine").agg(pl.col("end", "restarted").first())
    if (first["end"] <= incident.last_true_at).any():
        return None
    restarted, of = int(first["restarted"].sum()), "" if len(first) == 1 else f" of {len(first)}"
    if first["restarted"].null_count():
        return "whether it restarted meanwhile is unknown"
    ran_on = "the process ran on: it did not restart" if not of else "none of them restarted"
    return f"{plural(restarted, 'server')}{of} restarted meanwhile" if restarted else ran_on


def _others(
    store: WebStore, incident: Incident, until: datetime, now: datetime
) -> dict[str, list[Incident]]:
    """The other incidents of its pool that fired in the day before it, and while it was open."""
    span = (incident.started_at - _DAY, incident.resolved_at or until)
    found = store.with_pages(store.incidents_between(incident.pool, span, now))
    others = [one for one in found if one.id != incident.id]
    # what was true only before it began may have sent its closing message later
    before = [one for one in others if one.last_true_at <= incident.started_at]
    return {"Before": before, "At the same time": [one for one in others if one not in before]}


def incident_named(store: WebStore, id_prefix: str) -> Incident:
    """The incident whose id begins so.

    Raises NotFound: none does, or more than one.
    """
    try:
        return store.incident(id_prefix)
    except UsageError as error:
        raise NotFound(error.message, search(LIST_PATH, id_prefix)) from None


State = Literal["open", "firing", "acknowledged", "silenced", "pending", "resolved", ""]
STATES: tuple[State, ...] = State.__args__[:-1]  # type: ignore[attr-defined]


class IncidentsQuery(Paged):
    """Which incidents are listed."""

    # words of the id, alert, rule or pool, or the beginning of a server's name
    q: Annotated[str, Field(max_length=200)] = ""
    state: State = ""


def listed_incidents(
    visit: Visit, path: str
) -> tuple[Sequence[Incident], Slice, Sequence[Incident]]:
    """One part of the incidents that the query asks for, which part, and every open incident."""
    store, query, opened = visit.store, visit.query, visit.store.open_now(visit.now)
    about = {"opened": opened, "state": query.state, "text": query.q}
    return *paged(query, path, partial(store.listed_incidents, now=visit.now, **about)), opened


def load_list(visit: Visit) -> Shown:
    """One part of the incidents that the query asks for."""
    rows, part, every = listed_incidents(visit, LIST_PATH)
    return {
        "title": counted(every).capitalize(),
        "end": visit.store.newest_minute(),
        "rows": rows,
        "with_page": {one.pool for one in every if one.severity == "page" and one.is_firing},
        "part": part,
        "query": visit.query,
        "states": STATES,
    }


PAGE = Page(PATH, "Incident", "incident.html", load)
LIST = Page(LIST_PATH, "Incidents", "incidents.html", load_list, IncidentsQuery)
