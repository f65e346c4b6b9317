"""Baselines: those in force, the proposal of a target or pool, and accepting it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from driftwatch.baselines.candidates import accepted, without_baseline
from driftwatch.baselines.material import Material, material_of_store, proposal_material
from driftwatch.baselines.rows import baseline_of_row, notes_on, row_of
from driftwatch.errors import UsageError
from driftwatch.incidents.actions import WEB
from driftwatch.notify.numbers import clean
from driftwatch.store.incidents import LONGEST_BECAUSE
from driftwatch.web.baseline_views import (
    YOUNG,
    BaselineRow,
    Proposed,
    baseline_row,
    proposed,
    subject_of,
    waiting_names,
    window_of,
)
from driftwatch.web.page import Deed, Done, Fields, Form, Page, View, Visit, in_utc
from driftwatch.web.paging import Paged, Slice, sliced

PATH = "/baselines"
_LINKS = PATH + "?of={}"
# of more targets the newest minutes take longer to read than a page may
_MOST_COMPARED, _MOST_NAMED = 200, 20

Name = Annotated[str, Field(max_length=300, description="a target or pool")]


Instant = Annotated[AwareDatetime, AfterValidator(in_utc)]


class BaselinesQuery(Paged):
    """Whose proposal is wanted."""

    of: Name = ""
    after: Literal["accepted", "before", ""] = ""


class BaselinesView(View):
    """The baselines, and the proposal that was wanted."""

    rows: tuple[BaselineRow, ...]
    part: Slice
    compared_reason: str | None = Field(
        description="why it is unknown whether what runs is still as in their windows"
    )
    targets: int
    without: int | None = Field(description="targets without a baseline in force; null: unknown")
    without_names: tuple[str, ...] = Field(description="the first of them")
    subjects: tuple[str, ...] = Field(description="pools of several targets, to choose from")
    proposed: Proposed | None
    young: str = Field(description="what a short baseline costs")
    query: BaselinesQuery
    news: str | None


class Acceptance(Fields):
    """Put a window in force as a baseline; another one of the same target or pool retires."""

    of: Annotated[Name, Field(min_length=1)]
    since: Instant
    until: Instant
    why: Annotated[str, Field(max_length=LONGEST_BECAUSE)] = ""


def load(visit: Visit) -> BaselinesView:
    """Those in force, the newest first; raises NotFound: the proposal of an unknown name."""
    query: BaselinesQuery = visit.query
    store, plan = visit.store, visit.web.plan
    fleet = visit.web.fleet.current(store)
    material: Material | None = None
    notes: dict[str, str] = {}
    lacking: tuple[str, ...] = ()
    without = None
    if len(fleet.targets) <= _MOST_COMPARED:
        material = material_of_store(store, plan)
        notes = notes_on(material.baselines, material.targets, material.ran)
        waiting = [target.key for target in without_baseline(material)]
        without, lacking = len(waiting), waiting_names(waiting, _MOST_NAMED)
    part = sliced(store.listed_baselines(0, 0)[1], query, PATH)
    stored_rows, _ = store.listed_baselines(query.size, (part.page - 1) * query.size)
    reason = f"{len(fleet.targets):,} targets: driftwatch baseline list compares each"
    one = None
    if query.of:
        material = material or proposal_material(store, plan)
        one = proposed(material, subject_of(material, query.of, _LINKS))
    return BaselinesView(
        title="Baselines",
        rows=tuple(baseline_row(baseline_of_row(row), notes) for row in stored_rows),
        part=part,
        compared_reason=None if without is not None else reason,
        targets=len(fleet.targets),
        without=without,
        without_names=lacking,
        subjects=tuple(clean(name) for name, own in fleet.pools.items() if len(own) > 1)[:200],
        proposed=one,
        young=YOUNG,
        query=query,
        news={
            "accepted": "accepted: it is in force with the next minute",
            "before": "nothing was changed: that was done before",
        }.get(query.after),
    )


def accept(deed: Deed, fields: Acceptance) -> Done:
    """Accept the window; refused where it holds what no baseline may hold."""
    before = Done(done=False, text="it was accepted before", location=f"{PATH}?after=before")
    if deed.store.is_request_done(deed.request_id):
        return before
    _require_window(fields.since, fields.until)
    material = material_of_store(deed.store, deed.web.plan)
    subject = subject_of(material, fields.of, _LINKS)
    window = window_of(material, subject, fields.since, fields.until)
    baseline = accepted(window, deed.person.name, deed.now, fields.why)
    if baseline is None:
        raise UsageError("; ".join(window.refusals), help_text="take another window")
    with deed.store.one_transaction():
        if deed.store.is_request_done(deed.request_id):
            return before
        deed.store.add_baselines([row_of(baseline)])
        deed.store.note_action(
            "accept baseline",
            deed.person.name,
            deed.now,
            subject=baseline.id,
            comment=fields.why,
            via=WEB,
            request_id=deed.request_id,
        )
    text = f"baseline {baseline.id} of {clean(subject.name)} is in force"
    return Done(done=True, text=text, location=f"{PATH}?after=accepted")


def _require_window(since: datetime, until: datetime) -> None:
    if since >= until:
        raise UsageError("the window ends before it begins")


PAGE = Page(PATH, "Baselines", "baselines.html", BaselinesView, load, BaselinesQuery, place=5)
FORMS = (Form(f"{PATH}/accept", "Accept a baseline", Acceptance, accept),)
