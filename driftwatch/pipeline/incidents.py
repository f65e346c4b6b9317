"""From verdicts to incidents: whom a rule speaks about, and when its incident fires and ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.detect.speed.change import LEVEL_MINUTES, NOW_MINUTES
from driftwatch.model import Incident, Target, TargetKey, Transition
from driftwatch.notify.incidents import Observation, RuleTiming, close, identity, step
from driftwatch.pipeline.incident_groups import (
    IncidentGroups,
    inhibitors_first,
    models_of,
    pool_key,
)
from driftwatch.rulebook.rules import Rule

_KEY = list(KEY_COLUMNS)

NO_TARGET_LEFT = "the pool has no target left"
NOW_ELSEWHERE = "the pool is gone: its targets are in pool {} now"
NOW_PER = "the rule is now per {}"


def timing(rule: Rule) -> RuleTiming:
    """What the life cycle needs to know of a rule."""
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
    """Advance every incident minute by minute; keys that are false and closed cost nothing.

    Args:
        rows: evidence rows; where ``ever_seen`` is false, a target never answered, and a pool
            does not wait for it.
        verdicts: one Boolean column per rule id, beside ``rows``.
    """
    minutes: dict[datetime, dict[str, list[Observation]]] = {}
    judged = rows.select(*_KEY, "pool", "ever_seen", "end", *_SINCE[:-1], _slow_seconds())
    for rule in rules:
        of_rule = judged.with_columns(
            verdict=verdicts[rule.id],
            over=pl.lit(None, pl.Boolean) if rule.over is None else rows.select(o=rule.over)["o"],
        )
        observe = _of_pools if rule.per == "pool" else _of_targets
        for observation, end in observe(rule, incidents, targets, of_rule):
            minutes.setdefault(end, {}).setdefault(rule.id, []).append(observation)
    groups = IncidentGroups(rules, targets, judged, verdicts)
    if groups.any_open(incidents):
        # a pool's page may end because its targets are no targets any more
        for end in judged["end"].unique().to_list():
            minutes.setdefault(end, {})
    ordered = inhibitors_first(rules)
    after: dict[str, Incident] = dict(incidents)
    transitions: list[Transition] = []
    for end in sorted(minutes):
        happened: list[Transition] = []
        for rule in ordered:
            observed = minutes[end].get(rule.id, ())
            observations = groups.with_inhibitors(rule, after, end, observed)
            happened += groups.together(rule, after, end, step(after, end, observations))
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
    """Close the incidents of retired targets and of pools without a target.

    Args:
        reasons: retired target → why.
    """
    closing: dict[str, str] = {}
    per = {rule.id: rule.per for rule in rules}
    together = {rule.id for rule in rules if rule.together is not None}
    pools = {target.pool for target in remaining.values()}
    # after a start nobody has a pool until a source lists him: then none is gone
    pools_known = None not in pools and bool(remaining or reasons)
    for key, incident in incidents.items():
        instance, pool = incident.target.get("instance"), incident.target.get("pool")
        is_per = "pool" if not instance else "target"
        as_pool = is_per == "pool" and incident.rule in together
        if per.get(incident.rule, is_per) != is_per and not as_pool:
            closing[key] = NOW_PER.format(per[incident.rule])
        elif instance:
            reason = reasons.get(TargetKey(instance, incident.target.get("engine", "0")))
            if reason is not None:
                closing[key] = reason
        elif pool not in pools and pools_known:
            closing[key] = _pool_gone(pool, remaining, before or {})
    return close(incidents, minute_end, closing)


def _pool_gone(
    pool: str | None, remaining: Mapping[TargetKey, Target], before: Mapping[TargetKey, Target]
) -> str:
    """Why a pool has no target: where those are that it had."""
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
    """The verdicts that can change anything: of keys that are open or become true."""
    wanted = judged.filter("verdict").select(_KEY)
    concerned = [
        (incident.target["instance"], incident.target["engine"])
        for incident in _open(rule, incidents)
        if incident.target.get("instance")
    ]
    if concerned:
        also = pl.DataFrame(concerned, schema=dict.fromkeys(_KEY, pl.String), orient="row")
        wanted = pl.concat([wanted, also])
    if wanted.is_empty():
        return
    for row in judged.join(wanted.unique(), on=_KEY, how="semi").iter_rows(named=True):
        key = TargetKey(row["instance"], row["engine"])
        yield (
            Observation(
                key=incident_key(rule, key),
                timing=timing(rule),
                target={**target_labels(targets[key]), **rule.labels},
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
    """One verdict a pool and minute: true if any is, else unknown if any is."""
    wanted = judged.filter("verdict")["pool"].unique().to_list()
    wanted += [i.target["pool"] for i in _open(rule, incidents) if not i.target.get("instance")]
    if not wanted:
        return
    of_pools = (
        judged.filter(pl.col("pool").is_in(sorted(set(wanted))))
        .filter(pl.col("ever_seen") | pl.col("verdict").is_not_null())
        .sort("end", "pool", *_KEY)
        .group_by("end", "pool", maintain_order=True)
        .agg(
            pl.col("verdict").any(ignore_nulls=False),
            pl.col("over").all(ignore_nulls=False),
            *(_earliest(c) for c in _SINCE),
        )
    )
    models = models_of(targets, set(of_pools["pool"].to_list()))
    for row in of_pools.iter_rows(named=True):
        pool = row["pool"]
        yield (
            Observation(
                key=pool_key(rule, pool),
                timing=timing(rule),
                target={"pool": pool, **models.get(pool, {}), **rule.labels},
                verdict=row["verdict"],
                since=_since(rule, row),
                over=row["over"],
            ),
            row["end"],
        )


# what is said of the last minutes as a whole: it began when they did
_OF_SPEED = ("slower_at_equal_load", "slower_than_pool")
# share of the last ten minutes → when the first of its scrapes was
_SHARES = {
    "limit_binding_share_10m_ratio": "binding_since",
    "waiting_deferred_share_10m_ratio": "deferred_since",
}
_SINCE = (
    "binding_since",
    "deferred_since",
    "seconds_since_last_token",
    "coverage_missing_seconds",
    "slow_seconds",
)


def _slow_seconds() -> pl.Expr:
    """How far back the minutes reach that made a target count as slower."""
    sudden = pl.col("speed_change_ratio") <= pl.col("speed_change_threshold_ratio")
    return (
        pl.when(sudden)
        .then(60.0 * NOW_MINUTES)
        .otherwise(60.0 * LEVEL_MINUTES)
        .alias("slow_seconds")
    )


def _earliest(column: str) -> pl.Expr:
    """Of a pool, the value that reaches back furthest among those that make it true."""
    true = pl.col(column).filter(pl.col("verdict"))
    return true.min() if column in _SHARES.values() else true.max()


def _since(rule: Rule, row: Mapping[str, Any]) -> datetime | None:
    """When it began, where the condition's columns reach further back than the minute."""
    columns = rule.columns
    for share, since in _SHARES.items():
        if share in columns:
            began: datetime | None = row[since]
            return began
    reach = ["slow_seconds"] if not columns.isdisjoint(_OF_SPEED) else []
    reach += [n for n in ("seconds_since_last_token", "coverage_missing_seconds") if n in columns]
    for name in reach:
        if row[name] is not None:  # of a pool: NULL in the minutes in which the rule is not true
            end: datetime = row["end"]
            return end - timedelta(seconds=row[name])
    return None
