"""One tick: (sources, state, now) → (state, outcome).

A live minute, a replayed month and a unit test are this function; only the sources differ. It is
evaluated over (target, minute) frames: however many minutes have become complete since the last
call are evaluated together, and the result does not depend on how they were split over calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.gpu_schema import empty_gpus, gpus_told_once
from driftwatch.collect.schema import (
    KEY_COLUMNS,
    Collected,
    Source,
    empty_scrapes,
    told_once,
)
from driftwatch.detect.reference import combined
from driftwatch.diagnose.evidence_table import evidence_table, minute_windows
from driftwatch.model import Incident, Slo, Target, TargetKey, Transition
from driftwatch.notify.incidents import Observation, RuleTiming, advance, identity
from driftwatch.notify.page import build_page
from driftwatch.rulebook.rules import Rule
from driftwatch.service.findings import findings_at
from driftwatch.service.history import recent
from driftwatch.service.plan import Plan
from driftwatch.service.state import HISTORY, Outcome, State

_KEY = list(KEY_COLUMNS)
# After a long stop only this much is caught up; older minutes stay without a verdict.
CATCH_UP = timedelta(hours=6)


def tick(
    sources: Sequence[Source], state: State, now: datetime, plan: Plan
) -> tuple[State, Outcome]:
    """Collect up to ``now`` and evaluate every minute that has become complete.

    Args:
        sources: where scrapes come from; asked for [last time, now).
        state: from the tick before, or :class:`State()`.
        now: aware, UTC.
        plan: rules, trees, pools.
    """
    collected: list[Collected] = []
    until: dict[str, datetime] = dict(state.collected_until)
    for source in sources:
        since = until.get(source.name, now - HISTORY)
        edge = now - timedelta(seconds=source.settle_seconds)
        if edge <= since:
            continue
        collected.append(source.collect(since, edge))
        until[source.name] = edge
    complete = min((until[s.name] for s in sources if s.name in until), default=now)
    return evaluate(replace(state, collected_until=until), collected, complete, plan)


def evaluate(
    state: State, collected: Sequence[Collected], until: datetime, plan: Plan
) -> tuple[State, Outcome]:
    """The pure part of a tick: no source is asked.

    Args:
        state: from the tick before.
        collected: what the sources brought since then.
        until: everything before it has been collected.
        plan: rules, trees, pools.
    """
    brought = _together([c.scrapes for c in collected])
    problems = tuple(p for c in collected for p in c.problems)
    targets = plan.assign(
        {k: t for c in collected for k, t in c.targets.items()} if collected else state.targets
    )
    scrapes = _together([state.scrapes, brought])
    read = pl.concat([empty_gpus(), *(c.gpus for c in collected)])
    since = (state.evaluated_until or until - CATCH_UP) - HISTORY
    gpus = gpus_told_once([state.gpus, read], since)
    state = replace(state, scrapes=scrapes, gpus=gpus, targets=targets)
    first = _first_minute(state, until)
    last = _floor(until)
    if first is None or first >= last or not targets:
        rows = pl.DataFrame()
        return state, Outcome(rows, rows, scrapes=brought, problems=problems, gpus=read)

    serving = plan.serving_frame(targets.values())
    reference = combined(state.reference, plan.declared_reference(targets.values()))
    table = evidence_table(
        scrapes,
        minute_windows(_keys(targets), first, last),
        kind="chained",
        cut=False,
        serving=serving,
        reference=reference,
        inputs=plan.inputs,
        carried=state.carried,
        gpus=gpus,
        gpu_targets=plan.gpu_targets(targets.values()),
    )
    verdicts = table.rows.select(rule.verdict.alias(rule.id) for rule in plan.enabled)
    incidents, transitions = _live_through(state, table.rows, verdicts, plan)
    told = _with_pages(transitions, state, scrapes, serving, reference, plan)
    pages = {t.incident.id: t.incident.page for t in told}
    incidents = {key: _with_page(incident, pages) for key, incident in incidents.items()}
    after = replace(
        state,
        scrapes=recent(scrapes, last),
        gpus=gpus.filter(pl.col("time") >= last - HISTORY),
        evaluated_until=last,
        carried=table.carried,
        incidents=incidents,
    )
    return after, Outcome(
        rows=table.rows,
        verdicts=verdicts,
        transitions=told,
        scrapes=brought,
        problems=problems,
        gpus=read,
    )


def _with_page(incident: Incident, pages: Mapping[str, Mapping[str, Any] | None]) -> Incident:
    """The incident as it is now, with the page it last sent."""
    return replace(incident, page=pages[incident.id]) if incident.id in pages else incident


def _together(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Scrapes of several sources, one row per target and time."""
    return told_once(pl.concat([empty_scrapes(), *frames]))


def _floor(time: datetime) -> datetime:
    return time.replace(second=0, microsecond=0)


def _first_minute(state: State, until: datetime) -> datetime | None:
    """Start of the first minute to evaluate; None while there is nothing."""
    if state.evaluated_until is not None:
        return max(state.evaluated_until, _floor(until - CATCH_UP))
    earliest = state.scrapes["time"].min()
    return _floor(earliest) if isinstance(earliest, datetime) else None


