"""Advice for findings: by a simulation, or without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.diagnose.tree import Leaf
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Advice, Diagnosis, Finding, Reason, Target, TargetKey
from driftwatch.notify.advice import OPEN_PAGE
from driftwatch.numbers import count, duration, percent
from driftwatch.pipeline.evaluation import Evaluation
from driftwatch.pipeline.findings import Findings
from driftwatch.pipeline.minutes import WINDOW, with_last_speed
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import (
    Moment,
    peers_of,
    pool_size,
    target_advice,
)
from driftwatch.recommend.advice import Answer
from driftwatch.recommend.words import aims
from driftwatch.rulebook.rules import Rule
from driftwatch.store.history import TargetAdvice

_KEY = list(KEY_COLUMNS)
# leaves of more load than fits, which name no knob: the simulation finds what helps, and how much
_OVERLOADED = ("kv_pressure", "demand_above_targets")
# leaves whose advice is to take the server out
_DRAINED = ("replica_slow", "gpu_throttled")
# a rule on this column asks for a new tune; it has no diagnosis
STALE = "baseline_lengths_moved"
# gates that a window with more traffic may pass
_TRANSIENT_GATES = frozenset({"traffic", "busy_windows", "requests", "fit_itl", "fit_running"})
# An answer waits this long after the traffic changed: a drift's first minutes are seldom typical.
_SETTLED = timedelta(minutes=10)


def own_advice(leaf: Leaf | None, evidence: Mapping[str, Any]) -> Advice | None:
    """A leaf's own advice; None where it needs a simulation. ``leaf``: None = undetermined."""
    lost = evidence.get("gpus_lost")
    if lost and (leaf is None or leaf.kind == "change"):
        many = "1 GPU is" if lost == 1 else f"{count(lost)} GPUs are"
        return Advice(action="none", reason=Reason("gpus_lost", f"{many} lost"))
    if leaf is None:  # the unknown input may explain the full limit
        return Advice(action="none", reason=Reason("undetermined", "the cause is not determined"))
    if leaf.kind == "change" or leaf.name in _OVERLOADED:
        return None
    return Advice(action="none", reason=Reason("leaf", leaf.advice or leaf.meaning))


def _advice_of_open_page(notice: Incident, open_incidents: Sequence[Incident]) -> Advice | None:
    """The advice of a notice: it names its pool's oldest open page, as a pool has one answer."""
    pages = [one for one in open_incidents if (one.severity, one.pool) == ("page", notice.pool)]
    page = min(pages, key=lambda one: (one.started_at, one.id), default=None)
    if page is None or notice.severity != "notice":
        return None
    text = f"follow page {page.id} ({page.alert})"
    return Advice(action="none", reason=Reason(OPEN_PAGE, text))


def _leaf(diagnosis: Diagnosis, plan: Plan) -> Leaf | None:
    return plan.trees[diagnosis.tree].leaves.get(diagnosis.leaf)


def _not_simulated(target: Target, why: str) -> Advice:
    text = f"{why}; run driftwatch recommend {target.key.text}"
    return Advice(action="insufficient", reason=Reason("not_asked", text))


