"""Silences: those that hold, a preview of a new one, and ending one."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from driftwatch.errors import UsageError
from driftwatch.incidents.actions import WEB
from driftwatch.incidents.silence import Silence
from driftwatch.notify.numbers import clean, moment
from driftwatch.store.incidents import LONGEST_BECAUSE
from driftwatch.web.database import WebStore
from driftwatch.web.page import (
    Deed,
    Done,
    Fields,
    Form,
    Link,
    Moment,
    NotFound,
    Page,
    View,
    Visit,
)
from driftwatch.web.paging import Paged, Slice, part_of
from driftwatch.web.silence_views import (
    LOOKED_BACK,
    Preview,
    SilenceRow,
    matchers_of,
    preview_of,
    silence_rows,
)

PATH = "/silences"
_MOST_INCIDENTS, _NEAR = 20_000, 5


Matchers = Annotated[str, Field(max_length=4000, description="one a line, as name=value")]
Hours = Annotated[float, Field(gt=0, le=366 * 24, description="how long")]
Start = Annotated[
    Moment | None,
    Field(description="when it begins, UTC without a zone; none: at once"),
]


class SilencesQuery(Paged):
    """A new silence to preview, where it has matchers."""

    matchers: Matchers = ""
    hours: Hours = 2.0
    start: Start = None
    after: Literal["silenced", "ended", "before", ""] = ""


class SilencesView(View):
    """The silences, and what a new one would hold back."""

    rows: tuple[SilenceRow, ...]
    part: Slice
    query: SilencesQuery
    preview: Preview | None
    preview_reason: str | None = Field(description="why there is no preview")
    news: str | None


class NewSilence(Fields):
    """Send nothing that matches."""

    matchers: Annotated[Matchers, Field(min_length=1)]
    hours: Hours = 2.0
    start: Start = None
    comment: Annotated[str, Field(max_length=LONGEST_BECAUSE)] = ""


class Ending(Fields):
    """End a silence now."""

    comment: Annotated[str, Field(max_length=LONGEST_BECAUSE)] = ""


def load(visit: Visit) -> SilencesView:
    """The list, with a preview for those who may make one: its matchers are run as they are.

    Raises UsageError: a matcher is wrong.
    """
    query: SilencesQuery = visit.query
    store = visit.store
    preview: Preview | None = None
    reason: str | None = "the matchers of a new silence are not given"
    if query.matchers and visit.person is None:
        reason = "only who may silence has a preview: sign in"
    elif query.matchers:
        preview, reason = _preview(visit, query), None
    open_now = store.open_now()
    rows = silence_rows(store.silences(), open_now, visit.now, LOOKED_BACK)
    listed, part = part_of(rows, query, PATH)
    news = {
        "silenced": "silenced: see it below",
        "ended": "the silence ended; what still fires is sent with the next minute",
        "before": "nothing was changed: that was done before",
    }
    return SilencesView(
        title="Silences",
        rows=tuple(listed),
        part=part,
        query=query,
        preview=preview,
        preview_reason=reason,
        news=news.get(query.after),
    )


def _preview(visit: Visit, query: SilencesQuery) -> Preview:
    since = visit.now - LOOKED_BACK
    incidents = visit.store.incidents(since=since, limit=_MOST_INCIDENTS, pages=False)
    return preview_of(
        matchers_of(query.matchers),
        incidents,
        visit.web.fleet.current(visit.store),
        visit.web.plan,
        visit.now,
        hours=query.hours,
        start=query.start,
    )


def add(deed: Deed, fields: NewSilence) -> Done:
    """Make a silence; a form that is sent twice makes one."""
    matchers, now = matchers_of(fields.matchers), deed.now
    # a start is written to the minute
    if fields.start is not None and fields.start < now.replace(second=0, microsecond=0):
        raise UsageError("a silence begins now or later", help_text="leave its start out: now")
    until = max(fields.start or now, now) + timedelta(hours=fields.hours)
    by, comment, sent = deed.person.name, fields.comment, deed.request_id
    with deed.store.one_transaction():
        if deed.store.is_request_done(sent):
            before = f"{PATH}?after=before"
            return Done(done=False, text="this form was sent before", location=before)
        one = deed.store.add_silence(
            matchers, until=until, by=by, at=now, comment=comment, starts_at=fields.start
        )
        deed.store.note_action(
            "silence", by, now, subject=one.id, comment=comment, via=WEB, request_id=sent
        )
    condition = " ".join(matcher.text for matcher in matchers)
    text = f"silence {one.id} until {moment(until, deed.now.date())}: {condition}"
    return Done(done=True, text=clean(text), location=f"{PATH}?after=silenced")


def expire(deed: Deed, fields: Ending) -> Done:
    """End it now."""
    one = _silence(deed.store, deed.path["silence_id"])
    with deed.store.one_transaction():
        if deed.store.is_request_done(deed.request_id):
            return Done(done=False, text="it was ended before", location=f"{PATH}?after=before")
        deed.store.expire_silence(one.id, deed.now)
        deed.store.note_action(
            "end silence",
            deed.person.name,
            deed.now,
            subject=one.id,
            comment=fields.comment,
            via=WEB,
            request_id=deed.request_id,
        )
    return Done(done=True, text=f"silence {one.id} ended", location=f"{PATH}?after=ended")


def _silence(store: WebStore, silence_id: str) -> Silence:
    """The silence of an id.

    Raises NotFound: there is none; with those whose ids begin alike, else the newest.
    """
    every = store.silences()
    for one in every:
        if one.id == silence_id:
            return one
    alike = [one for one in every if one.id[:2] == silence_id[:2]]
    newest = sorted(every, key=lambda one: one.created_at, reverse=True)
    near = tuple(
        Link(text=clean(f"{one.id} {' '.join(m.text for m in one.matchers)}")[:120], path=PATH)
        for one in dict.fromkeys([*alike, *newest])
    )
    raise NotFound(f"There is no silence {clean(silence_id)[:40]}.", near[:_NEAR])


PAGE = Page(PATH, "Silences", "silences.html", SilencesView, load, SilencesQuery, place=4)
FORMS = (
    Form(f"{PATH}/add", "Silence what matches", NewSilence, add),
    Form(f"{PATH}/{{silence_id}}/expire", "End a silence", Ending, expire),
)
