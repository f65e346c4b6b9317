"""The page of a server: answer, signals on one time axis, lengths."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, NamedTuple

import polars as pl
from pydantic import ConfigDict, Field

from driftwatch.baselines.in_force import in_force
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.incidents.incident import Incident, Message
from driftwatch.model import Finding
from driftwatch.notify.explanation import is_stuck, state_text, what_to_do
from driftwatch.numbers import clean, cut, moment, span, squeeze
from driftwatch.pipeline.explain import Window, explain
from driftwatch.store.latest import ServerNow
from driftwatch.web.incidents import line_of, page_lines, servers_of
from driftwatch.web.page import LONGEST, TARGET, Moment, NotFound, Page, Query, Shown, Visit, search
from driftwatch.web.plots import length_plots, marks, signal_plot, signal_title
from driftwatch.web.signals import COLUMNS, changes, gaps, usual

_EXPLAINED, _SHORTEST = timedelta(minutes=10), timedelta(minutes=10)
_USUAL_RANGE = timedelta(hours=3)
_HOURS = {"1 h": 1, "3 h": 3, "12 h": 12, "24 h": 24, "2 d": 48, "7 d": 168}
_RANGES = {text: timedelta(hours=hours) for text, hours in _HOURS.items()}
_OF_BASELINE = timedelta(days=3)  # the end of the baseline gives the usual ranges
_CHANGES, _LONGEST_TEXT = 40, 600
_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)
_ANSWER = "moment of the answer above"
_NONE_FINISHED = "no request finished in these minutes"


class TargetQuery(Query):
    """The range of time; without it three hours around ``at``, or the last that there are."""

    model_config = ConfigDict(populate_by_name=True)

    since: Annotated[Moment | None, Field(alias="from", description="ISO 8601; UTC")] = None
    until: Annotated[Moment | None, Field(alias="to", description="after from by 35 days")] = None
    at: Moment | None = None  # moment of answer, lengths and command; None: the range's end

    def range(self, newest: datetime) -> tuple[datetime, datetime]:
        """From and to; ``newest``: end of the newest minute.

        Raises UsageError: from is not before to, or the range is too long.
        """
        until = self.until or newest
        if self.at is not None and self.since is None and self.until is None:
            until = min(newest, self.at + _USUAL_RANGE / 2)
        since = self.since or until - _USUAL_RANGE
        if not timedelta(0) < until - since <= LONGEST:
            raise UsageError(
                f"from {moment(since, None)} to {moment(until, None)} is no range",
                help_text="from lies before to, by 35 days at most",
            )
        if self.at is not None and not since <= self.at <= until:
            raise UsageError("at lies outside the range", help_text="it lies between from and to")
        return min(since, until - _SHORTEST), until


class Explained(NamedTuple):
    """What ``driftwatch explain`` finds in the ten minutes to ``end``."""

    end: datetime
    finding: Finding | None
    why: str  # why there is no finding; empty where there is one
    baseline: Baseline | None  # in force


class Answer(NamedTuple):
    """How the server is, or was."""

    headline: str
    lines: Sequence[tuple[str, str]]  # (label, text)
    state: str | None = None  # of now; None: the answer is of a moment in the past
    incident: Incident | None = None  # whose line 1 the headline is
    incidents: Sequence[Incident] = ()  # the others that are, or were, open


def load(visit: Visit) -> Shown:
    """The target over the range.

    Raises NotFound: no target has this name; UsageError: the range is wrong, or too long.
    """
    store, name, query = visit.store, visit.path["target"], visit.query
    if (now := store.server(name)) is None:
        raise NotFound(f"There is no target {cut(clean(name), 100)}.", search("/fleet", name))
    since, until = query.range(min(visit.now, now.at))
    length = until - since
    rows = store.past(since, until, [now.key], COLUMNS)
    scraped = rows.filter(pl.col("scrapes") > 0)["end"].to_list()
    if scraped:  # from the first data on
        since = min(max(since, scraped[0] - _MINUTE), until - _SHORTEST)
    asked = query.at or query.until  # a moment that somebody asked for
    found = _explained(visit, now, query.at or (scraped[-1] if scraped else until))
    at = asked or until
    near = store.incidents_between(now.pool, (at - _DAY, at + _MINUTE), visit.now)
    near = store.with_pages(near)
    mine = [one for one in near if now.key in servers_of(one) and _fires_at(one, asked)]
    finding, answer = found.finding, _answer(visit, now, found, asked, mine)
    is_hung = finding is not None and is_stuck(finding.evidence)
    why = None if finding is None else finding.reasons.get("prompt_tokens_mean")
    headline, as_of = answer.headline.lower(), [] if asked is None else ["--at", _stamp(asked)]
    return {
        "title": f"Target {cut(clean(now.key.text), 80)}",
        "server": now,
        "end": now.at,
        **answer._asdict(),
        "lines": [one for one in answer.lines if one[1].lower() not in headline],
        "has_room": asked is None and answer.state != "no data" and not is_hung,
        "since": since,
        "until": until,
        "to": f"&to={_stamp(until)}" if query.until else "",
        "ranges": [(t, _stamp(until - span), span == length) for t, span in _RANGES.items()],
        "lengths": [] if finding is None else [*length_plots(finding)],
        "without_lengths": _silence(scraped, found.end)
        if finding is None
        else _NONE_FINISHED
        if is_hung
        else why or _NONE_FINISHED,
        "at": asked,
        # what was over in the pool in the day before the moment of the answer
        "before": [o for o in near if o.resolved_at and o.resolved_at <= at],
        "no_data": None if scraped else found.why,
        "signals": _signals(visit, now, found, rows, (since, until)) if scraped else None,
        "explain": visit.web.command("explain", clean(now.key.text), *as_of),
    }


def _silence(scraped: Sequence[datetime], at: datetime) -> str:
    """``not scraped 03:00–03:40 UTC``, of the minutes around ``at``; ``scraped``: their ends."""
    since = max((end for end in scraped if end <= at), default=None)
    until = min((end - _MINUTE for end in scraped if end > at), default=None)
    if since is not None and until is not None:
        return f"not scraped {span(since, until)}"
    one = since or until or at
    return f"not scraped {'until' if since is None else 'since'} {moment(one, at.date())}"


def _stamp(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%MZ}"


def _fires_at(one: Incident, at: datetime | None) -> bool:
    """Whether an incident fires now (None), or fired at a moment."""
    is_later = at is not None and (one.firing_at is None or one.firing_at >= at + _MINUTE)
    return not is_later and (one.is_firing or (at is not None and at < (one.resolved_at or at)))


def _answer(
    visit: Visit,
    now: ServerNow,
    found: Explained,
    asked: datetime | None,
    mine: Sequence[Incident],
) -> Answer:
    """The newest message about the server, else what ``explain`` finds; ``asked``: at a moment;
    ``mine``: its incidents that fire then.
    """
    today, name = visit.now.date(), squeeze(clean(now.key.text), 60)
    text, lines = found.why, list[tuple[str, str]]()
    if found.finding is not None:
        text = cut(state_text(found.finding), _LONGEST_TEXT)
        lines = [(one.label, clean(one.text)) for one in what_to_do(found.finding)]
    if asked is not None and (past := _message_at(mine, asked)) is not None:
        incident, message = past
        headline = f"At {moment(asked, today)}: {clean(message.summary)}"
        others = [one for one in mine if one is not incident]
        return Answer(headline, [*page_lines(message.lines, today)], None, incident, others)
    if asked is not None and asked < now.at - _MINUTE:
        return Answer(f"{name} at {moment(asked, today)}: {text}", lines, None, None, mine)
    # a notice tells what moved, not how the server is
    first = next((one for one in mine if one.severity != "notice"), None)
    others = [one for one in mine if one is not first]
    state: str = now.state
    if first is not None and first.severity == "page":
        state = first.state_word
    if first is not None and first.page is not None:
        line, lines = line_of(first), [*page_lines(first.page.lines, today)]
        headline = line if line.startswith(name) else f"{name} in {line}"
    elif state == "no data":
        headline = f"{name}: no data since {moment(now.since, today)}"
        lines = [("Before that", text), *lines] if found.finding is not None else lines
    else:
        headline = f"{name}: {text}"
    return Answer(headline, lines, None if asked else state, first, others)


def _message_at(some: Sequence[Incident], at: datetime) -> tuple[Incident, Message] | None:
    """The last message up to a moment of the first page, else ticket."""
    for one in sorted(some, key=lambda one: one.severity != "page"):
        messages = [message for message in one.messages if message.at <= at]
        if messages and one.severity != "notice":
            return one, messages[-1]
    return None


def _explained(visit: Visit, now: ServerNow, end: datetime) -> Explained:
    plan, store = visit.web.plan, visit.store
    of = Baselines(tuple(store.baselines_naming(now.key, now.pool)))
    every = in_force(of, {now.key: now.target}, plan)
    baseline = every.baselines.of_target(now.instance, now.engine, now.pool)
    window = Window(end - _EXPLAINED, end)
    try:
        finding, _ = explain(store, now.target, window, plan, every.reference, today=end.date())
    except NoVerdict as error:
        return Explained(end, None, clean(f"{error.message}; {error.help_text}"), baseline)
    return Explained(end, finding, "", baseline)


def _signals(
    visit: Visit,
    now: ServerNow,
    found: Explained,
    rows: pl.DataFrame,
    reach: tuple[datetime, datetime],
) -> Shown:
    """The plot of the signals, and its marks in words."""
    baseline, store, at = found.baseline, visit.store, visit.query.at
    bands, why = dict[str, tuple[float, float]](), "no baseline is in force"
    if baseline is not None:
        since = max(baseline.since, baseline.until - _OF_BASELINE)
        bands = usual(store.past(since, baseline.until, [now.key], COLUMNS))
        why = "fewer than an hour of its own minutes of the baseline's window is stored"
    near = store.incidents_between(now.pool, reach, visit.now)
    near.sort(key=lambda one: one.started_at)
    incidents = [one for one in near if now.key in servers_of(one)]
    changed = changes(rows)[-_CHANGES:]
    around = marks(reach, incidents, changed, [] if at is None else [(at, _ANSWER)])
    title = signal_title(found.finding, found.end, visit.now.date())
    picture, unknown = signal_plot(title, rows, reach, bands, around)
    return {
        "plot": picture,
        "unknown": unknown,
        "gaps": gaps(rows),
        "without_usual": None if bands else why,
        "incidents": incidents,
        "changes": changed,
    }


PAGE = Page(TARGET, "Target", "target.html", load, TargetQuery)
