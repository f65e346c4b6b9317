"""What fired and what ended, with the pages that say so. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import polars as pl

from driftwatch.model import Finding, Incident, Slo, Target, TargetKey, Transition
from driftwatch.notify.page import build_page
from driftwatch.pipeline.asking_again import asked_again
from driftwatch.pipeline.findings import findings_at
from driftwatch.pipeline.judging import target_labels
from driftwatch.pipeline.page_advice import with_advice
from driftwatch.pipeline.past_minutes import PastMinutes
from driftwatch.pipeline.plan import Plan, TargetFrames
from driftwatch.pipeline.pool_findings import pool_findings, worst_of
from driftwatch.pipeline.replaying import Replayed
from driftwatch.pipeline.state import State


def findings_of(
    transitions: Sequence[Transition],
    state: State,
    scrapes: pl.DataFrame,
    frames: TargetFrames,
    reference: pl.DataFrame,
    plan: Plan,
    rows: pl.DataFrame,
    verdicts: pl.DataFrame,
    past: PastMinutes,
) -> tuple[dict[str, Finding], tuple[Replayed, ...]]:
    """Incident id → finding of every incident that fires, and what was replayed for them."""
    firing = [t for t in transitions if t.event == "firing" and t.incident.rule in verdicts.columns]
    together = [t for t in firing if t.concerned]
    # a page of several targets is the page of the worst of them, and says who else is concerned
    spoken = {t.incident.id: worst_of(t, rows, plan.rules) for t in together}
    of_targets = [t for t in firing if t.incident.target.get("instance")]
    of_targets += [_of_target(t, spoken[t.incident.id], state.targets) for t in together]
    of_pools = [t for t in firing if not t.incident.target.get("instance") and not t.concerned]
    found = findings_at(of_targets, state, scrapes, frames.serving, reference, plan, rows)
    for t in together:
        worst = spoken[t.incident.id]
        finding, row = found[t.incident.id]
        finding = replace(
            finding,
            concerned=(worst, *(key for key in t.concerned if key != worst)),
            of_targets=t.of_targets,
            told_before=t.told_before,
        )
        found[t.incident.id] = finding, row
    found |= pool_findings(of_pools, state.targets, rows, verdicts, scrapes)
    return with_advice(
        firing,
        found,
        state.targets,
        plan,
        past,
        state.gpus,
        rows,
        state.replays_after,
        tuple(state.incidents.values()),
    )


def tell(
    happened: Sequence[Transition],
    incidents: Mapping[str, Incident],
    state: State,
    scrapes: pl.DataFrame,
    frames: TargetFrames,
    reference: pl.DataFrame,
    plan: Plan,
    rows: pl.DataFrame,
    verdicts: pl.DataFrame,
    past: PastMinutes,
    span: tuple[datetime, datetime],
) -> tuple[tuple[Transition, ...], dict[str, Incident], tuple[Replayed, ...]]:
    """What people are told of some minutes: pages, follow-ups and ends; incidents with their pages.

    Args:
        happened: what fired and what ended, in order.
        incidents: open after the minutes.
        state: before them.
        scrapes: theirs, and those before that windows reach back to.
        frames: targets as frames.
        reference: what "before" means.
        plan: rules, trees, pools.
        rows: evidence rows.
        verdicts: beside the rows.
        past: minutes up to these.
        span: start of the first minute, end of the last one.
    """
    found, answers = findings_of(
        happened, state, scrapes, frames, reference, plan, rows, verdicts, past
    )
    fired = with_pages([t for t in happened if t.event == "firing"], found, state, plan)
    ended = [t for t in happened if t.event == "resolved"]

    def ask(
        waiting: Sequence[Transition],
    ) -> tuple[Mapping[str, Finding], Sequence[Replayed]]:
        asked = _about_one_target(waiting, state.targets, plan)
        about = findings_at(asked, state, scrapes, frames.serving, reference, plan, rows)
        return with_advice(
            asked, about, state.targets, plan, past, state.gpus, after=state.replays_after
        )

    later = asked_again(state.incidents, [*fired, *ended], answers, span, plan.replays, ask)
    pages = {t.incident.id: t.incident.page for t in fired} | dict(later.pages or {})
    ended_told = with_pages(ended, {}, state, plan, pages)
    by_event = {(t.incident.id, t.event): t for t in (*fired, *ended_told)}
    told = [by_event[t.incident.id, t.event] for t in happened]
    if later.told:
        told = sorted([*told, *later.told], key=lambda t: t.at)
    pages |= {t.incident.id: t.incident.page for t in ended_told}
    after = {
        key: replace(one, page=pages[one.id]) if one.id in pages else one
        for key, one in incidents.items()
    }
    return tuple(told), after, (*answers, *later.answers)


def _about_one_target(
    waiting: Sequence[Transition], targets: Mapping[TargetKey, Target], plan: Plan
) -> list[Transition]:
    """Each as the transition of the target that its page shows; without those that are gone."""
    rules = {rule.id for rule in plan.rules}
    by_name = {key.text: key for key in targets}
    found = []
    for transition in waiting:
        incident = transition.incident
        labels = incident.target
        if labels.get("instance"):
            name = TargetKey(labels["instance"], labels.get("engine", "0")).text
        else:
            name = ((incident.page or {}).get("concerned") or {}).get("first", [""])[0]
        if name in by_name and incident.rule in rules:
            found.append(_of_target(transition, by_name[name], targets))
    return found


def _of_target(
    transition: Transition, key: TargetKey, targets: Mapping[TargetKey, Target]
) -> Transition:
    """A pool's transition as if it were one target's."""
    labels = target_labels(targets[key])
    return replace(transition, incident=replace(transition.incident, target=labels))


def with_pages(
    transitions: Sequence[Transition],
    found: Mapping[str, Finding],
    state: State,
    plan: Plan,
    last: Mapping[str, Mapping[str, Any] | None] | None = None,
) -> tuple[Transition, ...]:
    """Each transition's incident with its page: diagnosed when it fires, closed when it ends.

    Args:
        transitions: what fired, what ended.
        found: incident id → finding, of those that fire.
        state: targets.
        plan: rules, pools.
        last: incident id → its page before, where its incident does not carry it.
    """
    rules = {rule.id: rule for rule in plan.rules}
    pages = last or {}
    told = []
    for transition in transitions:
        incident = transition.incident
        if transition.event == "resolved" and incident.id in pages:
            incident = replace(incident, page=pages[incident.id])
        rule = rules.get(incident.rule)
        page = build_page(
            found.get(incident.id) if transition.event == "firing" else None,
            incident,
            "firing" if transition.event == "firing" else "resolved",
            transition.at,
            rule_annotations=rule.annotations if rule else {},
            external_url=plan.external_url,
            slo=_slo_of(incident, state, plan),
            resolved_reason=transition.reason,
        )
        told.append(replace(transition, incident=replace(incident, page=page)))
    return tuple(told)


def _slo_of(incident: Incident, state: State, plan: Plan) -> Slo | None:
    """The latency targets of the incident's pool; None where none are configured."""
    if "instance" not in incident.target:
        return None
    target = state.targets.get(TargetKey(incident.target["instance"], incident.target["engine"]))
    if target is None:
        return None
    slo = plan.pool_of(target).slo
    return slo if slo.ttft_seconds is not None or slo.tpot_seconds is not None else None
