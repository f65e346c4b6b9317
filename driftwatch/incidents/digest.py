"""The day's digest of notices: what began and what ended, per receiver. Pure.

A tick adds the notices that it fired and ended to what the ticks before it left (:class:`Tally`, a
JSON document in the store); the first tick after the day's hour turns that into one digest a
receiver and begins anew, in the same transaction. So each notice stands in one digest: downtime
over the hour makes it late, a clock that is set back makes no second one of a day.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.incidents.planner import Plan
from driftwatch.incidents.routing import Routed, Routes
from driftwatch.model import Incident, Transition

# name under which the store remembers what the next digest holds
MEMORY = "digest"
SCHEMA_VERSION = 1
_DAYS_REMEMBERED = 7
_LONGEST_SUMMARY = 300

Groups = dict[str, dict[str, dict[str, dict[str, Any]]]]  # receiver → pool → alert → counts


@dataclass(frozen=True, slots=True)
class Tally:
    """What the next digests hold so far."""

    since: datetime  # from when on
    # receiver → pool → alert → ``began``, ``ended`` (counts), ``last_at``, ``last`` (summary)
    groups: Groups = field(default_factory=dict)
    days: tuple[str, ...] = ()  # the last days that had their digest

    def as_bytes(self) -> bytes:
        """As the store remembers it; equal values are equal bytes."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "since": self.since.isoformat(),
            "groups": self.groups,
            "days": list(self.days),
        }
        return json.dumps(document, sort_keys=True, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, stored: bytes | None, now: datetime) -> Tally:
        """What the store remembers; nothing yet where it remembers nothing."""
        if stored is None:
            return cls(now)
        document = json.loads(stored)
        since = datetime.fromisoformat(document["since"])
        # after a clock that is set back the time to come is not over yet
        return cls(min(since, now), document["groups"], tuple(document["days"]))


@dataclass(frozen=True, slots=True)
class Digests:
    """What a tick does about digests."""

    deliveries: tuple[PlannedDelivery, ...]  # one a receiver where the hour has come
    memory: dict[str, bytes]  # what the store is to remember; empty where that is unchanged


def plan_digests(
    stored: bytes | None,
    plan: Plan,
    before: Mapping[str, Incident],
    routes: Routes,
    now: datetime,
    elsewhere: Iterable[Incident] = (),
) -> Digests:
    """The digests of one tick.

    ``stored``: what the store remembers under :data:`MEMORY`; ``plan``: of the tick's pages;
    ``before``: key → incident before the tick; ``elsewhere``: what is open in other
    shards.
    """
    tally = Tally.from_bytes(stored, now)  # read anew: its groups are this tick's own
    for incident, event, at in _events(plan, before):
        _add(tally.groups, incident, event, at, routes.of(incident))
    deliveries: tuple[PlannedDelivery, ...] = ()
    due = _last_due(now, routes.digest_hour)
    day = f"{due:%Y-%m-%d}"
    if due > tally.since and day not in tally.days:
        every = (*plan.open_incidents.values(), *elsewhere)
        still_open = [one for one in every if one.state == "firing"]
        deliveries = tuple(
            PlannedDelivery(
                day,
                "digest",
                receiver,
                "scheduled",
                digest_document(day, tally.since, now, groups, still_open),
                now,
                kind="digest",
            )
            for receiver, groups in sorted(tally.groups.items())
            if receiver in routes.names
        )
        tally = Tally(now, {}, (*tally.days, day)[-_DAYS_REMEMBERED:])
    document = tally.as_bytes()
    return Digests(deliveries, {} if document == stored else {MEMORY: document})


def _last_due(now: datetime, hour: int) -> datetime:
    """When the last digest was due, up to now."""
    today = now.astimezone(UTC).replace(hour=hour, minute=0, second=0, microsecond=0)
    return today if today <= now else today - timedelta(days=1)


def _events(plan: Plan, before: Mapping[str, Incident]) -> Iterable[tuple[Incident, str, datetime]]:
    """The notices that began and ended; what was held back begins when nothing holds it."""
    for transition in plan.transitions:
        if (event := _event(transition)) is not None:
            yield transition.incident, event, transition.at
    for key, incident in sorted(plan.open_incidents.items()):
        earlier = before.get(key)
        if (
            incident.severity == "notice"
            and earlier is not None
            and earlier.id == incident.id
            and earlier.state == incident.state == "firing"
            and earlier.is_quiet
            and not incident.is_quiet
        ):
            yield incident, "began", incident.firing_at or incident.started_at


def _event(transition: Transition) -> str | None:
    incident = transition.incident
    if incident.severity != "notice" or incident.is_quiet:
        return None
    return {"firing": "began", "resolved": "ended"}.get(transition.event)


def _add(groups: Groups, incident: Incident, event: str, at: datetime, routed: Routed) -> None:
    """Count one event for every receiver whose digest it belongs to."""
    pool = incident.target.get("pool") or incident.target.get("instance", "")
    summary = str((incident.page or {}).get("summary", ""))[:_LONGEST_SUMMARY]
    for receiver in routed.digests:
        alerts = groups.setdefault(receiver, {}).setdefault(pool, {})
        counts = alerts.setdefault(
            incident.alert, {"began": 0, "ended": 0, "last_at": "", "last": ""}
        )
        counts[event] += 1
        # of one that ended before this digest began there is nothing else to tell
        if event == "began" or not counts["last"]:
            counts |= {"last_at": at.astimezone(UTC).isoformat(), "last": summary}


def digest_document(
    day: str,
    since: datetime,
    until: datetime,
    groups: Mapping[str, Mapping[str, Mapping[str, Any]]],
    still_open: Iterable[Incident],
) -> dict[str, Any]:
    """One receiver's digest as JSON.

    ``groups``: pool → alert → counts of this receiver; ``still_open``: incidents that fire now.
    """
    firing: dict[tuple[str, str], int] = {}
    for incident in still_open:
        key = (incident.target.get("pool") or incident.target.get("instance", ""), incident.alert)
        firing[key] = firing.get(key, 0) + (incident.severity == "notice")
    rows = [
        {"pool": pool, "alert": alert, **counts, "open": firing.get((pool, alert), 0)}
        for pool, alerts in sorted(groups.items())
        for alert, counts in sorted(alerts.items())
    ]
    # what there is most of first
    rows.sort(key=lambda row: (-row["began"] - row["ended"], row["pool"], row["alert"]))
    totals = {name: sum(row[name] for row in rows) for name in ("began", "ended", "open")}
    return {
        "schema_version": SCHEMA_VERSION,
        "event": "digest",
        "day": day,
        "since": since.astimezone(UTC).isoformat(),
        "until": until.astimezone(UTC).isoformat(),
        "summary": _summary(totals),
        "counts": totals,
        "notices": rows,
        "links": {"command": f"driftwatch incidents --all --since {_time(since)}"},
    }


def _summary(totals: Mapping[str, int]) -> str:
    began, ended, still = totals["began"], totals["ended"], totals["open"]
    noun = "notice" if began == 1 else "notices"
    return f"{began} {noun} began, {ended} ended, {still} still open"


def _time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
