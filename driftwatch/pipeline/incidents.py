"""From verdicts to incidents: which servers' minutes count, and which alert inhibits which."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.life_cycle import (
    AFTER_INHIBITION_SECONDS,
    MINUTE_SECONDS,
    PoolRule,
    Verdict,
    closed,
    step,
    without_servers,
)
from driftwatch.model import Severity, Target, TargetKey
from driftwatch.notify.page import REFRESH_EVERY, next_refresh
from driftwatch.rulebook.rules import Rule

_KEY = list(KEY_COLUMNS)

NOW_ELSEWHERE = "the server is in pool {} now"
NOW_OFF = "the rule is off in this pool now"
REMOVED = "the rule was removed"
DISABLED = "the rule was switched off: {}"

# An incident stops inhibiting after this long with an unknown verdict: longer than a detector's
# hysteresis, and than a restart with its warm-up.
INHIBITS_UNKNOWN = timedelta(hours=1)
_RANK: Mapping[Severity, int] = {"page": 0, "ticket": 1, "notice": 2}


class Progress(NamedTuple):
    """The incidents after some minutes, and their events."""

    incidents: dict[str, Incident]  # key → open incident
    happened: tuple[Transition, ...]  # incidents that fired or resolved, in order
    # incidents that fired earlier, every :data:`driftwatch.notify.page.REFRESH_EVERY`: their pages
    # are due
    refreshes: tuple[Transition, ...]


def advance(
    rules: Sequence[Rule],
    incidents: Mapping[str, Incident],
    targets: Mapping[TargetKey, Target],
    rows: pl.DataFrame,
    verdicts: pl.DataFrame,
    ended: Sequence[Incident] = (),
) -> Progress:
    """Advance every incident minute by minute.

    Args:
        rows: evidence rows.
        verdicts: one Boolean column per rule id, beside ``rows``.
        ended: recently resolved incidents (:func:`just_ended`).
    """
    minutes: _VerdictsByMinute = {}
    judged = rows.select(*_KEY, "pool", "end", *_SINCE)
    for rule in rules:
        open_servers = [
            server.key for i in incidents.values() if i.rule == rule.id for server in i.servers
        ]
        if open_servers or verdicts[rule.id].any():
            held = rows.select(held=rule.held)["held"]
            of_rule = judged.with_columns(true=verdicts[rule.id], held=held)
            _add_verdicts(minutes, rule, relevant(of_rule, rule, open_servers))
    if not minutes and not incidents:
        return Progress({}, (), ())
    advancing = _OpenIncidents(rules, targets, incidents, ended)
    return advancing.play(judged["end"].unique().sort(), minutes)


def just_ended(ended: Iterable[Incident], at: datetime) -> tuple[Incident, ...]:
    """Incidents that resolved so recently that a backlog may remain."""
    since = at - timedelta(seconds=AFTER_INHIBITION_SECONDS)
    return tuple(i for i in ended if i.resolved_at is not None and i.resolved_at > since)


# minute → (rule id, pool) → verdicts of its servers
_VerdictsByMinute = dict[datetime, dict[tuple[str, str], dict[TargetKey, Verdict]]]


class _OpenIncidents:
    """The open incidents, advanced minute by minute."""

    def __init__(
        self,
        rules: Sequence[Rule],
        targets: Mapping[TargetKey, Target],
        incidents: Mapping[str, Incident],
        ended: Sequence[Incident],
    ) -> None:
        self._rules, self._ended = inhibitors_first(rules), list(ended)
        self._by_id = {rule.id: rule for rule in rules}
        self._targets = targets
        self._models: dict[str, set[str | None]] | None = None
        self._pool_rules: dict[tuple[str, str], PoolRule] = {}
        # pool → rule id → open incident
        self._open: dict[str, dict[str, Incident]] = {}
        for one in incidents.values():
            self._open.setdefault(one.pool, {})[one.rule] = one

    def play(self, ends: Iterable[datetime], minutes: _VerdictsByMinute) -> Progress:
        """Advance minute by minute, in order."""
        happened, refreshes = list[Transition](), list[Transition]()
        for end in ends:
            now = self._advance(end, minutes.get(end, {}))
            happened += sorted(now, key=lambda t: t.incident.key)
            if next_refresh(end - REFRESH_EVERY) == end:
                new = {t.incident.id for t in now}
                firing = [i for i in self._all() if i.is_firing and i.id not in new]
                refreshes += [Transition(one, "updated", end) for one in firing]
        after = {one.key: one for one in self._all()}
        return Progress(dict(sorted(after.items())), tuple(happened), tuple(refreshes))

    def _all(self) -> list[Incident]:
        every = [one for of_pool in self._open.values() for one in of_pool.values()]
        return sorted(every, key=lambda one: one.key)

    def _advance(
        self, end: datetime, verdicts: Mapping[tuple[str, str], Mapping[TargetKey, Verdict]]
    ) -> list[Transition]:
        pools: dict[str, set[str]] = {}
        for rule_id, pool in verdicts:
            pools.setdefault(rule_id, set()).add(pool)
        for pool, of_pool in self._open.items():
            for rule_id in of_pool:
                pools.setdefault(rule_id, set()).add(pool)
        happened = []
        for rule in self._rules:
            for pool in sorted(pools.get(rule.id, ())):
                here, of_pool = verdicts.get((rule.id, pool), {}), self._open.setdefault(pool, {})
                before, pool_rule = of_pool.pop(rule.id, None), self._pool_rule(rule, pool)
                servers = {*here, *(s.key for s in (before.servers if before else ()))}
                by = inhibited(rule, pool_rule.severity, servers, of_pool, self._by_id, end)
                if pool_rule.severity == "notice":  # a backlog belongs to its cause
                    for over in just_ended(self._ended, end):
                        if over.pool == pool and over.alert in rule.inhibited_by:
                            met = (one.key for one in over.servers if one.met)
                            by = {**dict.fromkeys(met, over.alert), **by}
                after, event = step(before, pool_rule, end, here, by)
                if after is not None and event == "resolved":
                    self._ended.append(after)
                if after is not None and event is not None:
                    happened.append(Transition(after, event, end))
                if after is not None and event != "resolved":
                    of_pool[rule.id] = after
        return happened

    def _pool_rule(self, rule: Rule, pool: str) -> PoolRule:
        if (rule.id, pool) not in self._pool_rules:
            here = rule.in_pool(pool)
            self._pool_rules[rule.id, pool] = PoolRule(
                rule.id,
                rule.alert,
                here.severity,
                pool,
                here.for_seconds,
                here.keep_firing_for_seconds,
                {**self._model_of(pool), **rule.labels},
            )
        return self._pool_rules[rule.id, pool]

    def _model_of(self, pool: str) -> dict[str, str]:
        """The model label, if all servers of the pool have the same model."""
        if self._models is None:
            self._models = {}
            for target in self._targets.values():
                models = self._models.setdefault(target.pool or "", set())
                models.add(target.labels.get("model_name"))
        models = self._models.get(pool, set())
        model = next(iter(models)) if len(models) == 1 else None
        return {"model_name": model} if model else {}


def inhibited(
    rule: Rule,
    severity: Severity,
    servers: Iterable[TargetKey],
    others: Mapping[str, Incident],
    rules: Mapping[str, Rule],
    end: datetime,
) -> dict[TargetKey, str]:
    """Server → the alert that inhibits a rule there.

    An incident inhibits on the servers that it concerns. It inhibits notices in its whole pool. An
    incident caused by traffic does so for every rule, as a pool shares its traffic. A ticket
    inhibits no page.

    Args:
        others: rule id → open incident of the pool.
        rules: by id.
    """
    by: dict[TargetKey, str] = {}
    for other_id, other in sorted(others.items()):
        if other.alert not in rule.inhibited_by or _RANK[other.severity] > _RANK[severity]:
            continue
        if not other.is_firing or end - other.last_true_at > INHIBITS_UNKNOWN:
            continue
        concerned, of = set(other.concerned), rules.get(other_id)
        is_of_pool = severity == "notice" or (of is not None and of.page.family == "traffic")
        for key in servers if is_of_pool and concerned else concerned:
            by.setdefault(key, other.alert)
    return by


def inhibitors_first(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules in an order in which each follows its inhibitors.

    Of two rules that inhibit each other, the first in the files comes first.
    """
    place = {rule.id: number for number, rule in enumerate(rules)}
    ordered: dict[str, Rule] = {}
    begun: set[str] = set()

    def add(rule: Rule) -> None:
        if rule.id in begun:
            return
        begun.add(rule.id)
        for other in rules:
            is_mutual = rule.alert in other.inhibited_by and place[rule.id] < place[other.id]
            if other.alert in rule.inhibited_by and not is_mutual:
                add(other)
        ordered[rule.id] = rule

    for rule in rules:
        add(rule)
    return tuple(ordered.values())


