"""What fired and what ended, with the pages that say so. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from driftwatch.model import Finding, Incident, Slo, Target, TargetKey, Transition
from driftwatch.notify.page import build_page
from driftwatch.service.findings import findings_at
from driftwatch.service.judging import target_labels
from driftwatch.service.page_advice import with_advice
from driftwatch.service.past_minutes import PastMinutes
from driftwatch.service.plan import Plan, TargetFrames
from driftwatch.service.pool_findings import pool_findings, worst_of
from driftwatch.service.replaying import Replayed
from driftwatch.service.state import State


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
    return with_advice(firing, found, state.targets, plan, past, state.gpus, rows)


def _of_target(
    transition: Transition, key: TargetKey, targets: Mapping[TargetKey, Target]
) -> Transition:
    """A pool's transition as if it were one target's."""
    labels = target_labels(targets[key])
    return replace(transition, incident=replace(transition.incident, target=labels))


def with_pages(
    transitions: Sequence[Transition], found: Mapping[str, Finding], state: State, plan: Plan
) -> tuple[Transition, ...]:
    """Each transition's incident with its page: diagnosed when it fires, closed when it ends."""
    rules = {rule.id: rule for rule in plan.rules}
    pages: dict[str, Mapping[str, Any]] = {}
    told = []
    for transition in transitions:
        incident = transition.incident
        if transition.event == "resolved" and incident.id in pages:
            incident = replace(incident, page=pages[incident.id])
        rule = rules.get(incident.rule)
        page = build_page(
            found.get(incident.id) if transition.event == "firing" else None,
            incident,
            transition.event,
            transition.at,
            rule_annotations=rule.annotations if rule else {},
            external_url=plan.external_url,
            slo=_slo_of(incident, state, plan),
            resolved_reason=transition.reason,
        )
        if transition.event == "firing":
            pages[incident.id] = page
        told.append(replace(transition, incident=replace(incident, page=page)))
    return tuple(told)


def with_last_pages(
    incidents: Mapping[str, Incident], told: Sequence[Transition]
) -> dict[str, Incident]:
    """Incidents as they are now, each with the page it last sent."""
    pages = {t.incident.id: t.incident.page for t in told}
    return {
        key: replace(incident, page=pages[incident.id]) if incident.id in pages else incident
        for key, incident in incidents.items()
    }


def _slo_of(incident: Incident, state: State, plan: Plan) -> Slo | None:
    """The latency targets of the incident's pool; None where none are configured."""
    if "instance" not in incident.target:
        return None
    target = state.targets.get(TargetKey(incident.target["instance"], incident.target["engine"]))
    if target is None:
        return None
    slo = plan.pool_of(target).slo
    return slo if slo.ttft_seconds is not None or slo.tpot_seconds is not None else None