def advise(
    evaluation: Evaluation,
    firing: Sequence[Transition],
    findings: Findings,
    open_incidents: Sequence[Incident],
    *,
    again: bool = False,
    used: int = 0,
) -> tuple[dict[str, Finding], tuple[TargetAdvice, ...]]:
    """The findings of a minute with their advice, and the answers of the simulations.

    A minute has at most ``plan.simulations`` simulations: pages first, then tickets, then notices,
    long waits before short ones. The other findings name `driftwatch recommend`.

    Args:
        open_incidents: all that fire in this minute.
        again: refresh the advice, in the order of ``firing``.
        used: simulations of this minute so far.
    """
    plan, after = evaluation.plan, evaluation.state.simulates_after
    rules = {rule.id: rule for rule in plan.rules}
    settled, advices = dict[str, Finding](), list[TargetAdvice]()
    ranked = firing if again else sorted(firing, key=lambda t: _rank(t, findings[t.incident.id][1]))
    for transition in ranked:
        incident, at = transition.incident, transition.at
        finding, row = findings[incident.id]
        caught_up = after is not None and at <= after
        has_turn = not caught_up and used < plan.simulations
        is_simulated, own = _needs_simulation(finding, row, plan, rules[incident.rule], incident)
        if (of_page := _advice_of_open_page(incident, open_incidents)) is not None:
            finding = replace(finding, advice=of_page)
        elif not is_simulated:
            finding = replace(finding, advice=own)
            if has_turn and (peers := _peer_load(evaluation, finding, at)):
                used += 1
                finding = replace(finding, peers=peers)
        elif not has_turn:
            why = f"driftwatch simulates at most {plan.simulations} pages a minute"
            if caught_up:
                why = "driftwatch caught up with this minute after a stop"
            elif not plan.simulations:
                why = "nothing is simulated here"
            left_out = _not_simulated(finding.target, why)
            is_due = plan.simulations > 0 and incident.severity != "notice"
            finding = replace(finding, advice=left_out, asked_again=is_due)
        else:
            used += 1
            leaf = None if finding.diagnosis is None else finding.diagnosis.leaf
            moment = _moment(evaluation, finding.target, row, at)
            if again and incident.page is not None:
                moment = replace(moment, before=incident.page.advice)
            answer = evaluation.ask(moment, plan, leaf=leaf, incident_id=incident.id)
            finding = with_advice(finding, answer)
            if incident.severity == "notice":
                finding = of_notice(finding, answer.answer)
            if finding.advice is answer.answer.advice:
                advices.append(answer)
        settled[incident.id] = finding
    return settled, tuple(advices)


def of_notice(finding: Finding, answer: Answer) -> Finding:
    """A notice advises an action only where a target is missed, or where the load exceeds the
    capacity and no more requests are measured in target than simulated.
    """
    finding, advice = replace(finding, asked_again=False), finding.advice
    used, evidence = answer.utilization_ratio, finding.evidence
    if advice is None or used is None or evidence["slo_missed"]:
        return finding
    update: dict[str, Any] = {
        "action": "no_action",
        "moves": (),
        "instead": (),
        "not_cured": (),
        "later": (),
    }
    if used > 1:
        names = ("ttft_in_target_10m_ratio", "tpot_in_target_10m_ratio")
        least = min((v for name in names if (v := evidence.get(name)) is not None), default=0.0)
        if answer.today is None or (answer.today.in_target_ratio or 0.0) >= least:
            return finding
        update["capacity_requests_per_second"] = None  # it is higher than simulated
    return replace(finding, advice=advice.model_copy(update={"action": "no_action", **update}))


def _needs_simulation(
    finding: Finding, row: Mapping[str, Any], plan: Plan, rule: Rule, incident: Incident
) -> tuple[bool, Advice | None]:
    """Whether a finding needs a simulation, and its advice if not."""
    if finding.diagnosis is None:
        return STALE in rule.columns, None
    leaf = _leaf(finding.diagnosis, plan)
    if incident.severity == "notice" and leaf is not None and leaf.kind in ("healthy", "notice"):
        return True, None  # the simulation tells whether the servers can serve this load
    own = own_advice(leaf, row)
    return own is None, own


def _rank(transition: Transition, row: Mapping[str, Any]) -> tuple[datetime, int, float, str]:
    wait = row.get("queue_wait_estimate_10m_seconds") or 0.0
    incident = transition.incident
    place = ("page", "ticket", "notice").index(incident.severity)
    return transition.at, place, -wait, incident.key


