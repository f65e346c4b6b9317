"""Which pages are advised on by a replay, and what the others say by themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.diagnose.tree import Leaf
from driftwatch.model import (
    Diagnosis,
    Finding,
    Incident,
    Reason,
    Recommendation,
    Target,
    TargetKey,
    Transition,
)
from driftwatch.notify.numbers import count
from driftwatch.notify.page import NOTICE_ADVISES_NOTHING
from driftwatch.pipeline.last_speed import with_last_speed
from driftwatch.pipeline.past_minutes import WINDOW, PastMinutes, Remembered
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.pool_answer import answer_of_pool
from driftwatch.pipeline.pool_traffic import minutes_beside, pooled
from driftwatch.pipeline.replaying import Replayed, capacity_of, replayed, why_no_capacity

# The KV cache is a limit as the two knobs are, and its leaf says "no knob" before anybody asked:
# what helps instead, and how much, is the replay's to say.
KV_PRESSURE = "kv_pressure"


def without_replay(
    leaf: Leaf | None, diagnosis: Diagnosis, evidence: Mapping[str, Any]
) -> Recommendation | None:
    """What a diagnosis says by itself; None where a replay is to be asked.

    Args:
        leaf: the leaf that was reached; None where the walk ended undetermined.
        diagnosis: how it was reached.
        evidence: the row.
    """
    lost = evidence.get("gpus_lost")
    if lost and (leaf is None or leaf.kind == "change"):
        many = "1 GPU is" if lost == 1 else f"{count(lost)} GPUs are"
        return Recommendation("none", Reason("gpus_lost", f"{many} lost"))
    if leaf is None:  # a limit that binds beside an unknown input may bind for what is unknown
        named = ", ".join(diagnosis.missing) or "its inputs"
        return Recommendation("none", Reason("undetermined", f"{named} unknown"))
    if leaf.kind == "change" or leaf.name == KV_PRESSURE:
        return None
    return Recommendation("none", Reason("leaf", leaf.advice or leaf.meaning))


def not_replayed(target: Target, why: str) -> Recommendation:
    """No verdict, as nobody asked; and the command that asks."""
    return Recommendation(
        "insufficient",
        Reason("not_asked", f"{why}; driftwatch recommend {target.key.text} says it"),
    )


def with_advice(
    firing: Sequence[Transition],
    found: Mapping[str, tuple[Finding, Mapping[str, Any]]],
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    past: PastMinutes,
    gpus: pl.DataFrame | None = None,
    rows: pl.DataFrame | None = None,
    after: datetime | None = None,
    before: Iterable[Incident] = (),
) -> tuple[dict[str, Finding], tuple[Replayed, ...]]:
    """Findings with their recommendations, and what was replayed for them.

    Of one minute's pages at most ``plan.replays`` are replayed, pages before tickets and long
    waits before short ones; the others say that they were left out, and what to ask.

    Args:
        firing: transitions.
        found: incident id → finding and its evidence row.
        targets: every target.
        plan: rules, trees, pools.
        past: minutes up to those of the findings.
        gpus: GPU readings, for the names of their models.
        rows: evidence rows of these minutes: how busy twins are is asked of one of them.
        after: nothing is replayed for minutes that end then or before; None = for all.
        before: open incidents with their pages: what one of them says of its pool is the answer of
            its twins' pages too.
    """
    rules = {rule.id: rule for rule in plan.rules}
    told: dict[str, Finding] = {}
    remembered = Remembered(past)  # twins are asked for once, however many of them fire
    answers: list[Replayed] = []
    asking: dict[datetime, int] = {}
    for transition in sorted(firing, key=lambda t: _turn(t, found[t.incident.id][1])):
        incident = transition.incident
        finding, row = found[incident.id]
        diagnosis = finding.diagnosis
        leaf, own = None if diagnosis is None else diagnosis.leaf, _own_advice(finding, row, plan)
        asks = own is None and incident.severity != "notice"
        if diagnosis is None:
            asks = STALE in rules[incident.rule].columns
        if not asks:
            if own is None and diagnosis is not None:
                own = Recommendation("none", NOTICE_ADVISES_NOTHING)
            told[incident.id] = replace(finding, recommendation=own)
            caught_up = after is not None and transition.at <= after
            if rows is not None and not caught_up and asking.get(transition.at, 0) < plan.replays:
                if (room := _room(finding, transition.at, rows, past, plan, targets)) is None:
                    continue
                asking[transition.at] = asking.get(transition.at, 0) + 1
                told[incident.id] = replace(told[incident.id], twins=room)
            continue
        minutes, beside, pool = _question(finding, transition.at, targets, plan, remembered)
        if (same := answer_of_pool(pool, transition.at, told, firing, before, row)) is not None:
            told[incident.id] = replace(finding, recommendation=same)
            continue
        number = asking[transition.at] = asking.get(transition.at, 0) + 1
        caught_up = after is not None and transition.at <= after
        if number > plan.replays or caught_up:
            why = "caught up after a stop" if caught_up else f"{plan.replays} replays a minute"
            left_out = not_replayed(finding.target, why)
            again = plan.replays > 0
            told[incident.id] = replace(finding, recommendation=left_out, asked_again=again)
            continue
        answer = replayed(
            finding.target,
            transition.at,
            minutes,
            # a slow engine whose batch left the range of its pin is slow still
            with_last_speed(row, minutes),
            plan,
            leaf=leaf,
            replicas=sum(1 for other in targets.values() if other.pool == finding.target.pool),
            gpus=gpus,
            incident_id=incident.id,
            beside=beside,
        )
        answers.append(answer)
        told[incident.id] = with_answer(finding, answer)
    return told, tuple(answers)


def _own_advice(finding: Finding, row: Mapping[str, Any], plan: Plan) -> Recommendation | None:
    """What the finding's diagnosis says by itself; None where it has none, or a replay is asked."""
    diagnosis = finding.diagnosis
    if diagnosis is None:
        return None
    leaf = plan.trees[diagnosis.tree].leaves.get(diagnosis.leaf)
    return without_replay(leaf, diagnosis, row)


