"""What people did, on the web, in Slack and on the command line: who, when, about what."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from driftwatch.incidents.actions import Action
from driftwatch.notify.numbers import clean, cut
from driftwatch.web.page import Link, Page, Part, View, Visit
from driftwatch.web.pages.incident import incident_path
from driftwatch.web.paging import Paged, Slice, sliced

PATH = "/actions"
_LONGEST = 120
# action → the page that shows what it is about
_SHOWN_ON = {
    "silence": "/silences",
    "extend silence": "/silences",
    "end silence": "/silences",
    "accept baseline": "/baselines",
    "refuse baseline": "/baselines",
}


class ActionsQuery(Paged):
    """Whose actions are listed."""

    by: Annotated[str, Field(max_length=300)] = ""


class DoneRow(Part):
    """One thing that one person did."""

    number: int
    at: datetime
    by: str
    action: str
    about: Link | None = Field(description="incident, silence or baseline; null: of none")
    until: datetime | None = Field(description="when it ends by itself")
    comment: str | None = Field(description="why; null: not said")
    via: str = Field(description="where it was done: web, command line, a receiver's name")


class ActionsView(View):
    """What people did, newest first."""

    rows: tuple[DoneRow, ...]
    part: Slice
    query: ActionsQuery


def load(visit: Visit) -> ActionsView:
    """The part of the list that the query asks for."""
    query: ActionsQuery = visit.query
    part = sliced(visit.store.count_of_actions(query.by), query, PATH)
    rows = visit.store.latest_actions(query.size, (part.page - 1) * query.size, query.by)
    return ActionsView(
        title="Actions", rows=tuple(_row(one) for one in rows), part=part, query=query
    )


def _row(one: Action) -> DoneRow:
    return DoneRow(
        number=one.id,
        at=one.at,
        by=clean(one.by),
        action=f"mark {one.subject}" if one.action == "mark" and one.subject else one.action,
        about=_about(one),
        until=one.until,
        comment=clean(one.comment) or None,
        via=clean(one.via),
    )


def _about(one: Action) -> Link | None:
    if one.incident_id is not None:
        path = incident_path(one.incident_id)
        if one.action == "forecast" and one.subject:
            path = f"{path}/what-if/{one.subject}"
        return Link(text=f"incident {one.incident_id}", path=path)
    if one.action not in _SHOWN_ON or one.subject is None:
        return None
    noun = one.action.split()[-1]
    return Link(text=cut(clean(f"{noun} {one.subject}"), _LONGEST), path=_SHOWN_ON[one.action])


PAGE = Page(PATH, "Actions", "actions.html", ActionsView, load, ActionsQuery, place=8)
