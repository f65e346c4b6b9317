"""What incidents do to each other: which wait for another, and which speak as one for a pool.

An inhibited incident is kept, and neither fires nor is told of. Where a rule says ``group:``, the
targets of a pool that fire within a while of one another are told of once, by an incident of the
pool; the others wait for it. Both are decided minute by minute from what is open, so that the
result does not depend on how minutes are split over ticks, and a restart forgets nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.model import Incident, Target, TargetKey, Transition
from driftwatch.notify.incidents import Observation, RuleTiming, identity, step
from driftwatch.rulebook.rules import Rule

_KEY = list(KEY_COLUMNS)
# An open incident of which nothing has been known for so long inhibits no other: longer than any
# detector's hysteresis and than a restart with its warm-up.
INHIBITS_UNKNOWN = timedelta(hours=1)


def pool_key(rule: Rule, pool: str) -> str:
    """Identity of a rule that is per pool."""
    return identity(rule.id, {"pool": pool})


def models_of(targets: Mapping[TargetKey, Target], pools: set[str]) -> dict[str, dict[str, str]]:
    """pool → its model as a label, where all of it serves the same."""
    models_of_pool: dict[str, set[str | None]] = {}
    for target in targets.values():
        if target.pool in pools:
            models = models_of_pool.setdefault(target.pool or "", set())
            models.add(target.labels.get("model_name"))
    return {
        pool: {"model_name": model}
        for pool, models in models_of_pool.items()
        if len(models) == 1 and (model := next(iter(models)))
    }


def inhibitors_first(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules in an order in which each comes after those that inhibit it.

    Of rules that inhibit each other the one that stands first in the files goes first.
    """
    remaining, ordered = list(rules), []
    while remaining:
        alerts = {rule.alert for rule in remaining}
        free = (r for r in remaining if alerts.isdisjoint(set(r.inhibited_by) - {r.alert}))
        following = next(free, remaining[0])
        remaining.remove(following)
        ordered.append(following)
    return tuple(ordered)