def close_departed(
    rules: Sequence[Rule],
    incidents: Mapping[str, Incident],
    remaining: Mapping[TargetKey, Target],
    reasons: Mapping[TargetKey, str],
    minute_end: datetime,
) -> tuple[dict[str, Incident], tuple[Transition, ...]]:
    """Remove retired and moved servers from incidents; close incidents of rules that are off now.

    Returns the open incidents by key, and the closed ones.

    Args:
        rules: every rule, disabled ones too.
        remaining: the other targets; after a restart one of an incident may be missing.
        reasons: retired target → why.
    """
    rule_by_id = {rule.id: rule for rule in rules}
    after, ended = dict[str, Incident](), list[Transition]()
    for key, incident in sorted(incidents.items()):
        why = _not_evaluated(rule_by_id.get(incident.rule), incident.pool)
        if why is not None:
            left, end = None, closed(incident, minute_end, why) if incident.is_firing else None
        else:
            gone = {
                server.key: reason
                for server in incident.servers
                if (
                    reason := reasons.get(server.key) or _moved(remaining.get(server.key), incident)
                )
            }
            left, end = without_servers(incident, minute_end, gone)
        if left is not None:
            after[key] = left
        if end is not None:
            ended.append(end)
    return after, tuple(ended)


def _moved(target: Target | None, incident: Incident) -> str | None:
    if target is None or target.pool in (None, incident.pool):
        return None
    return NOW_ELSEWHERE.format(target.pool)


