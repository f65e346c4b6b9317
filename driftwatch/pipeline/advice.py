"""Which findings get simulated advice, and what the others advise without a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.diagnose.tree import Leaf
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Advice, Diagnosis, Finding, Reason, Target, TargetKey
from driftwatch.notify.page import NOTICE_ADVISES_NOTHING
from driftwatch.numbers import count, duration, percent
from driftwatch.pipeline.evaluation import Evaluation
from driftwatch.pipeline.findings import Findings
from driftwatch.pipeline.minutes import WINDOW, with_last_speed
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import (
    Moment,
    TargetAdvice,
    alike,
    peer_minutes,
    target_advice,
)
from driftwatch.recommend.advice import Answer
from driftwatch.recommend.words import aims
from driftwatch.rulebook.rules import Rule

_KEY = list(KEY_COLUMNS)
# A limit whose leaf names no knob: the simulation finds what helps instead, and how much.
KV_PRESSURE = "kv_pressure"
# leaves whose advice is to take the server out
_DRAINED = ("replica_slow", "gpu_throttled")
# a rule on this column asks for a new tune, without a diagnosis of the hour
STALE = "baseline_lengths_moved"
# gates that a window with more traffic may pass
_TRANSIENT_GATES = frozenset({"traffic", "busy_windows", "requests", "fit_itl", "fit_running"})
# An answer needs so long since the traffic changed: a drift's first minutes are seldom typical.
_SETTLED = timedelta(minutes=10)


def own_advice(
    leaf: Leaf | None, diagnosis: Diagnosis, evidence: Mapping[str, Any]
) -> Advice | None:
    """The advice of a diagnosis alone; None where it needs a simulation."""
    lost = evidence.get("gpus_lost")
    if lost and (leaf is None or leaf.kind == "change"):
        many = "1 GPU is" if lost == 1 else f"{count(lost)} GPUs are"
        return Advice(action="none", reason=Reason("gpus_lost", f"{many} lost"))
    if leaf is None:  # an unknown input may be why the limit binds
        return Advice(action="none", reason=Reason("undetermined", "the cause is not determined"))
    if leaf.kind == "change" or leaf.name == KV_PRESSURE:
        return None
    return Advice(action="none", reason=Reason("leaf", leaf.advice or leaf.meaning))


def _own_advice(finding: Finding, row: Mapping[str, Any], plan: Plan) -> Advice | None:
    diagnosis = finding.diagnosis
    if diagnosis is None:
        return None
    leaf = plan.trees[diagnosis.tree].leaves.get(diagnosis.leaf)
    return own_advice(leaf, diagnosis, row)


def _not_simulated(target: Target, why: str) -> Advice:
    text = f"{why}; run driftwatch recommend {target.key.text}"
    return Advice(action="insufficient", reason=Reason("not_asked", text))


def advised(
    evaluation: Evaluation,
    firing: Sequence[Transition],
    findings: Findings,
    others: Sequence[Incident] = (),
    *,
    again: bool = False,
    used: int = 0,
) -> tuple[dict[str, Finding], tuple[TargetAdvice, ...]]:
    """Findings with their recommendations, and the answers of the simulations.

    At most ``plan.simulations`` findings of a minute are simulated: pages before tickets, long
    waits before short ones. The others name `driftwatch recommend`. If another page of the pool has
    an answer already, that answer is reused.

    Args:
        others: firing incidents with their pages at the time; those of ``firing`` do not count.
        again: their pages are made again, in the order of ``firing``.
        used: simulations of this minute so far.
    """
    plan, state = evaluation.plan, evaluation.state
    rules = {rule.id: rule for rule in plan.rules}
    settled: dict[str, Finding] = {}
    advices: list[TargetAdvice] = []
    questions: Counter[datetime] = Counter({t.at: used for t in firing})
    firing_now = {t.incident.id for t in firing}
    ranked = sorted(firing, key=lambda t: _rank(t, findings[t.incident.id][1]))
    for transition in firing if again else ranked:
        incident, at = transition.incident, transition.at
        finding, row = findings[incident.id]
        caught_up = state.simulates_after is not None and at <= state.simulates_after
        has_turn = not caught_up and questions[at] < plan.simulations
        asks, own = _asks(finding, row, plan, rules[incident.rule], incident)
        if not asks:
            finding = replace(finding, advice=own)
            if not again and has_turn and (peers := _peer_load(evaluation, finding, at)):
                questions[at] += 1
                finding = replace(finding, peers=peers)
            settled[incident.id] = finding
            continue
        pool = alike(finding.target, state.targets, plan)
        finding = replace(finding, configured_alike=configured_alike(finding, pool))
        before = [one for one in others if one.id not in firing_now and answer_stands(one, at)]
        if (same := answer_of_pool(pool, at, settled, firing, before, row)) is not None:
            answer, by = same
            finding = replace(finding, advice=answer, answered_by=(by.id, by.alert))
        elif not has_turn:
            left_out = _left_out(finding.target, plan, caught_up=caught_up)
            later = plan.simulations > 0
            finding = replace(finding, advice=left_out, asked_again=later)
        else:
            questions[at] += 1
            moment = _moment(evaluation, finding, row, at)
            leaf = None if finding.diagnosis is None else finding.diagnosis.leaf
            advices.append(evaluation.ask(moment, plan, leaf=leaf, incident_id=incident.id))
            finding = with_advice(finding, advices[-1])
        settled[incident.id] = finding
    return settled, tuple(advices)


def _asks(
    finding: Finding, row: Mapping[str, Any], plan: Plan, rule: Rule, incident: Incident
) -> tuple[bool, Advice | None]:
    """Whether a finding needs a simulation, and its advice if not."""
    if finding.diagnosis is None:
        return STALE in rule.columns, None
    own = _own_advice(finding, row, plan)
    if own is None and incident.severity == "notice":
        own = Advice(action="none", reason=NOTICE_ADVISES_NOTHING)
    return own is None, own


def _left_out(target: Target, plan: Plan, *, caught_up: bool) -> Advice:
    if caught_up:
        return _not_simulated(target, "driftwatch caught up with this minute after a stop")
    if not plan.simulations:
        return _not_simulated(target, "nothing is simulated here")
    return _not_simulated(target, f"driftwatch simulates {plan.simulations} pages a minute")


def _rank(transition: Transition, row: Mapping[str, Any]) -> tuple[datetime, bool, float, str]:
    wait = row.get("queue_wait_estimate_10m_seconds") or 0.0
    incident = transition.incident
    return transition.at, incident.severity != "page", -wait, incident.key


def _moment(
    evaluation: Evaluation, finding: Finding, row: Mapping[str, Any], at: datetime
) -> Moment:
    """The question about a finding."""
    target, targets, past = finding.target, evaluation.state.targets, evaluation.past
    minutes = past.judged(target.key, at - WINDOW, at)
    beside = peer_minutes(target, targets, evaluation.plan, past, at)
    return Moment(
        target,
        at,
        minutes,
        # a slow engine whose batch left its baseline's range is still slow
        with_last_speed(row, minutes),
        beside,
        replicas=sum(1 for other in targets.values() if other.pool == target.pool),
        gpus=evaluation.state.gpus,
    )


def _peer_load(evaluation: Evaluation, finding: Finding, at: datetime) -> dict[str, float] | None:
    """``finding.peers`` with the capacity share of the busiest peer; None if it is not needed."""
    leaf = finding.diagnosis.leaf if finding.diagnosis else None
    if finding.peers is None or len(finding.concerned) > 1 or leaf not in _DRAINED:
        return None
    key = finding.target.key
    others = evaluation.rows.filter(
        (pl.col("end") == at)
        & (pl.col("pool") == finding.target.pool)
        & ~((pl.col("instance") == key.instance) & (pl.col("engine") == key.engine))
        & pl.col("requests_per_second").is_not_null()
    ).sort("requests_per_second", *_KEY, descending=[True, False, False])
    if others.is_empty():
        return None
    row = others.row(0, named=True)
    busiest = evaluation.state.targets.get(TargetKey(row["instance"], row["engine"]))
    if busiest is None:
        return None
    minutes = evaluation.past.minutes(busiest.key, at - WINDOW, at)
    moment = Moment(busiest, at, minutes, row, replicas=others.height + 1)
    used = evaluation.ask(moment, evaluation.plan, ask="assess").answer.utilization_ratio
    return dict(finding.peers) if used is None else {**finding.peers, "utilization_ratio": used}


def answer_of_pool(
    pool: Collection[TargetKey],
    at: datetime,
    findings: Mapping[str, Finding],
    firing: Sequence[Transition],
    before: Iterable[Incident],
    settings: Mapping[str, Any],
) -> tuple[Advice, Incident] | None:
    """The answer on another page of the pool, with its incident; None without one.

    Servers that are configured alike get one answer while an incident that carries it fires: a
    second one could contradict it. An answer that changes a setting from a value other than today's
    does not count: the change has been made, or the answer belongs to another server.

    Args:
        pool: servers that are configured alike; empty = one server by itself.
        findings: incident id → finding of this minute that has its answer.
        before: firing incidents, with their pages.
    """
    for one in firing:
        finding = findings.get(one.incident.id)
        if finding is None or finding.target.key not in pool or one.at != at:
            continue
        if finding.advice is not None and _is_current(finding.advice, settings):
            return finding.advice, one.incident
    names = {key.text for key in pool}
    for incident in sorted(before, key=lambda i: (i.severity != "page", i.firing_at or at, i.key)):
        page = incident.page
        if page is None or not incident.is_firing or names.isdisjoint(page.servers.first[:1]):
            continue
        answer = page.advice
        if answer is not None and _is_current(answer, settings):
            return answer, incident
    return None


def answer_stands(incident: Incident, at: datetime) -> bool:
    """Whether the answer on an incident's page still serves other servers: for an hour."""
    return incident.told is not None and at - incident.told.at <= WINDOW


