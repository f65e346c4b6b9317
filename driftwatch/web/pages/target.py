"""A target: its answer, lengths, signals on one time axis, limits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

import polars as pl
from pydantic import ConfigDict, Field

from driftwatch.errors import UsageError
from driftwatch.incidents.incident import Incident
from driftwatch.model import Target
from driftwatch.notify.facts import with_reasons
from driftwatch.numbers import clean, cut, moment
from driftwatch.web.answers import (
    TargetAnswer,
    answer_lines,
    answer_of,
    engine_line,
    fact_lines,
    limit_cells,
    links_of,
    of_target,
    pending_of,
    target_answer,
    window_line,
)
from driftwatch.web.fleet import Fleet
from driftwatch.web.page import (
    TARGET,
    Link,
    Moment,
    NotFound,
    Page,
    Query,
    View,
    Visit,
    grafana_link,
    near,
    pool_link,
    target_link,
    target_path,
)
from driftwatch.web.pages.fleet import entries_of
from driftwatch.web.pages.incidents import Line, incident_link, path_steps
from driftwatch.web.target_minutes import (
    SCHEMA,
    SIGNAL_SCHEMA,
    SIGNALS,
    Signals,
    changes,
    spans,
    usual,
    width_of,
)
from driftwatch.web.target_plots import length_shares, target_plots

_USUAL_RANGE, _LONGEST, _SHORTEST = timedelta(hours=3), timedelta(days=35), timedelta(minutes=10)
_RANGES = {"1 h": 1, "3 h": 3, "12 h": 12, "2 d": 48, "7 d": 168}
_EPISODES, _CHANGES, _BATCHES_OF_BASELINE = 50, 40, 8


class TargetQuery(Query):
    """The range of time; without it the last three hours that there are."""

    model_config = ConfigDict(populate_by_name=True)

    since: Annotated[Moment | None, Field(alias="from", description="ISO 8601; UTC")] = None
    until: Annotated[Moment | None, Field(alias="to", description="after from by 35 days")] = None


def load(visit: Visit) -> View:
    """The target over the range.

    Raises NotFound: there is no such target; UsageError: the range is none, or too long.
    """
    fleet = visit.web.fleet.current(visit.store)
    target = _target(visit, fleet)
    since, until = _range(visit.query, visit.now, fleet.end)
    rows = visit.store.target_rows(target.key, (since, until), SCHEMA)
    scraped = rows.filter(pl.col("scrapes") > 0)
    first, last = scraped["end"].min(), scraped["end"].max()
    end = last if isinstance(last, datetime) else until
    if visit.query.since is None and isinstance(first, datetime):
        since = min(max(since, first), until - _SHORTEST)  # from the first data on
    answer = target_answer(visit.store, target, visit.web.plan, end)
    is_newest = fleet.end is None or until >= fleet.end - timedelta(minutes=1)
    open_ones = visit.store.open_now() if is_newest else []
    return View.of(
        f"Target {cut(clean(target.key.text), 80)}",
        target=target.key.text,
        pool=pool_link(target.pool or "default"),
        since=since,
        until=until,
        is_newest=is_newest,
        is_stale=fleet.is_stale(visit.now),
        **_no_data(visit, target, since, until, has_some=bool(len(scraped))),
        ranges=list(_ranges(target, until, visit)),
        **_answer_parts(visit, target, answer, open_ones, fleet),
        **_measured(answer),
        signals=_signals(visit, target, answer, rows, (since, until)) if len(scraped) else None,
        grafana=grafana_link(
            visit.web.settings.grafana,
            target.pool or "default",
            since,
            until,
            target.key.instance,
        ),
    )


def _target(visit: Visit, fleet: Fleet) -> Target:
    name = visit.path["target"]
    if (key := fleet.by_text.get(name)) is not None:
        return fleet.targets[key]
    alike = near(name, sorted(fleet.by_text))
    raise NotFound(
        f"There is no target {cut(clean(name), 100)}.", tuple(target_link(one) for one in alike)
    )


def _range(query: Any, now: datetime, newest: datetime | None) -> tuple[datetime, datetime]:
    until = query.until or min(now, newest or now)
    since = query.since or until - _USUAL_RANGE
    if not timedelta(0) < until - since <= _LONGEST:
        raise UsageError(
            f"from {moment(since, None)} to {moment(until, None)} is no range",
            help_text="from lies before to, by 35 days at most",
        )
    return min(since, until - _SHORTEST), until


def _ranges(target: Target, until: datetime, visit: Visit) -> Iterator[Link]:
    path, has_end = target_path(target.key.text), visit.query.until is not None
    for text, hours in _RANGES.items():
        query = {"from": _iso(until - timedelta(hours=hours))}
        query |= {"to": _iso(until)} if has_end else {}
        yield Link(text=text, path=f"{path}?{urlencode(query)}")


def _iso(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _no_data(
    visit: Visit, target: Target, since: datetime, until: datetime, *, has_some: bool
) -> dict[str, Any]:
    """Why a range has none, and where there is some."""
    if has_some:
        return {"no_data": None, "data": None}
    reach = visit.store.minutes_span(target.key)
    text = f"No scrape of it from {moment(since, None)} to {moment(until, None)} is stored"
    if reach is None:
        return {"no_data": f"{text}, and none of another time.", "data": None}
    first, last = (moment(at, None) for at in reach)
    query = {"from": _iso(max(reach[0], reach[1] - _USUAL_RANGE)), "to": _iso(reach[1])}
    path = f"{target_path(target.key.text)}?{urlencode(query)}"
    return {
        "no_data": f"{text}; its minutes reach from {first} to {last}.",
        "data": Link(text=f"the minutes up to {last}", path=path),
    }


def _answer_parts(
    visit: Visit, target: Target, answer: TargetAnswer, incidents: list[Incident], fleet: Fleet
) -> dict[str, Any]:
    """State, first line and advice: of the worst open incident, else of the finding."""
    mine = visit.store.with_pages(of_target(incidents, target.key, target.pool or "default"))
    entry = entries_of(fleet, incidents, visit.now)[fleet.places[target.key]]
    worst = entry.incident and entry.incident.id
    of_incident = answer_of([one for one in mine if one.id == worst])
    text = "no scrape in these ten minutes"
    lines: list[Line] = []
    if answer.finding is not None:
        own = [one for one in mine if "instance" in one.target and one.state == "firing"]
        text, lines = answer_lines(answer.finding, own)
    return {
        "state": entry.state if visit.query.until is None else None,
        "text": text,
        "lines": lines,
        "answer": of_incident,
        "incidents": links_of(mine),
        "pending": pending_of(mine),
    }


def _measured(answer: TargetAnswer) -> dict[str, Any]:
    """What the ten minutes at the end of the range hold."""
    finding = answer.finding
    lengths = [] if finding is None else list(length_shares(finding))
    return {
        "engine": None if finding is None else engine_line(finding),
        "window": window_line(answer),
        "facts": list(fact_lines(answer)),
        "path": _path(answer),
        "lengths": lengths,
        "without_lengths": None if lengths else _without_lengths(answer),
        "limits": [] if finding is None else limit_cells(finding),
    }


def _without_lengths(answer: TargetAnswer) -> str:
    if answer.finding is None:
        return answer.why or "nothing is known of these ten minutes"
    return answer.finding.reasons.get("prompt_tokens_mean", "no request finished in these minutes")


def _path(answer: TargetAnswer) -> list[dict[str, Any]]:
    finding = answer.finding
    if finding is None or finding.diagnosis is None:
        return []
    before = finding.reference["values"] if finding.reference else {}
    return path_steps(with_reasons(finding.diagnosis, finding.reasons), before)


def _signals(
    visit: Visit,
    target: Target,
    answer: TargetAnswer,
    rows: pl.DataFrame,
    span: tuple[datetime, datetime],
) -> Signals:
    width, now = width_of(*span, rows), answer.finding
    baseline, bands, why = answer.baseline, {}, "no baseline is in force"
    if baseline is not None:
        of = (baseline.since, baseline.until)
        store = visit.store
        bands = usual(store.target_rows(target.key, of, SIGNAL_SCHEMA, _BATCHES_OF_BASELINE))
        why = "fewer than an hour of its own minutes of the baseline's window is stored"
    pool = target.pool or "default"
    episodes = visit.store.incidents_between(target.key, pool, span, _EPISODES)
    return Signals(
        span_seconds=width,
        spans=spans(rows, *span, width).to_dicts(),
        recent={} if now is None else {name: now.evidence.get(name) for name in SIGNALS},
        usual=bands,
        without_usual=None if bands else why,
        episodes=[
            {
                "started_at": one.started_at,
                "resolved_at": one.resolved_at,
                "link": incident_link(one),
            }
            for one in episodes
        ],
        changes=changes(rows)[-_CHANGES:],
    )


PAGE = Page(TARGET, "Target", "target.html", load, TargetQuery, plots=target_plots)
