"""Which incidents are inhibited by another: such an incident stays pending and sends nothing.

Decided minute by minute from open incidents, so the result does not depend on how minutes are split
over ticks, and a restart forgets nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.life_cycle import Observation
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.members import instance_of, members_of, target_of
from driftwatch.rulebook.rules import Rule

_KEY = list(KEY_COLUMNS)
# An open incident whose verdict was unknown for this long inhibits no other: longer than any
# detector's hysteresis, and than a restart with its warm-up.
INHIBITS_UNKNOWN = timedelta(hours=1)


def inhibitors_first(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules in an order in which each follows its inhibitors.

    Of rules that inhibit each other, also through others, the one that stands first in the files
    goes first.
    """
    remaining, ordered = list(rules), []
    while remaining:
        alerts = {rule.alert for rule in remaining}
        free = (r for r in remaining if alerts.isdisjoint(set(r.inhibited_by) - {r.alert}))
        following = next(free, None) or _first_in_cycle(remaining)
        remaining.remove(following)
        ordered.append(following)
    return tuple(ordered)


def _first_in_cycle(rules: Sequence[Rule]) -> Rule:
    """The first rule whose inhibitors it inhibits in turn."""
    inhibitors: dict[str, set[str]] = {}
    for rule in rules:
        inhibitors.setdefault(rule.alert, set()).update(rule.inhibited_by)
    behind = {alert: _behind(alert, inhibitors) for alert in inhibitors}
    return next(r for r in rules if all(r.alert in behind[alert] for alert in behind[r.alert]))


def _behind(alert: str, inhibitors: Mapping[str, set[str]]) -> set[str]:
    """The alert, those that inhibit it, those that inhibit them, and so on."""
    behind, beyond = {alert}, [alert]
    while beyond:
        more = (inhibitors[beyond.pop()] & inhibitors.keys()) - behind
        behind |= more
        beyond += more
    return behind


class Inhibition:
    """The inhibited incidents of some minutes.

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
        # rules per pool: the pools in which they are true
        self._true: dict[tuple[str, datetime], set[TargetKey]] = {}
        for rule in (rule for rule in rules if rule.per == "pool"):
            true = judged.select(*_KEY, "end").filter(verdicts[rule.id])
            for instance, engine, end in true.iter_rows():
                self._true.setdefault((rule.id, end), set()).add(TargetKey(instance, engine))

    def of(
        self,
        rule: Rule,
        incidents: Mapping[str, Incident],
        end: datetime,
        observations: Sequence[Observation],
    ) -> Sequence[Observation]:
        """The rule's observations, each with the alert that inhibits it.

        An incident that is part of its pool's incident counts as firing: only an alert that
        explains its cause inhibits it.
        """
        if not observations or not (rule.inhibited_by or rule.together):
            return observations
        by_target, by_pool = self._inhibiting(rule, incidents, end)
        linked = []
        for one in observations:
            if instance := one.target.get("instance"):
                by = by_target.get(TargetKey(instance, one.target["engine"]))
            else:
                by = by_pool.get(one.target["pool"])
            senior = self._senior(rule, one.target["pool"]) if by else frozenset[str]()
            record = incidents.get(one.key)
            if record is not None and record.part_of is not None and by not in senior:
                by = record.inhibited_by
            superseded = by if by in senior else None
            if by is not None:
                one = replace(one, inhibited_by=by, superseded_by=superseded)
            linked.append(one)
        return linked

    def taken_over(
        self, rule: Rule, incidents: Mapping[str, Incident], end: datetime, key: str
    ) -> str | None:
        """The alert that explains at least half of a pool's open targets better than its page."""
        pool = incidents[key].target["pool"]
        senior = self._senior(rule, pool)
        if not senior:
            return None
        open_ = [
            target_of(i)
            for i in incidents.values()
            if i.extent is None
            and (i.part_of == key or (i.rule == rule.id and i.inhibited_by in senior))
            and instance_of(i)
            and self._pool_of(i) == pool
        ]
        by_target, _ = self._inhibiting(rule, incidents, end)
        inhibitors = [by for one in open_ if (by := by_target.get(one)) in senior]
        return inhibitors[0] if inhibitors and 2 * len(inhibitors) >= len(open_) else None

    def _senior(self, rule: Rule, pool: str | None) -> frozenset[str]:
        """Alerts of a pool that are as severe, inhibit the rule and are not inhibited by it."""
        severity = rule.in_pool(pool).severity
        return frozenset(
            one.alert
            for one in self.rules
            if one.alert in rule.inhibited_by
            and one.in_pool(pool).severity == severity
            and rule.alert not in one.inhibited_by
        )

    def _inhibiting(
        self, rule: Rule, incidents: Mapping[str, Incident], end: datetime
    ) -> tuple[dict[TargetKey, str], dict[str, str]]:
        """Which alert inhibits a rule on which targets, and in which pools."""
        by_target: dict[TargetKey, str] = {}
        by_pool: dict[str, str] = {}
        rule_by_id = {one.id: one for one in self.rules}
        members = members_of(incidents)
        for _, incident in sorted(incidents.items()):
            of = rule_by_id.get(incident.rule)
            if of is None or incident.alert not in rule.inhibited_by or not _speaks(incident):
                continue
            mine = members.get(incident.key, ())
            last_true_at = max((i.last_true_at for i in mine), default=incident.last_true_at)
            if end - last_true_at > INHIBITS_UNKNOWN:
                continue
            senior = self._senior(rule, self._pool_of(incident))
            keys: Iterable[TargetKey]
            if incident.extent is not None:
                keys = {target_of(i) for i in mine}
            elif instance_of(incident):
                keys = (target_of(incident),)
            else:
                keys = self._true_in(of, incident.target["pool"], end)
            if not instance_of(incident):
                by_pool.setdefault(incident.target["pool"], incident.alert)
            for key in keys:
                if incident.alert in senior or key not in by_target:
                    by_target[key] = incident.alert
        return by_target, by_pool

    def _true_in(self, rule: Rule, pool: str, end: datetime) -> list[TargetKey]:
        true = self._true.get((rule.id, end), ())
        return [key for key in true if (one := self.targets.get(key)) and one.pool == pool]

    def _pool_of(self, incident: Incident) -> str | None:
        target = self.targets.get(target_of(incident)) if instance_of(incident) else None
        return incident.target.get("pool") if target is None else target.pool


def _speaks(incident: Incident) -> bool:
    """Whether an incident fires, or waits only until more targets of its pool do."""
    waits = incident.extent is not None and incident.inhibited_by is None
    return incident.state == "firing" or waits
