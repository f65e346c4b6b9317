"""A target: its answer, its signals on one time axis, lengths."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import polars as pl
from pydantic import ConfigDict, Field

from driftwatch.baselines.in_force import in_force
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.incidents.incident import Incident, Message
from driftwatch.model import Finding
from driftwatch.notify.explanation import state_text, what_to_do
from driftwatch.numbers import clean, cut, moment, squeeze
from driftwatch.pipeline.explain import Window, explain
from driftwatch.store.latest import ServerNow
from driftwatch.web.database import WebStore
from driftwatch.web.incidents import line_of, page_lines, servers_of
from driftwatch.web.page import LONGEST, TARGET, Moment, NotFound, Page, Query, Shown, Visit, search
from driftwatch.web.plots import (
    change_ticks,
    event_ticks,
    incident_spans,
    length_plots,
    signal_plot,
    signal_title,
)
from driftwatch.web.signals import COLUMNS, SIGNAL_COLUMNS, changes, usual

_EXPLAINED, _SHORTEST = timedelta(minutes=10), timedelta(minutes=10)
_USUAL_RANGE = timedelta(hours=3)
_RANGES = {"1 h": 1, "3 h": 3, "12 h": 12, "24 h": 24, "2 d": 48, "7 d": 168}
_OF_BASELINE = timedelta(days=3)  # usual ranges are of the end of the baseline
_INCIDENTS, _CHANGES, _LONGEST_TEXT = 50, 40, 600
_MINUTE = timedelta(minutes=1)
_ANSWER = "moment of the answer above"


class TargetQuery(Query):
    """The range of time; without it the last three hours that there are."""

    model_config = ConfigDict(populate_by_name=True)

    since: Annotated[Moment | None, Field(alias="from", description="ISO 8601; UTC")] = None
    until: Annotated[Moment | None, Field(alias="to", description="after from by 35 days")] = None
    at: Moment | None = None  # of the answer, the lengths and the command; None: the range's end

    def range(self, newest: datetime) -> tuple[datetime, datetime]:
        """From and to; ``newest``: end of the newest minute.

        Raises UsageError: from is not before to, or the range is too long.
        """
        until = self.until or newest
        since = self.since or until - _USUAL_RANGE
        if not timedelta(0) < until - since <= LONGEST:
            raise UsageError(
                f"from {moment(since, None)} to {moment(until, None)} is no range",
                help_text="from lies before to, by 35 days at most",
            )
        if self.at is not None and not since <= self.at <= until:
            raise UsageError("at lies outside the range", help_text="it lies between from and to")
        return min(since, until - _SHORTEST), until


def load(visit: Visit) -> Shown:
    """The target over the range.

    Raises NotFound: no target has this name; UsageError: the range is wrong, or too long.
    """
    store, name, query, today = visit.store, visit.path["target"], visit.query, visit.now.date()
    if (now := store.server(name)) is None:
        raise NotFound(f"There is no target {cut(clean(name), 100)}.", search("/fleet", name))
    since, until = query.range(min(visit.now, now.at))
    rows = store.past(since, until, [now.key], COLUMNS)
    first, last = (
        getattr(rows.filter(pl.col("scrapes") > 0)["end"], at)() for at in ("min", "max")
    )
    if first is not None:  # from the first data on
        since = min(max(since, first - timedelta(minutes=1)), until - _SHORTEST)
    asked = query.at or query.until  # the moment that somebody asked for
    finding, baseline, why = _explained(visit, now, query.at or last or until)
    is_newest = (query.at or until) >= now.at - _MINUTE
    open_now = store.with_pages(store.open_now(now.pool)) if is_newest else []
    mine = [one for one in open_now if one.is_firing and now.key in servers_of(one)]
    # a notice tells what moved, not how the server is
    incident = next((one for one in mine if one.severity != "notice"), None)
    page = None if incident is None else incident.page
    state: str = now.state
    if incident is not None and incident.severity == "page":
        state = incident.state_word
    is_lost = state == "no data" and asked is None
    text = why if finding is None else cut(state_text(finding), _LONGEST_TEXT)
    name = squeeze(clean(now.key.text), 60)
    told = None if asked is None else _told(store, now, asked)
    if told is not None:
        incident, headline = told[0], f"At {moment(asked, today)}: {clean(told[1].summary)}"
    elif incident is not None and page is not None:
        line = line_of(incident)
        headline = line if line.startswith(name) else f"{name} in {line}"
    elif is_lost:
        headline = f"{name}: no data since {moment(now.since, today)}"
    else:
        at = "" if asked is None else f" at {moment(query.at or until, today)}"
        headline = f"{name}{at}: {text}"
    to_do = [] if finding is None else [(one.label, clean(one.text)) for one in what_to_do(finding)]
    lines = to_do if page is None else [*page_lines(page.lines, today)]
    if told is not None:
        lines = [*page_lines(told[1].lines, today)]
    until_text = [] if asked is None else ["--at", f"{query.at or until:%Y-%m-%dT%H:%MZ}"]
    return {
        "title": f"Target {cut(clean(now.key.text), 80)}",
        "server": now,
        "state": None if asked else state,
        "end": now.at,
        "incident": incident,
        "incidents": [one for one in mine if one is not incident],
        "since": since,
        "until": until,
        "has_end": query.until is not None,
        "at": query.at,
        "ranges": [(text, until - timedelta(hours=hours)) for text, hours in _RANGES.items()],
        "headline": headline,
        "before": text if is_lost and finding is not None else None,
        "lines": [one for one in lines if one[1].lower() not in headline.lower()],
        "lengths": [] if finding is None else [*length_plots(finding)],
        "without_lengths": _without_lengths(finding),
        "no_data": why if first is None else None,
        "signals": None
        if first is None
        else _signals(visit, now, (finding, baseline), rows, (since, until), query.at),
        "explain": visit.web.command("explain", clean(now.key.text), *until_text),
    }


def _told(store: WebStore, now: ServerNow, at: datetime) -> tuple[Incident, Message] | None:
    """What the last message about the server said at a moment in the past, a page first."""
    near = store.incidents_between(now.pool, (at, at + _MINUTE), _INCIDENTS)
    for one in sorted(near, key=lambda one: one.severity != "page"):
        said = [message for message in one.messages if message.at <= at]
        if said and one.severity != "notice" and now.key in servers_of(one):
            return one, said[-1]
    return None


def _without_lengths(finding: Finding | None) -> str:
    why = None if finding is None else finding.reasons.get("prompt_tokens_mean")
    return why or "no request finished in these minutes"


def _explained(
    visit: Visit, now: ServerNow, end: datetime
) -> tuple[Finding | None, Baseline | None, str]:
    """What ``driftwatch explain`` finds in ten minutes before ``end``, the baseline in force, why
    there is no finding (these minutes have no scrape).
    """
    plan, store = visit.web.plan, visit.store
    of = Baselines(tuple(store.baselines_naming(now.key, now.pool)))
    every = in_force(of, {now.key: now.target}, plan)
    baseline = every.baselines.of_target(now.instance, now.engine, now.pool)
    window = Window(end - _EXPLAINED, end)
    try:
        finding, _ = explain(store, now.target, window, plan, every.reference, today=end.date())
    except NoVerdict as error:
        return None, baseline, clean(f"{error.message}; {error.help_text}")
    return finding, baseline, ""


def _signals(
    visit: Visit,
    now: ServerNow,
    explained: tuple[Finding | None, Baseline | None],
    rows: pl.DataFrame,
    span: tuple[datetime, datetime],
    at: datetime | None,
) -> Shown:
    """The plot of the signals, and its marks in words; ``at``: the moment of the answer above."""
    (finding, baseline), store = explained, visit.store
    bands, why = dict[str, tuple[float, float]](), "no baseline is in force"
    if baseline is not None:
        since = max(baseline.since, baseline.until - _OF_BASELINE)
        bands = usual(store.past(since, baseline.until, [now.key], SIGNAL_COLUMNS))
        why = "fewer than an hour of its own minutes of the baseline's window is stored"
    near = store.incidents_between(now.pool, span, _INCIDENTS)
    incidents = [one for one in near if now.key in servers_of(one)]
    changed = changes(rows)[-_CHANGES:]
    ends = (span[0].timestamp(), span[1].timestamp())
    around = [*incident_spans(incidents, *ends), *change_ticks(changed, *ends)]
    if at is not None:
        around += event_ticks([(at, _ANSWER)], *ends, _ANSWER, colour=1)
    title = signal_title(finding, bands, moment(at or span[1], visit.now.date()))
    return {
        "plot": signal_plot(title, rows, span, bands, around),
        "without_usual": None if bands else why,
        "incidents": incidents,
        "changes": changed,
    }


PAGE = Page(TARGET, "Target", "target.html", load, TargetQuery)