class IncidentGroups:
    """Some minutes, and what incidents do to each other in them.

    Args:
        verdicts: one Boolean column per rule id, beside ``judged``.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        targets: Mapping[TargetKey, Target],
        judged: pl.DataFrame,
        verdicts: pl.DataFrame,
    ) -> None:
        self.rules = rules
        self.targets = targets
        counts = judged.filter("ever_seen").group_by("end", "pool").len()
        self._sizes: dict[tuple[datetime, str], int] = {
            (end, pool): count for end, pool, count in counts.iter_rows()
        }
        # of rules per pool: where they are true
        self._true: dict[tuple[str, datetime], set[TargetKey]] = {}
        for rule in (rule for rule in rules if rule.per == "pool"):
            true = judged.select(*_KEY, "end").filter(verdicts[rule.id])
            for instance, engine, end in true.iter_rows():
                self._true.setdefault((rule.id, end), set()).add(TargetKey(instance, engine))

    def any_open(self, incidents: Mapping[str, Incident]) -> bool:
        """Whether an incident speaks for several targets of a pool."""
        together = {rule.id for rule in self.rules if rule.together is not None}
        return any(i.rule in together and not _instance(i) for i in incidents.values())

    def with_inhibitors(
        self,
        rule: Rule,
        incidents: Mapping[str, Incident],
        end: datetime,
        observations: Sequence[Observation],
    ) -> Sequence[Observation]:
        """The rule's observations, each with the alert that keeps it from firing."""
        if not observations or not (rule.inhibited_by or rule.together):
            return observations
        by_target, by_pool = self._inhibiting(rule, incidents, end)
        if not by_target and not by_pool:
            return observations
        senior = self._senior(rule)
        linked = []
        for one in observations:
            if instance := one.target.get("instance"):
                by = by_target.get(TargetKey(instance, one.target["engine"]))
            else:
                by = by_pool.get(one.target["pool"])
            linked.append(replace(one, inhibited_by=by, superseded_by=by if by in senior else None))
        return linked

    def _senior(self, rule: Rule) -> frozenset[str]:
        """Alerts as severe that inhibit a rule's and are not inhibited by it."""
        return frozenset(
            one.alert
            for one in self.rules
            if one.alert in rule.inhibited_by
            and one.severity == rule.severity
            and rule.alert not in one.inhibited_by
        )

    def _inhibiting(
        self, rule: Rule, incidents: Mapping[str, Incident], end: datetime
    ) -> tuple[dict[TargetKey, str], dict[str, str]]:
        """Which alert inhibits a rule on which targets, and in which pools."""
        by_target: dict[TargetKey, str] = {}
        by_pool: dict[str, str] = {}
        senior = self._senior(rule)
        rule_by_id = {one.id: one for one in self.rules}
        for _, incident in sorted(incidents.items()):
            of = rule_by_id.get(incident.rule)
            own_pool = of is rule and rule.together is not None and not _instance(incident)
            named = incident.alert in rule.inhibited_by
            if incident.state != "firing" or of is None or not (named or own_pool):
                continue
            if named and end - incident.last_true_at > INHIBITS_UNKNOWN:
                continue
            if _instance(incident):
                if incident.alert in senior or _key(incident) not in by_target:
                    by_target[_key(incident)] = incident.alert
                continue
            pool = incident.target["pool"]
            keys: Iterable[TargetKey] = self.targets
            if not own_pool:
                by_pool.setdefault(pool, incident.alert)
                if of.together is None:
                    keys = self._true.get((of.id, end), ())
                else:
                    keys = [_key(i) for i in self._members(of, incidents, pool)]
            for key in keys:
                target = self.targets.get(key)
                if target is None or target.pool != pool:
                    continue
                if incident.alert in senior or key not in by_target:
                    by_target[key] = incident.alert
        return by_target, by_pool

    def together(
        self,
        rule: Rule,
        incidents: dict[str, Incident],
        end: datetime,
        happened: Sequence[Transition],
    ) -> list[Transition]:
        """What a rule's targets told in a minute, with the pool's page in place of theirs.

        The pool's incident begins when so many of its targets fired within the rule's while, and
        ends when fewer than half as many are open (each of them has its own hysteresis).

        Args:
            incidents: open ones; changed in place.
        """
        if rule.together is None:
            return list(happened)
        fired = [t.incident for t in happened if t.event == "firing"]
        open_ = {
            i.target["pool"] for i in incidents.values() if i.rule == rule.id and not _instance(i)
        }
        transitions = list(happened)
        since = end - timedelta(seconds=rule.together.within_seconds)
        for pool in sorted({*open_, *filter(None, map(self._pool_of, fired))}):
            members = self._members(rule, incidents, pool)
            size = self._sizes.get((end, pool), 0)
            needed = rule.together.needed(size)
            recent = [i for i in members if i.firing_at is not None and i.firing_at > since]
            many = 2 * len(members) >= needed if pool in open_ else len(recent) >= needed
            if pool not in open_ and not many:
                continue
            now = {i.key for i in fired if self._pool_of(i) == pool}
            for key in now:
                incidents[key] = replace(
                    incidents[key],
                    state="pending",
                    firing_at=None,
                    inhibited_by=rule.alert,
                    true_seconds=0.0,
                )
            transitions = [
                t for t in transitions if t.event != "firing" or t.incident.key not in now
            ]
            observation = self._of_pool(rule, pool, many, members)
            by = self._taken_over(rule, incidents, end, pool)
            observation = replace(observation, inhibited_by=by, superseded_by=by)
            transitions += [
                replace(
                    transition,
                    concerned=tuple(sorted(_key(i) for i in members)),
                    of_targets=size,
                    told_before=tuple(
                        sorted(_key(i) for i in members if i.firing_at and i.key not in now)
                    ),
                )
                for transition in step(incidents, end, [observation])
            ]
        return transitions

    def _taken_over(
        self, rule: Rule, incidents: Mapping[str, Incident], end: datetime, pool: str
    ) -> str | None:
        """The alert that says more of half of a pool's open targets than the pool's page would."""
        senior = self._senior(rule)
        waits_for = {rule.alert, *senior}
        open_ = [
            _key(i)
            for i in incidents.values()
            if i.rule == rule.id
            and _instance(i)
            and self._pool_of(i) == pool
            and (i.state == "firing" or i.inhibited_by in waits_for)
        ]
        by_target, _ = self._inhibiting(rule, incidents, end)
        inhibitors = [by for key in open_ if (by := by_target.get(key)) in senior]
        return inhibitors[0] if inhibitors and 2 * len(inhibitors) >= len(open_) else None

    def _of_pool(
        self, rule: Rule, pool: str, many: bool, members: Sequence[Incident]
    ) -> Observation:
        labels = models_of(self.targets, {pool}).get(pool, {})
        keep = rule.keep_firing_for_seconds
        return Observation(
            key=pool_key(rule, pool),
            # how long each target must be true before it counts has been waited for
            timing=RuleTiming(rule.id, rule.alert, rule.severity, 0.0, keep),
            target={"pool": pool, **labels, **rule.labels},
            verdict=many,
            since=min((i.started_at for i in members), default=None),
        )

    def _members(self, rule: Rule, incidents: Mapping[str, Incident], pool: str) -> list[Incident]:
        """Open incidents of a rule in a pool that fire, or wait for the pool's only."""
        return [
            i
            for i in incidents.values()
            if i.rule == rule.id
            and _instance(i)
            and self._pool_of(i) == pool
            and (i.state == "firing" or i.inhibited_by == rule.alert)
        ]

    def _pool_of(self, incident: Incident) -> str | None:
        target = self.targets.get(_key(incident))
        return incident.target.get("pool") if target is None else target.pool


def _instance(incident: Incident) -> str | None:
    return incident.target.get("instance") or None


def _key(incident: Incident) -> TargetKey:
    return TargetKey(incident.target["instance"], incident.target.get("engine", "0"))
