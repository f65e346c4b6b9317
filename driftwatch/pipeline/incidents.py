"""From verdicts to incidents: the targets of a rule, and when an incident fires and ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.detect.speed.like_work import WINDOW
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.life_cycle import Observation, RuleTiming, close, identity, step
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.inhibition import Inhibition, inhibitors_first
from driftwatch.pipeline.members import members_of
from driftwatch.pipeline.observations import relevant_verdicts
from driftwatch.pipeline.pool_incidents import PoolIncidents, models_of, pool_key
from driftwatch.rulebook.rules import Rule

_KEY = list(KEY_COLUMNS)

NO_TARGET_LEFT = "the pool has no target left"
NOW_ELSEWHERE = "the pool is gone: its targets are in pool {} now"
NOW_PER = "the rule is now per {}"
NOW_OFF = "the rule is off in this pool now"
REMOVED = "the rule was removed"
DISABLED = "the rule was switched off: {}"


def timing(rule: Rule) -> RuleTiming:
    """The times of a rule, for the life cycle."""
    return RuleTiming(
        rule.id,
        rule.alert,
        rule.severity,
        rule.for_seconds,
        rule.keep_firing_for_seconds,
        has_until=rule.until is not None,
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


def advanced(
    rules: Sequence[Rule],
    incidents: Mapping[str, Incident],
    targets: Mapping[TargetKey, Target],
    rows: pl.DataFrame,
    verdicts: pl.DataFrame,
) -> tuple[dict[str, Incident], tuple[Transition, ...]]:
    """Advance every incident minute by minute; closed keys with a false verdict cost nothing.

    Args:
        rows: evidence rows; a pool does not wait for a target that never answered (``ever_seen``).
        verdicts: one Boolean column per rule id, beside ``rows``.
    """
    minutes: dict[datetime, dict[str, list[Observation]]] = {}
    judged = rows.select(*_KEY, "pool", "ever_seen", "end", *_SINCE)
    with_open = {incident.rule for incident in incidents.values()}
    for rule in rules:
        if rule.id not in with_open and not verdicts[rule.id].any():
            continue
        of_rule = judged.with_columns(
            verdict=verdicts[rule.id],
            over=pl.lit(None, pl.Boolean) if rule.over is None else rows.select(o=rule.over)["o"],
        )
        observe = _of_pools if rule.per == "pool" else _of_targets
        for observation, end in observe(rule, incidents, targets, of_rule):
            minutes.setdefault(end, {}).setdefault(rule.id, []).append(observation)
    if not minutes and not incidents:
        return {}, ()
    inhibition = Inhibition(rules, targets, judged, verdicts)
    pools = PoolIncidents(rules, targets, judged, inhibition)
    ordered = inhibitors_first(rules)
    after = dict(incidents)
    transitions: list[Transition] = []
    for end in sorted(judged["end"].unique().to_list()):
        # a pool's incident also advances in minutes in which no target's verdict can change it
        if end not in minutes and not any(i.extent is not None for i in after.values()):
            continue
        happened: list[Transition] = []
        for rule in ordered:
            observed = minutes.get(end, {}).get(rule.id, ())
            if not observed and rule.together is None:
                continue
            observations = inhibition.of(rule, after, end, observed)
            happened += pools.joined(rule, after, end, step(after, end, observations))
        transitions += sorted(happened, key=lambda t: t.incident.key)
    return {key: after[key] for key in sorted(after)}, tuple(transitions)


def closed_for(
    rules: Sequence[Rule],
    incidents: Mapping[str, Incident],
    remaining: Mapping[TargetKey, Target],
    reasons: Mapping[TargetKey, str],
    minute_end: datetime,
    before: Mapping[TargetKey, Target] | None = None,
) -> tuple[dict[str, Incident], tuple[Transition, ...]]:
    """Close the incidents of retired targets, of pools without a target, and of rules that are no
    longer evaluated.

    Args:
        rules: every rule, disabled ones too.
        reasons: retired target → why.
    """
    closing: dict[str, str] = {}
    rule_by_id = {rule.id: rule for rule in rules}
    pools = {target.pool for target in remaining.values()}
    # after a start no target has a pool until a source lists it: then no pool is gone
    pools_known = None not in pools and bool(remaining or reasons)
    for key, incident in incidents.items():
        instance, pool = incident.target.get("instance"), incident.target.get("pool")
        if (why := _not_evaluated(rule_by_id.get(incident.rule), incident)) is not None:
            closing[key] = why
        elif incident.extent is not None and instance:
            continue  # below, with its targets
        elif instance:
            reason = reasons.get(TargetKey(instance, incident.target.get("engine", "0")))
            if reason is not None:
                closing[key] = reason
        elif pool not in pools and pools_known:
            closing[key] = _pool_gone(pool, remaining, before or {})
    for key, members in members_of(incidents).items():
        if key in incidents and all(one.key in closing for one in members):
            closing.setdefault(key, closing[members[-1].key])
    return close(incidents, minute_end, closing)


def _not_evaluated(rule: Rule | None, incident: Incident) -> str | None:
    """Why the rule gives this incident no more verdicts; None = it may."""
    if rule is None:
        return REMOVED
    if not rule.is_evaluated:
        return DISABLED.format(rule.reason)
    is_per = "target" if incident.target.get("instance") else "pool"
    if rule.together is None and (rule.per != is_per or incident.extent is not None):
        return NOW_PER.format(rule.per)
    return None if rule.in_pool(incident.target.get("pool")).enabled else NOW_OFF


def _pool_gone(
    pool: str | None, remaining: Mapping[TargetKey, Target], before: Mapping[TargetKey, Target]
) -> str:
    """Why a pool has no target: where its targets went."""
    now = {
        remaining[k].pool or "" for k, old in before.items() if old.pool == pool and k in remaining
    }
    return NOW_ELSEWHERE.format(", ".join(sorted(now))) if now else NO_TARGET_LEFT


_Observed = Iterator[tuple[Observation, datetime]]


def _open(rule: Rule, incidents: Mapping[str, Incident]) -> list[Incident]:
    return [incident for incident in incidents.values() if incident.rule == rule.id]


def _of_targets(
    rule: Rule,
    incidents: Mapping[str, Incident],
    targets: Mapping[TargetKey, Target],
    judged: pl.DataFrame,
) -> _Observed:
    """The verdicts that can change an incident, each with the end of its minute."""
    concerned = [
        (incident.target["instance"], incident.target["engine"])
        for incident in _open(rule, incidents)
        if incident.target.get("instance")
    ]
    open_keys = pl.DataFrame(concerned, schema=dict.fromkeys(_KEY, pl.String), orient="row")
    timings: dict[str, RuleTiming] = {}
    known: dict[TargetKey, tuple[str, dict[str, str]]] = {}
    for row in relevant_verdicts(judged, rule, _KEY, open_keys).iter_rows(named=True):
        key, pool = TargetKey(row["instance"], row["engine"]), row["pool"]
        if pool not in timings:
            timings[pool] = timing(rule.in_pool(pool))
        if key not in known:
            labels = {**target_labels(targets[key]), **rule.labels}
            known[key] = incident_key(rule, key), labels
        yield (
            Observation(
                key=known[key][0],
                timing=timings[pool],
                target=known[key][1],
                verdict=row["verdict"],
                since=_since(rule, row),
                over=row["over"],
            ),
            row["end"],
        )


def _of_pools(
    rule: Rule,
    incidents: Mapping[str, Incident],
    targets: Mapping[TargetKey, Target],
    judged: pl.DataFrame,
) -> _Observed:
    """One verdict a pool and minute: true if a target's is, else unknown if a target's is."""
    wanted = judged.filter("verdict")["pool"].unique().to_list()
    is_open = [i.target["pool"] for i in _open(rule, incidents) if not i.target.get("instance")]
    if not wanted and not is_open:
        return
    every = (
        judged.filter(pl.col("pool").is_in(sorted({*wanted, *is_open})))
        .filter(pl.col("ever_seen") | pl.col("verdict").is_not_null())
        .sort("end", "pool", *_KEY)
        .group_by("end", "pool", maintain_order=True)
        .agg(
            pl.col("verdict").any(ignore_nulls=False),
            pl.col("over").all(ignore_nulls=False),
            *(_earliest(c) for c in _SINCE),
        )
    )
    open_pools = pl.DataFrame({"pool": is_open}, schema={"pool": pl.String})
    of_pools = relevant_verdicts(every, rule, ["pool"], open_pools)
    models = models_of(targets, set(of_pools["pool"].to_list()))
    for row in of_pools.iter_rows(named=True):
        pool = row["pool"]
        yield (
            Observation(
                key=pool_key(rule, pool),
                timing=timing(rule.in_pool(pool)),
                target={"pool": pool, **models.get(pool, {}), **rule.labels},
                verdict=row["verdict"],
                since=_since(rule, row),
                over=row["over"],
            ),
            row["end"],
        )


# columns over the last minutes: the condition began when those did
_OF_SPEED = ("slower_at_equal_load", "slower_than_pool", "slower")
# columns over scrapes of the last ten minutes → the column with the time of the first
_SHARES = {
    "limit_full": "binding_since",
    "limit_binding_share_10m_ratio": "binding_since",
    "requests_deferred": "deferred_since",
    "waiting_deferred_share_10m_ratio": "deferred_since",
}
_SINCE = (
    "binding_since",
    "deferred_since",
    "seconds_since_last_token",
    "coverage_missing_seconds",
)


def _earliest(column: str) -> pl.Expr:
    """The value that reaches back furthest among the targets that make a pool's verdict true."""
    true = pl.col(column).filter(pl.col("verdict"))
    return true.min() if column in _SHARES.values() else true.max()


def _since(rule: Rule, row: Mapping[str, Any]) -> datetime | None:
    """When the condition began, where its columns reach further back than the minute."""
    columns = rule.columns
    for share, since in _SHARES.items():
        if share in columns:
            began: datetime | None = row[since]
            return began
    if not columns.isdisjoint(_OF_SPEED):
        slow_since: datetime = row["end"] - timedelta(minutes=WINDOW)
        return slow_since
    for name in ("seconds_since_last_token", "coverage_missing_seconds"):
        if name not in columns:
            continue
        if row[name] is not None:  # a pool has NULL in minutes in which the rule is not true
            end: datetime = row["end"]
            return end - timedelta(seconds=row[name])
    return None
