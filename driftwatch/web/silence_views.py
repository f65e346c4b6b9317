"""What the page of silences shows, and what one would hold back. Pure but for the store's reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pydantic import Field

from driftwatch.incidents.silence import (
    Silence,
    labels_of,
    matches,
    parse_matchers,
    unknown_label_names,
    would_hold_back,
)
from driftwatch.matchers import Matcher
from driftwatch.model import Incident
from driftwatch.notify.numbers import clean
from driftwatch.pipeline.incidents import target_labels
from driftwatch.pipeline.plan import Plan
from driftwatch.rulebook.rules import Rule
from driftwatch.web.fleet_minutes import Fleet
from driftwatch.web.page import Link, Part
from driftwatch.web.pages.incident import incident_link

_TARGET_SIDE = ("instance", "engine", "pool", "model_name")
_MOST_NAMED = 10
LOOKED_BACK = timedelta(days=7)


class SilenceRow(Part):
    """One silence."""

    silence_id: str
    state: str = Field(description="active, scheduled, ended")
    matchers: tuple[str, ...]
    starts_at: datetime
    ends_at: datetime
    created_by: str
    comment: str
    incidents: int = Field(description="open ones that match; of one that ended 0")


class Preview(Part):
    """What a silence of these matchers would hold back; nothing is written."""

    matchers: tuple[str, ...]
    hours: float
    start: datetime | None = Field(description="null: when it is made")
    open_incidents: int
    incidents: tuple[Link, ...] = Field(description="the first of them")
    past_incidents: int = Field(description="resolved ones that fired in the last 7 days")
    targets: int = Field(description="targets whose labels match")
    first_targets: tuple[str, ...]
    of_targets: int
    rules: tuple[str, ...] = Field(description="names of the rules that match")
    of_rules: int
    warnings: tuple[str, ...]


def matchers_of(text: str) -> tuple[Matcher, ...]:
    """The matchers of a form, one a line.

    Raises UsageError: one is wrong, or they match everything.
    """
    return parse_matchers([line.strip() for line in text.splitlines() if line.strip()])


def silence_rows(
    silences: Sequence[Silence], incidents: Sequence[Incident], now: datetime, over_for: timedelta
) -> list[SilenceRow]:
    """Active ones, the first to end first; then scheduled ones; then those that ended lately."""
    active = sorted((s for s in silences if s.active(now)), key=lambda s: (s.ends_at, s.id))
    later = sorted(
        (s for s in silences if s.starts_at > now and s.ends_at > now),
        key=lambda s: (s.starts_at, s.id),
    )
    ended = sorted(
        (s for s in silences if now - over_for < s.ends_at <= now),
        key=lambda s: (s.ends_at, s.id),
        reverse=True,
    )
    states = ((active, "active"), (later, "scheduled"), (ended, "ended"))
    return [_row(one, state, incidents) for some, state in states for one in some]


def _row(one: Silence, state: str, incidents: Sequence[Incident]) -> SilenceRow:
    count = 0
    if state != "ended":
        count = sum(matches(one, labels_of(incident)) for incident in incidents)
    return SilenceRow(
        silence_id=one.id,
        state=state,
        matchers=tuple(clean(matcher.text) for matcher in one.matchers),
        starts_at=one.starts_at,
        ends_at=one.ends_at,
        created_by=clean(one.created_by),
        comment=clean(one.comment),
        incidents=count,
    )


def preview_of(
    matchers: Sequence[Matcher],
    incidents: Sequence[Incident],
    fleet: Fleet,
    plan: Plan,
    now: datetime,
    *,
    hours: float,
    start: datetime | None,
) -> Preview:
    """What would be held back; ``incidents``: open ones and those of the last 7 days."""
    matching = would_hold_back(incidents, matchers, now - LOOKED_BACK)
    open_now = [one for one in matching if one.state != "resolved"]
    of_target = [one for one in matchers if one.name in _TARGET_SIDE]
    of_rule = [one for one in matchers if one.name not in _TARGET_SIDE]
    targets = [
        key.text
        for key, target in fleet.targets.items()
        if all(one.matches(target_labels(target)) for one in of_target)
    ]
    rules = [rule for rule in plan.enabled if _concerns(of_rule, rule)]
    return Preview(
        matchers=tuple(clean(one.text) for one in matchers),
        hours=hours,
        start=start,
        open_incidents=len(open_now),
        incidents=tuple(incident_link(one) for one in open_now[:_MOST_NAMED]),
        past_incidents=len(matching) - len(open_now),
        targets=len(targets),
        first_targets=tuple(clean(text) for text in targets[:_MOST_NAMED]),
        of_targets=len(fleet.targets),
        rules=tuple(clean(rule.id) for rule in rules),
        of_rules=len(plan.enabled),
        warnings=tuple(
            clean(f"no incident has a label {name}" + (f"; did you mean {near}?" if near else ""))
            for name, near in unknown_label_names(incidents, matchers)
        ),
    )


def _concerns(matchers: Sequence[Matcher], rule: Rule) -> bool:
    """Whether an incident of the rule, of any of its severities, satisfies them."""
    labels = {**rule.labels, "alert": rule.alert, "rule": rule.id}
    return any(
        all(one.matches({**labels, "severity": variant.severity}) for one in matchers)
        for variant in rule.variants
    )
