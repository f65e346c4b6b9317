"""A target: its answer, its signals on one time axis, lengths, limits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

import polars as pl
from pydantic import ConfigDict, Field

from driftwatch.baselines.in_force import in_force
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.incidents.incident import Incident
from driftwatch.model import Finding
from driftwatch.notify.explanation import state_text, what_to_do
from driftwatch.numbers import clean, cut, moment
from driftwatch.pipeline.explain import explain, window_ending
from driftwatch.store.latest import ServerNow
from driftwatch.web.database import WebStore, incident_state
from driftwatch.web.fleet import STALE, is_old
from driftwatch.web.incidents import page_lines, servers_of
from driftwatch.web.page import (
    TARGET,
    Link,
    Moment,
    NotFound,
    Page,
    Query,
    Shown,
    Visit,
    search,
    target_path,
)
from driftwatch.web.plots import (
    change_ticks,
    incident_spans,
    length_plots,
    signal_plot,
    signal_title,
)
from driftwatch.web.signals import SCHEMA, SIGNAL_SCHEMA, changes, usual

LENGTH = timedelta(minutes=10)
_USUAL_RANGE, _LONGEST, _SHORTEST = timedelta(hours=3), timedelta(days=35), timedelta(minutes=10)
_RANGES = {"1 h": 1, "3 h": 3, "12 h": 12, "2 d": 48, "7 d": 168}
_EPISODES, _CHANGES, _BATCHES_OF_BASELINE, _LONGEST_TEXT = 50, 40, 8, 600


class TargetQuery(Query):
    """The range of time; without it the last three hours that there are."""

    model_config = ConfigDict(populate_by_name=True)

    since: Annotated[Moment | None, Field(alias="from", description="ISO 8601; UTC")] = None
    until: Annotated[Moment | None, Field(alias="to", description="after from by 35 days")] = None


class Explained(NamedTuple):
    """Ten minutes of a target, as ``driftwatch explain`` explains them."""

    finding: Finding | None  # None = no minute with a scrape lies in the window
    baseline: Baseline | None  # in force; None = there is none
    why: str | None  # why there is no finding


def load(visit: Visit) -> Shown:
    """The target over the range.

    Raises NotFound: there is no such target; UsageError: the range is none, or too long.
    """
    store = visit.store
    now = _server(visit)
    since, until = _range(visit.query, visit.now, now.at)
    rows = store.rows_of([now.key], (since, until), SCHEMA)
    scraped = rows.filter(pl.col("scrapes") > 0)
    first, last = scraped["end"].min(), scraped["end"].max()
    end = last if isinstance(last, datetime) else until
    if isinstance(first, datetime):
        # from the first data on
        since = min(max(since, first - timedelta(minutes=1)), until - _SHORTEST)
    explained = _explained(visit, now, end)
    is_newest = until >= now.at - timedelta(minutes=1)
    open_ones = store.with_pages(store.open_now(now.pool)) if is_newest else []
    mine = [one for one in open_ones if one.is_firing and now.key in servers_of(one)]
    incident = next(iter(mine), None)
    is_stale = is_old(now.at, visit.now)
    span = (since, until)
    return {
        "title": f"Target {cut(clean(now.key.text), 80)}",
        "server": now,
        "state": None if visit.query.until else _state(now, incident, is_stale=is_stale),
        "why": STALE if is_stale else now.why,
        "end": now.at,
        "is_stale": is_stale,
        "incident": incident,
        "incidents": mine,
        "since": since,
        "until": until,
        "no_data": None if len(scraped) else _no_data(store, now, span),
        "ranges": list(_ranges(now, until, visit)),
        **_answer(explained, incident, visit.now.date()),
        "signals": _signals(visit, now, explained, rows, span) if len(scraped) else None,
        "explain": visit.web.command(*_explain(now, visit.query.until)),
    }


def _server(visit: Visit) -> ServerNow:
    name = visit.path["target"]
    found = visit.store.server(name)
    if found is None:
        raise NotFound(f"There is no target {cut(clean(name), 100)}.", search("/fleet", name))
    return found


def _state(now: ServerNow, incident: Incident | None, *, is_stale: bool) -> str:
    if incident is not None and incident.severity == "page":
        return incident_state(incident)
    return "no data" if is_stale else now.state


def _range(query: Any, now: datetime, newest: datetime) -> tuple[datetime, datetime]:
    until = query.until or min(now, newest)
    since = query.since or until - _USUAL_RANGE
    if not timedelta(0) < until - since <= _LONGEST:
        raise UsageError(
            f"from {moment(since, None)} to {moment(until, None)} is no range",
            help_text="from lies before to, by 35 days at most",
        )
    return min(since, until - _SHORTEST), until


def _ranges(now: ServerNow, until: datetime, visit: Visit) -> Iterator[Link]:
    path, has_end = target_path(now.key.text), visit.query.until is not None
    for text, hours in _RANGES.items():
        query = {"from": _iso(until - timedelta(hours=hours))}
        query |= {"to": _iso(until)} if has_end else {}
        yield Link(text=text, path=f"{path}?{urlencode(query)}")


def _iso(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _no_data(store: WebStore, now: ServerNow, span: tuple[datetime, datetime]) -> str:
    """Why a range has none, and where there is some."""
    since, until = (moment(at, None) for at in span)
    text = f"No scrape of it from {since} to {until} is stored"
    if (reach := store.minutes_span(now.key)) is None:
        return f"{text}, and none of another time."
    first, last = (moment(at, None) for at in reach)
    return f"{text}; its minutes reach from {first} to {last}."


def _explained(visit: Visit, now: ServerNow, end: datetime) -> Explained:
    """What the ten minutes before ``end`` tell of a target, against its baseline."""
    plan, store = visit.web.plan, visit.store
    of = Baselines(tuple(store.baselines_naming(now.key, now.pool)))
    every = in_force(of, {now.key: now.target}, plan)
    baseline = every.baselines.of_target(now.instance, now.engine, now.pool)
    window = window_ending(end, LENGTH)
    try:
        finding, _ = explain(store, now.target, window, plan, every.reference, today=end.date())
    except NoVerdict as error:
        why = f"{error.message}; {error.help_text}" if error.help_text else error.message
        return Explained(None, baseline, clean(why))
    return Explained(finding, baseline, None)


def _answer(explained: Explained, incident: Incident | None, today: date) -> Shown:
    """The answer in a sentence and what to do: the open page's, else that of ``explain``."""
    finding = explained.finding
    page = None if incident is None else incident.page
    lines = [] if page is None else [*page_lines(page.lines, today)]
    if finding is None:
        nothing = explained.why or "no scrape in these ten minutes"
        return {"text": nothing, "lines": lines, "lengths": [], "without_lengths": nothing}
    why = finding.reasons.get("prompt_tokens_mean", "no request finished in these minutes")
    return {
        "text": cut(state_text(finding), _LONGEST_TEXT),
        "lines": lines or [(one.label, clean(one.text)) for one in what_to_do(finding)],
        "lengths": list(length_plots(finding)),
        "without_lengths": why,
    }