def _moment(evaluation: Evaluation, target: Target, row: Mapping[str, Any], at: datetime) -> Moment:
    """The question about a server, with the minutes of its peers."""
    targets, past = evaluation.state.targets, evaluation.past
    minutes = past.judged(target.key, at - WINDOW, at)
    beside = [past.judged(key, at - WINDOW, at) for key in peers_of(target, targets)]
    return Moment(
        target,
        at,
        minutes,
        # a slow engine whose batch left its baseline's range is still slow
        with_last_speed(row, minutes),
        pl.concat(beside) if beside else None,
        replicas=pool_size(targets, target.pool),
    )


def _peer_load(evaluation: Evaluation, finding: Finding, at: datetime) -> dict[str, float] | None:
    """``finding.peers`` with the load over capacity of the busiest peer; None where not needed."""
    leaf = finding.diagnosis.leaf if finding.diagnosis else None
    if len(finding.concerned) > 1 or leaf not in _DRAINED:
        return None
    key, targets = finding.target.key, evaluation.state.targets
    others = evaluation.rows.filter(
        (pl.col("end") == at)
        & (pl.col("pool") == finding.target.pool)
        & ~((pl.col("instance") == key.instance) & (pl.col("engine") == key.engine))
        & pl.col("requests_per_second").is_not_null()
    ).sort("requests_per_second", *_KEY, descending=[True, False, False])
    if others.is_empty():
        return None
    row = others.row(0, named=True)
    busiest = targets.get(TargetKey(row["instance"], row["engine"]))
    if busiest is None:
        return None
    moment = _moment(evaluation, busiest, row, at)
    used = evaluation.ask(moment, evaluation.plan).answer.utilization_ratio
    if used is None:
        return None
    size = float(pool_size(targets, finding.target.pool))
    return {
        "of_targets": size,
        **(finding.peers or {}),
        "utilization_ratio": used,
        "utilization_at_seconds": at.timestamp(),
    }


def with_advice(finding: Finding, answer: TargetAdvice) -> Finding:
    """The finding with a simulation's answer."""
    return replace(
        finding,
        advice=answer.answer.advice,
        asked_again=_may_change_later(answer),
        simulated_for=_simulated_for(answer.answer),
    )


_SLO_SOURCES = {"configuration": "the slo of its pool", "command line": "--slo"}


def _simulated_for(advice: Answer) -> str | None:
    """``TTFT 1 s and TPOT 50 ms for 95 % of requests (...), from 10,900 requests of 11 min``."""
    if not advice.requests:
        return None
    text = "no targets known"
    if advice.slo is not None:
        source = _SLO_SOURCES.get(advice.slo_source, "no slo given: twice the baseline's p95")
        text = f"{aims(advice.slo)} for {percent(advice.slo.share)} of requests ({source})"
    window = "" if advice.window_seconds is None else f" of {duration(advice.window_seconds)}"
    of = "" if advice.traffic_of is None else f" on {advice.traffic_of}"
    return f"{text}; simulated from {count(advice.requests)} requests{window}{of}"


def _may_change_later(answer: TargetAdvice) -> bool:
    """Whether a later window may give a first or a different answer."""
    advice = answer.answer
    if advice.advice.action == "none":
        seconds = advice.window_seconds
        return seconds is not None and seconds < _SETTLED.total_seconds()
    if advice.advice.action != "insufficient":
        return False
    failed = {gate.name for gate in advice.gates if not gate.passed}
    return answer.failed is not None or (bool(failed) and failed <= _TRANSIENT_GATES)


def advise_finding(
    finding: Finding, row: Mapping[str, Any], plan: Plan, moment: Moment | None = None
) -> Finding:
    """The finding of ``explain`` with its advice; ``moment``: simulate this, None = do not.

    Pages and ``recommend`` ask the same question, so a minute has one answer.
    """
    if finding.diagnosis is None:
        return finding
    own = own_advice(_leaf(finding.diagnosis, plan), row)
    if own is None and (moment is None or moment.minutes.is_empty() or not plan.simulations):
        own = _not_simulated(finding.target, "not simulated here")
    if own is not None or moment is None:
        return replace(finding, advice=own)
    return with_advice(finding, target_advice(moment, plan, leaf=finding.diagnosis.leaf))
