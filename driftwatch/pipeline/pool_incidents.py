"""One incident for the servers of a pool that have one cause.

Where a rule has ``group:``, an alert on one target becomes part of an incident of its pool. The
pool's page waits a while for more targets, unless all of them fire. Targets that fire later join
the incident, and it is sent again once it has become much larger. A target that begins long after
the others has another cause and opens another incident.

All of it is decided minute by minute from open incidents, so the result does not depend on how
minutes are split over ticks, and a restart forgets nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.life_cycle import MINUTE_SECONDS, Observation, RuleTiming, identity, step
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.inhibition import Inhibition
from driftwatch.pipeline.members import instance_of, members_of, target_of
from driftwatch.rulebook.rules import Rule


def pool_key(rule: Rule, pool: str) -> str:
    """Identity of a rule that is per pool, and of a pool's incident."""
    return identity(rule.id, {"pool": pool})


def models_of(targets: Mapping[TargetKey, Target], pools: set[str]) -> dict[str, dict[str, str]]:
    """pool → its model as a label, if all its targets serve the same."""
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


class PoolIncidents:
    """The incidents of pools in some minutes."""

    def __init__(
        self,
        rules: Sequence[Rule],
        targets: Mapping[TargetKey, Target],
        judged: pl.DataFrame,
        inhibition: Inhibition,
    ) -> None:
        self._rules = {rule.id: rule for rule in rules}
        self._targets = targets
        self._models: dict[str, dict[str, dict[str, str]]] = {}  # pool → its :func:`models_of`
        self._inhibition = inhibition
        counts = judged.filter("ever_seen").group_by("end", "pool").len()
        self._sizes: dict[tuple[datetime, str], int] = {
            (end, pool): count for end, pool, count in counts.iter_rows()
        }

    def joined(
        self,
        rule: Rule,
        incidents: dict[str, Incident],
        end: datetime,
        happened: Sequence[Transition],
    ) -> list[Transition]:
        """A rule's transitions of a minute, with its pools' incidents in place of its targets'.

        Args:
            incidents: the open ones; changed in place.
        """
        if rule.together is None:
            return list(happened)
        _part(rule, incidents)
        own, new = [], list[Incident]()
        for one in happened:
            if one.event == "firing" and self._is_shared(one.incident, end):
                new.append(one.incident)
            else:
                own.append(one)
        opened = self._join(rule, incidents, new)
        open_ = [i.key for i in incidents.values() if i.rule == rule.id and i.extent is not None]
        if not open_ and not opened:
            return own
        members = members_of(incidents)
        for key in sorted({*open_, *opened}):
            pool = opened.get(key) or incidents[key].target["pool"]
            own += self._advanced(rule, incidents, end, (key, pool), members.get(key, ()))
        return own

    def _is_shared(self, incident: Incident, end: datetime) -> bool:
        """Whether other targets of its pool could have the same incident."""
        pool = self._pool_of(incident)
        return pool is not None and self._sizes.get((end, pool), 0) > 1

    def _pool_of(self, incident: Incident) -> str | None:
        target = self._targets.get(target_of(incident))
        return incident.target.get("pool") if target is None else target.pool

    def _join(
        self, rule: Rule, incidents: dict[str, Incident], new: Sequence[Incident]
    ) -> dict[str, str]:
        """Join targets' firing incidents to open or new incidents of their pools.

        Returns key → pool of the incidents to open.
        """
        opened: dict[str, str] = {}
        if rule.together is None or not new:
            return opened
        within = timedelta(seconds=rule.together.within_seconds)
        latest = {k: max(i.started_at for i in some) for k, some in members_of(incidents).items()}
        open_ = sorted(
            (i for i in incidents.values() if i.extent is not None),
            key=lambda i: (i.rule != rule.id, i.key),
        )
        for one in new:
            pool = self._pool_of(one) or ""
            near = [i.key for i in open_ if self._is_of_one_cause(i, rule, pool)]
            near += [key for key, of in opened.items() if of == pool]
            near = [k for k in near if one.started_at - latest.get(k, one.started_at) <= within]
            key = near[0] if near else pool_key(rule, pool)
            if not near and key in incidents:
                target = target_of(one)
                labels = {"pool": pool, "instance": target.instance, "engine": target.engine}
                key = identity(rule.id, labels)
            if key not in incidents:
                opened[key] = pool
            latest[key] = max(one.started_at, latest.get(key, one.started_at))
            incidents[one.key] = replace(
                one,
                state="pending",
                firing_at=None,
                inhibited_by=incidents[key].alert if key in incidents else rule.alert,
                part_of=key,
                true_seconds=0.0,
            )
        return opened

    def _is_of_one_cause(self, incident: Incident, rule: Rule, pool: str) -> bool:
        """Whether a pool's open incident may have the same cause as the rule's alert.

        True for an incident of the rule itself, or of a rule in its group that inhibits it: two
        names of one thing.
        """
        if incident.target.get("pool") != pool:
            return False
        other = self._rules.get(incident.rule)
        if other is None or other.id == rule.id:
            return other is not None
        return (
            other.group == rule.group
            and other.alert in rule.inhibited_by
            and incident.severity == rule.in_pool(pool).severity
        )

    def _advanced(
        self,
        rule: Rule,
        incidents: dict[str, Incident],
        end: datetime,
        place: tuple[str, str],
        records: Sequence[Incident],
    ) -> list[Transition]:
        """One incident of a pool, a minute later.

        Args:
            place: its key and its pool.
            records: the incidents of its targets; without any it ends.
        """
        key, pool = place
        concerned = tuple(sorted({target_of(i) for i in records}))
        size = max(self._sizes.get((end, pool), 0), len(concerned))
        observation = self._observed(rule, place, records, len(concerned) == size)
        if (before := incidents.get(key)) is not None:
            by = self._inhibition.taken_over(rule, incidents, end, key)
            observation = replace(observation, inhibited_by=by, superseded_by=by)
            if not records:
                observation = replace(observation, target=before.target)
        transitions = [
            _about(one, concerned, size) if one.event == "firing" else one
            for one in step(incidents, end, [observation])
        ]
        now = incidents.get(key)
        if now is None:
            return transitions
        if transitions or now.extent is None:
            extent = len(concerned) if transitions else 0
            now = replace(now, extent=extent, extent_at=end if transitions else None)
            transitions = [replace(one, incident=now) for one in transitions]
        elif self._is_news(rule, now, end, concerned, size):
            target = dict(observation.target)
            now = replace(now, extent=len(concerned), extent_at=end, target=target)
            transitions = [_about(Transition(now, "updated", end), concerned, size)]
        incidents[key] = now
        return transitions

    def _is_news(
        self,
        rule: Rule,
        incident: Incident,
        end: datetime,
        concerned: Sequence[TargetKey],
        size: int,
    ) -> bool:
        """Whether a pool's incident is sent again with its targets.

        It has doubled or covers the whole pool, or its only target has recovered.
        """
        before, last_at = incident.extent or 0, incident.extent_at
        if incident.state != "firing" or last_at is None or not concerned or rule.together is None:
            return False
        if (end - last_at).total_seconds() < rule.together.wait_seconds:
            return False
        many = len(concerned)
        if instance_of(incident) and target_of(incident) not in concerned:
            return True
        return many >= 2 * before or before < many == size

    def _observed(
        self, rule: Rule, place: tuple[str, str], records: Sequence[Incident], is_whole: bool
    ) -> Observation:
        key, pool = place
        here = rule.in_pool(pool)
        wait = 0.0 if is_whole or rule.together is None else rule.together.wait_seconds
        return Observation(
            key=key,
            # the targets' own incidents have already waited for `for` and `keep_firing_for`
            timing=RuleTiming(rule.id, rule.alert, here.severity, wait + MINUTE_SECONDS, 0.0),
            target=self._labels(rule, pool, records),
            verdict=bool(records),
            since=min((i.started_at for i in records), default=None),
        )

    def _labels(self, rule: Rule, pool: str, records: Sequence[Incident]) -> dict[str, str]:
        """The labels of its only target, else of the pool."""
        if len({target_of(i) for i in records}) == 1:
            return {**records[0].target, **rule.labels}
        if pool not in self._models:
            self._models[pool] = models_of(self._targets, {pool})
        return {"pool": pool, **self._models[pool].get(pool, {}), **rule.labels}


def _about(transition: Transition, concerned: tuple[TargetKey, ...], size: int) -> Transition:
    """The transition, with these targets if they are several."""
    if len(concerned) < 2:
        return transition
    return replace(transition, concerned=concerned, of_targets=size)


def _part(rule: Rule, incidents: dict[str, Incident]) -> None:
    """Detach a target's incident from its pool's, if that is over or another alert took it over."""
    for key, one in list(incidents.items()):
        if one.part_of is None or one.rule != rule.id:
            continue
        pool = incidents.get(one.part_of)
        if pool is None or pool.extent is None or one.inhibited_by != pool.alert:
            incidents[key] = replace(one, part_of=None)