def _explain(now: ServerNow, until: datetime | None) -> list[str]:
    """Words of the command that explains the same moment."""
    at = [] if until is None else ["--at", f"{until:%Y-%m-%dT%H:%MZ}"]
    return ["explain", clean(now.key.text), *at]


def _signals(
    visit: Visit,
    now: ServerNow,
    explained: Explained,
    rows: pl.DataFrame,
    span: tuple[datetime, datetime],
) -> Shown:
    """The plot of the signals, and its numbers in words."""
    store, bands, why = visit.store, {}, "no baseline is in force"
    baseline = explained.baseline
    if baseline is not None:
        of = (baseline.since, baseline.until)
        bands = usual(store.rows_of([now.key], of, SIGNAL_SCHEMA, _BATCHES_OF_BASELINE))
        why = "fewer than an hour of its own minutes of the baseline's window is stored"
    episodes = [
        one
        for one in store.incidents_between(now.pool, span, _EPISODES)
        if now.key in servers_of(one)
    ]
    happened = changes(rows)[-_CHANGES:]
    ends = (span[0].timestamp(), span[1].timestamp())
    around = [*incident_spans(episodes, *ends), *change_ticks(happened, *ends)]
    title = signal_title(explained.finding, bands, moment(span[1], visit.now.date()))
    return {
        "plot": signal_plot(title, rows, span, bands, around),
        "without_usual": None if bands else why,
        "episodes": episodes,
        "changes": happened,
    }


PAGE = Page(TARGET, "Target", "target.html", load, TargetQuery)
