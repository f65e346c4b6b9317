"""Pages of incidents that fire, grow or end, and their follow-ups. Pure.

Made minute by minute, so nothing depends on how minutes are split over ticks. A page without an
answer names the next minute of the grid (:data:`driftwatch.notify.page.EVERY`, on the clock) in
which it asks again while it fires. Its receivers get the first lasting answer, with the changes;
then it asks no more. The page of a grown pool's incident is made anew, for all its targets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby

import polars as pl

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Finding, Slo, TargetKey
from driftwatch.notify.page import EVERY, Page, next_time
from driftwatch.pipeline.advice import advised
from driftwatch.pipeline.build_page import build_page
from driftwatch.pipeline.evaluation import Evaluation
from driftwatch.pipeline.findings import as_of_target, findings_at, findings_of
from driftwatch.pipeline.page_updates import OpenPages
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import TargetAdvice
from driftwatch.pipeline.recent_change import WITHIN, recent_change
from driftwatch.pipeline.state import State


def with_pages(
    evaluation: Evaluation, happened: Sequence[Transition], incidents: Mapping[str, Incident]
) -> tuple[tuple[Transition, ...], dict[str, Incident], tuple[TargetAdvice, ...]]:
    """Transitions with their pages, follow-ups included; open incidents with theirs; the advice.

    Args:
        happened: transitions that fired, grew and ended, in order.
    """
    state, plan = evaluation.state, evaluation.plan
    open_now = [t for t in happened if t.event != "resolved"]
    ended = [t for t in happened if t.event == "resolved"]
    firing = [t for t in open_now if t.event == "firing"]
    of_rules = [t for t in firing if t.incident.rule in evaluation.verdicts.columns]
    findings = findings_of(evaluation, of_rules)
    pages = OpenPages(state.incidents, {t.incident.id: t.at for t in ended}, plan.simulations)
    news: list[Transition] = []
    minutes = {at: list(some) for at, some in groupby(open_now, lambda t: t.at)}
    for at in sorted({*minutes, *_grid(evaluation.first, evaluation.last)}):
        here = minutes.get(at, [])
        grown = [t for t in here if t.event == "updated"]
        about = [t for t in here if t.incident.id in findings or t.event == "updated"]
        advised_on, answers = advised(
            evaluation, about, findings | findings_of(evaluation, grown), pages.firing(at)
        )
        advised_on = _with_recent_changes(evaluation, here, advised_on)
        news += pages.opened(paged(here, state, plan, advised_on), advised_on, answers)
        if waiting := pages.waiting(at):
            later, again = _ask_again(evaluation, waiting, pages.firing(at))
            news += pages.asked_again(waiting, at, later, again)
    by_event = {(t.incident.id, t.event, t.at): t for t in news}
    in_target = {t.incident.id: _in_target(t, evaluation.rows) for t in ended}
    closed = paged(ended, state, plan, last=pages.latest, in_target=in_target)
    by_event |= {(t.incident.id, t.event, t.at): t for t in closed}
    # transitions come before follow-ups of the same minute
    ordered = [by_event.pop((t.incident.id, t.event, t.at)) for t in happened]
    ordered = sorted([*ordered, *by_event.values()], key=lambda t: t.at)
    latest = {**pages.latest, **{t.incident.id: t.incident.page for t in closed}}
    after = {
        key: replace(one, page=latest[one.id]) if one.id in latest else one
        for key, one in incidents.items()
    }
    return tuple(ordered), after, tuple(pages.advices)


def _with_recent_changes(
    evaluation: Evaluation, firing: Sequence[Transition], findings: Mapping[str, Finding]
) -> dict[str, Finding]:
    """Findings with what was changed on their server before their incident began."""
    known = dict(findings)
    for one in firing:
        if (finding := known.get(one.incident.id)) is None:
            continue
        since = min(one.incident.started_at, finding.since or one.at) - WITHIN
        minutes = evaluation.past.minutes(finding.target.key, since, one.at)
        release = finding.evidence.get("release_change")
        change = recent_change(minutes, release, one.at.date())
        known[one.incident.id] = replace(finding, recent_change=change)
    return known


def _grid(first: datetime, last: datetime) -> list[datetime]:
    """The minutes of the grid from the first minute on."""
    minutes, at = [], next_time(first)
    while at <= last:
        minutes.append(at)
        at += EVERY
    return minutes


def paged(
    transitions: Sequence[Transition],
    state: State,
    plan: Plan,
    findings: Mapping[str, Finding] | None = None,
    last: Mapping[str, Page | None] | None = None,
    in_target: Mapping[str, bool | None] | None = None,
) -> tuple[Transition, ...]:
    """Each transition's incident with its page: diagnosed when it fires, closed when it ends.

    Args:
        last: incident id → its last page, if the incident does not carry it.
        in_target: incident id → whether the latency targets were met at its end, None = unknown.
    """
    rules, pages = {rule.id: rule for rule in plan.rules}, last or {}
    with_page = []
    for transition in transitions:
        incident, fires = transition.incident, transition.event != "resolved"
        if not fires and incident.id in pages:
            incident = replace(incident, page=pages[incident.id])
        rule = rules.get(incident.rule)
        page = build_page(
            (findings or {}).get(incident.id) if fires else None,
            incident,
            "firing" if fires else "resolved",
            transition.at,
            annotations=rule.annotations if rule else {},
            form=rule.page if rule else None,
            external_url=plan.external_url,
            slo=_slo_of(incident, state, plan),
            resolved_reason=transition.reason,
            ended_in_target=(in_target or {}).get(incident.id),
        )
        with_page.append(replace(transition, incident=replace(incident, page=page)))
    return tuple(with_page)


def _in_target(transition: Transition, rows: pl.DataFrame) -> bool | None:
    """Whether every server of an incident met its latency targets in the minute; None = unknown."""
    labels = transition.incident.target
    names = [name for name in ("instance", "engine", "pool") if name in labels][:2]
    here = rows.filter(pl.col("end") == transition.at, *(pl.col(n) == labels[n] for n in names))
    missed = here["slo_missed"]
    return None if missed.is_empty() or missed.null_count() else not missed.any()


def _slo_of(incident: Incident, state: State, plan: Plan) -> Slo | None:
    if "instance" not in incident.target:
        return None
    target = state.targets.get(TargetKey(incident.target["instance"], incident.target["engine"]))
    return None if target is None else plan.slo_of(target)


def _ask_again(
    evaluation: Evaluation, waiting: Sequence[Transition], others: Sequence[Incident]
) -> tuple[Mapping[str, Finding], Sequence[TargetAdvice]]:
    """Follow-up questions, one for the target that each page shows, if that still exists."""
    rules = {rule.id for rule in evaluation.plan.rules}
    by_name = {key.text: target for key, target in evaluation.state.targets.items()}
    about = []
    for transition in waiting:
        page = transition.incident.page
        name = "" if page is None else next(iter(page.servers.first), "")
        if name in by_name and transition.incident.rule in rules:
            about.append(as_of_target(transition, by_name[name]))
    return advised(evaluation, about, findings_at(evaluation, about), others, again=True)
