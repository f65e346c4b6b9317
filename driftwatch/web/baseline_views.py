"""What the page of baselines shows: those in force, and one that may be accepted."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import Field

from driftwatch.baselines.candidates import (
    Candidate,
    Subject,
    candidate,
    offer,
    proposal_text,
    subjects,
)
from driftwatch.baselines.material import Material
from driftwatch.detect.baselines import Baseline
from driftwatch.detect.proposals import LONG_ENOUGH
from driftwatch.model import TargetKey
from driftwatch.notify.numbers import clean
from driftwatch.pipeline.explain import Window
from driftwatch.web.page import Link, NotFound, Part

YOUNG = "with a baseline under 24 h, rules page 3 to 10 times as often as with 48 h"
_NEAR, _MOST_STRETCHES, _LONGEST = 5, 6, 300


class BaselineRow(Part):
    """A baseline that a person accepted, and that no other one replaced."""

    baseline_id: str
    of: str = Field(description="target or pool")
    scope: str
    pool: str
    since: datetime
    until: datetime
    accepted_at: datetime
    accepted_by: str
    why: str
    has_load_model: bool
    reason: str | None = Field(description="why it has no load model")
    note: str | None = Field(description="what runs differently now, or that it is not in force")


class Stretch(Part):
    """Minutes that are no baseline."""

    why: str
    since: datetime
    until: datetime


class Proposed(Part):
    """A window of a target or pool that may be accepted."""

    of: str
    baseline_id: str | None = Field(description="null: no minute is fit")
    since: datetime | None
    until: datetime | None
    is_long_enough: bool
    why: str = Field(description="what is good, else that nothing is")
    refusals: tuple[str, ...] = Field(description="why it cannot be accepted; none: it can")
    left_out: tuple[Stretch, ...]


def baseline_row(one: Baseline, notes: Mapping[str, str]) -> BaselineRow:
    """One baseline as a row."""
    return BaselineRow(
        baseline_id=one.id,
        of=subject_text(one),
        scope=one.scope,
        pool=clean(one.pool),
        since=one.since,
        until=one.until,
        accepted_at=one.accepted_at,
        accepted_by=clean(one.accepted_by),
        why=clean(one.why)[:_LONGEST],
        has_load_model=one.model is not None,
        reason=None if one.model is not None else clean(one.arming or "too little was measured"),
        note=clean(notes[one.id])[:_LONGEST] if one.id in notes else None,
    )


def subject_text(one: Baseline) -> str:
    """``host:8000``, or the pool's name."""
    name = one.pool if one.instance is None else TargetKey(one.instance, one.engine or "0").text
    return clean(name)


def subject_of(material: Material, name: str, links: str) -> Subject:
    """The target or pool of a name; ``links``: where others lead, their name in the place of {}.

    Raises NotFound: none has it, or several; with those of a name like it.
    """
    matching = subjects(material, name)
    if len(matching) == 1:
        return matching[0]
    names = {key.text for key in material.targets}
    names |= {target.pool for target in material.targets.values() if target.pool}
    close = [one.name for one in matching] or difflib.get_close_matches(
        name, sorted(names), n=_NEAR, cutoff=0.4
    )
    near = tuple(Link(text=clean(one), path=links.format(one)) for one in close[:_NEAR])
    raise NotFound(f"There is no target or pool {clean(name)[:80]}.", near)


def proposed(material: Material, subject: Subject) -> Proposed:
    """The best window of a target or pool."""
    one = offer(material, subject)
    left_out = tuple(
        Stretch(why=clean(part.why), since=part.since, until=part.until)
        for part in one.left_out[:_MOST_STRETCHES]
    )
    if one.proposal is None:
        return Proposed(
            of=clean(subject.name),
            baseline_id=None,
            since=None,
            until=None,
            is_long_enough=False,
            why="no minute is fit for a baseline",
            refusals=("no minute is fit for a baseline",),
            left_out=left_out,
        )
    window = Window(one.proposal.since, one.proposal.until)
    lacking = () if one.lacking is None else (f"too little for a load model: {one.lacking}",)
    return Proposed(
        of=clean(subject.name),
        baseline_id=subject.id_of(window),
        since=window.start,
        until=window.end,
        is_long_enough=one.proposal.length >= LONG_ENOUGH,
        why=proposal_text(one.proposal),
        refusals=tuple(map(clean, lacking)),
        left_out=left_out,
    )


def window_of(material: Material, subject: Subject, since: datetime, until: datetime) -> Candidate:
    """The minutes of a window that somebody wants to accept."""
    return candidate(material, subject, Window(since, until))


def waiting_names(targets: Sequence[TargetKey], limit: int) -> tuple[str, ...]:
    """The first targets without a baseline."""
    return tuple(clean(key.text) for key in targets[:limit])