def configured_alike(
    finding: Finding, pool: Collection[TargetKey]
) -> tuple[tuple[TargetKey, ...], tuple[TargetKey, ...]]:
    """The targets of a pool's finding: those configured as the first one, and the others."""
    like = tuple(k for k in finding.concerned if k in pool or k == finding.target.key)
    unlike = tuple(k for k in finding.concerned if k not in like)
    return (like, unlike) if unlike else ((), ())


def _is_current(answer: Advice, settings: Mapping[str, Any]) -> bool:
    """Whether an answer was computed, and its changes start from today's settings."""
    if answer.basis is None:
        return False
    now = ((settings.get(move.knob), move.from_value) for move in answer.moves)
    return all(today is None or then is None or today == then for today, then in now)


def with_advice(finding: Finding, answer: TargetAdvice) -> Finding:
    """The finding with the answer of a simulation."""
    return replace(
        finding,
        advice=answer.answer.advice,
        asked_again=_may_change(answer),
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
    return f"{text}; simulated from {count(advice.requests)} requests{window}"


def _may_change(answer: TargetAdvice) -> bool:
    """Whether a later window may give an answer, or another one."""
    advice = answer.answer
    if advice.advice.action == "none":
        seconds = advice.window_seconds
        return seconds is not None and seconds < _SETTLED.total_seconds()
    if advice.advice.action != "insufficient":
        return False
    failed = {gate.name for gate in advice.gates if not gate.passed}
    return answer.failed is not None or (bool(failed) and failed <= _TRANSIENT_GATES)


def explained(
    finding: Finding, row: Mapping[str, Any], plan: Plan, moment: Moment | None = None
) -> Finding:
    """A finding of ``explain`` with its recommendation; simulated where there is a moment.

    Pages and ``recommend`` ask the same question: a minute has one answer.
    """
    if finding.diagnosis is None:
        return finding
    own = _own_advice(finding, row, plan)
    if own is None and (moment is None or moment.minutes.is_empty() or not plan.simulations):
        own = _not_simulated(finding.target, "not simulated here")
    if own is not None or moment is None:
        return replace(finding, advice=own)
    return with_advice(finding, target_advice(moment, plan, leaf=finding.diagnosis.leaf))
