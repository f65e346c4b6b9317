"""The life of an incident, one call per evaluated minute. Pure.

Time is counted per server, in *evidence*:

* A true minute adds 60 s to ``true_seconds``. At ``for`` (``for: 0s``: after the first minute) the
  server has *met* the rule. A false minute before that removes the server.
* On a server that met the rule, :attr:`Verdict.held` counts. Its false minutes add up; at
  ``keep_firing_for`` the server has *recovered*. A held minute brings it back. ``held`` covers the
  rule's ``until`` and a missed latency target, so servers that miss it by turns are one incident.
* Three kinds of minutes count as neither: those with an unknown verdict, those without a verdict
  (the server vanished), and those in which driftwatch was down.

The incident fires when its first server has met the rule, and resolves when all have recovered. A
server that joins or leaves sends no message. While another alert inhibits a server that has not met
the rule, its time does not count. After that alert it needs :data:`AFTER_INHIBITION_SECONDS`, so
that a recovery soon afterwards sends no page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from driftwatch.incidents.incident import (
    Event,
    Incident,
    ServerCondition,
    Transition,
    identity,
    incident_id,
)
from driftwatch.model import Severity, TargetKey

MINUTE_SECONDS = 60.0
_MINUTE = timedelta(minutes=1)
# A detector's hysteresis: two detectors of one slowdown end at most this far apart.
AFTER_INHIBITION_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class PoolRule:
    """A rule in a pool, as the life cycle needs it."""

    rule: str  # rule id
    alert: str  # alert name
    severity: Severity
    pool: str
    for_seconds: float = 0.0  # how long the condition must be true before it fires
    keep_firing_for_seconds: float = 0.0  # how long it must be false until a server has recovered
    labels: Mapping[str, str] = field(default_factory=dict)  # of the incident

    @property
    def key(self) -> str:
        """The incident's key."""
        return identity(self.rule, self.pool)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rule on one server in one minute; None = unknown."""

    true: bool | None  # the condition
    held: bool | None  # whether a server that met the rule stays concerned
    since: datetime | None = None  # when the condition began, if before this minute


def step(
    before: Incident | None,
    rule: PoolRule,
    minute_end: datetime,
    verdicts: Mapping[TargetKey, Verdict],
    inhibited: Mapping[TargetKey, str] | None = None,
) -> tuple[Incident | None, Event | None]:
    """The incident of a rule and a pool a minute later (None = none is open), and its event.

    A rule's severity and times apply until the incident fires; later changes do not.

    Args:
        verdicts: server → its verdict in this minute.
        inhibited: server → the alert that inhibits the rule there.
    """
    servers = {} if before is None else {one.key: one for one in before.servers}
    by = inhibited or {}
    for key, verdict in verdicts.items():
        after = _advance_server(servers.get(key), key, rule, minute_end, verdict, by.get(key))
        if after is None:
            servers.pop(key, None)
        else:
            servers[key] = after
    ordered = tuple(
        one
        if one.inhibited_by == by.get(key)
        else one.model_copy(update={"inhibited_by": by.get(key)})
        for key, one in sorted(servers.items())
    )
    if not ordered:
        return None, None
    if before is None:
        started_at = min(one.since for one in ordered)
        before = Incident(
            id=incident_id(rule.key, minute_end - _MINUTE),
            rule=rule.rule,
            alert=rule.alert,
            severity=rule.severity,
            pool=rule.pool,
            labels=rule.labels,
            started_at=started_at,
        )
    return _advance_incident(before, rule, minute_end, ordered)


def _advance_incident(
    before: Incident, rule: PoolRule, minute_end: datetime, servers: tuple[ServerCondition, ...]
) -> tuple[Incident, Event | None]:
    if rule.severity == "notice" and any(one.is_concerned for one in servers):
        # a notice has no update, so it also counts servers that have not met the rule yet
        servers = tuple(one.model_copy(update={"met": True}) for one in servers)
    concerned = [one for one in servers if one.is_concerned]
    inhibitors = [one.inhibited_by for one in servers if not one.recovered and one.inhibited_by]
    update: dict[str, object] = {
        "servers": servers,
        "inhibited_by": inhibitors[0] if inhibitors and not concerned else None,
    }
    event: Event | None = None
    if not before.is_firing:
        update |= {"alert": rule.alert, "severity": rule.severity, "labels": rule.labels}
        update["started_at"] = min(one.since for one in concerned or servers)
        if concerned:
            update["firing_at"], event = minute_end, "firing"
    elif all(one.recovered for one in servers):
        update["resolved_at"], event = minute_end, "resolved"
    return before.model_copy(update=update), event


def _advance_server(
    before: ServerCondition | None,
    key: TargetKey,
    rule: PoolRule,
    minute_end: datetime,
    verdict: Verdict,
    inhibited_by: str | None,
) -> ServerCondition | None:
    """One server a minute later; None = not part of the incident."""
    minute_start = minute_end - _MINUTE
    if before is None:
        if not verdict.true:
            return None
        since = minute_start if verdict.since is None else min(verdict.since, minute_start)
        before = ServerCondition(
            instance=key.instance, engine=key.engine, since=since, last_true_at=minute_start
        )
    elif before.recovered:
        if not verdict.held:
            return before
        before = before.model_copy(update={"recovered": False})
    held = verdict.held if before.met else verdict.true
    # after the clock went back a minute must not count twice
    if held is None or minute_end <= before.last_true_at:
        return before
    if not held:
        if not before.met:
            return None
        seconds = before.false_seconds + MINUTE_SECONDS
        over = seconds >= rule.keep_firing_for_seconds
        return before.model_copy(update={"false_seconds": seconds, "recovered": over})
    seconds, met, waited = before.true_seconds + MINUTE_SECONDS, before.met, before.waited
    if not met and inhibited_by is not None:
        seconds, waited = 0.0, True
    elif not met:
        met = seconds >= max(rule.for_seconds, AFTER_INHIBITION_SECONDS if waited else 0.0)
    update = {
        "last_true_at": minute_end,
        "true_seconds": seconds,
        "false_seconds": 0.0,
        "met": met,
        "waited": waited,
    }
    return before.model_copy(update=update)


def without_servers(
    incident: Incident, minute_end: datetime, gone: Mapping[TargetKey, str]
) -> tuple[Incident | None, Transition | None]:
    """The incident without the servers that are gone; None = it is no longer open.

    A firing incident that loses its last server closes. ``gone``: server → why.
    """
    leaving = [one.key for one in incident.servers if one.key in gone]
    if not leaving:
        return incident, None
    staying = tuple(one for one in incident.servers if one.key not in gone)
    after = incident.model_copy(update={"servers": staying})
    if any(not one.recovered for one in staying):
        return after, None
    if not incident.is_firing:
        return None, None
    return None, closed(after if staying else incident, minute_end, gone[leaving[-1]])


def closed(incident: Incident, minute_end: datetime, reason: str) -> Transition:
    """The end of an incident without a measured recovery."""
    over = incident.model_copy(update={"resolved_at": minute_end})
    return Transition(over, "resolved", minute_end, reason)
