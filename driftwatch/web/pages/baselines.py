"""Baselines: those in force, the proposal of a target or pool, and accepting it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from driftwatch.baselines.candidates import accepted, without_baseline
from driftwatch.baselines.material import Material, material_of_store
from driftwatch.baselines.rows import baselines_from_store, notes_on, row_of
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
from driftwatch.web.paging import Paged, Slice, part_of

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
    if query.of or len(fleet.targets) <= _MOST_COMPARED:
        material = material_of_store(store, plan)
    if material is not None and len(fleet.targets) <= _MOST_COMPARED:
        notes = notes_on(material.baselines, material.targets, material.ran)
        waiting = [target.key for target in without_baseline(material)]
        without, lacking = len(waiting), waiting_names(waiting, _MOST_NAMED)
    baselines = material.baselines if material else baselines_from_store(store)
    rows = [baseline_row(one, notes) for one in reversed(baselines.every)]
    listed, part = part_of(rows, query, PATH)
    reason = f"{len(fleet.targets):,} targets: driftwatch baseline list compares each"
    one = None
    if query.of and material is not None:
        one = proposed(material, subject_of(material, query.of, _LINKS))
    pools = [target.pool for target in fleet.targets.values() if target.pool]
    return BaselinesView(
        title="Baselines",
        rows=tuple(listed),
        part=part,
        compared_reason=None if without is not None else reason,
        targets=len(fleet.targets),
        without=without,
        without_names=lacking,
        subjects=tuple(sorted({clean(name) for name in pools if pools.count(name) > 1}))[:200],
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