def _not_evaluated(rule: Rule | None, pool: str) -> str | None:
    """Why the rule is no longer evaluated in a pool; None = it is."""
    if rule is None:
        return REMOVED
    if not rule.is_evaluated:
        return DISABLED.format(rule.reason)
    return None if rule.in_pool(pool).enabled else NOW_OFF


def relevant(observed: pl.DataFrame, rule: Rule, open_servers: Sequence[TargetKey]) -> pl.DataFrame:
    """The rows of one rule that can change an incident: a history of days takes an eighteenth of
    the time without the others.

    A server joins with a true minute and has recovered at the latest after ``keep_firing_for`` of
    minutes that do not hold it. Rows from then to the next true minute change nothing.

    Args:
        observed: key, ``end``, ``true`` and ``held`` (NULL = unknown), a row per server and minute.
        open_servers: servers of open incidents before the first row.
    """
    was_open = pl.DataFrame(open_servers, schema=dict.fromkeys(_KEY, pl.String), orient="row")
    was_open = was_open.unique().with_columns(was_open=pl.lit(True))
    longest = max(one.keep_firing_for_seconds for one in rule.variants)
    true = pl.col("true").fill_null(False)
    concerned = pl.concat([observed.filter(true).select(_KEY), was_open.select(_KEY)]).unique()
    rows = observed.join(concerned, on=_KEY, how="semi").join(was_open, on=_KEY, how="left")
    rows = rows.sort(*_KEY, "end")
    begun = true.cum_max().over(_KEY) | pl.col("was_open").fill_null(False)
    calm = pl.col("held").eq(False).fill_null(False).cum_sum().over(_KEY)
    last = pl.when(pl.col("held") | true).then(calm).forward_fill().over(_KEY).fill_null(0)
    return rows.filter(begun & (calm - last <= max(1, math.ceil(longest / MINUTE_SECONDS))))


def _add_verdicts(minutes: _VerdictsByMinute, rule: Rule, rows: pl.DataFrame) -> None:
    for row in rows.iter_rows(named=True):
        key = TargetKey(row["instance"], row["engine"])
        of_pool = minutes.setdefault(row["end"], {}).setdefault((rule.id, row["pool"]), {})
        of_pool[key] = Verdict(row["true"], row["held"], _since(rule, row))


_SINCE = ("seconds_since_last_token", "coverage_missing_seconds")


def _since(rule: Rule, row: Mapping[str, Any]) -> datetime | None:
    """When the condition began, if a column has it; else a page estimates it (pipeline/onset)."""
    for name in _SINCE:
        if name in rule.columns and row[name] is not None:
            end: datetime = row["end"]
            return end - timedelta(seconds=row[name])
    return None