def _keys(targets: Mapping[TargetKey, Target]) -> pl.DataFrame:
    return pl.DataFrame(
        [tuple(key) for key in targets], schema=dict.fromkeys(_KEY, pl.String), orient="row"
    )


def timing(rule: Rule) -> RuleTiming:
    """What the life cycle needs to know of a rule."""
    return RuleTiming(
        rule.id, rule.alert, rule.severity, rule.for_seconds, rule.keep_firing_for_seconds
    )


def target_labels(target: Target) -> dict[str, str]:
    """The labels that an incident and its page carry."""
    model = target.labels.get("model_name")
    return {
        "instance": target.key.instance,
        "engine": target.key.engine,
        "pool": target.pool or "default",
        **({"model_name": model} if model else {}),
    }


def incident_key(rule: Rule, target: TargetKey) -> str:
    """Identity: rule and engine, no label that a redeploy may change."""
    return identity(rule.id, {"instance": target.instance, "engine": target.engine})


def _live_through(
    state: State, rows: pl.DataFrame, verdicts: pl.DataFrame, plan: Plan
) -> tuple[dict[str, Incident], tuple[Transition, ...]]:
    """Advance every incident minute by minute; keys that are false and closed cost nothing."""
    minutes: dict[datetime, list[Observation]] = {}
    for rule in plan.enabled:
        for observation, end in _observations(rule, state, rows, verdicts[rule.id]):
            minutes.setdefault(end, []).append(observation)
    incidents: dict[str, Incident] = dict(state.incidents)
    transitions: list[Transition] = []
    for end in sorted(minutes):
        incidents, happened = advance(incidents, end, minutes[end])
        transitions += happened
    return incidents, tuple(transitions)


def _observations(
    rule: Rule, state: State, rows: pl.DataFrame, verdict: pl.Series
) -> Iterable[tuple[Observation, datetime]]:
    """The verdicts that can change anything: of keys that are open or become true."""
    # keys of a rule all begin alike: where none is open, none is made for the whole fleet
    prefix = identity(rule.id, {}).removesuffix("}")
    any_open = any(key.startswith(prefix) for key in state.incidents)
    open_keys = {incident_key(rule, t) for t in state.targets if any_open} & state.incidents.keys()
    judged = rows.select([*_KEY, "end", *_SINCE]).with_columns(verdict=verdict)
    ever_true = judged.group_by(_KEY, maintain_order=True).agg(pl.col("verdict").any())
    if not open_keys:
        ever_true = ever_true.filter("verdict")
    alive = [
        key
        for key, true in ((TargetKey(i, e), v) for i, e, v in ever_true.iter_rows())
        if true or incident_key(rule, key) in open_keys
    ]
    if not alive:
        return
    wanted = judged.join(_keys({k: state.targets[k] for k in alive}), on=_KEY, how="semi")
    for row in wanted.iter_rows(named=True):
        key = TargetKey(row["instance"], row["engine"])
        yield (
            Observation(
                key=incident_key(rule, key),
                timing=timing(rule),
                target={**target_labels(state.targets[key]), **rule.labels},
                verdict=row["verdict"],
                since=_since(rule, row),
            ),
            row["end"],
        )


# share of the last ten minutes → when the first of its scrapes was
_SHARES = {
    "limit_binding_share_10m_ratio": "binding_since",
    "waiting_deferred_share_10m_ratio": "deferred_since",
}
_SINCE = ("binding_since", "deferred_since", "seconds_since_last_token", "coverage_missing_seconds")


def _since(rule: Rule, row: Mapping[str, Any]) -> datetime | None:
    """When it began, where the condition's columns reach further back than the minute."""
    columns = rule.columns
    for share, since in _SHARES.items():
        if share in columns:
            began: datetime | None = row[since]
            return began
    for name in ("seconds_since_last_token", "coverage_missing_seconds"):
        if name in columns and row[name] is not None:
            end: datetime = row["end"]
            return end - timedelta(seconds=row[name])
    return None


def _with_pages(
    transitions: Sequence[Transition],
    state: State,
    scrapes: pl.DataFrame,
    serving: pl.DataFrame,
    reference: pl.DataFrame,
    plan: Plan,
) -> tuple[Transition, ...]:
    """Each transition's incident with its page: diagnosed when it fires, closed when it ends."""
    rules = {rule.id: rule for rule in plan.rules}
    firing = [t for t in transitions if t.event == "firing" and t.incident.rule in rules]
    found = findings_at(firing, state, scrapes, serving, reference, plan)
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
        )
        if transition.event == "firing":
            pages[incident.id] = page
        told.append(replace(transition, incident=replace(incident, page=page)))
    return tuple(told)


def _slo_of(incident: Incident, state: State, plan: Plan) -> Slo | None:
    """The latency targets of the incident's pool; None where none are configured."""
    key = TargetKey(incident.target["instance"], incident.target["engine"])
    target = state.targets.get(key)
    if target is None:
        return None
    slo = plan.pool_of(target).slo
    return slo if slo.ttft_seconds is not None or slo.tpot_seconds is not None else None