def _question(
    finding: Finding,
    at: datetime,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    past: PastMinutes,
) -> tuple[pl.DataFrame, pl.DataFrame | None, Collection[TargetKey]]:
    """Minutes of the finding's target and of its twins, and who of them is asked about together."""
    key = finding.target.key
    minutes = past.judged(key, at - WINDOW, at)
    beside = minutes_beside(finding.target, targets, plan, past, at)
    if beside is None:
        return minutes, None, ()
    return minutes, beside, pooled(key, pl.concat([minutes, beside]), at).keys()


def _room(
    finding: Finding,
    at: datetime,
    rows: pl.DataFrame,
    past: PastMinutes,
    plan: Plan,
    targets: Mapping[TargetKey, Target],
) -> dict[str, float] | None:
    """The twins with the share of its capacity that the busiest of them uses; None if not asked.

    Asked of a page that speaks of one slow server among twins: it is to be drained.
    """
    leaf = finding.diagnosis.leaf if finding.diagnosis else None
    if finding.twins is None or finding.of_targets is not None or leaf not in _DRAINED:
        return None
    key = finding.target.key
    others = rows.filter(
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
    minutes = past.minutes(busiest.key, at - WINDOW, at)
    answer = replayed(busiest, at, minutes, row, plan, replicas=others.height + 1, ask="assess")
    used = capacity_of(answer.advice)["utilization_ratio"]
    return dict(finding.twins) if used is None else {**finding.twins, "utilization_ratio": used}


_KEY = list(KEY_COLUMNS)
# leaves whose advice is to take the server out
_DRAINED = ("replica_slow", "gpu_throttled")
# a tune that is stale asks for another one, without a diagnosis of the hour
STALE = "pin_lengths_moved"


def _turn(transition: Transition, row: Mapping[str, Any]) -> tuple[datetime, bool, float, str]:
    wait = row.get("queue_wait_estimate_10m_seconds") or 0.0
    incident = transition.incident
    return transition.at, incident.severity != "page", -wait, incident.key


# gates that a window with more traffic passes
_CURED_BY_TIME = frozenset(
    {"traffic", "busy_windows", "requests", "recent_minutes", "recent_requests", "forecast"}
)


# As many minutes since the traffic changed as a window must have for any answer (gates.py): what a
# drift brings at first is seldom what stays.
_SETTLED = timedelta(minutes=10)


def may_be_cured(answer: Replayed) -> bool:
    """Whether a later window may give the answer that this one does not, or another one.

    That no knob helps is asked again where it was judged by the first minutes of a drift alone.
    """
    advice = answer.advice
    if advice.recommendation.action == "none":
        judged = advice.window_seconds
        return judged is not None and judged < _SETTLED.total_seconds()
    if advice.recommendation.action != "insufficient":
        return False
    failed = {gate.name for gate in advice.gates if not gate.passed}
    return answer.failed is not None or (bool(failed) and failed <= _CURED_BY_TIME)


def with_answer(found: Finding, answer: Replayed) -> Finding:
    """The finding with what the replay said."""
    values = capacity_of(answer.advice)
    why = {name: why_no_capacity(answer.advice) for name, value in values.items() if value is None}
    known = {name: value for name, value in values.items() if value is not None}
    reasons = {name: text for name, text in found.reasons.items() if name not in known}
    return replace(
        found,
        recommendation=answer.advice.recommendation,
        asked_again=may_be_cured(answer),
        evidence={**found.evidence, **values},
        reasons={**reasons, **why},
    )


def explained(
    found: Finding,
    row: Mapping[str, Any],
    minutes: pl.DataFrame | None,
    plan: Plan,
    at: datetime,
    replicas: int | None = None,
    beside: pl.DataFrame | None = None,
    gpus: pl.DataFrame | None = None,
) -> Finding:
    """A finding of ``explain`` with its recommendation; replayed where minutes are given.

    Asked with all that a page and ``recommend`` are asked with: the same minute has one answer.
    """
    diagnosis = found.diagnosis
    if diagnosis is None:
        return found
    own = _own_advice(found, row, plan)
    if own is not None:
        return replace(found, recommendation=own)
    if minutes is None or minutes.is_empty() or not plan.replays:
        return replace(found, recommendation=not_replayed(found.target, "not replayed"))
    answer = replayed(
        found.target,
        at,
        minutes,
        row,
        plan,
        leaf=diagnosis.leaf,
        replicas=replicas,
        gpus=gpus,
        beside=beside,
    )
    return with_answer(found, answer)
